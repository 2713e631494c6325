package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"linkproxy/testenv/streamcheck"
)

// Grace is how long apps may take, behind the end of a scenario, to say the rest and prove that all has come.
var grace = map[Runner]time.Duration{Sim: 2 * time.Hour, Loopback: 30 * time.Second, NetNS: 30 * time.Second}

// appRun is one app.
type appRun struct {
	app      App
	i        int // of Count
	seed     uint64
	up, down *recorder // at the target, at the app

	// What follows is set when it has ended.
	began   time.Duration // when it opened its door
	openErr error
	report  streamcheck.Report
	ended   time.Duration
	done    chan struct{}
}

// player plays one scenario in a world.
type player struct {
	sc     *Scenario
	runner Runner
	w      World
	start  time.Time
	bucket time.Duration
	apps   []*appRun
	frozen Freezes // set when wg is done
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the following
	served  map[uint64]streamcheck.Report
	counts  []Counts // at the end of each bucket
	errs    []error  // what the world could not do
	windows []window
}

// window is the time from one happening to the next.
type window struct {
	event    int // −1: before the first
	n        int
	from, to time.Duration
	before   Look // at from
	after    Look // at to
	dials    int
	traffic  int64 // bytes
}

// Play plays a scenario and judges it. ctx bounds the whole.
func Play(ctx context.Context, sc *Scenario, r Runner, w World) *Result {
	p := &player{
		sc: sc, runner: r, w: w, start: time.Now(), bucket: bucketOf(sc.End), served: map[uint64]streamcheck.Report{},
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sc.End+grace[r],
		fmt.Errorf("not at its end %s after the scenario's", short(grace[r])))
	defer cancel()
	p.makeApps()
	serving, stop := context.WithCancel(context.Background())
	p.wg.Go(func() { p.serve(serving) })
	for _, a := range p.apps {
		go p.run(ctx, a)
	}
	sampling, stopSampling := context.WithCancel(ctx)
	p.wg.Go(func() { p.sample(sampling) })
	if r != Sim {
		p.wg.Go(func() { p.frozen = watchFreezes(sampling) })
	}
	p.timeline(ctx)
	stopSampling()
	for _, a := range p.apps {
		<-a.done
	}
	stop()
	p.wg.Wait()
	return p.judge()
}

func (p *player) makeApps() {
	for _, a := range p.sc.Apps {
		for i := range a.Count {
			p.apps = append(p.apps, &appRun{
				app: a, i: i, seed: uint64(len(p.apps) + 1), done: make(chan struct{}),
				up: newRecorder(p.start, p.bucket), down: newRecorder(p.start, p.bucket),
			})
		}
	}
}

// serve is the target. Its connections end with their apps, or with the scenario.
func (p *player) serve(ctx context.Context) {
	ln := &recordingListener{p.w.Target(), func(seed uint64) *recorder {
		if seed == 0 || seed > uint64(len(p.apps)) {
			return newRecorder(p.start, p.bucket) // nobody's
		}
		return p.apps[seed-1].up
	}}
	_ = streamcheck.ServeAll(ctx, ln, func(r streamcheck.Report) { // a target that fails shows in every app
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, again := p.served[r.Plan.Seed]; again {
			p.errs = append(p.errs, fmt.Errorf("app %d reached its target twice", r.Plan.Seed))
		}
		p.served[r.Plan.Seed] = r
	})
}

type recordingListener struct {
	net.Listener
	find func(uint64) *recorder
}

func (l *recordingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &arriving{Conn: c, find: l.find}, nil
}

// run is one app from its door to its end.
func (p *player) run(ctx context.Context, a *appRun) {
	defer close(a.done)
	defer func() { a.ended = time.Since(p.start) }()
	if a.openErr = wait(ctx, p.start.Add(a.app.From+time.Duration(a.i)*a.app.Apart)); a.openErr != nil {
		return
	}
	a.began = time.Since(p.start)
	d, err := p.w.Door(ctx, a.app.Via)
	if err != nil {
		a.openErr = err
		return
	}
	if a.openErr = d.enter(ctx); a.openErr != nil {
		_ = d.Conn.Close()
		return
	}
	a.report = streamcheck.Run(ctx, &recorded{d.Conn, a.down}, a.plan(p.sc.End))
}

