package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"linkproxy/state/identity"
)

// noRelay is said wherever a relay is named.
const noRelay = "relay routes are not in this version"

// config reads the whole document.
func (d *decoder) config(root *table) *Config {
	c := &Config{Default: root.oneOf("default", DefaultDirect, DefaultRefuse)}
	if c.Default == "" {
		c.Default = DefaultDirect
	}
	var taken listeners
	c.Listen = d.listen(root.table("listen"), &taken)
	d.flawed = map[int]bool{}
	for i, t := range root.tables("peer") {
		before := len(d.problems)
		c.Peers = append(c.Peers, d.peer(t))
		d.flawed[i] = len(d.problems) > before
	}
	d.uniquePeers(c.Peers, root)
	for _, t := range root.tables("forward") {
		c.Forwards = append(c.Forwards, d.forward(t, c, &taken)...)
	}
	c.Host = d.host(root.table("host"), &taken)
	root.later("relay", noRelay)
	root.later("relay_server", noRelay)
	root.rest()
	return c
}

// listeners are the listening addresses met so far.
type listeners struct {
	all []listener
}

type listener struct {
	endpoint
	key  string
	line int // 0 for a default that is not written anywhere
}

// claim enters a listening address and reports one that is taken already.
func (d *decoder) claim(l *listeners, e endpoint, key string, line int) {
	for _, o := range l.all {
		if e.overlaps(o.endpoint) {
			by := fmt.Sprintf("%s in line %d", o.key, o.line)
			if o.line == 0 {
				by = "the default of " + o.key
			}
			d.bad(max(line, 1), key, fmt.Sprintf("%s is already used by %s", e.written(), by), "choose another port for one of them")
			break
		}
	}
	l.all = append(l.all, listener{e, key, line})
}

// written is how a message names the endpoint.
func (e endpoint) written() string {
	s := e.address(0)
	if e.count() > 1 {
		s += "-" + strconv.Itoa(e.ports.last)
	}
	return s
}

// endpoint reads a listening address key.
func (d *decoder) endpoint(v text, key string, ranges bool) (endpoint, bool) {
	e, err := parseEndpoint(v.s)
	if err == nil && !ranges && e.count() > 1 {
		err = wrong("write one port; only a [[forward]] takes a range", "%q is a range of ports", v.s)
	}
	if err != nil {
		d.badValue(v.line, key, err)
	}
	return e, err == nil
}

// listen reads [listen]; t is nil when the file has none.
func (d *decoder) listen(t *table, taken *listeners) Listen {
	if t == nil {
		t = &table{d: d, path: "listen", at: &place{}}
	}
	var l Listen
	socks, hasSOCKS := t.str("socks", DefaultListen)
	http, hasHTTP := t.str("http", DefaultListen)
	l.Users = d.users(t.table("users"))
	if file, ok := t.str("password_file", "passwords"); ok {
		if l.PasswordFile = file.s; file.s == "" {
			d.bad(file.line, t.key("password_file"), "no file is named", "remove the key or name a file")
		}
	}
	l.AllowRemote = t.yes("allow_remote")
	l.Wait = t.duration("wait", "60s")
	t.rest()

	if !hasSOCKS && !hasHTTP && t.vals["socks"] == nil && t.vals["http"] == nil {
		socks, hasSOCKS = text{DefaultListen, 0}, true
		http, hasHTTP = socks, true
	}
	guarded := len(l.Users) > 0 || t.vals["users"] != nil || l.PasswordFile != "" || l.AllowRemote
	proxy := func(v text, has bool, key string) (string, endpoint) {
		if !has || v.s == "off" {
			return "", endpoint{}
		}
		e, ok := d.endpoint(v, t.key(key), false)
		if !ok {
			return "", e
		}
		if e.remote() && !guarded {
			d.bad(v.line, t.key(key), fmt.Sprintf("other machines could use %s without a password", e.written()),
				`listen on "127.0.0.1", or set users or password_file, or say allow_remote = true`)
		}
		return e.address(0), e
	}
	var es, eh endpoint
	l.SOCKS, es = proxy(socks, hasSOCKS, "socks")
	l.HTTP, eh = proxy(http, hasHTTP, "http")
	if l.SOCKS != "" {
		d.claim(taken, es, t.key("socks"), socks.line)
	}
	if l.HTTP != "" && l.HTTP != l.SOCKS {
		d.claim(taken, eh, t.key("http"), http.line)
	}
	return l
}

