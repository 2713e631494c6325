package route

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestKind(t *testing.T) {
	for k := Wired; k <= OtherKind; k++ {
		if got, err := ParseKind(strings.ToUpper(k.String())); err != nil || got != k {
			t.Errorf("%s became %s, %v", k, got, err)
		}
	}
	for _, text := range []string{"", "unknown", "lan"} {
		if k, err := ParseKind(text); err == nil {
			t.Errorf("%q became %s", text, k)
		}
	}
}

func TestNetworkKnown(t *testing.T) {
	prefix := netip.MustParsePrefix("192.168.1.0/24")
	for n, want := range map[Network]bool{
		{}:                           false,
		{Kind: WiFi}:                 false,
		{Kind: Wired, Router: "ab"}:  false,
		{Kind: WiFi, Prefix: prefix}: true,
		{Kind: Wired, Prefix: prefix, Router: "ab"}: true,
		{Kind: Cell}:                      true,
		{Kind: Tunnel, Prefix: prefix}:    false,
		{Kind: Loopback, Prefix: prefix}:  false,
		{Kind: OtherKind, Prefix: prefix}: false,
	} {
		if n.Known() != want {
			t.Errorf("%#v: known = %v", n, n.Known())
		}
	}
	if got := (Network{Kind: WiFi, Prefix: prefix, Router: "0123456789"}).String(); got != "wifi 192.168.1.0/24, router 0123" {
		t.Errorf("shown as %q", got)
	}
}

// won is a race that one route won alone.
func won(p Path, text string) Raced {
	return Raced{Start: p, End: p, Attempts: []Attempt{{Route: mustRoutes(text)[0], Outcome: Won, Start: epoch, Duration: 40 * time.Millisecond}}}
}

func TestNetworkLookUp(t *testing.T) {
	for name, c := range map[string]struct {
		known []string // networks visited, each with its own route in front
		at    string
		want  string // the number of the visit
	}{
		"exactly":                              {[]string{"wifi#ab", "wifi#cd"}, "wifi#ab", "0"},
		"router not read, one known":           {[]string{"wifi#ab", "wifi/10.0.0.0/24#cd"}, "wifi", "0"},
		"router not read, two known":           {[]string{"wifi#ab", "wifi#cd"}, "wifi", ""},
		"router not read then either":          {[]string{"wifi#ab", "wifi#cd", "wifi"}, "wifi", "2"},
		"another router":                       {[]string{"wifi#ab"}, "wifi#cd", ""},
		"another router, known without":        {[]string{"wifi"}, "wifi#cd", ""},
		"another kind":                         {[]string{"wifi#ab"}, "wired#ab", ""},
		"another kind, router not read":        {[]string{"wifi#ab"}, "wired", ""},
		"cellular":                             {[]string{"wifi#ab", "cell"}, "cell", "1"},
		"unknown":                              {[]string{"wifi#ab", "none", "loopback"}, "loopback", ""},
		"all interfaces, the latest one leads": {[]string{"wifi#ab", "wired/10.0.0.0/24", "cell"}, "cell wifi#ab", "2 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var m Memory
			for i, at := range c.known {
				m = m.Record(epoch.Add(time.Duration(i)*time.Minute), won(path(at), fmt.Sprintf("direct:h%d", i)))
			}
			var got []string
			for _, n := range m.Here(path(strings.Fields(c.at)...)) {
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(n.Last, "direct:h"), ":7000"))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("found %v, want %q", got, c.want)
			}
		})
	}
}

