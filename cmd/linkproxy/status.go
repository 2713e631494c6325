package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/link"
)

var jsonFlag = &cli.BoolFlag{Name: "json", Usage: "print JSON"}

func (w *world) cmdStatus() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "what the running up does: peers, the routes in use, streams, last changes of route",
		Description: "   linkproxy status\n   linkproxy status --watch\n   linkproxy status --json",
		Flags: []cli.Flag{
			jsonFlag,
			&cli.BoolFlag{Name: "watch", Usage: "show it again every second, until interrupted"},
		},
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "status [--watch] [--json]"); err != nil {
				return err
			}
			if !c.Bool("watch") {
				return w.showStatus(c.Context, "up", c.Bool("json"))
			}
			return w.watchStatus(c.Context, c.Bool("json"))
		},
	}
}

func (w *world) watchStatus(ctx context.Context, asJSON bool) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if isTerminal(w.out) && !asJSON {
			fmt.Fprint(w.out, "\x1b[H\x1b[2J")
		}
		if err := w.showStatus(ctx, "up", asJSON); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// notRunning adds to an error of the control socket how to start what was asked.
func notRunning(err error, role string) error {
	if errors.Is(err, control.ErrNotRunning) {
		return fmt.Errorf("%w; start it with `linkproxy %s`", err, role)
	}
	return err
}

func (w *world) showStatus(ctx context.Context, role string, asJSON bool) error {
	st, err := control.NewClient(w.state, role).Status(ctx)
	if err != nil {
		return notRunning(err, role)
	}
	if asJSON {
		return w.printJSON(st)
	}
	fmt.Fprint(w.out, statusText(st, time.Now()))
	return nil
}

// statusText is a status for people.
func statusText(st control.Status, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "linkproxy %s %s, process %d, up for %s\n", st.Role, st.Version, st.PID, ago(now.Sub(st.Since)))
	for _, l := range st.Listens {
		fmt.Fprintf(&b, "  listening on %s\n", l)
	}
	if st.Config != "" {
		fmt.Fprintf(&b, "the newest config is not in force:\n  %s\n", strings.ReplaceAll(st.Config, "\n", "\n  "))
	}
	for _, p := range st.Peers {
		state := p.State
		if state == string(dialer.StateIdle) && p.Error == "" {
			state = "idle: it is reached once an app asks"
		}
		fmt.Fprintf(&b, "\n%s  %s\n", p.Name, state)
		if p.Error != "" {
			fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(p.Error, "\n", "\n  "))
		}
		if !p.Next.IsZero() && p.Next.After(now) {
			fmt.Fprintf(&b, "  next try in %s\n", ago(p.Next.Sub(now)+time.Second))
		}
		for _, l := range p.Links {
			linkText(&b, l, now)
		}
		for _, r := range p.Routes {
			if !r.Attached && r.Outcome != "" {
				fmt.Fprintf(&b, "  route %-34s %s %s\n", r.Route, r.Outcome, r.Error)
			}
		}
	}
	return b.String()
}

// words are a carrier's states for people.
var words = map[string]string{"active": "in use", "standby": "in reserve", "draining": "being left", "attaching": "being tried", "bulk": "for bulk"}

func linkText(b *strings.Builder, l control.Link, now time.Time) {
	state := l.State
	if state == "waiting" {
		state = "held while no route works"
	}
	twice := ""
	if l.Repeated > 0 {
		twice = fmt.Sprintf(" (%s more was sent again, in case it was lost)", bytesOf(l.Repeated))
	}
	fmt.Fprintf(b, "  link %s, %s old: %s; %s; received %s, sent %s%s\n", l.ID, ago(now.Sub(l.Since)), state,
		count(len(l.Streams), "stream"), bytesOf(l.BytesIn), bytesOf(l.BytesOut), twice)
	for _, c := range l.Carriers {
		suspect := ""
		if c.Suspect {
			suspect = ", no answer at present"
		}
		fmt.Fprintf(b, "    %-11s %-34s round trip %s, %s on the way%s\n", cmp.Or(words[c.State], c.State), c.Route,
			(time.Duration(c.RTTMicros) * time.Microsecond).Round(100*time.Microsecond), bytesOf(uint64(c.Unseen)), suspect)
	}
	const most = 20
	for i, s := range l.Streams {
		if i == most {
			fmt.Fprintf(b, "    … and %s more\n", count(len(l.Streams)-most, "stream"))
			break
		}
		fmt.Fprintf(b, "    stream %-28s %s, received %s, sent %s\n", s.Target, ago(now.Sub(s.Since)), bytesOf(s.BytesIn), bytesOf(s.BytesOut))
	}
	for _, s := range l.Switches[max(0, len(l.Switches)-3):] {
		if s.From == 0 {
			continue // the first one, or one after an outage: no change
		}
		how := "because it had to: " + s.Reason
		if s.Planned {
			how = "as planned"
		}
		fmt.Fprintf(b, "    changed its route %s ago, %s\n", ago(now.Sub(s.At)), how)
	}
}

