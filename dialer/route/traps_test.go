package route

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What went wrong in the field, as far as it is a matter of ranking, memory or
// the race.
func TestTraps(t *testing.T) {
	home := path("wifi#ab", "tailnet")
	here := home.Interfaces[0].Network
	plan := mustRoutes("lan:192.168.1.20", "tailnet:100.64.0.9", "relay:wss://r")
	leader := func(f Facts) string {
		f.Now, f.Routes = epoch, plan
		return Rank(f)[0].Route.ID()
	}
	t.Run("a dead route hoisted", func(t *testing.T) {
		m := remember(here, "tailnet:100.64.0.9", map[string]RouteMemory{"tailnet:100.64.0.9": secondsAgo(9, 5)})
		if got := leader(Facts{Path: home, Memory: m}); got != plan[0].ID() {
			t.Errorf("%s leads", got)
		}
	})
	t.Run("an implausible route hoisted", func(t *testing.T) {
		m := remember(Network{Kind: Cell}, "lan:192.168.1.20", nil)
		m.Last = "tailnet:100.64.0.9:7000"
		if got := leader(Facts{Path: path("cell"), Memory: m}); got != plan[2].ID() {
			t.Errorf("%s leads", got)
		}
	})
	t.Run("a relay behind a dead LAN and tailnet", func(t *testing.T) {
		got := fieldStarts(NewRace(epoch, plain("lan:a", "lan:b", "tailnet:a", "direct:a", "relay:wss://r"), RaceOptions{}), time.Second, nil)
		if got != "0s lan:a, 250ms tailnet:a, 300ms relay:wss://r" {
			t.Error(got)
		}
	})
	t.Run("a trigger during a race", func(t *testing.T) {
		r := NewRace(epoch, plain("relay:wss://r"), RaceOptions{})
		r.Step(epoch, Tick{})
		actions, _ := r.Step(epoch.Add(time.Second), Joined{Plan: plain("lan:a", "relay:wss://r")})
		if len(actions) != 1 || actions[0].Do != Dial {
			t.Errorf("a route that was found: %v", actions)
		}
		var c Reconnect
		c.Lost(epoch)
		c.Started(epoch)
		c.Changed(epoch.Add(time.Second), "the path")
		c.Failed(epoch.Add(2 * time.Second))
		if at, why, ok := c.Next(epoch.Add(2*time.Second), true, new(Budget)); !ok || !at.Equal(epoch.Add(2*time.Second)) {
			t.Errorf("a path change: %s, %s, %v", since(at), why, ok)
		}
	})
	t.Run("a relay that wins by 1 ms, again and again", func(t *testing.T) {
		f := Facts{Path: home, Routes: plan, Now: epoch}
		f.Memory = f.Memory.Record(epoch, won(home, "tailnet:100.64.0.9"))
		f.Memory = f.Memory.Record(epoch, Raced{Start: home, End: home, Attempts: []Attempt{
			{Route: plan[1], Outcome: Lost, Start: epoch}, {Route: plan[2], Outcome: Won, Start: epoch},
		}})
		if got := leader(f); got != plan[1].ID() {
			t.Errorf("%s leads", got)
		}
		cell := path("cell", "tailnet")
		f.Path = cell
		if got := leader(f); got != plan[1].ID() {
			t.Errorf("%s leads elsewhere", got)
		}
	})
	t.Run("two homes with one prefix", func(t *testing.T) {
		m := Memory{}.Record(epoch, won(path("wifi#ab"), "relay:wss://r"))
		if len(m.Here(path("wifi#cd"))) != 0 {
			t.Error("the other home is taken for the first")
		}
		m = m.Record(epoch, won(path("wifi#cd"), "lan:192.168.1.20"))
		m.Last = ""
		if got := leader(Facts{Path: path("wifi#ab", "tailnet"), Memory: m}); got != plan[2].ID() {
			t.Errorf("%s leads in the first", got)
		}
	})
	t.Run("the prefix read after the network changed", func(t *testing.T) {
		race := won(path("wifi/10.0.0.0/24#ab"), "direct:h")
		race.End = path("wifi/10.0.1.0/24#cd")
		if m := (Memory{}).Record(epoch, race); len(m.Networks) != 0 {
			t.Errorf("stored on %s", m.Networks[0].Network)
		}
	})
	t.Run("one half-open route", func(t *testing.T) {
		budget := new(Budget)
		r := NewRace(epoch, plain("lan:a", "direct:b"), RaceOptions{Budget: budget})
		r.Step(epoch, Tick{})
		r.Step(epoch.Add(time.Millisecond), Reached{Route: mustRoutes("lan:a")[0], Stage: Handshake})
		r.Step(epoch.Add(SlotStep), Tick{})
		actions, _ := r.Step(epoch.Add(SlotStep+time.Millisecond), Ended{Route: mustRoutes("direct:b")[0], Outcome: Failed})
		if len(actions) != 0 {
			t.Errorf("%v", actions)
		}
		actions, _ = r.Step(epoch.Add(RaceLimit), Tick{})
		if res := actions[len(actions)-1].Result; res == nil || res.Attempts[0].Outcome != Unfinished || !res.Attempts[0].IsFailure() {
			t.Errorf("%v", actions)
		}
		// Both dials are paid back by then: it ate none that was not its own.
		for i := range BudgetSize {
			if !budget.Take(epoch.Add(RaceLimit)) {
				t.Fatalf("only %d dials are left", i)
			}
		}
	})
	t.Run("a revoked token behind a dead route's timeout", func(t *testing.T) {
		m := Describe("devbox", []Attempt{
			attempt(LAN, "10.0.0.2:1", Silent, Open, ""), attempt(Relay, "wss://r", NoToken, Handshake, "the token in token_file has expired"),
		})
		if !strings.Contains(m.Text, "token_file has expired") || !strings.Contains(m.Next, "token") || m.Hint || strings.Index(m.Text, "wss://r") > strings.Index(m.Text, "10.0.0.2") {
			t.Errorf("%+v", m)
		}
	})
	t.Run("a name that hangs while the number works", func(t *testing.T) {
		got := fieldStarts(NewRace(epoch, plain("tailnet:box.tail1.ts.net", "tailnet:100.64.0.9"), RaceOptions{}), time.Second, nil)
		if got != "0s tailnet:100.64.0.9, 250ms tailnet:box.tail1.ts.net" {
			t.Error(got)
		}
	})
	t.Run("slept 8 h", func(t *testing.T) {
		// A monotonic clock stands still meanwhile: no time that is kept has one.
		now := time.Now()
		if !strings.Contains(now.String(), "m=") {
			t.Fatal("no monotonic reading to begin with")
		}
		a := Attempt{Route: plan[0], Outcome: Failed, Start: now}
		m := Memory{}.Record(now, Raced{Start: home, End: home, Attempts: []Attempt{a}}).Record(now, won(home, "relay:wss://r"))
		known, _ := m.At(here, plan[0].ID())
		lead, _ := m.At(here, plan[2].ID())
		var keys WrongKeys
		keys.Note(now, here, "h:1")
		for _, at := range append(known.Failures, lead.LastSuccess, m.LastAt, m.Networks[0].Used, keys.list[0].until) {
			if strings.Contains(at.String(), "m=") {
				t.Errorf("%s", at)
			}
		}
	})
	t.Run("a captive portal", func(t *testing.T) {
		foreign := attempt(LAN, "10.0.0.2:1", Foreign, Handshake, "")
		m := Memory{}.Record(epoch, Raced{Start: home, End: home, Attempts: []Attempt{foreign, attempt(Tailnet, "h:1", Silent, Open, "")}})
		if len(m.Networks) != 0 {
			t.Errorf("learned: %+v", m)
		}
		if got := Describe("devbox", []Attempt{foreign}); !strings.Contains(got.Text, "sign-in") || got.Hint {
			t.Errorf("said %+v", got)
		}
	})
	t.Run("carrier-grade NAT is no tailnet", func(t *testing.T) {
		if got := ClassOf("100.64.0.9", path("cell").Tailnet); got != Direct {
			t.Errorf("it is %s", got)
		}
		if got := leader(Facts{Path: path("cell")}); got != plan[2].ID() {
			t.Errorf("%s leads", got)
		}
	})
	t.Run("a second VPN that has the default route", func(t *testing.T) {
		vpn := path("wifi#ab")
		vpn.Interfaces[0].Default = false
		vpn.Interfaces = append(vpn.Interfaces, Interface{Name: "tun0", Kind: Tunnel, Default: true, Network: Network{}})
		if m := (Memory{}).Record(epoch, won(vpn, "relay:wss://r")); len(m.Here(path("wifi#ab"))) != 1 {
			t.Errorf("stored: %+v", m)
		}
	})
	t.Run("50 connections at a dead host", func(t *testing.T) {
		var budget Budget
		var c Reconnect
		budget.SetWaiting(epoch, true)
		dials, now := 0, epoch
		for now.Sub(epoch) < time.Minute {
			for range 50 {
				c.Asked(now)
			}
			at, _, ok := c.Next(now, true, &budget)
			if !ok {
				t.Fatal("no race though apps wait")
			}
			now = later(at, now)
			c.Started(now)
			r := NewRace(now, plain("lan:a", "direct:a"), RaceOptions{Budget: &budget})
			ev := Event(Tick{})
			for wake := now; !wake.IsZero(); {
				var actions []Action
				actions, wake = r.Step(now, ev)
				ev = Tick{}
				for _, a := range actions {
					if a.Do == Dial {
						dials++
						ev = Ended{Route: a.Route, Outcome: Failed}
					}
				}
				if _, ended := ev.(Ended); !ended && !wake.IsZero() {
					now = wake
				}
			}
			c.Failed(now)
		}
		if most := BudgetSize + int(now.Sub(epoch)/RefillWaiting); dials > most || dials < most/2 {
			t.Errorf("%d dials in %s", dials, now.Sub(epoch))
		}
	})
}

