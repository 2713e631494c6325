package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProblems gives each kind of mistake alone and compares the whole message.
func TestProblems(t *testing.T) {
	id := testID(1).String()
	peer := peerText("devbox", 1) // 4 lines
	longUnix := "unix:/" + strings.Repeat("x", maxUnixPath)
	for _, tc := range []struct{ text, want string }{
		// TOML itself.
		{"x = \n", `c.toml:1: not valid TOML: unexpected character U+000A at start of value; the line reads: x =`},
		{"default = \"direct\"\ndefault = \"refuse\"\n", `c.toml:2: not valid TOML: key default is already defined; the line reads: default = "refuse"`},

		// Unknown keys.
		{"[listn]\n", `c.toml:1: listn: unknown key; did you mean "listen"?`},
		{"[listen]\n\nsokcs = \"127.0.0.1:1\"\n", `c.toml:3: listen.sokcs: unknown key; did you mean "socks"?`},
		{peer + "default = \"refuse\"\n", `c.toml:5: peer.default: unknown key; it belongs at the top of the file, before the first [section]`},
		{"socks = \"127.0.0.1:1\"\n", `c.toml:1: socks: unknown key; it belongs in [listen]`},
		{"[host]\nqqqqq = 1\n", `c.toml:2: host.qqqqq: unknown key; known here: allow, listen`},
		{"[host]\nallow = [{ to = \"127.0.0.1:1\",\n  hodl = \"1h\" }]\n", `c.toml:3: host.allow.hodl: unknown key; did you mean "hold"?`},

		// Types.
		{"default = true\n", `c.toml:1: default: this is true or false, not a string; write default = "direct"`},
		{"[listen]\nwait = 60\n", `c.toml:2: listen.wait: this is a whole number, not a string; write wait = "60s"`},
		{"[listen]\nallow_remote = \"yes\"\n", `c.toml:2: listen.allow_remote: this is a string, not true or false; write allow_remote = true`},
		{"listen = 1.5\n", `c.toml:1: listen: this is a number, not a table; write [listen] and its keys below it`},
		{"[[listen]]\n", `c.toml:1: listen: this is a list, not a table; write [listen] once, in single brackets`},
		{"[peer]\n", `c.toml:1: peer: this is a table, not a list of tables; write [[peer]] in double brackets`},
		{"peer = [1]\n", `c.toml:1: peer: this is a whole number, not a table; write [[peer]] in double brackets`},
		{"[host]\nallow = 2020-01-01\n", `c.toml:2: host.allow: this is a date or time, not a list; write allow = ["127.0.0.1:*"]`},
		{"[host]\nallow = [\n  \"127.0.0.1:1\",\n  7,\n]\n", `c.toml:4: host.allow: this is a whole number, not a string or a table; write allow = ["127.0.0.1:*", { to = "127.0.0.1:5432", hold = "1h" }]`},

		// Values.
		{"default = \"drop\"\n", `c.toml:1: default: "drop" is none of its values; it takes "direct", "refuse"`},
		{"[listen]\nwait = \"60\"\n", `c.toml:2: listen.wait: "60" is not a duration; write a number with its unit, such as "60s"; units are "s", "m" and "h"`},
		{"[listen]\nwait = \"-1s\"\n", `c.toml:2: listen.wait: "-1s" is not a duration; write a number with its unit, such as "60s"; units are "s", "m" and "h"`},
		{"[listen]\nsocks = \"1080\"\n", `c.toml:2: listen.socks: "1080" has no port; write it like "127.0.0.1:1080"`},
		{"[listen]\nsocks = \"::1:1080\"\n", `c.toml:2: listen.socks: "::1:1080": an IPv6 address needs brackets before its port; write it like "[fd00::1]:8639"`},
		{"[listen]\nsocks = \"127.0.0.1:+1\"\n", `c.toml:2: listen.socks: "+1" is not a port; a port is a number from 1 to 65535`},
		{"[listen]\nsocks = \"127.0.0.1:65536\"\n", `c.toml:2: listen.socks: "65536" is not a port; a port is a number from 1 to 65535`},
		{"[listen]\nsocks = \"127.0.0.1:1-2\"\n", `c.toml:2: listen.socks: "127.0.0.1:1-2" is a range of ports; write one port; only a [[forward]] takes a range`},
		{"[listen]\nsocks = \"mybox:1\"\n", `c.toml:2: listen.socks: "mybox" is no address to listen on; write an IP address of this machine or "localhost"`},
		{"[listen]\nsocks = \"unix:sock\"\n", `c.toml:2: listen.socks: "sock" is not an absolute path; write the whole path, from the root on`},
		{"[listen]\nsocks = \"" + longUnix + "\"\n", `c.toml:2: listen.socks: the path of a Unix socket may have 103 bytes, this one has 104; choose a shorter path`},
		{"[listen]\npassword_file = \"\"\n", `c.toml:2: listen.password_file: no file is named; remove the key or name a file`},
		{"[listen]\nusers = {}\n", `c.toml:2: listen.users: no user is named; write { name = "password" } or remove the key`},
		{"[listen.users]\n\"a:b\" = \"secret\"\n", `c.toml:2: listen.users: "a:b" cannot be the name of a user; use 1 to 255 bytes without a colon`},
		{"[listen.users]\nab = \"\"\n", `c.toml:2: listen.users: the password of "ab" cannot be used; use 1 to 255 bytes in one line`},
		{"[host]\nallow = []\n", `c.toml:2: host.allow: an empty list would allow nothing; remove the key for any port of this machine's own loopback, or write allow = ["127.0.0.1:22"]`},
		{"[host]\nallow = [{ hold = \"1h\" }]\n", `c.toml:2: host.allow.to: missing; write { to = "127.0.0.1:5432", hold = "1h" }`},

		// Open to others.
		{"[listen]\nsocks = \"0.0.0.0:9\"\n", `c.toml:2: listen.socks: other machines could use 0.0.0.0:9 without a password; listen on "127.0.0.1", or set users or password_file, or say allow_remote = true`},
		{"[listen]\nhttp = \":9\"\n", `c.toml:2: listen.http: other machines could use :9 without a password; listen on "127.0.0.1", or set users or password_file, or say allow_remote = true`},
		{
			"[listen]\nallow_remote = true\n[[forward]]\nlisten = \"192.168.1.2:9\"\nto = \"devbox:9\"\n" + peer,
			`c.toml:4: forward.listen: other machines could use 192.168.1.2:9, and a fixed port asks for no password; listen on "127.0.0.1", or say allow_remote = true in this [[forward]]`,
		},

		// Two on one port.
		{"[listen]\nsocks = \"127.0.0.1:9\"\nhttp = \"localhost:9\"\n", `c.toml:3: listen.http: localhost:9 is already used by listen.socks in line 2; choose another port for one of them`},
		{
			"[[forward]]\nlisten = \"127.0.0.1:1079-1081\"\nto = \"devbox:1-3\"\n" + peer,
			`c.toml:2: forward.listen: 127.0.0.1:1079-1081 is already used by the default of listen.socks; choose another port for one of them`,
		},
		{
			"[[forward]]\nlisten = \"[::1]:9\"\nto = \"devbox:1\"\n[[forward]]\nlisten = \"0.0.0.0:9\"\nto = \"devbox:2\"\nallow_remote = true\n" + peer,
			`c.toml:5: forward.listen: 0.0.0.0:9 is already used by forward.listen in line 2; choose another port for one of them`,
		},
		{
			"[[forward]]\nlisten = \"unix:/a/b\"\nto = \"devbox:1\"\n[[forward]]\nlisten = \"unix:/a/./b\"\nto = \"devbox:2\"\n" + peer,
			`c.toml:5: forward.listen: unix:/a/b is already used by forward.listen in line 2; choose another port for one of them`,
		},
		{
			"[host]\n[[forward]]\nlisten = \"127.0.0.1:8639\"\nto = \"devbox:1\"\n" + peer,
			`c.toml:1: host.listen: :8639 is already used by forward.listen in line 3; choose another port for one of them`,
		},

		// Forwards.
		{
			"[[forward]]\nlisten = \"127.0.0.1:1-3\"\nto = \"devbox:1-2\"\n" + peer,
			`c.toml:3: forward.to: 2 ports here, but listen has 3; give both the same number of ports`,
		},
		{"[[forward]]\nlisten = \"unix:/s\"\nto = \"devbox:1-2\"\n" + peer, `c.toml:3: forward.to: 2 ports here, but listen has 1; give both the same number of ports`},
		{"[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"devbix:1\"\n" + peer, `c.toml:3: forward.to: there is no peer called "devbix"; did you mean "devbox"?`},
		{"[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"mars:1\"\n" + peer, `c.toml:3: forward.to: there is no peer called "mars"; the peers are: devbox`},
		{"[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"mars:1\"\n", "c.toml:3: forward.to: there is no peer called \"mars\"; pair with it first (`linkproxy pair`)"},
		{"[[forward]]\nlisten = \"127.0.0.1:1\"\n", `c.toml:1: forward.to: missing; every [[forward]] has a listen and a to, like listen = "127.0.0.1:5432" and to = "devbox:5432"`},
		{"[[forward]]\nlisten = \"127.0.0.1:1-1000\"\nto = \"devbox:1\"\n" + peer, `c.toml:2: forward.listen: "1-1000" has 1000 ports; use at most 512 ports in one range`},

		// Peers.
		{peerText("devbox", 1) + peerText("devbox", 2), `c.toml:6: peer.name: another peer is called "devbox" (line 2); give each its own name`},
		{peerText("a", 1) + peerText("b", 1), `c.toml:7: peer.id: another peer has this id (line 3); write one [[peer]] for one machine, with all its routes`},
		{peerText("Devbox", 1), `c.toml:2: peer.name: "Devbox" is not a valid peer name; write "devbox"`},
		{peerText("my box", 1), `c.toml:2: peer.name: "my box" is not a valid peer name; use lower-case letters, digits and hyphens, like "devbox"`},
		{strings.Replace(peer, id, id[:20], 1), "c.toml:3: peer.id: a part of the fingerprint is missing; copy it from `linkproxy host invite` on that machine, or pair again"},
		{strings.Replace(peer, id, "u"+id[1:], 1), "c.toml:3: peer.id: the fingerprint has a typing error; copy it from `linkproxy host invite` on that machine, or pair again"},
		{peerText("z", 0), "c.toml:3: peer.id: this is not a fingerprint; copy it from `linkproxy host invite` on that machine, or pair again"},
		{strings.Replace(peer, `"lan:192.168.1.20"`, ``, 1), `c.toml:4: peer.routes: a peer without a route cannot be reached; write at least one, like "lan:192.168.1.20"`},
		{strings.Replace(peer, `lan:`, ``, 1), `c.toml:4: peer.routes: "192.168.1.20" does not begin with a class of route; put "lan:", "tailnet:" or "direct:" before the address`},
		{strings.Replace(peer, `lan:`, `lna:`, 1), `c.toml:4: peer.routes: "lna" is no class of route; write "lan:192.168.1.20"`},
		{strings.Replace(peer, `1.20"`, `1.20:0"`, 1), `c.toml:4: peer.routes: "lan:192.168.1.20:0" has no usable port; a port is a number from 1 to 65535`},
		{strings.Replace(peer, `20"`, `20", "lan:192.168.1.20:8639"`, 1), `c.toml:4: peer.routes: "lan:192.168.1.20:8639" is there twice; remove one`},
		{strings.Replace(peer, `192.168.1.20`, `0.0.0.0`, 1), `c.toml:4: peer.routes: "0.0.0.0" is no address to connect to; name one address`},
		{peer + "standby = \"maybe\"\n", `c.toml:5: peer.standby: "maybe" is none of its values; it takes "auto", "always", "never"`},
		{peer + "reach = [\n\"a.example\",\n\"10.0.0.0/33\"]\n", `c.toml:7: peer.reach: "10.0.0.0/33" is no network; write a network like "10.20.0.0/16" or "fd00::/8"`},
		{peer + "reach = [\"x.linkproxy.internal\"]\n", `c.toml:5: peer.reach: names under linkproxy.internal always mean the peers themselves; remove it`},
		{"[[peer]]\nid = \"" + id + "\"\nroutes = [\"lan:1.2.3.4\"]\n", "c.toml:1: peer.name: missing; every [[peer]] has a name, an id and routes; `linkproxy pair` writes them"},

		// Peers without an agent.
		{peer + "agent = 1\n", `c.toml:5: peer.agent: this is a whole number, not true or false; write agent = false`},
		{peer + "agent = false\n", "c.toml:3: peer.id: a peer with agent = false has no key to prove; remove the id, or agent = false if `linkproxy host` runs there"},
		{nas + "standby = \"never\"\n", "c.toml:5: peer.standby: a connection to a peer with agent = false cannot move to a second one; remove it, or run `linkproxy host` there"},
		{"[[peer]]\nname = \"nas\"\nagent = false\n", "c.toml:1: peer.routes: missing; a [[peer]] with agent = false has a name and routes"},
		{"[[peer]]\nname = \"nas\"\nagent = false\nroutes = []\n", `c.toml:4: peer.routes: a peer without a route cannot be reached; write at least one, like "lan:192.168.1.20"`},
		{strings.Replace(nas, `1.9"`, `1.9:80"`, 1), `c.toml:4: peer.routes: "lan:192.168.1.9:80" has a port, but with agent = false each connection brings its own; write "lan:192.168.1.9", and ask for PEER:PORT`},
		{strings.Replace(nas, `192.168.1.9`, `[fd00::9]:8639`, 1), `c.toml:4: peer.routes: "lan:[fd00::9]:8639" has a port, but with agent = false each connection brings its own; write "lan:fd00::9", and ask for PEER:PORT`},
		{nas + "reach = [\"10.0.0.0/8\"]\n", "c.toml:5: peer.reach: \"10.0.0.0/8\" covers other machines, which only an agent can reach; name the machine itself by another name or address, or run `linkproxy host` there"},
		{nas + "reach = [\"*.example\"]\n", "c.toml:5: peer.reach: \"*.example\" covers other machines, which only an agent can reach; name the machine itself by another name or address, or run `linkproxy host` there"},
		{nas + "[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"nas/db:80\"\n", "c.toml:7: forward.to: nas has agent = false, so nobody there can connect to db; write \"nas:80\" for a port of nas itself, or run `linkproxy host` there"},
		{nas + "[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"nas:80\"\nhold = \"1h\"\n", "c.toml:8: forward.hold: nas has agent = false: its connections end with their route and cannot be held; remove it, or run `linkproxy host` there"},
		{nas + nas, `c.toml:6: peer.name: another peer is called "nas" (line 2); give each its own name`},

		// What comes later.
		{strings.Replace(peer, `20"`, `20",`+"\n"+`"relay:wss://r.example"`, 1), `c.toml:5: peer.routes: relay routes are not in this version; remove it`},
		{"[host]\nrelays = [\"wss://r.example\"]\n", `c.toml:2: host.relays: relay routes are not in this version; remove it`},
		{"[relay_server]\nlisten = \":443\"\n", `c.toml:1: relay_server: relay routes are not in this version; remove it`},
		{"\n[relay.\"wss://r.example\"]\ntoken = \"x\"\n", `c.toml:2: relay: relay routes are not in this version; remove it`},
	} {
		_, err := Parse("c.toml", []byte(tc.text))
		if err == nil {
			t.Errorf("no error, want %s\n%s", tc.want, tc.text)
			continue
		}
		if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
			t.Errorf("%s\n%s", diff, tc.text)
		}
	}
}

