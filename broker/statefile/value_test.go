package statefile_test

import (
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/sluicemq/sluice/broker/statefile"
)

type counts struct{ m map[string]int }

func (c *counts) clone() *counts { return &counts{maps.Clone(c.m)} }

// disk records what a Value saves; during runs in the midst of each save.
type disk struct {
	saves  []map[string]int
	fail   error
	during func()
}

func (d *disk) save(c *counts) error {
	if d.during != nil {
		d.during()
	}
	if d.fail != nil {
		return d.fail
	}
	d.saves = append(d.saves, maps.Clone(c.m))
	return nil
}

func newValue(d *disk) *statefile.Value[counts] {
	return statefile.NewValue(&counts{map[string]int{}}, statefile.ValueOptions[counts]{Clone: (*counts).clone, Save: d.save})
}

func increment(key string) func(*counts) (bool, error) {
	return func(c *counts) (bool, error) { c.m[key]++; return true, nil }
}

func TestChangesShareSaves(t *testing.T) {
	const changes = 100
	var edited, returned sync.WaitGroup
	edited.Add(changes)
	d := &disk{during: edited.Wait} // the first save lasts until all are staged
	v := newValue(d)
	for range changes {
		returned.Go(func() {
			err := v.Change(func(c *counts) (bool, error) {
				c.m["n"]++
				edited.Done()
				return true, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	returned.Wait()
	if got := v.Load().m["n"]; got != changes {
		t.Errorf("n is %d, want %d", got, changes)
	}
	if len(d.saves) > 2 {
		t.Errorf("%d changes at once took %d saves, want at most 2", changes, len(d.saves))
	}
	if last := d.saves[len(d.saves)-1]["n"]; last != changes {
		t.Errorf("the last save holds %d, want %d", last, changes)
	}
}

func TestChangeIsInvisibleUntilSaved(t *testing.T) {
	d := &disk{}
	v := newValue(d)
	d.during = func() {
		if v.Load().m["n"] != 0 {
			t.Error("a change is visible before it is saved")
		}
	}
	if err := v.Change(increment("n")); err != nil {
		t.Fatal(err)
	}
	if v.Load().m["n"] != 1 {
		t.Error("a saved change is not visible")
	}
}

// Who finds a change already made must not go on before that change is durable.
func TestChangeThatFindsNothingToDoWaitsForWhatItSaw(t *testing.T) {
	saving, finish := make(chan struct{}), make(chan struct{})
	d := &disk{during: func() { close(saving); <-finish }}
	v := newValue(d)
	var done sync.WaitGroup
	done.Go(func() { _ = v.Change(increment("n")) })
	<-saving
	err := v.Change(func(c *counts) (bool, error) {
		if c.m["n"] != 1 {
			t.Errorf("edit sees n = %d, want the staged 1", c.m["n"])
		}
		close(finish)
		return false, nil
	})
	if err != nil || v.Load().m["n"] != 1 {
		t.Errorf("returned %v with n = %d visible, want 1", err, v.Load().m["n"])
	}
	done.Wait()
	if len(d.saves) != 1 {
		t.Errorf("%d saves, want 1", len(d.saves))
	}
}

func TestFailedSaveUndoesWhatIsNotSaved(t *testing.T) {
	var edited, returned sync.WaitGroup
	edited.Add(3)
	broken := errors.New("no space")
	d := &disk{fail: broken, during: edited.Wait}
	v := newValue(d)
	for _, key := range []string{"a", "b", "c"} {
		returned.Go(func() {
			err := v.Change(func(c *counts) (bool, error) { c.m[key]++; edited.Done(); return true, nil })
			if !errors.Is(err, broken) {
				t.Errorf("change of %s: %v, want %v", key, err, broken)
			}
		})
	}
	returned.Wait()
	if len(v.Load().m) != 0 {
		t.Errorf("undone changes are visible: %v", v.Load().m)
	}
	if err := v.Change(func(*counts) (bool, error) { return false, nil }); err != nil {
		t.Errorf("an old failure is reported again: %v", err)
	}
	d.fail = nil
	if err := v.Change(increment("d")); err != nil {
		t.Fatal(err)
	}
	if got := d.saves[0]; len(got) != 1 || got["d"] != 1 {
		t.Errorf("saved %v, want only d", got)
	}
}

func TestRefusedEditChangesNothing(t *testing.T) {
	d := &disk{}
	v := newValue(d)
	refused := errors.New("refused")
	if err := v.Change(func(*counts) (bool, error) { return false, refused }); err != refused {
		t.Errorf("got %v", err)
	}
	if len(d.saves) != 0 {
		t.Error("a refused change was saved")
	}
}
