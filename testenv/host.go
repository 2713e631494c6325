package testenv

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// arpPatience is after what time a dial to an address of the own network fails that nobody answers for: three probes, one
// a second, as Linux sends them.
const arpPatience = 3 * time.Second

// errAborted is what sockets get on systems that end them when their address leaves.
const errAborted = syscall.ECONNABORTED

// Host is one machine of a [World].
type Host struct {
	w    *World
	name string
	loop *Route // to itself

	// w.mu guards what follows.
	ifaces    []*Interface
	listeners map[netip.AddrPort]*listener
	port      uint16 // ephemeral ports handed out
	aborts    bool
	asleep    bool
	since     time.Time     // it fell asleep
	wall      time.Duration // what its clock on the wall is ahead
	dns       DNS
	sig       signal // its network changed or it woke
}

// Name is the host's.
func (h *Host) Name() string { return h.name }

// Loopback is the host's way to itself.
func (h *Host) Loopback() *Route { return h.loop }

// Interfaces returns the host's interfaces in the order of preference, which is that of their making.
func (h *Host) Interfaces() []*Interface {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return slices.Clone(h.ifaces)
}

// Changed is closed when interfaces, addresses or networks of the host change next, or when it wakes.
func (h *Host) Changed() <-chan struct{} {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return h.sig.changed()
}

// change is [World.change] by something of this host that its programs can notice, with a line for the timeline.
func (h *Host) change(f func(now time.Time), format string, args ...any) {
	h.w.change(func(now time.Time) {
		h.w.note(h.name+": "+format, args...)
		f(now)
		h.sig.broadcast()
	})
}

// Abort makes sockets of the host fail with ECONNABORTED at once when their address or interface leaves, as some systems do;
// else they fall silent, as on Linux, and go on when it comes back.
func (h *Host) Abort(on bool) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.aborts = on
}

// Wall is the time that the host's clock on the wall shows, without a monotonic reading. Against time.Now, which only the
// bubble moves, it jumps by [Host.Jump] and by sleep.
func (h *Host) Wall() time.Time {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return time.Now().Round(0).Add(h.wall)
}

// Jump sets the host's clock on the wall forward, or back.
func (h *Host) Jump(d time.Duration) {
	h.change(func(time.Time) { h.wall += d }, "the clock jumps by %s", d)
}

// Sleep puts the host to sleep for d; it returns when the host has woken. See [Host.Suspend].
func (h *Host) Sleep(d time.Duration) {
	h.Suspend()
	time.Sleep(d)
	h.Resume()
}

// Suspend makes all connections of the host silent, and its dials and look-ups wait. A bubble has one time for all, so that
// the host's timers go on, unlike a real sleeper's; what gives the sleep away is Wall, which [Host.Resume] sets ahead of
// time.Now by as much as it took.
func (h *Host) Suspend() {
	h.change(func(now time.Time) {
		if !h.asleep {
			h.asleep, h.since = true, now
		}
	}, "falls asleep")
}

// Resume wakes the host.
func (h *Host) Resume() {
	h.change(func(now time.Time) {
		if h.asleep {
			h.asleep = false
			h.wall += now.Sub(h.since)
		}
	}, "wakes")
}

// Kill ends all programs of the host: their connections are reset at both ends, one delay later at the far one, and their
// listeners closed.
func (h *Host) Kill() {
	h.change(func(now time.Time) {
		h.each(func(c *Conn) {
			if c.closed || c.failed != nil {
				return
			}
			c.failed = syscall.ECONNRESET
			c.in.drop()
			c.in.deaf = true
			c.out.send(now, &c.out.rst)
		})
		h.stop()
	}, "all its programs are killed")
}

// Forget is a power cut: the host's ends of all its connections fail with ECONNRESET, the far ones learn of it when what they
// send next is answered by a reset, and its listeners are closed.
func (h *Host) Forget() {
	h.change(func(now time.Time) {
		h.each(func(c *Conn) { c.lose(now, syscall.ECONNRESET) })
		h.stop()
	}, "loses power, and is up again")
}

// each calls f for the host's end of each connection.
func (h *Host) each(f func(*Conn)) {
	routes := []*Route{h.loop}
	for _, l := range h.w.links {
		routes = append(routes, l.r)
	}
	for _, r := range routes {
		for _, c := range slices.Clone(r.conns) {
			if c.place.h == h {
				f(c)
			}
			if c.peer.place.h == h {
				f(c.peer)
			}
		}
	}
}

// stop closes the listeners; what nobody has accepted is reset by each already.
func (h *Host) stop() {
	for _, l := range h.listeners {
		l.end()
	}
}

// Listen listens on an address of the host, host:port; port 0 = one that is free; host "", 0.0.0.0 or :: = every address. It
// fits the type of net.ListenConfig's.
func (h *Host) Listen(_ context.Context, network, address string) (net.Listener, error) {
	at, err := parseListen(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), h.ephemeral())
	}
	fail := func(err error) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: net.TCPAddrFromAddrPort(at), Err: err}
	}
	if !at.Addr().IsUnspecified() && !at.Addr().IsLoopback() && !h.has(at.Addr()) {
		return fail(syscall.EADDRNOTAVAIL)
	}
	if h.listeners[at] != nil {
		return fail(syscall.EADDRINUSE)
	}
	l := &listener{
		mu: &h.w.mu, sig: &h.w.sig, addr: net.TCPAddrFromAddrPort(at),
		leave: func() { delete(h.listeners, at) },
	}
	h.listeners[at] = l
	h.w.note("%s: listens on %s", h.name, at)
	return l, nil
}

