package dialer

import (
	"errors"
	"fmt"
	"strings"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// ErrClosed is what everything ends with after Close.
var ErrClosed = errors.New("dialer: closed")

// Reasons of an Error, as the app's side knows them.
const (
	reasonUnknownPeer = "unknown_peer"
	reasonNoRoute     = "no_route"
	reasonBusy        = "busy"
	reasonBlocked     = "blocked"
	reasonLost        = "lost"
	reasonSuperseded  = "superseded"
	reasonRefused     = "refused"
	reasonNotAllowed  = "not_allowed"
)

// Error tells why a peer could not be reached, or why a stream to it ended.
type Error struct {
	Peer string
	// Attempts are the routes of the last race, in its order, each with its stage, time and cause.
	Attempts []route.Attempt
	// Next is what the user can do about it; empty: nothing.
	Next string
	// Hint says that a hint about names and firewalls belongs beside it.
	Hint bool

	text   string
	reason string
	cause  error // besides those of the attempts
}

// Error is one sentence for the user, with the next step behind a semicolon.
func (e *Error) Error() string {
	if e.Next == "" {
		return "dialer: " + e.text
	}
	return fmt.Sprintf("dialer: %s; %s", e.text, e.Next)
}

// Reason is the class of the failure as a word.
func (e *Error) Reason() string { return e.reason }

// Unwrap gives the causes: one for each attempt that has one.
func (e *Error) Unwrap() []error {
	var list []error
	if e.cause != nil {
		list = append(list, e.cause)
	}
	for _, a := range e.Attempts {
		if a.Err != nil {
			list = append(list, a.Err)
		}
	}
	return list
}

func unknownPeer(name string, known []string) error {
	e := &Error{Peer: name, reason: reasonUnknownPeer, text: fmt.Sprintf("no peer is named %s", name)}
	if len(known) == 0 {
		e.Next = "no peer is configured yet: run `linkproxy host invite` there and `linkproxy pair` here"
	} else {
		e.Next = "the peers are: " + strings.Join(known, ", ")
	}
	return e
}

// raceError is what a race that failed tells.
func raceError(peer string, attempts []route.Attempt, before string) *Error {
	m := route.Describe(peer, attempts)
	return &Error{
		Peer: peer, Attempts: attempts, Next: m.Next, Hint: m.Hint,
		text: before + m.Text, reason: reasonOf(attempts),
	}
}

// reasonOf is the class of the most telling attempt, in route.Describe's order.
func reasonOf(attempts []route.Attempt) string {
	var answered, busy, blocked bool
	for _, a := range attempts {
		switch a.Outcome {
		case route.Superseded:
			return reasonSuperseded
		case route.Blocked:
			blocked = true
		case route.Busy:
			busy = true
		case route.Failed, route.Silent, route.Unfinished:
			answered = answered || a.Answered()
		}
	}
	switch {
	case answered:
		return reasonNoRoute
	case busy:
		return reasonBusy
	case blocked:
		return reasonBlocked
	}
	return reasonNoRoute
}

// endError tells that a link has ended, and with it every stream it carried.
func endError(peer string, err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	e := &Error{Peer: peer, reason: reasonLost, cause: err, text: fmt.Sprintf("the connection to %s has ended: %v", peer, err)}
	var classed interface{ Reason() string }
	if errors.As(err, &classed) {
		e.reason = classed.Reason()
	}
	switch {
	case errors.Is(err, link.ErrSuperseded):
		return supersededError(peer)
	case e.reason == reasonBlocked:
		e.Next = fmt.Sprintf("ask for a new invite from %s and pair again", peer)
	case errors.Is(err, link.ErrClosed):
		e.cause, e.text = errors.Join(ErrClosed, err), "linkproxy is stopping"
	case errors.Is(err, link.ErrHoldOver):
		e.Next = "set a longer hold for it in the config if such outages are usual"
	default:
		e.Next = "connect again"
	}
	return e
}

func supersededError(peer string) *Error {
	m := route.Describe(peer, []route.Attempt{{Outcome: route.Superseded}})
	return &Error{Peer: peer, reason: reasonSuperseded, cause: link.ErrSuperseded, text: m.Text, Next: m.Next}
}

func removedError(peer string) *Error {
	return &Error{
		Peer: peer, reason: reasonUnknownPeer,
		text: fmt.Sprintf("%s was removed from the config, or has another key there", peer),
	}
}

// openError is why a stream could not be opened.
func openError(peer, target string, err error) error {
	var refused *link.RefusedError
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &refused):
		return fmt.Errorf("dialer: opening %s on %s: %w", target, peer, err)
	case errors.Is(err, link.ErrTooMany):
		return &Error{
			Peer: peer, reason: reasonBusy, cause: err,
			text: fmt.Sprintf("too many connections to %s are open", peer), Next: "close some of them",
		}
	}
	var reset *link.ResetError
	if errors.As(err, &reset) {
		return &Error{Peer: peer, reason: reasonLost, cause: err, text: fmt.Sprintf("%s gave up opening %s: %s", peer, target, reset.Code)}
	}
	return endError(peer, err)
}
