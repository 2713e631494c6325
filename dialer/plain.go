package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// plain is what the loop of a peer without an agent keeps. Nobody there speaks for the peer, so there is no link: each
// connection is a socket of its own, on the route that works when it is opened, and ends with it.
type plain struct {
	p        *peer
	services map[string]*service // by port, as long as somebody may want to know
	conns    map[*plainConn]bool
	asked    string // the last port that was asked for
}

// service is one TCP port of such a peer. Its first connection races; as long as the route that won answers at once, the
// next ones take it without asking any other, and without limit. While none is known to work, one race serves all who wait.
type service struct {
	p    *peer
	port string

	race  *plainRace // nil: none runs
	again route.Reconnect
	last  []route.Attempt // of the last race
	ended time.Time       // it did
	hurry bool            // the next race starts all at once

	known  bool // chosen works, as far as is known
	chosen route.Route
	limit  time.Duration // how long a dial over it may take before that is doubted
	look   time.Time     // when a better one is looked for

	waiting   []*ask // for a race
	following []*ask // with a dial of their own
}

// ask is a connection that an app wants.
type ask struct {
	since time.Time
	done  chan answer // one slot
	began time.Time   // of dial
	dial  *attempt    // of its own, over the chosen route; nil: none
}

type answer struct {
	conn net.Conn
	err  error
}

const (
	// maxServices bounds how many ports of a peer are kept in mind.
	maxServices = 256
	// checkPort is checked where no port was asked for yet: most of what cannot run an agent has a web page, and a refusal
	// tells as much.
	checkPort = "80"
)

// --- asking

// dialPlain is DialContext for a peer without an agent.
func (p *peer) dialPlain(ctx context.Context, target string) (net.Conn, error) {
	a := &ask{since: time.Now(), done: make(chan answer, 1)}
	if err := p.ask(ctx, func(now time.Time) { p.plain.open(now, target, a) }); err != nil {
		return nil, err
	}
	select {
	case r := <-a.done:
		return r.conn, r.err
	case <-ctx.Done():
	}
	// Where the loop is gone, it has answered.
	_ = p.ask(context.Background(), func(time.Time) { p.plain.leave(a) })
	select {
	case r := <-a.done:
		if r.conn != nil {
			r.conn.Close()
		}
	default:
	}
	return nil, fmt.Errorf("dialer: opening %s on %s: %w", target, p.name, context.Cause(ctx))
}

// open takes an ask on.
func (pl *plain) open(now time.Time, target string, a *ask) {
	port, err := pl.p.ownPort(target)
	if err == nil && len(pl.p.conf.Routes) == 0 {
		err = pl.p.raceError(nil, "")
	}
	if err != nil {
		a.done <- answer{err: err}
		return
	}
	pl.asked = port
	s := pl.services[port]
	if s == nil {
		s = &service{p: pl.p, port: port}
		s.again.Rand = pl.p.jitter
		pl.services[port] = s
		pl.bound(s)
	}
	if !s.known {
		s.await(now, a)
		return
	}
	s.follow(now, a)
	if s.race == nil {
		s.lookForBetter(now)
	}
}

// leave takes an ask back. Its race goes on.
func (pl *plain) leave(a *ask) {
	for _, s := range pl.services {
		s.drop(a)
	}
	if dial := a.dial; dial != nil {
		a.dial = nil
		dial.quit()
	}
}

// bound forgets services that nobody waits for if there are too many.
func (pl *plain) bound(keep *service) {
	for port, s := range pl.services {
		if len(pl.services) <= maxServices {
			return
		}
		if s != keep && s.race == nil && len(s.waiting) == 0 && len(s.following) == 0 {
			delete(pl.services, port)
		}
	}
}

// ownPort is the port of a target that is the peer itself.
func (p *peer) ownPort(target string) (string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", fmt.Errorf("dialer: opening %s on %s: %w", target, p.name, err)
	}
	own := host == p.name || strings.EqualFold(host, "localhost")
	if ip, err := netip.ParseAddr(host); err == nil {
		own = own || ip.Unmap().IsLoopback()
	}
	if own || slices.ContainsFunc(p.conf.Routes, func(r route.Route) bool { return strings.EqualFold(r.Address, host) }) {
		return port, nil
	}
	return "", &Error{
		Peer: p.name, reason: reasonNotAllowed,
		text: fmt.Sprintf("%s has no agent, so nobody there can connect to %s for this machine", p.name, target),
		Next: fmt.Sprintf("run `linkproxy host` on %s and pair with it, or ask for %s:%s, which is %s itself", p.name, p.name, port, p.name),
	}
}

