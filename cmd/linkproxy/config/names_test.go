package config

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTo(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want To
	}{
		{"devbox:5432", To{"devbox", "127.0.0.1", 5432, 5432}},
		{"DevBox.:22", To{"devbox", "127.0.0.1", 22, 22}},
		{"devbox.linkproxy.internal:22", To{"devbox", "127.0.0.1", 22, 22}},
		{"DEVBOX.linkproxy.INTERNAL.:22", To{"devbox", "127.0.0.1", 22, 22}},
		{"devbox:3000-3010", To{"devbox", "127.0.0.1", 3000, 3010}},
		{"devbox/db.internal:5432", To{"devbox", "db.internal", 5432, 5432}},
		{"devbox/DB.internal.:1-2", To{"devbox", "db.internal", 1, 2}},
		{"devbox/10.0.0.5:5432", To{"devbox", "10.0.0.5", 5432, 5432}},
		{"devbox/[::ffff:10.0.0.5]:5432", To{"devbox", "10.0.0.5", 5432, 5432}},
		{"devbox/[fd00::1]:65535", To{"devbox", "fd00::1", 65535, 65535}},
		{"a1-b:1", To{"a1-b", "127.0.0.1", 1, 1}},
	} {
		got, err := ParseTo(tc.in)
		if err != nil || got != tc.want {
			t.Errorf("ParseTo(%q) = %+v, %v", tc.in, got, err)
		}
	}
	to := To{"devbox", "fd00::1", 5, 7}
	if to.Count() != 3 || to.Target(2) != "[fd00::1]:7" {
		t.Errorf("%d, %s", to.Count(), to.Target(2))
	}
}

