package route

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The numbers of a race.
const (
	// MaxAtOnce bounds the attempts that run at the same time: enough for one of
	// each class that can be dialled, few enough to be polite to one host.
	MaxAtOnce = 3
	// SlotStep is the head start of each route over the next while nothing is
	// known about them: RFC 8305 section 8 recommends 250 ms between attempts.
	SlotStep = 250 * time.Millisecond
	// OpenLimit is how long the runner lets one socket take to open: three lost
	// SYNs on a slow path (1 + 2 s) and its round trip still fit.
	OpenLimit = 5 * time.Second
	// RaceLimit is when the whole race is over: two rounds of OpenLimit.
	RaceLimit = 10 * time.Second
	// GraceMin is the least time after the win in which a better class may still
	// attach and be kept; a longer round trip of the winner extends it. Less than
	// a person notices, more than the jitter of a busy LAN.
	GraceMin = 100 * time.Millisecond
)

// RaceOptions shape one race. The zero value is a first, unhurried connect.
type RaceOptions struct {
	// AllAtOnce starts without stagger: after a loss, a wake-up, or when the
	// route in use is suspect. MaxAtOnce holds all the same.
	AllAtOnce bool
	// Budget is the peer's dial budget, shared by all its races. Nil is a full
	// one of the race's own.
	Budget *Budget
}

// Verb is what an Action tells the runner to do.
type Verb uint8

// The verbs. Cancel is final: the runner closes whatever that dial has or will
// yield.
const (
	Dial   Verb = iota + 1 // start this route
	Cancel                 // stop or close this one
	Win                    // use this carrier now; the race may go on for a better one
	Keep                   // keep this carrier as the standby and switch to it
	Done                   // the race is over; Result is set; nothing follows
)

var verbNames = [...]string{"none", "dial", "cancel", "win", "keep", "done"}

// String is the verb as shown in traces.
func (v Verb) String() string { return nameOf(verbNames[:], int(v), "verb") }

// Action is one decision of a race and its reason.
type Action struct {
	Do     Verb
	Route  Route   // not for Done
	Why    string  // with the values it rests on
	Result *Result // for Done only
}

// Result is how a race ended. Attempts holds every route of the plan once, in
// the order of the race.
type Result struct {
	Winner   Route // meaningful when Won
	Won      bool
	Attempts []Attempt
}

// Event is something that happened to a race: Tick, Reached, Attached, Ended,
// Joined or Stop.
type Event interface {
	apply(r *Race, now time.Time)
}

// Tick is only the passing of time: the start, and each wake-up.
type Tick struct{}

// Reached says that an attempt entered a stage.
type Reached struct {
	Route Route
	Stage Stage
}

// Attached says that a route is authenticated and attached. RTT is the round
// trip measured in its handshake, 0 if unknown.
type Attached struct {
	Route Route
	RTT   time.Duration
}

// Ended says that an attempt ended without a carrier. Outcome is one of Failed,
// Silent, WrongPeer, Blocked, Busy, Superseded, NoRoute; any other is taken as
// Failed.
type Ended struct {
	Route   Route
	Outcome Outcome
	Err     error
}

// Joined brings routes that became known during the race.
type Joined struct{ Routes []Route }

// Stop ends the race because nobody needs it any more.
type Stop struct{ Why string }

// Race decides one race for one peer. Each route of the plan is dialled at most
// once. Its owner calls Step with a Tick first, then with every event and at
// every wake-up time, and carries the actions out in their order.
type Race struct {
	opts    RaceOptions
	start   time.Time
	end     time.Time // RaceLimit; once won, the end of the grace if that is earlier
	nextAt  time.Time // when the next route may start
	pulled  string    // why nextAt is earlier than the slot's own time
	field   []Attempt // started ones first, then the others in the order they will start
	started int
	best    Class // of the carrier in use; 0 until won
	starved bool  // a start waits for the budget
	done    bool
	out     []Action
}