func parseListen(address string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		host = "::"
	}
	return netip.ParseAddrPort(net.JoinHostPort(host, port))
}

func (h *Host) has(a netip.Addr) bool {
	return slices.ContainsFunc(h.ifaces, func(i *Interface) bool { return i.has(a) })
}

// ephemeral is the next port of RFC 6335's dynamic range.
func (h *Host) ephemeral() uint16 {
	h.port++
	return firstPort + (h.port-1)%(1<<16-firstPort)
}

// listening is the listener that dst leads to, nil = none.
func (h *Host) listening(dst netip.AddrPort) *listener {
	for _, a := range []netip.Addr{dst.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if l := h.listeners[netip.AddrPortFrom(a, dst.Port())]; l != nil {
			return l
		}
	}
	return nil
}

// itself is the way from the host to one of its own addresses.
func (h *Host) itself(dst netip.AddrPort) way {
	return way{
		r: h.loop, out: &h.loop.up, in: &h.loop.down, l: h.listening(dst),
		far: place{h: h, addr: dst.Addr()},
	}
}

// Dial connects to address, host:port, by the interface that a routing table would choose: one on the network of the
// address, or the first that is up and on a network with a link to another. A name is resolved by [Host.Resolve], and
// its addresses are tried in order. It takes a round trip; the listener sees the connection half of one later.
//
// A failure is a *net.OpError around ECONNREFUSED, ENETUNREACH (at once, without a usable interface), EHOSTUNREACH (after
// 3 s, nobody on the own network has the address) or the context's error; a packet that gets lost is waited for.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return h.dial(ctx, nil, network, address)
}

func (h *Host) dial(ctx context.Context, from *Interface, network, address string) (net.Conn, error) {
	name, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	addrs, err := h.Resolve(ctx, name)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	for _, a := range addrs {
		to := netip.AddrPortFrom(a.Unmap(), uint16(port))
		var c *Conn
		if c, err = h.connect(ctx, from, to); err == nil {
			return c, nil
		}
		err = &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	return nil, err
}

// connect dials and tells the timeline.
func (h *Host) connect(ctx context.Context, from *Interface, to netip.AddrPort) (*Conn, error) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	start := time.Now()
	src, err := h.source(ctx, from, to)
	var c *Conn
	if err == nil {
		c, err = h.handshake(ctx, src, to)
	}
	outcome := "connected"
	if err != nil {
		outcome = err.Error()
	}
	through := "loopback"
	if src.i != nil {
		through = src.i.name
	} else if err != nil {
		through = "no interface"
	}
	h.w.note("%s: dialled %s through %s: %s after %s", h.name, to, through, outcome, time.Since(start))
	return c, err
}

// source chooses from where to dial.
func (h *Host) source(ctx context.Context, from *Interface, to netip.AddrPort) (place, error) {
	for h.asleep {
		if err := ctx.Err(); err != nil {
			return place{}, err
		}
		waitFor(&h.w.mu, &h.w.sig, ctx.Done(), time.Time{})
	}
	if to.Addr().IsLoopback() {
		return place{h: h, addr: to.Addr()}, nil
	}
	i := from
	if i == nil {
		i = h.routed(to.Addr())
	}
	if i == nil || !i.up {
		return place{}, syscall.ENETUNREACH
	}
	for _, p := range i.addrs {
		if p.Addr().Is4() == to.Addr().Is4() {
			return place{h, i, i.net, p.Addr()}, nil
		}
	}
	return place{}, syscall.ENETUNREACH
}

// routed is the interface that the routing table has for dst, nil = none.
func (h *Host) routed(dst netip.Addr) *Interface {
	usable := func(i *Interface) bool {
		return i.up && slices.ContainsFunc(i.addrs, func(p netip.Prefix) bool { return p.Addr().Is4() == dst.Is4() })
	}
	for _, i := range h.ifaces {
		if usable(i) && (i.onLink(dst) || h.w.find(i.net, dst) != nil) {
			return i
		}
	}
	for _, i := range h.ifaces {
		if usable(i) && slices.ContainsFunc(h.w.links, func(l *link) bool {
			other, ok := l.other(i.net)
			return ok && other != i.net
		}) {
			return i
		}
	}
	return nil
}

// handshake waits for an answer from to.
func (h *Host) handshake(ctx context.Context, src place, to netip.AddrPort) (*Conn, error) {
	var s syn
	start := time.Now()
	for {
		now := time.Now()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var wake time.Time
		hop, found := h.w.reach(src, to)
		switch {
		case !src.there(), found && !hop.far.there(), !found:
			s.sent = time.Time{}
			if src.there() && src.i.onLink(to.Addr()) { // nobody answers for the address
				if wake = start.Add(arpPatience); !now.Before(wake) {
					return nil, syscall.EHOSTUNREACH
				}
			}
		default:
			over, again, err := s.step(now, hop.r, hop.out, hop.in, hop.l)
			if err != nil {
				return nil, err
			}
			if over {
				return h.open(now, src, to, hop), nil
			}
			wake = again
		}
		waitFor(&h.w.mu, &h.w.sig, ctx.Done(), wake)
	}
}

// open makes the connection of a handshake that is complete at this end.
func (h *Host) open(now time.Time, src place, to netip.AddrPort, hop way) *Conn {
	from := netip.AddrPortFrom(src.addr, h.ephemeral())
	near, far := hop.r.connectBy(hop.out, hop.in, net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to))
	near.place, far.place = src, hop.far
	hop.l.add(far, hop.out.leave(now))
	return near
}