// TestCheckTarget: what can be a target, of a peer or by a reach rule, is told from what cannot.
func TestCheckTarget(t *testing.T) {
	for _, in := range []string{
		"devbox:22", "DEVBOX.:22", "devbox.linkproxy.internal:22", "devbox/db.internal:5432", "devbox/[fd00::1]:5432",
		"host.example:443", "10.0.0.5:22", "[::1]:22",
	} {
		if err := CheckTarget(in); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
	for in, want := range map[string]string{
		"":                    "has no port",
		"devbox":              `write it like "devbox:22"`,
		"devbox:0":            "no usable port",
		"devbox:99999":        "a port is a number from 1 to 65535",
		"devbox:ssh":          "a port is a number from 1 to 65535",
		"devbox:22-25":        "write one port",
		"devbox/db:1-2":       "write one port",
		"devbox/:22":          "is no host",
		"devbox/db.internal":  "has no port",
		"host.example/a:1":    "is not the name of a peer",
		"fd00::1:22":          "an IPv6 address needs brackets",
		"host.example:443x":   "is not the name of a peer",
		"host example.org:22": "is not a valid peer name",
		":22":                 "a peer needs a name",
	} {
		if err := CheckTarget(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func TestParseToRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"devbox":                  `"devbox" has no port; write it like "devbox:22"`,
		"":                        `"" has no port; write it like "devbox:5432"`,
		"devbox/db.internal":      `"db.internal" has no port; write it like "devbox/db.internal:5432"`,
		":22":                     `a peer needs a name; use lower-case letters, digits and hyphens, like "devbox"`,
		"/db:22":                  `a peer needs a name; use lower-case letters, digits and hyphens, like "devbox"`,
		"devbox/:22":              `"" is no host; write an IP address or a host name`,
		"devbox:0":                `"devbox:0" has no usable port; a port is a number from 1 to 65535`,
		"devbox:":                 `"devbox:" has no port; write it like "devbox:5432"`,
		"devbox:ssh":              `"ssh" is not a port; a port is a number from 1 to 65535`,
		"devbox:9-8":              `"9-8" is not a range of ports; write the lower port first, like "3000-3010"`,
		"10.0.0.5:22":             `"10.0.0.5" is not the name of a peer; write PEER/10.0.0.5:22 with the name of the peer that dials it`,
		"db.internal:22":          `"db.internal" is not the name of a peer; write PEER/db.internal:22 with the name of the peer that dials it`,
		"2130706433:22":           `"2130706433" is not a valid peer name; use lower-case letters, digits and hyphens, like "devbox"`,
		"localhost:22":            `"localhost" is not the name of a peer; write PEER/localhost:22 with the name of the peer that dials it`,
		"devbox/[fe80::1%eth0]:1": `"fe80::1%eth0" names an interface of the peer; leave the % and what follows out, or use another address`,
		"devbox/0.0.0.0:22":       `"0.0.0.0" is no address to connect to; name one address`,
		"devbox/0x7f000001:22":    `"0x7f000001" is no host; write an IP address or a host name`,
		"devbox/0177.0.0.1:22":    `"0177.0.0.1" is no host; write an IP address or a host name`,
		"a.b.linkproxy.internal:": `"a.b.linkproxy.internal:" has no port; write it like "devbox:5432"`,
	} {
		if _, err := ParseTo(in); err == nil || err.Error() != want {
			t.Errorf("ParseTo(%q): %v, want %s", in, err, want)
		}
	}
}

func TestParseRoute(t *testing.T) {
	for in, want := range map[string]Route{
		"lan:192.168.1.20":                {"lan", "192.168.1.20:8639"},
		"tailnet:devbox.tail1234.ts.net":  {"tailnet", "devbox.tail1234.ts.net:8639"},
		"tailnet:100.64.0.1:1":            {"tailnet", "100.64.0.1:1"},
		"direct:devbox.example.com:7000":  {"direct", "devbox.example.com:7000"},
		"direct:DevBox.Example.COM.:7000": {"direct", "devbox.example.com:7000"},
		"lan:[fe80::1%eth0]:7000":         {"lan", "[fe80::1%eth0]:7000"},
		"lan:[fe80::1%eth0]":              {"lan", "[fe80::1%eth0]:8639"},
		"lan:fe80::1%eth0":                {"lan", "[fe80::1%eth0]:8639"},
		"lan:fd00::1":                     {"lan", "[fd00::1]:8639"},
		"lan:::ffff:10.0.0.1":             {"lan", "10.0.0.1:8639"},
		"lan:my_box.local":                {"lan", "my_box.local:8639"},
	} {
		got, err := ParseRoute(in)
		if err != nil || got != want {
			t.Errorf("ParseRoute(%q) = %+v, %v", in, got, err)
			continue
		}
		if again, err := ParseRoute(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q, which is read as %+v, %v", in, got.String(), again, err)
		}
	}
	for _, in := range []string{"", "lan", "lan:", "lan::1", "LAN:1.2.3.4", "lan:a b", "lan:[fd00::1", "lan:[]:1", "lan:a:b:c", "lan:x:99999", "direct:127.1", "lan:-x", "lan:x:-1", `lan:fe80::1%"`} {
		if r, err := ParseRoute(in); err == nil {
			t.Errorf("ParseRoute(%q) = %+v", in, r)
		}
	}
}

// namesConfig has two peers whose reach rules meet in every way.
const namesConfig = `
[[peer]]
name = "devbox"
id = "ID1"
routes = ["lan:1.2.3.4"]
reach = ["10.20.0.0/16", "*.corp.example.com", "Tie.Example.", "fd00::/8", "::ffff:172.16.0.0/108", "10.0.0.1"]
[[peer]]
name = "web"
id = "ID2"
routes = ["lan:1.2.3.5"]
reach = ["10.20.30.0/24", "*.eu.corp.example.com", "git.corp.example.com", "tie.example", "0.0.0.0/0", "127.0.0.9"]
`

func names(t testing.TB, prefix, text string) *Names {
	t.Helper()
	text = strings.NewReplacer("ID1", testID(1).String(), "ID2", testID(2).String()).Replace(text)
	return parseString(t, prefix+text).Names()
}

func TestResolve(t *testing.T) {
	for _, tc := range []struct{ dest, peer, target string }{
		// Peers by name.
		{"devbox:22", "devbox", "127.0.0.1:22"},
		{"DevBox.:22", "devbox", "127.0.0.1:22"},
		{"devbox.linkproxy.internal:22", "devbox", "127.0.0.1:22"},
		{"Web.LinkProxy.Internal.:00080", "web", "127.0.0.1:80"},

		// Networks: the longest prefix.
		{"10.20.1.1:443", "devbox", "10.20.1.1:443"},
		{"10.20.30.1:443", "web", "10.20.30.1:443"},
		{"[::ffff:10.20.30.1]:443", "web", "10.20.30.1:443"},
		{"172.16.5.5:1", "devbox", "172.16.5.5:1"},
		{"10.0.0.1:1", "devbox", "10.0.0.1:1"},
		{"8.8.8.8:53", "web", "8.8.8.8:53"},
		{"[FD00::1]:1", "devbox", "[fd00::1]:1"},
		{"[fe80::1%eth0]:1", "", "[fe80::1%eth0]:1"},
		{"[2001:db8::1]:1", "", "[2001:db8::1]:1"},

		// This machine's own addresses only by a rule that names them.
		{"127.0.0.1:1", "", "127.0.0.1:1"},
		{"127.0.0.9:1", "web", "127.0.0.9:1"},
		{"0.0.0.0:1", "", "0.0.0.0:1"},
		{"[::ffff:127.0.0.1]:1", "", "127.0.0.1:1"},
		{"[::1]:1", "", "[::1]:1"},

		// Names: exact, then the longest suffix, then the first in the file.
		{"git.corp.example.com:22", "web", "git.corp.example.com:22"},
		{"GIT.Corp.example.com.:22", "web", "GIT.Corp.example.com.:22"},
		{"x.git.corp.example.com:22", "devbox", "x.git.corp.example.com:22"},
		{"a.b.eu.corp.example.com:1", "web", "a.b.eu.corp.example.com:1"},
		{"eu.corp.example.com:1", "devbox", "eu.corp.example.com:1"},
		{"corp.example.com:1", "", "corp.example.com:1"},
		{"xcorp.example.com:1", "", "xcorp.example.com:1"},
		{"tie.example:1", "devbox", "tie.example:1"},

		// The rest is direct, however odd, as it was written.
		{"example.com:443", "", "example.com:443"},
		{"Example.COM.:443", "", "Example.COM.:443"},
		{"localhost:1", "", "localhost:1"},
		{"2130706433:1", "", "2130706433:1"},
		{"bücher.example:1", "", "bücher.example:1"},
		{"devbox.example:1", "", "devbox.example:1"},
	} {
		peer, target, direct, err := names(t, "", namesConfig).Resolve(tc.dest)
		if err != nil || peer != tc.peer || target != tc.target || direct != (tc.peer == "") {
			t.Errorf("Resolve(%q) = %q, %q, %v, %v; want %q, %q", tc.dest, peer, target, direct, err, tc.peer, tc.target)
		}
	}
}

func TestResolveEverything(t *testing.T) {
	n := names(t, "", strings.Replace(namesConfig, `"fd00::/8"`, `"*"`, 1))
	for dest, want := range map[string]string{"example.com:1": "devbox", "nas:1": "devbox", "localhost:1": "", "app.localhost:1": "", "git.corp.example.com:1": "web", "x.eu.corp.example.com:1": "web"} {
		if peer, _, _, err := n.Resolve(dest); err != nil || peer != want {
			t.Errorf("Resolve(%q) = %q, %v; want %q", dest, peer, err, want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	direct, refuse := names(t, "", namesConfig), names(t, "default = \"refuse\"\n", namesConfig)
	for _, tc := range []struct {
		names        *Names
		dest, reason string
	}{
		{direct, "ghost.linkproxy.internal:22", "unknown_peer"},
		{direct, "a.devbox.linkproxy.internal:22", "unknown_peer"},
		{direct, "linkproxy.internal:22", "unknown_peer"},
		{direct, "devbox", "not_found"},
		{direct, "devbox:0", "not_found"},
		{direct, "devbox:65536", "not_found"},
		{direct, "devbox:ssh", "not_found"},
		{direct, "devbox:+22", "not_found"},
		{direct, ":22", "not_found"},
		{direct, ".:22", "not_found"},
		{direct, "", "not_found"},
		{direct, "a b:22", "not_found"},
		{direct, "a\r\n:22", "not_found"},
		{direct, strings.Repeat("a", 256) + ":22", "not_found"},
		{refuse, "example.com:22", "not_allowed"},
		{refuse, "127.0.0.1:22", "not_allowed"},
		{refuse, "ghost.linkproxy.internal:22", "unknown_peer"},
	} {
		peer, target, isDirect, err := tc.names.Resolve(tc.dest)
		var reason interface{ Reason() string }
		if !errors.As(err, &reason) || reason.Reason() != tc.reason || peer != "" || target != "" || isDirect || err.Error() == "" {
			t.Errorf("Resolve(%q) = %q, %q, %v, %v; want %s", tc.dest, peer, target, isDirect, err, tc.reason)
		}
	}
	if peer, _, _, err := refuse.Resolve("devbox:22"); peer != "devbox" || err != nil {
		t.Errorf("a peer is refused: %q, %v", peer, err)
	}
	if _, _, isDirect, err := new(Names).Resolve("example.com:22"); !isDirect || err != nil {
		t.Errorf("the zero Names: %v, %v", isDirect, err)
	}
}

func TestReachSpellings(t *testing.T) {
	c := parseString(t, peerText("devbox", 1)+`reach = ["::ffff:10.0.0.0/104", "10.1.1.1", "10.1.1.2/32", "FD00::1", "Git.Example.COM.", "*.Example.com.", "*"]`+"\n")
	want := []string{"10.0.0.0/8", "10.1.1.1", "10.1.1.2", "fd00::1", "git.example.com", "*.example.com", "*"}
	if diff := cmp.Diff(want, c.Peers[0].Reach); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", ".", "*.", "**", "a.*", "*.1", "10.1", "10.0.0.0/-1", "a:1", "fe80::1%eth0", "fe80::%x/64", "10.0.0.1/8", "a b", "-a"} {
		if r, err := parseReach(bad); err == nil {
			t.Errorf("parseReach(%q) = %v", bad, r)
		}
	}
}

func FuzzParseTo(f *testing.F) {
	for _, s := range []string{"devbox:5432", "devbox/db.internal:5432", "devbox/[fd00::1%x]:1-2", "a.linkproxy.internal:1", "10.0.0.1:1", "/:", "a/b/c:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		to, err := ParseTo(s)
		if err != nil {
			var p Problem
			if !errors.As(err, &p) || p.Fix == "" {
				t.Fatalf("%q: no remedy in %v", s, err)
			}
			return
		}
		if CheckPeerName(to.Peer) != nil || to.First < 1 || to.Last < to.First || to.Last > 65535 || to.Count() > maxRange {
			t.Fatalf("%q: %+v", s, to)
		}
		again, err := ParseTo(to.Peer + "/" + to.Target(0))
		to.Last = to.First
		if err != nil || again != to {
			t.Fatalf("%q: %+v is read again as %+v, %v", s, to, again, err)
		}
	})
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"devbox:22", "x.corp.example.com.:1", "[::ffff:10.20.0.1]:1", "localhost:1", ".linkproxy.internal:1", "a..b:1", "[fe80::1%eth0]:1"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	ways := map[bool]*Names{false: names(f, "", namesConfig), true: names(f, "default = \"refuse\"\n", namesConfig)}
	f.Fuzz(func(t *testing.T, dest string, refuse bool) {
		peer, target, direct, err := ways[refuse].Resolve(dest)
		if err != nil {
			var e *TargetError
			if !errors.As(err, &e) || e.Reason() == "" || peer != "" || target != "" || direct {
				t.Fatalf("%q: %q, %q, %v, %v", dest, peer, target, direct, err)
			}
			return
		}
		host, _, splitErr := net.SplitHostPort(target)
		if splitErr != nil || direct != (peer == "") || direct && refuse {
			t.Fatalf("%q: %q, %q, %v", dest, peer, target, direct)
		}
		if strings.HasSuffix(foldName(host), "."+InternalDomain) {
			t.Fatalf("%q leaks to the DNS as %q", dest, target)
		}
		// Case and a trailing dot make no difference to the way it goes.
		if h, p, _ := net.SplitHostPort(dest); h != "" && !strings.HasSuffix(h, ".") && !strings.Contains(h, "%") {
			again, _, _, err := ways[refuse].Resolve(net.JoinHostPort(strings.ToLower(h), p))
			if err != nil || again != peer {
				t.Fatalf("%q goes to %q, in lower case to %q, %v", dest, peer, again, err)
			}
		}
	})
}

// TestNoAgentNames: all names of a peer without an agent mean the machine itself.
func TestNoAgentNames(t *testing.T) {
	n := parseString(t, nas+"reach = [\"nas.example\", \"192.168.1.9\", \"fd00::9\"]\n").Names()
	for _, dest := range []string{"nas:80", "NAS.linkproxy.internal:80", "nas.example.:80", "192.168.1.9:80", "[fd00::9]:80"} {
		peer, target, direct, err := n.Resolve(dest)
		if peer != "nas" || target != "127.0.0.1:80" || direct || err != nil {
			t.Errorf("%s: %q %q %v %v", dest, peer, target, direct, err)
		}
	}
}