// await has an ask wait for a race.
func (s *service) await(now time.Time, a *ask) {
	if !slices.Contains(s.waiting, a) {
		s.waiting = append(s.waiting, a)
		s.again.Asked(now)
	}
}

// drop takes an ask off all lists.
func (s *service) drop(a *ask) {
	is := func(o *ask) bool { return o == a }
	s.waiting, s.following = slices.DeleteFunc(s.waiting, is), slices.DeleteFunc(s.following, is)
}

// follow dials the chosen route for one ask alone.
func (s *service) follow(now time.Time, a *ask) {
	a.began = now
	var dial *attempt
	dial = s.dial(now, s.chosen, func(now time.Time, ev route.Event) {
		switch ev.(type) {
		case route.Reached:
		case route.Attached:
			if a.dial == dial {
				s.serve(now, a, dial)
			} else {
				dial.quit() // it was served otherwise, or has left
			}
		default:
			s.followFailed(now, a, dial)
		}
	})
	a.dial = dial
	s.following = append(s.following, a)
}

func (s *service) followFailed(now time.Time, a *ask, dial *attempt) {
	if a.dial != dial || !slices.Contains(s.following, a) {
		return
	}
	a.dial = nil
	s.drop(a)
	if s.known && s.chosen.Same(dial.route) {
		s.doubt(now)
		s.hurry = true
	}
	s.await(now, a)
}

// doubt has all who dial the chosen route wait for a race as well.
func (s *service) doubt(now time.Time) {
	s.known, s.hurry = false, s.hurry || len(s.following) > 0
	for _, a := range s.following {
		s.await(now, a)
	}
	if s.race != nil && s.race.look {
		s.race.look = false
		s.again.Started(now)
		s.race.step(now, route.Joined{Plan: s.p.roam.Ranking(now)})
	}
}

// serve hands an ask its connection.
func (s *service) serve(now time.Time, a *ask, from *attempt) {
	s.drop(a)
	if a.dial != nil && a.dial != from {
		a.dial.quit()
	}
	c := &plainConn{Conn: from.conn, p: s.p, route: from.route, target: net.JoinHostPort(s.p.name, s.port), since: now, local: localOf(from.conn)}
	from.conn = nil
	s.p.plain.conns[c] = true
	a.dial = nil
	a.done <- answer{conn: c}
}

// fail answers those asks of which.
func (s *service) fail(err error, which func(*ask) bool) {
	for _, a := range slices.Clone(s.waiting) {
		if !which(a) {
			continue
		}
		s.drop(a)
		if a.dial != nil {
			a.dial.quit()
			a.dial = nil
		}
		a.done <- answer{err: err}
	}
}

func all(*ask) bool { return true }

// --- the loop

// tend brings all services up to now.
func (pl *plain) tend(now time.Time) time.Time {
	var wake alarm
	waiting := 0
	for _, s := range pl.services {
		s.tendRace(now, &wake)
		s.tendDoubt(now, &wake)
		s.expire(now, &wake)
		waiting += len(s.waiting)
	}
	if (waiting > 0) != pl.p.waiting {
		pl.p.waiting = waiting > 0
		pl.p.roam.Budget.SetWaiting(now, pl.p.waiting)
		for _, s := range pl.services {
			if s.race != nil {
				s.race.step(now, route.Tick{}) // dials come back at another pace
			}
		}
	}
	for _, s := range pl.sorted() {
		s.tendNext(now, &wake)
	}
	for c := range pl.conns {
		if c.adrift.IsZero() {
			continue
		}
		if at := c.adrift.Add(route.AbsentLimit); at.After(now) {
			wake.add(at)
		} else {
			pl.cut(now, c, fmt.Errorf("this machine no longer has %s", c.local))
		}
	}
	pl.p.tellBusy(len(pl.conns))
	return wake.at
}

// sorted lists the services by how long they wait.
func (pl *plain) sorted() []*service {
	var list []*service
	for _, s := range pl.services {
		if len(s.waiting) > 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *service) int {
		if c := a.waiting[0].since.Compare(b.waiting[0].since); c != 0 {
			return c
		}
		return strings.Compare(a.port, b.port)
	})
	return list
}

