package remoting

import "sync"

// A gate counts the goroutines of one owner. Once shut it lets nobody in, so
// that whoever waits for it to be empty waits for a fixed set.
type gate struct {
	mu     sync.Mutex
	inside int
	empty  chan struct{} // non-nil once shut; closed when the last one has left
}

// enter reports whether the caller may start a goroutine; it must call leave in
// the end.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.empty != nil {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
	}
}

// shut closes the gate and returns a channel that is closed when nobody is
// inside. It may be called again.
func (g *gate) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.empty == nil {
		g.empty = make(chan struct{})
		if g.inside == 0 {
			close(g.empty)
		}
	}
	return g.empty
}
