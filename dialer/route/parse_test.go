package route

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseRoute(t *testing.T) {
	for text, want := range map[string]string{
		"lan:192.168.1.20":                  "lan:192.168.1.20:7000",
		"LAN:192.168.1.20:7001":             "lan:192.168.1.20:7001",
		"lan:::1":                           "lan:[::1]:7000",
		"lan:[::1]":                         "lan:[::1]:7000",
		"lan:[FE80::1%eth0]:9":              "lan:[fe80::1%eth0]:9",
		"direct:[::ffff:198.51.100.7]:1":    "direct:198.51.100.7:1",
		"tailnet:DevBox.Tail1234.ts.net":    "tailnet:devbox.tail1234.ts.net:7000",
		"direct:dev_box.example.com.:65535": "direct:dev_box.example.com:65535",
		"lan:localhost":                     "lan:localhost:7000",
	} {
		r, err := ParseRoute(text, 7000)
		if err != nil || r.ID() != want || r.Source != Configured {
			t.Errorf("ParseRoute(%q) = %v (%s), %v; want %s", text, r, r.Source, err, want)
		}
	}
}

func TestParseRouteRefuses(t *testing.T) {
	for text, say := range map[string]string{
		"":                                 "class:host",
		"192.168.1.20":                     "class:host",
		"192.168.1.20:7000":                "must start with",
		"wan:192.168.1.20":                 "must start with",
		"relay:wss://r.example":            "relay routes are not supported",
		"lan:":                             "1 to 253",
		"lan:h:":                           "a port must follow",
		"lan:h:0":                          "1 to 65535",
		"lan:h:65536":                      "1 to 65535",
		"lan:h:http":                       "1 to 65535",
		"lan:h:-1":                         "1 to 65535",
		"lan:[::1":                         "not closed",
		"lan:[::1]x":                       "after the bracket",
		"lan:[::1]:":                       "after the bracket",
		"lan:[192.168.1.20]:1":             "IPv6",
		"lan:::1:zz":                       "neither",
		"lan:0.0.0.0":                      "one machine",
		"lan:::":                           "one machine",
		"lan:224.0.0.1":                    "one machine",
		"lan:[fe80::1%e th]:1":             "name of an interface",
		"lan:192.168.1.300":                "starts with a digit",
		"lan:0x7f.1":                       "starts with a digit",
		"lan:2130706433":                   "starts with a digit",
		"lan:a..b":                         "neither",
		"lan:a b":                          "neither",
		"lan:" + strings.Repeat("a", 64):   "neither",
		"lan:" + strings.Repeat("a.", 130): "1 to 253",
	} {
		r, err := ParseRoute(text, 7000)
		if !errors.Is(err, ErrBadRoute) || !strings.Contains(err.Error(), say) {
			t.Errorf("ParseRoute(%q) = %v, %v; want ErrBadRoute with %q", text, r, err, say)
		}
	}
	if _, err := ParseRoute("lan:h", 0); !errors.Is(err, ErrBadRoute) {
		t.Errorf("no port anywhere: %v", err)
	}
}

func FuzzParseRoute(f *testing.F) {
	for _, seed := range []string{
		"lan:192.168.1.20:7000", "tailnet:devbox.tail1234.ts.net", "direct:[2001:db8::1]:443",
		"lan:fe80::1%eth0", "relay:wss://r.example/x", "lan:[::ffff:1.2.3.4]", "lan:[", "::", "direct:1.2.3:4", "lan:a%b",
	} {
		f.Add(seed, uint16(7000))
	}
	f.Fuzz(func(t *testing.T, text string, port uint16) {
		r, err := ParseRoute(text, port)
		if err != nil {
			if !errors.Is(err, ErrBadRoute) || r != (Route{}) {
				t.Fatalf("ParseRoute(%q) = %v, %v", text, r, err)
			}
			return
		}
		again, err := ParseRoute(r.ID(), 1)
		if err != nil || again != r {
			t.Fatalf("%q became %v, and that became %v, %v", text, r, again, err)
		}
		if ap, err := netip.ParseAddrPort(r.Address); err == nil && (ap.Addr().IsUnspecified() || ap.Addr().Is4In6() || ap.Port() == 0) {
			t.Fatalf("%q became %v", text, r)
		}
		if strings.ContainsAny(r.Address, " \t\r\n\x00/") {
			t.Fatalf("%q became %q", text, r.Address)
		}
	})
}