// users reads { name = "password" }.
func (d *decoder) users(t *table) map[string]string {
	if t == nil {
		return nil
	}
	users := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(t.vals)) {
		v, ok := t.str(name, "password")
		if !ok {
			continue
		}
		if err := checkUser(name, v.s); err != nil {
			d.badValue(v.line, t.path, err)
			continue
		}
		users[name] = v.s
	}
	if len(t.vals) == 0 {
		d.bad(t.at.line, t.path, "no user is named", `write { name = "password" } or remove the key`)
	}
	return users
}

// peer reads one [[peer]].
func (d *decoder) peer(t *table) Peer {
	var p Peer
	if v, ok := t.str("name", "devbox"); ok {
		if err := CheckPeerName(v.s); err != nil {
			d.badValue(v.line, t.key("name"), err)
		} else {
			p.Name = v.s
		}
	}
	if v, ok := t.str("id", "…"); ok {
		id, err := identity.ParseFingerprint(v.s)
		if err == nil && id.IsZero() {
			err = errors.New("no key has the fingerprint zero")
		}
		if err != nil {
			d.bad(v.line, t.key("id"), idProblem(err), "copy it from `linkproxy host invite` on that machine, or pair again")
		}
		p.ID = id
	}
	if agent, is := t.take("agent").(bool); is {
		p.NoAgent = !agent
	} else if t.vals["agent"] != nil {
		t.mistyped(t.line("agent"), "agent", t.vals["agent"], "true or false", "agent = false")
	}
	p.Routes = d.routes(t, p.NoAgent)
	p.Standby = Standby(t.oneOf("standby", string(StandbyAuto), string(StandbyAlways), string(StandbyNever)))
	if p.Standby == "" {
		p.Standby = StandbyAuto
	}
	for _, v := range t.list("reach", "10.20.0.0/16", nil) {
		r, err := parseReach(v.s)
		if err != nil {
			d.badValue(v.line, t.key("reach"), err)
			continue
		}
		if p.NoAgent && (r.below || r.prefix.IsValid() && !r.prefix.IsSingleIP()) {
			d.bad(v.line, t.key("reach"), fmt.Sprintf("%q covers other machines, which only an agent can reach", v.s),
				"name the machine itself by another name or address, or run `linkproxy host` there")
		}
		p.Reach = append(p.Reach, r.String())
	}
	t.rest()
	need, fix := []string{"name", "id", "routes"}, "every [[peer]] has a name, an id and routes; `linkproxy pair` writes them"
	if p.NoAgent {
		need, fix = []string{"name", "routes"}, "a [[peer]] with agent = false has a name and routes"
		d.noAgent(t)
	}
	for _, k := range need {
		if t.vals[k] == nil {
			d.bad(t.at.line, t.key(k), "missing", fix)
		}
	}
	return p
}

// noAgent reports what a [[peer]] with agent = false must not say.
func (d *decoder) noAgent(t *table) {
	for _, k := range []struct{ key, msg, fix string }{
		{"id", "a peer with agent = false has no key to prove", "remove the id, or agent = false if `linkproxy host` runs there"},
		{"standby", "a connection to a peer with agent = false cannot move to a second one", "remove it, or run `linkproxy host` there"},
	} {
		if t.vals[k.key] != nil {
			d.bad(t.line(k.key), t.key(k.key), k.msg, k.fix)
		}
	}
}