// TestEveryProblemIsReported has one mistake on each numbered line.
func TestEveryProblemIsReported(t *testing.T) {
	text := `
defualt = "direct" # 2
[listen]
socks = "nonsense" # 4
http = 7 # 5
wait = "soon" # 6
[listen.users]
a = 1 # 8
[[forward]]
listen = "127.0.0.1:5000"
to = "ghost:1" # 11
hold = "x" # 12
[[forward]]
listen = "127.0.0.1:5000" # 14
to = "devbox" # 15
[host]
relays = [] # 17
allow = [
  "x", # 19
  { to = "y" }, # 20
]
[[peer]]
name = "devbox"
id = "zz" # 24
routes = [
  "wan:1.2.3.4", # 26
  "lan:_:x", # 27
]
reach = ["*.*"] # 29
`
	_, err := Parse("c.toml", []byte(text))
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %v", err)
	}
	var got []int
	for _, p := range all {
		got = append(got, p.Line)
		if p.Fix == "" || p.Msg == "" || p.Key == "" {
			t.Errorf("incomplete: %+v", p)
		}
	}
	want := []int{2, 4, 5, 6, 8, 11, 12, 14, 15, 17, 19, 20, 24, 26, 27, 29}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%v", diff, err)
	}
	var one Problem
	if !errors.As(err, &one) || one != all[0] {
		t.Errorf("errors.As finds %+v", one)
	}
}

