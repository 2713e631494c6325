package netwatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The messages of these tests are put together as the kernel puts them: a header, a fixed part, attributes.

func u16(n int) []byte { return binary.NativeEndian.AppendUint16(nil, uint16(n)) }
func u32(n int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func attr(kind int, value []byte) []byte {
	b := join(u16(unix.SizeofRtAttr+len(value)), u16(kind), value)
	return append(b, make([]byte, align4(len(b))-len(b))...)
}

func nl(kind, flags, seq int, body []byte) []byte {
	b := join(u32(unix.SizeofNlMsghdr+len(body)), u16(kind), u16(flags), u32(seq), u32(0), body)
	return append(b, make([]byte, align4(len(b))-len(b))...)
}

func linkBody(hardware, index, flags int, attrs ...[]byte) []byte {
	return join([]byte{0, 0}, u16(hardware), u32(index), u32(flags), u32(0), join(attrs...))
}

func addrBody(family, bits, flags, index int, attrs ...[]byte) []byte {
	return join([]byte{byte(family), byte(bits), byte(flags), 0}, u32(index), join(attrs...))
}

func routeBody(family, bits, table, kind, flags int, attrs ...[]byte) []byte {
	return join([]byte{byte(family), byte(bits), 0, 0, byte(table), 0, 0, byte(kind)}, u32(flags), join(attrs...))
}

func neighBody(index, state int, attrs ...[]byte) []byte {
	return join([]byte{unix.AF_INET, 0, 0, 0}, u32(index), u16(state), []byte{0, 0}, join(attrs...))
}

func ip(text string) []byte { return netip.MustParseAddr(text).AsSlice() }

const upRunning = unix.IFF_UP | unix.IFF_RUNNING

var routerMAC = []byte{0x3c, 0x58, 0xc2, 1, 2, 3}

func TestParseLink(t *testing.T) {
	info := attr(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, attr(unix.IFLA_INFO_KIND, []byte("veth\x00")))
	d, ok := parseLink(linkBody(1, 7, upRunning,
		attr(unix.IFLA_IFNAME, []byte("eth0\x00")), attr(unix.IFLA_ADDRESS, routerMAC), attr(unix.IFLA_LINK, u32(6)),
		attr(unix.IFLA_LINK_NETNSID, u32(0)), attr(unix.IFLA_MASTER, u32(5)), info, attr(9999, nil)))
	want := device{name: "eth0", index: 7, hardware: 1, running: true, lower: 6, foreign: true, master: 5, info: "veth", mac: routerMAC}
	if !ok || !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %v; want %+v", d, ok, want)
	}
	for flags, running := range map[int]bool{upRunning: true, unix.IFF_UP: false, unix.IFF_RUNNING: false, 0: false} {
		if d, _ := parseLink(linkBody(1, 7, flags)); d.running != running {
			t.Errorf("flags %x: running %v", flags, d.running)
		}
	}
	if _, ok := parseLink(linkBody(1, 0, upRunning)); ok {
		t.Error("a link without an index")
	}
	if _, ok := parseLink(linkBody(1, 7, upRunning)[:15]); ok {
		t.Error("half a header")
	}
	if _, ok := parseLink(linkBody(1, 7, upRunning, u16(99), u16(3))); ok {
		t.Error("an attribute beyond the end")
	}
}