// NewRace plans a race from now on. The plan is in configured order; a route
// named twice counts once.
func NewRace(now time.Time, plan []Route, opts RaceOptions) *Race {
	if opts.Budget == nil {
		opts.Budget = new(Budget)
	}
	r := &Race{opts: opts, start: now, end: now.Add(RaceLimit), nextAt: now}
	r.add(plan)
	return r
}

// Step tells the race what happened at now and returns what to do. Wake is when
// the next Tick is due, always after now; it is zero once Done was returned.
func (r *Race) Step(now time.Time, ev Event) (actions []Action, wake time.Time) {
	r.out = nil
	ev.apply(r, now)
	r.advance(now)
	return r.out, r.wake(now)
}

func (Tick) apply(*Race, time.Time) {}

func (e Reached) apply(r *Race, _ time.Time) {
	if a := r.find(e.Route); a != nil && a.Outcome == Running {
		a.Stage = max(a.Stage, e.Stage)
	}
}

func (e Joined) apply(r *Race, _ time.Time) {
	if !r.done {
		r.add(e.Routes)
	}
}

func (e Stop) apply(r *Race, now time.Time) {
	if !r.done {
		r.finish(now, Cancelled, e.Why)
	}
}

func (e Ended) apply(r *Race, now time.Time) {
	a := r.find(e.Route)
	if a == nil || a.Outcome != Running {
		return // cancelled meanwhile: it has its end already
	}
	outcome := e.Outcome
	if outcome < Failed || outcome > NoRoute {
		outcome = Failed
	}
	a.close(now, outcome, e.Err)
	switch outcome {
	case NoRoute:
		r.opts.Budget.Refund(now)
	case Superseded:
		// Every route leads to the same answer, and asking again could take the
		// link from the instance that holds it now.
		r.finish(now, Cancelled, fmt.Sprintf("%s: superseded", a.Route))
		return
	}
	if now.Before(r.nextAt) {
		r.nextAt, r.pulled = now, fmt.Sprintf("%s: %s", a.Route, outcome)
	}
}

func (e Attached) apply(r *Race, now time.Time) {
	a := r.find(e.Route)
	switch {
	case a != nil && (a.Outcome == Won || a.Outcome == Kept):
		return // said twice
	case a == nil || a.Outcome != Running:
		r.act(Cancel, e.Route, "it came after it was cancelled") // so that no carrier stays behind
		return
	case r.best != 0 && now.After(r.end):
		a.close(now, Lost, nil)
		r.act(Cancel, a.Route, "it came after the grace")
		return
	}
	took := now.Sub(a.Start)
	a.Stage = Attach
	if r.best == 0 {
		a.close(now, Won, nil)
		r.act(Win, a.Route, fmt.Sprintf("first to attach, %s after its start", took))
		r.end = earlier(r.end, now.Add(max(e.RTT, GraceMin)))
	} else {
		a.close(now, Kept, nil)
		r.act(Keep, a.Route, fmt.Sprintf("%s is better than %s, attached %s before the end of the grace",
			a.Route.Class, r.best, r.end.Sub(now)))
	}
	r.best = a.Route.Class
	for i := range r.field {
		if l := &r.field[i]; l.Outcome == Running && l.Route.Class >= r.best {
			r.drop(now, l, Lost, fmt.Sprintf("%s won and %s is no better class", a.Route, l.Route.Class))
		}
	}
}

// advance does what is due at now.
func (r *Race) advance(now time.Time) {
	if r.done {
		return
	}
	if !now.Before(r.end) {
		if r.best != 0 {
			r.finish(now, Lost, "the grace for a better class is over")
		} else {
			r.finish(now, Unfinished, fmt.Sprintf("the race is over after %s", RaceLimit))
		}
		return
	}
	r.launch(now)
	if r.running() == 0 && (r.best != 0 || r.started == len(r.field)) {
		r.finish(now, Cancelled, "every route has ended")
	}
}

