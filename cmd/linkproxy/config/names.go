package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// InternalDomain is the domain under which every peer has a name of its own:
// devbox.linkproxy.internal. ".internal" is reserved for private use, so the
// name never belongs to anybody else.
const InternalDomain = "linkproxy.internal"

// ownHost is the host of a target that is the peer itself.
const ownHost = "127.0.0.1"

// To is where something is connected: the target, seen from a peer.
type To struct {
	Peer        string // the peer's name
	Host        string // as the peer sees it; "127.0.0.1" when only a port was given
	First, Last int    // the ports; equal for a single one
}

// Count is the number of ports.
func (t To) Count() int { return t.Last - t.First + 1 }

// Target returns "host:port" for the i-th port, counted from 0.
func (t To) Target(i int) string { return net.JoinHostPort(t.Host, strconv.Itoa(t.First+i)) }

// ParseTo reads what a forward's `to` and `linkproxy connect` take:
// "devbox:5432", "devbox.linkproxy.internal:22", "devbox/db.internal:5432",
// "devbox/[fd00::1]:5432", with a range "3000-3010" for the port. Whether the
// peer exists is for the caller to see. Its error is a Problem.
func ParseTo(s string) (To, error) {
	peer, rest, other := strings.Cut(s, "/")
	if !other {
		rest = s
	}
	host, port, err := splitPort(rest, fallbackExample(s, other))
	if err != nil {
		return To{}, err
	}
	t := To{Host: ownHost}
	if !other {
		peer = host
	} else if t.Host, err = parseHost(host); err != nil {
		return To{}, err
	} else if strings.Contains(t.Host, "%") {
		return To{}, wrong("leave the % and what follows out, or use another address", "%q names an interface of the peer", host)
	}
	if t.Peer, err = parsePeer(peer, rest); err != nil {
		return To{}, err
	}
	p, err := parsePorts(port)
	if err == nil && p.first == 0 {
		err = wrong("a port is a number from 1 to 65535", "%q has no usable port", s)
	}
	if err != nil {
		return To{}, err
	}
	t.First, t.Last = p.first, p.last
	return t, nil
}

// CheckTarget tells whether s, given to `linkproxy connect`, is a target at all: what ParseTo takes with one port, or a name or
// address with one. Its error is a Problem.
func CheckTarget(s string) error {
	to, err := ParseTo(s)
	switch {
	case err == nil && to.Count() > 1:
		return wrong("write one port", "%q is a range of ports", s)
	case err == nil:
		return nil
	}
	if _, _, ok := splitDest(s); ok && !strings.Contains(s, "/") {
		return nil
	}
	return err
}

// fallbackExample builds the right form out of what was written, where that
// can be done.
func fallbackExample(s string, other bool) string {
	if CheckPeerName(foldName(s)) == nil {
		return foldName(s) + ":22"
	}
	if other {
		return "devbox/db.internal:5432"
	}
	return "devbox:5432"
}

// parsePeer reads a peer's name in any of its spellings.
func parsePeer(s, rest string) (string, error) {
	name := strings.TrimSuffix(foldName(s), "."+InternalDomain)
	err := CheckPeerName(name)
	if err == nil {
		return name, nil
	}
	if _, ip := parseIP(name); ip || isName(name) {
		return "", wrong(fmt.Sprintf("write PEER/%s with the name of the peer that dials it", rest), "%q is not the name of a peer", s)
	}
	return "", err
}

// TargetError says why a destination that an app asked for leads nowhere.
type TargetError struct {
	Target string // as the app wrote it
	Msg    string // a sentence for the user
	reason string
}

// Error is a sentence that can be shown to the user.
func (e *TargetError) Error() string { return e.Msg }

// Reason is "not_found" (it is no destination at all), "unknown_peer", or
// "not_allowed" (nothing covers it and default = "refuse").
func (e *TargetError) Reason() string { return e.reason }

// Names answers which way a destination goes. It is immutable, so that a
// reload replaces it as a whole. The zero value knows no peer and refuses
// nothing.
type Names struct {
	peers    map[string]bool
	bare     map[string]bool   // peers without an agent
	exact    map[string]string // name -> peer
	below    map[string]string // "*.corp.example.com" as "corp.example.com" -> peer; "" is "*"
	networks []network         // longest prefix first, then config order
	refuse   bool
}

type network struct {
	prefix netip.Prefix
	peer   string
}

// Names prepares the config's peers, their reach rules and its default.
func (c *Config) Names() *Names {
	n := &Names{
		peers: map[string]bool{}, bare: map[string]bool{}, exact: map[string]string{}, below: map[string]string{},
		refuse: c.Default == DefaultRefuse,
	}
	for _, p := range c.Peers {
		n.peers[p.Name] = true
		if p.NoAgent {
			n.bare[p.Name] = true
		}
		for _, rule := range p.Reach {
			n.add(rule, p.Name)
		}
	}
	slices.SortStableFunc(n.networks, func(a, b network) int { return b.prefix.Bits() - a.prefix.Bits() })
	return n
}

// add enters a valid rule; of two equal ones the first in the config rules.
func (n *Names) add(rule, peer string) {
	r, err := parseReach(rule)
	if err != nil {
		return // a Config from Parse has none
	}
	switch {
	case r.prefix.IsValid():
		n.networks = append(n.networks, network{r.prefix, peer})
	case r.below:
		if _, taken := n.below[r.name]; !taken {
			n.below[r.name] = peer
		}
	default:
		if _, taken := n.exact[r.name]; !taken {
			n.exact[r.name] = peer
		}
	}
}

