package testenv

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// backlog is how many connections wait to be accepted; beyond it dials hang, as SYNs are dropped.
const backlog = 128

// firstPort is where the ports of ends that dial without saying from where begin: the ephemeral range of RFC 6335.
const firstPort = 49152

// Addr is the address of an end that is not IP:port; one that is becomes a *net.TCPAddr.
type Addr string

// Network is "memory".
func (Addr) Network() string { return "memory" }

func (a Addr) String() string { return string(a) }

func addrOf(name string) net.Addr {
	if ap, err := netip.ParseAddrPort(name); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}
	return Addr(name)
}

// Net is a network in memory: listeners by name, and one [Route] to each. The zero value is ready to use.
type Net struct {
	mu     sync.Mutex
	routes map[string]*Route
	port   int
}

// Route returns the route to name; it exists before anybody listens there.
func (n *Net) Route(name string) *Route {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.routes == nil {
		n.routes = make(map[string]*Route)
	}
	r := n.routes[name]
	if r == nil {
		r = NewRoute()
		n.routes[name] = r
	}
	return r
}

// Listen takes connections dialled to name, which any string may be.
func (n *Net) Listen(name string) (net.Listener, error) {
	l := &listener{r: n.Route(name), addr: addrOf(name)}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.listener != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: l.addr, Err: syscall.EADDRINUSE}
	}
	l.r.listener = l
	return l, nil
}

// Dial connects to name from an address of 192.0.2.0/24. It takes a round trip; the listener sees the connection half
// a round trip later. A failure is a *net.OpError around ECONNREFUSED, EHOSTUNREACH or the context's error.
func (n *Net) Dial(ctx context.Context, name string) (net.Conn, error) {
	n.mu.Lock()
	from := fmt.Sprintf("192.0.2.1:%d", firstPort+n.port%(1<<16-firstPort))
	n.port++
	n.mu.Unlock()
	return n.DialFrom(ctx, from, name)
}

// DialContext is [Net.Dial] in the shape of net.Dialer's; it ignores network.
func (n *Net) DialContext(ctx context.Context, _, name string) (net.Conn, error) {
	return n.Dial(ctx, name)
}

// DialFrom is [Net.Dial] with the address that the listener will see.
func (n *Net) DialFrom(ctx context.Context, from, name string) (net.Conn, error) {
	c, err := n.Route(name).dial(ctx, addrOf(from), addrOf(name))
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Source: addrOf(from), Addr: addrOf(name), Err: err}
	}
	return c, nil
}

func (r *Route) dial(ctx context.Context, from, to net.Addr) (*Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sent time.Time // when the SYN that will be answered left
	for {
		now := time.Now()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.unreachable {
			return nil, syscall.EHOSTUNREACH
		}
		if r.hang || r.up.hole || r.down.hole || r.listener.full() {
			sent = time.Time{}
			r.wait(&r.dials, ctx.Done(), time.Time{})
			continue
		}
		if sent.IsZero() {
			sent = now
		}
		if answered := sent.Add(r.up.delay + r.down.delay); now.Before(answered) {
			r.wait(&r.dials, ctx.Done(), answered)
			continue
		}
		if r.refuse || r.listener == nil {
			return nil, syscall.ECONNREFUSED
		}
		near, far := r.connect(from, to)
		r.listener.add(far, now.Add(r.up.delay))
		return near, nil
	}
}

// listener is where a route ends. Route.mu guards it.
type listener struct {
	r       *Route
	addr    net.Addr
	closed  bool
	waiting []arrivalOf
}

// arrivalOf is a connection whose handshake is complete at due.
type arrivalOf struct {
	c   *Conn
	due time.Time
}

func (l *listener) full() bool { return l != nil && len(l.waiting) >= backlog }

func (l *listener) add(c *Conn, due time.Time) {
	if n := len(l.waiting); n > 0 {
		due = later(l.waiting[n-1].due, due)
	}
	l.waiting = append(l.waiting, arrivalOf{c, due})
	l.r.dials.broadcast()
}

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	for {
		if l.closed {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
		}
		var due time.Time
		if len(l.waiting) > 0 {
			due = l.waiting[0].due
			if !time.Now().Before(due) {
				c := l.waiting[0].c
				l.waiting = l.waiting[1:]
				l.r.dials.broadcast()
				return c, nil
			}
		}
		l.r.wait(&l.r.dials, nil, due)
	}
}

// Close ends listening; connections not yet accepted are reset.
func (l *listener) Close() error {
	waiting, err := l.stop()
	for _, a := range waiting {
		a.c.Reset(0)
	}
	return err
}

func (l *listener) stop() ([]arrivalOf, error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.closed {
		return nil, &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	l.closed, l.r.listener = true, nil
	waiting := l.waiting
	l.waiting = nil
	l.r.dials.broadcast()
	return waiting, nil
}

func (l *listener) Addr() net.Addr { return l.addr }
