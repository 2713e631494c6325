package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// good is a scenario with each kind of line.
const good = `# a comment
title   A title   # with a comment
about   What it is about.
compare tcp cubic
untold
heavy
loopback: skip no time
netns:    long
let     outage = 10m
netns:  let outage = 1s500ms
link    lan      rtt 10ms  rate 16Mbit
link    tailnet  rtt 20ms  rate 1.5Gbit
link    direct2  rtt 1s    rate 256kbit
set     standby auto  hold 1h  pool 8MiB  buffers 16MiB
app     tick     tick 10ms  through socks
app     keys     keys 1s    through stdio  from 1s  apart 10ms  until 5s
app     load*50  both       through forward  at 1Mbit  pause 2s for 1s
app     idle     idle       through clone

at 2s   use tailnet; reset lan
  goal    stall of tick <= 170ms  (R + 150 ms)
  expect  dip of load <= 10%
at 2s+outage every 1s..2s until 3s+outage+10s  blackhole lan up for 500ms
at 3s   large lan tailnet 1300 down; heal lan
at 3s   refuse lan; accept lan; down lan; up lan; fin lan
at 4s   rate lan 1Mbit; rtt lan 1s; cut lan behind 10+5 up
at 5s   restart host; crash client; sleep client 8h; clone client; clock host -1h; note a text
  expect  reset of tick after 1s within 1s
  goal    switches <= 6 per hour
  expect  active none
  expect  streams >= 1
end outage+1m
expect  goodput of load >= 1Mbit
goal    trip of keys <= 1s
goal    first of idle <= 1s
goal    goodput of load >= 90% of cubic
expect  traffic <= 9kB per hour
`

func TestParse(t *testing.T) {
	sc, err := Parse("good", good, Sim)
	if err != nil {
		t.Fatal(err)
	}
	if sc.Title != "A title" || len(sc.Compare) != 2 || !sc.Heavy || sc.Trace || sc.Long || sc.Skip != "" || sc.End != 11*time.Minute {
		t.Errorf("heading: %+v", sc)
	}
	if l := sc.Links[2]; l.Class() != "direct" || l.Delay != 500*time.Millisecond || l.Rate != 256000 {
		t.Errorf("link: %+v", l)
	}
	if a := sc.Apps[2]; a.Count != 50 || a.Kind != BlastBoth || a.Rate != 1e6 || a.Pause != 2*time.Second || a.PauseFor != time.Second {
		t.Errorf("app: %+v", a)
	}
	e := sc.Events[0]
	if e.Text != "use tailnet; reset lan" || len(e.Acts) != 2 || len(e.Checks) != 2 {
		t.Errorf("event: %+v", e)
	}
	if c := e.Checks[0]; !c.Goal || c.Measure != Stall || c.App != "tick" || c.Limit != 0.17 || c.Note != "R + 150 ms" {
		t.Errorf("check: %+v", c)
	}
	if a := sc.Events[1].Acts[0]; !a.Up || a.Down || a.D != 500*time.Millisecond {
		t.Errorf("blackhole: %+v", a)
	}
	if a := sc.Events[4].Acts[2]; a.N != 10 || a.Step != 5 || !a.Up {
		t.Errorf("cut: %+v", a)
	}
	if n, err := Parse("good", good, NetNS); err != nil || !n.Long || n.End != time.Minute+1500*time.Millisecond {
		t.Errorf("for netns: %+v, %v", n, err)
	}
	if n, err := Parse("good", good, Loopback); err != nil || n.Skip != "no time" {
		t.Errorf("for loopback: %+v, %v", n, err)
	}
}