// The head start follows from what the leader took here.
func TestRaceHistory(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		why      Why
		together bool
		want     time.Duration
	}{
		{Why{}, false, 250 * ms},
		{Why{Handshake: 1 * ms}, false, 30 * ms},
		{Why{Handshake: 15 * ms}, false, 30 * ms},
		{Why{Handshake: 16 * ms}, false, 32 * ms},
		{Why{Handshake: 124 * ms}, false, 248 * ms},
		{Why{Handshake: 2 * time.Second}, false, 250 * ms},
		{Why{Handshake: 20 * ms}, true, 0},
		{Why{}, true, 0},
		{Why{Handshake: 20 * ms, LastFailure: epoch.Add(-time.Hour)}, false, 0},
	} {
		plan := plain("lan:a", "lan:b", "lan:c")
		c.why.Class = LAN
		plan[0].Why = c.why
		r := NewRace(epoch, plan, RaceOptions{AllAtOnce: c.together})
		r.Step(epoch, Tick{})
		if got := r.slot(2).Sub(epoch); got != 2*c.want {
			t.Errorf("%+v, together %v: slot 2 at %s, want %s", c.why, c.together, got, 2*c.want)
		}
	}
}

// Whatever is known, while routes hang: the best relay starts at most 300 ms
// after the leader, a live LAN route beside it, and no two relays are locked out.
func TestFirstWaveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var plan []Ranked
		for _, r := range rapid.Permutation(raceRoutes).Draw(t, "order") {
			if rapid.IntRange(0, 3).Draw(t, "in") > 0 {
				plan = append(plan, drawRanked(t, r))
			}
		}
		r := NewRace(epoch, plan, RaceOptions{})
		starts := map[string]time.Duration{}
		now := epoch
		for range 20 {
			actions, wake := r.Step(now, Tick{})
			for _, a := range actions {
				if a.Do == Dial {
					starts[a.Route.ID()] = now.Sub(epoch)
				}
			}
			if wake.IsZero() {
				break
			}
			now = wake
		}
		if len(plan) == 0 {
			return
		}
		if at, ok := starts[plan[0].Route.ID()]; !ok || at != 0 {
			t.Fatalf("the leader started at %s: %v", at, starts)
		}
		if i := slices.IndexFunc(plan, func(r Ranked) bool { return r.Route.Class == Relay }); i >= 0 {
			if at, ok := starts[plan[i].Route.ID()]; !ok || at > RelayBy {
				t.Fatalf("the best relay started at %s: %v", at, starts)
			}
		}
		if i := slices.IndexFunc(plan, Ranked.liveLAN); i >= 0 {
			if at, ok := starts[plan[i].Route.ID()]; !ok || at != 0 {
				t.Fatalf("the live LAN route started at %s: %v", at, starts)
			}
		}
	})
}

