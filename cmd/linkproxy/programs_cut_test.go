//go:build unix

package main_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"linkproxy/control"
	"linkproxy/testenv"
)

// cutsWanted is how often each program's link is cut while bytes are in flight.
const cutsWanted = 15

// kind is one way to lose a route.
type kind struct {
	name  string
	times int // how often in a deck
	do    func(*cutter, *flight) error
}

// kinds is a deck that makes cutsWanted cuts, and planned switches beside them.
var kinds = []kind{
	{"reset of the active route", 4, (*cutter).reset},
	{"FIN on the active route", 3, (*cutter).fin},
	{"active route silent", 2, (*cutter).silence},
	{"both routes reset", 2, (*cutter).resetBoth},
	{"both routes silent for a while", 2, (*cutter).silenceBoth},
	{"both routes reset and refused for 1 s", 2, (*cutter).refuse},
	{planned, 2, (*cutter).use},
}

// planned is no cut and does not count as one.
const planned = "planned switch"

// cutter cuts a world's routes while a program runs.
type cutter struct {
	w     *world
	ctx   context.Context
	start time.Time

	// Enough is closed once all cuts are made.
	enough chan struct{}
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex // guards the following
	made []madeCut
	err  error
}

// madeCut is a cut that was made while bytes were in flight.
type madeCut struct {
	at   time.Duration
	how  string
	took time.Duration // for how long the routes were held
	fl   flight
}

// flight is what was on its way at the moment of a cut.
type flight struct {
	route    string // the active one, as the config names it
	path     *testenv.Path
	up, host int // stream bytes not confirmed: sent by up, and by host
}

// cut starts to cut: n cuts of shuffled kinds at random times, each as soon as bytes are in flight.
func (w *world) cut(n int) *cutter {
	ctx, stop := context.WithCancel(w.ctx)
	c := &cutter{w: w, ctx: ctx, stop: stop, start: time.Now(), enough: make(chan struct{})}
	var deck []kind
	for unplanned := 0; unplanned < n; {
		var more []kind
		for _, k := range kinds {
			for range k.times {
				more = append(more, k)
			}
		}
		w.rand.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		for _, k := range more {
			if w.alone && k.name == planned || unplanned == n {
				continue
			}
			if k.name != planned {
				unplanned++
			}
			deck = append(deck, k)
		}
	}
	c.wg.Go(func() { c.run(deck) })
	w.t.Cleanup(func() { c.stop(); c.wg.Wait() })
	return c
}

// run makes the cuts of a deck.
func (c *cutter) run(deck []kind) {
	defer func() {
		if err := c.restore(); err != nil {
			c.fail(err)
		}
		close(c.enough)
	}()
	for _, k := range deck {
		c.pause(50*time.Millisecond + time.Duration(c.w.rand.Int64N(int64(350*time.Millisecond))))
		for {
			f, err := c.inFlight()
			if err != nil {
				c.fail(fmt.Errorf("before cut %d (%s): %w", len(c.made)+1, k.name, err))
				return
			}
			if k.name != planned && !c.freeze(f) {
				continue
			}
			began := time.Now()
			if err := k.do(c, f); err != nil {
				c.fail(fmt.Errorf("cut %d (%s): %w", len(c.made)+1, k.name, err))
				return
			}
			c.mu.Lock()
			c.made = append(c.made, madeCut{at: began.Sub(c.start), how: k.name, took: time.Since(began), fl: *f})
			c.mu.Unlock()
			break
		}
	}
}

func (c *cutter) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
}

// pause is the random time between two cuts.
func (c *cutter) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
	}
}

// inFlight waits until the active carrier of the program's link has stream bytes that the other side has not confirmed.
func (c *cutter) inFlight() (*flight, error) {
	const limit = 30 * time.Second
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		f, err := c.look()
		if err != nil || f.up+f.host > 0 && f.live() {
			return f, err
		}
		select {
		case <-tick.C:
		case <-late.C:
			return nil, fmt.Errorf("no byte was in flight for %v on %q", limit, f.route)
		case <-c.ctx.Done():
			return nil, fmt.Errorf("the program ended early: %w", context.Cause(c.ctx))
		}
	}
}

// live says whether the active route has a connection.
func (f *flight) live() bool { return f.path == nil || f.path.Live() > 0 }

// look asks both processes what is in flight on the carrier in use.
func (c *cutter) look() (*flight, error) {
	f := &flight{}
	st, err := c.w.hostState.Status(c.ctx)
	if err != nil {
		return nil, err
	}
	if k := active(st); k != nil {
		f.host = k.Unseen
	}
	if c.w.alone {
		return f, nil
	}
	if st, err = c.w.upStatus.Status(c.ctx); err != nil {
		return nil, err
	}
	k := active(st)
	if k == nil {
		return &flight{}, nil
	}
	f.up, f.route = k.Unseen, k.Route
	switch {
	case strings.HasSuffix(k.Route, c.w.near.Addr()):
		f.path = c.w.near
	case strings.HasSuffix(k.Route, c.w.far.Addr()):
		f.path = c.w.far
	default:
		return nil, fmt.Errorf("the active route is %q", k.Route)
	}
	return f, nil
}

