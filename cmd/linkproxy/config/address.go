package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"linkproxy/host"
)

const (
	// DefaultPort is where `linkproxy host` listens and what a route without a
	// port means. The IANA registry has nothing assigned at 8616-8664, and it is
	// below every system's ephemeral range (Linux from 32768, FreeBSD from
	// 10000), so that no outgoing connection can sit on it before host starts.
	DefaultPort = 8639

	// maxRange bounds the ports of one [[forward]]: each is a listening socket,
	// and 1024 is what a process may open on many systems.
	maxRange = 512

	// maxUnixPath is the longest Unix socket path that works everywhere:
	// sun_path has 104 bytes on macOS, 108 on Linux, with the final zero.
	maxUnixPath = 103

	unixPrefix = "unix:"
)

// ports is an inclusive range; one port when both are equal.
type ports struct{ first, last int }

func (p ports) count() int { return p.last - p.first + 1 }

// parsePort reads one port, digits only (strconv would take "+80").
func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] == '+' {
		return 0, wrong("a port is a number from 1 to 65535", "%q is not a port", s)
	}
	return int(n), nil
}

// parsePorts reads "5432" or "3000-3010".
func parsePorts(s string) (ports, error) {
	first, last, isRange := strings.Cut(s, "-")
	lo, err := parsePort(first)
	if err != nil || !isRange {
		return ports{lo, lo}, err
	}
	hi, err := parsePort(last)
	if err != nil {
		return ports{}, err
	}
	p := ports{lo, hi}
	switch {
	case lo == 0 || hi < lo:
		return ports{}, wrong(`write the lower port first, like "3000-3010"`, "%q is not a range of ports", s)
	case p.count() > maxRange:
		return ports{}, wrong(fmt.Sprintf("use at most %d ports in one range", maxRange), "%q has %d ports", s, p.count())
	}
	return p, nil
}

// splitPort splits "host:port"; example shows the right form.
func splitPort(s, example string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(s)
	if err == nil && port != "" {
		return host, port, nil
	}
	if strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
		return "", "", wrong(fmt.Sprintf(`write it like "[fd00::1]:%d"`, DefaultPort), "%q: an IPv6 address needs brackets before its port", s)
	}
	return "", "", wrong("write it like "+strconv.Quote(example), "%q has no port", s)
}

// foldName gives a name the one spelling it is compared by: lower case, no
// trailing dot.
func foldName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// parseIP reads an address literal; an IPv4 address in IPv6 dress is IPv4.
func parseIP(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !plainZone(a.Zone()) {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// plainZone tells whether an IPv6 zone is empty or made of what interface
// names are made of.
func plainZone(z string) bool {
	return strings.Trim(z, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// isName tells whether a folded name can be looked up in the DNS (RFC 1123
// section 2.1, with the underscore that is common in practice). A name that
// ends in a number is none: resolvers read "127.1" and "0x7f.1" as addresses.
func isName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !isLabel(l, "_") {
			return false
		}
	}
	return !numeric(labels[len(labels)-1])
}

// isLabel checks one label of a folded name; extra are bytes allowed besides
// letters, digits and inner hyphens.
func isLabel(l, extra string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	return strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-"+extra) == ""
}

// numeric tells whether resolvers may take a label for a number: decimal, or
// 0x and hexadecimal digits.
func numeric(l string) bool {
	if h, ok := strings.CutPrefix(l, "0x"); ok {
		return strings.Trim(h, "0123456789abcdef") == ""
	}
	return strings.Trim(l, "0123456789") == ""
}

// parseHost checks a host that will be dialled and returns it in one spelling.
func parseHost(s string) (string, error) {
	if ip, ok := parseIP(s); ok {
		if ip.IsUnspecified() {
			return "", wrong("name one address", "%q is no address to connect to", s)
		}
		return ip.String(), nil
	}
	if name := foldName(s); isName(name) {
		return name, nil
	}
	return "", wrong("write an IP address or a host name", "%q is no host", s)
}

// CheckPeerName tells whether a peer can have this name: one DNS label in
// lower case (letters, digits, inner hyphens, at most 63) that cannot be taken
// for a number or for this machine.
func CheckPeerName(name string) error {
	fix := `use lower-case letters, digits and hyphens, like "devbox"`
	switch {
	case name == "":
		return wrong(fix, "a peer needs a name")
	case name == "localhost":
		return wrong(`choose another name`, `"localhost" always means this machine`)
	case isLabel(name, "") && !numeric(name):
		return nil
	case isLabel(foldName(name), "") && !numeric(foldName(name)):
		return wrong("write "+strconv.Quote(foldName(name)), "%q is not a valid peer name", name)
	}
	return wrong(fix, "%q is not a valid peer name", name)
}

// endpoint is a listening address being checked.
type endpoint struct {
	unix  string // absolute path; the rest is then unused
	host  string // IP literal, "localhost", or "" for every address
	ports ports
}

// parseEndpoint reads a listening address: "127.0.0.1:1080", "localhost:1080",
// "[::1]:1080", ":1080", "unix:/path", with a range of ports where one may be.
func parseEndpoint(s string) (endpoint, error) {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		switch {
		case !filepath.IsAbs(path):
			return endpoint{}, wrong("write the whole path, from the root on", "%q is not an absolute path", path)
		case len(path) > maxUnixPath:
			return endpoint{}, wrong("choose a shorter path", "the path of a Unix socket may have %d bytes, this one has %d", maxUnixPath, len(path))
		case strings.ContainsRune(path, 0):
			return endpoint{}, wrong("choose another path", "%q has a zero byte", path)
		}
		return endpoint{unix: filepath.Clean(path)}, nil
	}
	host, port, err := splitPort(s, "127.0.0.1:1080")
	if err != nil {
		return endpoint{}, err
	}
	e := endpoint{}
	if e.ports, err = parsePorts(port); err != nil {
		return endpoint{}, err
	}
	ip, isIP := parseIP(host)
	switch {
	case isIP:
		e.host = ip.String()
	case host == "" || host == "*":
	case foldName(host) == "localhost":
		e.host = "localhost"
	default:
		return endpoint{}, wrong(`write an IP address of this machine or "localhost"`, "%q is no address to listen on", host)
	}
	return e, nil
}

// address is the i-th listening address in the form Config holds.
func (e endpoint) address(i int) string {
	if e.unix != "" {
		return unixPrefix + e.unix
	}
	return net.JoinHostPort(e.host, strconv.Itoa(e.ports.first+i))
}

func (e endpoint) count() int {
	if e.unix != "" {
		return 1
	}
	return e.ports.count()
}

// remote tells whether other machines can connect to it.
func (e endpoint) remote() bool {
	if e.unix != "" || e.host == "localhost" {
		return false
	}
	ip, ok := parseIP(e.host)
	return !ok || !ip.IsLoopback()
}

// overlaps tells whether both cannot listen at once. Port 0 never collides.
func (e endpoint) overlaps(o endpoint) bool {
	if e.unix != "" || o.unix != "" {
		return e.unix == o.unix
	}
	if e.ports.first == 0 || o.ports.first == 0 || e.ports.last < o.ports.first || o.ports.last < e.ports.first {
		return false
	}
	for _, a := range e.binds() {
		for _, b := range o.binds() {
			if a == b || a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified()) {
				return true
			}
		}
	}
	return false
}

