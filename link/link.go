package link

import (
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"linkproxy/link/core"
	"linkproxy/link/frame"
)

// ID names a link; random, 128 bit.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:4]) }

// Link is one side of a resumable session. Safe for concurrent use.
type Link struct {
	id     ID
	client bool
	base   time.Time // time 0 of the core
	log    *slog.Logger
	handle func(*Stream) // host: serves a new stream

	poke   chan struct{} // one slot: the timer is to be set anew
	notify chan struct{} // one slot: the status has changed
	done   chan struct{} // closed when the link has ended and every goroutine knows

	wg sync.WaitGroup // the loop, the carriers' goroutines, the host's stream handlers

	mu       sync.Mutex // guards the following; nothing waits while it is held
	core     *core.Core
	armed    core.Time // when the loop wakes by itself; never: far away
	stopping bool      // done is closed or about to be
	hostInst [16]byte  // client: the process that gave NEW_OK
	hostBoot uint64
	lastByte core.Time // client: when an attached carrier last brought a byte
}

const never = core.Time(1<<63 - 1)

func newLink(id ID, cfg core.Config, log *slog.Logger, seed [2]uint64) *Link {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg.Rand = rand.New(rand.NewPCG(seed[0], seed[1]))
	cfg.Memory = &sharedBuffers
	l := &Link{
		id: id, client: cfg.Client, base: time.Now(), log: log, core: core.New(cfg), armed: never,
		poke: make(chan struct{}, 1), notify: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.wg.Add(1)
	go l.loop()
	return l
}

// ID is the link's name.
func (l *Link) ID() ID { return l.id }

// now is the time since the link began; it never goes back.
func (l *Link) now() core.Time { return time.Since(l.base) }

// outs spares an allocation per step.
var outs = sync.Pool{New: func() any { return new(effects) }}

// effects is what one step of the core asks of the world.
type effects struct {
	core.Out
	calls []func()
}

// unlock ends a step of the core: it takes what the step asks for, releases the mutex and does it.
func (l *Link) unlock(now core.Time) { l.finish(now, false) }

// unlockOwn is unlock by a goroutine that offers to write by itself what the step has to say.
func (l *Link) unlockOwn(now core.Time) { l.finish(now, true) }

func (l *Link) finish(now core.Time, own bool) {
	e := outs.Get().(*effects)
	l.core.TakeInto(&e.Out)
	for _, s := range e.Incoming {
		l.wg.Add(1)
		st := newStream(l, s)
		e.calls = append(e.calls, func() { go l.serve(st) })
	}
	for _, s := range e.Readable {
		if st, ok := s.Ctx.(*Stream); ok { // none: turned away by a bound
			e.calls = st.wakeReader(e.calls)
		}
	}
	for _, s := range e.Writable {
		if st, ok := s.Ctx.(*Stream); ok {
			e.calls = st.wakeWriter(e.calls)
		}
	}
	ended := l.core.Err() != nil && !l.stopping
	l.stopping = l.stopping || ended
	poke := false
	if at, ok := l.core.Wake(now); ok && at < l.armed {
		l.armed, poke = at, true
	}
	if l.stopping && len(e.Closed) > 0 {
		poke = true
	}
	l.mu.Unlock()
	l.deliver(e, poke, own)
	if ended {
		close(l.done)
		signal(l.notify)
	}
	*e = effects{Out: e.Out.Reset(), calls: clearCalls(e.calls)}
	outs.Put(e)
}

func clearCalls(c []func()) []func() {
	clear(c)
	return c[:0]
}

func (l *Link) deliver(e *effects, poke, own bool) {
	for _, k := range e.Closed {
		k.Ctx.(*carrier).stop()
	}
	for _, f := range e.calls {
		f()
	}
	if poke {
		signal(l.poke)
	}
	if e.Changed {
		signal(l.notify)
	}
	for _, k := range e.Wake {
		k.Ctx.(*carrier).signal(own)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *Link) serve(s *Stream) {
	defer l.wg.Done()
	l.handle(s)
}

// loop owns the link's timer.
func (l *Link) loop() {
	defer l.wg.Done()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		l.mu.Lock()
		now := l.now()
		l.core.Advance(now)
		at, ok := l.core.Wake(now)
		if !ok {
			at = never
		}
		l.armed = at
		l.unlock(now)
		if ok {
			t.Reset(max(at-now, 0))
		} else {
			t.Reset(time.Hour)
		}
		select {
		case <-t.C:
		case <-l.poke:
		case <-l.done:
			l.last(t)
			return
		}
	}
}

// last gives the carriers of an ended link time for their last word.
func (l *Link) last(t *time.Timer) {
	t.Reset(closeWait)
	for {
		l.mu.Lock()
		left := len(l.core.Carriers())
		l.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-t.C:
			l.cut()
		case <-l.poke:
		}
	}
}