// active is the carrier in use of the only link, with what is on its way on the one for bulk beside it, of a status.
func active(st control.Status) *control.Carrier {
	for _, p := range st.Peers {
		for _, l := range p.Links {
			bulk := 0
			for _, c := range l.Carriers {
				if c.State == "bulk" {
					bulk += c.Unseen
				}
			}
			for _, c := range l.Carriers {
				if c.State == "active" {
					c.Unseen += bulk
					return &c
				}
			}
		}
	}
	return nil
}

// freeze stops all bytes and looks again: what is unconfirmed now stays so until the cut. False: all had just arrived.
func (c *cutter) freeze(f *flight) bool {
	c.w.near.BlackHole(true, true)
	c.w.far.BlackHole(true, true)
	now, err := c.look()
	if err != nil || now.up+now.host == 0 || now.route != f.route || !now.live() {
		c.heal()
		return false
	}
	*f = *now
	return true
}

func (c *cutter) heal() {
	c.w.near.Heal()
	c.w.far.Heal()
}

// restore makes both routes whole.
func (c *cutter) restore() error {
	c.heal()
	return errors.Join(c.w.near.Refuse(false), c.w.far.Refuse(false))
}

// paths are the routes that a cut of the active one hits: both where it is not known which is.
func (c *cutter) paths(f *flight) []*testenv.Path {
	if f.path != nil {
		return []*testenv.Path{f.path}
	}
	return []*testenv.Path{c.w.near, c.w.far}
}

func (c *cutter) reset(f *flight) error {
	for _, p := range c.paths(f) {
		p.Reset()
	}
	c.heal()
	return nil
}

// fin heals first: a FIN comes behind what is on its way, and nothing that is sent from now on passes.
func (c *cutter) fin(f *flight) error {
	for _, p := range c.paths(f) {
		p.Fin()
	}
	c.heal()
	return nil
}

// silence leaves the active route dead until the link has moved off it.
func (c *cutter) silence(f *flight) error {
	if f.path == nil {
		return c.silenceBoth(f)
	}
	for _, p := range []*testenv.Path{c.w.near, c.w.far} {
		if p != f.path {
			p.Heal()
		}
	}
	defer c.heal()
	const limit = 30 * time.Second // two dials at the slowest pace of the dial budget, twice
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		now, err := c.look()
		if err != nil {
			return err
		}
		if now.route != "" && now.route != f.route {
			return nil
		}
		select {
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("the link stayed on %s, which is silent, for %v", f.route, limit)
		case <-c.ctx.Done():
			return fmt.Errorf("the program ended while its route was silent: %w", context.Cause(c.ctx))
		}
	}
}

func (c *cutter) resetBoth(*flight) error {
	c.w.near.Reset()
	c.w.far.Reset()
	c.heal()
	return nil
}

func (c *cutter) silenceBoth(*flight) error {
	c.pause(time.Second + time.Duration(c.w.rand.Int64N(int64(2*time.Second))))
	c.heal()
	return nil
}

func (c *cutter) refuse(*flight) error {
	for _, p := range []*testenv.Path{c.w.near, c.w.far} {
		if err := p.Refuse(true); err != nil {
			return err
		}
		p.Reset()
	}
	c.pause(time.Second)
	return c.restore()
}

// use asks for a planned move to the other route. One that is not possible just now, as that route has only just come
// back, is none.
func (c *cutter) use(f *flight) error {
	other := "direct:" + c.w.far.Addr()
	if f.path == c.w.far {
		other = "lan:" + c.w.near.Addr()
	}
	return c.w.upStatus.Use(c.ctx, "devbox", other, false)
}

// finish is report for a program that has ended: it must have left nothing on the link.
func (w *world) finish(cs ...*cutter) {
	w.t.Helper()
	w.report(cs...)
	w.noStreamLeft()
}

// report ends the cutting, prints what was cut and checks that it was enough.
func (w *world) report(cs ...*cutter) {
	w.t.Helper()
	var made []madeCut
	for _, c := range cs {
		c.stop()
		c.wg.Wait()
		if c.err != nil {
			w.t.Errorf("cutting: %v", c.err)
		}
		for _, m := range c.made {
			m.at += c.start.Sub(cs[0].start)
			made = append(made, m)
		}
	}
	var b strings.Builder
	for _, m := range made {
		fmt.Fprintf(&b, "\n  %6.2f s  %-38s up %7d B, host %7d B unconfirmed  %s", m.at.Seconds(), m.how, m.fl.up, m.fl.host, m.fl.route)
		if m.took > 500*time.Millisecond {
			fmt.Fprintf(&b, " (held %.2f s)", m.took.Seconds())
		}
	}
	cuts := slices.DeleteFunc(slices.Clone(made), func(m madeCut) bool { return m.how == planned })
	w.t.Logf("%d cuts and %d planned switches, each with bytes in flight:%s", len(cuts), len(made)-len(cuts), b.String())
	if len(cuts) < cutsWanted {
		w.t.Errorf("%d cuts were made while bytes were in flight, %d are wanted", len(cuts), cutsWanted)
	}
}
