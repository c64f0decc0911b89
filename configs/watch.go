package configs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Debouncing of file events: an editor or a deployment makes several in a row.
const (
	settle    = 150 * time.Millisecond // quiet time before the file is read
	settleMax = 2 * time.Second        // read after this long even when it is never quiet
)

// A Watcher follows the configuration file of a running process.
type Watcher struct {
	Loader  Loader
	Running *Config                           // what the process was started with
	Hurry   <-chan os.Signal                  // a receive reads the file at once, even unchanged; may be nil
	Report  func(changed []string, err error) // told of every reload: keys applied, or why refused

	refused bool // the last report was an error: that the file is right again is news
}

// Watch reloads the configuration whenever its file changes, until ctx ends. A new
// configuration is loaded and checked whole; apply is called only with one that may replace
// the running one, and when it returns an error the old one stays. apply and Report are
// called from this goroutine, one at a time.
//
// The directory is watched, not the file: editors replace files by renaming, and Kubernetes
// swaps a symbolic link beside it.
func Watch(ctx context.Context, w Watcher, apply func(old, new *Config) error) error {
	watch, err := w.open()
	if err != nil {
		return err
	}
	defer watch.Close()
	// The file may have changed between the load at the start and the watch.
	last := w.reload(nil, false, apply)
	var quiet, late <-chan time.Time
	for {
		hurried := false
		select {
		case <-ctx.Done():
			return nil
		case <-watch.Events:
			quiet, late = time.After(settle), orAfter(late, settleMax)
			continue
		case <-watch.Errors: // events were lost; what they said can be read from the file
			quiet, late = time.After(settle), orAfter(late, settleMax)
			continue
		case <-w.Hurry:
			hurried = true
		case <-quiet:
		case <-late:
		}
		quiet, late = nil, nil
		last = w.reload(last, hurried, apply)
	}
}

// orAfter keeps a timer that is running, or starts one.
func orAfter(running <-chan time.Time, d time.Duration) <-chan time.Time {
	if running != nil {
		return running
	}
	return time.After(d)
}

// open starts the watch. Without a file it watches nothing, and only Hurry reloads.
func (w *Watcher) open() (*fsnotify.Watcher, error) {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the configuration: %w", err)
	}
	if w.Loader.File == "" {
		return watch, nil
	}
	dir := filepath.Dir(w.Loader.File)
	if err := watch.Add(dir); err != nil {
		watch.Close()
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	return watch, nil
}

// reload reads the file and applies it if it differs from what was read last. It returns what
// it read, so that a refused file is reported once and not at every event beside it.
func (w *Watcher) reload(last []byte, hurried bool, apply func(old, new *Config) error) []byte {
	var data []byte
	if w.Loader.File != "" {
		var err error
		data, err = os.ReadFile(w.Loader.File)
		if err != nil {
			// Once is enough: a file that stays away is not news at every event.
			if hurried || last != nil {
				w.report(nil, fmt.Errorf("read configuration %s: %w", w.Loader.File, underlying(err)))
			}
			return nil
		}
		if last != nil && bytes.Equal(data, last) && !hurried {
			return last
		}
		if len(bytes.TrimSpace(data)) == 0 {
			// A file that is being rewritten is empty for a moment. Read as a
			// configuration, it would mean "all defaults".
			w.report(nil, fmt.Errorf("%s is empty; the running configuration is kept", w.Loader.File))
			return data
		}
	}
	next, err := w.Loader.load(data)
	if err == nil {
		err = CheckReload(w.Running, next)
	}
	if err != nil {
		w.report(nil, err)
		return data
	}
	changed := Changes(w.Running, next)
	if len(changed) > 0 {
		if err := apply(w.Running, next); err != nil {
			w.report(nil, err)
			return data
		}
	}
	w.Running = next
	if len(changed) > 0 || hurried || w.refused {
		w.report(changed, nil)
	}
	return data
}

func (w *Watcher) report(changed []string, err error) {
	w.refused = err != nil
	if w.Report != nil {
		w.Report(changed, err)
	}
}