func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		host          string
		with, without Class // a tailnet
	}{
		{"192.168.1.20", LAN, LAN},
		{"10.1.2.3", LAN, LAN},
		{"172.31.0.1", LAN, LAN},
		{"172.32.0.1", Direct, Direct},
		{"169.254.1.1", LAN, LAN},
		{"127.0.0.1", LAN, LAN},
		{"::1", LAN, LAN},
		{"fe80::1%eth0", LAN, LAN},
		{"fd00::1", LAN, LAN},
		{"::ffff:192.168.1.20", LAN, LAN},
		{"nas.local", LAN, LAN},
		{"localhost", LAN, LAN},
		{"100.64.0.9", Tailnet, Direct},
		{"100.127.255.255", Tailnet, Direct},
		{"100.128.0.0", Direct, Direct},
		{"fd7a:115c:a1e0::9", Tailnet, LAN},
		{"fd7a:115c:a1e0::9%tailscale0", Tailnet, LAN},
		{"fd7a:115c:a1e1::9", LAN, LAN},
		{"DevBox.tail1234.TS.net.", Tailnet, Tailnet},
		{"198.51.100.7", Direct, Direct},
		{"2001:db8::1", Direct, Direct},
		{"devbox.example.com", Direct, Direct},
		{"notlocal", Direct, Direct},
	} {
		if got := ClassOf(c.host, true); got != c.with {
			t.Errorf("ClassOf(%s) with a tailnet = %s, want %s", c.host, got, c.with)
		}
		if got := ClassOf(c.host, false); got != c.without {
			t.Errorf("ClassOf(%s) without = %s, want %s", c.host, got, c.without)
		}
	}
}

func TestParsePlain(t *testing.T) {
	for text, want := range map[string]string{
		"lan:192.168.1.9":              "lan:192.168.1.9",
		"LAN:NAS.local.":               "lan:nas.local",
		"tailnet:nas.tail1234.ts.net":  "tailnet:nas.tail1234.ts.net",
		"direct:[2001:DB8::1]":         "direct:2001:db8::1",
		"lan:fe80::1%eth0":             "lan:fe80::1%eth0",
		"direct:[::ffff:198.51.100.7]": "direct:198.51.100.7",
	} {
		r, err := ParsePlain(text)
		if err != nil || r.ID() != want || r.Source != Configured {
			t.Errorf("ParsePlain(%q) = %v, %v; want %s", text, r, err, want)
		}
		if again, err := ParsePlain(r.ID()); err != nil || again != r {
			t.Errorf("%v became %v, %v", r, again, err)
		}
	}
	for _, text := range []string{"lan:192.168.1.9:80", "direct:[2001:db8::1]:1", "lan:", "wan:h", "192.168.1.9"} {
		if r, err := ParsePlain(text); !errors.Is(err, ErrBadRoute) || r != (Route{}) {
			t.Errorf("ParsePlain(%q) = %v, %v", text, r, err)
		}
	}
}

// TestPlainRoutesRank: what is known of a host without a port is ranked as any other.
func TestPlainRoutesRank(t *testing.T) {
	var routes []Route
	for _, text := range []string{"lan:192.168.1.9", "lan:fd00::9", "lan:nas.local", "lan:127.0.0.1", "tailnet:nas.tail1234.ts.net", "tailnet:100.64.0.3"} {
		r, err := ParsePlain(text)
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, r)
	}
	f := Facts{Routes: routes, Path: Path{Tailnet: true, Interfaces: []Interface{{Name: "wwan0", Kind: Cell}}}}
	var got []string
	for _, r := range Rank(f) {
		got = append(got, r.Route.Address)
	}
	if want := "127.0.0.1 100.64.0.3 nas.tail1234.ts.net 192.168.1.9 fd00::9 nas.local"; strings.Join(got, " ") != want {
		t.Errorf("ranked %v, want %s", got, want)
	}
}
