package route

import (
	"fmt"
	"time"
)

// Trigger is what a race of Roam's is run for.
type Trigger uint8

// The triggers. Up to ForWakeUp no carrier works; from ForPath on one does, and
// serves until the race has brought another.
const (
	ForConnect Trigger = iota // an app wants the peer
	ForLoss                   // no carrier lives, or the address of the one in use is gone
	ForDoubt                  // none can be trusted
	ForWakeUp                 // the machine slept: none was heard of since
	ForPath                   // interfaces or addresses changed
	ForUpgrade                // a better class answered
	ForDrain                  // the relay in use goes
	ForRemoval                // the route in use is no longer configured, or not allowed by a pin
	ForUser                   // a pin
)

var triggerNames = [...]string{"connect", "loss", "doubt", "wake-up", "path change", "upgrade", "drain", "removal", "user"}

// String is the trigger as shown in traces.
func (t Trigger) String() string { return nameOf(triggerNames[:], int(t), "trigger") }

// RoamAction is one decision of a Roam: StartRace, JoinRace, TryAgain,
// DialStandby, Check, Prove, Switch, KeepStandby, Release, Drop or Remember.
// String tells it with its reason and the values that rests on.
type RoamAction interface {
	fmt.Stringer
	roams()
}

// StartRace begins a race; none runs. It is answered by RaceEnded.
type StartRace struct {
	Trigger   Trigger
	Plan      []Ranked
	AllAtOnce bool
	Replace   bool // a carrier works and is to be left alone until Roam says otherwise
	Why       string
}

// JoinRace brings a new ranking into the race that runs: Joined. A race among
// better routes alone becomes one among all.
type JoinRace struct {
	Plan []Ranked
	Why  string
}

// TryAgain has the race that runs dial routes again that found no route: Again.
type TryAgain struct {
	Routes []Route
	Why    string
}

// DialStandby dials one route outside of any race and attaches it as a standby.
// Roam has taken it from the budget. It is answered by DialEnded.
type DialStandby struct {
	Route Route
	Why   string
}

// Check proves that the peer is behind routes, without attaching anything. Each
// route is answered by one CheckEnded, at the latest CheckLate from now; Roam has
// taken them from the budget.
type Check struct {
	Routes []Route
	Why    string
}

// Prove asks the peer for an answer on a carrier. It may be answered by Proved.
type Prove struct {
	ID     uint64
	Within time.Duration // no answer in that time counts as none
	Why    string
}

// Switch moves the link to a carrier that is attached. It is answered by
// SwitchEnded; until then nothing else is switched to.
type Switch struct {
	ID      uint64
	Route   Route
	Planned bool // the one in use works: prove first that large segments pass
	Why     string
}

// KeepStandby keeps a carrier beside the one in use.
type KeepStandby struct {
	ID    uint64
	Route Route
	Why   string
}

// Release lets the link close a carrier once it is done with it.
type Release struct {
	ID    uint64
	Route Route
	Why   string
}

// Drop closes a carrier now.
type Drop struct {
	ID    uint64
	Route Route
	Why   string
}

// Remember says that Roam.Facts.Memory has changed and is to be stored; on an
// unknown network only this Roam knows it.
type Remember struct {
	Network Network
	RouteID string
	Penalty Penalty
	Why     string
}

func (StartRace) roams()   {}
func (JoinRace) roams()    {}
func (TryAgain) roams()    {}
func (DialStandby) roams() {}
func (Check) roams()       {}
func (Prove) roams()       {}
func (Switch) roams()      {}
func (KeepStandby) roams() {}
func (Release) roams()     {}
func (Drop) roams()        {}
func (Remember) roams()    {}

func (a StartRace) String() string {
	how := "staggered"
	if a.AllAtOnce {
		how = "all at once"
	}
	if a.Replace {
		how += ", the carrier in use stays"
	}
	return fmt.Sprintf("race for %s, %s: %s  (%s)", a.Trigger, how, routeIDs(a.Plan), a.Why)
}

func (a JoinRace) String() string { return fmt.Sprintf("join: %s  (%s)", routeIDs(a.Plan), a.Why) }

func (a TryAgain) String() string { return fmt.Sprintf("try again: %s  (%s)", a.Routes, a.Why) }

func (a DialStandby) String() string {
	return fmt.Sprintf("dial for a standby: %s  (%s)", a.Route, a.Why)
}

func (a Check) String() string { return fmt.Sprintf("check: %s  (%s)", a.Routes, a.Why) }

func (a Prove) String() string {
	return fmt.Sprintf("prove #%d within %s  (%s)", a.ID, a.Within, a.Why)
}

func (a Switch) String() string {
	how := "switch"
	if a.Planned {
		how = "switch as planned"
	}
	return fmt.Sprintf("%s to #%d %s  (%s)", how, a.ID, a.Route, a.Why)
}

func (a KeepStandby) String() string {
	return fmt.Sprintf("keep #%d %s as standby  (%s)", a.ID, a.Route, a.Why)
}

func (a Release) String() string { return fmt.Sprintf("release #%d %s  (%s)", a.ID, a.Route, a.Why) }

func (a Drop) String() string { return fmt.Sprintf("drop #%d %s  (%s)", a.ID, a.Route, a.Why) }

func (a Remember) String() string {
	return fmt.Sprintf("remember of %s on %s: rung %d  (%s)", a.RouteID, a.Network, a.Penalty.Step, a.Why)
}

func routeIDs(plan []Ranked) []string {
	ids := make([]string, len(plan))
	for i, e := range plan {
		ids[i] = e.Route.ID()
	}
	return ids
}
