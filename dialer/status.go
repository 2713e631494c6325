package dialer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
)

// State says what a peer's loop is about.
type State string

// String is the state as a word.
func (s State) String() string { return string(s) }

// The states.
const (
	StateIdle       State = "idle"       // no carrier, and nothing to do until an app asks
	StateConnecting State = "connecting" // no carrier, and a race runs
	StateConnected  State = "connected"  // a carrier is attached
	StateWaiting    State = "waiting"    // no carrier, and the next race has its time
)

// PeerStatus is a peer as it is now.
type PeerStatus struct {
	Name   string
	ID     identity.Fingerprint // zero: Plain
	State  State
	Routes []route.Route // as configured
	// Plain: there is no agent, and never a link. Conns are its open connections; none of them can move.
	Plain bool
	Conns []PlainStatus
	// Link is nil while there is none; the name of a carrier is its route's ID. The link is one since Since.
	Link    *link.Status
	Since   time.Time
	Streams []link.StreamStatus
	// RouteOf names the route of a carrier by its generation, also of those that Link.Switches speaks of.
	RouteOf map[uint64]string
	// Pin is what the user wants used. Ranked are the routes that may be tried, in the order of the next race, each with its reasons;
	// Refused are those that may not.
	Pin     route.Pin
	Ranked  []route.Ranked
	Refused []route.Refusal
	// Path is where this machine is, and Here what is remembered about the peer's routes there.
	Path route.Path
	Here []route.NetworkMemory
	// Waiting is how many apps wait for a route or for their target.
	Waiting int
	// Attempts are the routes of the last race, which ended at RaceEnded; zero: there was none.
	Attempts  []route.Attempt
	RaceEnded time.Time
	// Next is when the next race starts, and NextWhy the reason; zero: none is planned.
	Next    time.Time
	NextWhy string
	// Err tells, while no carrier works, why the last race failed, or else why the last link has ended.
	Err error
}

// Status tells of every peer, by name.
func (d *Dialer) Status() []PeerStatus {
	var list []PeerStatus
	for _, p := range d.all() {
		var s PeerStatus
		if p.ask(d.ctx, func(now time.Time) { s = p.status(now) }) == nil {
			list = append(list, s)
		}
	}
	return list
}

// status is Status on the loop.
func (p *peer) status(now time.Time) PeerStatus {
	s := PeerStatus{
		Name: p.name, ID: p.id, State: StateIdle, Routes: p.conf.Routes, Waiting: len(p.waits),
		Attempts: p.lastRace, RaceEnded: p.lastRaceAt, RouteOf: maps.Clone(p.names),
		Pin: p.pin, Ranked: p.roam.Ranking(now), Refused: p.refused,
		Path: p.roam.Facts.Path, Here: p.roam.Facts.Memory.Here(p.roam.Facts.Path),
	}
	switch {
	case p.superseded:
		s.Err = supersededError(p.name)
	case p.state != up && p.lastFailed():
		s.Err = p.raceError(p.lastRace, "")
	case p.client == nil && p.lastEnd != nil:
		s.Err = endError(p.name, p.lastEnd)
	}
	if p.plain != nil {
		p.plain.status(now, &s)
	}
	if p.client == nil {
		return s
	}
	st := p.client.Status()
	s.Link, s.Since, s.Streams = &st, p.since, p.client.Streams()
	switch {
	case !st.Lost:
		s.State = StateConnected
	case p.race != nil:
		s.State = StateConnecting
	case p.superseded:
	default:
		if at, why, ok := p.roam.NextRace(now); ok {
			s.State, s.Next, s.NextWhy = StateWaiting, at, why
		}
	}
	return s
}

var errCheckTimeout = fmt.Errorf("no answer within %s", route.RaceLimit)

// RouteCheck is what a check of one route found out.
type RouteCheck struct {
	route.Attempt // Won: the peer answered; nothing was attached
	Host          link.Process
	Handshake     time.Duration // TCP is open: until both keys were proved
	RoundTrip     time.Duration // of one question over the connection
	Address       string        // that answered, numeric
	NoKey         bool          // no key was proved: the peer has no agent. Handshake and Host are empty
}

// Check asks the peer for a sign of life over each of its routes, all at once and beside any link, also over those that are
// left out because another key answered there: one that shows the right key now is used again. Its error says that there is
// no such peer. Of a peer without an agent the port that was last asked for is opened.
func (d *Dialer) Check(ctx context.Context, peer string) ([]RouteCheck, error) {
	p, err := d.find(peer)
	if err != nil {
		return nil, err
	}
	var routes []route.Route
	check := func(r route.Route) RouteCheck { return d.checkRoute(ctx, p.id, r) }
	if err := p.ask(ctx, func(time.Time) {
		routes = p.conf.Routes
		if p.plain != nil {
			port := p.plain.asked
			check = func(r route.Route) RouteCheck { return d.checkPlain(ctx, r, port) }
		}
	}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, route.RaceLimit, errCheckTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	list := make([]RouteCheck, len(routes))
	done := make(chan struct{})
	for i, r := range routes {
		go func() {
			list[i] = check(r)
			done <- struct{}{}
		}()
	}
	for range routes {
		<-done
	}
	p.send(func(now time.Time) {
		var found []route.Attempt
		for _, c := range list {
			found = append(found, c.Attempt)
		}
		p.noteKeys(now, found)
	})
	return list, nil
}

// PeerStatus tells of one peer. Its error says that there is no such peer.
func (d *Dialer) PeerStatus(ctx context.Context, peer string) (s PeerStatus, err error) {
	p, err := d.find(peer)
	if err != nil {
		return s, err
	}
	err = p.ask(ctx, func(now time.Time) { s = p.status(now) })
	return s, err
}

// Path is where this machine is, as last told.
func (d *Dialer) Path() route.Path { return d.path() }

// checkRoute checks one route.
func (d *Dialer) checkRoute(ctx context.Context, id identity.Fingerprint, r route.Route) RouteCheck {
	c := RouteCheck{Attempt: route.Attempt{Route: r, Start: time.Now()}}
	t, err := d.secure(ctx, id, r, func(s route.Stage, local netip.Addr) { c.Stage, c.Local = s, local })
	if err == nil {
		var res link.CheckResult
		c.Handshake, c.Address = t.Handshake(), t.RemoteAddr().String()
		res, err = link.Check(ctx, t, d.cfg.Process)
		c.Host, c.RoundTrip = res.Host, res.RoundTrip
	}
	c.Duration = time.Since(c.Start)
	c.Outcome, c.Err = route.Won, err
	if err != nil {
		c.Outcome = outcomeOf(ctx, err)
	}
	return c
}
