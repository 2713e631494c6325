package netwatch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pollIdle is how often a system that tells nothing is looked at, and its clock, while nobody needs to know at once. Four times
	// a minute leaves most of the ten wake-ups that an idle program may cost to others.
	pollIdle = 15 * time.Second
	// pollWatchful is how often while streams are open: a wake-up is to be noticed within a second.
	pollWatchful = time.Second
	// recheck is how often a system that does tell is looked at all the same: nothing guarantees that it told everything.
	recheck = time.Minute
	// coalesce is how long the loop waits after a first notice before it looks: one change is told in several, over some milliseconds
	// (carrier, address, prefix route, default route). It takes a third of the 50 ms that a lost interface may cost.
	coalesce = 15 * time.Millisecond
	// settleMax is how many times in a row a look is repeated because something changed meanwhile, so that what is told is not half of
	// one network and half of another. An interface that flaps without end is told all the same.
	settleMax = 4
)

// routerLooks are the times after a change at which the gateway's hardware address is looked for, if it is not read yet: the system
// learns it from the first packet sent there, and asks three times in three seconds.
var routerLooks = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}

// Config is what a Watcher needs. The zero Config works.
type Config struct {
	Secret   []byte              // of this installation, the key of Network.Router; empty: no router is ever named
	Override map[string]Override // by name of the interface
	Poll     time.Duration       // how often to look where the system tells nothing, while not watchful; 0: 15 s, negative: never

	// Wall is a clock that goes on while the machine sleeps. nil: the system's own count of its sleep, which setting the clock does not
	// change, or where there is none the wall clock.
	Wall func() time.Time

	// Read replaces the look at this system, and then nothing of it is listened to: Changed gives the channel that is
	// closed at the next change, and is called anew after each. nil: Read is called by the clock. Both are called by other goroutines.
	Read    func() (Reading, error)
	Changed func() <-chan struct{}
}

// Event is what changed. With no Delta and not Woke, the network could not be read any more, or can be again: see Snapshot.Known.
type Event struct {
	Snapshot Snapshot      // the newest
	Delta    Delta         // against the Snapshot of the event that the owner took before, or that New made
	Woke     bool          // the machine slept, or this process was stopped
	Slept    time.Duration // for how long, as far as known
}

// system is one way to look at a machine and to hear of its changes. Its methods are called by the loop alone.
type system interface {
	read() (Reading, error)
	// listen starts to tell, until close: changes and, if wakes, that the machine woke. An error: not all of it can be heard.
	listen(*signal) (changes, wakes bool, err error)
	close()
}

// Watcher watches the network of this machine. Its loop is Run; everything else may be called from anywhere.
type Watcher struct {
	cfg    Config
	sys    system
	heard  *signal
	asleep func(now time.Time) time.Duration

	events   chan Event
	last     atomic.Pointer[Snapshot]
	problem  atomic.Pointer[error]
	watchful atomic.Bool
	kick     chan struct{} // the owner changed watchful

	stop    chan struct{} // closed by Close
	done    chan struct{} // closed by Run
	started atomic.Bool   // Run was called, or shall not be any more
	closing sync.Once

	// Of the loop, and before it of New:
	known   Snapshot // the last that was Known
	told    Snapshot // the last Known that the owner knows
	aware   bool     // the owner knows one now
	offered *Event   // the event last put into events
	sleeper sleeper
	changes bool            // the system tells of changes
	wakes   bool            // and of wake-ups
	deaf    error           // why it does not
	blind   bool            // the last look failed: it is tried again as if nothing were told
	looked  time.Time       // when it was last read
	hunt    []time.Duration // what is left of routerLooks
	hunted  time.Time       // when they began
}

// New looks at the network once, so that Snapshot has an answer, and begins to listen; Run is to follow, and Close in the end.
// Where nothing can be heard, Run looks by the clock, and Problem says why.
func New(cfg Config) *Watcher {
	sys := system(&given{look: cfg.Read, next: cfg.Changed})
	if cfg.Read == nil {
		sys = newSystem()
	}
	return newWatcher(cfg, sys)
}

