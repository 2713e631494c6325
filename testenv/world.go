package testenv

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// World is a set of hosts whose interfaces are on networks. Each pair of networks that can reach each other has a [Route],
// the link; so has each network in itself. All happens in memory and without goroutines, in exact times: see [Net]. The
// seed gives jitter and outages.
//
//	w := testenv.NewWorld(1)
//	w.Link("home", "office").SetDelay(20 * time.Millisecond)
//	laptop, devbox := w.Host("laptop"), w.Host("devbox")
//	wlan := laptop.Add("wlan0", "home", "192.168.1.23/24")
//	devbox.Add("eth0", "office", "198.51.100.7/24")
//	ln, err := devbox.Listen(ctx, "tcp", ":7000")
//	c, err := laptop.Dial(ctx, "tcp", "198.51.100.7:7000")
//	wlan.Up(false) // c falls silent; dials fail with ENETUNREACH
//
// A packet crosses one link: networks that are to reach each other need one between them.
type World struct {
	seed  uint64
	start time.Time

	// mu guards the world and everything in it. Nobody waits while holding it.
	mu      sync.Mutex
	sig     signal // something changed that a dial or a listener may care for
	hosts   []*Host
	links   []*link
	names   map[string][]netip.Addr
	portals map[string]*listener // by network
	events  []event
	dropped int // events that were too many
}

// link is the route between two networks; up is from a to b.
type link struct {
	a, b string
	r    *Route
}

// lanes are those that a sender on the network from sends and hears by.
func (l *link) lanes(from string) (out, in *lane) {
	if from == l.a {
		return &l.r.up, &l.r.down
	}
	return &l.r.down, &l.r.up
}

// other is the network at the other end from net; false when net is at neither.
func (l *link) other(net string) (string, bool) {
	switch net {
	case l.a:
		return l.b, true
	case l.b:
		return l.a, true
	}
	return "", false
}

// NewWorld returns an empty world whose timeline starts now.
func NewWorld(seed uint64) *World {
	return &World{seed: seed, start: time.Now(), names: make(map[string][]netip.Addr), portals: make(map[string]*listener)}
}

// Seed is what NewWorld was given.
func (w *World) Seed() uint64 { return w.seed }

// Host returns the host of that name and makes it at the first call.
func (w *World) Host(name string) *Host {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		if h.name == name {
			return h
		}
	}
	h := &Host{w: w, name: name, listeners: make(map[netip.AddrPort]*listener)}
	h.loop = w.newRoute(name + " to itself")
	w.hosts = append(w.hosts, h)
	return h
}

// Link returns the link between two networks, or within one, and makes it at the first call: its up is from a to b as
// named then.
func (w *World) Link(a, b string) *Route {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link(a, b).r
}

func (w *World) link(a, b string) *link {
	for _, l := range w.links {
		if l.a == a && l.b == b || l.a == b && l.b == a {
			return l
		}
	}
	name := a + "–" + b
	if a == b {
		name = "within " + a
	}
	l := &link{a: a, b: b, r: w.newRoute(name)}
	w.links = append(w.links, l)
	return l
}

// newRoute returns a route whose random numbers come from the world's seed and its name.
func (w *World) newRoute(name string) *Route {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // cannot fail
	return &Route{
		mu: &w.mu, dials: &w.sig, buffer: defaultBuffer, seed: w.seed ^ h.Sum64(),
		note: func(format string, args ...any) { w.note(name+": "+format, args...) },
		outage: func(from time.Time, d time.Duration) {
			w.noteAt(from, fmt.Sprintf("%s: silent for %s", name, d))
		},
	}
}

// SetName gives a name its addresses, as every host's resolver tells them that is not made to err; none = no such name.
func (w *World) SetName(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("name %s is %s", name, strings.Join(addrs, " "))
	w.names[name] = nil
	for _, a := range addrs {
		w.names[name] = append(w.names[name], netip.MustParseAddr(a))
	}
}

// place is one end of a connection: the host, and where it was when the connection was made. The zero place is of no host
// and always there; one without an interface is on the host's loopback.
type place struct {
	h    *Host
	i    *Interface
	net  string
	addr netip.Addr
}

// there says whether packets from and to the place pass.
func (p place) there() bool { return p.h == nil || !p.h.asleep && p.attached() }

// attached says whether the interface still has the address, on the same network.
func (p place) attached() bool { return p.i == nil || p.i.up && p.i.net == p.net && p.i.has(p.addr) }

// way is how a dial gets to an address.
type way struct {
	r       *Route
	out, in *lane
	l       *listener // nil: nobody listens there
	far     place
}

// find looks for the interface that has addr on a network.
func (w *World) find(network string, addr netip.Addr) *Interface {
	for _, h := range w.hosts {
		for _, i := range h.ifaces {
			if i.net == network && i.has(addr) {
				return i
			}
		}
	}
	return nil
}

// reach looks for the way from src to dst; false when nobody has the address.
func (w *World) reach(src place, dst netip.AddrPort) (way, bool) {
	if src.i == nil {
		return src.h.itself(dst), true
	}
	if portal := w.portals[src.net]; portal != nil {
		r := w.link(src.net, src.net).r
		return way{r: r, out: &r.up, in: &r.down, l: portal}, true
	}
	if i := w.find(src.net, dst.Addr()); i != nil {
		if i.h == src.h {
			return src.h.itself(dst), true
		}
		return w.link(src.net, src.net).to(src, i, dst), true
	}
	for _, l := range w.links {
		other, ok := l.other(src.net)
		if !ok {
			continue
		}
		if i := w.find(other, dst.Addr()); i != nil {
			return l.to(src, i, dst), true
		}
	}
	return way{}, false
}

func (l *link) to(src place, i *Interface, dst netip.AddrPort) way {
	out, in := l.lanes(src.net)
	return way{r: l.r, out: out, in: in, l: i.h.listening(dst), far: place{i.h, i, i.net, dst.Addr()}}
}

// change applies f, lets connections fall silent or heal that it concerns, and wakes all who wait.
func (w *World) change(f func(now time.Time)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	f(now)
	for _, l := range w.links {
		l.r.refresh(now)
	}
	for _, h := range w.hosts {
		h.loop.refresh(now)
	}
	w.sig.broadcast()
}

// refresh makes connections silent whose ends are not both there.
func (r *Route) refresh(now time.Time) {
	for _, c := range r.conns {
		for _, end := range []*Conn{c, c.peer} {
			if p := end.place; p.h != nil && p.h.aborts && !p.attached() {
				end.lose(now, errAborted)
			}
		}
		silent := !c.place.there() || !c.peer.place.there()
		c.out.silence(now, silent)
		c.in.silence(now, silent)
	}
}
