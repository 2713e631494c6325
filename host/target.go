package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// maxAddrs is how many addresses of one name are tried: more would not fit into the time of a dial.
const maxAddrs = 16

// listedRules is how many rules an error spells out.
const listedRules = 8

// Policy says which targets this host dials, and dials them. The zero value allows any port of 127.0.0.1 and ::1. It may
// be used by several goroutines, but not changed meanwhile.
type Policy struct {
	Allow []Rule // the first that matches rules; nil = 127.0.0.1:*, empty = nothing
	// Timeout bounds Dial, with the look-up; 0 = 10 s, negative = the context alone does.
	Timeout time.Duration

	// Resolve looks a name up; nil = the system's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Connect dials one IP:port; nil = a net.Dialer with plain TCP.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
	// Own lists the addresses of this machine; nil = those of its interfaces.
	Own func() ([]netip.Addr, error)
}

// Reasons of a [TargetError]; docs/wire.md has the same words on the wire.
const (
	reasonRefused     = "refused"
	reasonUnreachable = "unreachable"
	reasonNotFound    = "not_found"
	reasonNotAllowed  = "not_allowed"
	reasonTimeout     = "timeout"
	reasonBusy        = "busy"
)

// TargetError says why a target was not reached.
type TargetError struct {
	Target string // as it was asked for
	Err    error  // the cause; nil when a rule was missing
	reason string
	text   string
}

// Reason is "refused", "unreachable", "not_found", "not_allowed", "timeout" or "busy".
func (e *TargetError) Reason() string { return e.reason }

func (e *TargetError) Error() string {
	return fmt.Sprintf("host: dialling target %q: %s", e.Target, e.text)
}

func (e *TargetError) Unwrap() error { return e.Err }

// Judge returns the addresses that target may be dialled at, in the order of the resolver, and the first rule that
// allows one of them. A target is host:port or a port of 127.0.0.1; localhost is the host's own loopback and is not
// looked up. Whatever the target is called, an address passes only by a rule for that address, or by a rule for the name
// if it is no address of this machine or its link: a name of another's choosing must not lead here. The caller dials what
// is returned and never resolves the name again. Errors are *TargetError, or wrap the context's if it was cancelled.
func (p *Policy) Judge(ctx context.Context, target string) ([]netip.AddrPort, Rule, error) {
	where, port, err := parseTarget(target)
	if err != nil {
		return nil, Rule{}, &TargetError{target, err, reasonNotAllowed, err.Error()}
	}
	addrs := where.addrs
	if where.name != "" {
		if !p.mayAllow(where.name, port) {
			return nil, Rule{}, p.notAllowed(target, "", fmt.Sprintf("%s:%d", where.name, port))
		}
		if addrs, err = p.resolve(ctx, target, where.name); err != nil {
			return nil, Rule{}, err
		}
	}
	allowed, rule, err := p.pick(where.name, addrs, port)
	switch {
	case err != nil:
		return nil, Rule{}, &TargetError{target, err, reasonNotAllowed, err.Error()}
	case len(allowed) == 0:
		return nil, Rule{}, p.notAllowed(target, where.name, fmt.Sprintf("%s:%d", bracketed(addrs[0]), port))
	}
	return allowed, rule, nil
}

// parseTarget reads host:port or a port.
func parseTarget(s string) (place, uint16, error) {
	host, ports, err := splitHostPort(s)
	if err != nil {
		return place{}, 0, err
	}
	port, err := parsePort(ports)
	if err != nil {
		return place{}, 0, err
	}
	where, err := parsePlace(host)
	return where, port, err
}

var defaultAllow = []Rule{{
	host: "127.0.0.1",
	nets: []netip.Prefix{netip.PrefixFrom(loopback[0], 32), netip.PrefixFrom(loopback[1], 128)},
	lo:   1, hi: 65535,
}}

func (p *Policy) rules() []Rule {
	if p.Allow == nil {
		return defaultAllow
	}
	return p.Allow
}

// mayAllow says whether some address of name could pass: if not, the name is not even looked up.
func (p *Policy) mayAllow(name string, port uint16) bool {
	return slices.ContainsFunc(p.rules(), func(r Rule) bool {
		return r.port(port) && (r.nets != nil || r.named(name))
	})
}

// resolve looks name up and brings the addresses into canonical form, without those that cannot be dialled.
func (p *Policy) resolve(ctx context.Context, target, name string) ([]netip.Addr, error) {
	lookup := p.Resolve
	if lookup == nil {
		lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	found, err := lookup(ctx, name)
	if cancelled(ctx) {
		return nil, fmt.Errorf("host: looking up target %q: %w", target, context.Cause(ctx))
	}
	var addrs []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); a.Zone() == "" && diallable(a) && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	var timeout interface{ Timeout() bool }
	switch {
	case err != nil && exhaustedNow():
		return nil, &TargetError{target, err, reasonBusy, fmt.Sprintf("looking up %s: %v; %s", name, err, outOfFiles)}
	case err != nil && (ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout()):
		return nil, &TargetError{target, err, reasonTimeout, fmt.Sprintf("no answer to the look-up of %s on this host: check its resolver", name)}
	case err != nil:
		return nil, &TargetError{target, err, reasonNotFound, fmt.Sprintf("%v; names are looked up on this host: check the name and its resolver", err)}
	case len(addrs) == 0:
		return nil, &TargetError{target, nil, reasonNotFound, fmt.Sprintf("%s has no address that can be dialled from this host: check the name", name)}
	}
	return addrs[:min(len(addrs), maxAddrs)], nil
}