func TestParseAddr(t *testing.T) {
	for _, c := range []struct {
		name string
		body []byte
		want string
	}{
		{"IPv4", addrBody(unix.AF_INET, 24, 0, 3, attr(unix.IFA_ADDRESS, ip("10.0.0.5")), attr(unix.IFA_LOCAL, ip("10.0.0.5"))), "10.0.0.5/24"},
		{"ours, not the other end's", addrBody(unix.AF_INET, 32, 0, 3, attr(unix.IFA_ADDRESS, ip("10.0.0.1")), attr(unix.IFA_LOCAL, ip("10.0.0.5"))), "10.0.0.5/32"},
		{"IPv6", addrBody(unix.AF_INET6, 64, 0, 3, attr(unix.IFA_ADDRESS, ip("2001:db8::5"))), "2001:db8::5/64"},
		{"deprecated", addrBody(unix.AF_INET6, 64, unix.IFA_F_DEPRECATED, 3, attr(unix.IFA_ADDRESS, ip("2001:db8::5"))), "2001:db8::5/64"},
		{"optimistic", addrBody(unix.AF_INET6, 64, unix.IFA_F_TENTATIVE|unix.IFA_F_OPTIMISTIC, 3, attr(unix.IFA_ADDRESS, ip("2001:db8::5"))), "2001:db8::5/64"},
		{"not yet ours", addrBody(unix.AF_INET6, 64, unix.IFA_F_TENTATIVE, 3, attr(unix.IFA_ADDRESS, ip("2001:db8::5"))), ""},
		{"not yet ours, in the long flags", addrBody(unix.AF_INET6, 64, 0, 3, attr(unix.IFA_ADDRESS, ip("2001:db8::5")), attr(unix.IFA_FLAGS, u32(unix.IFA_F_TENTATIVE))), ""},
		{"somebody else's", addrBody(unix.AF_INET6, 64, unix.IFA_F_DADFAILED, 3, attr(unix.IFA_ADDRESS, ip("2001:db8::5"))), ""},
		{"no address", addrBody(unix.AF_INET, 24, 0, 3), ""},
		{"an address of three bytes", addrBody(unix.AF_INET, 24, 0, 3, attr(unix.IFA_LOCAL, []byte{1, 2, 3})), ""},
		{"33 bits", addrBody(unix.AF_INET, 33, 0, 3, attr(unix.IFA_LOCAL, ip("10.0.0.5"))), ""},
		{"cut", addrBody(unix.AF_INET, 24, 0, 3)[:7], ""},
	} {
		index, p, ok := parseAddr(c.body)
		if ok != (c.want != "") || ok && (p.String() != c.want || index != 3) {
			t.Errorf("%s: %v on %d, %v; want %q", c.name, p, index, ok, c.want)
		}
	}
}

func TestParseRoute(t *testing.T) {
	const main, unicast = unix.RT_TABLE_MAIN, unix.RTN_UNICAST
	oif, via := attr(unix.RTA_OIF, u32(3)), attr(unix.RTA_GATEWAY, ip("10.0.0.1"))
	router := netip.MustParseAddr("10.0.0.1")
	hop := func(flags, index int, attrs []byte) []byte {
		return join(u16(8+len(attrs)), []byte{byte(flags), 0}, u32(index), attrs)
	}
	for _, c := range []struct {
		name string
		body []byte
		want []Gateway
	}{
		{"default", routeBody(unix.AF_INET, 0, main, unicast, 0, oif, via, attr(unix.RTA_PRIORITY, u32(600))), []Gateway{{Index: 3, Addr: router, Metric: 600}}},
		{"IPv6", routeBody(unix.AF_INET6, 0, main, unicast, 0, oif, attr(unix.RTA_GATEWAY, ip("fe80::1"))), []Gateway{{Index: 3, IPv6: true, Addr: netip.MustParseAddr("fe80::1")}}},
		{"on the link", routeBody(unix.AF_INET, 0, main, unicast, 0, oif), []Gateway{{Index: 3}}},
		{"IPv4 by a router of IPv6", routeBody(unix.AF_INET, 0, main, unicast, 0, oif, attr(unix.RTA_VIA, join(u16(unix.AF_INET6), ip("fe80::1")))), []Gateway{{Index: 3, Addr: netip.MustParseAddr("fe80::1")}}},
		{"half of it all", routeBody(unix.AF_INET, 1, main, unicast, 0, oif, attr(unix.RTA_DST, ip("0.0.0.0"))), []Gateway{{Index: 3, Metric: halfMetric}}},
		{"the other half", routeBody(unix.AF_INET, 1, main, unicast, 0, oif, attr(unix.RTA_DST, ip("128.0.0.0"))), nil},
		{"a network", routeBody(unix.AF_INET, 24, main, unicast, 0, oif, attr(unix.RTA_DST, ip("10.0.0.0"))), nil},
		{"another table", routeBody(unix.AF_INET, 0, 0, unicast, 0, oif, attr(unix.RTA_TABLE, u32(1000)), attr(unix.RTA_PRIORITY, u32(5))), []Gateway{{Index: 3, Metric: otherTable + 5}}},
		{"local", routeBody(unix.AF_INET, 0, unix.RT_TABLE_LOCAL, unicast, 0, oif), nil},
		{"unreachable", routeBody(unix.AF_INET6, 0, main, unix.RTN_UNREACHABLE, 0, oif), nil},
		{"without a carrier", routeBody(unix.AF_INET, 0, main, unicast, unix.RTNH_F_LINKDOWN, oif, via), nil},
		{"multicast's", routeBody(128, 0, main, unicast, 0, oif), nil},
		{"nowhere", routeBody(unix.AF_INET, 0, main, unicast, 0), nil},
		{"several", routeBody(unix.AF_INET, 0, main, unicast, 0, attr(unix.RTA_MULTIPATH, join(
			hop(0, 3, via), hop(unix.RTNH_F_DEAD, 4, via), hop(0, 5, nil)))), []Gateway{{Index: 3, Addr: router}, {Index: 5}}},
	} {
		got, ok := parseRoute(c.body)
		if !ok || !slices.EqualFunc(got, c.want, sameGateway) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, ok, c.want)
		}
	}
	for name, body := range map[string][]byte{
		"cut":                  routeBody(unix.AF_INET, 0, main, unicast, 0)[:11],
		"a hop beyond the end": routeBody(unix.AF_INET, 0, main, unicast, 0, attr(unix.RTA_MULTIPATH, join(u16(99), u16(0), u32(3)))),
		"an attribute of two":  routeBody(unix.AF_INET, 0, main, unicast, 0, u16(2), u16(1)),
	} {
		if _, ok := parseRoute(body); ok {
			t.Errorf("%s can be read", name)
		}
	}
}

