package dialer

import (
	"context"
	"sync"
	"time"

	"linkproxy/dialer/route"
)

// Event is a decision about a peer, as it is made.
type Event struct {
	Peer string
	route.Decision
	Missed int // how many were made before this one and after the last, and are not told
}

// Why tells the last decisions about a peer, oldest first, at most route.MaxDecisions.
func (d *Dialer) Why(ctx context.Context, peer string) (list []route.Decision, err error) {
	p, err := d.find(peer)
	if err != nil {
		return nil, err
	}
	err = p.ask(ctx, func(time.Time) { list = p.decisions.All() })
	return list, err
}

// watchers are those who are told of decisions as they are made.
type watchers struct {
	mu   sync.Mutex
	list map[*watcher]bool
}

// watched is how many events wait for one who is slow; those beyond are missed, and counted.
const watched = 256

type watcher struct {
	c      chan Event
	missed int
}

// Watch sends every decision about any peer to the channel until stop is called. Nobody waits for a slow reader: it misses some.
func (d *Dialer) Watch() (events <-chan Event, stop func()) {
	w := &watcher{c: make(chan Event, watched)}
	d.watchers.mu.Lock()
	defer d.watchers.mu.Unlock()
	if d.watchers.list == nil {
		d.watchers.list = map[*watcher]bool{}
	}
	d.watchers.list[w] = true
	return w.c, func() {
		d.watchers.mu.Lock()
		defer d.watchers.mu.Unlock()
		delete(d.watchers.list, w)
	}
}

func (ws *watchers) tell(e Event) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.list {
		e.Missed = w.missed
		select {
		case w.c <- e:
			w.missed = 0
		default:
			w.missed++
		}
	}
}

// decided keeps a decision for those who ask why, and tells those who watch.
func (p *peer) decided(d route.Decision) {
	p.decisions.Add(d)
	p.d.watchers.tell(Event{Peer: p.name, Decision: d})
}
