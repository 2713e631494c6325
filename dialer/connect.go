package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
)

// The numbers of opening a socket.
const (
	// resolveLimit is how long a name may take: a resolver that works answers in tens of milliseconds, its second try
	// included in two seconds.
	resolveLimit = 3 * time.Second
	// addressStep is the head start of one address of a name over the next (RFC 8305 section 8).
	addressStep = 250 * time.Millisecond
	// maxAddresses bounds how many addresses of a name are tried: all fit in the time that one socket has.
	maxAddresses = 8
)

var errResolveTimeout = fmt.Errorf("the name was not resolved within %s", resolveLimit)

// secure opens a connection over a route and proves that the peer is behind it. Reached is told each further stage.
func (d *Dialer) secure(ctx context.Context, id identity.Fingerprint, r route.Route, reached func(route.Stage, netip.Addr)) (*link.Transport, error) {
	conn, err := d.connect(ctx, r.Address)
	if err != nil {
		return nil, err
	}
	local := localOf(conn)
	reached(route.Handshake, local)
	t, err := link.Dial(ctx, conn, d.cfg.Key, id)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	reached(route.Attach, local)
	return t, nil
}

// localOf is a socket's own address; invalid: it has none of the kind.
func localOf(c net.Conn) netip.Addr {
	a, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// connect opens a socket to host:port. The addresses of a name are one route: they are tried as RFC 8305 says, in its
// simple form.
func (d *Dialer) connect(ctx context.Context, address string) (net.Conn, error) {
	addrs := []string{address}
	if _, err := netip.ParseAddrPort(address); err != nil {
		if addrs, err = d.resolve(ctx, address); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, route.OpenLimit, errOpenTimeout)
	defer cancel()
	conn, err := d.dialAny(ctx, addrs)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}

// resolve turns a name with a port into numeric addresses, in the order in which to try them.
func (d *Dialer) resolve(ctx context.Context, address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialer: reading the address %s: %w", address, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, resolveLimit, errResolveTimeout)
	defer cancel()
	found, err := d.cfg.Resolve(ctx, host)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if len(found) == 0 {
		return nil, &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	var list []string
	for _, a := range interleave(found) {
		list = append(list, net.JoinHostPort(a.String(), port))
	}
	return list[:min(len(list), maxAddresses)], nil
}

// interleave alternates between the two families, beginning with the one the resolver put first (RFC 8305 section 4).
func interleave(found []netip.Addr) []netip.Addr {
	var one, other []netip.Addr
	for _, a := range found {
		a = a.Unmap()
		if a.Is4() == found[0].Unmap().Is4() {
			one = append(one, a)
		} else {
			other = append(other, a)
		}
	}
	var list []netip.Addr
	for i := range max(len(one), len(other)) {
		if i < len(one) {
			list = append(list, one[i])
		}
		if i < len(other) {
			list = append(list, other[i])
		}
	}
	return list
}

// dialAny opens a socket to the first of several addresses that answers: each gets a head start over the next, and a
// failure starts the next at once. It returns when all it started has ended.
func (d *Dialer) dialAny(ctx context.Context, addrs []string) (net.Conn, error) {
	if len(addrs) == 1 {
		return d.cfg.Dial(ctx, "tcp", addrs[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var conn net.Conn
	var errs []error
	next, running := 0, 0
	for running > 0 || conn == nil && next < len(addrs) {
		select {
		case <-timer.C:
			if conn != nil || next == len(addrs) || ctx.Err() != nil {
				next = len(addrs)
				continue
			}
			to := addrs[next]
			next++
			running++
			go func() {
				c, err := d.cfg.Dial(ctx, "tcp", to)
				results <- result{c, err}
			}()
			timer.Reset(addressStep)
		case r := <-results:
			running--
			switch {
			case r.err != nil:
				errs = append(errs, r.err)
				timer.Reset(0)
			case conn == nil:
				conn = r.conn
				cancel()
			default:
				r.conn.Close()
			}
		}
	}
	if conn != nil {
		return conn, nil
	}
	return nil, errors.Join(errs...)
}
