package route

import (
	"net/netip"
	"slices"
	"time"
)

// RoamEvent is something that happened to a peer: Tick, PathChanged, Woke,
// RoutesChanged, Found, Gone, LinkState, Asked, RaceWon, DialRefused, RaceEnded,
// DialEnded, CheckEnded, Proved, SwitchEnded, GoingAway, PeerRestarted or
// Pinned.
type RoamEvent interface {
	happen(r *Roam, now time.Time)
}

// PathChanged brings this machine's network as it is now. Told without a change
// of interfaces or addresses it changes nothing.
type PathChanged struct{ Path Path }

// Woke says that the machine slept.
type Woke struct{}

// RoutesChanged brings the vetted routes as they are now, in configured order.
type RoutesChanged struct {
	Routes  []Route
	Standby Standby
	What    string // "the config", "the peer's word": for the reason
	ByHand  bool   // the user changed the config or the keys: a peer that had superseded this machine is dialled again
}

// Found says that a route is seen live. A repeated sighting changes nothing.
type Found struct{ Route Route }

// Gone says that a route is no longer seen live.
type Gone struct{ Route Route }

// Carrier is one transport connection of the link, as it is now.
type Carrier struct {
	ID       uint64 // never used again for another one of this peer
	Route    Route
	Local    netip.Addr    // the socket's own address; invalid: unknown
	RTT      time.Duration // 0: unknown
	Suspect  bool          // the link is in doubt about it
	Draining bool          // the link is on its way off it
	Heard    time.Time     // when the last byte came in on it
}

// LinkState is what the link shows now. Carriers are the attached ones, without
// those that are only for bulk.
type LinkState struct {
	Exists   bool // there is a link, so a race has something to attach to
	Carriers []Carrier
	Active   uint64    // ID of the carrier in use; 0: none
	Streams  int       // open ones
	Held     bool      // an app is at one of their ends, or waits for the peer
	LastByte time.Time // when a stream last moved a byte; zero: never
}

// Asked says that an app opened a stream, or waits for one and asks again.
type Asked struct{}

// RaceWon says that a carrier of the race is attached: its Win, or its Keep.
type RaceWon struct{ Carrier Carrier }

// DialRefused says that the local stack refused to dial a route of the race.
type DialRefused struct{ Route Route }

// RaceEnded says that the race is over. Stopped: it was given up.
type RaceEnded struct {
	Won      bool
	Stopped  bool
	Attempts []Attempt
}

// DialEnded says what became of a DialStandby. Carrier is set if it is attached.
type DialEnded struct {
	Route   Route
	Carrier Carrier
	Outcome Outcome // Won: attached
}

// CheckEnded says what became of one route of a Check.
type CheckEnded struct {
	Route    Route
	Answered bool          // the peer proved its key
	RTT      time.Duration // of the question alone, without what it took to get there
	Outcome  Outcome       // if it did not answer
}

// Proved says whether a carrier answered a Prove.
type Proved struct {
	ID    uint64
	Alive bool
}

// SwitchEnded says what became of a Switch. Failed: the link is where it was.
type SwitchEnded struct {
	ID     uint64
	Failed bool
}

// GoingAway says that a relay is about to close a carrier.
type GoingAway struct{ ID uint64 }

// PeerRestarted says that the peer's process ended, or is a new one: what it
// closed does not speak against any route.
type PeerRestarted struct{}

// Pinned is what the user wants used from now on.
type Pinned struct{ Pin Pin }

func (Tick) happen(*Roam, time.Time) {}

func (e RoutesChanged) happen(r *Roam, now time.Time) {
	for _, route := range e.Routes {
		if !slices.ContainsFunc(r.Facts.Routes, route.Same) {
			r.found[route.ID()] = true
		}
	}
	if slices.EqualFunc(r.Facts.Routes, e.Routes, func(a, b Route) bool { return a == b }) && r.standby == e.Standby && !e.ByHand {
		return
	}
	r.Facts.Routes, r.standby = slices.Clone(e.Routes), e.Standby
	r.halted = r.halted && !e.ByHand
	r.learnt(now, e.What)
}

func (e Found) happen(r *Roam, now time.Time) {
	id := e.Route.ID()
	if _, known := r.Facts.Seen[id]; known {
		return
	}
	r.Facts.Seen[id] = now
	r.found[id] = true
	r.learnt(now, "what is seen of "+id)
}

func (e Gone) happen(r *Roam, _ time.Time) { delete(r.Facts.Seen, e.Route.ID()) }

// learnt draws the conclusions of facts that changed.
func (r *Roam) learnt(now time.Time, what string) {
	r.refresh()
	if r.state != sound && r.link.Exists {
		r.again.Changed(now, what)
	}
	r.joinFull(now, what+" changed")
}

// refresh gives another try to all that waits for facts to change.
func (r *Roam) refresh() {
	r.ranked = nil
	r.fresh = true
	if r.sweep.step > 0 {
		r.sweep = sweep{last: r.now}
	}
	r.second, r.replace = pace{}, pace{}
	clear(r.blocked)
}

func (e Asked) happen(r *Roam, now time.Time) {
	clear(r.blocked)
	r.again.Asked(now)
}

func (e PeerRestarted) happen(r *Roam, now time.Time) {
	r.restarted = now
	r.acquit("the peer restarted", func(appeal) bool { return true })
}

func (e DialRefused) happen(r *Roam, _ time.Time) {
	if r.race != nil {
		r.race.refused = append(r.race.refused, e.Route)
	}
}

func (e GoingAway) happen(r *Roam, _ time.Time) {
	if c := r.find(e.ID); c != nil && !c.draining {
		c.draining = true
		r.replace = pace{}
		r.acquitRoute(c.Route, "its relay was going")
	}
}

func (e Woke) happen(r *Roam, now time.Time) {
	r.woke, r.changed, r.claim = now, now, now.Add(ClaimTime)
	r.acquit("this machine slept", func(appeal) bool { return true })
	r.trial.counted = false // who knows how the time went by
	r.refresh()
	for _, c := range r.carriers {
		c.unproven = true
	}
	if !r.link.Exists {
		return
	}
	if in := r.inUse(); in != nil {
		r.act(Prove{ID: in.ID, Within: patience(in.RTT), Why: "the machine woke up"})
	}
	r.again.Woke(now)
	r.joinFull(now, "the machine woke up")
}

func (e Pinned) happen(r *Roam, now time.Time) {
	r.pin = e.Pin
	r.trial.counted = false // what follows is the user's own doing
	r.pinning = e.Pin.Set()
	r.learnt(now, "what the user wants")
	if !e.Pin.Set() {
		for _, route := range r.Facts.Routes {
			r.found[route.ID()] = true // look at once whether there is something better
		}
	}
}

// Again has a race dial routes once more that ended with NoRoute: the path has
// come up a little further. Such a dial costs nothing.
type Again struct{ Routes []Route }

func (e Again) apply(r *Race, now time.Time) {
	if r.done || r.best != 0 {
		return
	}
	var plan []Ranked
	for _, route := range e.Routes {
		i := slices.IndexFunc(r.field, func(a entry) bool { return a.Route.Same(route) && a.Outcome == NoRoute })
		if i < 0 {
			continue
		}
		plan = append(plan, r.field[i].ranked)
		r.field = slices.Delete(r.field, i, i+1)
		r.started--
	}
	if len(plan) == 0 {
		return
	}
	for _, waiting := range r.field[r.started:] {
		plan = append(plan, waiting.ranked)
	}
	r.add(plan)
	r.pull(now, "the path is coming up")
}
