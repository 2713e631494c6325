package route

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// play has a desk carry out lines, each "TIME COMMAND… => ACTION; ACTION | WAKE".
// Without "| WAKE" the wake-up is not looked at. Lines without "=>" may do
// anything.
func play(t *testing.T, script string) *desk {
	t.Helper()
	d := newDesk()
	playOn(t, d, script)
	return d
}

func playOn(t *testing.T, d *desk, script string) {
	t.Helper()
	at := time.Duration(0)
	for _, line := range strings.Split(strings.ReplaceAll(script, "\n =>", " =>"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cmd, want, checked := strings.Cut(line, "=>")
		words := strings.Fields(cmd)
		if d, err := time.ParseDuration(words[0]); err == nil {
			at, words = d, words[1:]
		}
		actions, wake, err := d.do(at, words[0], words[1:])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !checked {
			continue
		}
		want, wantWake, timed := strings.Cut(want, "|")
		var got []string
		for _, a := range actions {
			got = append(got, short(a))
		}
		if g, w := strings.Join(got, "; "), strings.TrimSpace(want); g != w {
			t.Fatalf("%s\n did: %q\nwant: %q\n all: %v", cmd, g, w, actions)
		}
		if w := strings.TrimSpace(wantWake); timed && since(wake) != w {
			t.Fatalf("%s\nwakes at %s, want %s", cmd, since(wake), w)
		}
	}
}

// short is an action in a few words.
func short(a RoamAction) string {
	routes := func(list []Route) string {
		var ids []string
		for _, r := range list {
			ids = append(ids, strings.TrimSuffix(r.ID(), ":7000"))
		}
		return strings.Join(ids, " ")
	}
	plan := func(list []Ranked) string {
		var all []Route
		for _, e := range list {
			all = append(all, e.Route)
		}
		return routes(all)
	}
	switch a := a.(type) {
	case StartRace:
		how := ""
		if a.AllAtOnce {
			how += "!"
		}
		if a.Replace {
			how += "+"
		}
		return fmt.Sprintf("race%s %s: %s", how, a.Trigger, plan(a.Plan))
	case JoinRace:
		return "join " + plan(a.Plan)
	case TryAgain:
		return "again " + routes(a.Routes)
	case DialStandby:
		return "standby " + routes([]Route{a.Route})
	case Check:
		return "check " + routes(a.Routes)
	case Prove:
		return fmt.Sprintf("prove %d %s", a.ID, a.Within)
	case Switch:
		if a.Planned {
			return fmt.Sprintf("switch %d", a.ID)
		}
		return fmt.Sprintf("switch! %d", a.ID)
	case KeepStandby:
		return fmt.Sprintf("keep %d", a.ID)
	case Release:
		return fmt.Sprintf("release %d", a.ID)
	case Drop:
		return fmt.Sprintf("drop %d", a.ID)
	case Remember:
		if a.Penalty.Step == 0 && !a.Penalty.CoolUntil.IsZero() {
			return "cool " + strings.TrimSuffix(a.RouteID, ":7000")
		}
		return fmt.Sprintf("rung %d %s", a.Penalty.Step, strings.TrimSuffix(a.RouteID, ":7000"))
	}
	return fmt.Sprintf("%T", a)
}

// The beginnings of most scripts: an app asked, and the race was won at 0 s.
const (
	home    = "path wifi/wlan0/192.168.1.7-24/default\n"
	train   = "path cell/wwan0/10.0.0.7-8/default/metered\n"
	lanUp   = home + "routes lan:a relay:wss://r\nstandby never\n0s asked\nwon lan:a #1 192.168.1.7 4ms\nended won\n"
	relayUp = home + "routes lan:a relay:wss://r\nstandby never\n0s asked\nwon relay:wss://r #1 192.168.1.7 40ms\nended won\n"
)

func TestPathChange(t *testing.T) {
	const both = "path wifi/wlan0/192.168.1.7-24/default wired/eth0/192.168.1.8-24\n"
	for name, script := range map[string]string{
		"the first word about the path is no change": relayUp + "1s tick => | 1m0s",
		"debounced 250 ms, then at most one per 3 s": lanUp + `
			20s ` + both + ` => | 20.25s
			20.249s tick => | 20.25s
			20.25s tick => race+ path change: lan:a relay:wss://r
		`,
		"with a carrier but no stream it waits for one": lanUp + `
			10s streams 0
			20s ` + both + ` => | -
			60s streams 1 => race+ path change: lan:a relay:wss://r`,
		"without one at once, again at 100, 250, 500 ms while dials find no route": home + `
			routes lan:a relay:wss://r
			0s asked => race connect: lan:a relay:wss://r
			0.1s ended lan:a=failed relay:wss://r=failed => | 1.1s
			0.5s ` + train + ` => race! connect: lan:a relay:wss://r
			0.501s ended lan:a=no-route relay:wss://r=no-route => | 600ms
			0.6s tick => race! connect: lan:a relay:wss://r
			0.602s ended lan:a=no-route relay:wss://r=no-route => | 750ms
			0.75s tick => race! connect: lan:a relay:wss://r
			0.76s ended lan:a=no-route relay:wss://r=no-route => | 1s
			1s tick => race! connect: lan:a relay:wss://r
			1.01s ended lan:a=no-route relay:wss://r=no-route => | 3.01s
			3.01s tick => check lan:a`,
		"dials of a race that goes on are tried again at 100, 250, 500 ms": home + `
			routes lan:a relay:wss://r
			0s asked
			1s ` + train + ` => join lan:a relay:wss://r
			1.02s refused relay:wss://r => | 1.1s
			1.1s tick => again relay:wss://r
			1.11s refused relay:wss://r => | 1.25s
			1.25s tick => again relay:wss://r
			1.26s refused relay:wss://r => | 1.5s
			1.5s tick => again relay:wss://r
			1.51s refused relay:wss://r => | -`,
		"metered flags that flap trigger nothing": lanUp + `
			20s path wifi/wlan0/192.168.1.7-24/default/metered => | -
			21s path wifi/wlan0/192.168.1.7-24/default => | -
			22s path wifi/wlan0/192.168.1.7-24/default/metered => | -`,
		"another router behind the same addresses is another network": home + `
			routes lan:a relay:wss://r
			0s path wifi/wlan0/192.168.1.7-24/default/router=aa
			0s asked
			0s won lan:a #1 192.168.1.7 4ms
			0s ended won
			20s path wifi/wlan0/192.168.1.7-24/default/router=bb => | 20.25s
			20.25s tick => race+ path change: lan:a relay:wss://r`,
		"an address that comes back within 3 s saves its carrier": lanUp + `
			20s path wifi/wlan0/192.168.9.9-24/default => race! loss: lan:a relay:wss://r | 23s
			22.9s path wifi/wlan0/192.168.1.7-24/default => join lan:a relay:wss://r`,
		"one that does not is closed after 3 s": lanUp + `
			20s path wifi/wlan0/192.168.9.9-24/default => race! loss: lan:a relay:wss://r | 23s
			22.999s tick => | 23s
			23s tick => drop 1; join lan:a relay:wss://r`,
		"the standby takes over at once": home + `
			routes lan:192.168.1.20 relay:wss://r
			0s asked
			0s won lan:192.168.1.20 #1 192.168.1.7 4ms
			0s ended won
			1s path wifi/wlan0/192.168.1.7-24/default cell/wwan0/10.0.0.7-8
			1s byte
			1.25s tick => race+ path change: lan:192.168.1.20 relay:wss://r
			1.4s won relay:wss://r #2 10.0.0.7 60ms => prove 1 500ms
			1.41s proved #1 alive
			1.5s ended won => keep 2
			20s ` + train + ` => switch! 2 | 23s
			20.1s switched #2 => | 20.25s`,
	} {
		t.Run(name, func(t *testing.T) { play(t, script) })
	}
}

func TestWinOfARace(t *testing.T) {
	const both = "path wifi/wlan0/192.168.1.7-24/default cell/wwan0/10.0.0.7-8/metered\n"
	onCell := train + "routes direct:a relay:wss://r\nstandby never\n0s asked\nwon relay:wss://r #1 10.0.0.7 60ms\nended won\n20s " + both + "20.25s tick\n"
	for name, script := range map[string]string{
		"the route in use stays if it answers": lanUp + "20s " + both + `
			20.25s tick
			20.3s won lan:a #2 192.168.1.7 4ms => prove 1 500ms | 20.8s
			20.799s alive #1 =>
			20.9s ended won => drop 2`,
		"and is left if it does not, within max(500 ms, 3 R)": lanUp + "20s " + both + `
			20.25s tick
			20.3s rtt #1 400ms
			20.3s won lan:a #2 192.168.1.7 4ms => prove 1 1.2s | 21.5s
			20.4s ended won
			21.499s tick => | 21.5s
			21.5s tick => switch! 2`,
		"at most 3 s": lanUp + "20s " + both + `
			20.25s tick
			20.3s rtt #1 5s
			20.3s won lan:a #2 192.168.1.7 4ms => prove 1 3s | 23.3s`,
		"a word that it is dead is enough": lanUp + "20s " + both + `
			20.25s tick
			20.3s won lan:a #2 192.168.1.7 4ms => prove 1 500ms
			20.31s proved #1 dead => switch! 2`,
		"a better class is taken": relayUp + "20s " + both + `
			20.25s tick
			20.3s won lan:a #2 192.168.1.7 4ms => switch 2`,
		"a worse one is not while the one in use answers": lanUp + "20s " + both + `
			20.25s tick
			20.3s won relay:wss://r #2 192.168.1.7 40ms => prove 1 500ms
			20.31s proved #1 alive =>
			20.4s ended won => drop 2`,
		"unmetered replaces metered though the relay's address is the same": onCell + `
			20.3s won relay:wss://r #2 192.168.1.7 40ms => switch 2`,
		"metered never replaces unmetered": lanUp + "20s " + both + `
			20.25s tick
			20.3s won lan:a #2 10.0.0.7 4ms => prove 1 500ms`,
		"wired is preferred to Wi-Fi": lanUp + `
			20s path wifi/wlan0/192.168.1.7-24 wired/eth0/192.168.1.8-24/default
			20.25s tick
			20.3s won lan:a #2 192.168.1.8 4ms => switch 2`,
		"a better class within the grace is gone on to": home + `
			routes lan:a tailnet:b relay:wss://r
			standby never
			0s asked
			won relay:wss://r #1 192.168.1.7 40ms
			ended won
			20s path wifi/wlan0/192.168.1.7-24/default tunnel/tailscale0/100.64.0.1-10 tailnet
			20.25s tick
			20.3s won tailnet:b #2 192.168.1.7 9ms => switch 2
			20.31s won lan:a #3 192.168.1.7 4ms =>
			20.32s switched #2 => switch 3
			20.33s switched #3
			20.4s ended won => drop 1; drop 2`,
		"a race that fails leaves the carrier untouched": lanUp + "20s " + both + `
			20.25s tick
			30.25s ended lan:a=failed relay:wss://r=silent => | -`,
		"what did not hold here is not taken for its class": relayUp + `
			60s byte
			60s checked lan:a 4ms
			60s won lan:a #2 192.168.1.7 4ms => switch 2
			60s switched #2
			60s ended won
			90s gone #2 => rung 1 lan:a; race! loss: relay:wss://r lan:a
			90s won relay:wss://r #3 192.168.1.7 40ms
			90s ended won
			100s ` + both + `
			100.25s tick => race+ path change: relay:wss://r lan:a
			100.3s won lan:a #4 192.168.1.7 4ms => prove 3 500ms`,
	} {
		t.Run(name, func(t *testing.T) { play(t, script) })
	}
}

func TestUpgrade(t *testing.T) {
	const idle = relayUp
	for name, script := range map[string]string{
		"only what answers within 1.5 R + 20 ms is one": relayUp + `
			60s byte => check lan:a | 1m2.5s
			60.1s checked lan:a 80.001ms => | 2m0s`,
		"80 ms is": relayUp + `
			60s byte => check lan:a
			60.1s checked lan:a 80ms => race+ upgrade: lan:a`,
		"an answer after 2.5 s does not count": relayUp + `
			60s byte => check lan:a
			62.5s byte => | 2m0s
			63s checked lan:a 4ms => | 2m0s`,
		"a find waits until the carrier is 10 s old": relayUp + `
			3s found lan:a => | 10s
			10s tick => check lan:a`,
		"a repeated sighting is none": relayUp + `
			3s found lan:a
			10s tick => check lan:a
			10s checked lan:a silent
			11s found lan:a => | 1m0s
			12s found lan:a => | 1m0s`,
		"a found route is not checked while no stream is open": relayUp + `
			5s streams 0
			20s found lan:a => | -
			3h streams 1 => check lan:a`,
		"the best that answers goes ahead of what hangs": home + `
			routes lan:a lan:b tailnet:c relay:wss://r
			0s path wifi/wlan0/192.168.1.7-24/default tailnet
			standby never
			0s asked
			won relay:wss://r #1 192.168.1.7 40ms
			ended won
			60s byte => check lan:a lan:b tailnet:c
			60.01s checked tailnet:c 9ms => | 1m2.5s
			60.02s checked lan:b 4ms => race+ upgrade: lan:b tailnet:c`,
		"what hangs is not waited for longer than 2.5 s": home + `
			routes lan:a lan:b relay:wss://r
			standby never
			0s asked
			won relay:wss://r #1 192.168.1.7 40ms
			ended won
			60s byte
			60.01s checked lan:a silent
			62.5s tick => | 2m0s`,
		"after one find of a path change the floors hold again": relayUp + `
			20s path wifi/wlan0/192.168.1.7-24/default wired/eth0/192.168.1.8-24
			20.25s tick
			20.3s won relay:wss://r #2 192.168.1.8 40ms => switch 2
			20.3s switched #2
			20.4s ended won => drop 1
			21s found lan:a => check lan:a
			21s checked lan:a 4ms => race+ upgrade: lan:a
			21.1s ended lan:a=failed => cool lan:a | 5m21.1s`,
		"any two upgrades are 30 s apart": home + `
			routes lan:a direct:b relay:wss://r
			standby never
			0s asked
			won relay:wss://r #1 192.168.1.7 40ms
			ended won
			10s found direct:b => check direct:b
			10s checked direct:b 30ms => race+ upgrade: direct:b
			10.1s won direct:b #2 192.168.1.7 30ms => switch 2
			10.1s switched #2
			10.1s ended won => drop 1
			22s found lan:a => | 40s
			40s tick => check lan:a`,
		"to one route they are 300 s apart": relayUp + `
			60s byte
			60s checked lan:a 4ms => race+ upgrade: lan:a
			60s ended stopped
			61s byte => | 6m0s
			5m59s byte => | 6m0s
			6m0s tick => check lan:a`,
		"a standby of a better class is moved to by the same rules": home + `
			routes lan:a relay:wss://r
			0s asked
			won relay:wss://r #1 192.168.1.7 40ms
			ended won
			1s byte => standby lan:a
			1.1s dialled lan:a #2 192.168.1.7 4ms => keep 2 | 10s
			9.999s tick => | 10s
			10s tick => switch 2
			10s switched #2 => keep 1`,
		"not if it is slow": home + `
			routes tailnet:a relay:wss://r
			0s path wifi/wlan0/192.168.1.7-24/default tailnet
			0s asked
			won relay:wss://r #1 192.168.1.7 40ms
			ended won
			1s byte => standby tailnet:a
			1.1s dialled tailnet:a #2 192.168.1.7 300ms => keep 2
			10s tick =>`,
		"none on metered": train + `
			routes direct:a relay:wss://r
			0s asked
			won relay:wss://r #1 10.0.0.7 60ms
			ended won
			60s byte => | -
			1h found direct:a => | -`,
		"a relayed tailnet path is no better than a relay": home + `
			routes tailnet:a relay:wss://r
			0s path wifi/wlan0/192.168.1.7-24/default tailnet
			standby never
			0s asked
			won relay:wss://r #1 192.168.1.7 40ms
			ended won
			59s relayed tailnet:a
			60s byte => | -`,
		"nor is an implausible one": train + `
			routes lan:192.168.1.20 direct:a relay:wss://r
			standby never
			0s path wired/eth0/10.1.0.5-24/default
			0s asked
			won relay:wss://r #1 10.1.0.5 60ms
			ended won
			60s byte => check lan:192.168.1.20 direct:a
			60s checked lan:192.168.1.20 silent
			60s checked direct:a silent
			61s ` + train + ``,
	} {
		_ = idle
		t.Run(name, func(t *testing.T) { play(t, script) })
	}
}

// The schedule of looking for a better route, second by second.
func TestCheckSchedule(t *testing.T) {
	looks := func(d *desk, from, to, step time.Duration, before func(at time.Duration)) (at []time.Duration) {
		for now := from; now <= to; now += step {
			before(now)
			for _, a := range d.must(t, now, "tick") {
				c, ok := a.(Check)
				if !ok {
					t.Fatalf("at %s it does %s", now, a)
				}
				at = append(at, now)
				for _, r := range c.Routes {
					d.must(t, now, "checked", r.ID(), "silent")
				}
			}
		}
		return at
	}
	minutes := func(list ...int) (at []time.Duration) {
		for _, m := range list {
			at = append(at, time.Duration(m)*time.Minute)
		}
		return at
	}
	quiet := func(time.Duration) {}

	t.Run("idle streams: 1, 2, 5, 15, 30, 60, 60 min apart", func(t *testing.T) {
		d := play(t, relayUp)
		same(t, looks(d, 5*time.Second, 3*time.Hour, 5*time.Second, quiet), minutes(1, 3, 8, 23, 53, 113, 173))
	})
	t.Run("every 60 s while bytes move, the whole time", func(t *testing.T) {
		d := play(t, relayUp)
		same(t, looks(d, time.Second, 5*time.Minute, time.Second, func(at time.Duration) { d.link.LastByte = epoch.Add(at) }), minutes(1, 2, 3, 4, 5))
	})
	t.Run("a byte after hours brings the next look at once", func(t *testing.T) {
		d := play(t, relayUp)
		same(t, looks(d, 5*time.Second, 60*time.Minute, 5*time.Second, quiet), minutes(1, 3, 8, 23, 53))
		playOn(t, d, "70m byte => check lan:a")
	})
	t.Run("no stream open: never", func(t *testing.T) {
		d := play(t, relayUp+"1s streams 0")
		same(t, looks(d, 2*time.Second, 12*time.Hour, 20*time.Second, quiet), nil)
	})
	t.Run("facts that change begin it anew", func(t *testing.T) {
		d := play(t, relayUp)
		same(t, looks(d, 5*time.Second, 60*time.Minute, 5*time.Second, quiet), minutes(1, 3, 8, 23, 53))
		d.must(t, 61*time.Minute, "routes", "lan:a", "lan:b", "relay:wss://r")
		d.must(t, 61*time.Minute, "checked", "lan:b", "silent")
		same(t, looks(d, 61*time.Minute, 70*time.Minute, time.Second, quiet), minutes(62, 64, 69))
	})
	t.Run("on the best class there is nothing to look for", func(t *testing.T) {
		d := play(t, lanUp)
		same(t, looks(d, time.Second, 12*time.Hour, 20*time.Second, quiet), nil)
	})
}

func (d *desk) must(t *testing.T, at time.Duration, cmd string, args ...string) []RoamAction {
	t.Helper()
	actions, _, err := d.do(at, cmd, args)
	if err != nil {
		t.Fatal(err)
	}
	return actions
}

func same(t *testing.T, got, want []time.Duration) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("looks at %v, want %v", got, want)
	}
}
