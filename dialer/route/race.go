package route

import (
	"fmt"
	"net/netip"
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
	// SlotStepMin and SlotStepMax bound the head start that follows from what the
	// leader's last handshake here took: the stagger of a LAN is not that of a
	// phone, but a busy peer deserves a moment and nobody waits longer than
	// without history.
	SlotStepMin = 30 * time.Millisecond
	SlotStepMax = SlotStep
	// RelayBy is how long after the leader the best relay has started: it must
	// not wait behind a dead class each.
	RelayBy = 300 * time.Millisecond
	// ReadyWithin is how long a relay may take from "accepted" to "ready": the
	// host has to dial out to it. ReadyMargin before the end of the race it is
	// over all the same, so that it counts and its place becomes free in the race.
	ReadyWithin = 7 * time.Second
	ReadyMargin = 500 * time.Millisecond
)

// ReadyBy is until when a relay that accepted may take to be ready, in a race
// that ends at end.
func ReadyBy(accepted, end time.Time) time.Time {
	return earlier(accepted.Add(ReadyWithin), end.Add(-ReadyMargin))
}

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
	Captive  bool // this network wants a sign-in: nothing is held against a route
}

// Event is something that happened to a race: Tick, Reached, Attached, Ended,
// Vanished, Joined or Stop.
type Event interface {
	apply(r *Race, now time.Time)
}

// Tick is only the passing of time: the start, and each wake-up.
type Tick struct{}

// Reached says that an attempt entered a stage. Local is the socket's own
// address, if it has one by now.
type Reached struct {
	Route Route
	Stage Stage
	Local netip.Addr
}

// Attached says that a route is authenticated and attached. RTT is the round
// trip measured in its handshake, 0 if unknown.
type Attached struct {
	Route Route
	RTT   time.Duration
}

// Ended says that an attempt ended without a carrier. Outcome is one of Failed,
// Silent, WrongPeer, Foreign, Blocked, NoToken, Busy, Superseded, NoRoute; any
// other is taken as Failed.
type Ended struct {
	Route   Route
	Outcome Outcome
	Err     error
}

// Vanished says that this machine lost the address that attempts came from.
// Those are over, and that is no finding about their routes; all others go on.
type Vanished struct{ Local netip.Addr }

// Joined brings a new ranking, because routes became known during the race or
// facts changed. What has started stays as it is; nothing leaves the race.
type Joined struct{ Plan []Ranked }

// Stop ends the race because nobody needs it any more.
type Stop struct{ Why string }

// Race decides one race for one peer. Each route of the plan is dialled at most
// once. Its owner calls Step with a Tick first, then with every event and at
// every wake-up time, and carries the actions out in their order.
type Race struct {
	opts    RaceOptions
	start   time.Time
	end     time.Time // RaceLimit; once won, the end of the grace if that is earlier
	pulled  time.Time // a failure lets the next start then; zero: it has its own time
	pulledW string    // which failure
	field   []entry   // started ones first, then the others in the order they will start
	started int
	best    Class // of the carrier in use, as it ranks; 0 until won
	starved bool  // a start waits for the budget
	done    bool
	out     []Action
}

// entry is one route in a race.
type entry struct {
	Attempt
	ranked Ranked
}

// NewRace plans a race from now on, in the order of the plan; a route named twice
// counts once.
func NewRace(now time.Time, plan []Ranked, opts RaceOptions) *Race {
	if opts.Budget == nil {
		opts.Budget = new(Budget)
	}
	r := &Race{opts: opts, start: now, end: now.Add(RaceLimit)}
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
		if e.Local.IsValid() {
			a.Local = e.Local
		}
	}
}

func (e Joined) apply(r *Race, _ time.Time) {
	if !r.done {
		r.add(e.Plan)
	}
}

func (e Vanished) apply(r *Race, now time.Time) {
	if !e.Local.IsValid() {
		return
	}
	for i := range r.field {
		if a := &r.field[i]; a.Outcome == Running && a.Local.Unmap() == e.Local.Unmap() {
			r.drop(now, a, Cancelled, fmt.Sprintf("this machine no longer has %s", e.Local))
			a.Err = ErrVanished
			r.pull(now, fmt.Sprintf("%s left", e.Local))
		}
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
	r.pull(now, fmt.Sprintf("%s: %s", a.Route, outcome))
}

// pull lets the next route start now, if its own time has not come.
func (r *Race) pull(now time.Time, why string) {
	if now.Before(r.next()) {
		r.pulled, r.pulledW = now, why
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
			a.ranked.Why.Class, r.best, r.end.Sub(now)))
	}
	r.best = a.ranked.Why.Class
	for i := range r.field {
		if l := &r.field[i]; l.Outcome == Running && !l.better(r.best) {
			r.drop(now, l, Lost, fmt.Sprintf("%s won and %s", a.Route, l.noBetter()))
		}
	}
}

// better reports whether it is worth switching from a carrier of a class to this
// route. What did not hold here before is not.
func (e *entry) better(than Class) bool { return e.ranked.Why.Class < than && !e.ranked.Why.Penalized }

func (e *entry) noBetter() string {
	if e.ranked.Why.Penalized {
		return "this one did not hold here"
	}
	return e.ranked.Why.Class.String() + " is no better class"
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

// wake is the earliest time at which advance has something to do.
func (r *Race) wake(now time.Time) time.Time {
	switch {
	case r.done:
		return time.Time{}
	case r.starved:
		return earlier(r.end, r.opts.Budget.Ready(now))
	case r.mayStart():
		return earlier(r.end, r.next())
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
	for _, a := range r.field {
		result.Attempts = append(result.Attempts, a.Attempt)
	}
	result.Captive = Captive(result.Attempts)
	r.done = true
	r.out = append(r.out, Action{Do: Done, Why: why, Result: result})
}

func (r *Race) drop(now time.Time, a *entry, outcome Outcome, why string) {
	a.close(now, outcome, nil)
	r.act(Cancel, a.Route, why)
}

func (r *Race) act(do Verb, route Route, why string) {
	r.out = append(r.out, Action{Do: do, Route: route, Why: why})
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