func (s *service) tendRace(now time.Time, wake *alarm) {
	r := s.race
	if r == nil {
		return
	}
	if !r.wake.IsZero() && !now.Before(r.wake) {
		r.step(now, route.Tick{})
	}
	if s.race == r && !r.refused.IsZero() && !r.won {
		if at := r.refused.Add(refusalGrace); at.After(now) {
			wake.add(at)
		} else {
			r.step(now, route.Stop{Why: fmt.Sprintf("the port was refused, and nobody else had it within %s", refusalGrace)})
		}
	}
	if s.race == r {
		wake.add(r.wake)
	}
}

// tendDoubt doubts the chosen route once somebody who dials it got no answer in time.
func (s *service) tendDoubt(now time.Time, wake *alarm) {
	if len(s.following) == 0 || !s.known {
		return
	}
	if at := s.following[0].began.Add(s.limit); at.After(now) {
		wake.add(at)
		return
	}
	s.doubt(now)
}

// tendNext starts the next race when it is due.
func (s *service) tendNext(now time.Time, wake *alarm) {
	if s.race != nil {
		return
	}
	if at := s.ended.Add(askAgain); !s.ended.IsZero() && !at.After(now) {
		s.again.Asked(now)
	} else if !s.ended.IsZero() {
		wake.add(at)
	}
	at, why, _ := s.again.Next(now, true, &s.p.roam.Budget)
	if at.After(now) {
		wake.add(at)
		return
	}
	s.startRace(now, why)
	if s.race != nil {
		wake.add(s.race.wake)
	}
}

// expire fails those whose apps have waited long enough.
func (s *service) expire(now time.Time, wake *alarm) {
	patience := s.p.d.patience()
	if patience < 0 || len(s.waiting) == 0 {
		return
	}
	due := func(a *ask) bool { return !a.since.Add(patience).After(now) }
	if slices.ContainsFunc(s.waiting, due) {
		s.fail(s.noRoute(now, fmt.Sprintf("waited %gs: ", patience.Seconds())), due)
	}
	for _, a := range s.waiting {
		wake.add(a.since.Add(patience))
	}
}

// noRoute tells why no route works, from the last race, else from the one that runs.
func (s *service) noRoute(now time.Time, before string) *Error {
	attempts := s.last
	if len(attempts) == 0 && s.race != nil {
		for _, a := range s.race.tries {
			attempts = append(attempts, a.sofar(now))
		}
	}
	if len(attempts) > 0 {
		return s.p.raceError(attempts, before)
	}
	return &Error{
		Peer: s.p.name, reason: reasonNoRoute, Next: "it is tried again",
		text: fmt.Sprintf("%s%s was dialled too often lately to try at once", before, s.p.name),
	}
}

// changed gives all services another try because facts have changed.
func (pl *plain) changed(now time.Time, what string) {
	for _, s := range pl.services {
		s.doubt(now)
		s.again.Changed(now, what)
		if s.race != nil {
			s.race.step(now, route.Joined{Plan: pl.p.roam.Ranking(now)})
		}
	}
}

// moved follows a change of this machine's network: a connection whose own address is gone is over, as a link's carrier is.
func (pl *plain) moved(now time.Time, path route.Path) {
	pl.changed(now, "the network path")
	for c := range pl.conns {
		switch {
		case path.Has(c.local):
			c.adrift = time.Time{}
		case c.adrift.IsZero():
			c.adrift = now
		}
	}
}

// end answers everybody and ends all connections.
func (pl *plain) end(cause error) {
	if errors.Is(cause, ErrClosed) {
		cause = link.ErrClosed
	}
	for _, s := range pl.services {
		for _, a := range s.following {
			if !slices.Contains(s.waiting, a) {
				s.waiting = append(s.waiting, a)
			}
		}
		s.fail(cause, all)
	}
	for c := range pl.conns {
		pl.cut(time.Now(), c, cause)
	}
}

// cut ends a connection so that both its ends see a failure.
func (pl *plain) cut(now time.Time, c *plainConn, cause error) {
	delete(pl.conns, c)
	pl.p.decided(route.Decision{At: now, What: fmt.Sprintf("reset a connection to %s over %s", c.target, c.route), Why: cause.Error()})
	pl.p.log.Info("a connection has ended with its route", "target", c.target, "route", c.route.ID(), "cause", cause)
	var err error = endError(pl.p.name, cause)
	c.cause.CompareAndSwap(nil, &err)
	resetConn(c.Conn)
}
