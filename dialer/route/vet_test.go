package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// from gives routes another source.
func from(source Source, routes ...Route) []Route {
	for i := range routes {
		routes[i].Source = source
	}
	return routes
}

func ids(routes []Route) string {
	var list []string
	for _, r := range routes {
		list = append(list, strings.TrimSuffix(r.ID(), ":7000"))
	}
	return strings.Join(list, " ")
}

func TestVet(t *testing.T) {
	home := path("wifi#ab")
	discovered := from(MDNS, mustRoutes("lan:10.0.0.1", "lan:10.0.0.2", "lan:10.0.0.3")...)
	discovered = append(discovered, from(TailnetAPI, mustRoutes("tailnet:100.64.0.1", "tailnet:100.64.0.2")...)...)
	wrong := func(after time.Duration, texts ...string) Vetting {
		v := Vetting{Now: epoch.Add(after), Path: home, Pinned: true}
		for _, r := range mustRoutes(texts...) {
			v.Wrong.Note(epoch, home.Interfaces[0].Network, r.Address)
		}
		return v
	}
	away := wrong(time.Minute, "lan:h")
	away.Path = path("wifi#cd")
	cleared := wrong(time.Minute, "lan:h")
	cleared.Wrong.Clear()
	proved := wrong(time.Minute, "lan:h")
	proved.Wrong.Proved(home.Interfaces[0].Network, "h:7000")
	relay := mustRoutes("relay:wss://r", "lan:h")
	for name, c := range map[string]struct {
		v     Vetting
		known []Route
		want  string
		why   string // a part of every refusal
	}{
		"nothing known":                        {Vetting{}, nil, "", ""},
		"configured, no key pinned":            {Vetting{}, mustRoutes("lan:h", "direct:h"), "lan:h direct:h", ""},
		"learned, no key pinned":               {Vetting{}, from(Learned, mustRoutes("lan:h")...), "", "key is not known"},
		"learned, pinned":                      {Vetting{Pinned: true}, from(Learned, mustRoutes("lan:h")...), "lan:h", ""},
		"discovered, no key pinned":            {Vetting{}, discovered, "", "key is not known"},
		"more than four discovered":            {Vetting{Pinned: true}, append(mustRoutes("lan:h"), discovered...), "lan:h lan:10.0.0.1 lan:10.0.0.2 lan:10.0.0.3 tailnet:100.64.0.1", "4 discovered"},
		"a source nobody knows is a discovery": {Vetting{}, from("carrier pigeon", mustRoutes("lan:h")...), "", "key is not known"},
		"relay not allowed":                    {Vetting{}, relay, "lan:h", "not allowed"},
		"relay without a token":                {Vetting{Relays: map[string]RelayAccess{"wss://r": {Allowed: true}}}, relay, "lan:h", "no token"},
		"relay with a token, not allowed":      {Vetting{Relays: map[string]RelayAccess{"wss://r": {Token: true}}}, relay, "lan:h", "not allowed"},
		"relay allowed":                        {Vetting{Relays: map[string]RelayAccess{"wss://r": {true, true}}}, relay, "relay:wss://r lan:h", ""},
		"discovered and configured":            {Vetting{}, append(from(MDNS, mustRoutes("lan:h")...), mustRoutes("lan:h")...), "lan:h", ""},
		"wrong key":                            {wrong(time.Minute, "lan:h"), mustRoutes("lan:h", "direct:i"), "direct:i", "ignored for 9m0s"},
		"wrong key, just before the end":       {wrong(WrongKeyFor-1, "lan:h"), mustRoutes("lan:h", "direct:i"), "direct:i", "another key"},
		"wrong key, 10 min later":              {wrong(WrongKeyFor, "lan:h"), mustRoutes("lan:h", "direct:i"), "lan:h direct:i", ""},
		"wrong key, clock set back":            {wrong(-time.Minute, "lan:h"), mustRoutes("lan:h", "direct:i"), "lan:h direct:i", ""},
		"wrong key, but nothing else is left":  {wrong(time.Minute, "lan:h"), mustRoutes("lan:h"), "lan:h", ""},
		"wrong key everywhere": {
			wrong(time.Minute, "lan:h", "lan:l"), append(mustRoutes("lan:h"), from(Learned, mustRoutes("lan:l")...)...),
			"lan:h", "another key",
		},
		"wrong key, on another network":  {away, mustRoutes("lan:h", "direct:i"), "lan:h direct:i", ""},
		"wrong key, then config changed": {cleared, mustRoutes("lan:h", "direct:i"), "lan:h direct:i", ""},
		"wrong key, then the right one":  {proved, mustRoutes("lan:h", "direct:i"), "lan:h direct:i", ""},
	} {
		t.Run(name, func(t *testing.T) {
			vetted, refused := c.v.Vet(c.known)
			if got := ids(vetted); got != c.want {
				t.Errorf("vetted %q, want %q (refused %v)", got, c.want, refused)
			}
			if (len(refused) > 0) != (c.why != "") {
				t.Errorf("refused %v", refused)
			}
			for _, r := range refused {
				if !strings.Contains(r.Why, c.why) {
					t.Errorf("%s refused as %q, want %q", r.Route, r.Why, c.why)
				}
			}
		})
	}
}

