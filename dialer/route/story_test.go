package route

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden stories in testdata from what the code does")

// epoch is when every test begins.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// A story is a script, one command a line, with what the code answered below
// each, indented. The whole file is the expectation.
func runStories(t *testing.T, pattern string, newTeller func() teller) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories match %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := retell(t, string(want), newTeller())
			if got == string(want) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("the story differs (-update rewrites it); now it goes:\n%s", got)
		})
	}
}

// teller carries out one command at a time since the beginning.
type teller interface {
	tell(at time.Duration, cmd string, args []string) ([]string, error)
}

func retell(t *testing.T, script string, who teller) string {
	t.Helper()
	var b strings.Builder
	at := time.Duration(0)
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "    ") {
			continue // what it said last time
		}
		b.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if d, err := time.ParseDuration(words[0]); err == nil {
			if d < at {
				t.Fatalf("%q goes back in time", line)
			}
			at, words = d, words[1:]
		}
		said, err := who.tell(at, words[0], words[1:])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, s := range said {
			b.WriteString("    " + s + "\n")
		}
	}
	return b.String()
}

func since(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Sub(epoch).String()
}

func mustRoutes(texts ...string) []Route {
	routes := make([]Route, len(texts))
	for i, text := range texts {
		if url, ok := strings.CutPrefix(text, "relay:"); ok {
			routes[i] = Route{Class: Relay, Address: url, Source: Configured}
			continue
		}
		r, err := ParseRoute(text, 7000)
		if err != nil {
			panic(err)
		}
		routes[i] = r
	}
	return routes
}

// plain ranks routes about which nothing is known.
func plain(texts ...string) []Ranked { return Rank(Facts{Now: epoch, Routes: mustRoutes(texts...)}) }

func parseOutcome(text string) (Outcome, error) {
	for o := range Outcome(len(outcomeNames)) {
		if strings.ReplaceAll(o.String(), " ", "-") == text {
			return o, nil
		}
	}
	return 0, fmt.Errorf("no outcome %q", text)
}

// raceTeller: facts as factTeller takes them, then `race [together] [spent=N]`,
// then events; `joined ROUTE…` ranks all anew.
type raceTeller struct {
	factTeller
	race   *Race
	budget Budget
}

func (w *raceTeller) tell(at time.Duration, cmd string, args []string) ([]string, error) {
	now := epoch.Add(at)
	if said, ok, err := w.fact(now, cmd, args); ok {
		return said, err
	}
	var ev Event = Tick{}
	switch cmd {
	case "race":
		opts := RaceOptions{Budget: &w.budget}
		for _, arg := range args {
			var n int
			if arg == "together" {
				opts.AllAtOnce = true
			} else if _, err := fmt.Sscanf(arg, "spent=%d", &n); err != nil {
				return nil, err
			}
			for range n {
				w.budget.Take(now)
			}
		}
		w.race = NewRace(now, w.rank(now), opts)
	case "tick":
	case "waiting":
		w.budget.SetWaiting(now, true)
	case "reached":
		e := Reached{Route: mustRoutes(args[0])[0], Stage: map[string]Stage{"handshake": Handshake, "attach": Attach}[args[1]]}
		if len(args) > 2 {
			e.Local = netip.MustParseAddr(args[2])
		}
		ev = e
	case "attached":
		a := Attached{Route: mustRoutes(args[0])[0]}
		if len(args) > 1 {
			rtt, err := time.ParseDuration(args[1])
			if err != nil {
				return nil, err
			}
			a.RTT = rtt
		}
		ev = a
	case "joined":
		w.Routes = append(w.Routes, mustRoutes(args...)...)
		ev = Joined{Plan: w.rank(now)}
	case "vanished":
		ev = Vanished{Local: netip.MustParseAddr(args[0])}
	case "stop":
		ev = Stop{Why: strings.Join(args, " ")}
	default: // an outcome, a route, a cause
		outcome, err := parseOutcome(cmd)
		if err != nil {
			return nil, err
		}
		e := Ended{Route: mustRoutes(args[0])[0], Outcome: outcome}
		if len(args) > 1 {
			e.Err = errors.New(strings.Join(args[1:], " "))
		}
		ev = e
	}
	return sayRace(w.race.Step(now, ev)), nil
}

func sayRace(actions []Action, wake time.Time) []string {
	var said []string
	for _, a := range actions {
		if a.Do != Done {
			said = append(said, fmt.Sprintf("%s %s  (%s)", a.Do, a.Route, a.Why))
			continue
		}
		if a.Result.Won {
			said = append(said, fmt.Sprintf("done, won by %s  (%s)", a.Result.Winner, a.Why))
		} else {
			said = append(said, fmt.Sprintf("done, nobody won  (%s)", a.Why))
		}
		for _, attempt := range a.Result.Attempts {
			mark := ""
			if attempt.IsFailure() && !a.Result.Captive {
				mark = "  [failure]"
			}
			said = append(said, fmt.Sprintf("  %s%s", attempt, mark))
		}
		if !a.Result.Won {
			m := Describe("devbox", a.Result.Attempts)
			said = append(said, fmt.Sprintf("  told: %s", m.Text), fmt.Sprintf("  next: %s", m.Next), fmt.Sprintf("  hint: %v", m.Hint))
		}
	}
	return append(said, "wake "+since(wake))
}

func TestRaceStories(t *testing.T) {
	runStories(t, "race_*.txt", func() teller { return new(raceTeller) })
}

// reconnectTeller: lost, woke, changed WHAT, asked, started, won, failed, stopped,
// idle, spend; each answered by what Next says.
type reconnectTeller struct {
	Reconnect
	budget  Budget
	streams bool
}

func (w *reconnectTeller) tell(at time.Duration, cmd string, args []string) ([]string, error) {
	now := epoch.Add(at)
	switch cmd {
	case "seed":
		w.Rand = rand.New(rand.NewPCG(1, 2)).Float64
		return nil, nil
	case "lost":
		w.Lost(now)
	case "woke":
		w.Woke(now)
	case "changed":
		w.Changed(now, strings.Join(args, " "))
	case "asked":
		w.streams = true
		w.budget.SetWaiting(now, true)
		w.Asked(now)
	case "started":
		w.Started(now)
		w.budget.Take(now)
		return []string{"racing"}, nil
	case "won":
		w.Won(now)
		w.budget.SetWaiting(now, false)
		return []string{"up"}, nil
	case "failed":
		w.Failed(now)
	case "captive":
		w.Captive(now)
	case "stopped":
		w.Stopped(now)
	case "idle":
		w.streams = false
		w.budget.SetWaiting(now, false)
	case "during": // a trigger while the race runs: during woke | changed … | asked
		_, err := w.tell(at, args[0], args[1:])
		return []string{"racing"}, err
	case "spend":
		for w.budget.Take(now) {
			continue
		}
	case "next":
	default:
		return nil, fmt.Errorf("no command %q", cmd)
	}
	next, why, ok := w.Next(now, w.streams, &w.budget)
	if !ok {
		return []string{"no race: " + why}, nil
	}
	return []string{fmt.Sprintf("race at %s: %s", since(next), why)}, nil
}

func TestReconnectStories(t *testing.T) {
	runStories(t, "reconnect_*.txt", func() teller { return new(reconnectTeller) })
}