func TestPasswordsStayOutOfErrors(t *testing.T) {
	_, err := Parse("c.toml", []byte("[listen]\nsocks = \"x\"\nusers = { \"a:b\" = \"hunter2\", c = \""+strings.Repeat("hunter2", 40)+"\" }\n"))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestSameMachinePortsDoNotCollide(t *testing.T) {
	parseString(t, "[listen]\nsocks = \"127.0.0.1:9\"\nhttp = \"[::1]:9\"\n[[forward]]\nlisten = \"127.0.0.2:9\"\nto = \"devbox:1\"\n"+
		"[[forward]]\nlisten = \"127.0.0.1:10-12\"\nto = \"devbox:1-3\"\n[[forward]]\nlisten = \"127.0.0.1:13\"\nto = \"devbox:1\"\n"+peerText("devbox", 1))
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"abc", "xabc", 1}, {"abc", "xyz", 3}, {"a", "abcd", 3}} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestTable(t *testing.T) {
	// Every way TOML has to say one thing is read, and found again by line.
	for _, text := range []string{
		"peer = [{ name = \"devbox\", id = \"" + testID(1).String() + "\", routes = [\"lan:1.2.3.4\"], agent = true }]\n",
		"[[\"peer\"]]\n'name' = '''devbox'''\nid = \"" + testID(1).String() + "\"\nroutes = [\n\n\"lan:1.2.3.4\" ,]\n",
	} {
		c := parseString(t, text)
		want := []Peer{{Name: "devbox", ID: testID(1), Standby: "auto", Routes: []Route{{"lan", "1.2.3.4:8639"}}}}
		if diff := cmp.Diff(want, c.Peers); diff != "" {
			t.Error(diff)
		}
	}
	parseString(t, "listen.socks = \"127.0.0.1:5\"\nlisten.users.a = \"b\"\n")
	_, err := Parse("f", []byte("listen.socks = \"127.0.0.1:5\"\n\nlisten.users.a = 1\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "f:3: listen.users.a: ") {
		t.Errorf("got %v", err)
	}
}

// TestAllowRules: host's grammar decides, the config adds place and remedy.
func TestAllowRules(t *testing.T) {
	for _, rule := range []string{"10.20.0.1/16:*", "127.1:*", "db:0", "db:9-8", "db", "", "*:*", "[::1]", "0x7f.1:22"} {
		_, err := Parse("c.toml", []byte("[host]\nallow = [\n\""+rule+"\"]\n"))
		var all Errors
		if !errors.As(err, &all) || len(all) != 1 {
			t.Errorf("%q: %v", rule, err)
			continue
		}
		p := all[0]
		if p.Line != 3 || p.Key != "host.allow" || !strings.HasPrefix(p.Msg, `"`+rule+`" is not an allow rule: `) || p.Fix == "" || strings.Contains(p.Msg, "reading allow rule") {
			t.Errorf("%q: %+v", rule, p)
		}
	}
	c := parseString(t, "[host]\nallow = [\"DB.Example.:22\", \"[fd00::/8]:1-2\", \"127.0.0.1:*\"]\n")
	want := []Allow{{To: "db.example:22"}, {To: "[fd00::/8]:1-2"}, {To: "127.0.0.1:*"}}
	if diff := cmp.Diff(want, c.Host.Allow); diff != "" {
		t.Error(diff)
	}
}

// nas is a peer without an agent, of four lines.
const nas = "[[peer]]\nname = \"nas\"\nagent = false\nroutes = [\"lan:192.168.1.9\"]\n"
