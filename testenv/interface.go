package testenv

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Interface is one of a host's.
type Interface struct {
	h    *Host
	name string

	// h.w.mu guards what follows.
	net   string
	addrs []netip.Prefix
	up    bool
}

// Add gives the host an interface, that is up, on a network, with addresses and the sizes of their prefixes. What is wrong in
// them is a defect of the test: it panics.
func (h *Host) Add(name, network string, addrs ...string) *Interface {
	i := &Interface{h: h, name: name, net: network, addrs: prefixes(addrs), up: true}
	h.change(func(time.Time) { h.ifaces = append(h.ifaces, i) }, "%s is up on %s with %v", name, network, addrs)
	return i
}

func prefixes(texts []string) (list []netip.Prefix) {
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			panic(fmt.Sprintf("testenv: reading an interface's address: %v", err))
		}
		list = append(list, p)
	}
	return list
}

// Name is the interface's, like wlan0.
func (i *Interface) Name() string { return i.name }

// State returns whether the interface is up, its network and its addresses.
func (i *Interface) State() (up bool, network string, addrs []netip.Prefix) {
	i.h.w.mu.Lock()
	defer i.h.w.mu.Unlock()
	return i.up, i.net, slices.Clone(i.addrs)
}

// Up switches the interface on or off. While it is off, its sockets are silent (see [Host.Abort]) and dials do not see it.
func (i *Interface) Up(on bool) {
	i.h.change(func(time.Time) { i.up = on }, "%s up %v", i.name, on)
}

// SetAddrs gives the interface other addresses. Sockets that are bound to one that leaves fall silent until it comes back:
// see [Host.Abort].
func (i *Interface) SetAddrs(addrs ...string) {
	list := prefixes(addrs)
	i.h.change(func(time.Time) { i.addrs = list }, "%s has %v", i.name, addrs)
}

// Join takes the interface to another network, with the addresses it has there. Sockets of the old one fall silent even if
// the address is the same.
func (i *Interface) Join(network string, addrs ...string) {
	list := prefixes(addrs)
	i.h.change(func(time.Time) { i.net, i.addrs = network, list }, "%s joins %s with %v", i.name, network, addrs)
}

// Dial is [Host.Dial] by this interface alone, as a socket that is bound to it.
func (i *Interface) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return i.h.dial(ctx, i, network, address)
}

func (i *Interface) has(a netip.Addr) bool {
	return slices.ContainsFunc(i.addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

func (i *Interface) onLink(a netip.Addr) bool {
	return i != nil && slices.ContainsFunc(i.addrs, func(p netip.Prefix) bool { return p.Contains(a) })
}
