package route

import (
	"strings"
	"testing"
	"time"
)

func rankedIDs(ranked []Ranked) string {
	var list []Route
	for _, r := range ranked {
		list = append(list, r.Route)
	}
	return ids(list)
}

// remember is a memory of one network.
func remember(n Network, last string, routes map[string]RouteMemory) Memory {
	m := Memory{Networks: []NetworkMemory{{Network: n, Last: last, Used: epoch, Routes: map[string]RouteMemory{}}}}
	for id, r := range routes {
		m.Networks[0].Routes[mustRoutes(id)[0].ID()] = r
	}
	if last != "" {
		m.Networks[0].Last = mustRoutes(last)[0].ID()
	}
	return m
}

// secondsAgo are failures, the oldest first.
func secondsAgo(seconds ...float64) RouteMemory {
	var r RouteMemory
	for _, s := range seconds {
		r.Failures = append(r.Failures, epoch.Add(-time.Duration(s*float64(time.Second))))
	}
	return r
}

func worked(ago time.Duration) RouteMemory {
	return RouteMemory{LastSuccess: epoch.Add(-ago), Handshake: 40 * time.Millisecond}
}

func TestRank(t *testing.T) {
	home := path("wifi#ab", "tailnet")
	here := home.Interfaces[0].Network
	all := "lan:192.168.1.20 tailnet:100.64.0.9 direct:h relay:wss://r"
	penalized := RouteMemory{LastSuccess: epoch.Add(-time.Second), Penalty: Penalty{Step: 1, Until: epoch.Add(time.Nanosecond)}}
	over := RouteMemory{Penalty: Penalty{Step: 1, Until: epoch}}
	for name, c := range map[string]struct {
		routes string
		f      Facts
		want   string
	}{
		"by class":              {"relay:wss://r direct:h tailnet:h lan:h", Facts{}, "lan:h tailnet:h direct:h relay:wss://r"},
		"then as configured":    {"lan:b lan:a lan:c", Facts{}, "lan:b lan:a lan:c"},
		"tailnet number first":  {"tailnet:b.ts.net tailnet:100.64.0.9 tailnet:a.ts.net", Facts{}, "tailnet:100.64.0.9 tailnet:b.ts.net tailnet:a.ts.net"},
		"other numbers are not": {"direct:h direct:198.51.100.7", Facts{}, "direct:h direct:198.51.100.7"},
		"later success first": {"direct:a direct:b direct:c", Facts{Path: home, Memory: remember(here, "", map[string]RouteMemory{
			"direct:b": worked(time.Hour), "direct:c": worked(time.Minute),
		})}, "direct:c direct:b direct:a"},
		"class before success": {"lan:h direct:a", Facts{Path: home, Memory: remember(here, "", map[string]RouteMemory{"direct:a": worked(time.Minute)})}, "lan:h direct:a"},
		"live before class":    {"lan:h direct:a tailnet:100.64.0.9", Facts{Seen: map[string]time.Time{"tailnet:100.64.0.9:7000": epoch}}, "tailnet:100.64.0.9 lan:h direct:a"},
		"remembered here leads": {
			all,
			Facts{Path: home, Memory: remember(here, "direct:h", nil)},
			"direct:h lan:192.168.1.20 tailnet:100.64.0.9 relay:wss://r",
		},
		"remembered elsewhere leads": {
			all,
			Facts{Path: home, Memory: Memory{Last: "direct:h:7000"}},
			"direct:h lan:192.168.1.20 tailnet:100.64.0.9 relay:wss://r",
		},
		"here goes before elsewhere": {all, Facts{Path: home, Memory: func() Memory {
			m := remember(here, "tailnet:100.64.0.9", nil)
			m.Last = "direct:h:7000"
			return m
		}()}, "tailnet:100.64.0.9 lan:192.168.1.20 direct:h relay:wss://r"},
		"a LAN route never leads elsewhere":    {"direct:a lan:b lan:a", Facts{Path: home, Memory: Memory{Last: "lan:a:7000"}}, "lan:b lan:a direct:a"},
		"what is not in the plan is not added": {"lan:a", Facts{Path: home, Memory: Memory{Last: "direct:h:7000"}}, "lan:a"},
		"remembered, but penalized": {
			"lan:a direct:h",
			Facts{Path: home, Memory: remember(here, "lan:a", map[string]RouteMemory{"lan:a": penalized})},
			"direct:h lan:a",
		},
		"its penalty is over": {"lan:a direct:h", Facts{Path: home, Memory: remember(here, "", map[string]RouteMemory{"lan:a": over})}, "lan:a direct:h"},
		"remembered, but failing": {
			"direct:a relay:wss://r",
			Facts{Path: home, Memory: remember(here, "direct:a", map[string]RouteMemory{"direct:a": secondsAgo(20, 10)})},
			"relay:wss://r direct:a",
		},
		"relayed now":               {"tailnet:a direct:h relay:wss://r", Facts{Relayed: map[string]bool{"tailnet:a:7000": true}}, "direct:h tailnet:a relay:wss://r"},
		"relayed, remembered":       {"relay:wss://r tailnet:a direct:h", Facts{Path: home, Memory: remember(here, "", map[string]RouteMemory{"tailnet:a": {Relayed: true}})}, "direct:h relay:wss://r tailnet:a"},
		"no tailnet here":           {"tailnet:100.64.0.9 direct:h", Facts{Path: path("wifi#ab")}, "direct:h tailnet:100.64.0.9"},
		"its daemon knows the peer": {"tailnet:100.64.0.9 direct:h", Facts{Path: path("wifi#ab"), TailnetKnows: true}, "tailnet:100.64.0.9 direct:h"},
		"of the failing ones the one tried longest ago": {"lan:a direct:h relay:wss://r", Facts{Path: home, Memory: remember(here, "", map[string]RouteMemory{
			"lan:a": secondsAgo(40, 10), "direct:h": secondsAgo(50, 30), "relay:wss://r": secondsAgo(30, 20),
		})}, "direct:h relay:wss://r lan:a"},
		"what can hardly work is last": {"lan:192.168.1.20 direct:h relay:wss://r", Facts{Path: path("cell"), Memory: remember(Network{Kind: Cell}, "", map[string]RouteMemory{
			"direct:h": secondsAgo(40, 10),
		})}, "relay:wss://r direct:h lan:192.168.1.20"},
		"memory of another network": {all, Facts{Path: path("wifi#cd", "tailnet"), Memory: remember(here, "relay:wss://r", map[string]RouteMemory{
			"lan:192.168.1.20": secondsAgo(2, 1),
		})}, all},
		"failed on one network, worked on the other since": {"direct:a relay:wss://r", Facts{Path: path("wired/10.0.0.0/24#cd", "wifi#ab"), Memory: func() Memory {
			m := remember(here, "", map[string]RouteMemory{"direct:a": secondsAgo(60, 50)})
			other := remember(Network{Kind: Wired, Prefix: path("wired/10.0.0.0/24").Interfaces[0].Network.Prefix, Router: "cd"}, "", map[string]RouteMemory{"direct:a": worked(40 * time.Second)})
			m.Networks = append(other.Networks, m.Networks...)
			return m
		}()}, "direct:a relay:wss://r"},
	} {
		t.Run(name, func(t *testing.T) {
			c.f.Now, c.f.Routes = epoch, mustRoutes(strings.Fields(c.routes)...)
			if got := rankedIDs(Rank(c.f)); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.routes, got, c.want)
			}
		})
	}
}