func sameGateway(a, b Gateway) bool { return reflect.DeepEqual(a, b) }

func TestParseNeigh(t *testing.T) {
	dst, mac := attr(unix.NDA_DST, ip("10.0.0.1")), attr(unix.NDA_LLADDR, routerMAC)
	for state, known := range map[int]bool{
		unix.NUD_REACHABLE: true, unix.NUD_STALE: true, unix.NUD_DELAY: true, unix.NUD_PROBE: true, unix.NUD_PERMANENT: true,
		unix.NUD_INCOMPLETE: false, unix.NUD_FAILED: false, unix.NUD_NOARP: false, 0: false,
	} {
		n, got, ok := parseNeigh(neighBody(3, state, dst, mac))
		if ok != known || ok && (n != neighbour{3, netip.MustParseAddr("10.0.0.1")} || !bytes.Equal(got, routerMAC)) {
			t.Errorf("state %#x: %v %x %v", state, n, got, ok)
		}
	}
	for name, body := range map[string][]byte{
		"no MAC": neighBody(3, unix.NUD_STALE, dst), "no address": neighBody(3, unix.NUD_STALE, mac),
		"a group": neighBody(3, unix.NUD_STALE, dst, attr(unix.NDA_LLADDR, []byte{1, 0, 0x5e, 0, 0, 1})), "cut": neighBody(3, unix.NUD_STALE)[:9],
	} {
		if _, _, ok := parseNeigh(body); ok {
			t.Errorf("%s: known", name)
		}
	}
}

