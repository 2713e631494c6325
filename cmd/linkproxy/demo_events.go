package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"linkproxy/control"
)

// The longest stall that an app may see, at both ends of slow machines' timers. What this machine itself was late by comes on
// top: the echo app measures it.
const (
	plannedStall = 250 * time.Millisecond
	resetStall   = 1500 * time.Millisecond
	holeStall    = 3500 * time.Millisecond
	deadFor      = 5 * time.Second
	// A client that has just found both routes dead for the fourth time waits up to 8 s before it looks again.
	deadStall = deadFor + 9*time.Second
)

const (
	// showLimit bounds how long the effect of an event may take to show in both sides' status, beyond the stall allowed.
	showLimit = 15 * time.Second
	// dwell is how long an event is watched after its effect has shown.
	dwell = time.Second
	// flowBytes is what the download has to bring, after the effect has shown, to count as flowing again.
	flowBytes = 512 << 10
)

// demoEvent is one thing that happens to the link.
type demoEvent struct {
	name  string
	limit time.Duration // the longest stall allowed
	// do makes it happen and returns once its effect shows in the status of both sides.
	do func(ctx context.Context, before demoView) error
	// undo, if any, comes after the event was watched.
	undo func()
}

// events is the programme. Each begins only while stream bytes are on their way and not yet confirmed.
func (d *demo) events() []demoEvent {
	var hole *demoRoute
	return []demoEvent{
		{name: "planned switch to 80 ms", limit: plannedStall, do: d.planned(d.slow)},
		{name: "planned switch to 20 ms", limit: plannedStall, do: d.planned(d.fast)},
		{name: "cut by reset", limit: resetStall, do: func(ctx context.Context, v demoView) error {
			c, r := d.inUse(v)
			r.Reset()
			return d.await(ctx, "the link to leave the carrier that was reset", func(v demoView) bool {
				now, ok := inUse(v.up)
				return ok && now.Generation != c.Generation && agreed(v)
			})
		}},
		{name: "silent black hole", limit: holeStall, do: func(ctx context.Context, v demoView) error {
			_, hole = d.inUse(v)
			hole.BlackHole(true, true)
			return d.await(ctx, "the link to leave the silent "+hole.label, func(v demoView) bool {
				now, ok := inUse(v.up)
				return ok && now.Route != hole.id && agreed(v)
			})
		}, undo: func() { hole.Heal() }},
		{name: fmt.Sprintf("no route for %d s, then back", int(deadFor.Seconds())), limit: deadStall, do: d.bothDead},
	}
}

// agreed says whether both sides send on the same carrier.
func agreed(v demoView) bool {
	u, okUp := inUse(v.up)
	h, okHost := inUse(v.host)
	return okUp && okHost && u.Generation == h.Generation
}

// inUse is the carrier in use and its route.
func (d *demo) inUse(v demoView) (control.Carrier, *demoRoute) {
	c, _ := inUse(v.up)
	return c, d.routeNamed(c.Route)
}

// planned moves the link as `linkproxy use` does, and wants to see it in both sides' records.
func (d *demo) planned(to *demoRoute) func(context.Context, demoView) error {
	return func(ctx context.Context, _ demoView) error {
		bounded, cancel := context.WithTimeout(ctx, showLimit)
		defer cancel()
		if err := d.up.control.Use(bounded, demoPeer, to.id, false); err != nil {
			return fmt.Errorf("`linkproxy use %s %s`: %w", demoPeer, to.id, err)
		}
		return d.await(ctx, "both sides to show the planned switch", func(v demoView) bool {
			c, ok := inUse(v.up)
			return ok && c.Route == to.id && agreed(v) && lastSwitch(v.up, c.Generation) && lastSwitch(v.host, c.Generation)
		})
	}
}

// lastSwitch says whether a side's last record is a planned switch to a carrier.
func lastSwitch(l control.Link, gen uint64) bool {
	n := len(l.Switches)
	return n > 0 && l.Switches[n-1].To == gen && l.Switches[n-1].Planned
}

