package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// attempt is one dial of one route, up to an attached carrier. Its goroutine reports to the loop, which owns it.
type attempt struct {
	route  route.Route
	client *link.Client
	cancel context.CancelCauseFunc
	bulk   bool // attach it for bulk
	// on takes what happens: Reached, and then Attached or Ended once.
	on func(now time.Time, ev route.Event)

	gen    uint64   // of its carrier, once attached
	conn   net.Conn // its socket, once open; only to a peer without an agent
	record route.Attempt
}

// Why attempts are cancelled.
var (
	errNotNeeded   = errors.New("dialer: another route was faster, or nobody waits any more")
	errOpenTimeout = fmt.Errorf("no answer within %s", route.OpenLimit)
)

// start begins an attempt. Limit bounds it altogether; zero: whoever owns it cancels it. Bulk: the carrier is to be for bulk.
func (p *peer) start(now time.Time, r route.Route, limit time.Duration, bulk bool, on func(time.Time, route.Event)) *attempt {
	a := &attempt{route: r, client: p.client, bulk: bulk, on: on}
	a.record = route.Attempt{Route: r, Outcome: route.Running, Start: now}
	ctx, cancel := context.WithCancelCause(p.ctx)
	a.cancel = cancel
	if limit > 0 {
		ctx, cancel = withTimeout(ctx, limit, fmt.Errorf("no answer within %s", limit))
	}
	p.known[r.ID()] = r
	p.wg.Add(1)
	go p.run(ctx, cancel, a, p.preference(r))
	return a
}

// withTimeout is context.WithTimeoutCause with a CancelCauseFunc.
func withTimeout(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelCauseFunc) {
	ctx, stop := context.WithTimeoutCause(parent, d, cause)
	return ctx, func(error) { stop() }
}

// preference orders carriers for failover: class first, then the order in the config. Lower is better.
func (p *peer) preference(r route.Route) int {
	for i, c := range p.conf.Routes {
		if c.Same(r) {
			return int(r.Class)*len(p.conf.Routes) + i
		}
	}
	return (int(r.Class) + 1) * len(p.conf.Routes)
}

// run is the goroutine of an attempt.
func (p *peer) run(ctx context.Context, cancel context.CancelCauseFunc, a *attempt, preference int) {
	defer p.wg.Done()
	defer cancel(nil)
	t, err := p.d.secure(ctx, p.id, a.route, func(s route.Stage, local netip.Addr) {
		p.send(func(now time.Time) { a.happened(now, route.Reached{Route: a.route, Stage: s, Local: local}) })
	})
	var gen uint64
	if err == nil {
		gen, err = a.client.Attach(ctx, t, link.AttachOptions{
			Standby: !a.client.Status().Lost, Bulk: a.bulk, Preference: preference, Name: a.route.ID(),
		})
	}
	if err != nil {
		outcome := outcomeOf(ctx, err)
		p.send(func(now time.Time) { a.happened(now, route.Ended{Route: a.route, Outcome: outcome, Err: err}) })
		return
	}
	rtt := t.Handshake()
	if !p.send(func(now time.Time) {
		a.gen = gen
		p.noteName(gen, a.route.ID())
		a.happened(now, route.Attached{Route: a.route, RTT: rtt})
	}) {
		a.client.Drop(gen)
	}
}

// happened notes an event and passes it on. On the loop.
func (a *attempt) happened(now time.Time, ev route.Event) {
	r := &a.record
	r.Duration = now.Sub(r.Start)
	switch e := ev.(type) {
	case route.Reached:
		r.Stage, r.Local = e.Stage, e.Local
	case route.Attached:
		r.Stage, r.Outcome = route.Attach, route.Won
	case route.Ended:
		r.Outcome, r.Err = e.Outcome, e.Err
	}
	a.on(now, ev)
}

// sofar is the record of an attempt as if it were over at now.
func (a *attempt) sofar(now time.Time) route.Attempt {
	r := a.record
	if r.Outcome == route.Running {
		r.Outcome, r.Duration = route.Unfinished, now.Sub(r.Start)
	}
	return r
}

// quit ends an attempt for good: whatever it has or will yield is closed.
func (a *attempt) quit() {
	a.cancel(errNotNeeded)
	if a.gen != 0 {
		a.client.Drop(a.gen)
	}
	if a.conn != nil {
		a.conn.Close()
	}
}

// outcomeOf sorts what ended an attempt.
func outcomeOf(ctx context.Context, err error) route.Outcome {
	var wrong *link.IdentityError
	var no *link.AttachError
	switch {
	case errors.Is(err, link.ErrSuperseded):
		return route.Superseded
	case errors.As(err, &wrong):
		return route.WrongPeer
	case errors.As(err, &no):
		return refusalOf(no.Code)
	case errors.Is(err, errOpenTimeout), errors.Is(err, errResolveTimeout), isTimeout(ctx, err):
		return route.Silent
	case isLocal(err):
		return route.NoRoute
	}
	return route.Failed
}

// refusalOf sorts the codes a host may refuse to attach with.
func refusalOf(code link.Code) route.Outcome {
	switch code {
	case link.CodeUnpaired, link.CodeVersion, link.CodeDenied, link.CodeRevoked:
		return route.Blocked
	case link.CodeTooMany, link.CodeBusy, link.CodeStale, link.CodeShutdown:
		return route.Busy
	}
	return route.Failed
}

// isTimeout says whether a limit has passed: the attempt's own, or the system's for a connection.
func isTimeout(ctx context.Context, err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
