package link

import (
	"errors"
	"fmt"

	"linkproxy/link/core"
)

// Code says why a stream, a carrier, an attach or a link was refused or ended. Codes travel on the wire.
type Code uint32

// Codes of REFUSED, RESET and STOP.
const (
	CodeNone        Code = 0
	CodeRefused     Code = 1 // the target's machine refused the connection
	CodeUnreachable Code = 2 // no route to the target from the peer
	CodeNotFound    Code = 3 // the target's name does not resolve at the peer
	CodeNotAllowed  Code = 4 // the peer's allow rules do not cover the target
	CodeTimeout     Code = 5 // the target did not answer in time
	CodeBusy        Code = 6 // a bound was reached at the peer
	CodeCancelled   Code = 7 // the app gave up before the target answered
	CodeAborted     Code = 8 // the app's or the target's connection was reset
	CodeHold        Code = core.CodeHold
)

// Codes of ATTACH_NO, CLOSE and BYE.
const (
	CodeUnknown    Code = 32 // the host does not know this link
	CodeSuperseded Code = 33 // a newer process of the same client took over
	CodeStale      Code = 34 // the generation was used or left out by a keep
	CodeDenied     Code = 35 // the link belongs to another key
	CodeTooMany    Code = 36 // too many links of this key
	CodeUnpaired   Code = 37 // this key is not paired with the host
	CodeVersion    Code = 38 // no common version
	CodeProtocol   Code = 39 // the protocol was broken
	CodeRevoked    Code = 40 // the pairing was revoked
	CodeDropped    Code = 41 // the host's operator dropped the link
	CodeShutdown   Code = 42 // the process ends
	CodeReplaced   Code = 43 // the carrier is no longer needed
	CodeGivenUp    Code = 44 // the client gave the link up
)

var codeWords = map[Code]string{
	CodeRefused: "refused", CodeUnreachable: "unreachable", CodeNotFound: "not_found", CodeNotAllowed: "not_allowed",
	CodeTimeout: "timeout", CodeBusy: "busy", CodeCancelled: "cancelled", CodeAborted: "aborted", CodeHold: "hold",
	CodeUnknown: "unknown", CodeSuperseded: "superseded", CodeStale: "stale", CodeDenied: "denied", CodeTooMany: "busy",
	CodeUnpaired: "unpaired", CodeVersion: "version", CodeProtocol: "protocol", CodeRevoked: "revoked",
	CodeDropped: "dropped", CodeShutdown: "shutdown", CodeReplaced: "replaced", CodeGivenUp: "given_up",
}

// String is the code's word, as docs/wire.md lists it.
func (c Code) String() string {
	if w, ok := codeWords[c]; ok {
		return w
	}
	return fmt.Sprintf("code_%d", uint32(c))
}

// Errors of links and streams.
var (
	ErrClosed     = errors.New("link: closed")
	ErrHoldOver   = reasoned(core.ErrHoldOver.Error(), "lost")
	ErrProtocol   = core.ErrProtocol
	ErrReset      = core.ErrReset
	ErrTooMany    = reasoned("link: too many streams at a time to this peer", "busy")
	ErrUnknown    = reasoned("link: the peer no longer knows this session: it was restarted, or held it no longer", "lost")
	ErrSuperseded = reasoned("link: a newer linkproxy with this machine's state took over", "superseded")
)

// reasonError is an error that has its class as a word, as an app's side wants it.
type reasonError struct{ text, reason string }

func reasoned(text, reason string) error { return &reasonError{text, reason} }

func (e *reasonError) Error() string  { return e.text }
func (e *reasonError) Reason() string { return e.reason }

// RefusedError tells that the peer would not or could not reach the target.
type RefusedError struct {
	Target string
	Code   Code
}

// Error is one sentence; Reason is its class as a word.
func (e *RefusedError) Error() string {
	say := map[Code]string{
		CodeRefused:     "the peer reached the machine, but nothing listens on %s",
		CodeUnreachable: "the peer has no route to %s",
		CodeNotFound:    "the peer cannot resolve the name in %s",
		CodeNotAllowed:  "the peer's allow rules do not cover %s: add it there to allow under [host] in the config",
		CodeTimeout:     "%s did not answer the peer in time",
		CodeBusy:        "the peer has too many connections to open %s now",
	}[e.Code]
	if say == "" {
		return fmt.Sprintf("link: opening %s: %s", e.Target, e.Code)
	}
	return "link: " + fmt.Sprintf(say, e.Target)
}

// Reason is the class of the failure as a word.
func (e *RefusedError) Reason() string { return e.Code.String() }

// AttachError tells that the other side answered, with the right key, but would not attach the carrier.
type AttachError struct {
	Code     Code
	Instance [16]byte // the host process that said so, with its boot
	Boot     uint64
}

func (e *AttachError) Error() string {
	switch e.Code {
	case CodeUnpaired:
		return "link: the peer does not know this machine's key: pair again with a new invite from it, or ask whether it was revoked"
	case CodeVersion:
		return "link: the peer speaks no version of the protocol that this linkproxy knows: update the older one"
	case CodeTooMany:
		return "link: the peer holds too many sessions of this machine"
	}
	return "link: the peer refused to attach: " + e.Code.String()
}

// EndError tells that the other side ended the link.
type EndError struct{ Code Code }

func (e *EndError) Error() string {
	switch e.Code {
	case CodeRevoked:
		return "link: the peer has revoked this machine's pairing"
	case CodeDropped:
		return "link: the peer's operator dropped this session"
	case CodeShutdown:
		return "link: linkproxy on the peer has ended"
	case CodeGivenUp:
		return "link: the client has given this session up"
	}
	return "link: ended by the peer: " + e.Code.String()
}

// Reason is the class of the end as a word.
func (e *EndError) Reason() string {
	if e.Code == CodeRevoked {
		return "blocked"
	}
	return "lost"
}

// ResetError is what reading or writing a stream returns after the peer has reset it.
type ResetError struct{ Code Code }

func (e *ResetError) Error() string { return "link: stream reset by the peer: " + e.Code.String() }

// Reason is the class of the end as a word.
func (e *ResetError) Reason() string { return "lost" }

// Is makes a ResetError match ErrReset.
func (e *ResetError) Is(target error) bool { return target == ErrReset }

// IdentityError tells that the machine that answered is not the peer.
type IdentityError struct{ Want, Got string }

func (e *IdentityError) Error() string {
	return fmt.Sprintf("link: another key answered: %s instead of %s", e.Got, e.Want)
}
