package route

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Standby says when a second carrier is kept beside the one in use.
type Standby uint8

// The ways of keeping a standby.
const (
	StandbyAuto   Standby = iota // while bytes move, and not where bytes cost money
	StandbyAlways                // while any stream is open
	StandbyNever
)

// RoamConfig is what a Roam is made of.
type RoamConfig struct {
	Facts   Facts // Now is set by each Step
	Pin     Pin
	Standby Standby
	// Rand yields jitter in [0, 1) from a seeded source. Nil is no jitter: the
	// longest wait.
	Rand func() float64
}

// Roam decides everything about one peer's carriers that takes more than one
// race: when a race is run and among which routes, when a better route is looked
// for, which carrier is used, which is kept beside it, and what is held against a
// route. It follows docs/routes.md; how the link itself moves between carriers
// that are attached is docs/wire.md's.
//
// Its owner is the peer's loop, which
//
//  1. makes one with NewRoam and keeps it as long as the peer is configured;
//  2. tells it what happens by Step, one event each, with the time it has read
//     for that turn of the loop; Tick when the wake-up time has come or nothing
//     else has happened. LinkState is a level, not an edge: it is told in every
//     turn, before or instead of Tick, and Roam finds out by itself what came,
//     went, is in doubt, or was left by the link. Told twice, nothing happens;
//  3. carries the actions out in their order. An action is never repeated by Roam
//     while it is under way. Each of these is answered by one event, whatever
//     became of it: StartRace by RaceEnded, DialStandby by DialEnded, each route
//     of Check by CheckEnded, Switch by SwitchEnded. Prove may be answered by
//     Proved; a byte on that carrier (Carrier.Heard) answers as well, and no
//     answer in time counts as none;
//  4. sets its timer to wake; zero is never.
//
// A race: run NewRace over StartRace.Plan with its options and Roam.Budget. For
// Win and Keep tell RaceWon with the carrier, and do nothing else: if the link
// has no carrier it uses that one already, else Roam answers with Switch, Prove or
// Drop. Tell DialRefused for an attempt that the local stack refused while the
// race goes on. On PathChanged the loop itself ends running attempts whose own
// local address is gone (Path.Has, Vanished). JoinRace is a Joined for the race,
// TryAgain an Again.
//
// Facts are Roam's, and events keep them up to date; what no event speaks of
// (Relayed, TailnetKnows, and Memory, into which the loop records each race
// before it tells RaceEnded) the loop writes between Steps. Roam writes into
// Memory only penalties, and says so by Remember: then it is to be stored.
//
// Everything is plain values: the same events at the same times give the same
// actions.
type Roam struct {
	Facts  Facts
	Budget Budget // of dials for this peer; races are given a pointer to it

	standby Standby
	pin     Pin
	pinning bool // a user's wish that was not tried yet
	random  func() float64
	again   Reconnect

	link     LinkState
	carriers []*carrier
	active   uint64 // of the carrier in use; 0: none
	ordered  errand // the last Switch
	state    health
	halted   bool // superseded: nothing is dialled until something is changed by hand

	race    *racing
	checks  *checking
	choice  choice
	moving  uint64   // of the carrier a Switch is under way to
	after   uint64   // what is to be switched to after that; 0: nothing
	silent  []Ranked // routes that gave no answer to the checks of this round
	dialing bool     // a standby is being dialled
	fresh   bool     // facts changed that no race has seen yet
	saving  bool     // the budget is not refilled

	told     bool      // the path was told once
	pathDue  time.Time // since when a change of the path waits for its race; zero: none does
	pathRace time.Time // when the last such race began
	changed  time.Time // the last change of the path or wake-up: the latest of both
	claim    time.Time // until then the first find of a better class belongs to that change
	woke     time.Time

	sweep     sweep
	found     map[string]bool      // routes that became known and were not checked since
	raced     map[string]time.Time // last upgrade race, by route
	upgraded  time.Time            // the last to any
	blocked   map[string]bool      // routes that refuse until somebody acts
	replace   pace                 // of races off a route that goes or is no longer configured
	second    pace                 // of dials for a standby
	turn      int                  // which candidate for a standby is next
	trial     trial
	back      []way // carriers the link left in doubt that may be gone back to
	appeals   []appeal
	unplaced  map[string]Penalty // on a network that cannot be told from others
	restarted time.Time          // the peer, as last told

	out    []RoamAction
	wake   time.Time
	ranked []Ranked // of this Step; nil: not asked yet
	now    time.Time
}

// health is what a peer's carriers are worth.
type health uint8

const (
	down  health = iota // none is attached
	doubt               // none can be trusted
	sound               // one can
)

var healthNames = [...]string{"down", "in doubt", "sound"}

func (h health) String() string { return nameOf(healthNames[:], int(h), "health") }