// --- from the packages' own types

func linkStatus(s link.Status, streams []link.StreamStatus, since time.Time) control.Link {
	l := control.Link{
		ID: s.ID.String(), State: "connected", Since: since, BytesIn: s.Counts.BytesIn, BytesOut: s.Counts.BytesOut,
		Repeated: s.Counts.Repeated, Carriers: []control.Carrier{}, Streams: []control.Stream{}, Switches: []control.Switch{},
	}
	switch {
	case s.Err != nil:
		l.State = "ended"
	case s.Lost:
		l.State = "waiting"
	}
	for _, c := range s.Carriers {
		l.Carriers = append(l.Carriers, control.Carrier{
			Generation: c.Gen, Route: c.Name, State: carrierState(c), Suspect: c.Suspect, RTTMicros: c.RTT.Microseconds(),
			Unseen: c.Unseen, BytesIn: c.BytesIn, BytesOut: c.BytesOut, Since: s.At(c.Since),
		})
	}
	for _, st := range streams {
		l.Streams = append(l.Streams, control.Stream{
			ID: st.ID, Target: st.Target, Since: st.Since, BytesIn: st.In, BytesOut: st.Out, Open: st.Accepted,
		})
	}
	for _, w := range s.Switches {
		l.Switches = append(l.Switches, control.Switch{
			At: s.At(w.At), From: w.From, To: w.To, Planned: w.Planned, Unseen: w.UnseenFrom, Reason: w.Reason,
		})
	}
	return l
}

func carrierState(c link.CarrierStatus) string {
	switch {
	case !c.Attached:
		return "attaching"
	case c.Active:
		return "active"
	case c.Draining:
		return "draining"
	case c.Bulk:
		return "bulk"
	}
	return "standby"
}

func peerStatus(p dialer.PeerStatus) control.Peer {
	cp := control.Peer{Name: p.Name, ID: p.ID.String(), State: p.State.String(), Next: p.Next, Links: []control.Link{}}
	if p.Err != nil {
		cp.Error = said(p.Err)
	}
	for _, a := range p.Attempts {
		r := control.Route{Route: a.Route.ID(), Outcome: a.Outcome.String(), TookMS: a.Duration.Milliseconds()}
		if a.Err != nil {
			r.Error = said(a.Err)
		}
		if p.Link != nil {
			for _, c := range p.Link.Carriers {
				r.Attached = r.Attached || c.Attached && c.Name == r.Route
			}
		}
		cp.Routes = append(cp.Routes, r)
	}
	if p.Link != nil && p.Link.Doubtful && !p.Link.HasOther {
		cp.State = "no answer at present; streams are held"
	}
	if p.Link != nil {
		cp.Links = append(cp.Links, linkStatus(*p.Link, p.Streams, p.Since))
	}
	return cp
}

func (r *hostRun) status() control.Status {
	r.mu.Lock()
	st := control.Status{Role: "host", Version: version, PID: os.Getpid(), Since: r.since, Listens: []string{r.ln.Addr().String()}}
	r.mu.Unlock()
	st.Config = r.follow.problem()
	peers := map[string]int{}
	for _, l := range r.h.Status() {
		id := l.Client.String()
		i, ok := peers[id]
		if !ok {
			i = len(st.Peers)
			peers[id] = i
			st.Peers = append(st.Peers, control.Peer{Name: l.Name, ID: id, State: "connected", Links: []control.Link{}})
		}
		st.Peers[i].Links = append(st.Peers[i].Links, linkStatus(l.Status, l.Streams, l.Since))
	}
	return st
}
