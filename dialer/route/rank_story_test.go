package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// factTeller takes facts:
//
//	plan ROUTE…                        the configured routes
//	path [wifi|wired|cell|tailnet]…    what this machine has; wifi/10.1.2.0/24 for another prefix,
//	                                   wifi#ab for another router, "none" for unknown
//	now ROUTE seen|relayed             seen live, relayed by the tailnet
//	had worked ROUTE HANDSHAKE         a race that this route won, alone
//	had failed ROUTE                   a race in which it failed, alone
//	penalized ROUTE FOR REASON
type factTeller struct{ Facts }

func (w *factTeller) rank(now time.Time) []Ranked {
	w.Now = now
	return Rank(w.Facts)
}

func (w *factTeller) fact(now time.Time, cmd string, args []string) (said []string, ok bool, err error) {
	w.Now = now
	switch cmd {
	case "plan":
		w.Routes = mustRoutes(args...)
	case "path":
		w.Path = path(args...)
	case "now":
		id := mustRoutes(args[0])[0].ID()
		if args[1] == "seen" {
			w.Seen = map[string]time.Time{id: now}
		} else {
			w.Relayed = map[string]bool{id: true}
		}
	case "had":
		a := Attempt{Route: mustRoutes(args[1])[0], Outcome: Failed, Start: now, Duration: OpenLimit}
		if args[0] == "worked" {
			a.Outcome = Won
			if a.Duration, err = time.ParseDuration(args[2]); err != nil {
				return nil, true, err
			}
		}
		w.Memory = w.Memory.Record(now, Raced{Start: w.Path, End: w.Path, Attempts: []Attempt{a}})
	case "penalized":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return nil, true, err
		}
		id, n := mustRoutes(args[0])[0].ID(), w.Path.underlay()
		known, _ := w.Memory.At(n, id)
		known.Penalty = Penalty{Step: 1, Until: now.Add(d), Reasons: []string{strings.Join(args[2:], " ")}}
		w.Memory = w.Memory.With(now, n, id, known)
	default:
		return nil, false, nil
	}
	return nil, true, nil
}

// path makes a Path from words as factTeller takes them.
func path(words ...string) Path {
	var p Path
	for i, word := range words {
		word, router, _ := strings.Cut(word, "#")
		kind, prefix, _ := strings.Cut(word, "/")
		in := Interface{Name: fmt.Sprintf("%s%d", kind, i), Default: i == 0}
		switch kind {
		case "none":
			continue
		case "tailnet":
			p.Tailnet = true
			in.Kind, in.Default = Tunnel, false
			in.Addrs = []netip.Prefix{netip.MustParsePrefix("100.64.0.2/32")}
		case "cell":
			in.Kind, in.Network = Cell, Network{Kind: Cell}
			in.Addrs = []netip.Prefix{netip.MustParsePrefix("10.200.7.9/32")}
		default:
			var err error
			if in.Kind, err = ParseKind(kind); err != nil {
				panic(err)
			}
			if prefix == "" {
				prefix = "192.168.1.0/24"
			}
			net := netip.MustParsePrefix(prefix)
			in.Addrs = []netip.Prefix{netip.PrefixFrom(net.Addr().Next().Next(), net.Bits())}
			in.Network = Network{Kind: in.Kind, Prefix: net, Router: router}
		}
		p.Interfaces = append(p.Interfaces, in)
	}
	return p
}

// rankTeller: facts, and `rank WHY…` shows the decision and its reasons.
type rankTeller struct{ factTeller }

func (w *rankTeller) tell(at time.Duration, cmd string, args []string) ([]string, error) {
	now := epoch.Add(at)
	if said, ok, err := w.fact(now, cmd, args); ok {
		return said, err
	}
	if cmd != "rank" {
		return nil, fmt.Errorf("no command %q", cmd)
	}
	text := ExplainRace(w.Facts, w.rank(now), nil, strings.Join(args, " ")).String()
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), nil
}

func TestRankStories(t *testing.T) {
	runStories(t, "rank_*.txt", func() teller { return new(rankTeller) })
}

// vetTeller: known ROUTE [SOURCE], pinned, path …, relay URL [allowed] [token],
// wrong ROUTE, proved ROUTE, clear; vet shows what may be tried.
type vetTeller struct {
	Vetting
	known []Route
}

func (w *vetTeller) tell(at time.Duration, cmd string, args []string) ([]string, error) {
	w.Now = epoch.Add(at)
	here := w.Path.underlay()
	switch cmd {
	case "known":
		r := mustRoutes(args[0])[0]
		if len(args) > 1 {
			r.Source = Source(args[1])
		}
		w.known = append(w.known, r)
	case "pinned":
		w.Pinned = true
	case "path":
		w.Path = path(args...)
	case "relay":
		w.Relays = map[string]RelayAccess{args[0]: {Allowed: slices.Contains(args, "allowed"), Token: slices.Contains(args, "token")}}
	case "wrong":
		w.Wrong.Note(w.Now, here, mustRoutes(args[0])[0].Address)
	case "proved":
		w.Wrong.Proved(here, mustRoutes(args[0])[0].Address)
	case "clear":
		w.Wrong.Clear()
	case "vet":
		vetted, refused := w.Vet(w.known)
		var said []string
		for _, r := range vetted {
			said = append(said, fmt.Sprintf("%s  (%s)", r, r.Source))
		}
		for _, f := range refused {
			said = append(said, fmt.Sprintf("not %s: %s", f.Route, f.Why))
		}
		return said, nil
	default:
		return nil, fmt.Errorf("no command %q", cmd)
	}
	return nil, nil
}

func TestVetStories(t *testing.T) {
	runStories(t, "vet_*.txt", func() teller { return new(vetTeller) })
}
