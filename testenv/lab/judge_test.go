package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// playText plays a text in sim, with a host at fault if so.
func playText(t *testing.T, text string, faulty bool) (r *Result) {
	t.Helper()
	sc, err := Parse("control", "title control\nlink lan rtt 10ms rate 16Mbit\nlink tailnet rtt 20ms rate 16Mbit\n"+text, Sim)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, err := plantedPackages(sc, newMemory(sc), dir, faulty)
		if err != nil {
			t.Fatal(err)
		}
		r = Play(t.Context(), sc, Sim, w)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// What the lab is for: it must see each kind of fault.
func TestFaultsAreFound(t *testing.T) {
	const cut = "app down down through socks\nat 2s reset lan\nend 4s\n"
	for _, c := range []struct {
		name, text string
		faulty     bool
		want       string // in a problem; "": none
	}{
		{"nothing is wrong", cut, false, ""},
		{"a host that forgets what was not confirmed", cut, true, "down: "},
		{
			"a connection ends though nothing allows it",
			"app tick tick 10ms through socks\nat 2s restart host\nend 4s\n", false,
			"tick: its connection ended wrongly at 2.01s: reset",
		},
		{
			"a connection goes on though it should be reset",
			"app tick tick 10ms through socks\nat 2s reset lan\nexpect reset of tick within 1s\nend 4s\n", false,
			"it ended otherwise: clean",
		},
		{
			"a stall of more than five times its goal",
			"app tick tick 10ms through socks\nat 2s blackhole lan tailnet\ngoal stall of tick <= 100ms (none)\nat 3s heal lan tailnet\nend 5s\n", false,
			"blackhole lan tailnet: 1.01s, over 5 times the goal stall of tick <= 100ms",
		},
		{
			"a stall that is allowed beyond its goal",
			"app tick tick 10ms through socks\nat 2s blackhole lan tailnet\ngoal stall of tick <= 100ms (none)\n" +
				"expect stall of tick <= 2s\nat 3s heal lan tailnet\nend 5s\n", false,
			"",
		},
		{
			"an expectation that does not hold",
			"app tick tick 10ms through socks\nat 2s use tailnet\nexpect active lan\nend 3s\n", false,
			"use tailnet: expected active lan, got tailnet",
		},
		{
			"less than expected",
			"app up up through socks\nat 1s note x\nexpect goodput of up >= 100Mbit\nend 3s\n", false,
			"expected goodput of up >= 100Mbit, got 1",
		},
		{
			"an event that comes too late to happen", "app idle idle through socks\nat 2s every 1s until 3s use next\nend 4s\n", false, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := playText(t, c.text, c.faulty)
			all := strings.Join(r.Problems(), "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("problems: %q, want %q", all, c.want)
			}
			if c.faulty && r.Lost+r.Repeated == 0 && r.Wrongly == 0 {
				t.Error("no byte is said to be lost or repeated, and no connection to have ended")
			}
		})
	}
}

func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := newRecorder(start, 50*time.Millisecond)
		at := func(d time.Duration, n int) {
			time.Sleep(time.Until(start.Add(d)))
			r.note(n)
		}
		at(100*time.Millisecond, 10)
		at(110*time.Millisecond, 20)
		at(310*time.Millisecond, 30)
		at(320*time.Millisecond, 40)
		time.Sleep(time.Second)
		for _, c := range []struct{ from, to, want int }{
			{115, 400, 200},   // the gap began within a tick before
			{200, 400, 110},   // long before: it counts from the event
			{0, 250, 140},     // up to the next event
			{320, 1000, 680},  // nothing came any more
			{1000, 1200, 200}, // nor here
			{100, 110, 10},
		} {
			ms := time.Millisecond
			if got := r.stall(time.Duration(c.from)*ms, time.Duration(c.to)*ms); got != time.Duration(c.want)*ms {
				t.Errorf("stall from %d to %d ms: %s, want %d ms", c.from, c.to, got, c.want)
			}
		}
		if got := r.came(100*time.Millisecond, 300*time.Millisecond); got != 30 {
			t.Errorf("%d bytes came", got)
		}
		if got := r.firstAt(time.Hour); got != 100*time.Millisecond {
			t.Errorf("the first byte came at %s", got)
		}
	})
}

func TestReport(t *testing.T) {
	r := playText(t, "app tick tick 10ms through socks\nat 2s blackhole lan\ngoal stall of tick <= 1ms (none | at all)\nend 4s\n", false)
	all := map[string]map[Runner]*Scenario{"control": {}}
	for _, runner := range Runners {
		sc := *r.Scenario
		all["control"][runner] = &sc
	}
	all["control"][NetNS].Skip = "it is a control"
	path := filepath.Join(t.TempDir(), "lab.md")
	if err := WriteReport(path, all, []*Result{r}); err != nil {
		t.Fatal(err)
	}
	md, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1 runs: 0 bytes lost, 0 repeated", "| [control](#control) | ‼ 0 of 1 | not played | – |", "Not in netns: it is a control.",
		"goal: stall of tick <= 1ms (none \\| at all) | ✗ ", "‼ sim: blackhole lan: ", "(lab/control.svg)",
	} {
		if !strings.Contains(string(md), want) {
			t.Errorf("the report does not say %q:\n%s", want, md)
		}
	}
	svg, err := os.ReadFile(filepath.Join(filepath.Dir(path), "lab", "control.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<polyline", "1: blackhole lan", "tick stood still for", "</svg>"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the picture does not hold %q", want)
		}
	}
}

// A goal that is a share of what a baseline reached is judged once that has been played, and by nothing else.
func TestRelate(t *testing.T) {
	c := Check{Goal: true, Measure: Goodput, App: "load", AtLeast: true, Limit: 0.9, Base: "BBR"}
	result := func(baseline string, bits float64) *Result {
		f := Figure{Check: c, Event: "at", Key: "key", Values: []float64{bits}}
		r := &Result{Scenario: &Scenario{Name: "x"}, Runner: NetNS, Baseline: baseline}
		f.settle(r)
		r.Figures = []Figure{f}
		return r
	}
	for _, o := range []struct {
		baseline string
		bits     float64
		met      bool
		cell     string
	}{
		{"CUBIC", 1e6, false, "✗ 90Mbit, not compared"},
		{"BBR", 0, false, "✗ 90Mbit, not compared"},
		{"BBR", 99e6, true, "✓ 90Mbit, 91%"},
		{"BBR", 101e6, false, "✗ 90Mbit, 89%"},
	} {
		r := result("", 90e6)
		r.relate(result(o.baseline, o.bits))
		if got := r.cell("key"); r.Figures[0].Met != o.met || got != o.cell {
			t.Errorf("beside %s at %g: %q, met %v; want %q", o.baseline, o.bits, got, r.Figures[0].Met, o.cell)
		}
		if p := r.Problems(); len(p) > 0 {
			t.Errorf("a goal alone fails the run: %q", p)
		}
	}
}
