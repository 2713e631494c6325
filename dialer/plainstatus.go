package dialer

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"linkproxy/dialer/route"
)

// raceError is what a race that failed tells of this peer.
func (p *peer) raceError(attempts []route.Attempt, before string) *Error {
	e := raceError(p.name, attempts, before)
	if p.plain == nil || len(attempts) == 0 {
		return e
	}
	refused := slices.ContainsFunc(attempts, func(a route.Attempt) bool { return a.Outcome == route.Busy })
	if !refused {
		e.Next = fmt.Sprintf("see that %s is on, and that this machine is on a network that reaches it", p.name)
		return e
	}
	var told []string
	for _, a := range attempts {
		if a.Err != nil && a.Outcome != route.NotTried {
			told = append(told, fmt.Sprintf("%s: %v", a.Route, a.Err))
		}
	}
	e.reason, e.Hint = reasonRefused, false
	e.text = fmt.Sprintf("%s%s refused the connection (%s)", before, p.name, strings.Join(told, "; "))
	e.Next = fmt.Sprintf("see that the service runs on %s and listens there for other machines", p.name)
	return e
}

// status completes the peer's.
func (pl *plain) status(now time.Time, s *PeerStatus) {
	s.Plain = true
	for c := range pl.conns {
		s.Conns = append(s.Conns, PlainStatus{Target: c.target, Route: c.route, Since: c.since})
	}
	slices.SortFunc(s.Conns, func(a, b PlainStatus) int { return a.Since.Compare(b.Since) })
	if len(s.Conns) > 0 {
		s.State = StateConnected
	}
	for _, v := range pl.services {
		s.Waiting += len(v.waiting)
		for _, a := range v.following {
			if !slices.Contains(v.waiting, a) {
				s.Waiting++
			}
		}
		switch {
		case v.race != nil:
			s.State = StateConnecting
		case len(v.waiting) > 0 && s.State != StateConnecting:
			at, why, _ := v.again.Next(now, true, &pl.p.roam.Budget)
			if s.Next.IsZero() || at.Before(s.Next) {
				s.State, s.Next, s.NextWhy = StateWaiting, at, why
			}
		}
	}
}

// PlainStatus is one open connection to a peer without an agent.
type PlainStatus struct {
	Target string // peer:port
	Route  route.Route
	Since  time.Time
}

// checkPlain sees whether a port opens over a route. A refusal is an answer as well. No key is proved: there is none.
func (d *Dialer) checkPlain(ctx context.Context, r route.Route, port string) RouteCheck {
	c := RouteCheck{Attempt: route.Attempt{Route: r, Start: time.Now()}, NoKey: true}
	conn, err := d.connect(ctx, net.JoinHostPort(r.Address, port))
	c.Duration = time.Since(c.Start)
	c.RoundTrip = c.Duration
	c.Address = net.JoinHostPort(r.Address, port)
	switch {
	case err == nil:
		c.Outcome, c.Stage, c.Local, c.Address = route.Won, route.Handshake, localOf(conn), conn.RemoteAddr().String()
		conn.Close()
	case isRefused(err):
		c.Outcome, c.Stage = route.Won, route.Handshake
	default:
		c.Outcome, c.Err, c.RoundTrip, c.Address = plainOutcome(ctx, err), err, 0, ""
	}
	return c
}