func TestTimeline(t *testing.T) {
	sc, err := Parse("good", good, Sim)
	if err != nil {
		t.Fatal(err)
	}
	list := sc.timeline()
	n, last := 0, time.Duration(0)
	for _, h := range list {
		if h.at < last {
			t.Errorf("%s comes after %s", h.at, last)
		}
		if last = h.at; h.event == 1 {
			if h.n != n {
				t.Errorf("the %d. is said to be %d", n, h.n)
			}
			n++
		}
	}
	if n < 6 || n > 11 { // 11 s, each 1 s to 2 s
		t.Errorf("it happens %d times", n)
	}
	if other := sc.timeline(); len(other) != len(list) || other[3] != list[3] {
		t.Error("two timelines of one scenario differ")
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ line, word, want string }{
		{"bogus 1", "bogus", "no such statement"},
		{"moon: end 1s", "moon", "no such runner"},
		{"sim:", "sim:", "want a line behind it"},
		{"sim: skip", "skip", "the reason"},
		{"skip because", "skip", "no such statement"},
		{"title Again", "title", "one already"},
		{"link wlan rtt 1ms", "wlan", "named by its class"},
		{"link lan rtt 1ms", "lan", "already"},
		{"link direct rtt", "rtt", "want a value"},
		{"link direct rtt 1", "1", "want a duration"},
		{"link direct rtt -1s", "-1s", "want a duration"},
		{"link direct rtt 72h", "72h", "at most 48h"},
		{"link direct rtt 1s rate 5Mb", "5Mb", "want a rate"},
		{"link direct rtt 1s rate NaNMbit", "NaNMbit", "want a rate"},
		{"link direct rtt 1s lost 5%", "lost", "want one of loss, rate, rtt"},
		{"link direct rtt 1s loss 5", "5", "want a percentage"},
		{"link direct rtt 1s loss 5%", "direct", "no packets to lose"},
		{"compare telnet", "telnet", "want some of"},
		{"compare tcp tcp", "tcp", "each once"},
		{"goal goodput of tick >= 90% of bbr", "bbr", "what compare names"},
		{"compare bbr\nexpect goodput of tick >= 90% of bbr", "bbr", "what compare names"},
		{"set standby maybe", "maybe", "auto, always or never"},
		{"set colour red", "colour", "want one of buffers, hold, pool, standby"},
		{"app", "app", "want: app NAME"},
		{"app Tick tick 1s through socks", "Tick", "lower-case"},
		{"app tick tick 1s through socks", "tick", "already"},
		{"app x*0 tick 1s through socks", "0", "want a number"},
		{"app x*9999 tick 1s through socks", "9999", "want a number"},
		{"app x tick through socks", "through", "want a duration"},
		{"app x tick 1us through socks", "1us", "at least 1ms"},
		{"app x jump through socks", "jump", "an app is one of"},
		{"app x idle through walls", "walls", "want one of"},
		{"app x idle", "x", "want a way"},
		{"app x idle through socks at 1Mbit", "idle", "have a rate"},
		{"app x up through socks pause 1s", "x", "pause TIME for DURATION"},
		{"app x up through socks", "lan", "wants a rate"},
		{"app x idle through socks from 9s", "x", "must begin before it ends"},
		{"let 5 = 1s", "5", "lower-case"},
		{"let x 1s", "let", "NAME = DURATION"},
		{"at 1s", "at", "want: at TIME"},
		{"at 1s jump", "jump", "can happen"},
		{"at 1s use", "use", "want: use LINK|next"},
		{"at 1s use moon", "moon", "links are lan, tailnet"},
		{"at 1s use lan;", "", ""},
		{"at 1s ; use lan", ";", "something that happens"},
		{"at 1s use lan tailnet", "lan", "want: use"},
		{"at 1s blackhole lan sideways", "sideways", "want: blackhole"},
		{"at 1s large lan", "large", "want: large"},
		{"at 1s large lan -5", "-5", "number of bytes"},
		{"at 1s rate lan 5", "5", "want a rate"},
		{"at 1s cut lan 5 up", "lan", "want: cut"},
		{"at 1s cut lan behind 5 left", "left", "want: cut"},
		{"at 1s restart moon", "moon", "want: restart"},
		{"at 1s clone host", "host", "want: clone client"},
		{"at 1s sleep client", "client", "want: sleep"},
		{"at 1s clock client 1h", "1h", "want: clock"},
		{"at 9s use lan", "use lan", "comes after the end at 5s"},
		{"at 1s every 1s use lan", "every", "want: every"},
		{"at 1s every 1ms until 3s use lan", "1ms", "at least 10ms"},
		{"at 1s every 2s..1s until 3s use lan", "2s..1s", "the shorter one first"},
		{"at 3s every 1s until 3s use lan", "3s", "behind the first"},
		{"at 1s use lan\nlink direct rtt 1s", "link", "before the first event"},
		{"goal", "", "want a measure"},
		{"goal speed <= 1", "speed", "no such measure"},
		{"goal stall <= 1s", "stall", "of APP"},
		{"goal stall of moon <= 1s", "moon", "no such app"},
		{"goal stall of tick < 1s", "stall", "want <= or >="},
		{"goal stall of tick <= 1", "1", "want a duration"},
		{"goal stall of tick <= 1s (why", "(why", "want a )"},
		{"goal dip of tick <= 1", "1", "want a percentage"},
		{"goal dials <= x", "x", "want a number"},
		{"goal active moon", "active", "links are"},
		{"goal reset of tick within 1s", "reset", "below its line"},
		{"at 1s reset lan\ngoal trip of tick <= 1s", "trip", "behind end"},
		{"at 1s reset lan\nexpect reset of tick", "reset", "within DURATION"},
		{"end 5s", "end", "one already"},
		{"end 0s", "0s", "want a time"},
	} {
		text := "title t\nlink lan rtt 1ms\nlink tailnet rtt 1ms\napp tick tick 10ms through socks\n" + c.line + "\n"
		if !strings.HasPrefix(c.line, "end 0s") {
			text += "end 5s\n"
			if c.line == "end 5s" {
				text = text[:len(text)-1] + "\n"
			}
		}
		_, err := Parse("x", text, Sim)
		var e *ParseError
		switch {
		case c.want == "" && err == nil:
		case !errors.As(err, &e):
			t.Errorf("%q: %v", c.line, err)
		case e.Word != c.word || !strings.Contains(e.Want, c.want) || e.Line < 5 || !strings.HasPrefix(err.Error(), "scenarios/x.txt:"):
			t.Errorf("%q: %v, want word %q and %q", c.line, err, c.word, c.want)
		}
	}
	for text, want := range map[string]string{
		"":                          "no title",
		"title t":                   "no link",
		"title t\nlink lan rtt 1ms": "no app",
		"title t\nlink lan rtt 1ms\napp x idle through socks": "no end",
	} {
		if _, err := Parse("x", text, Sim); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Every scenario of the suite is right for every runner, and each runner that does not play it says why.
func TestScenariosAreRight(t *testing.T) {
	for _, name := range names(t) {
		for _, r := range Runners {
			sc := load(t, name, r)
			for _, c := range sc.Checks {
				checkText(t, sc, c)
			}
			for _, e := range sc.Events {
				for _, c := range e.Checks {
					checkText(t, sc, c)
				}
			}
		}
	}
}

// checkText demands that a goal says where its number comes from.
func checkText(t *testing.T, sc *Scenario, c Check) {
	t.Helper()
	if c.Goal && c.Note == "" && c.Measure != Active {
		t.Errorf("scenarios/%s.txt:%d: the goal %s does not say in ( ) where its number comes from", sc.Name, c.Line, c)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	files, err := filepath.Glob("scenarios/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Runners {
			sc, err := Parse("fuzz", text, r)
			if err != nil {
				var e *ParseError
				if !errors.As(err, &e) || !strings.Contains(err.Error(), "scenarios/fuzz.txt:") {
					t.Fatalf("an error without file and line: %v", err)
				}
				continue
			}
			for _, h := range sc.timeline() {
				if h.at < 0 || h.at >= sc.End {
					t.Fatalf("something happens at %s of %s", h.at, sc.End)
				}
			}
			for _, c := range sc.Checks {
				_ = c.String()
			}
		}
	})
}
