package host

import (
	"net"
	"net/netip"
)

// Bounds of strangers: connections whose client has not yet proved a paired key and said what it wants.
const (
	// defaultStrangers is how many may shake hands at once: each costs some 100 KiB and a signature for 5 s at most.
	defaultStrangers = 256
	// defaultPerNetwork is how many of them one network may be: a household or an office behind one address needs few.
	defaultPerNetwork = 16
	// networkBits4 and networkBits6 are what one subscriber is given, at most.
	networkBits4 = 24
	networkBits6 = 56
)

// network is whom strangers are counted by: a prefix, or, for connections without an IP address, their address as it is.
type network struct {
	prefix netip.Prefix
	name   string
}

func networkOf(a net.Addr) network {
	if a == nil {
		return network{}
	}
	ip := netip.Addr{}
	if t, ok := a.(*net.TCPAddr); ok {
		ip = t.AddrPort().Addr()
	} else if ap, err := netip.ParseAddrPort(a.String()); err == nil {
		ip = ap.Addr()
	}
	ip = ip.Unmap().WithZone("")
	bits := networkBits4
	if ip.Is6() {
		bits = networkBits6
	}
	p, err := ip.Prefix(bits)
	if err != nil || !ip.IsValid() {
		return network{name: a.Network() + " " + a.String()}
	}
	return network{prefix: p}
}

// guest is one stranger.
type guest struct {
	from   network
	number uint64 // in the order they came
	conn   net.Conn
}

// strangers is who shakes hands now. Pure; its owner locks it.
type strangers struct {
	most, perNetwork int // negative: no bound
	groups           map[network][]*guest
	n                int
	came             uint64
}

// add counts a stranger and returns it, with the one that has to yield to it, if any, which counts no longer: the oldest of
// its network if that is at its bound, else, if all places are taken, the oldest of the largest network. So a crowd from one
// network displaces itself first, and nobody can wait for long, however many others come.
func (s *strangers) add(from network, conn net.Conn) (g, yields *guest) {
	if s.groups == nil {
		s.groups = map[network][]*guest{}
	}
	s.came++
	g = &guest{from, s.came, conn}
	s.groups[from] = append(s.groups[from], g)
	s.n++
	switch {
	case s.perNetwork >= 0 && len(s.groups[from]) > s.perNetwork:
		yields = s.groups[from][0]
	case s.most >= 0 && s.n > s.most:
		yields = s.oldestOfLargest()
	default:
		return g, nil
	}
	s.remove(yields)
	return g, yields
}

// oldestOfLargest: of networks of one size, the one whose oldest came first.
func (s *strangers) oldestOfLargest() *guest {
	var best []*guest
	for _, g := range s.groups {
		if len(g) > len(best) || len(g) == len(best) && g[0].number < best[0].number {
			best = g
		}
	}
	return best[0]
}

// remove says that g is a stranger no more; it may be said again.
func (s *strangers) remove(g *guest) {
	list := s.groups[g.from]
	for i, o := range list {
		if o != g {
			continue
		}
		s.n--
		if len(list) == 1 {
			delete(s.groups, g.from)
			return
		}
		s.groups[g.from] = append(list[:i:i], list[i+1:]...)
		return
	}
}
