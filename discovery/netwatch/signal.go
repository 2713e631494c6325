package netwatch

import "sync"

// signal carries what the system says to the loop: it never blocks who calls it, and many calls become one.
type signal struct {
	c chan struct{} // has one entry while there is something to take

	mu  sync.Mutex
	now news
}

// news is what was heard since the loop took it last.
type news struct {
	changed bool         // look again
	woke    bool         // the system says it woke
	lost    map[int]bool // links, by index, that were without a carrier for a while
	err     error        // no more will be heard, and why
}

// merge adds what another news says.
func (n *news) merge(o news) {
	n.changed = n.changed || o.changed
	n.woke = n.woke || o.woke
	for i := range o.lost {
		if n.lost == nil {
			n.lost = map[int]bool{}
		}
		n.lost[i] = true
	}
	if o.err != nil {
		n.err = o.err
	}
}

func newSignal() *signal { return &signal{c: make(chan struct{}, 1)} }

// add merges n into what the loop takes next. An empty n has it look at its clock.
func (s *signal) add(n news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.merge(n)
	select { // does not wait
	case s.c <- struct{}{}:
	default:
	}
}

// take is all that was heard since the last call.
func (s *signal) take() news {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.now
	s.now = news{}
	select {
	case <-s.c:
	default:
	}
	return n
}
