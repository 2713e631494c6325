package route

import (
	"net/netip"
	"testing"
)

// TestTraps/a second VPN that steals 192.168/16: what is on the cable is dialled there.
func TestOnLink(t *testing.T) {
	prefix := netip.MustParsePrefix
	home := Path{Interfaces: []Interface{
		{Name: "tun0", Kind: Tunnel, Addrs: []netip.Prefix{prefix("192.168.0.5/16"), prefix("10.8.0.2/32")}, Default: true},
		{Name: "wlan0", Kind: WiFi, Addrs: []netip.Prefix{prefix("192.168.1.7/24"), prefix("2001:db8::7/64")}},
		{Name: "eth0", Kind: Wired, Addrs: []netip.Prefix{prefix("192.168.0.9/20"), prefix("fd00:1::9/64")}},
	}}
	for to, want := range map[string]string{
		"192.168.1.20":        "wlan0", // the longest prefix
		"::ffff:192.168.1.20": "wlan0",
		"192.168.9.1":         "eth0",
		"192.168.200.1":       "", // only the VPN knows it
		"192.168.1.7":         "", // this machine itself
		"fd00:1::20":          "eth0",
		"2001:db8::20":        "", // public: no VPN steals that for being private
		"198.51.100.7":        "",
		"100.64.0.9":          "",
		"127.0.0.1":           "",
		"169.254.1.1":         "",
		"fe80::1%wlan0":       "",
	} {
		if got := home.OnLink(netip.MustParseAddr(to)); got != want {
			t.Errorf("%s is dialled over %q, want %q", to, got, want)
		}
	}
	if got := (Path{}).OnLink(netip.MustParseAddr("192.168.1.20")); got != "" {
		t.Errorf("over %q on an unknown path", got)
	}
}
