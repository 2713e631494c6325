package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const diffBase = `
[listen]
socks = "127.0.0.1:1"
http = "127.0.0.1:2"
users = { a = "b" }
[[forward]]
listen = "127.0.0.1:10-11"
to = "devbox:10-11"
[host]
allow = ["127.0.0.1:22", "a.example:443"]
[[peer]]
name = "devbox"
id = "ID1"
routes = ["lan:1.2.3.4", "lan:1.2.3.5"]
[[peer]]
name = "web"
id = "ID2"
routes = ["lan:1.2.3.6"]
reach = ["*.example"]
`

func TestDiff(t *testing.T) {
	base := parseString(t, ids(diffBase))
	l, f, p := base.Listeners(), base.Forwards, base.Peers
	same := Change{
		Listeners: Delta[Listener]{Unchanged: l},
		Forwards:  Delta[Forward]{Unchanged: f},
		Peers:     Delta[Peer]{Unchanged: p},
	}
	for name, tc := range map[string]struct {
		old, new string // old is replaced by new in the text
		want     func(c *Change)
	}{
		"nothing":       {"", "", func(*Change) {}},
		"a comment":     {"[host]", "\n# x\n[host]", func(*Change) {}},
		"rules' order":  {`"127.0.0.1:22", "a.example:443"`, `"a.example:443", "127.0.0.1:22"`, func(*Change) {}},
		"another wait":  {"[listen]", "[listen]\nwait = \"5s\"", func(c *Change) { c.Wait = true }},
		"a user":        {`a = "b"`, `a = "c"`, func(c *Change) { c.Users = true }},
		"the default":   {"[listen]", "default = \"refuse\"\n[listen]", func(c *Change) { c.Names = true }},
		"the host port": {"[host]", "[host]\nlisten = \":7\"", func(c *Change) { c.HostListen = true }},
		"a rule": {`"a.example:443"`, `{ to = "a.example:443", hold = "1h" }`, func(c *Change) {
			c.HostAllow = true
		}},
		"a listener moves": {`"127.0.0.1:2"`, `"127.0.0.1:3"`, func(c *Change) {
			c.Listeners = Delta[Listener]{Unchanged: l[:1], Removed: l[1:], Added: []Listener{{"127.0.0.1:3", false, true}}}
		}},
		"both on one port": {`"127.0.0.1:2"`, `"127.0.0.1:1"`, func(c *Change) {
			c.Listeners = Delta[Listener]{Changed: []Pair[Listener]{{l[0], Listener{"127.0.0.1:1", true, true}}}, Removed: l[1:]}
		}},
		"a range grows": {"10-11\"\nto = \"devbox:10-11", "10-12\"\nto = \"devbox:10-12", func(c *Change) {
			c.Forwards.Added = []Forward{{Listen: "127.0.0.1:12", Peer: "devbox", Target: "127.0.0.1:12"}}
		}},
		"a range shrinks": {"10-11\"\nto = \"devbox:10-11", "11\"\nto = \"devbox:11", func(c *Change) {
			c.Forwards = Delta[Forward]{Unchanged: f[1:], Removed: f[:1]}
		}},
		"another peer behind a port": {`to = "devbox:10-11"`, `to = "web:10-11"`, func(c *Change) {
			c.Forwards = Delta[Forward]{}
			for _, o := range f {
				n := o
				n.Peer = "web"
				c.Forwards.Changed = append(c.Forwards.Changed, Pair[Forward]{o, n})
			}
		}},
		"a listener becomes a forward": {"http = \"127.0.0.1:2\"\nusers = { a = \"b\" }\n", "users = { a = \"b\" }\n[[forward]]\nlisten = \"127.0.0.1:2\"\nto = \"web:1\"\n", func(c *Change) {
			c.Listeners = Delta[Listener]{Unchanged: l[:1], Removed: l[1:]}
			c.Forwards.Added = []Forward{{Listen: "127.0.0.1:2", Peer: "web", Target: "127.0.0.1:1"}}
		}},
		"a route": {`"lan:1.2.3.6"`, `"lan:1.2.3.7"`, func(c *Change) {
			n := p[1]
			n.Routes = []Route{{"lan", "1.2.3.7:8639"}}
			c.Peers = Delta[Peer]{Unchanged: p[:1], Changed: []Pair[Peer]{{p[1], n}}}
		}},
		"routes' order": {`"lan:1.2.3.4", "lan:1.2.3.5"`, `"lan:1.2.3.5", "lan:1.2.3.4"`, func(c *Change) {
			n := p[0]
			n.Routes = []Route{n.Routes[1], n.Routes[0]}
			c.Peers = Delta[Peer]{Unchanged: p[1:], Changed: []Pair[Peer]{{p[0], n}}}
		}},
		"a new name": {`name = "web"`, `name = "www"`, func(c *Change) {
			n := p[1]
			n.Name = "www"
			c.Peers = Delta[Peer]{Unchanged: p[:1], Changed: []Pair[Peer]{{p[1], n}}}
			c.Names = true
		}},
		"a new key": {"ID2", "ID3", func(c *Change) {
			n := p[1]
			n.ID = testID(3)
			c.Peers = Delta[Peer]{Unchanged: p[:1], Added: []Peer{n}, Removed: p[1:]}
		}},
		"a reach rule": {`"*.example"`, `"*.example", "x"`, func(c *Change) {
			n := p[1]
			n.Reach = append(n.Reach, "x")
			c.Peers = Delta[Peer]{Unchanged: p[:1], Changed: []Pair[Peer]{{p[1], n}}}
			c.Names = true
		}},
	} {
		text := diffBase
		if tc.old != "" {
			text = strings.Replace(diffBase, tc.old, tc.new, 1)
			if text == diffBase {
				t.Fatalf("%s: %q is not in the text", name, tc.old)
			}
		}
		want := same
		tc.want(&want)
		got := Diff(base, parseString(t, ids(text)))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got.Empty() != cmp.Equal(want, same, cmpopts.EquateEmpty()) {
			t.Errorf("%s: Empty is %v", name, got.Empty())
		}
	}
}