func TestFailing(t *testing.T) {
	for _, c := range []struct {
		ago  []float64 // seconds
		want bool
	}{
		{nil, false},
		{[]float64{5}, false},
		{[]float64{10, 5}, true},
		{[]float64{130, 120}, true},
		{[]float64{130, 120.001}, false},
		{[]float64{125, 5}, true},
		{[]float64{125.001, 5}, false},
		{[]float64{86405, 5}, false},
		{[]float64{86405, 10, 5}, true},
		{[]float64{5, 5}, true},
		{[]float64{0, 0}, true},
		{[]float64{1, -1}, false}, // the clock was set back
		{[]float64{-1, -1}, false},
	} {
		if got := failing(epoch, secondsAgo(c.ago...).Failures); got != c.want {
			t.Errorf("failures %v s ago: failing = %v", c.ago, got)
		}
	}
}

func TestImplausible(t *testing.T) {
	for _, c := range []struct {
		route, path string
		can         bool
	}{
		{"lan:10.1.2.3", "cell", false},
		{"lan:172.16.0.1", "cell", false},
		{"lan:172.31.255.1", "cell", false},
		{"lan:172.15.0.1", "cell", true}, // public, whatever it is called
		{"lan:172.32.0.1", "cell", true},
		{"lan:192.168.1.8", "cell", false},
		{"lan:169.254.9.9", "cell", false},
		{"lan:mac.local", "cell", false},
		{"lan:MAC.local.", "cell", false},
		{"lan:fe80::1", "cell", false},
		{"lan:fe80::1%eth0", "cell", false},
		{"lan:fd12::1", "cell", false},
		{"lan:127.0.0.1", "cell", true},
		{"lan:::1", "cell", true},
		{"lan:localhost", "cell", true},
		{"lan:dev.localhost", "cell", true},
		{"lan:fd7a:115c:a1e0::9", "cell", true},
		{"lan:devbox", "cell", true}, // a name that may be anything
		{"direct:192.168.1.8", "cell", true},
		{"direct:198.51.100.7", "cell", true},
		{"relay:wss://r.example", "cell", true},
		{"lan:192.168.1.8", "wifi", true},
		{"lan:192.168.1.8", "wired", true},
		{"lan:192.168.1.8", "cell wifi", true},
		{"lan:192.168.1.8", "other", true},
		{"lan:192.168.1.8", "tunnel", false},
		{"lan:192.168.1.8", "loopback", false},
		{"lan:192.168.1.8", "none", true},
		{"tailnet:100.64.0.9", "wifi", false},
		{"tailnet:box.ts.net", "wifi", false},
		{"tailnet:100.64.0.9", "cell tailnet", true},
		{"tailnet:100.64.0.9", "none", true},
		{"direct:100.64.0.9", "cell", true}, // some provider's NAT
	} {
		f := Facts{Path: path(strings.Fields(c.path)...)}
		if why := f.implausible(mustRoutes(c.route)[0]); (why == "") != c.can {
			t.Errorf("%s on %s: %q", c.route, c.path, why)
		}
	}
}

