package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fieldStarts runs a race in which every route hangs, except those that fail at
// a time, and tells what started when: "0s lan:a, 250ms direct:b".
func fieldStarts(r *Race, until time.Duration, failures map[time.Duration]string) string {
	var said []string
	now, ev := epoch, Event(Tick{})
	for now.Sub(epoch) <= until {
		actions, wake := r.Step(now, ev)
		for _, a := range actions {
			if a.Do == Dial {
				said = append(said, fmt.Sprintf("%s %s", now.Sub(epoch), strings.TrimSuffix(a.Route.ID(), ":7000")))
			}
		}
		if wake.IsZero() {
			break
		}
		now, ev = wake, Tick{}
		for at, text := range failures {
			if due := epoch.Add(at); !due.After(now) {
				now, ev = due, Ended{Route: mustRoutes(text)[0], Outcome: Failed}
				delete(failures, at)
			}
		}
	}
	return strings.Join(said, ", ")
}

// The scenarios of shipped clients that concern ranking and memory, by their
// numbers.
func TestRankField(t *testing.T) {
	home := path("wifi#ab", "tailnet")
	here := home.Interfaces[0].Network
	rank := func(f Facts, routes ...string) string {
		f.Now, f.Routes = epoch, mustRoutes(routes...)
		return rankedIDs(Rank(f))
	}
	is := func(t *testing.T, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	t.Run("field-9.1 LAN failed twice", func(t *testing.T) {
		m := remember(here, "", map[string]RouteMemory{"lan:h": secondsAgo(65, 5)})
		is(t, rank(Facts{Path: home, Memory: m}, "lan:h", "tailnet:h", "relay:wss://r"), "tailnet:h relay:wss://r lan:h")
	})
	t.Run("field-9.2 one failure, or long ago", func(t *testing.T) {
		for ago, want := range map[string]string{"5": "lan:h direct:h", "140 130": "lan:h direct:h", "121 120": "direct:h lan:h", "121 120.001": "lan:h direct:h"} {
			var list []float64
			for _, s := range strings.Fields(ago) {
				var seconds float64
				fmt.Sscan(s, &seconds)
				list = append(list, seconds)
			}
			is(t, rank(Facts{Path: home, Memory: remember(here, "", map[string]RouteMemory{"lan:h": secondsAgo(list...)})}, "lan:h", "direct:h"), want)
		}
	})
	t.Run("field-9.4 failures a day apart", func(t *testing.T) {
		m := remember(here, "", map[string]RouteMemory{"lan:h": secondsAgo(86400, 5)})
		is(t, rank(Facts{Path: home, Memory: m}, "lan:h", "direct:h"), "lan:h direct:h")
	})
	t.Run("field-9.5 one race, one failure", func(t *testing.T) {
		// The addresses of a name are one route; and a route that is reported
		// several times counts once.
		a := Attempt{Route: mustRoutes("direct:h")[0], Outcome: Failed, Start: epoch}
		m := Memory{}.Record(epoch, Raced{Start: home, End: home, Attempts: []Attempt{a, a, a}})
		if r, _ := m.At(here, "direct:h:7000"); len(r.Failures) != 1 {
			t.Errorf("%d failures", len(r.Failures))
		}
	})
	t.Run("field-9.6 cellular", func(t *testing.T) {
		is(t, rank(Facts{Path: path("cell", "tailnet")}, "lan:192.168.1.8", "tailnet:100.75.20.63", "relay:wss://r"),
			"tailnet:100.75.20.63 relay:wss://r lan:192.168.1.8")
		// Address by address: TestImplausible.
	})
	t.Run("field-9.7 unknown networks", func(t *testing.T) {
		for _, p := range []Path{path("none"), path("loopback"), path("tunnel")} {
			if m := (Memory{}).Record(epoch, won(p, "direct:h")); len(m.Networks) != 0 {
				t.Errorf("stored: %+v", m)
			}
		}
		// No address: nothing tells the network from others.
		bare := Path{Interfaces: []Interface{{Name: "wlan0", Kind: WiFi, Default: true, Network: Network{Kind: WiFi}}}}
		if m := (Memory{}).Record(epoch, won(bare, "direct:h")); len(m.Networks) != 0 || len(m.Here(bare)) != 0 {
			t.Errorf("stored: %+v", m)
		}
		if m := (Memory{}).Record(epoch, won(path("cell"), "direct:h")); m.Networks[0].Network != (Network{Kind: Cell}) {
			t.Errorf("cellular: %+v", m)
		}
	})
	t.Run("field-9.8 eight networks", func(t *testing.T) {
		at := func(i int) Path { return path(fmt.Sprintf("wifi/10.0.%d.0/24#ab", i)) }
		var m Memory
		for i := range 11 {
			m = m.Record(epoch.Add(time.Duration(i)*time.Second), won(at(i), "direct:h"))
		}
		m = m.Record(epoch.Add(time.Minute), won(at(5), "direct:h"))
		var got []string
		for _, n := range m.Networks {
			got = append(got, n.Network.Prefix.String())
		}
		is(t, strings.Join(got, " "), "10.0.5.0/24 10.0.10.0/24 10.0.9.0/24 10.0.8.0/24 10.0.7.0/24 10.0.6.0/24 10.0.4.0/24 10.0.3.0/24")
	})
	t.Run("field-9.9 remembered here before elsewhere", func(t *testing.T) {
		m := remember(here, "lan:h", nil)
		m.Last = "relay:wss://r"
		is(t, rank(Facts{Path: home, Memory: m}, "lan:h", "relay:wss://r"), "lan:h relay:wss://r")
	})
	t.Run("field-9.10 relay remembered, signed out", func(t *testing.T) {
		f := Facts{Now: epoch, Path: home, Memory: remember(here, "relay:wss://r", nil)}
		f.Routes, _ = Vetting{Pinned: true, Relays: map[string]RelayAccess{"wss://r": {Allowed: true}}}.Vet(mustRoutes("relay:wss://r", "direct:h", "lan:h"))
		is(t, rankedIDs(Rank(f)), "lan:h direct:h")
	})
	t.Run("field-9.11 remembered, failed twice 10 s ago", func(t *testing.T) {
		m := remember(here, "direct:h", map[string]RouteMemory{"direct:h": secondsAgo(15, 10)})
		is(t, rank(Facts{Path: home, Memory: m}, "lan:h", "direct:h", "relay:wss://r"), "lan:h relay:wss://r direct:h")
	})
	t.Run("field-9.13 live LAN beside a remembered relay", func(t *testing.T) {
		f := Facts{Now: epoch, Path: home, Memory: remember(here, "relay:wss://r", nil), Seen: map[string]time.Time{"lan:h:7000": epoch}}
		f.Routes = mustRoutes("lan:h", "tailnet:h", "relay:wss://r")
		is(t, fieldStarts(NewRace(epoch, Rank(f), RaceOptions{}), time.Second, nil), "0s relay:wss://r, 0s lan:h, 500ms tailnet:h")
	})
}

// Those that concern the race.
func TestRaceField(t *testing.T) {
	is := func(t *testing.T, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
	ranked := func(texts ...string) []Ranked { // in just this order
		list := plain(texts...)
		slices.SortFunc(list, func(a, b Ranked) int { return a.Why.Place - b.Why.Place })
		return list
	}
	t.Run("field-9.14 start times", func(t *testing.T) {
		is(t, fieldStarts(NewRace(epoch, ranked("lan:h", "relay:wss://r", "tailnet:h"), RaceOptions{}), time.Second, nil),
			"0s lan:h, 250ms relay:wss://r, 500ms tailnet:h")
		is(t, fieldStarts(NewRace(epoch, ranked("lan:h", "tailnet:h", "relay:wss://r"), RaceOptions{}), time.Second, nil),
			"0s lan:h, 250ms tailnet:h, 300ms relay:wss://r")
	})
	t.Run("field-9.15 the relay leads", func(t *testing.T) {
		is(t, fieldStarts(NewRace(epoch, ranked("relay:wss://r", "lan:h"), RaceOptions{}), time.Second, nil), "0s relay:wss://r, 250ms lan:h")
	})
	t.Run("field-9.16 one of each kind", func(t *testing.T) {
		plan := ranked("lan:a", "lan:b", "lan:c", "lan:d", "lan:e", "tailnet:h", "relay:wss://r")
		is(t, fieldStarts(NewRace(epoch, plan, RaceOptions{}), 4*time.Second, map[time.Duration]string{time.Second: "lan:a"}),
			"0s lan:a, 250ms tailnet:h, 300ms relay:wss://r, 1s lan:b")
	})
	t.Run("field-9.18 two within a millisecond", func(t *testing.T) {
		r := NewRace(epoch, ranked("lan:a", "lan:b"), RaceOptions{AllAtOnce: true})
		r.Step(epoch, Tick{})
		r.Step(epoch.Add(20*time.Millisecond), Attached{Route: mustRoutes("lan:a")[0]})
		actions, _ := r.Step(epoch.Add(21*time.Millisecond), Attached{Route: mustRoutes("lan:b")[0]})
		if len(actions) != 1 || actions[0].Do != Cancel {
			t.Errorf("the second one: %v", actions)
		}
		if slices.ContainsFunc(r.field, func(e entry) bool { return e.IsFailure() }) {
			t.Errorf("a failure: %v", r.field)
		}
	})
	t.Run("field-9.19 all silent", func(t *testing.T) {
		r := NewRace(epoch, ranked("lan:a", "lan:b", "direct:a", "relay:wss://r", "direct:b"), RaceOptions{AllAtOnce: true})
		r.Step(epoch, Tick{})
		at := epoch.Add(OpenLimit)
		for _, text := range []string{"lan:a", "direct:a", "relay:wss://r"} {
			r.Step(at, Ended{Route: mustRoutes(text)[0], Outcome: Silent})
		}
		if n := r.running(); n != 2 {
			t.Fatalf("%d run after the first three", n)
		}
		actions, wake := r.Step(epoch.Add(RaceLimit), Tick{})
		if !wake.IsZero() {
			t.Fatal("it has not ended")
		}
		home := path("wifi#ab")
		m := Memory{}.Record(epoch.Add(RaceLimit), Raced{Start: home, End: home, Attempts: actions[len(actions)-1].Result.Attempts})
		for id, known := range m.Networks[0].Routes {
			if len(known.Failures) != 1 {
				t.Errorf("%s failed %d times", id, len(known.Failures))
			}
		}
		if len(m.Networks[0].Routes) != 5 { // the last two had their fair 5 s
			t.Errorf("recorded: %v", m.Networks[0].Routes)
		}
	})
	t.Run("field-9.20 cold cellular, relay remembered", func(t *testing.T) {
		cell := path("cell")
		f := Facts{Now: epoch, Path: cell, Memory: remember(Network{Kind: Cell}, "relay:wss://r", map[string]RouteMemory{"relay:wss://r": {
			LastSuccess: epoch.Add(-time.Hour), Handshake: 2 * time.Second,
		}})}
		f.Routes = mustRoutes("relay:wss://r")
		r := NewRace(epoch, Rank(f), RaceOptions{})
		actions, _ := r.Step(epoch, Tick{})
		dials := len(actions)
		actions, _ = r.Step(epoch.Add(2*time.Second), Attached{Route: f.Routes[0], RTT: 80 * time.Millisecond})
		if dials != 1 || len(actions) != 2 || actions[0].Do != Win || actions[1].Do != Done {
			t.Errorf("%d dials, then %v", dials, actions)
		}
	})
	t.Run("field-9.21 another key", func(t *testing.T) {
		r := NewRace(epoch, ranked("lan:h", "direct:h"), RaceOptions{AllAtOnce: true})
		r.Step(epoch, Tick{})
		r.Step(epoch.Add(time.Millisecond), Reached{Route: mustRoutes("lan:h")[0], Stage: Handshake})
		actions, wake := r.Step(epoch.Add(2*time.Millisecond), Ended{Route: mustRoutes("lan:h")[0], Outcome: WrongPeer})
		if len(actions) != 0 || wake.IsZero() {
			t.Errorf("the race does not go on: %v", actions)
		}
	})
	t.Run("field-9.22 a token is wanted", func(t *testing.T) {
		a := Attempt{Route: mustRoutes("relay:wss://r")[0], Outcome: NoToken, Stage: Handshake, Start: epoch}
		if a.IsFailure() {
			t.Error("it counts against the route")
		}
	})
	t.Run("field-9.23 an old attempt authenticates late", func(t *testing.T) {
		r := NewRace(epoch, ranked("lan:h"), RaceOptions{})
		r.Step(epoch, Tick{})
		r.Step(epoch.Add(time.Second), Stop{Why: "a new one began"})
		actions, _ := r.Step(epoch.Add(2*time.Second), Attached{Route: mustRoutes("lan:h")[0]})
		if len(actions) != 1 || actions[0].Do != Cancel {
			t.Errorf("it was not closed: %v", actions)
		}
	})
	t.Run("field-9.25 ready in time", func(t *testing.T) {
		end := epoch.Add(RaceLimit)
		for accepted, want := range map[time.Duration]time.Duration{
			100 * time.Millisecond: 7100 * time.Millisecond, 2500 * time.Millisecond: 9500 * time.Millisecond, 5 * time.Second: 9500 * time.Millisecond,
		} {
			if got := ReadyBy(epoch.Add(accepted), end).Sub(epoch); got != want {
				t.Errorf("accepted at %s: ready by %s, want %s", accepted, got, want)
			}
		}
	})
	t.Run("field-9.29 single flight", func(t *testing.T) {
		if (Attempt{Outcome: Busy, Duration: FairTry}).IsFailure() {
			t.Error("a refused second dial counts against the route")
		}
	})
	t.Run("field-9.61 what is told", func(t *testing.T) {
		relay := func(o Outcome, s Stage) []Attempt { return []Attempt{attempt(Relay, "wss://r", o, s, "")} }
		for _, c := range []struct {
			attempts []Attempt
			say      string
			hint     bool
		}{
			{relay(Failed, Handshake), "disconnected", false},
			{relay(Silent, Handshake), "not responding", false},
			{relay(Failed, Open), "could not reach", true},
			{relay(Unfinished, Handshake), "no answer from devbox during set-up", true},
			{[]Attempt{attempt(LAN, "h:1", Unfinished, Handshake, "")}, "not responding", false},
		} {
			if m := Describe("devbox", c.attempts); !strings.Contains(m.Text, c.say) || m.Hint != c.hint {
				t.Errorf("%v: %+v, want %q, hint %v", c.attempts[0], m, c.say, c.hint)
			}
		}
	})
}
