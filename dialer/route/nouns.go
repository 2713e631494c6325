package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Class says what kind of way a route is. Classes are ordered: the smaller one
// is preferred. The zero Class is none.
type Class uint8

// The classes, best first.
const (
	LAN     Class = iota + 1 // private, link-local, loopback, *.local
	Tailnet                  // an overlay network's address or name
	Direct                   // a public or otherwise configured address
	Relay                    // through a relay, by its ws or wss URL
)

var classNames = [...]string{"none", "lan", "tailnet", "direct", "relay"}

// String is the class as it is written in the config and in every output.
func (c Class) String() string { return nameOf(classNames[:], int(c), "class") }

// ParseClass reads a class as String writes it, in any case.
func ParseClass(text string) (Class, error) {
	for c := LAN; c <= Relay; c++ {
		if strings.EqualFold(text, c.String()) {
			return c, nil
		}
	}
	return 0, fmt.Errorf("%w: class %q is none of lan, tailnet, direct, relay", ErrBadRoute, text)
}

// Source says where a route was learned.
type Source string

// The sources. Only configured routes are taken as they are; see Vetting.
const (
	Configured Source = "configured" // written in the config file, by hand or by pairing
	Learned    Source = "learned"    // told by the peer itself over an authenticated link
	MDNS       Source = "mdns"       // heard on a local network
	TailnetAPI Source = "tailnet"    // told by the tailnet's daemon on this machine
)

// discovered reports whether anybody on a network could have said it.
func (s Source) discovered() bool { return s != Configured && s != Learned }

// Route is one way to reach a peer. Class and Address make its identity: the
// same address learned twice is one route.
type Route struct {
	Class   Class
	Address string // host:port, the host a name or a numeric address; of a relay its ws or wss URL
	Source  Source
}

// ID is the route's stable name, "lan:192.168.1.20:7000": in the config, in
// memory, in output.
func (r Route) ID() string { return r.Class.String() + ":" + r.Address }

// String is ID.
func (r Route) String() string { return r.ID() }

// host is the address without its port; of a relay it means nothing.
func (r Route) host() string {
	host, _, _ := splitPort(r.Address) // canonical: there is no error
	return host
}

// numeric reports whether the address needs no resolver.
func (r Route) numeric() bool {
	_, err := netip.ParseAddr(r.host())
	return err == nil
}

// Same reports whether both are the same way, wherever each was learned.
func (r Route) Same(o Route) bool { return r.Class == o.Class && r.Address == o.Address }

// Stage is how far an attempt came.
type Stage uint8

// The stages, in their order.
const (
	Open      Stage = iota // until the socket is open
	Handshake              // until both sides are authenticated
	Attach                 // until the host accepted the carrier into the link
)

var stageNames = [...]string{"open", "handshake", "attach"}

// String is the stage as shown in traces.
func (s Stage) String() string { return nameOf(stageNames[:], int(s), "stage") }

// Outcome is what became of a route in one race.
type Outcome uint8

// The outcomes. NotTried and Running are no ends; from Won on each is the one
// end of an attempt.
const (
	NotTried   Outcome = iota // in the plan, but its turn never came
	Running                   // dialled, not yet ended
	Won                       // authenticated and attached first
	Kept                      // attached just after the winner and of a better class: the standby
	Failed                    // refused, reset or closed by the path or the peer
	Silent                    // a limit of this attempt passed without an answer
	WrongPeer                 // another key answered
	Foreign                   // what answered shows a certificate that is no linkproxy's, or no relay's
	Blocked                   // the peer refuses for good: permission, version
	NoToken                   // the relay wants a token: none, refused or expired
	Busy                      // the peer refuses for now
	Superseded                // a newer instance of this machine holds the link
	NoRoute                   // the local stack refused to dial: no route, no address
	Unfinished                // still running when the race's time was over
	Lost                      // still running when another one had won
	Cancelled                 // stopped because nobody wants the race any more
)

var outcomeNames = [...]string{
	"not tried", "running", "won", "kept", "failed", "silent", "wrong peer",
	"foreign certificate", "blocked", "no token", "busy", "superseded", "no route", "unfinished", "lost", "cancelled",
}

// String is the outcome as shown in traces.
func (o Outcome) String() string { return nameOf(outcomeNames[:], int(o), "outcome") }

// FairTry is the least time an attempt must have had for being Unfinished to
// count against its route: below it the race's end came too early to tell.
const FairTry = 5 * time.Second

// Attempt is the record of one route in one race, for errors and for `why`.
type Attempt struct {
	Route    Route
	Outcome  Outcome
	Stage    Stage         // reached when it ended
	Start    time.Time     // zero when it was not tried
	Duration time.Duration // from Start to the end
	Local    netip.Addr    // the socket's own address, once it has one
	Err      error         // the cause, where there is one
}

// IsFailure reports whether the attempt speaks against its route. What this
// machine, the user or a better route decided does not, nor does a peer that
// answered and said no.
func (a Attempt) IsFailure() bool {
	switch a.Outcome {
	case Failed, Silent, WrongPeer, Foreign:
		return true
	case Unfinished:
		return a.Duration >= FairTry
	default:
		return false
	}
}

// Answered reports whether something at the route's address took the
// connection.
func (a Attempt) Answered() bool { return a.Stage > Open }

// Captive reports whether attempts met a network that wants a sign-in first:
// every route that answered, or a relay, shows a certificate of somebody else.
// That says nothing about any route.
func Captive(attempts []Attempt) bool {
	foreign, others, relay := 0, 0, false
	for _, a := range attempts {
		switch {
		case a.Outcome == Foreign:
			foreign++
			relay = relay || a.Route.Class == Relay
		case a.Outcome == Won, a.Outcome == Kept:
			return false
		case a.Answered():
			others++
		}
	}
	return foreign > 0 && (relay || others == 0)
}

// failedIn reports whether attempts speak against a route.
func failedIn(attempts []Attempt, routeID string) bool {
	return !Captive(attempts) && slices.ContainsFunc(attempts, func(a Attempt) bool {
		return a.Route.ID() == routeID && a.IsFailure()
	})
}

// String is one line for `why`: "lan:192.168.1.20:7000 failed in open after
// 31ms: connection refused".
func (a Attempt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", a.Route, a.Outcome)
	if !a.Start.IsZero() {
		if a.Outcome != Won && a.Outcome != Kept {
			fmt.Fprintf(&b, " in %s", a.Stage)
		}
		fmt.Fprintf(&b, " after %s", a.Duration)
	}
	if a.Err != nil {
		fmt.Fprintf(&b, ": %v", a.Err)
	}
	return b.String()
}

// Why a route was not tried, or not to the end.
var (
	ErrVanished    = errors.New("this machine lost the address that it came from")
	ErrRaceOver    = errors.New("the race ended before its turn")
	ErrBudgetSpent = errors.New("too many dials to this peer lately")
)

// nameOf keeps String total: a value out of range is shown, not a panic.
func nameOf(names []string, i int, kind string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s %d", kind, i)
}
