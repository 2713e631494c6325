package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestOutcomes(t *testing.T) {
	for reason, want := range map[string]Outcome{
		ReasonRefused:     {5, 502, "connection_refused", 10},
		ReasonUnreachable: {4, 502, "destination_ip_unroutable", 11},
		ReasonNotFound:    {4, 502, "dns_error", 12},
		ReasonNotAllowed:  {2, 403, "destination_ip_prohibited", 13},
		ReasonTimeout:     {6, 504, "connection_timeout", 14},
		ReasonBusy:        {1, 503, "connection_limit_reached", 15},
		ReasonUnknownPeer: {4, 502, "destination_not_found", 16},
		ReasonNoRoute:     {4, 504, "destination_unavailable", 17},
		ReasonLost:        {1, 502, "connection_terminated", 18},
		ReasonSuperseded:  {1, 502, "connection_terminated", 19},
		ReasonBlocked:     {2, 403, "http_request_denied", 13},
	} {
		err := fmt.Errorf("dialer: %w", &reasonError{reason, "text"})
		if got := OutcomeOf(err); got != want || ExitCode(err) != want.Exit {
			t.Errorf("%s: %+v, want %+v", reason, got, want)
		}
	}
	if len(outcomes) != 13 {
		t.Errorf("%d outcomes: one is untested", len(outcomes))
	}
	if ExitCode(nil) != 0 {
		t.Error("nil is clean")
	}
}

func TestReasonOfSystemErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, ReasonRefused},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, ReasonUnreachable},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}, reasonNetwork},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, ReasonBusy},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, ReasonLost},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, ReasonNotFound},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, ReasonTimeout},
		{context.DeadlineExceeded, ReasonTimeout},
		{os.ErrDeadlineExceeded, ReasonTimeout},
		{&reasonError{"something new", "x"}, reasonOther},
		{errors.New("refused"), reasonOther},
		{io.ErrUnexpectedEOF, ReasonLost},
		{io.EOF, ReasonLost},
		{&InvalidTargetError{"x", "y"}, ReasonNotFound},
	} {
		if got := Reason(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
	}
}

func TestCheckTarget(t *testing.T) {
	for _, tc := range []struct {
		host string
		port int
		want string
	}{
		{"devbox", 22, "devbox:22"},
		{"Dev-Box_1.example.", 65535, "Dev-Box_1.example.:65535"},
		{"bücher.example", 80, "bücher.example:80"},
		{"::1", 1, "[::1]:1"},
		{"[::1]", 1, "[::1]:1"},
		{"fe80::1%eth0", 1, "[fe80::1%eth0]:1"},
		{"127.0.0.1", 1, "127.0.0.1:1"},
		{"", 1, ""},
		{".", 1, ""},
		{"[]", 1, ""},
		{"a b", 1, ""},
		{"a\x00", 1, ""},
		{"a\n", 1, ""},
		{"a/b", 1, ""},
		{"user@a", 1, ""},
		{"a:1", 1, ""},
		{"\xff", 1, ""},
		{"a", 0, ""},
		{"a", 65536, ""},
	} {
		got, err := checkTarget(tc.host, tc.port)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q %d: %q %v, want %q", tc.host, tc.port, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		in          string
		defaultPort int
		want        string
	}{
		{"devbox:22", 0, "devbox:22"},
		{"devbox", 80, "devbox:80"},
		{"devbox:", 80, "devbox:80"},
		{"[::1]", 80, "[::1]:80"},
		{"[::1]:8080", 80, "[::1]:8080"},
		{"devbox", 0, ""},
		{"devbox:", 0, ""},
		{"devbox:x", 80, ""},
		{"devbox:+1", 80, ""},
		{"devbox:99999", 80, ""},
	} {
		got, err := splitTarget(tc.in, tc.defaultPort)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: %q %v, want %q", tc.in, got, err, tc.want)
		}
	}
}