func newWatcher(cfg Config, sys system) *Watcher {
	if cfg.Poll == 0 {
		cfg.Poll = pollIdle
	}
	w := &Watcher{
		cfg: cfg, sys: sys, heard: newSignal(), events: make(chan Event, 1), kick: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	w.asleep = systemAsleep()
	if cfg.Wall != nil || cfg.Read != nil || w.asleep == nil {
		wall := cfg.Wall
		if wall == nil {
			wall = time.Now
		}
		w.asleep = wallAsleep(wall)
	}
	w.last.Store(&Snapshot{})
	if w.changes, w.wakes, w.deaf = sys.listen(w.heard); w.deaf != nil {
		w.deaf = fmt.Errorf("netwatch: listening for changes of the network: %w", w.deaf)
	}
	now := time.Now()
	w.sleeper.step(now, w.asleep(now))
	w.look(now, news{woke: true})
	w.told, w.aware = w.known, w.known.Known
	return w
}

// Events gives what changed, and is closed when Run ends. It holds one event: what is not taken in time becomes one with what comes
// after, so the last state is never lost, and what came and left again meanwhile is no change.
func (w *Watcher) Events() <-chan Event { return w.events }

// Snapshot is the network as last read. It may differ from that of the last event in what Diff takes for no change.
func (w *Watcher) Snapshot() Snapshot { return *w.last.Load() }

// Problem says why something could not be read or heard, last; nil: nothing was amiss.
func (w *Watcher) Problem() error {
	if p := w.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// SetWatchful has a wake-up noticed within a second, and changes too where the system tells nothing, at the price of looking at the
// clock each second: for as long as streams are open.
func (w *Watcher) SetWatchful(on bool) {
	if w.watchful.Swap(on) == on {
		return
	}
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Close ends Run, waits for it, and lets go of the system. It may be called again.
func (w *Watcher) Close() {
	w.closing.Do(func() {
		close(w.stop)
		if w.started.Swap(true) {
			<-w.done
		} else {
			close(w.events)
		}
		w.sys.close()
	})
}

// Run is the loop of the watcher. It returns when ctx ends or Close is called, and is called once.
func (w *Watcher) Run(ctx context.Context) {
	if w.started.Swap(true) {
		return
	}
	defer close(w.done)
	defer close(w.events)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		w.sleeper.due = time.Time{}
		timer.Stop()
		if at, ok := w.next(now); ok {
			w.sleeper.due = at
			timer.Reset(at.Sub(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.stop:
			return
		case <-w.kick:
			w.step(ctx)
		case <-timer.C:
			w.step(ctx)
		case <-w.heard.c:
			w.step(ctx)
		}
	}
}

// next is when the loop wants to run again, if nothing is heard before.
func (w *Watcher) next(now time.Time) (at time.Time, ok bool) {
	every := w.cfg.Poll
	switch {
	case w.watchful.Load():
		every = pollWatchful
	case w.changes && w.wakes && !w.blind:
		every = recheck
	}
	if every > 0 {
		at, ok = now.Add(every), true
	}
	if len(w.hunt) > 0 {
		if look := w.hunted.Add(w.hunt[0]); !ok || look.Before(at) {
			at, ok = look, true
		}
	}
	return at, ok
}

// step is one turn of the loop: has the machine slept, is there something new, is it to be told.
func (w *Watcher) step(ctx context.Context) {
	now := time.Now()
	slept := w.sleeper.step(now, w.asleep(now))
	n := w.heard.take()
	n.woke = n.woke || slept > 0
	hunting := len(w.hunt) > 0 && !now.Before(w.hunted.Add(w.hunt[0]))
	if hunting {
		w.hunt = w.hunt[1:]
	}
	switch {
	case n.woke: // looked at and told at once; what comes up in the next seconds is heard, or polled
		w.look(now, n)
	case n.changed:
		if !w.settle(ctx, &n) {
			return
		}
		now = time.Now()
		if slept = w.sleeper.step(now, w.asleep(now)); slept > 0 { // meanwhile
			n.woke = true
			w.look(now, n)
		}
	case hunting || !w.changes || w.blind || now.Sub(w.looked) >= recheck:
		w.look(now, n)
	default:
		return
	}
	w.tell(n.woke, slept)
}

// settle looks when a burst of notices is over, again if more came meanwhile, and reports whether the loop shall go on.
func (w *Watcher) settle(ctx context.Context, n *news) bool {
	t := time.NewTimer(coalesce)
	defer t.Stop()
	for range settleMax {
		select {
		case <-ctx.Done():
			return false
		case <-w.stop:
			return false
		case <-t.C:
		}
		n.merge(w.heard.take())
		w.look(time.Now(), *n)
		if len(w.heard.c) == 0 {
			break
		}
		t.Reset(coalesce)
	}
	return true
}

// look reads the network and judges what it reads. n is what was heard before.
func (w *Watcher) look(now time.Time, n news) {
	w.looked = now
	if n.err != nil {
		w.changes, w.wakes, w.deaf = false, false, fmt.Errorf("netwatch: listening for changes of the network: %w", n.err)
	}
	r, err := w.sys.read()
	if w.blind = err != nil; w.blind {
		err = fmt.Errorf("netwatch: reading the network: %w", err)
		w.problem.Store(&err)
		w.last.Store(&Snapshot{})
		return
	}
	deaf := w.deaf
	w.problem.Store(&deaf)
	s := judge(r, rules{w.cfg.Secret, w.cfg.Override})
	if !n.woke { // no telling where it woke
		s = keepRouters(w.known, s, n.lost)
	}
	again := n.woke || !w.known.Known || Diff(w.known, s).Path()
	w.known = s
	w.last.Store(&s)
	switch {
	case !awaitsRouter(s):
		w.hunt = nil
	case again:
		w.hunt, w.hunted = routerLooks, now
	}
}

// tell puts what is new before the owner.
func (w *Watcher) tell(woke bool, slept time.Duration) {
	select {
	case e := <-w.events: // not taken: it becomes one with this
		woke, slept = woke || e.Woke, slept+e.Slept
	default:
		w.taken(w.offered)
	}
	w.offered = nil
	e := &Event{Snapshot: *w.last.Load(), Woke: woke, Slept: slept}
	e.Delta = Diff(w.told, e.Snapshot)
	if !woke && e.Delta.IsZero() && w.aware == e.Snapshot.Known {
		w.taken(e) // nobody needs to be told, and what differs is no news later
		return
	}
	w.offered = e
	w.events <- *e // has room: only this loop fills it
}

// taken notes that the owner knows what e says.
func (w *Watcher) taken(e *Event) {
	if e == nil {
		return
	}
	w.aware = e.Snapshot.Known
	if w.aware {
		w.told = e.Snapshot
	}
}