// binds lists the addresses the endpoint takes. net.Listen opens "0.0.0.0" and
// "::" alike for both families.
func (e endpoint) binds() []netip.Addr {
	switch e.host {
	case "localhost":
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	ip, ok := parseIP(e.host)
	if !ok || ip.IsUnspecified() {
		return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	return []netip.Addr{ip}
}

// SplitListen turns a listening address of Config into what net.Listen takes:
// "unix" and a path, or "tcp" and host:port. The host "localhost" means both
// loopback addresses; net.Listen would take only one.
func SplitListen(address string) (network, addr string) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return "unix", path
	}
	return "tcp", address
}

// Route is one configured way to reach a peer.
type Route struct {
	Class   string // "lan", "tailnet" or "direct"
	Address string // host:port; the host is a name in lower case or an IP, with a zone where it needs one
}

// ParseRoute reads "CLASS:HOST" or "CLASS:HOST:PORT", like
// "lan:192.168.1.20", "direct:devbox.example.com:7000" or
// "lan:[fe80::1%eth0]:7000". Without a port it means DefaultPort.
func ParseRoute(s string) (Route, error) {
	class, rest, colon := strings.Cut(s, ":")
	switch {
	case class == "relay":
		return Route{}, wrong("remove it", "relay routes are not in this version")
	case class != "lan" && class != "tailnet" && class != "direct":
		if near := nearest(class, []string{"lan", "tailnet", "direct"}); colon && near != "" {
			return Route{}, wrong("write "+strconv.Quote(near+":"+rest), "%q is no class of route", class)
		}
		return Route{}, wrong(`put "lan:", "tailnet:" or "direct:" before the address`, "%q does not begin with a class of route", s)
	}
	host, port := rest, strconv.Itoa(DefaultPort)
	if inner, ok := strings.CutPrefix(rest, "["); ok && strings.HasSuffix(inner, "]") {
		host = inner[:len(inner)-1]
	} else if _, bare := parseIP(rest); !bare && strings.Contains(rest, ":") {
		var err error
		if host, port, err = splitPort(rest, "192.168.1.20:7000"); err != nil {
			return Route{}, err
		}
	}
	host, err := parseHost(host)
	if err != nil {
		return Route{}, err
	}
	n, err := parsePort(port)
	if err == nil && n == 0 {
		err = wrong("a port is a number from 1 to 65535", "%q has no usable port", s)
	}
	return Route{Class: class, Address: net.JoinHostPort(host, strconv.Itoa(n))}, err
}

// String writes a route the way ParseRoute reads it, without the default port.
func (r Route) String() string {
	if host, port, err := net.SplitHostPort(r.Address); err == nil && port == strconv.Itoa(DefaultPort) {
		return r.Class + ":" + host
	}
	return r.Class + ":" + r.Address
}

// host is the address without its port.
func (r Route) host() string {
	host, _, _ := net.SplitHostPort(r.Address) // a parsed one has a port
	return host
}

// hasPort tells whether a valid route says a port.
func hasPort(s string) bool {
	_, rest, _ := strings.Cut(s, ":")
	_, _, err := net.SplitHostPort(rest)
	return err == nil
}

// checkAllow brings an allow rule of [host] into its one spelling.
func checkAllow(s string) (string, error) {
	rule, err := host.ParseRule(s)
	if err == nil {
		return rule.String(), nil
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // without "host: reading allow rule", which the key says
	}
	return "", wrong(`write it like "127.0.0.1:5432", "10.20.0.0/16:*" or "*.corp.example.com:443"`, "%q is not an allow rule: %v", s, err)
}

// parsePrefix reads a network; IPv4 in IPv6 dress is IPv4. Bits beyond the
// prefix are refused: they show that another network may be meant.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, wrong(`write a network like "10.20.0.0/16" or "fd00::/8"`, "%q is no network", s)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return p, wrong(fmt.Sprintf("write %q, or %q for the one address", p.Masked(), p.Addr()), "%q has bits set beyond its prefix", s)
	}
	return p, nil
}
