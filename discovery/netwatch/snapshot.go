package netwatch

import (
	"net/netip"
	"slices"
	"strings"
)

// Reading is what a system says of its interfaces, not yet judged.
type Reading struct {
	Links    []Link
	Gateways []Gateway
}

// Link is one interface as the system has it.
type Link struct {
	Name    string
	Index   int
	Kind    Kind           // what the system says it is; 0: nothing
	Virtual bool           // the system says it is plumbing between its own programs
	Running bool           // up, and with a carrier
	Metered bool           // the system says so
	Addrs   []netip.Prefix // that sockets may be bound to, each with its prefix length
}

// Gateway is one default route.
type Gateway struct {
	Index  int        // of the link it leads through
	IPv6   bool       // ::/0, not 0.0.0.0/0
	Addr   netip.Addr // the router, without a zone; zero: the route leads to the link itself
	MAC    []byte     // the router's hardware address; nil: not read
	Metric int        // the lowest is used
}

// Override corrects what the system says of one interface.
type Override struct {
	Kind      Kind // 0: as found; any other kind makes a running interface with an address count, plumbing or not
	Metered   bool // metered, whatever the system says
	Unmetered bool // not metered, although cellular or called so by the system
	Ignore    bool // never usable
}

// Interface is one usable interface of this machine.
type Interface struct {
	Name    string
	Index   int
	Kind    Kind
	Addrs   []netip.Prefix // its own addresses, link-local too, each with its prefix length; sorted
	Metered bool
	Default bool       // a default route leads through it
	Tailnet bool       // it is a tailnet's
	Gateway netip.Addr // of the default route; IPv4's where there is one. Zero: none, or on the link itself
	Network Network    // zero: unknown
}

// Snapshot is this machine's network at one time. It is never changed after it was made.
type Snapshot struct {
	Known      bool        // false: it could not be read, and the rest says nothing
	Interfaces []Interface // usable ones: first those with a default route, the system's first choice leading; then by name
	Tailnet    bool        // one of them is a tailnet's
}

// Interface is the usable interface of that name.
func (s Snapshot) Interface(name string) (Interface, bool) {
	for _, i := range s.Interfaces {
		if i.Name == name {
			return i, true
		}
	}
	return Interface{}, false
}

// Has reports whether a usable interface has that address, which may be one of IPv4 in IPv6 or have a zone.
func (s Snapshot) Has(a netip.Addr) bool {
	return slices.ContainsFunc(s.Interfaces, func(i Interface) bool { return i.has(a.Unmap().WithZone("")) })
}

func (i Interface) has(a netip.Addr) bool {
	return slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// rules are what readings are judged by.
type rules struct {
	secret   []byte
	override map[string]Override
}

// judge makes a snapshot of a reading: which interfaces count, what they are, and on which networks they are.
func judge(r Reading, by rules) Snapshot {
	s := Snapshot{Known: true}
	metric := map[int]int{} // of the interface's best default route
	for _, l := range r.Links {
		gates := gatewaysOf(r.Gateways, l.Index)
		i, ok := usable(l, gates, by.override[l.Name])
		if !ok {
			continue
		}
		if len(gates) > 0 {
			i.Gateway, metric[l.Index] = gates[0].Addr, gates[0].Metric
		}
		i.Network = fingerprint(i, gates, by.secret)
		s.Interfaces = append(s.Interfaces, i)
		s.Tailnet = s.Tailnet || i.Tailnet
	}
	slices.SortFunc(s.Interfaces, func(a, b Interface) int {
		switch {
		case a.Default != b.Default:
			if a.Default {
				return -1
			}
			return 1
		case a.Default && metric[a.Index] != metric[b.Index]:
			return metric[a.Index] - metric[b.Index]
		}
		return strings.Compare(a.Name, b.Name)
	})
	return s
}

// gatewaysOf are the default routes through one link, IPv4's first, of each family the system's first choice first.
func gatewaysOf(all []Gateway, index int) []Gateway {
	var out []Gateway
	for _, g := range all {
		if g.Index == index {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b Gateway) int {
		switch {
		case a.IPv6 != b.IPv6:
			if b.IPv6 {
				return -1
			}
			return 1
		case a.Metric != b.Metric:
			return a.Metric - b.Metric
		}
		return a.Addr.Compare(b.Addr)
	})
	return out
}

// usable says whether a link counts, and as what. The rule is the package's documentation.
func usable(l Link, gates []Gateway, o Override) (Interface, bool) {
	kind, virtual := l.Kind, l.Virtual
	switch {
	case o.Kind != 0:
		kind, virtual = o.Kind, false
	case virtual || kind == 0: // plumbing is what its name says, as eth0 in a container
		var plumbing bool
		silent := kind == 0 && !virtual
		kind, plumbing = byName(l.Name)
		virtual = virtual || silent && plumbing
		if kind == 0 {
			kind = Other
		}
	}
	i := Interface{
		Name: l.Name, Index: l.Index, Kind: kind, Default: len(gates) > 0,
		Metered: (l.Metered || kind == Cell || o.Metered) && !o.Unmetered,
	}
	reaches := false
	for _, p := range l.Addrs {
		a := p.Addr().Unmap().WithZone("")
		if !p.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
			continue
		}
		bits := p.Bits()
		if p.Addr().Is4In6() {
			bits = max(bits-96, 0)
		}
		i.Addrs = append(i.Addrs, netip.PrefixFrom(a, bits))
		reaches = reaches || !a.IsLinkLocalUnicast()
	}
	slices.SortFunc(i.Addrs, comparePrefix)
	i.Addrs = slices.Compact(i.Addrs)
	i.Tailnet = kind == Tunnel && slices.ContainsFunc(i.Addrs, ofTailnet)
	ok := l.Running && reaches && kind != Loopback && !o.Ignore && (!virtual || i.Default)
	return i, ok
}

func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

var (
	tailnet4 = netip.MustParsePrefix("100.64.0.0/10")
	tailnet6 = netip.MustParsePrefix("fd7a:115c:a1e0::/48")
)

func ofTailnet(p netip.Prefix) bool {
	return tailnet4.Contains(p.Addr()) || tailnet6.Contains(p.Addr())
}
