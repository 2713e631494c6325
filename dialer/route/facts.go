package route

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Kind is what an interface of this machine is. The zero Kind is unknown.
type Kind uint8

// The kinds.
const (
	Wired Kind = iota + 1
	WiFi
	Cell
	Tunnel    // a VPN's or a tailnet's
	Loopback  //
	OtherKind // it exists, but nobody says what it is
)

var kindNames = [...]string{"unknown", "wired", "wifi", "cell", "tunnel", "loopback", "other"}

// String is the kind as it is written on disk and in every output.
func (k Kind) String() string { return nameOf(kindNames[:], int(k), "kind") }

// ParseKind reads a kind as String writes it, in any case.
func ParseKind(text string) (Kind, error) {
	for k := Wired; k <= OtherKind; k++ {
		if strings.EqualFold(text, k.String()) {
			return k, nil
		}
	}
	return 0, fmt.Errorf("route: kind %q is none of %s", text, strings.Join(kindNames[1:], ", "))
}

// Network is where this machine is, by what one of its interfaces shows of it.
// It is comparable; the zero Network is unknown, and about that nothing is
// stored or looked up.
type Network struct {
	Kind   Kind
	Prefix netip.Prefix // own IPv4 /24, else the on-link IPv6 /64; none on Cell
	Router string       // a keyed hash of the router's hardware address, hex; "": not read
}

// Known reports whether the network can be told from others, so that something
// may be remembered about it.
func (n Network) Known() bool {
	switch n.Kind {
	case Wired, WiFi:
		return n.Prefix.IsValid()
	default:
		return n.Kind == Cell
	}
}

// String is the network as shown to the user: "wifi 192.168.1.0/24, router 5f3a".
func (n Network) String() string {
	if !n.Known() {
		return "an unknown network"
	}
	text := n.Kind.String()
	if n.Prefix.IsValid() {
		text += " " + n.Prefix.String()
	}
	if n.Router != "" {
		text += ", router " + n.Router[:min(4, len(n.Router))]
	}
	return text
}

// Interface is one usable interface of this machine.
type Interface struct {
	Name    string
	Kind    Kind
	Addrs   []netip.Prefix // its own addresses, each with its prefix length
	Metered bool           // the system says that bytes cost money
	Default bool           // it has a default route
	Network Network        // zero: unknown
}

// Path is this machine's way into the world at one time. A Path without
// interfaces is unknown: nothing is held against a route because of it.
type Path struct {
	Interfaces []Interface
	Tailnet    bool // this machine has a tailnet interface with an address
}

// Facts are what a ranking rests on.
type Facts struct {
	Now    time.Time
	Routes []Route // vetted by Vet, in configured order; nothing is added to them
	Path   Path
	Memory Memory
	// Seen says since when a route, by ID, is seen live on a network this machine
	// is on. An expired sighting is not in it.
	Seen map[string]time.Time
	// TailnetKnows: the tailnet's daemon on this machine knows the peer, which is
	// as good as a tailnet interface.
	TailnetKnows bool
	// Relayed holds the tailnet routes, by ID, whose path is relayed now and has
	// been so RelayedAfter after traffic began.
	Relayed map[string]bool
}

// RelayedAfter is how long after its first traffic a tailnet path must still be
// relayed to be taken for a relay: every idle peer starts relayed, and finding
// the direct way takes a few seconds.
const RelayedAfter = 10 * time.Second