// With one dial at a time a race must not spend it on the same dead route again
// and again: each is tried in turn, and one that comes back is found.
func TestRankTriesAllOfADeadPeerInTurn(t *testing.T) {
	f := Facts{Path: path("wifi#ab", "tailnet"), Routes: mustRoutes("lan:192.168.1.20", "tailnet:100.64.0.9", "direct:h")}
	tried := map[string]int{}
	run, last := 0, ""
	for i := range 24 {
		f.Now = epoch.Add(time.Duration(i) * 5 * time.Second)
		budget := new(Budget)
		for range BudgetSize - 1 {
			budget.Take(f.Now)
		}
		r := NewRace(f.Now, Rank(f), RaceOptions{Budget: budget})
		actions, _ := r.Step(f.Now, Tick{})
		if len(actions) != 1 || actions[0].Do != Dial {
			t.Fatalf("race %d: %v", i, actions)
		}
		id := actions[0].Route.ID()
		tried[id]++
		if run++; id != last {
			run, last = 1, id
		}
		if run > FailuresToDemote {
			t.Fatalf("race %d is the %dth to try %s alone", i, run, id)
		}
		f.Memory = f.Memory.Record(f.Now, Raced{Start: f.Path, End: f.Path, Attempts: []Attempt{
			{Route: actions[0].Route, Outcome: Failed, Start: f.Now},
		}})
	}
	for _, r := range f.Routes {
		if tried[r.ID()] < 6 {
			t.Errorf("%s was tried %d of 24 times: %v", r, tried[r.ID()], tried)
		}
	}
}