func TestWrongKeysAreBounded(t *testing.T) {
	var w WrongKeys
	for i := range 3 * maxWrongKeys {
		w.Note(epoch, Network{}, fmt.Sprint(i))
		w.Note(epoch, Network{}, fmt.Sprint(i))
	}
	if len(w.list) != maxWrongKeys || w.list[maxWrongKeys-1].address != fmt.Sprint(3*maxWrongKeys-1) {
		t.Errorf("%d are kept, the last is %s", len(w.list), w.list[len(w.list)-1].address)
	}
}

// Vetting never lets through what it must not, loses nothing, and nothing after
// it adds or removes a route, whatever else is known.
func TestVettingIsNeverBypassed(t *testing.T) {
	sources := []Source{Configured, Learned, MDNS, TailnetAPI, "new"}
	rapid.Check(t, func(t *rapid.T) {
		v := Vetting{Now: epoch, Path: drawPath(t), Pinned: rapid.Bool().Draw(t, "pinned"), Relays: map[string]RelayAccess{
			"wss://a": {rapid.Bool().Draw(t, "allowed"), rapid.Bool().Draw(t, "token")},
		}}
		var known []Route
		for range rapid.IntRange(0, 14).Draw(t, "routes") {
			r := rapid.SampledFrom(raceRoutes).Draw(t, "route")
			r.Source = rapid.SampledFrom(sources).Draw(t, "source")
			known = append(known, r)
		}
		for range rapid.IntRange(0, 4).Draw(t, "wrong keys") {
			v.Wrong.Note(epoch, drawNetwork(t), rapid.SampledFrom(raceRoutes).Draw(t, "wrong").Address)
		}
		vetted, refused := v.Vet(known)
		configured := func(r Route) bool {
			return slices.ContainsFunc(known, func(k Route) bool { return k.Same(r) && k.Source == Configured })
		}
		discovered := 0
		for _, r := range vetted {
			access := v.Relays[r.Address]
			if r.Class == Relay && !(access.Allowed && access.Token) {
				t.Fatalf("%s is not allowed", r)
			}
			if !configured(r) && !v.Pinned {
				t.Fatalf("%s came from %s, and no key is pinned", r, r.Source)
			}
			if !configured(r) && r.Source != Learned {
				discovered++
			}
		}
		if discovered > MaxDiscovered {
			t.Fatalf("%d discovered routes", discovered)
		}
		var both []string
		for _, r := range vetted {
			both = append(both, r.ID())
		}
		for _, f := range refused {
			both = append(both, f.Route.ID())
		}
		checkSame(t, both, known)

		f := drawFacts(t, vetted)
		ranked := Rank(f)
		var plan []string
		for _, r := range ranked {
			plan = append(plan, r.Route.ID())
		}
		checkSame(t, plan, vetted)
		again := Rank(f)
		for i := range ranked {
			if ranked[i].Explain(f.Now) != again[i].Explain(f.Now) {
				t.Fatalf("the same facts gave %v and %v", ranked[i], again[i])
			}
		}
		checkOrder(t, ranked)
	})
}

// checkSame demands that a list holds each of the routes once and nothing else.
func checkSame(t *rapid.T, got []string, routes []Route) {
	t.Helper()
	want := map[string]bool{}
	for _, r := range routes {
		want[r.ID()] = true
	}
	seen := map[string]bool{}
	for _, id := range got {
		if seen[id] || !want[id] {
			t.Fatalf("%s is there twice or was never known: %v of %v", id, got, routes)
		}
		seen[id] = true
	}
	if len(seen) != len(want) {
		t.Fatalf("%v of %v", got, routes)
	}
}

