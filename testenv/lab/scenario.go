package lab

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Runner is a kind of world.
type Runner string

// The runners.
const (
	Sim      Runner = "sim"
	Loopback Runner = "loopback"
	NetNS    Runner = "netns"
)

// Runners are all of them, in the order of a report.
var Runners = []Runner{Sim, Loopback, NetNS}

// Scenario is one scenario as one runner plays it.
type Scenario struct {
	Name    string // of the file, without .txt
	Title   string
	About   []string // what the reader of the report should know
	Skip    string   // why this runner does not play it; "": it does
	Long    bool     // played by `make lab` only
	Compare []string // netns: the Baselines to which the same events are played
	Heavy   bool     // where time is real, nothing is played beside it
	Trace   bool     // sim: the decisions are compared with testdata
	Links   []Link
	Set     Settings
	Apps    []App
	Events  []Event // by time
	End     time.Duration
	Checks  []Check // of the whole run
}

// Link is one way from client to host.
type Link struct {
	Name  string        // a class, or a class and a digit
	Delay time.Duration // one way
	Rate  int64         // bits a second; 0: no bound
	Loss  float64       // share of the packets; netns only
}

// Class is the class of the route over the link.
func (l Link) Class() string { return strings.TrimRight(l.Name, "0123456789") }

// Settings are those of the product; zero values are its defaults.
type Settings struct {
	Standby string        // auto, always, never; default never, as most scenarios are about one thing
	Hold    time.Duration // both sides' bound
	Pool    int64         // bytes for streams in each process; not in netns, where the program's own holds
	Buffers int64         // bytes that a socket may buffer each way, netns only; 0: the system's default
}

// App is one app, or Count alike.
type App struct {
	Name  string
	Count int
	Kind  Kind
	Via   string        // of Vias
	Every time.Duration // Tick, Keys: between two
	Rate  int64         // bits a second that the reading side takes; 0: all there is
	From  time.Duration // when it connects, the first of Count
	Apart time.Duration // by how much later the next of Count connects
	Until time.Duration // when it ends by itself; 0: with the scenario
	// From Pause on, counted from its beginning, what it and its target receive is not read, for PauseFor.
	Pause, PauseFor time.Duration
}

// Kind is what an app does.
type Kind string

// The kinds of apps.
const (
	Tick      Kind = "tick" // both sides send a few bytes every so often
	Keys      Kind = "keys" // sends a few bytes every so often, each of which is answered
	BlastUp   Kind = "up"   // sends as fast as it can
	BlastDown Kind = "down" // receives as fast as it can
	BlastBoth Kind = "both" // both
	Idle      Kind = "idle" // says nothing until the end; then both sides prove that they are there
)

// Vias are the ways for an app's bytes. alone is a `connect --alone` of its own; clone goes through a second `up` whose
// state folder is a copy.
var Vias = []string{"socks", "http", "forward", "stdio", "alone", "clone"}

// Event is something that happens, once or repeatedly, and what is expected of the time until the next event.
type Event struct {
	Text      string // as written
	At, Until time.Duration
	Low, High time.Duration // between two times; 0: once
	Acts      []Act
	Checks    []Check
}

// Act is one thing done to the world.
type Act struct {
	Verb     string
	Links    []string
	Who      string // client or host
	Up, Down bool
	Rate     int64         // bits a second
	D        time.Duration // round trip, or how long
	N, Step  int64         // bytes; the n-th time N + n Step
	Text     string
}

// Measure names a figure.
type Measure string

// The measures. Those of an app concern the window from the event to the next one.
const (
	Stall    Measure = "stall"    // longest time in which nothing came to the app; duration
	Trip     Measure = "trip"     // longest time from a key to its answer, of 99 %; duration, whole run only
	Dip      Measure = "dip"      // goodput of the second behind the event under that of the second before it; percent
	Goodput  Measure = "goodput"  // what came to the app, mean; bits a second
	Switches Measure = "switches" // from one carrier to another
	Dials    Measure = "dials"    // sockets opened towards the host
	Streams  Measure = "streams"  // that the host holds at the end of the window
	First    Measure = "first"    // from connect to the first byte at the target; duration, whole run only
	Traffic  Measure = "traffic"  // over all links, both directions; bytes
	Active   Measure = "active"   // the link in use at the end of the window
	Reset    Measure = "reset"    // the app's connection is reset; the only way for that to be no failure
)

// Check is one expectation (must hold) or goal (judged in the report; a stall over five times the goal fails).
type Check struct {
	Goal    bool
	Measure Measure
	App     string
	Link    string
	AtLeast bool    // the figure must be at least Limit, not at most
	Limit   float64 // seconds, percent, bits a second, or a number
	Base    string  // of Baselines: Limit is a share of what that reached, 1 for as much
	PerHour bool
	After   time.Duration // Reset: not before so long behind the event
	Note    string        // where the number comes from
	Line    int
}

// Text is the check as written.
func (c Check) String() string {
	s := string(c.Measure)
	if c.App != "" {
		s += " of " + c.App
	}
	switch {
	case c.Measure == Active:
		return s + " " + c.Link
	case c.Measure == Reset && c.After > 0:
		return fmt.Sprintf("%s after %s within %s", s, short(c.After), short(seconds(c.Limit)))
	case c.Measure == Reset:
		return fmt.Sprintf("%s within %s", s, short(seconds(c.Limit)))
	case c.AtLeast:
		s += " >= "
	default:
		s += " <= "
	}
	if c.Base != "" {
		return fmt.Sprintf("%s%.0f%% of %s", s, 100*c.Limit, c.Base)
	}
	s += c.value(c.Limit)
	if c.PerHour {
		s += " per hour"
	}
	return s
}

// value is a figure of the check's measure as text.
func (c Check) value(v float64) string {
	switch c.Measure {
	case Stall, Trip, First, Reset:
		return short(seconds(v))
	case Dip:
		return fmt.Sprintf("%.0f%%", v)
	case Goodput:
		return rateText(v)
	case Traffic:
		return fmt.Sprintf("%.3gkB", v/1000)
	}
	return fmt.Sprintf("%.4g", v)
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// short is a duration to three or four digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Minute:
		d = d.Round(time.Minute)
	case d >= 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	default:
		d = d.Round(100 * time.Microsecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func rateText(bits float64) string {
	switch {
	case bits >= 1e9:
		return fmt.Sprintf("%.3gGbit", bits/1e9)
	case bits >= 1e6:
		return fmt.Sprintf("%.3gMbit", bits/1e6)
	}
	return fmt.Sprintf("%.3gkbit", bits/1e3)
}

// happening is one occurrence of an event.
type happening struct {
	at    time.Duration
	event int // index into Scenario.Events
	n     int // how many of the same came before
}

// timeline lists every occurrence in order. What is random in it depends on the scenario's name only.
func (s *Scenario) timeline() []happening {
	var list []happening
	for i, e := range s.Events {
		rnd := rand.New(rand.NewPCG(seedOf(s.Name), uint64(i)))
		for n, at := 0, e.At; at < s.End; n++ {
			list = append(list, happening{at, i, n})
			if e.Low == 0 {
				break
			}
			at += e.Low + time.Duration(rnd.Int64N(int64(e.High-e.Low)+1))
			if at >= e.Until {
				break
			}
		}
	}
	slices.SortStableFunc(list, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
	return list
}

func seedOf(name string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