// launch starts what may start.
func (r *Race) launch(now time.Time) {
	r.starved = false
	for r.mayStart() && !now.Before(r.nextAt) {
		if !r.opts.Budget.Take(now) {
			r.starved = true
			return
		}
		a := &r.field[r.started]
		a.Outcome, a.Start = Running, now
		r.act(Dial, a.Route, r.whyDial())
		r.started++
		r.nextAt, r.pulled = r.slot(r.started), ""
	}
}

// mayStart reports whether a route is left and a place is free for it.
func (r *Race) mayStart() bool {
	return r.best == 0 && r.started < len(r.field) && r.running() < MaxAtOnce
}

// slot is when the i-th route starts if no failure pulls it forward.
func (r *Race) slot(i int) time.Time {
	if r.opts.AllAtOnce {
		return r.start
	}
	return r.start.Add(time.Duration(i) * SlotStep)
}

func (r *Race) whyDial() string {
	i := r.started
	switch {
	case r.pulled != "":
		return r.pulled
	case i == 0:
		return "leader: best class, first in the config"
	case i == 1 && r.field[1].Route.Class != r.field[0].Route.Class:
		return fmt.Sprintf("best of another class, due at %s", r.slot(i).Sub(r.start))
	default:
		return fmt.Sprintf("slot %d, due at %s", i, r.slot(i).Sub(r.start))
	}
}

// wake is the earliest time at which advance has something to do.
func (r *Race) wake(now time.Time) time.Time {
	switch {
	case r.done:
		return time.Time{}
	case r.starved:
		return earlier(r.end, r.opts.Budget.Ready(now))
	case r.mayStart():
		return earlier(r.end, r.nextAt)
	default:
		return r.end
	}
}

// finish ends the race: what runs is dropped with outcome, the rest stays
// untried.
func (r *Race) finish(now time.Time, outcome Outcome, why string) {
	result := &Result{}
	for i := range r.field {
		a := &r.field[i]
		switch a.Outcome {
		case Running:
			r.drop(now, a, outcome, why)
		case NotTried:
			a.Err = ErrRaceOver
			if r.starved {
				a.Err = ErrBudgetSpent
			}
		case Won:
			result.Winner, result.Won = a.Route, true
		}
	}
	result.Attempts = slices.Clone(r.field)
	r.done = true
	r.out = append(r.out, Action{Do: Done, Why: why, Result: result})
}

func (r *Race) drop(now time.Time, a *Attempt, outcome Outcome, why string) {
	a.close(now, outcome, nil)
	r.act(Cancel, a.Route, why)
}

func (r *Race) act(do Verb, route Route, why string) {
	r.out = append(r.out, Action{Do: do, Route: route, Why: why})
}

// add puts new routes into the field and orders all that have not started: by
// class, then as configured. The second place goes to the best of another class
// than the leader's, so that one dead class never holds up the others.
func (r *Race) add(routes []Route) {
	for _, route := range routes {
		if r.find(route) == nil {
			r.field = append(r.field, Attempt{Route: route})
		}
	}
	waiting := r.field[r.started:]
	slices.SortStableFunc(waiting, func(a, b Attempt) int { return cmp.Compare(a.Route.Class, b.Route.Class) })
	if r.started > 1 {
		return
	}
	other := slices.IndexFunc(r.field, func(a Attempt) bool { return a.Route.Class != r.field[0].Route.Class })
	if other > 1 {
		second := r.field[other]
		r.field = slices.Insert(slices.Delete(r.field, other, other+1), 1, second)
	}
}

func (r *Race) find(route Route) *Attempt {
	i := slices.IndexFunc(r.field, func(a Attempt) bool { return a.Route.Same(route) })
	if i < 0 {
		return nil
	}
	return &r.field[i]
}

func (r *Race) running() int {
	n := 0
	for _, a := range r.field {
		if a.Outcome == Running {
			n++
		}
	}
	return n
}

func (a *Attempt) close(now time.Time, outcome Outcome, err error) {
	a.Outcome, a.Duration, a.Err = outcome, now.Sub(a.Start), err
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
