package netwatch

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Delta is what became different between two snapshots, in terms that matter. The zero Delta is no change.
type Delta struct {
	Added, Removed []string     // interfaces that became usable, or stopped to be
	New, Gone      []netip.Addr // addresses on usable interfaces that came or went, those of Added and Removed too; never new: link-local
	Default        []string     // interfaces that gained or lost a default route
	Moved          []string     // interfaces that are, or may be, on another network than before
	Learned        []string     // interfaces whose router became known: the network they were on already has its name now
	Kind           []string     // interfaces that are of another kind: a corrected config
	Metered        []string     // interfaces whose metered flag changed
	Tailnet        bool         // whether there is a tailnet interface changed
}

// IsZero reports whether nothing changed.
func (d Delta) IsZero() bool {
	return !d.Path() && len(d.Learned)+len(d.Kind)+len(d.Metered) == 0 && !d.Tailnet
}

// Path reports whether the ways of this machine into the world changed, so that routes which failed before may do now:
// interfaces, addresses, default routes or networks. A metered flag or a router that became known is not such a change.
func (d Delta) Path() bool {
	return len(d.Added)+len(d.Removed)+len(d.New)+len(d.Gone)+len(d.Default)+len(d.Moved) > 0
}

// String is the change as one line for people: "wlan0 gone, eth0 new".
func (d Delta) String() string {
	var parts []string
	say := func(names []string, what string) {
		for _, n := range names {
			parts = append(parts, n+" "+what)
		}
	}
	say(d.Added, "new")
	say(d.Removed, "gone")
	if len(d.Added)+len(d.Removed) == 0 {
		say(texts(d.New), "new")
		say(texts(d.Gone), "gone")
	}
	say(d.Default, "default route changed")
	say(d.Moved, "on another network")
	say(d.Learned, "router known")
	say(d.Kind, "of another kind")
	say(d.Metered, "metered changed")
	if d.Tailnet {
		parts = append(parts, "tailnet came or went")
	}
	if parts == nil {
		return "no change"
	}
	return strings.Join(parts, ", ")
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

// Diff is what became different from one snapshot to a later one. Against an unknown one nothing did.
//
// No change are, besides what is not in a snapshot: one more IPv6 address in a /64 that the interface has an address in already
// (privacy addresses come by the day), and other link-local addresses; a socket bound to an address that left is without it,
// whatever kind that was, so every address that goes is told.
func Diff(old, now Snapshot) Delta {
	var d Delta
	if !old.Known || !now.Known {
		return d
	}
	for _, was := range old.Interfaces {
		if i, ok := now.Interface(was.Name); !ok || i.Index != was.Index {
			d.Removed = append(d.Removed, was.Name)
			d.Gone = append(d.Gone, addrsOf(was)...)
		}
	}
	for _, i := range now.Interfaces {
		was, ok := old.Interface(i.Name)
		if !ok || was.Index != i.Index {
			d.Added = append(d.Added, i.Name)
			d.New = append(d.New, newAddrs(Interface{}, i)...)
			continue
		}
		d.compare(was, i)
	}
	d.Tailnet = old.Tailnet != now.Tailnet
	return d
}

// compare adds what is different about one interface.
func (d *Delta) compare(was, i Interface) {
	note := func(differs bool, list *[]string) {
		if differs {
			*list = append(*list, i.Name)
		}
	}
	for _, p := range was.Addrs {
		if !i.has(p.Addr()) {
			d.Gone = append(d.Gone, p.Addr())
		}
	}
	d.New = append(d.New, newAddrs(was, i)...)
	note(was.Default != i.Default, &d.Default)
	note(was.Kind != i.Kind, &d.Kind)
	note(was.Metered != i.Metered, &d.Metered)
	a, b := was.Network, i.Network
	if a.Kind != b.Kind { // the kind is told above, and is no move
		a.Kind = b.Kind
	}
	switch {
	case a == b || b == (Network{}):
	case a.Prefix == b.Prefix && a.Router == "":
		note(true, &d.Learned)
	default: // also from a router to none: the link was cut or has another gateway, see keepRouters
		note(a.Prefix.IsValid(), &d.Moved)
	}
}

func addrsOf(i Interface) (out []netip.Addr) {
	for _, p := range i.Addrs {
		out = append(out, p.Addr())
	}
	return out
}

// newAddrs are the addresses of an interface that it did not have, and that matter.
func newAddrs(was, i Interface) (out []netip.Addr) {
	for _, p := range i.Addrs {
		a := p.Addr()
		if a.IsLinkLocalUnicast() || was.has(a) {
			continue
		}
		site := netip.PrefixFrom(a, 64)
		if a.Is6() && slices.ContainsFunc(was.Addrs, func(o netip.Prefix) bool { return o.Addr().Is6() && site.Masked().Contains(o.Addr()) }) {
			continue
		}
		out = append(out, a)
	}
	return out
}
