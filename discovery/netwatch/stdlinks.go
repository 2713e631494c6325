package netwatch

import (
	"fmt"
	"net"
	"net/netip"
)

// stdLinks lists interfaces as package net knows them, which is on every system but says nothing of their kind.
func stdLinks() ([]Link, error) {
	const up = net.FlagUp | net.FlagRunning
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var links []Link
	for _, i := range list {
		l := Link{Name: i.Name, Index: i.Index, Running: i.Flags&up == up}
		if i.Flags&net.FlagLoopback != 0 {
			l.Kind = Loopback
		}
		addrs, err := i.Addrs()
		if err != nil {
			if _, gone := net.InterfaceByIndex(i.Index); gone != nil { // it left meanwhile
				continue
			}
			return nil, fmt.Errorf("listing addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ones, bits := n.Mask.Size()
			if a, ok := netip.AddrFromSlice(n.IP); ok && bits > 0 {
				l.Addrs = append(l.Addrs, netip.PrefixFrom(a.Unmap(), ones))
			}
		}
		links = append(links, l)
	}
	return links, nil
}

// darwinKind is macOS's functional type of an interface (IFRTYPE_FUNCTIONAL_…); 0: it says nothing.
func darwinKind(functional uint32) (k Kind, virtual bool) {
	switch functional {
	case 1:
		return Loopback, false
	case 2:
		return Wired, false
	case 3:
		return WiFi, false
	case 4, 6, 7: // between Apple devices, to a coprocessor, to a watch
		return 0, true
	case 5:
		return Cell, false
	}
	return 0, false
}