// carrier is what Roam knows of one.
type carrier struct {
	Carrier
	since    time.Time
	unproven bool      // nothing was heard of it since the machine woke up
	placed   bool      // its address was seen on the path
	adrift   time.Time // since when that has been gone; zero: it is there
	draining bool
	dropped  bool      // Roam has let go of it
	released bool      // the link may close it once it has left it
	redial   time.Time // draining, and nothing else works: when it is dialled again
	standby  bool      // Roam has said that it is kept
}

// trusted reports whether it is as good as known to work.
func (c *carrier) trusted() bool {
	return c != nil && !c.Suspect && !c.unproven && c.adrift.IsZero() && !c.dropped
}

// racing is the race that runs.
type racing struct {
	trigger Trigger
	plan    []Ranked
	from    uint64 // the carrier to be replaced; 0: none was in use
	full    bool   // every route that may be used is in it
	refused []Route
}

// choice is between a carrier that has won a race and the one in use.
type choice struct {
	old, fresh uint64 // 0: there is none to make
	asked, due time.Time
}

// NewRoam returns a Roam for a peer that has no link yet.
func NewRoam(cfg RoamConfig) *Roam {
	r := &Roam{
		Facts: cfg.Facts, standby: cfg.Standby, pin: cfg.Pin, random: cfg.Rand,
		found: map[string]bool{}, raced: map[string]time.Time{}, blocked: map[string]bool{},
		unplaced: map[string]Penalty{},
	}
	r.again.Rand = cfg.Rand
	if r.Facts.Seen == nil {
		r.Facts.Seen = map[string]time.Time{}
	}
	return r
}

// Step tells what happened at now and returns what to do. Wake is when the next
// Tick is due if nothing else happens, always after now; zero: never.
func (r *Roam) Step(now time.Time, ev RoamEvent) (actions []RoamAction, wake time.Time) {
	r.out, r.wake, r.ranked, r.now = nil, time.Time{}, nil, now
	r.Facts.Now = now
	ev.happen(r, now)
	r.weigh(now)
	r.save(now)
	r.decide(now)
	return r.out, r.wake
}

// decide brings about what is due, the more urgent first.
func (r *Roam) decide(now time.Time) {
	r.tryHeld(now)
	r.flee()
	r.choose(now)
	r.goBack(now)
	r.abandon(now)
	r.finishChecks(now)
	r.rejoin(now)
	if r.halted || !r.link.Exists {
		return
	}
	r.reach(now)
	r.obey(now)
	r.replaceByPath(now)
	r.leave(now)
	r.shed(now)
	r.lookForBetter(now)
	r.seekStandby(now)
}

func (r *Roam) act(a RoamAction) { r.out = append(r.out, a) }

// wakeAt asks for a Tick at at, which is after now.
func (r *Roam) wakeAt(at time.Time) {
	if at.After(r.now) && (r.wake.IsZero() || at.Before(r.wake)) {
		r.wake = at
	}
}

// free reports whether nothing is under way that a planned change would disturb.
func (r *Roam) free() bool {
	return r.state == sound && r.race == nil && r.moving == 0 && r.choice.fresh == 0
}

// find is a carrier that is attached, or nil.
func (r *Roam) find(id uint64) *carrier {
	i := slices.IndexFunc(r.carriers, func(c *carrier) bool { return c.ID == id })
	if i < 0 || id == 0 {
		return nil
	}
	return r.carriers[i]
}

// inUse is the carrier in use, or nil.
func (r *Roam) inUse() *carrier { return r.find(r.active) }

// weigh finds out what the carriers are worth and tells of a change.
func (r *Roam) weigh(now time.Time) {
	state := down
	for _, c := range r.carriers {
		if c.trusted() {
			state = sound
		} else if !c.dropped && state == down {
			state = doubt
		}
	}
	was := r.state
	r.state = state
	if state == was {
		return
	}
	if state == sound {
		if r.race == nil {
			r.again.Won(now) // one in doubt has come back by itself
		}
		return
	}
	if r.race != nil {
		r.again.Started(now) // so that this change is not taken for one that the race has seen
	}
	why := r.whyLost()
	r.again.lose(now, why)
	r.join(why)
}

// whyLost says why no carrier can be trusted.
func (r *Roam) whyLost() string {
	switch in := r.inUse(); {
	case r.state == down || in == nil:
		return "the last carrier is gone"
	case !in.adrift.IsZero():
		return fmt.Sprintf("%s left this machine", in.Local)
	case in.unproven:
		return "the machine woke up"
	default:
		return fmt.Sprintf("%s is in doubt, and nothing else is attached", in.Route)
	}
}

// ranking is the order of all routes that may be used.
func (r *Roam) ranking() []Ranked {
	if r.ranked != nil {
		return r.ranked
	}
	list := Rank(r.Facts)
	if len(r.unplaced) > 0 {
		list = r.withUnplaced(list, r.now)
	}
	r.ranked = r.pin.pinned(list)
	return r.ranked
}