// checkOrder demands what holds in every ranking: no demoted route is before one
// that is not, and behind a hoisted leader the order is the comparison's.
func checkOrder(t *rapid.T, ranked []Ranked) {
	t.Helper()
	for i, r := range ranked {
		if r.Why.Hoisted != "" && (i > 0 || r.Why.Demoted()) {
			t.Fatalf("%s is hoisted to %d though %+v", r.Route, i, r.Why)
		}
		if i > 0 && ranked[i-1].Why.Demoted() && !r.Why.Demoted() {
			t.Fatalf("%s is behind %s", r.Route, ranked[i-1].Route)
		}
		if i > 0 && ranked[i-1].Why.Hoisted == "" && compare(ranked[i-1], r) > 0 {
			t.Fatalf("%s is before %s", ranked[i-1].Route, r.Route)
		}
	}
}

var drawnPaths = []Path{
	{},
	path("wifi#ab"), path("wifi#cd"), path("wifi"), path("cell"), path("cell", "tailnet"), path("wifi#ab", "cell", "tailnet"),
	path("wired/10.1.2.0/24", "wifi#ab"), path("wired/10.1.2.0/24#ef"), path("wired/10.1.3.0/24"), path("wired/10.1.4.0/24"),
	path("wired/10.1.5.0/24"), path("wired/10.1.6.0/24"), path("wired/10.1.7.0/24"), path("wired/10.1.8.0/24"), path("other"),
}

func drawPath(t *rapid.T) Path { return rapid.SampledFrom(drawnPaths).Draw(t, "path") }

func drawNetwork(t *rapid.T) Network {
	p := drawPath(t)
	if len(p.Interfaces) == 0 {
		return Network{}
	}
	return p.Interfaces[0].Network
}

// drawFacts is anything that may be known about routes.
func drawFacts(t *rapid.T, routes []Route) Facts {
	f := Facts{Routes: routes, Path: drawPath(t), Seen: map[string]time.Time{}, Relayed: map[string]bool{}}
	f.Memory, f.Now = drawMemory(t)
	f.TailnetKnows = rapid.Bool().Draw(t, "tailnet knows")
	for _, r := range routes {
		if rapid.IntRange(0, 3).Draw(t, "seen") == 0 {
			f.Seen[r.ID()] = f.Now
		}
		if r.Class == Tailnet && rapid.IntRange(0, 3).Draw(t, "relayed") == 0 {
			f.Relayed[r.ID()] = true
		}
	}
	return f
}

// drawMemory is what races on several networks leave behind, each step checked.
func drawMemory(t *rapid.T) (Memory, time.Time) {
	var m Memory
	now := epoch
	for range rapid.IntRange(0, 25).Draw(t, "races") {
		now = now.Add(time.Duration(rapid.IntRange(0, 150).Draw(t, "gap")) * time.Second)
		race := Raced{Start: drawPath(t)}
		race.End = race.Start
		if rapid.IntRange(0, 4).Draw(t, "moved") == 0 {
			race.End = drawPath(t)
		}
		won := false
		for range rapid.IntRange(0, 4).Draw(t, "attempts") {
			a := Attempt{Route: rapid.SampledFrom(raceRoutes).Draw(t, "route"), Start: now, Duration: rapid.SampledFrom([]time.Duration{time.Second, FairTry}).Draw(t, "took")}
			a.Outcome = rapid.SampledFrom([]Outcome{Won, Failed, Silent, Unfinished, Lost, Cancelled, Blocked, Foreign, NotTried}).Draw(t, "outcome")
			if a.Outcome == Won && won {
				a.Outcome = Lost
			}
			won = won || a.Outcome == Won
			race.Attempts = append(race.Attempts, a)
		}
		before := fmt.Sprint(m)
		next := m.Record(now, race)
		if fmt.Sprint(m) != before {
			t.Fatalf("learning changed what was known before: %v, was %s", m, before)
		}
		m = next
		checkMemory(t, m)
	}
	return m, now
}

func checkMemory(t *rapid.T, m Memory) {
	t.Helper()
	if len(m.Networks) > MaxNetworks {
		t.Fatalf("%d networks", len(m.Networks))
	}
	if class, _ := classOfID(m.Last); class == LAN {
		t.Fatalf("%s leads everywhere", m.Last)
	}
	for i, n := range m.Networks {
		if !n.Network.Known() || i > 0 && n.Used.After(m.Networks[i-1].Used) {
			t.Fatalf("network %d: %v", i, n)
		}
		if slices.ContainsFunc(m.Networks[:i], func(o NetworkMemory) bool { return o.Network == n.Network }) {
			t.Fatalf("%s is there twice", n.Network)
		}
		for id, r := range n.Routes {
			if len(r.Failures) > FailuresToDemote || !slices.IsSortedFunc(r.Failures, time.Time.Compare) {
				t.Fatalf("%s: %v", id, r.Failures)
			}
		}
	}
}
