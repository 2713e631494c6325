package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	// targetTimeout bounds a dial: an app waits for its answer meanwhile, and a kernel would try for minutes.
	targetTimeout = 10 * time.Second
	// attemptDelay is how long an attempt has before the next address is tried beside it (RFC 8305 section 5).
	attemptDelay = 250 * time.Millisecond
)

// Dial judges target and connects to the first of its allowed addresses that answers: each 250 ms, or as soon as one has
// failed, the next is tried. It returns the rule that allowed target. Errors are those of [Policy.Judge]; after failed
// attempts they wrap each attempt's.
func (p *Policy) Dial(ctx context.Context, target string) (net.Conn, Rule, error) {
	limit := p.Timeout
	if limit == 0 {
		limit = targetTimeout
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	addrs, rule, err := p.Judge(ctx, target)
	if err != nil {
		return nil, Rule{}, err
	}
	conn, failed := p.race(ctx, interleave(addrs))
	switch {
	case conn != nil:
		return conn, rule, nil
	case cancelled(ctx):
		return nil, Rule{}, fmt.Errorf("host: dialling target %q: %w", target, context.Cause(ctx))
	}
	return nil, Rule{}, attemptsFailed(target, failed)
}

// interleave alternates the address families, the first one's first (RFC 8305 section 4).
func interleave(addrs []netip.AddrPort) []netip.AddrPort {
	var same, other, out []netip.AddrPort
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			same = append(same, a)
		} else {
			other = append(other, a)
		}
	}
	for i := range max(len(same), len(other)) {
		if i < len(same) {
			out = append(out, same[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out
}

// attempt is the outcome of one dial.
type attempt struct {
	addr netip.AddrPort
	conn net.Conn
	err  error
}

// race returns the first connection, or all failures in the order they came. No attempt outlives it.
func (p *Policy) race(ctx context.Context, addrs []netip.AddrPort) (won net.Conn, failed []attempt) {
	if len(addrs) == 1 {
		one := p.connect(ctx, addrs[0])
		if one.err != nil {
			return nil, []attempt{one}
		}
		return one.conn, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan attempt)
	next := time.NewTimer(attemptDelay)
	defer next.Stop()
	running, due := 0, true
	for len(addrs) > 0 || running > 0 {
		if len(addrs) > 0 && due {
			addr := addrs[0]
			go func() { results <- p.connect(ctx, addr) }()
			addrs, due = addrs[1:], false
			running++
			next.Reset(attemptDelay)
		}
		select {
		case <-next.C:
			due = true
		case r := <-results:
			running--
			due = true
			switch {
			case r.err != nil:
				failed = append(failed, r)
			case won != nil:
				r.conn.Close()
			default:
				won = r.conn
				cancel()
			}
			if ctx.Err() != nil {
				addrs = nil
			}
		}
	}
	return won, failed
}

// connect makes one attempt.
func (p *Policy) connect(ctx context.Context, addr netip.AddrPort) attempt {
	dial := p.Connect
	if dial == nil {
		var d net.Dialer
		d.SetMultipathTCP(false) // its sockets refuse options that links and targets rely on
		if addr.Addr().IsLoopback() {
			d.KeepAlive = -1 // who is on this machine cannot vanish without a word
		}
		dial = d.DialContext
	}
	conn, err := dial(ctx, "tcp", addr.String())
	return attempt{addr, conn, err}
}

// attemptsFailed makes one error of all attempts. That this host could not try one at all comes first: that address may be
// well. Then, a refusal says most (the machine is there), a time-out more than no way.
func attemptsFailed(target string, failed []attempt) error {
	advice := map[string]string{
		reasonRefused:     "nothing listens there: start the service or check the port",
		reasonTimeout:     "no answer in time: check the address and firewalls between this host and it",
		reasonUnreachable: "this host has no way there: check the address and this host's network",
		reasonBusy:        outOfFiles,
	}
	var causes []error
	var texts []string
	seen := make(map[string]bool)
	for _, a := range failed {
		seen[classify(a.err)] = true
		causes = append(causes, a.err)
		texts = append(texts, a.err.Error())
	}
	reason := reasonUnreachable
	for _, r := range []string{reasonTimeout, reasonRefused, reasonBusy} {
		if seen[r] {
			reason = r
		}
	}
	return &TargetError{target, errors.Join(causes...), reason, strings.Join(texts, "; ") + "; " + advice[reason]}
}

// outOfFiles says what to do about an exhausted host.
const outOfFiles = "this host is out of files or memory: close connections on it, or raise its limit (ulimit -n)"

// Winsock's numbers, which package syscall does not compare with its own; no other system uses them.
const (
	wsaManyFiles = syscall.Errno(10024)
	wsaNoBuffers = syscall.Errno(10055)
	wsaTimedOut  = syscall.Errno(10060)
	wsaRefused   = syscall.Errno(10061)
)

// exhausted says whether this host has run out of something; the target may be well.
func exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, wsaManyFiles, wsaNoBuffers} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// exhaustedNow asks the system for a file: the errors of a resolver do not say what they came of.
func exhaustedNow() bool {
	f, err := os.Open(os.DevNull)
	if err == nil {
		_ = f.Close() // nothing was written
	}
	return exhausted(err)
}

// classify is the reason of a failed attempt.
func classify(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case exhausted(err):
		return reasonBusy
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, wsaRefused):
		return reasonRefused
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, wsaTimedOut),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	}
	return reasonUnreachable
}