// A penalized route that attaches within the grace is no better one.
func TestGraceKeepsNoPenalizedRoute(t *testing.T) {
	plan := plain("lan:a", "direct:a")
	plan[0].Why.Penalized = true
	r := NewRace(epoch, plan, RaceOptions{AllAtOnce: true})
	r.Step(epoch, Tick{})
	actions, wake := r.Step(epoch.Add(time.Millisecond), Attached{Route: plan[1].Route})
	if len(actions) != 3 || actions[1].Do != Cancel || !wake.IsZero() {
		t.Errorf("%v", actions)
	}
}

func TestDecisions(t *testing.T) {
	var d Decisions
	for i := range MaxDecisions + 6 {
		d.Add(Decision{At: epoch.Add(time.Duration(i) * time.Second)})
	}
	all := d.All()
	if len(all) != MaxDecisions || !all[0].At.Equal(epoch.Add(6*time.Second)) || !all[MaxDecisions-1].At.Equal(epoch.Add((MaxDecisions+5)*time.Second)) {
		t.Errorf("%d are kept, from %s", len(all), since(all[0].At))
	}
	all[0].What = "changed"
	if d.All()[0].What != "" {
		t.Error("the list is shared")
	}
}

func TestExplainEnd(t *testing.T) {
	res := &Result{Won: true, Winner: mustRoutes("direct:h")[0], Attempts: []Attempt{
		{Route: mustRoutes("lan:h")[0], Outcome: Kept, Start: epoch, Duration: 90 * time.Millisecond},
		{Route: mustRoutes("direct:h")[0], Outcome: Won, Start: epoch, Duration: 30 * time.Millisecond},
	}}
	want := `00:00:00  race: lan:h:7000 won (an app asked)
    1. lan:h:7000 kept after 90ms
    2. direct:h:7000 won after 30ms
`
	if got := ExplainEnd(epoch, res, "an app asked").String(); got != want {
		t.Errorf("said\n%s", got)
	}
	lost := ExplainEnd(epoch, &Result{Captive: true}, "a loss").String()
	if !strings.Contains(lost, "nobody won") || !strings.Contains(lost, "sign-in") {
		t.Errorf("said\n%s", lost)
	}
	refused := ExplainRace(Facts{Now: epoch}, nil, []Refusal{{mustRoutes("relay:wss://r")[0], "no token"}}, "an app asked").String()
	if !strings.Contains(refused, "no route may be tried") || !strings.Contains(refused, "relay:wss://r: no token") {
		t.Errorf("said\n%s", refused)
	}
}