// enter asks a proxy for the target.
func (d Door) enter(ctx context.Context) (err error) {
	stop := context.AfterFunc(ctx, func() { _ = d.Conn.Close() })
	defer stop()
	switch d.Via {
	case "socks":
		return streamcheck.SOCKS5(d.Conn, d.Target, "")
	case "http":
		return streamcheck.Connect(d.Conn, d.Target)
	}
	return nil
}

func (a *appRun) plan(end time.Duration) streamcheck.Plan {
	if a.app.Until > 0 {
		end = a.app.Until
	}
	d := end - a.app.From
	var p streamcheck.Plan
	switch a.app.Kind {
	case Tick:
		p = streamcheck.Tick(a.seed, a.app.Every, d)
	case Keys:
		p = streamcheck.Keys(a.seed, a.app.Every, d)
	case BlastUp:
		p = streamcheck.Blast(a.seed, streamcheck.Up, d, 0)
	case BlastDown:
		p = streamcheck.Blast(a.seed, streamcheck.Down, d, 0)
	case BlastBoth:
		p = streamcheck.Blast(a.seed, streamcheck.Both, d, 0)
	default:
		p = streamcheck.Idle(a.seed, d)
	}
	return p.Slow(a.app.Rate/8, a.app.Pause, a.app.PauseFor)
}

// offBeat is how long behind its time an event happens: on the beat of the ticks it would be chance whether one was sent
// before, and no two runs in a bubble would be the same.
const offBeat = 2700 * time.Microsecond

// timeline makes everything happen at its time.
func (p *player) timeline(ctx context.Context) {
	open := window{event: -1}
	var before Counts
	shut := func(at time.Duration) {
		open.to = at
		open.after = p.look(ctx)
		now := p.w.Counts()
		open.dials, open.traffic = now.Dials-before.Dials, now.sum()-before.sum()
		before = now
		p.windows = append(p.windows, open)
	}
	for _, h := range p.sc.timeline() {
		if h.at > 0 {
			h.at += offBeat
		}
		if wait(ctx, p.start.Add(h.at)) != nil {
			break
		}
		shut(h.at)
		open = window{event: h.event, n: h.n, from: h.at, before: open.after}
		for _, a := range p.sc.Events[h.event].Acts {
			p.act(ctx, a, h.n)
		}
	}
	_ = wait(ctx, p.start.Add(p.sc.End)) // an end before its time is told by every app
	shut(p.sc.End)
}

// act does one thing, and what ends it.
func (p *player) act(ctx context.Context, a Act, n int) {
	if err := p.w.Act(ctx, a, n); err != nil {
		p.failed(fmt.Errorf("%s: %w", a.Text, err))
	}
	if a.Verb != "blackhole" || a.D == 0 {
		return
	}
	p.wg.Go(func() {
		if wait(ctx, time.Now().Add(a.D)) != nil {
			return
		}
		if err := p.w.Act(ctx, Act{Verb: "heal", Links: a.Links}, n); err != nil {
			p.failed(fmt.Errorf("heal: %w", err))
		}
	})
}

func (p *player) failed(err error) {
	p.mu.Lock()
	p.errs = append(p.errs, err)
	p.mu.Unlock()
}

func (p *player) look(ctx context.Context) Look {
	l, err := p.w.Look(ctx)
	if err != nil && ctx.Err() == nil {
		p.failed(err)
	}
	return l
}

// sample reads the counters of the links once a bucket.
func (p *player) sample(ctx context.Context) {
	for i := 1; ; i++ {
		if wait(ctx, p.start.Add(time.Duration(i)*p.bucket)) != nil {
			return
		}
		c := p.w.Counts()
		p.mu.Lock()
		p.counts = append(p.counts, c)
		p.mu.Unlock()
	}
}

// wait waits until a time has come.
func wait(ctx context.Context, until time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ErrCannot says that a runner cannot play here.
var ErrCannot = errors.New("lab: this runner cannot play here")
