package netwatch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, p := range texts {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestKinds(t *testing.T) {
	for k := Wired; k <= Other; k++ {
		if got, err := ParseKind(strings.ToUpper(k.String())); got != k || err != nil {
			t.Errorf("ParseKind(%q) = %v, %v", k, got, err)
		}
	}
	if k, err := ParseKind("unknown"); err == nil || !strings.Contains(err.Error(), "wired, wifi, cell, tunnel, loopback, other") {
		t.Errorf("unknown: %v, %v", k, err)
	}
	if got := Kind(99).String(); got != "kind 99" {
		t.Error(got)
	}
}

func TestByName(t *testing.T) {
	for _, c := range []struct {
		names   string
		kind    Kind
		virtual bool
	}{
		{"lo lo0", Loopback, false},
		{"wlan0 wlp3s0 wl0 wifi0 ath0", WiFi, false},
		{"wwan0 wwp0s20f0u2 rmnet_data0 ccmni0 pdp_ip0", Cell, false},
		{"eth0 enp5s0 eno1 ens3 en0 end0 em1 enx001122334455", Wired, false},
		{"tailscale0 tun0 tap0 utun3 wg0 wt0 ipsec0 zt5u4y nordlynx", Tunnel, false},
		{"docker0 br-0a1b2c veth1a2b virbr0 vnet3 lxcbr0 cni0 cali12 flannel.1 podman0 dummy0 ifb0 vmnet8 bridge100 awdl0 llw0", Other, true},
		{"ppp0 local0 loop br0 bond0 xyz usb0", 0, false},
	} {
		for _, name := range strings.Fields(c.names) {
			if k, virtual := byName(name); k != c.kind || virtual != c.virtual {
				t.Errorf("%s is %v (plumbing: %v), want %v (%v)", name, k, virtual, c.kind, c.virtual)
			}
		}
	}
}

func TestUsable(t *testing.T) {
	gate := []Gateway{{Index: 2, Addr: netip.MustParseAddr("192.168.1.1")}}
	up := func(name string, kind Kind, virtual bool, addrs ...string) Link {
		return Link{Name: name, Index: 2, Kind: kind, Virtual: virtual, Running: true, Addrs: prefixes(addrs...)}
	}
	for _, c := range []struct {
		name     string
		link     Link
		gates    []Gateway
		override Override
		usable   bool
		kind     Kind
		metered  bool
		tailnet  bool
	}{
		{name: "the system's type before the name", link: up("eth0", WiFi, false, home), usable: true, kind: WiFi},
		{name: "the name where the system is silent", link: up("wlan0", 0, false, home), usable: true, kind: WiFi},
		{name: "the user before both", link: up("wlan0", WiFi, false, home), override: Override{Kind: Wired}, usable: true, kind: Wired},
		{name: "nobody knows", link: up("xyz0", 0, false, home), usable: true, kind: Other},
		{name: "loopback", link: up("lo", Loopback, false, home)},
		{name: "loopback's addresses", link: up("eth0", Wired, false, "127.0.0.1/8", "::1/128")},
		{name: "link-local only", link: up("eth0", Wired, false, "169.254.1.1/16", "fe80::1/64")},
		{name: "no address", link: up("eth0", Wired, false)},
		{name: "not running", link: Link{Name: "eth0", Kind: Wired, Addrs: prefixes(home)}},
		{name: "IPv6 only", link: up("eth0", Wired, false, "fe80::1/64", "2001:db8::5/64"), usable: true, kind: Wired},
		{name: "ignored", link: up("eth0", Wired, false, home), override: Override{Ignore: true}},
		{name: "a bridge of containers by name", link: up("docker0", 0, false, "172.17.0.1/16")},
		{name: "a veth by type", link: up("eth3", 0, true, "10.88.0.1/16")},
		{name: "a veth that is the way out", link: up("eth0", 0, true, home), gates: gate, usable: true, kind: Wired},
		{name: "plumbing that is the way out", link: up("veth0", 0, true, home), gates: gate, usable: true, kind: Other},
		{name: "plumbing that the user wants", link: up("dummy0", 0, true, home), override: Override{Kind: Wired}, usable: true, kind: Wired},
		{name: "cell is metered", link: up("wwan0", Cell, false, "10.0.0.2/30"), usable: true, kind: Cell, metered: true},
		{name: "cell with a flat rate", link: up("wwan0", Cell, false, "10.0.0.2/30"), override: Override{Unmetered: true}, usable: true, kind: Cell},
		{name: "metered, says the system", link: Link{Name: "en0", Kind: WiFi, Running: true, Metered: true, Addrs: prefixes(home)}, usable: true, kind: WiFi, metered: true},
		{name: "metered, says the user", link: up("wlan0", WiFi, false, home), override: Override{Metered: true}, usable: true, kind: WiFi, metered: true},
		{name: "tailnet", link: up("utun4", Tunnel, false, "100.101.102.103/32"), usable: true, kind: Tunnel, tailnet: true},
		{name: "tailnet of IPv6", link: up("tailscale0", 0, false, "fd7a:115c:a1e0::1/128"), usable: true, kind: Tunnel, tailnet: true},
		{name: "a VPN is no tailnet", link: up("wg0", Tunnel, false, "10.8.0.2/24"), usable: true, kind: Tunnel},
		{name: "carrier-grade NAT by cable", link: up("eth0", Wired, false, "100.64.3.4/24"), usable: true, kind: Wired},
		{name: "carrier-grade NAT by modem", link: up("ppp0", Other, false, "100.65.3.4/32"), usable: true, kind: Other},
		{name: "carrier-grade NAT in the air", link: up("wwan0", Cell, false, "100.66.3.4/30"), usable: true, kind: Cell, metered: true},
	} {
		i, ok := usable(c.link, c.gates, c.override)
		if ok != c.usable || ok && (i.Kind != c.kind || i.Metered != c.metered || i.Tailnet != c.tailnet || i.Default != (c.gates != nil)) {
			t.Errorf("%s: usable %v, %+v", c.name, ok, i)
		}
	}
}

func TestJudge(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("fe80::1")
	s := judge(Reading{
		Links: []Link{
			{Name: "wg0", Index: 9, Kind: Tunnel, Running: true, Addrs: prefixes("10.8.0.2/24")},
			{Name: "wlan0", Index: 3, Kind: WiFi, Running: true, Addrs: prefixes("fe80::3/64", home, "::ffff:192.168.1.23/120")},
			{Name: "eth0", Index: 2, Kind: Wired, Running: true, Addrs: prefixes("192.168.1.24/24")},
			{Name: "a0", Index: 8, Kind: Tunnel, Running: true, Addrs: prefixes("100.100.1.1/32")},
		},
		Gateways: []Gateway{
			{Index: 3, IPv6: true, Addr: v6, Metric: 1},
			{Index: 3, Addr: v4, Metric: 600},
			{Index: 2, Addr: v4, Metric: 100},
			{Index: 2, Addr: netip.MustParseAddr("192.168.1.2"), Metric: 50},
			{Index: 77, Addr: v4},
		},
	}, rules{})
	if got := names(s); !slices.Equal(got, []string{"eth0", "wlan0", "a0", "wg0"}) {
		t.Errorf("order %v: want the first choice, the other default, then names", got)
	}
	if !s.Known || !s.Tailnet {
		t.Errorf("%+v", s)
	}
	if s.Interfaces[0].Gateway != netip.MustParseAddr("192.168.1.2") || s.Interfaces[1].Gateway != v4 {
		t.Errorf("gateways %v, %v: want the lowest metric, and IPv4's", s.Interfaces[0].Gateway, s.Interfaces[1].Gateway)
	}
	if got := s.Interfaces[1].Addrs; !slices.Equal(got, prefixes(home, "fe80::3/64")) {
		t.Errorf("addresses %v", got)
	}
	for a, want := range map[string]bool{"192.168.1.23": true, "::ffff:192.168.1.23": true, "fe80::3%wlan0": true, "192.168.1.25": false} {
		if s.Has(netip.MustParseAddr(a)) != want {
			t.Errorf("Has(%s) is %v", a, !want)
		}
	}
	if _, ok := s.Interface("eth7"); ok {
		t.Error("an interface that is not there")
	}
}

func TestFingerprint(t *testing.T) {
	mac, other := []byte{0x3c, 0x58, 0xc2, 1, 2, 3}, []byte{0x3c, 0x58, 0xc2, 1, 2, 4}
	four := func(mac []byte) []Gateway { return []Gateway{{Addr: netip.MustParseAddr("192.168.1.1"), MAC: mac}} }
	six := func(mac []byte) []Gateway {
		return []Gateway{{IPv6: true, Addr: netip.MustParseAddr("fe80::1"), MAC: mac}}
	}
	// printf '\x3c\x58\xc2\x01\x02\x03' | openssl dgst -sha256 -hmac secret
	const router = "381a23c5e8cd15b9"
	for _, c := range []struct {
		name   string
		kind   Kind
		addrs  []netip.Prefix
		gates  []Gateway
		secret string
		prefix string
		router string
	}{
		{"a /24 and the router", WiFi, prefixes(home), four(mac), "secret", "192.168.1.0/24", router},
		{"always a /24", Wired, prefixes("10.20.30.40/8"), nil, "secret", "10.20.30.0/24", ""},
		{"the router is not read", WiFi, prefixes(home), four(nil), "secret", "192.168.1.0/24", ""},
		{"no secret", WiFi, prefixes(home), four(mac), "", "192.168.1.0/24", ""},
		{"a group is no router", WiFi, prefixes(home), four([]byte{1, 0, 0x5e, 1, 2, 3}), "secret", "192.168.1.0/24", ""},
		{"nothing is no router", WiFi, prefixes(home), four(make([]byte, 6)), "secret", "192.168.1.0/24", ""},
		{"the address beside the router", WiFi, prefixes("10.0.0.5/24", home), four(mac), "secret", "192.168.1.0/24", router},
		{"not the translator's", WiFi, prefixes("192.0.0.2/29", "2001:db8:1:2:3::4/64"), six(mac), "secret", "2001:db8:1:2::/64", router},
		{"IPv6 only", Wired, prefixes("2001:db8:1:2:3::4/64", "fe80::4/64"), six(mac), "secret", "2001:db8:1:2::/64", router},
		{"IPv6 only, the provider's prefix", Wired, prefixes("fd00:1::4/64", "2001:db8:1:2:3::4/128"), six(mac), "secret", "2001:db8:1:2::/64", router},
		{"IPv6 without a default route", Wired, prefixes("2001:db8::4/64"), nil, "secret", "", ""},
		{"IPv4's router, not IPv6's", WiFi, prefixes(home), append(four(nil), six(mac)...), "secret", "192.168.1.0/24", ""},
		{"link-local", Wired, prefixes("169.254.1.2/16"), four(mac), "secret", "", ""},
	} {
		want := Network{Router: c.router}
		if c.prefix != "" {
			want.Kind, want.Prefix = c.kind, netip.MustParsePrefix(c.prefix)
		} else {
			want = Network{}
		}
		if got := fingerprint(Interface{Kind: c.kind, Addrs: c.addrs}, c.gates, []byte(c.secret)); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
	if got := fingerprint(Interface{Kind: Cell, Addrs: prefixes("10.0.0.2/30")}, four(mac), []byte("secret")); got != (Network{Kind: Cell}) {
		t.Errorf("cell: %+v", got)
	}
	for _, k := range []Kind{Tunnel, Other, 0} {
		if got := fingerprint(Interface{Kind: k, Addrs: prefixes(home)}, four(mac), []byte("secret")); got != (Network{}) {
			t.Errorf("%v: %+v", k, got)
		}
	}
	one, two := routerHash(four(mac), []byte("secret")), routerHash(four(other), []byte("secret"))
	if one == two || one == routerHash(four(mac), []byte("other")) || len(one) != 2*routerBytes {
		t.Error("two homes, or two installations, are one")
	}
}

func TestDiff(t *testing.T) {
	base := func(edit func(*Interface)) Snapshot {
		i := Interface{
			Name: "wlan0", Index: 3, Kind: WiFi, Addrs: prefixes(home, "2001:db8::5/64", "fe80::5/64"), Default: true,
			Network: Network{Kind: WiFi, Prefix: netip.MustParsePrefix("192.168.1.0/24"), Router: "aa"},
		}
		if edit != nil {
			edit(&i)
		}
		return Snapshot{Known: true, Interfaces: []Interface{i}}
	}
	router := func(r string) Snapshot { return base(func(i *Interface) { i.Network.Router = r }) }
	withAddrs := func(a ...string) Snapshot { return base(func(i *Interface) { i.Addrs = prefixes(a...) }) }
	name := []string{"wlan0"}
	none := Snapshot{Known: true}
	for _, c := range []struct {
		what     string
		old, now Snapshot
		want     Delta
		path     bool
		says     string
	}{
		{what: "nothing", old: base(nil), now: base(nil), says: "no change"},
		{what: "unknown now", old: base(nil), now: Snapshot{}, says: "no change"},
		{what: "unknown before", old: Snapshot{}, now: base(nil), says: "no change"},
		{
			what: "left", old: base(nil), now: none, path: true, says: "wlan0 gone",
			want: Delta{Removed: name, Gone: addrs("192.168.1.23", "2001:db8::5", "fe80::5")},
		},
		{
			what: "came", old: none, now: base(nil), path: true, says: "wlan0 new",
			want: Delta{Added: name, New: addrs("192.168.1.23", "2001:db8::5")},
		},
		{
			what: "another device of that name", old: base(nil), now: base(func(i *Interface) { i.Index = 4 }), path: true, says: "wlan0 new, wlan0 gone",
			want: Delta{Added: name, Removed: name, New: addrs("192.168.1.23", "2001:db8::5"), Gone: addrs("192.168.1.23", "2001:db8::5", "fe80::5")},
		},
		{
			what: "an address came", old: withAddrs(home), now: withAddrs(home, "10.1.2.3/24"), path: true, says: "10.1.2.3 new",
			want: Delta{New: addrs("10.1.2.3")},
		},
		{
			what: "IPv6 came", old: withAddrs(home), now: withAddrs(home, "fe80::5/64", "2001:db8::5/64"), path: true, says: "2001:db8::5 new",
			want: Delta{New: addrs("2001:db8::5")},
		},
		{what: "one more of that /64", old: base(nil), now: withAddrs(home, "2001:db8::5/64", "2001:db8::6/64", "fe80::5/64"), says: "no change"},
		{
			what: "one fewer of that /64", old: withAddrs("2001:db8::5/64", "2001:db8::6/64"), now: withAddrs("2001:db8::6/64"), path: true,
			says: "2001:db8::5 gone", want: Delta{Gone: addrs("2001:db8::5")},
		},
		{what: "a link-local one came", old: withAddrs(home), now: withAddrs(home, "fe80::7/64"), says: "no change"},
		{what: "a link-local one went", old: withAddrs(home, "fe80::7/64"), now: withAddrs(home), path: true, says: "fe80::7 gone", want: Delta{Gone: addrs("fe80::7")}},
		{what: "another netmask", old: withAddrs("192.168.1.23/24"), now: withAddrs("192.168.1.23/25"), says: "no change"},
		{
			what: "default route went", old: base(nil), now: base(func(i *Interface) { i.Default = false }), path: true,
			says: "wlan0 default route changed", want: Delta{Default: name},
		},
		{what: "metered", old: base(nil), now: base(func(i *Interface) { i.Metered = true }), says: "wlan0 metered changed", want: Delta{Metered: name}},
		{
			what: "kind", old: base(nil), says: "wlan0 of another kind", want: Delta{Kind: name},
			now: base(func(i *Interface) { i.Kind, i.Network.Kind = Wired, Wired }),
		},
		{what: "router read", old: router(""), now: router("aa"), says: "wlan0 router known", want: Delta{Learned: name}},
		{what: "another router", old: router("aa"), now: router("bb"), path: true, says: "wlan0 on another network", want: Delta{Moved: name}},
		{what: "router not read any more", old: router("aa"), now: router(""), path: true, says: "wlan0 on another network", want: Delta{Moved: name}},
		{what: "network unknown now", old: router("aa"), now: base(func(i *Interface) { i.Network = Network{} }), says: "no change"},
		{what: "network known now", old: base(func(i *Interface) { i.Network = Network{} }), now: router("aa"), says: "no change"},
		{what: "another gateway only", old: base(nil), now: base(func(i *Interface) { i.Gateway = netip.MustParseAddr("192.168.1.9") }), says: "no change"},
		{
			what: "tailnet", old: none, now: Snapshot{Known: true, Tailnet: true, Interfaces: nil}, says: "tailnet came or went",
			want: Delta{Tailnet: true},
		},
	} {
		got := Diff(c.old, c.now)
		if d := deltaText(got); d != deltaText(c.want) || got.Path() != c.path || got.String() != c.says {
			t.Errorf("%s: %s (%q, path %v), want %s", c.what, d, got, got.Path(), deltaText(c.want))
		}
		if got.IsZero() != (c.says == "no change") {
			t.Errorf("%s: IsZero is %v", c.what, got.IsZero())
		}
	}
}

func TestSleeper(t *testing.T) {
	t0 := fixed
	for _, c := range []struct {
		name   string
		asleep [2]int // ms, at two steps
		due    int    // ms after the first step; 0: none
		now    int    // ms after the first step
		want   int    // ms
	}{
		{"awake", [2]int{0, 0}, 1000, 1000, 0},
		{"slept", [2]int{0, 8000}, 1000, 1000, 8000},
		{"slept before, too", [2]int{50000, 58000}, 1000, 1000, 8000},
		{"2 s", [2]int{0, 2000}, 0, 0, 2000},
		{"less than 2 s", [2]int{0, 1999}, 0, 0, 0},
		{"set back", [2]int{9000, 0}, 1000, 1000, 0},
		{"5 s late", [2]int{0, 0}, 1000, 6000, 5000},
		{"less than 5 s late", [2]int{0, 0}, 1000, 5999, 0},
		{"called before it was due", [2]int{0, 0}, 60000, 10, 0},
		{"late without being due", [2]int{0, 0}, 0, 60000, 0},
		{"the clock of both went on", [2]int{0, 8000}, 1000, 9000, 8000},
	} {
		var s sleeper
		s.step(t0, ms(c.asleep[0]))
		if c.due > 0 {
			s.due = t0.Add(ms(c.due))
		}
		if got := s.step(t0.Add(ms(c.now)), ms(c.asleep[1])); got != ms(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, ms(c.want))
		}
		if got := s.step(t0.Add(ms(c.now)), ms(c.asleep[1])); got != 0 {
			t.Errorf("%s: slept once more: %v", c.name, got)
		}
	}
}

// A clock that was set back measures the next sleep from there.
func TestSleepAfterSetBack(t *testing.T) {
	var s sleeper
	for n, c := range []struct{ asleep, want int }{{5000, 5000}, {-3600_000, 0}, {-3600_000 + 10_000, 10_000}, {-3600_000 + 10_000, 0}} {
		if got := s.step(fixed, ms(c.asleep)); got != ms(c.want) {
			t.Errorf("step %d: %v, want %v", n, got, ms(c.want))
		}
	}
}
