package host

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Rule allows some targets. The zero Rule allows none; [ParseRule] makes others.
type Rule struct {
	Hold time.Duration // how long streams to these targets survive without a carrier; 0 = the host's default

	host   string         // as written in canonical form, for String
	nets   []netip.Prefix // an address rule: IPv4 or IPv6, never mapped
	name   string         // a name rule: "db.internal", or ".corp.example.com" for every name below it
	lo, hi uint16         // ports, both included
}

// loopback is what the address 127.0.0.1 in a rule, the name localhost and a bare port mean. Other addresses of
// 127.0.0.0/8 need a rule of their own.
var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// ParseRule reads host:ports. The host is an IPv4 address, an IPv6 address in brackets, a network (10.20.0.0/16,
// [fd00::/8]), a name, or *. and a name, which covers every name below it. 127.0.0.1 and localhost cover ::1 as well. The
// ports are a port, a range (8000-8100) or *. Ports alone mean those of 127.0.0.1.
func ParseRule(s string) (Rule, error) {
	r, err := parseRule(s)
	if err != nil {
		return Rule{}, fmt.Errorf("host: reading allow rule %q: %w", s, err)
	}
	return r, nil
}

func parseRule(s string) (Rule, error) {
	host, ports, err := splitHostPort(s)
	if err != nil {
		return Rule{}, err
	}
	var r Rule
	if r.lo, r.hi, err = parsePorts(ports); err != nil {
		return Rule{}, err
	}
	switch {
	case strings.Contains(host, "/"):
		err = r.setNetwork(host)
	case strings.HasPrefix(host, "*."):
		err = r.setBelow(host[2:])
	case host == "*":
		err = errors.New(`"*" says too little: write 0.0.0.0/0 and [::/0] for every address, *.example.com for names`)
	default:
		err = r.setPlace(host)
	}
	return r, err
}

func (r *Rule) setNetwork(host string) error {
	p, err := netip.ParsePrefix(host)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no network: write it like 10.20.0.0/16 or [fd00::/8]", host)
	case p.Addr().Is4In6():
		return fmt.Errorf("%q is IPv4 written as IPv6: write it as IPv4", host)
	case p != p.Masked():
		return fmt.Errorf("%q has bits beyond its length: write %s", host, p.Masked())
	}
	r.nets, r.host = []netip.Prefix{p}, p.String()
	if p.Addr().Is6() {
		r.host = "[" + r.host + "]"
	}
	return nil
}

func (r *Rule) setBelow(domain string) error {
	p, err := parsePlace(domain)
	if err != nil {
		return err
	}
	if p.name == "" {
		return fmt.Errorf("%q is an address: \"*.\" goes before names only", domain)
	}
	r.name, r.host = "."+p.name, "*."+p.name
	return nil
}

func (r *Rule) setPlace(host string) error {
	p, err := parsePlace(host)
	if err != nil {
		return err
	}
	if p.name != "" {
		r.name, r.host = p.name, p.name
		return nil
	}
	if p.addrs[0] == loopback[0] {
		p.addrs = loopback
	}
	for _, a := range p.addrs {
		r.nets = append(r.nets, netip.PrefixFrom(a, a.BitLen()))
	}
	r.host = bracketed(p.addrs[0])
	return nil
}

// String is the rule in canonical form; ParseRule reads it back.
func (r Rule) String() string {
	switch {
	case r.lo == 1 && r.hi == 65535:
		return r.host + ":*"
	case r.lo == r.hi:
		return r.host + ":" + strconv.Itoa(int(r.lo))
	}
	return fmt.Sprintf("%s:%d-%d", r.host, r.lo, r.hi)
}

// toml is the rule as an element of allow in the config.
func (r Rule) toml() string {
	if r.Hold == 0 {
		return strconv.Quote(r.String())
	}
	return fmt.Sprintf("{ to = %q, hold = %q }", r.String(), r.Hold)
}

func (r Rule) port(p uint16) bool { return r.lo <= p && p <= r.hi }

