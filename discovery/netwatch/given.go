package netwatch

import "sync"

// given is a system that Config describes, for worlds that are not this machine.
type given struct {
	look func() (Reading, error)
	next func() <-chan struct{}
	stop chan struct{}
	done sync.WaitGroup
}

func (g *given) read() (Reading, error) { return g.look() }

func (g *given) listen(heard *signal) (changes, wakes bool, err error) {
	if g.next == nil {
		return false, false, nil
	}
	g.stop = make(chan struct{})
	first := g.next()
	g.done.Go(func() { g.follow(first, heard) })
	return true, false, nil
}

// follow passes on each change. The next is waited for before this one is told, so that none is missed.
func (g *given) follow(c <-chan struct{}, heard *signal) {
	for {
		select {
		case <-c:
			c = g.next()
			heard.add(news{changed: true})
		case <-g.stop:
			return
		}
	}
}

func (g *given) close() {
	if g.stop != nil {
		close(g.stop)
	}
	g.done.Wait()
}