// reach is one parsed reach rule.
type reach struct {
	prefix netip.Prefix // of an address rule
	name   string       // of a name rule, folded
	below  bool         // every name under name; all names when that is ""
}

// String is the rule's one spelling.
func (r reach) String() string {
	switch {
	case r.prefix.IsValid() && r.prefix.IsSingleIP():
		return r.prefix.Addr().String()
	case r.prefix.IsValid():
		return r.prefix.String()
	case r.below && r.name == "":
		return "*"
	case r.below:
		return "*." + r.name
	}
	return r.name
}

// parseReach reads "10.20.0.0/16", "10.20.1.1", "git.corp.example.com",
// "*.corp.example.com" (every name below, not the domain itself) or "*".
func parseReach(s string) (reach, error) {
	if strings.Contains(s, "/") {
		p, err := parsePrefix(s)
		return reach{prefix: p}, err
	}
	if ip, ok := parseIP(s); ok && ip.Zone() == "" {
		return reach{prefix: netip.PrefixFrom(ip, ip.BitLen())}, nil
	}
	if s == "*" {
		return reach{below: true}, nil
	}
	rest, below := strings.CutPrefix(s, "*.")
	name := foldName(rest)
	switch {
	case !isName(name):
		return reach{}, wrong(`write a network ("10.20.0.0/16"), a name or "*.corp.example.com", without a port`, "%q is no address or name", s)
	case name == InternalDomain || strings.HasSuffix(name, "."+InternalDomain):
		return reach{}, wrong("remove it", "names under %s always mean the peers themselves", InternalDomain)
	}
	return reach{name: name, below: below}, nil
}

// Resolve says where a destination "host:port" of an app goes.
//
// A peer's name ("devbox", "devbox.linkproxy.internal") leads to that peer,
// with target 127.0.0.1:port. What a peer's reach covers leads to that peer
// with the host as the app wrote it; the most specific rule wins (an exact
// name, then the longest suffix; the longest prefix), of equal ones the first
// in the config. To a peer with agent = false its rules are other names of its
// own: the target is 127.0.0.1:port again. This machine's own names and addresses (localhost, loopback,
// 0.0.0.0) are covered only by a rule that names them. All else is direct: to
// be dialled from this machine, target being what the app wrote. Upper case, a
// trailing dot and IPv4-mapped IPv6 make no difference.
//
// No name is looked up. The error is a *TargetError.
func (n *Names) Resolve(dest string) (peer, target string, direct bool, err error) {
	host, port, ok := splitDest(dest)
	if !ok {
		return "", "", false, &TargetError{dest, fmt.Sprintf("%q is not a destination: it takes a host and a port from 1 to 65535", dest), "not_found"}
	}
	if ip, isIP := parseIP(host); isIP {
		host = ip.String()
		peer = n.network(ip)
	} else {
		name := foldName(host)
		label, internal := strings.CutSuffix(name, "."+InternalDomain)
		switch {
		case n.peers[label]: // label is name where the suffix is missing
			return label, net.JoinHostPort(ownHost, port), false, nil
		case internal || name == InternalDomain:
			return "", "", false, &TargetError{dest, fmt.Sprintf("%q is not a peer of this machine; `linkproxy peers` lists them", host), "unknown_peer"}
		}
		peer = n.name(name)
	}
	target = net.JoinHostPort(host, port)
	if n.bare[peer] {
		target = net.JoinHostPort(ownHost, port) // a reach rule of such a peer is another name of its own
	}
	switch {
	case peer != "":
		return peer, target, false, nil
	case n.refuse:
		return "", "", false, &TargetError{dest, fmt.Sprintf("%q is no peer, no reach rule covers it, and the config says default = \"refuse\"", host), "not_allowed"}
	}
	return "", target, true, nil
}

// network returns the peer whose reach covers an address, or "".
func (n *Names) network(ip netip.Addr) string {
	own := ip.IsLoopback() || ip.IsUnspecified()
	for _, w := range n.networks {
		// Contains is false for an address with a zone: that is on a link of
		// this machine's own.
		if w.prefix.Contains(ip) && (!own || w.prefix.Addr().IsLoopback() || w.prefix.IsSingleIP()) {
			return w.peer
		}
	}
	return ""
}

// name returns the peer whose reach covers a folded name, or "".
func (n *Names) name(name string) string {
	if p, ok := n.exact[name]; ok {
		return p
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761 section 6.3
		return ""
	}
	for rest := name; ; {
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			return n.below[""]
		}
		if p, ok := n.below[after]; ok && after != "" {
			return p
		}
		rest = after
	}
}

// splitDest splits what an app asked for; an odd name passes, as it is for the
// resolver to judge, but nothing that could not be one.
func splitDest(s string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.TrimSuffix(host, ".") == "" || len(host) > 255 {
		return "", "", false
	}
	for i := range len(host) {
		if host[i] <= ' ' || host[i] == 0x7f {
			return "", "", false
		}
	}
	n, err := parsePort(port)
	return host, strconv.Itoa(n), err == nil && n > 0
}
