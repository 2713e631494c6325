package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
)

// Reasons an error of a DialFunc may give by its Reason method.
const (
	ReasonRefused     = "refused"      // the target's machine refused
	ReasonUnreachable = "unreachable"  // the target's machine cannot be reached from the peer
	ReasonNotFound    = "not_found"    // the target's name is unknown
	ReasonNotAllowed  = "not_allowed"  // the peer does not allow that target
	ReasonTimeout     = "timeout"      // no answer in time
	ReasonBusy        = "busy"         // a bound was met; later it may work
	ReasonUnknownPeer = "unknown_peer" // no such peer
	ReasonNoRoute     = "no_route"     // no route to the peer works now
	ReasonLost        = "lost"         // the connection broke and could not be kept
	ReasonSuperseded  = "superseded"   // another process took this one's place
	ReasonBlocked     = "blocked"      // this machine's own rules forbid it
	reasonNetwork     = "network"      // this machine has no network for that address
	reasonOther       = "other"
)

// SOCKS5 reply codes, RFC 1928 section 6.
const (
	socksFailure     = 1
	socksNotAllowed  = 2
	socksNetwork     = 3
	socksHost        = 4
	socksRefused     = 5
	socksTTL         = 6
	socksCommand     = 7
	socksAddressType = 8
)

// Exit codes of a command that carries stdio. 0: the far end closed cleanly; 1: anything else; 2 is left to usage errors.
const (
	ExitClean       = 0
	ExitOther       = 1
	ExitRefused     = 10
	ExitUnreachable = 11
	ExitNotFound    = 12
	ExitNotAllowed  = 13
	ExitTimeout     = 14
	ExitBusy        = 15
	ExitUnknownPeer = 16
	ExitNoRoute     = 17
	ExitLost        = 18
	ExitSuperseded  = 19
)

// Outcome is how one reason is told in each protocol.
type Outcome struct {
	SOCKS  byte   // RFC 1928 section 6
	Status int    // HTTP status
	Proxy  string // error type of Proxy-Status, RFC 9209 section 2.3
	Exit   int    // exit code of a command that carries stdio
}

// outcomes is the whole mapping. SOCKS 6 (TTL expired) is what other proxies say for a time-out, and clients print it as
// one. SOCKS 3 is kept for "this machine has no network", as 4 speaks of the host asked for. A missing route is a 504: the
// app may try again, and a 502 would say that the other machine had answered.
var outcomes = map[string]Outcome{
	ReasonRefused:     {socksRefused, http.StatusBadGateway, "connection_refused", ExitRefused},
	ReasonUnreachable: {socksHost, http.StatusBadGateway, "destination_ip_unroutable", ExitUnreachable},
	ReasonNotFound:    {socksHost, http.StatusBadGateway, "dns_error", ExitNotFound},
	ReasonNotAllowed:  {socksNotAllowed, http.StatusForbidden, "destination_ip_prohibited", ExitNotAllowed},
	ReasonTimeout:     {socksTTL, http.StatusGatewayTimeout, "connection_timeout", ExitTimeout},
	ReasonBusy:        {socksFailure, http.StatusServiceUnavailable, "connection_limit_reached", ExitBusy},
	ReasonUnknownPeer: {socksHost, http.StatusBadGateway, "destination_not_found", ExitUnknownPeer},
	ReasonNoRoute:     {socksHost, http.StatusGatewayTimeout, "destination_unavailable", ExitNoRoute},
	ReasonLost:        {socksFailure, http.StatusBadGateway, "connection_terminated", ExitLost},
	ReasonSuperseded:  {socksFailure, http.StatusBadGateway, "connection_terminated", ExitSuperseded},
	ReasonBlocked:     {socksNotAllowed, http.StatusForbidden, "http_request_denied", ExitNotAllowed},
	reasonNetwork:     {socksNetwork, http.StatusBadGateway, "destination_ip_unroutable", ExitUnreachable},
	reasonOther:       {socksFailure, http.StatusBadGateway, "proxy_internal_error", ExitOther},
}

// Reason is the class of a failed dial or a broken connection: what err itself says, else what the system said.
func Reason(err error) string {
	var r interface{ Reason() string }
	if errors.As(err, &r) {
		if _, known := outcomes[r.Reason()]; known {
			return r.Reason()
		}
		return reasonOther
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && !dns.IsTimeout:
		return ReasonNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return ReasonTimeout
	case isErrno(err, errnoBusy):
		return ReasonBusy
	case isErrno(err, errnoRefused):
		return ReasonRefused
	case isErrno(err, errnoHost):
		return ReasonUnreachable
	case isErrno(err, errnoNetwork):
		return reasonNetwork
	case isErrno(err, errnoReset), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ReasonLost
	}
	return reasonOther
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func isErrno(err error, list []error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// OutcomeOf says how err is told to an app.
func OutcomeOf(err error) Outcome { return outcomes[Reason(err)] }

// ExitCode is what a command that carried stdio exits with: 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return ExitClean
	}
	return OutcomeOf(err).Exit
}

// isAppGone reports whether there is nobody left to tell err to.
func isAppGone(err error) bool { return errors.Is(err, errAppLeft) || errors.Is(err, net.ErrClosed) }