// bothDead cuts both routes, waits until the client has noticed, and lets them come back.
func (d *demo) bothDead(ctx context.Context, before demoView) error {
	back := time.NewTimer(deadFor)
	defer back.Stop()
	for _, r := range []*demoRoute{d.fast, d.slow} {
		if err := r.Refuse(true); err != nil {
			return err
		}
		r.Reset()
	}
	if err := d.await(ctx, "the client to see that no route works", func(v demoView) bool { return v.up.State == "waiting" }); err != nil {
		return err
	}
	select {
	case <-back.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, r := range []*demoRoute{d.fast, d.slow} {
		if err := r.Refuse(false); err != nil {
			return err
		}
	}
	old, _ := inUse(before.up)
	return d.await(ctx, "the link to come back", func(v demoView) bool {
		c, ok := inUse(v.up)
		return ok && c.Generation > old.Generation && agreed(v)
	})
}

// await waits until both sides' status is as ok wants it.
func (d *demo) await(ctx context.Context, what string, ok func(demoView) bool) error {
	var last demoView
	return poll(ctx, showLimit, func(ctx context.Context) (bool, error) {
		v, both, err := d.view(ctx)
		if err != nil || !both {
			return false, err
		}
		last = v
		return ok(v), nil
	}, func() error {
		return fmt.Errorf("waited %v for %s; the client shows: %s; the host: %s%s", showLimit, what, shows(last.up), shows(last.host), d.up.stderr)
	})
}

// shows is a link in one line.
func shows(l control.Link) string {
	if l.ID == "" {
		return "no link"
	}
	list := []string{l.State}
	for _, c := range l.Carriers {
		list = append(list, fmt.Sprintf("carrier %d %s on %s (%d B unconfirmed)", c.Generation, c.State, c.Route, c.Unseen))
	}
	return strings.Join(list, ", ")
}

// begin waits until the routes are attached and bytes flow.
func (d *demo) begin(ctx context.Context) error {
	err := d.await(ctx, "the link to use the "+d.fast.label+" with the other one attached beside it", func(v demoView) bool {
		c, ok := inUse(v.up)
		attached := 0
		for _, c := range v.host.Carriers {
			if c.State != "attaching" {
				attached++
			}
		}
		return ok && c.Route == d.fast.id && agreed(v) && attached > 1
	})
	if err != nil {
		return err
	}
	return d.flows(ctx, 0)
}

// flows waits until both apps have got something that was sent after now, and then for rest more.
func (d *demo) flows(ctx context.Context, rest time.Duration) error {
	now := time.Now()
	came := d.download.stream.facts(now).came
	said, _, _, _ := d.typing.counts(now)
	flow := now
	return poll(ctx, showLimit+rest, func(ctx context.Context) (bool, error) {
		if _, _, err := d.view(ctx); err != nil {
			return false, err
		}
		t := time.Now()
		_, echoes, _, _ := d.typing.counts(t)
		if got := d.download.stream.facts(t).came; echoes <= said || got < came+flowBytes && got < demoSize {
			flow = t
		}
		return t.Sub(now) >= rest && flow != t, nil
	}, func() error {
		return fmt.Errorf("the link is there, but within %v not all apps got bytes over it%s", showLimit, d.up.stderr)
	})
}

// run makes one event happen and returns what the apps and the link saw of it.
func (d *demo) run(ctx context.Context, e demoEvent) (demoRow, error) {
	row := demoRow{Event: e.name, Limit: e.limit.Milliseconds()}
	var before demoView
	err := d.await(ctx, "stream bytes on their way", func(v demoView) bool {
		c, ok := inUse(v.host)
		before = v
		return ok && agreed(v) && c.Unseen > 0
	})
	if err != nil {
		return row, err
	}
	if d.download.stream.facts(time.Now()).came >= demoSize {
		return row, errors.New("the download was over too early: nothing was on its way")
	}
	c, _ := inUse(before.host)
	row.Unseen = c.Unseen
	d.download.stream.begin()
	d.typing.stream.begin()
	d.typing.begin()
	start := time.Now()
	down, echo := d.download.stream.facts(start), d.typing.stream.facts(start)
	if err := e.do(ctx, before); err != nil {
		return row, err
	}
	if err := d.flows(ctx, dwell); err != nil {
		return row, err
	}
	after, _, err := d.view(ctx)
	if err != nil {
		return row, err
	}
	now := time.Now()
	row.fill(d.download.stream.facts(now).since(down), d.typing.stream.facts(now).since(echo))
	_, _, _, late := d.typing.counts(now)
	row.Late = late.Milliseconds()
	row.link(d, before, after)
	row.judge()
	if e.undo != nil {
		e.undo()
	}
	return row, nil
}