// address says whether the rule is an address rule for a.
func (r Rule) address(a netip.Addr) bool {
	for _, n := range r.nets {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// named says whether the rule is a name rule for name, in canonical form.
func (r Rule) named(name string) bool {
	switch {
	case r.name == "" || name == "":
		return false
	case r.name[0] == '.':
		return strings.HasSuffix(name, r.name)
	}
	return name == r.name
}

// place is a host in canonical form: literal addresses, or a name to resolve.
type place struct {
	addrs []netip.Addr
	name  string
}

// maxName is the longest host name in text form (RFC 1035 section 2.3.4: 255 octets on the wire).
const (
	maxName  = 253
	maxLabel = 63
)

// parsePlace reads a host without brackets. What Go's netip and resolvers agree on becomes canonical; what only some
// resolvers take for an address (octal, hexadecimal, short and decimal IPv4, as inet_aton reads them) is refused, and so
// is what could only be dialled by way of an interface (zones) or means this machine by accident (0.0.0.0).
func parsePlace(host string) (place, error) {
	if strings.Contains(host, "%") {
		return place{}, fmt.Errorf("%q names an interface: linkproxy dials no zoned addresses", host)
	}
	name := strings.ToLower(host)
	if !strings.Contains(name, ":") {
		name = strings.TrimSuffix(name, ".") // the root, RFC 1034 section 3.1
	}
	if a, err := netip.ParseAddr(name); err == nil {
		if a = a.Unmap(); !diallable(a) {
			return place{}, fmt.Errorf("%q is no address of one machine: write 127.0.0.1 for the host itself", host)
		}
		return place{addrs: []netip.Addr{a}}, nil
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761 section 6.3
		return place{addrs: loopback}, checkName(name)
	}
	return place{name: name}, checkName(name)
}

// checkName wants letters, digits, hyphens and underscores in labels of 1 to 63, and no number at the end.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a host name has 1 to %d characters", maxName)
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if err := checkLabel(l); err != nil {
			return fmt.Errorf("%q is no host name: %w", name, err)
		}
	}
	last := labels[len(labels)-1]
	if digits(last) || strings.HasPrefix(last, "0x") {
		return fmt.Errorf("%q looks like a number: write an IPv4 address as four decimal numbers, like 127.0.0.1", name)
	}
	return nil
}

func checkLabel(l string) error {
	if l == "" || len(l) > maxLabel || l[0] == '-' || l[len(l)-1] == '-' {
		return fmt.Errorf("a label has 1 to %d characters and no hyphen at its ends", maxLabel)
	}
	for _, c := range []byte(l) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c >= 0x80:
			return errors.New("write a name beyond ASCII in its xn-- form")
		default:
			return fmt.Errorf("it contains %q", c)
		}
	}
	return nil
}

// splitHostPort splits at the last colon and takes the brackets of IPv6 off; ports alone are those of 127.0.0.1.
func splitHostPort(s string) (host, ports string, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		if s == "" || strings.Trim(s, "0123456789-*") != "" {
			return "", "", errors.New("it has no port: write host:port")
		}
		return "127.0.0.1", s, nil
	}
	host, ports = s[:i], s[i+1:]
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if bracketed {
		host = host[1 : len(host)-1]
	}
	colons := strings.Contains(host, ":")
	switch {
	case host == "" && bracketed:
		return "", "", errors.New("the brackets are empty")
	case host == "":
		host = "127.0.0.1"
	case bracketed != colons:
		return "", "", errors.New("an IPv6 address, and nothing else, goes in brackets: [::1]:22")
	}
	return host, ports, nil
}

// parsePorts reads "*", a port or a range.
func parsePorts(s string) (lo, hi uint16, err error) {
	if s == "*" {
		return 1, 65535, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if lo, err = parsePort(from); err != nil || !isRange {
		return lo, lo, err
	}
	if hi, err = parsePort(to); err == nil && hi < lo {
		err = fmt.Errorf("the range %s ends before it begins", s)
	}
	return lo, hi, err
}

// parsePort reads a decimal number from 1 to 65535 without sign or leading zero.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || !digits(s) || s[0] == '0' {
		return 0, fmt.Errorf("port %q is no number from 1 to 65535", s)
	}
	return uint16(n), nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// bracketed is a as the host part of host:port.
func bracketed(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
