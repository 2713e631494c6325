package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Message is what the user is told after a race that failed.
type Message struct {
	Text string // one sentence, without a full stop
	Next string // what to do, likewise; empty when there is nothing
	Hint bool   // a hint about DNS and firewalls belongs beside it
}

// Describe says why peer could not be reached, from the attempts of a race. The
// most telling route leads: one that answered and failed, then one that refuses
// for good, then one where somebody else answered, then those that could not be
// reached; so that a fixable refusal never hides behind a dead route's timeout.
func Describe(peer string, attempts []Attempt) Message {
	if len(attempts) == 0 {
		return Message{
			Text: fmt.Sprintf("no route to %s is configured", peer),
			Next: fmt.Sprintf("pair with it again, or add its address to its routes in the config: routes = [\"lan:ADDRESS\"] under the [[peer]] named %s", peer),
		}
	}
	// A race that was given up says nothing about what it had not tried yet.
	givenUp := slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Outcome == Cancelled && a.Err == nil })
	told := slices.DeleteFunc(slices.Clone(attempts), func(a Attempt) bool {
		return a.finding() == nothing || givenUp && a.Outcome == NotTried
	})
	if len(told) == 0 {
		m := Message{Text: fmt.Sprintf("the attempt to reach %s was given up", peer)}
		if i := slices.IndexFunc(attempts, func(a Attempt) bool { return errors.Is(a.Err, ErrVanished) }); i >= 0 {
			m.Text, m.Next = fmt.Sprintf("could not reach %s: %v", peer, attempts[i].Err), "it is tried again by another way"
		}
		return m
	}
	if Captive(attempts) {
		return Message{
			Text: fmt.Sprintf("this network wants a sign-in before it lets anything through to %s", peer),
			Next: "open any web page and sign in; it is tried again every " + CaptiveWait.String() + " meanwhile",
		}
	}
	slices.SortStableFunc(told, func(a, b Attempt) int { return int(a.finding()) - int(b.finding()) })
	lead := told[0]
	f := lead.finding()
	if timedOut(told) && (f == unreachable || lead.Outcome == Unfinished) {
		return Message{
			Text: fmt.Sprintf("no answer from %s during set-up: %s", peer, causes(told)),
			Next: f.next(peer), Hint: true,
		}
	}
	m := Message{Text: lead.say(peer), Next: f.next(peer), Hint: f == unreachable && lead.Outcome != NotTried}
	if f == unreachable && len(told) > 1 {
		m.Text = fmt.Sprintf("none of %d routes to %s answered: %s", len(told), peer, causes(told))
		m.Hint = false
		return m
	}
	others := slices.DeleteFunc(told[1:], func(a Attempt) bool { return a.Outcome == NotTried })
	if len(others) > 0 {
		m.Text += fmt.Sprintf(" (also tried: %s)", causes(others))
	}
	return m
}

// timedOut reports whether the whole set-up ran out of time with a relay among
// its routes: what blocks a relay is mostly the network in between.
func timedOut(attempts []Attempt) bool {
	return slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Outcome == Unfinished }) &&
		slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Route.Class == Relay && a.Outcome != NotTried })
}

// finding sorts attempts for the report; the smaller is told first.
type finding uint8

const (
	superseded  finding = iota // ends the matter for every route
	answered                   // it answered, then failed: may work next time
	blocked                    // it refuses until somebody acts
	noToken                    // a relay does, until its token is right
	wrongPeer                  // somebody else answered
	unreachable                // nobody answered
	nothing                    // says nothing about the route
)

func (a Attempt) finding() finding {
	switch a.Outcome {
	case Failed, Silent, Unfinished:
		if a.Answered() {
			return answered
		}
		return unreachable
	case NoRoute, NotTried:
		return unreachable
	case Busy:
		return answered
	case Blocked:
		return blocked
	case NoToken:
		return noToken
	case WrongPeer, Foreign:
		return wrongPeer
	case Superseded:
		return superseded
	default:
		return nothing
	}
}

// next is what the user can do about it.
func (f finding) next(peer string) string {
	switch f {
	case superseded:
		return "end the other linkproxy that uses this machine's state folder, then restart this one"
	case answered:
		return fmt.Sprintf("it is tried again; if it stays so, look at what `linkproxy host` prints on %s", peer)
	case blocked:
		return fmt.Sprintf("only %s can let this machine in", peer) // its answer says how: another pairing, or another version
	case noToken:
		return "sign in again, or correct what the config says about that relay's token"
	case wrongPeer:
		return fmt.Sprintf("correct the address in the config; if %s has a new key, pair with it again", peer)
	default:
		return fmt.Sprintf("see that `linkproxy host` runs on %s and that this machine is on a network that reaches it", peer)
	}
}

// say is the sentence for one attempt when it leads.
func (a Attempt) say(peer string) string {
	address := a.Route.Address
	switch a.Outcome {
	case WrongPeer:
		return fmt.Sprintf("%s is not %s: another key answered", address, peer)
	case Foreign:
		return fmt.Sprintf("%s is not %s: it shows somebody else's certificate", address, peer)
	case NoToken:
		return fmt.Sprintf("could not reach %s: the relay %s wants a token: %s", peer, address, a.cause())
	case Blocked:
		return fmt.Sprintf("%s does not let this machine in: %s", peer, a.cause())
	case Busy:
		return fmt.Sprintf("%s is busy: %s", peer, a.cause())
	case Superseded:
		return fmt.Sprintf("%s now serves a newer linkproxy of this machine", peer)
	}
	switch {
	case !a.Answered():
		return fmt.Sprintf("could not reach %s at %s: %s", peer, address, a.cause())
	case a.Outcome == Failed:
		return fmt.Sprintf("%s disconnected at %s: %s", peer, address, a.cause())
	default:
		return fmt.Sprintf("%s is not responding at %s: %s", peer, address, a.cause())
	}
}

// cause is the attempt's own error, or what its outcome means.
func (a Attempt) cause() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	switch a.Outcome {
	case Silent, Unfinished:
		return fmt.Sprintf("no answer within %s", a.Duration)
	case WrongPeer:
		return "another key answered"
	case Foreign:
		return "a certificate of somebody else"
	case NoToken:
		return "no token, or it was refused or has expired"
	case NoRoute:
		return "this machine has no route there"
	case Failed:
		return "closed during set-up"
	default:
		return a.Outcome.String()
	}
}

// causes lists routes with their causes.
func causes(attempts []Attempt) string {
	parts := make([]string, len(attempts))
	for i, a := range attempts {
		parts[i] = fmt.Sprintf("%s: %s", a.Route, a.cause())
	}
	return strings.Join(parts, "; ")
}
