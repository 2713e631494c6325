package netwatch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
)

// Network is where this machine is, by what one of its interfaces shows of it. It is comparable; the zero Network is unknown.
type Network struct {
	Kind   Kind
	Prefix netip.Prefix // own IPv4 /24, else the on-link /64 of the IPv6 default route; none on Cell
	Router string       // HMAC-SHA256 of the gateway's MAC, routerBytes of it, hex; "": not read
}

// routerBytes of the hash are enough to tell apart the few networks one machine remembers, and too few to search for the MAC
// without the secret.
const routerBytes = 8

// dslite is the prefix between a machine and its own translator (RFC 7335): the same everywhere.
var dslite = netip.MustParsePrefix("192.0.0.0/29")

// fingerprint is the network that an interface is on. gates are its default routes, IPv4's first.
func fingerprint(i Interface, gates []Gateway, secret []byte) Network {
	switch i.Kind {
	case Cell: // providers hand out any address anywhere
		return Network{Kind: Cell}
	case Wired, WiFi:
	default:
		return Network{}
	}
	p := prefixOf(i.Addrs, gates)
	if !p.IsValid() {
		return Network{}
	}
	return Network{Kind: i.Kind, Prefix: p, Router: routerHash(gates, secret)}
}

// prefixOf is the prefix of a network: by the IPv4 address beside the router if there are several, else by the first.
func prefixOf(addrs []netip.Prefix, gates []Gateway) netip.Prefix {
	var four, six netip.Prefix
	for _, p := range addrs {
		a := p.Addr()
		switch {
		case a.IsLinkLocalUnicast() || dslite.Contains(a):
		case a.Is4():
			beside := slices.ContainsFunc(gates, func(g Gateway) bool { return g.Addr.Is4() && p.Masked().Contains(g.Addr) })
			if !four.IsValid() || beside {
				four = netip.PrefixFrom(a, 24).Masked()
			}
			if beside {
				return four
			}
		// A provider's prefix says more about the place than one that was made up there, so it wins over fd00::/8.
		case !six.IsValid() || six.Addr().IsPrivate() && !a.IsPrivate():
			six = netip.PrefixFrom(a, 64).Masked()
		}
	}
	if four.IsValid() {
		return four
	}
	if slices.ContainsFunc(gates, func(g Gateway) bool { return g.IPv6 }) {
		return six
	}
	return netip.Prefix{}
}

// routerHash names the router of the first default route. Where IPv4's is not read, IPv6's is no substitute: the name would
// change when it is.
func routerHash(gates []Gateway, secret []byte) string {
	if len(gates) == 0 || len(secret) == 0 || !isMAC(gates[0].MAC) {
		return ""
	}
	h := hmac.New(sha256.New, secret)
	h.Write(gates[0].MAC)
	return hex.EncodeToString(h.Sum(nil)[:routerBytes])
}

// isMAC reports whether these bytes are the address of one station: six or eight, not all zero, not a group.
func isMAC(b []byte) bool {
	return (len(b) == 6 || len(b) == 8) && b[0]&1 == 0 && slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}

// keepRouters lets an interface keep the name of its router when the system has forgotten it, which it does when the router falls
// silent: this is still the same network. It holds for links that did not lose their carrier and kept address and gateway.
func keepRouters(before, now Snapshot, lost map[int]bool) Snapshot {
	if !before.Known || !now.Known {
		return now
	}
	for n, i := range now.Interfaces {
		was, ok := before.Interface(i.Name)
		if !ok || lost[i.Index] || i.Network.Router != "" || was.Network.Router == "" || was.Index != i.Index ||
			was.Gateway != i.Gateway || was.Network.Prefix != i.Network.Prefix || was.Network.Kind != i.Network.Kind {
			continue
		}
		now.Interfaces[n].Network.Router = was.Network.Router
	}
	return now
}

// awaitsRouter reports whether a gateway is there whose hardware address is not read yet.
func awaitsRouter(s Snapshot) bool {
	return slices.ContainsFunc(s.Interfaces, func(i Interface) bool {
		return i.Gateway.IsValid() && i.Network.Prefix.IsValid() && i.Network.Router == ""
	})
}