func TestHeardIn(t *testing.T) {
	def := routeBody(unix.AF_INET, 0, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, 0, attr(unix.RTA_OIF, u32(3)))
	other := routeBody(unix.AF_INET, 24, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, 0, attr(unix.RTA_OIF, u32(3)), attr(unix.RTA_DST, ip("10.0.0.0")))
	port := linkBody(1, 3, upRunning)
	port[0] = unix.AF_BRIDGE
	lost := news{changed: true, lost: map[int]bool{3: true}}
	for _, c := range []struct {
		name string
		b    []byte
		want news
	}{
		{"a link came up", nl(unix.RTM_NEWLINK, 0, 0, linkBody(1, 3, upRunning)), news{changed: true}},
		{"a link lost its carrier", nl(unix.RTM_NEWLINK, 0, 0, linkBody(1, 3, unix.IFF_UP)), lost},
		{"a link left", nl(unix.RTM_DELLINK, 0, 0, linkBody(1, 3, upRunning)), lost},
		{"a port left its bridge", nl(unix.RTM_DELLINK, 0, 0, port), news{changed: true}},
		{"a scan", nl(unix.RTM_NEWLINK, 0, 0, linkBody(1, 3, upRunning, attr(unix.IFLA_WIRELESS, u32(0)))), news{}},
		{"an address", nl(unix.RTM_NEWADDR, 0, 0, nil), news{changed: true}},
		{"an address left", nl(unix.RTM_DELADDR, 0, 0, nil), news{changed: true}},
		{"a default route", nl(unix.RTM_NEWROUTE, 0, 0, def), news{changed: true}},
		{"it left", nl(unix.RTM_DELROUTE, 0, 0, def), news{changed: true}},
		{"an unrelated route", nl(unix.RTM_NEWROUTE, 0, 0, other), news{}},
		{"what nobody asked for", nl(unix.RTM_NEWNEIGH, 0, 0, neighBody(3, 2)), news{}},
		{"the second of two", join(nl(unix.RTM_NEWROUTE, 0, 0, other), nl(unix.RTM_NEWLINK, 0, 0, linkBody(1, 3, unix.IFF_UP))), lost},
		{"nonsense", []byte("nonsense"), news{changed: true}},
		{"a link that cannot be read", nl(unix.RTM_NEWLINK, 0, 0, nil), news{changed: true}},
		{"nothing", nil, news{}},
	} {
		if got := heardIn(c.b); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestDumpPart(t *testing.T) {
	seen := 0
	count := func(message) { seen++ }
	addr := nl(unix.RTM_NEWADDR, unix.NLM_F_MULTI, 7, addrBody(unix.AF_INET, 24, 0, 3))
	done := nl(unix.NLMSG_DONE, unix.NLM_F_MULTI, 7, u32(0))
	for _, c := range []struct {
		name            string
		b               []byte
		seen            int
		done, overtaken bool
		err             error
	}{
		{"a part", join(addr, addr), 2, false, false, nil},
		{"the end", join(addr, done), 1, true, false, nil},
		{"behind the end", join(done, addr), 0, true, false, nil},
		{"overtaken", join(nl(unix.RTM_NEWADDR, unix.NLM_F_DUMP_INTR, 7, nil), done), 1, true, true, nil},
		{"refused", nl(unix.NLMSG_ERROR, 0, 7, u32(-int(unix.EPERM))), 0, true, false, unix.EPERM},
		{"failed at the end", nl(unix.NLMSG_DONE, 0, 7, u32(-int(unix.ENOMEM))), 0, true, false, unix.ENOMEM},
		{"an older answer", join(nl(unix.RTM_NEWADDR, 0, 6, nil), nl(unix.NLMSG_DONE, 0, 6, u32(0))), 0, false, false, nil},
		{"malformed", append(slices.Clone(addr), 1, 2, 3), 1, false, false, errNetlink},
	} {
		seen = 0
		done, overtaken, err := dumpPart(c.b, 7, count)
		if seen != c.seen || done != c.done || overtaken != c.overtaken || !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %d messages, done %v, overtaken %v, %v", c.name, seen, done, overtaken, err)
		}
	}
}

// sysfs is a recorded /sys/class/net.
func sysfs(t *testing.T, machine string) devices {
	t.Helper()
	dir := "testdata/sysfs/" + machine
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	return devices{sys: os.DirFS(dir)}
}

func TestLinuxKinds(t *testing.T) {
	mac := func(text string) []byte {
		b := make([]byte, 0, 6)
		for n := 0; n+2 <= len(text); n += 3 {
			var c byte
			for _, d := range text[n : n+2] {
				c = c<<4 | byte(bytes.IndexByte([]byte("0123456789abcdef"), byte(d)))
			}
			b = append(b, c)
		}
		return b
	}
	eth := func(name string, index int, address, info string) device {
		return device{name: name, index: index, hardware: unix.ARPHRD_ETHER, mac: mac(address), info: info}
	}
	port := func(d device, master int) device { d.master = master; return d }
	above := func(d device, lower int, foreign bool) device { d.lower, d.foreign = lower, foreign; return d }
	bare := func(name string, index int, hardware uint16, info string) device {
		return device{name: name, index: index, hardware: hardware, info: info}
	}
	laptop := []device{
		{name: "lo", index: 1, hardware: unix.ARPHRD_LOOPBACK, mac: make([]byte, 6)},
		eth("enp0s31f6", 2, "8c:16:45:0a:0b:0c", ""), eth("wlp3s0", 3, "3c:58:c2:01:02:03", ""), bare("wwan0", 4, unix.ARPHRD_NONE, ""),
		eth("wan1", 5, "02:1e:10:1f:00:00", ""), eth("old0", 6, "00:0f:b5:01:02:03", ""), bare("tailscale0", 7, unix.ARPHRD_NONE, "tun"),
		bare("wg0", 8, unix.ARPHRD_NONE, "wireguard"), bare("ppp0", 9, unix.ARPHRD_PPP, "ppp"), bare("rmnet0", 10, unix.ARPHRD_RAWIP, ""),
		eth("tap0", 11, "02:00:00:00:00:0b", "tun"), eth("wlan7", 12, "02:00:00:00:00:0c", "tun"), eth("vnet0", 13, "02:00:00:00:00:0d", "tun"),
		eth("myvpn", 14, "02:00:00:00:00:0e", "tun"), bare("he-ipv6", 15, unix.ARPHRD_SIT, "sit"), bare("mon0", 16, unix.ARPHRD_IEEE80211_RADIOTAP, ""),
		bare("wwan1", 17, unix.ARPHRD_NONE, "wwan"), bare("unnamed", 18, unix.ARPHRD_TUNNEL, ""), eth("usb0", 19, "02:00:00:00:00:13", ""),
	}
	server := []device{
		port(eth("eno1", 2, "52:54:00:00:00:01", ""), 5), port(eth("eno3", 3, "52:54:00:00:00:03", ""), 7),
		eth("br0", 5, "52:54:00:00:00:01", "bridge"), eth("docker0", 6, "02:42:00:00:00:01", "bridge"),
		eth("bond0", 7, "52:54:00:00:00:03", "bond"), port(eth("veth1", 8, "02:00:00:00:00:08", "veth"), 6),
		above(eth("bond0.5", 9, "52:54:00:00:00:03", "vlan"), 7, false), above(eth("mv0", 10, "02:00:00:00:00:0a", "macvlan"), 2, false),
		above(eth("eth0", 11, "02:00:00:00:00:0b", "macvlan"), 2, true), eth("dummy0", 12, "02:00:00:00:00:0c", "dummy"),
		eth("flannel.1", 13, "02:00:00:00:00:0d", "vxlan"), above(eth("loop1", 14, "02:00:00:00:00:0e", "vlan"), 15, false),
		above(eth("loop2", 15, "02:00:00:00:00:0f", "vlan"), 14, false), above(eth("orphan", 16, "02:00:00:00:00:10", "vlan"), 99, false),
		port(eth("ring1", 20, "02:00:00:00:00:14", "bridge"), 21), port(eth("ring2", 21, "02:00:00:00:00:15", "bridge"), 20),
	}
	vm := []device{
		eth("eth0", 4, "02:fc:00:00:00:01", ""), eth("ifb0", 2, "ba:89:0f:31:5e:50", "ifb"),
	}
	type kind struct {
		k       Kind
		virtual bool
	}
	for _, c := range []struct {
		machine string
		list    []device
		want    map[string]kind
	}{
		{"laptop", laptop, map[string]kind{
			"lo": {Loopback, false}, "enp0s31f6": {Wired, false}, "wlp3s0": {WiFi, false}, "wwan0": {Cell, false}, "wan1": {Cell, false},
			"old0": {WiFi, false}, "tailscale0": {Tunnel, false}, "wg0": {Tunnel, false}, "ppp0": {Other, false}, "rmnet0": {Cell, false},
			"tap0": {Tunnel, false}, "wlan7": {WiFi, false}, "vnet0": {Other, true}, "myvpn": {Tunnel, false}, "he-ipv6": {Tunnel, false},
			"mon0": {WiFi, false}, "wwan1": {Cell, false}, "unnamed": {Tunnel, false}, "usb0": {0, false},
		}},
		{"server", server, map[string]kind{
			"eno1": {Wired, false}, "eno3": {Wired, false}, "br0": {Wired, false}, "docker0": {0, true}, "bond0": {Wired, false}, "veth1": {0, true},
			"bond0.5": {Wired, false}, "mv0": {Wired, false}, "eth0": {0, false}, "dummy0": {0, true}, "flannel.1": {0, true},
			"loop1": {0, false}, "loop2": {0, false}, "orphan": {0, false}, "ring1": {0, true}, "ring2": {0, true},
		}},
		{"vm", vm, map[string]kind{"eth0": {Wired, false}, "ifb0": {0, true}}},
	} {
		tree := sysfs(t, c.machine)
		tree.list = c.list
		for _, d := range c.list {
			k, virtual := tree.kind(d, 0)
			if want := c.want[d.name]; k != want.k || virtual != want.virtual {
				t.Errorf("%s %s: %v (plumbing: %v), want %+v", c.machine, d.name, k, virtual, want)
			}
		}
		if len(c.list) != len(c.want) {
			t.Errorf("%s: %d devices, %d kinds", c.machine, len(c.list), len(c.want))
		}
	}
}

// In a network namespace /sys may show the devices of another: the Wi-Fi of the machine, under the name of a cable in here.
func TestForeignSysfs(t *testing.T) {
	tree := sysfs(t, "laptop")
	ours := device{name: "wlp3s0", index: 3, hardware: unix.ARPHRD_ETHER, mac: []byte{0x3c, 0x58, 0xc2, 1, 2, 3}}
	if k, _ := tree.kind(ours, 0); k != WiFi {
		t.Fatalf("ours is %v", k)
	}
	index, mac := ours, ours
	index.index, mac.mac = 4, []byte{2, 0, 0, 0, 0, 1}
	for _, d := range []device{index, mac, {name: "../laptop/wlp3s0", index: 3, hardware: 1}, {name: "eth9", index: 3, hardware: 1}, {index: 3, hardware: 1}} {
		if k, _ := tree.kind(d, 0); k != 0 {
			t.Errorf("%+v is %v", d, k)
		}
	}
	if k, _ := (devices{}).kind(ours, 0); k != 0 {
		t.Errorf("without /sys it is %v", k)
	}
}

func TestLinksAskOnlyWhereNeeded(t *testing.T) {
	tree := sysfs(t, "laptop")
	tree.list = []device{{name: "wlp3s0", index: 3, hardware: 1, running: true, mac: []byte{0x3c, 0x58, 0xc2, 1, 2, 3}}, {name: "wg0", index: 8, info: "wireguard"}}
	got := tree.links(map[int][]netip.Prefix{3: prefixes(home)})
	want := []Link{{Name: "wlp3s0", Index: 3, Kind: WiFi, Running: true, Addrs: prefixes(home)}, {Name: "wg0", Index: 8}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func FuzzNetlink(f *testing.F) {
	f.Add(nl(unix.RTM_NEWLINK, 0, 7, linkBody(1, 7, upRunning, attr(unix.IFLA_IFNAME, []byte("eth0\x00")),
		attr(unix.IFLA_LINKINFO, attr(unix.IFLA_INFO_KIND, []byte("bridge"))))))
	f.Add(nl(unix.RTM_NEWADDR, 0, 7, addrBody(unix.AF_INET, 24, 0, 3, attr(unix.IFA_LOCAL, ip("10.0.0.5")))))
	f.Add(nl(unix.RTM_NEWROUTE, 0, 7, routeBody(unix.AF_INET, 0, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, 0,
		attr(unix.RTA_MULTIPATH, join(u16(16), u16(0), u32(3), attr(unix.RTA_GATEWAY, ip("10.0.0.1")))))))
	f.Add(nl(unix.RTM_NEWNEIGH, 0, 7, neighBody(3, unix.NUD_STALE, attr(unix.NDA_DST, ip("10.0.0.1")), attr(unix.NDA_LLADDR, routerMAC))))
	f.Add(nl(unix.NLMSG_ERROR, 0, 7, u32(-1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		heardIn(b)
		var r Reading
		tree := devices{sys: os.DirFS("testdata/sysfs/laptop")}
		addrs := map[int][]netip.Prefix{}
		_, _, _ = dumpPart(b, 7, func(m message) { // whatever it says, it is to be read without harm
			if d, ok := parseLink(m.body); ok {
				tree.list = append(tree.list, d)
			}
			if i, p, ok := parseAddr(m.body); ok {
				if !p.IsValid() || i <= 0 {
					t.Fatalf("address %v on %d", p, i)
				}
				addrs[i] = append(addrs[i], p)
			}
			gates, _ := parseRoute(m.body)
			for _, g := range gates {
				if g.Index <= 0 {
					t.Fatalf("%+v", g)
				}
			}
			r.Gateways = append(r.Gateways, gates...)
			if n, mac, ok := parseNeigh(m.body); ok && (!isMAC(mac) || !n.addr.IsValid()) {
				t.Fatalf("neighbour %+v %x", n, mac)
			}
		})
		r.Links = tree.links(addrs)
		s := judge(r, rules{secret: []byte("s")})
		if d := Diff(s, s); !d.IsZero() && !doubled(s) {
			t.Fatalf("against itself: %v", d)
		}
	})
}

// doubled reports whether two interfaces have one name, which no system lets happen.
func doubled(s Snapshot) bool {
	list := names(s)
	slices.Sort(list)
	return len(slices.Compact(list)) != len(s.Interfaces)
}