func TestNetworkOf(t *testing.T) {
	p := path("wifi#ab", "wired/10.1.2.0/24#cd", "tailnet")
	wifi, wired := p.Interfaces[0].Network, p.Interfaces[1].Network
	vpn := path("wifi#ab")
	vpn.Interfaces[0].Default = false
	vpn.Interfaces = append([]Interface{{Name: "tun0", Kind: Tunnel, Default: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.77/16")}}}, vpn.Interfaces...)
	for _, c := range []struct {
		p     Path
		local string
		want  Network
	}{
		{p, "192.168.1.2", wifi},
		{p, "::ffff:192.168.1.2", wifi},
		{p, "10.1.2.2", wired},
		{p, "100.64.0.2", wifi}, // by the tunnel: the default route's
		{p, "127.0.0.1", wifi},
		{p, "203.0.113.9", wifi},
		{vpn, "192.168.1.77", wifi}, // a VPN that has the default route
		{path("none"), "192.168.1.2", Network{}},
	} {
		if got := c.p.NetworkOf(netip.MustParseAddr(c.local)); got != c.want {
			t.Errorf("%s: %s, want %s", c.local, got, c.want)
		}
	}
	if got := p.networkFor(mustRoutes("lan:10.1.2.20")[0], netip.Addr{}); got != wired {
		t.Errorf("a dial to 10.1.2.20 that got no socket went by %s", got)
	}
	if got := p.networkFor(mustRoutes("direct:h")[0], netip.Addr{}); got != wifi {
		t.Errorf("a dial to a name went by %s", got)
	}
}

// What a race teaches about each route, by its outcome.
func TestRecordOutcomes(t *testing.T) {
	home := path("wifi#ab")
	other := func(o Outcome, s Stage) Attempt {
		return Attempt{Route: mustRoutes("relay:wss://r")[0], Outcome: o, Stage: s, Start: epoch, Duration: FairTry}
	}
	for o := range Outcome(len(outcomeNames)) {
		failed := o == Failed || o == Silent || o == WrongPeer || o == Unfinished
		a := Attempt{Route: mustRoutes("direct:h")[0], Outcome: o, Start: epoch, Duration: FairTry}
		m := Memory{}.Record(epoch, Raced{Start: home, End: home, Attempts: []Attempt{a, a, other(Failed, Handshake)}})
		got, _ := m.At(home.Interfaces[0].Network, "direct:h:7000")
		if o == Foreign {
			failed = true // the relay answered otherwise: no sign-in is wanted
		}
		if want := map[bool]int{true: 1}[failed]; len(got.Failures) != want {
			t.Errorf("%s, twice in one race: %d failures, want %d", o, len(got.Failures), want)
		}
		if success := o == Won || o == Kept; success != got.LastSuccess.Equal(epoch) {
			t.Errorf("%s: last success %s", o, got.LastSuccess)
		}
	}
}

func TestRecord(t *testing.T) {
	home, id := path("wifi#ab"), "direct:h:7000"
	here := home.Interfaces[0].Network
	fail := Raced{Start: home, End: home, Attempts: []Attempt{{Route: mustRoutes("direct:h")[0], Outcome: Silent, Start: epoch, Duration: OpenLimit}}}
	var m Memory
	for i := range 5 {
		m = m.Record(epoch.Add(time.Duration(i)*time.Minute), fail)
	}
	got, _ := m.At(here, id)
	if want := []time.Time{epoch.Add(3 * time.Minute), epoch.Add(4 * time.Minute)}; !slices.EqualFunc(got.Failures, want, time.Time.Equal) {
		t.Errorf("failures %v", got.Failures)
	}
	got.Penalty = Penalty{Step: 2, Until: epoch.Add(time.Hour)}
	m = m.With(epoch, here, id, got)
	m = m.Record(epoch.Add(5*time.Minute), won(home, "direct:h"))
	got, _ = m.At(here, id)
	if len(got.Failures) != 0 || got.Handshake != 40*time.Millisecond || got.Penalty.Step != 2 {
		t.Errorf("after a success: %+v", got)
	}
	if !m.LastAt.Equal(epoch.Add(5*time.Minute)) || m.Last != id || m.Networks[0].Last != id {
		t.Errorf("leads: %+v", m)
	}
	m = m.WithReadyV2("wss://a").WithReadyV2("wss://b")
	if !m.ReadyV2["wss://a"] || !m.ReadyV2["wss://b"] || m.ReadyV2["wss://c"] {
		t.Errorf("ready-v2: %v", m.ReadyV2)
	}
}

// A result goes to the network that its socket was on, if that is still there.
func TestRecordGoesToItsNetwork(t *testing.T) {
	both := path("wifi#ab", "wired/10.1.2.0/24#cd")
	wifi, wired := both.Interfaces[0].Network, both.Interfaces[1].Network
	local := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	for name, c := range map[string]struct {
		start, end Path
		local      netip.Addr
		want       Network // zero: nowhere
	}{
		"by the socket's address":       {both, both, local("10.1.2.2"), wired},
		"without a socket, the default": {both, both, netip.Addr{}, wifi},
		"the other one left":            {both, path("wired/10.1.2.0/24#cd"), local("10.1.2.2"), wired},
		"it left":                       {both, path("wifi#ab"), local("10.1.2.2"), Network{}},
		"the /24 became another's":      {path("wifi#ab"), path("wifi#cd"), local("192.168.1.2"), Network{}},
		"its router was read meanwhile": {path("wifi"), path("wifi#ab"), local("192.168.1.2"), wifi},
		"unknown":                       {path("loopback"), path("loopback"), local("127.0.0.1"), Network{}},
	} {
		race := won(c.start, "direct:h")
		race.End = c.end
		race.Attempts[0].Local = c.local
		m := Memory{}.Record(epoch, race)
		if c.want == (Network{}) {
			if len(m.Networks) != 0 {
				t.Errorf("%s: %+v", name, m.Networks)
			}
			continue
		}
		if len(m.Networks) != 1 || m.Networks[0].Network != c.want {
			t.Errorf("%s: %+v", name, m.Networks)
		}
	}
}

// A relay's win replaces a better class only where that failed in the same race.
func TestRecordWhoLeads(t *testing.T) {
	home := path("wifi#ab", "tailnet")
	race := func(outcomes ...string) Raced {
		r := Raced{Start: home, End: home}
		for i := 0; i < len(outcomes); i += 2 {
			o, err := parseOutcome(outcomes[i+1])
			if err != nil {
				t.Fatal(err)
			}
			r.Attempts = append(r.Attempts, Attempt{Route: mustRoutes(outcomes[i])[0], Outcome: o, Start: epoch, Duration: FairTry})
		}
		return r
	}
	relay := "relay:wss://r"
	renamed := race("lan:b", "lost", relay, "won")
	renamed.Known = mustRoutes("lan:b", relay)
	for name, c := range map[string]struct {
		races           []Raced
		here, elsewhere string
	}{
		"the first":                       {[]Raced{race(relay, "won")}, relay, relay},
		"a better class":                  {[]Raced{race(relay, "won"), race("tailnet:a", "won", relay, "lost")}, "tailnet:a", "tailnet:a"},
		"a LAN route leads only here":     {[]Raced{race(relay, "won"), race("lan:a", "won", relay, "lost")}, "lan:a", relay},
		"a relay by a millisecond":        {[]Raced{race("tailnet:a", "won"), race("tailnet:a", "lost", relay, "won")}, "tailnet:a", "tailnet:a"},
		"a relay, as the other failed":    {[]Raced{race("tailnet:a", "won"), race("tailnet:a", "failed", relay, "won")}, relay, relay},
		"a relay, the other unfinished":   {[]Raced{race("tailnet:a", "won"), race("tailnet:a", "unfinished", relay, "won")}, relay, relay},
		"a relay, the other not in it":    {[]Raced{race("tailnet:a", "won"), race(relay, "won")}, "tailnet:a", "tailnet:a"},
		"a relay over another relay":      {[]Raced{race("relay:wss://q", "won"), race(relay, "won")}, relay, relay},
		"a direct one over a LAN route":   {[]Raced{race("lan:a", "won"), race("direct:a", "won", "lan:a", "lost")}, "direct:a", "direct:a"},
		"the standby of a better class":   {[]Raced{race(relay, "won", "tailnet:a", "kept", "lan:a", "kept")}, "lan:a", ""},
		"a relay, the other unconfigured": {[]Raced{race("lan:a", "won"), renamed}, relay, relay},
		"failed, but a sign-in is wanted": {[]Raced{race("direct:a", "won"), race("direct:a", "failed", "relay:wss://q", "foreign-certificate")}, "direct:a", "direct:a"},
	} {
		t.Run(name, func(t *testing.T) {
			var m Memory
			for _, r := range c.races {
				m = m.Record(epoch, r)
			}
			trim := func(id string) string { return strings.TrimSuffix(id, ":7000") }
			if here := trim(m.Networks[0].Last); here != c.here || trim(m.Last) != c.elsewhere {
				t.Errorf("%s leads here and %q elsewhere, want %s and %q", here, m.Last, c.here, c.elsewhere)
			}
		})
	}
}

// Memory is plain data: what is written as JSON comes back the same.
func TestMemoryIsPlainData(t *testing.T) {
	home := path("wifi#ab")
	m := Memory{}.Record(epoch, won(home, "direct:h")).WithReadyV2("wss://r")
	m = m.With(epoch, home.Interfaces[0].Network, "direct:i:1", RouteMemory{
		Failures: []time.Time{epoch}, Relayed: true, Penalty: Penalty{Step: 1, Until: epoch, Reasons: []string{"dropped"}, CoolUntil: epoch},
	})
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var again Memory
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, again, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

// Learned and discovered routes come and go: what is remembered stays bounded,
// and keeps what was of use last, and what leads.
func TestMemoryIsBounded(t *testing.T) {
	home := path("wifi#ab")
	m := Memory{}.Record(epoch, won(home, "direct:first"))
	for i := range 3 * maxRoutes {
		race := won(home, fmt.Sprintf("lan:h%d", i))
		race.Attempts[0].Outcome, race.Attempts[0].Duration = Failed, OpenLimit
		m = m.Record(epoch.Add(time.Duration(i)*time.Second), race)
	}
	routes := m.Networks[0].Routes
	if len(routes) != maxRoutes {
		t.Fatalf("%d routes", len(routes))
	}
	for _, id := range []string{"direct:first:7000", fmt.Sprintf("lan:h%d:7000", 3*maxRoutes-1), fmt.Sprintf("lan:h%d:7000", 2*maxRoutes+1)} {
		if _, ok := routes[id]; !ok {
			t.Errorf("%s was dropped", id)
		}
	}
}

// TestPenaltyOfAnotherClock: no penalty lasts longer than the ladder's last rung, and no cooling longer than CoolDown; what claims to
// was written while the clock was wrong.
func TestPenaltyOfAnotherClock(t *testing.T) {
	last := penaltyLadder[len(penaltyLadder)-1]
	for _, c := range []struct {
		until, cool   time.Duration // from now
		active, cools bool
		skipped       time.Duration // from now; 0: not at all
	}{
		{last, CoolDown, true, true, last},
		{last + 1, CoolDown + 1, false, false, 0},
		{73 * 365 * 24 * time.Hour, CoolDown, false, true, CoolDown},
		{time.Minute, 73 * 365 * 24 * time.Hour, true, false, time.Minute},
		{0, 0, false, false, 0},
	} {
		p := Penalty{Step: 1, Until: epoch.Add(c.until), CoolUntil: epoch.Add(c.cool)}
		want := time.Time{}
		if c.skipped > 0 {
			want = epoch.Add(c.skipped)
		}
		if p.Active(epoch) != c.active || p.Cooling(epoch) != c.cools || !p.Skipped(epoch).Equal(want) || (p.Text(epoch) == "") == (c.active || c.cools) {
			t.Errorf("%+v: active %v, cools %v, skipped until %s, told %q", c, p.Active(epoch), p.Cooling(epoch), p.Skipped(epoch), p.Text(epoch))
		}
	}
}
