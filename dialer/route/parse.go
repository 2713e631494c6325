package route

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrBadRoute is the class of every error of ParseRoute and ParseClass; the
// text after it says what would be right.
var ErrBadRoute = errors.New("route: bad route")

// ParseRoute reads a route as the config writes it, "class:host" or
// "class:host:port"; port stands in where none is written. An IPv6 address with
// a port is bracketed. The result is canonical: two spellings of one address
// have one ID, and ParseRoute(r.ID(), …) is r. Relay routes are refused.
func ParseRoute(text string, port uint16) (Route, error) {
	bad := func(format string, args ...any) (Route, error) {
		return Route{}, fmt.Errorf("%w %q: %s", ErrBadRoute, text, fmt.Sprintf(format, args...))
	}
	prefix, rest, ok := strings.Cut(text, ":")
	if !ok {
		return bad("write it as class:host or class:host:port, as in lan:192.168.1.20")
	}
	class, err := ParseClass(prefix)
	if err != nil {
		return bad("it must start with lan:, tailnet: or direct:")
	}
	if class == Relay {
		return bad("relay routes are not supported")
	}
	host, written, err := splitPort(rest)
	if err != nil {
		return bad("%v", err)
	}
	if written != "" {
		// netip's own reading of a port, so that no second one exists here.
		ap, err := netip.ParseAddrPort("0.0.0.0:" + written)
		if err != nil {
			return bad("port %q is not a number from 1 to 65535", written)
		}
		port = ap.Port()
	}
	if port == 0 {
		return bad("the port must be from 1 to 65535")
	}
	address, err := canonical(host, port)
	if err != nil {
		return bad("%v", err)
	}
	return Route{Class: class, Address: address, Source: Configured}, nil
}

// ParsePlain reads a route of a peer without an agent, "class:host": each
// connection brings its own port, so the address is the host alone, and a port
// is refused. ParsePlain(r.ID()) is r.
func ParsePlain(text string) (Route, error) {
	r, err := ParseRoute(text, 1)
	if err != nil {
		return Route{}, err
	}
	_, rest, _ := strings.Cut(text, ":")
	if _, port, _ := splitPort(rest); port != "" {
		return Route{}, fmt.Errorf("%w %q: no port belongs there: each connection brings its own", ErrBadRoute, text)
	}
	r.Address = r.host()
	return r, nil
}

// splitPort cuts host[:port]; port is empty when none is written.
func splitPort(text string) (host, port string, err error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		host, after, ok := strings.Cut(inner, "]")
		if !ok {
			return "", "", errors.New("the bracket is not closed")
		}
		if !strings.Contains(host, ":") {
			return "", "", errors.New("brackets are for IPv6 addresses only")
		}
		if after == "" {
			return host, "", nil
		}
		port, ok := strings.CutPrefix(after, ":")
		if !ok || port == "" {
			return "", "", errors.New("after the bracket comes a colon and a port, or nothing")
		}
		return host, port, nil
	}
	if strings.Count(text, ":") > 1 {
		return text, "", nil // an IPv6 address without a port
	}
	host, port, ok := strings.Cut(text, ":")
	if ok && port == "" {
		return "", "", errors.New("a port must follow the colon")
	}
	return host, port, nil
}

// canonical joins a checked host and a port.
func canonical(host string, port uint16) (string, error) {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		if err := checkName(host); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s:%d", host, port), nil
	}
	addr = addr.Unmap()
	if addr.IsUnspecified() || addr.IsMulticast() {
		return "", fmt.Errorf("%s is not the address of one machine", addr)
	}
	if strings.ContainsFunc(addr.Zone(), notNameRune) {
		return "", fmt.Errorf("%q is not the name of an interface", addr.Zone())
	}
	return netip.AddrPortFrom(addr, port).String(), nil
}

// checkName refuses what no resolver can answer and what only looks like an
// address (RFC 1123 section 2.1: a name's last label is not numeric).
func checkName(name string) error {
	if name == "" || len(name) > 253 {
		return errors.New("a host has 1 to 253 characters")
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notNameRune) {
			return fmt.Errorf("%q is neither an address nor a host name (letters, digits, - and _ between dots)", name)
		}
		last = label
	}
	if last[0] >= '0' && last[0] <= '9' {
		return fmt.Errorf("%q is neither an address nor a host name (its last part starts with a digit)", name)
	}
	return nil
}

func notNameRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

var (
	carrierNAT = netip.MustParsePrefix("100.64.0.0/10")       // RFC 6598; a tailnet's IPv4 addresses
	tailnetULA = netip.MustParsePrefix("fd7a:115c:a1e0::/48") // a tailnet's IPv6 addresses
)

// ClassOf is the class an address or name has by itself. Tailnet ranges are a
// tailnet's only while this machine has one; without, 100.64.0.0/10 is some
// provider's NAT.
func ClassOf(host string, hasTailnet bool) Class {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		switch {
		case strings.HasSuffix(name, ".ts.net"):
			return Tailnet
		case strings.HasSuffix(name, ".local"), isLocalhost(name):
			return LAN
		default:
			return Direct
		}
	}
	addr = addr.Unmap().WithZone("") // a prefix contains no zoned address
	switch {
	case hasTailnet && (carrierNAT.Contains(addr) || tailnetULA.Contains(addr)):
		return Tailnet
	case addr.IsPrivate(), addr.IsLinkLocalUnicast(), addr.IsLoopback():
		return LAN
	default:
		return Direct
	}
}

// isLocalhost reports whether a name is this machine's own (RFC 6761 section 6.3).
func isLocalhost(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// classOfID is the class that the ID of a route begins with.
func classOfID(id string) (Class, error) {
	class, _, _ := strings.Cut(id, ":")
	return ParseClass(class)
}
