package route

import "net/netip"

// OnLink is the name of the interface that a private address is directly on, so
// that it must be dialled there whatever a VPN has done to the routing table;
// "": there is none, or it is one of this machine's own addresses.
func (p Path) OnLink(to netip.Addr) string {
	to = to.Unmap()
	if to.Zone() != "" || !to.IsPrivate() {
		return ""
	}
	over, bits := "", -1
	for _, i := range p.Interfaces {
		if i.Kind == Tunnel || i.Kind == Loopback {
			continue
		}
		for _, a := range i.Addrs {
			switch {
			case a.Addr() == to:
				return ""
			case a.Contains(to) && a.Bits() > bits:
				over, bits = i.Name, a.Bits()
			}
		}
	}
	return over
}
