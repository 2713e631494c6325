package testenv

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
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
	r := n.Route(name)
	l := &listener{mu: r.mu, sig: r.dials, addr: addrOf(name), leave: func() { r.listener = nil }}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: l.addr, Err: syscall.EADDRINUSE}
	}
	r.listener = l
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
	var s syn
	for {
		now := time.Now()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		over, wake, err := s.step(now, r, &r.up, &r.down, r.listener)
		if err != nil {
			return nil, err
		}
		if over {
			near, far := r.connect(from, to)
			r.listener.add(far, r.up.leave(now))
			return near, nil
		}
		r.wait(r.dials, ctx.Done(), wake)
	}
}

// syn is a dial under way.
type syn struct{ sent time.Time }

// step looks at a dial over r, whose SYN goes by the lane out and is answered by the lane in: it is over, has failed, or is
// to be looked at again at wake (zero = when something changes).
func (s *syn) step(now time.Time, r *Route, out, in *lane, l *listener) (over bool, wake time.Time, err error) {
	if r.unreachable {
		return false, wake, syscall.EHOSTUNREACH
	}
	if r.hang || out.hole || in.hole || l.full() {
		s.sent = time.Time{}
		return false, wake, nil
	}
	if s.sent.IsZero() {
		s.sent = now
	}
	if answered := in.leave(out.leave(s.sent)); now.Before(answered) {
		return false, answered, nil
	}
	if r.refuse || l == nil {
		return false, wake, syscall.ECONNREFUSED
	}
	return true, wake, nil
}

// listener is where dials end. mu, of its route or world, guards it.
type listener struct {
	mu      *sync.Mutex
	sig     *signal
	addr    net.Addr
	leave   func() // takes it off the list of listeners; called with mu held
	closed  bool
	waiting []arrivalOf
}

// arrivalOf is a connection whose handshake is complete at due.
type arrivalOf struct {
	c   *Conn
	due time.Time
}

func (l *listener) full() bool { return l != nil && len(l.waiting) >= backlog }

// add queues c, which can be accepted at due. Connections over other routes may come before those that were added first.
func (l *listener) add(c *Conn, due time.Time) {
	i := len(l.waiting)
	for i > 0 && l.waiting[i-1].due.After(due) && l.waiting[i-1].c.r != c.r {
		i--
	}
	if i > 0 && l.waiting[i-1].due.After(due) {
		due = l.waiting[i-1].due
	}
	l.waiting = slices.Insert(l.waiting, i, arrivalOf{c, due})
	l.sig.broadcast()
}

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
				l.sig.broadcast()
				return c, nil
			}
		}
		waitFor(l.mu, l.sig, nil, due)
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	return l.end(), nil
}

// end closes l and returns what nobody has accepted.
func (l *listener) end() []arrivalOf {
	l.closed = true
	l.leave()
	waiting := l.waiting
	l.waiting = nil
	l.sig.broadcast()
	return waiting
}

func (l *listener) Addr() net.Addr { return l.addr }