func TestDiffFromNothing(t *testing.T) {
	base := parseString(t, ids(diffBase))
	c := Diff(nil, base)
	want := Change{
		Listeners: Delta[Listener]{Added: base.Listeners()}, Forwards: Delta[Forward]{Added: base.Forwards}, Peers: Delta[Peer]{Added: base.Peers},
		Users: true, Names: true, HostListen: true, HostAllow: true,
	}
	if diff := cmp.Diff(want, c, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if c := Diff(base, nil); len(c.Forwards.Removed) != 2 || len(c.Listeners.Removed) != 2 || len(c.Peers.Removed) != 2 {
		t.Errorf("got %+v", c)
	}
}

func TestDiffCountsPortZero(t *testing.T) {
	two := []Forward{{Listen: "127.0.0.1:0", Target: "a:1"}, {Listen: "127.0.0.1:0", Target: "b:1"}}
	c := Diff(&Config{Forwards: two}, &Config{Forwards: append(two[:1:1], Forward{Listen: "127.0.0.1:0", Target: "c:1"}, two[1])})
	if len(c.Forwards.Unchanged) != 1 || len(c.Forwards.Changed) != 1 || len(c.Forwards.Added) != 1 || len(c.Forwards.Removed) != 0 {
		t.Errorf("got %+v", c.Forwards)
	}
	c = Diff(&Config{Forwards: two}, &Config{Forwards: two[:1]})
	if len(c.Forwards.Unchanged) != 1 || len(c.Forwards.Removed) != 1 || c.Forwards.Removed[0].Target != "b:1" {
		t.Errorf("got %+v", c.Forwards)
	}
}
