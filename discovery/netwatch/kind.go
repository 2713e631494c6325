package netwatch

import (
	"fmt"
	"strings"
)

// Kind is what an interface is. The zero Kind is unknown.
type Kind uint8

// The kinds.
const (
	Wired Kind = iota + 1
	WiFi
	Cell
	Tunnel // a VPN's or a tailnet's
	Loopback
	Other // it exists, but nobody says what it is
)

var kindNames = [...]string{"unknown", "wired", "wifi", "cell", "tunnel", "loopback", "other"}

// String is the kind as it is written in config and output.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// ParseKind reads a kind as String writes it, in any case.
func ParseKind(text string) (Kind, error) {
	for k := Wired; k <= Other; k++ {
		if strings.EqualFold(text, k.String()) {
			return k, nil
		}
	}
	return 0, fmt.Errorf("netwatch: kind %q is none of %s", text, strings.Join(kindNames[1:], ", "))
}

// named are the names that systems and VPNs give to interfaces; the longest that fits decides. What is not listed is unknown:
// ppp0 may be a modem, a DSL line or a VPN.
var named = []struct {
	prefix  string
	kind    Kind
	virtual bool
}{
	{"lo", Loopback, false},
	{"wl", WiFi, false},
	{"wifi", WiFi, false},
	{"ath", WiFi, false},
	{"ww", Cell, false},
	{"rmnet", Cell, false},
	{"ccmni", Cell, false},
	{"pdp_ip", Cell, false},
	{"eth", Wired, false},
	{"en", Wired, false},
	{"em", Wired, false},
	{"tailscale", Tunnel, false},
	{"tun", Tunnel, false},
	{"tap", Tunnel, false},
	{"utun", Tunnel, false},
	{"wg", Tunnel, false},
	{"wt", Tunnel, false},
	{"ipsec", Tunnel, false},
	{"zt", Tunnel, false},
	{"nordlynx", Tunnel, false},
	{"proton", Tunnel, false},
	{"mullvad", Tunnel, false},
	{"cscotun", Tunnel, false},
	{"gpd", Tunnel, false},
	{"nebula", Tunnel, false},
	{"docker", Other, true},
	{"br-", Other, true},
	{"virbr", Other, true},
	{"veth", Other, true},
	{"vnet", Other, true},
	{"lxc", Other, true},
	{"lxd", Other, true},
	{"cni", Other, true},
	{"cali", Other, true},
	{"cilium", Other, true},
	{"flannel", Other, true},
	{"podman", Other, true},
	{"kube", Other, true},
	{"dummy", Other, true},
	{"ifb", Other, true},
	{"vmnet", Other, true},
	{"vboxnet", Other, true},
	{"bridge", Other, true},
	{"vEthernet", Other, true},
	{"awdl", Other, true},
	{"llw", Other, true},
	{"anpi", Other, true}, // Apple's own, peer to peer and to coprocessors
}

// byName is what the name of an interface says: its kind, and whether it is plumbing between programs of this machine.
func byName(name string) (k Kind, virtual bool) {
	best := 0
	for _, n := range named {
		rest, fits := strings.CutPrefix(name, n.prefix)
		if !fits || len(n.prefix) <= best || n.kind == Loopback && strings.Trim(rest, "0123456789") != "" {
			continue
		}
		best, k, virtual = len(n.prefix), n.kind, n.virtual
	}
	return k, virtual
}