// pick returns those of addrs that a rule allows for name ("" when the address itself was asked for), and the first such
// rule.
func (p *Policy) pick(name string, addrs []netip.Addr, port uint16) ([]netip.AddrPort, Rule, error) {
	own, err := p.own(name)
	if err != nil {
		return nil, Rule{}, fmt.Errorf("a rule for a name needs this machine's own addresses: %w", err)
	}
	var allowed []netip.AddrPort
	rules := p.rules()
	first := len(rules)
	for _, a := range addrs {
		if i := ruleFor(rules, name, a, port, own); i >= 0 {
			allowed = append(allowed, netip.AddrPortFrom(a, port))
			first = min(first, i)
		}
	}
	if len(allowed) == 0 {
		return nil, Rule{}, nil
	}
	return allowed, rules[first], nil
}

// own is this machine's addresses, if a rule for name makes them matter.
func (p *Policy) own(name string) ([]netip.Addr, error) {
	if !slices.ContainsFunc(p.rules(), func(r Rule) bool { return r.named(name) }) {
		return nil, nil
	}
	if p.Own != nil {
		return p.Own()
	}
	return interfaceAddrs()
}

func interfaceAddrs() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own, nil
}

// ruleFor is the index of the first rule that lets a, asked for as name, be dialled; -1 = none does.
func ruleFor(rules []Rule, name string, a netip.Addr, port uint16, own []netip.Addr) int {
	far := !near(a, own) && !translator.Contains(a)
	if v4, ok := embedded(a); ok && near(v4, own) {
		far = false
	}
	return slices.IndexFunc(rules, func(r Rule) bool {
		return r.port(port) && (r.address(a) || far && r.named(name))
	})
}

// near says whether a is this machine or only exists on its link (cloud metadata services do).
func near(a netip.Addr, own []netip.Addr) bool {
	return a.IsLoopback() || a.IsLinkLocalUnicast() || slices.Contains(own, a)
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")           // RFC 1122 section 3.2.1.3; kernels take 0.0.0.0 for 127.0.0.1
	broadcast   = netip.AddrFrom4([4]byte{255, 255, 255, 255}) // RFC 919
	compatible  = netip.MustParsePrefix("::/96")               // IPv4 in IPv6 of old, RFC 4291 section 2.5.5.1
	translator  = netip.MustParsePrefix("64:ff9b:1::/48")      // a NAT64 of the site's own, RFC 8215: the IPv4 part may be anywhere
)

// diallable says whether a, not mapped, stands for one machine.
func diallable(a netip.Addr) bool {
	switch {
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a == broadcast:
		return false
	case thisNetwork.Contains(a):
		return false
	}
	if v4, ok := embedded(a); ok { // RFC 6052 section 3.1: not for addresses that are not global
		return diallable(v4) && !near(v4, nil)
	}
	return !compatible.Contains(a) || a.IsLoopback()
}

// carriers are the IPv6 prefixes whose packets end up at an IPv4 address written at byte at.
var carriers = []struct {
	prefix  netip.Prefix
	at      int
	flipped bool
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},    // NAT64, RFC 6052 section 2.1
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false}, // SIIT, RFC 2765 section 2.1
	{netip.MustParsePrefix("2002::/16"), 2, false},        // 6to4, RFC 3056 section 2
	{netip.MustParsePrefix("2001::/32"), 12, true},        // Teredo, RFC 4380 section 4
}

// embedded is the IPv4 address at which packets to a end up, if a network translates them.
func embedded(a netip.Addr) (netip.Addr, bool) {
	for _, c := range carriers {
		if !c.prefix.Contains(a) {
			continue
		}
		b := a.As16()
		v4 := [4]byte(b[c.at : c.at+4])
		if c.flipped {
			for i := range v4 {
				v4[i] = ^v4[i]
			}
		}
		return netip.AddrFrom4(v4), true
	}
	return netip.Addr{}, false
}

// notAllowed names the rules in force and the line that would allow missing. resolved is the name that led there, if a
// name did.
func (p *Policy) notAllowed(target, resolved, missing string) error {
	var why strings.Builder
	if resolved != "" {
		fmt.Fprintf(&why, "%s resolves to %s, which no rule for an address covers; ", resolved, missing)
		if slices.ContainsFunc(p.rules(), func(r Rule) bool { return r.named(resolved) }) {
			why.WriteString("a rule for a name does not cover this machine or its link; ")
		}
	}
	var texts, lines []string
	rules := p.rules()
	for _, r := range rules[:min(len(rules), listedRules)] {
		texts, lines = append(texts, r.String()), append(lines, r.toml())
	}
	if more := len(rules) - listedRules; more > 0 {
		texts, lines = append(texts, fmt.Sprintf("%d more", more)), append(lines, "…")
	}
	if len(texts) == 0 {
		texts = []string{"nothing"}
	}
	lines = append(lines, fmt.Sprintf("%q", missing))
	fmt.Fprintf(&why, "not allowed: this host allows %s; to allow it, set under [host] in its config: allow = [%s]",
		strings.Join(texts, ", "), strings.Join(lines, ", "))
	return &TargetError{target, nil, reasonNotAllowed, why.String()}
}

// cancelled says whether the caller gave up; its deadline is a time-out instead.
func cancelled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