// idProblem words an unreadable fingerprint for a user.
func idProblem(err error) string {
	switch {
	case errors.Is(err, identity.ErrTruncated):
		return "a part of the fingerprint is missing"
	case errors.Is(err, identity.ErrMistyped):
		return "the fingerprint has a typing error"
	}
	return "this is not a fingerprint"
}

// routes reads a peer's routes; bare: without ports, as each connection brings its own.
func (d *decoder) routes(t *table, bare bool) []Route {
	var routes []Route
	before := len(d.problems)
	for _, v := range t.list("routes", "lan:192.168.1.20", nil) {
		r, err := ParseRoute(v.s)
		switch {
		case err != nil:
			d.badValue(v.line, t.key("routes"), err)
		case bare && hasPort(v.s):
			d.bad(v.line, t.key("routes"), fmt.Sprintf("%q has a port, but with agent = false each connection brings its own", v.s),
				fmt.Sprintf("write %q, and ask for PEER:PORT", r.Class+":"+r.host()))
		case slices.Contains(routes, r):
			d.bad(v.line, t.key("routes"), fmt.Sprintf("%q is there twice", v.s), "remove one")
		default:
			routes = append(routes, r)
		}
	}
	if len(routes) == 0 && len(d.problems) == before && t.vals["routes"] != nil {
		d.bad(t.line("routes"), t.key("routes"), "a peer without a route cannot be reached", `write at least one, like "lan:192.168.1.20"`)
	}
	return routes
}

// uniquePeers reports names and ids given twice.
func (d *decoder) uniquePeers(peers []Peer, root *table) {
	at := func(i int, key string) int { return root.at.kid("peer").item(i).kid(key).line }
	for i, p := range peers {
		for j, o := range peers[:i] {
			if p.Name != "" && p.Name == o.Name {
				d.bad(at(i, "name"), "peer.name", fmt.Sprintf("another peer is called %q (line %d)", p.Name, at(j, "name")), "give each its own name")
				d.flawed[i], d.flawed[j] = true, true
				break
			}
		}
		for j, o := range peers[:i] {
			if !p.ID.IsZero() && p.ID == o.ID {
				d.bad(at(i, "id"), "peer.id", fmt.Sprintf("another peer has this id (line %d)", at(j, "id")), "write one [[peer]] for one machine, with all its routes")
				d.flawed[i], d.flawed[j] = true, true
				break
			}
		}
	}
}

// forward reads one [[forward]], spread out to one Forward a port.
func (d *decoder) forward(t *table, c *Config, taken *listeners) []Forward {
	var e endpoint
	listen, okListen := t.str("listen", "127.0.0.1:5432")
	if okListen {
		e, okListen = d.endpoint(listen, t.key("listen"), true)
	}
	var to To
	dest, okTo := t.str("to", "devbox:5432")
	if okTo {
		var err error
		if to, err = ParseTo(dest.s); err != nil {
			d.badValue(dest.line, t.key("to"), err)
			okTo = false
		}
	}
	f := Forward{Peer: to.Peer, Hold: t.duration("hold", "1h"), RefuseHTTP: t.yes("refuse_http"), AllowRemote: t.yes("allow_remote")}
	t.rest()
	for _, k := range []string{"listen", "to"} {
		if t.vals[k] == nil {
			d.bad(t.at.line, t.key(k), "missing", `every [[forward]] has a listen and a to, like listen = "127.0.0.1:5432" and to = "devbox:5432"`)
		}
	}
	if okListen {
		d.claim(taken, e, t.key("listen"), listen.line)
		if e.remote() && !f.AllowRemote {
			d.bad(listen.line, t.key("listen"), fmt.Sprintf("other machines could use %s, and a fixed port asks for no password", e.written()),
				`listen on "127.0.0.1", or say allow_remote = true in this [[forward]]`)
		}
	}
	if okTo {
		d.knownPeer(dest.line, t.key("to"), to.Peer, c.Peers)
		d.forwardFits(t, dest, to, c)
	}
	if !okListen || !okTo {
		return nil
	}
	if e.count() != to.Count() {
		d.bad(dest.line, t.key("to"), fmt.Sprintf("%d ports here, but listen has %d", to.Count(), e.count()), "give both the same number of ports")
		return nil
	}
	all := make([]Forward, e.count())
	for i := range all {
		all[i] = f
		all[i].Listen, all[i].Target = e.address(i), to.Target(i)
	}
	return all
}