// withUnplaced adds the penalties earned on a network that cannot be named.
func (r *Roam) withUnplaced(list []Ranked, now time.Time) []Ranked {
	var first, last []Ranked
	for _, e := range list {
		if p, ok := r.unplaced[e.Route.ID()]; ok {
			e.Why.Penalty, e.Why.Penalized = p, p.Active(now)
		}
		if e.Why.Penalized {
			last = append(last, e)
		} else {
			first = append(first, e)
		}
	}
	return append(first, last...)
}

// entry is a route's place in the ranking.
func (r *Roam) entry(route Route) (Ranked, bool) {
	list := r.ranking()
	i := slices.IndexFunc(list, func(e Ranked) bool { return e.Route.Same(route) })
	if i < 0 {
		return Ranked{Route: route, Why: Why{Class: route.Class}}, false
	}
	return list[i], true
}

// worth orders routes by what is preferred: what the user has pinned, then the
// class as it ranks here. Less is better.
func (r *Roam) worth(e Ranked) Class {
	if r.pin.Set() && r.pin.Wants(e.Route) {
		return 0
	}
	return e.Why.Class
}

// start begins a race; there is none.
func (r *Roam) start(now time.Time, s StartRace) {
	r.race = &racing{trigger: s.Trigger, plan: s.Plan, from: r.active, full: s.Trigger != ForUpgrade && s.Trigger != ForUser}
	if r.checks != nil {
		r.checks.stale = true // what still answers is heard, but decides nothing
	}
	if r.race.full {
		r.fresh = false
		r.pathDue = time.Time{}
		for _, e := range s.Plan {
			delete(r.found, e.Route.ID()) // it gets its chance
		}
	}
	s.Replace = r.state == sound
	r.act(s)
}

// join has the race that runs go on among all routes.
func (r *Roam) join(why string) {
	if r.race == nil {
		return
	}
	if r.state != sound && r.race.trigger > ForWakeUp {
		r.race.trigger = ForLoss // whoever wins now was reached by a normal connect
	}
	r.race.full = true
	r.act(JoinRace{Plan: r.ranking(), Why: why})
}

// joinFull brings new facts into a race among all routes. One among better
// routes alone stays so while a carrier works.
func (r *Roam) joinFull(_ time.Time, why string) {
	if r.race != nil && (r.race.full || r.state != sound) {
		r.join(why)
	}
}

// rejoin has dials that found no route tried again while the path comes up.
func (r *Roam) rejoin(now time.Time) {
	if r.race == nil || len(r.race.refused) == 0 {
		return
	}
	for _, d := range noRouteAgain {
		at := r.changed.Add(d)
		switch {
		case r.changed.IsZero() || at.After(now):
		case at.Equal(now):
			r.act(TryAgain{Routes: r.race.refused, Why: fmt.Sprintf("they found no route; again %s after the path changed", d)})
			r.race.refused = nil
			return
		}
	}
	if at, ok := retryAfter(r.changed, now); ok {
		r.wakeAt(at)
	}
}

// Has reports whether an address is this machine's own on this path. An address
// that is not known, loopback, and any address on an unknown path count as such.
func (p Path) Has(local netip.Addr) bool {
	if !local.IsValid() || local.IsLoopback() || len(p.Interfaces) == 0 {
		return true
	}
	_, ok := p.of(local)
	return ok
}

// of is the interface that an own address is on.
func (p Path) of(local netip.Addr) (Interface, bool) {
	local = local.Unmap().WithZone("")
	for _, i := range p.Interfaces {
		if slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return a.Addr().Unmap().WithZone("") == local }) {
			return i, true
		}
	}
	return Interface{}, false
}

// beneath is the interface that carries what no other does: with a default route
// and no tunnel.
func (p Path) beneath() Interface {
	var first Interface
	for _, i := range p.Interfaces {
		if i.Kind == Tunnel || i.Kind == Loopback {
			continue
		}
		if i.Default {
			return i
		}
		if first.Name == "" {
			first = i
		}
	}
	return first
}

// carrying is the interface that in the end carries a socket; zero: unknown, or
// none but loopback.
func (p Path) carrying(local netip.Addr) Interface {
	if !local.IsValid() || local.IsLoopback() {
		return Interface{}
	}
	if i, ok := p.of(local); ok && i.Kind != Tunnel && i.Kind != Loopback {
		return i
	}
	return p.beneath()
}

// toward is the interface that a dial of a route would take; zero: unknown.
func (p Path) toward(route Route) Interface {
	at, err := netip.ParseAddrPort(route.Address)
	if err != nil || route.Class == Tailnet {
		return p.beneath()
	}
	host := at.Addr().Unmap().WithZone("")
	if host.IsLoopback() {
		return Interface{}
	}
	for _, i := range p.Interfaces {
		if slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return a.Contains(host) }) {
			return i
		}
	}
	return p.beneath()
}

func (r *Roam) networkToward(route Route) Network {
	i := r.Facts.Path.toward(route)
	if i.Kind == Tunnel || i.Kind == Loopback || i.Name == "" {
		return r.Facts.Path.underlay()
	}
	return i.Network
}