// Notify has a value each time the status may have changed since it was last read; it has one reader.
func (l *Link) Notify() <-chan struct{} { return l.notify }

// Done is closed when the link has ended; Err then says why.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link ended, nil while it lives.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.Err()
}

// end ends the link: streams fail with err, living carriers say CLOSE with code, then everything stops. It does not wait.
func (l *Link) end(err error, code Code) {
	l.mu.Lock()
	now := l.now()
	l.core.End(now, err, l.id, uint32(code))
	l.unlock(now)
}

// Close ends the link and waits until its goroutines are gone; living carriers get a second to say so.
func (l *Link) Close() error {
	l.end(ErrClosed, CodeGivenUp)
	l.wait()
	return nil
}

// wait returns when all goroutines of an ended link are gone.
func (l *Link) wait() { l.wg.Wait() }

// closeWait is how long a carrier may take to write its last word.
const closeWait = time.Second

// cut closes every carrier's connection at once.
func (l *Link) cut() {
	l.mu.Lock()
	now := l.now()
	for _, k := range l.core.Carriers() {
		l.core.Dead(now, k)
	}
	l.unlock(now)
}

// CarrierStatus is one attached or attaching carrier.
type CarrierStatus struct {
	core.CarrierStatus
	Name  string     // the route it runs over, as given at Attach; host: the remote address
	Local netip.Addr // this machine's own end; invalid: it has no such address
}

// Status is a link as it is now.
type Status struct {
	core.Status
	ID       ID
	Carriers []CarrierStatus
	base     time.Time
}

// Status returns what a status shows.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Status{Status: l.core.Status(), ID: l.id, base: l.base}
	ks := l.core.Carriers()
	for i, c := range st.Status.Carriers {
		k := ks[i].Ctx.(*carrier)
		st.Carriers = append(st.Carriers, CarrierStatus{c, k.name, k.local})
	}
	return st
}

// StreamStatus is one live stream.
type StreamStatus struct {
	ID       uint64
	Target   string
	Since    time.Time
	In, Out  uint64 // bytes the app read and wrote
	Accepted bool
}

// Streams lists the live streams, in no order.
func (l *Link) Streams() []StreamStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []StreamStatus
	l.core.Streams(func(s *core.Stream) {
		if st, ok := s.Ctx.(*Stream); ok {
			in, out := s.Bytes()
			list = append(list, StreamStatus{s.ID, s.Target, st.since, in, out, s.Accepted()})
		}
	})
	return list
}

// Work is what a link is still needed for.
type Work struct {
	Apps int // streams that an app holds, or that have bytes of one to deliver
	Ends int // streams that were aborted after the peer may have heard of them, and whose end it has not acknowledged
}

// Work counts the streams that need the link.
func (l *Link) Work() (w Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.core.Streams(func(s *core.Stream) {
		switch {
		case !s.Aborted():
			w.Apps++
		case s.OpenSent():
			w.Ends++
		}
	})
	return w
}

// carrierOf finds a carrier by generation; nil: there is none.
func (l *Link) carrierOf(gen uint64) *core.Carrier {
	for _, k := range l.core.Carriers() {
		if k.Gen() == gen {
			return k
		}
	}
	return nil
}

// Drop closes the carrier of a generation politely.
func (l *Link) Drop(gen uint64) {
	l.mu.Lock()
	now := l.now()
	if k := l.carrierOf(gen); k != nil {
		k.SetCloseCode(uint32(CodeReplaced))
		l.core.CloseCarrier(now, k)
	}
	l.unlock(now)
}

// Cut ends the carrier of a generation at once, as if its connection had failed.
func (l *Link) Cut(gen uint64) {
	l.mu.Lock()
	now := l.now()
	if k := l.carrierOf(gen); k != nil {
		l.core.Dead(now, k)
	}
	l.unlock(now)
}

// Ask has every carrier asked for a sign of life, as after a wake-up or a change of path.
func (l *Link) Ask() {
	l.mu.Lock()
	now := l.now()
	l.core.Ask(now)
	l.unlock(now)
}

// recvClose handles a CLOSE that may concern the whole link.
func (l *Link) isLinkClose(f *frame.Frame) bool {
	return f.Kind == frame.Close && f.Link == [16]byte(l.id)
}

// At turns a time of the link's into one of the clock's.
func (s Status) At(t core.Time) time.Time { return s.base.Add(t) }