// forwardFits reports what a [[forward]] asks of a peer that only an agent there could do.
func (d *decoder) forwardFits(t *table, dest text, to To, c *Config) {
	if p, ok := c.Peer(to.Peer); !ok || !p.NoAgent {
		return
	}
	if to.Host != ownHost {
		d.bad(dest.line, t.key("to"), fmt.Sprintf("%s has agent = false, so nobody there can connect to %s", to.Peer, to.Host),
			fmt.Sprintf("write %q for a port of %s itself, or run `linkproxy host` there", fmt.Sprintf("%s:%d", to.Peer, to.First), to.Peer))
	}
	if t.vals["hold"] != nil {
		d.bad(t.line("hold"), t.key("hold"), fmt.Sprintf("%s has agent = false: its connections end with their route and cannot be held", to.Peer),
			"remove it, or run `linkproxy host` there")
	}
}

// knownPeer reports a peer that the file does not have.
func (d *decoder) knownPeer(line int, key, name string, peers []Peer) {
	var names []string
	for _, p := range peers {
		if p.Name == name {
			return
		}
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	fix := "pair with it first (`linkproxy pair`)"
	if near := nearest(name, names); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
	} else if len(names) > 0 {
		fix = "the peers are: " + strings.Join(names, ", ")
	}
	d.bad(line, key, fmt.Sprintf("there is no peer called %q", name), fix)
}

// host reads [host]; t is nil when the file has none.
func (d *decoder) host(t *table, taken *listeners) Host {
	h := Host{Listen: ":" + strconv.Itoa(DefaultPort)}
	if t == nil {
		return h
	}
	v, ok := t.str("listen", h.Listen)
	if !ok {
		v = text{h.Listen, 0}
	}
	if e, ok := d.endpoint(v, t.key("listen"), false); ok {
		d.claim(taken, e, t.key("listen"), v.line)
		h.Listen = e.address(0)
	}
	allow := func(a Allow, line int) {
		var err error
		if a.To, err = checkAllow(a.To); err != nil {
			d.badValue(line, t.key("allow"), err)
			return
		}
		h.Allow = append(h.Allow, a)
	}
	// Strings and tables may be mixed; rules have no order, so that the tables
	// may come first here.
	plain := t.list("allow", "127.0.0.1:*", func(v any, at *place) {
		vals, ok := v.(map[string]any)
		if !ok {
			t.mistyped(at.line, "allow", v, "a string or a table", `allow = ["127.0.0.1:*", { to = "127.0.0.1:5432", hold = "1h" }]`)
			return
		}
		rule := &table{d: d, path: t.key("allow"), vals: vals, at: at}
		to, has := rule.str("to", "127.0.0.1:5432")
		hold := rule.duration("hold", "1h")
		rule.rest()
		if has {
			allow(Allow{To: to.s, Hold: hold}, to.line)
		} else if vals["to"] == nil {
			d.bad(at.line, rule.key("to"), "missing", `write { to = "127.0.0.1:5432", hold = "1h" }`)
		}
	})
	for _, v := range plain {
		allow(Allow{To: v.s}, v.line)
	}
	if list, is := t.vals["allow"].([]any); is && len(list) == 0 {
		d.bad(t.line("allow"), t.key("allow"), "an empty list would allow nothing", `remove the key for any port of this machine's own loopback, or write allow = ["127.0.0.1:22"]`)
	}
	t.later("relays", noRelay)
	t.rest()
	return h
}
