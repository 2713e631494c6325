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

// notRunning says of an error of the control socket which folder was looked in and how to start what was asked.
func (w *world) notRunning(err error, role string) error {
	if errors.Is(err, control.ErrNotRunning) {
		return fmt.Errorf("%w with the state folder %s; start it with `linkproxy %s`, or name the folder it runs with by --state", err, w.state, role)
	}
	return err
}

func (w *world) showStatus(ctx context.Context, role string, asJSON bool) error {
	st, err := control.NewClient(w.state, role).Status(ctx)
	if err != nil {
		return w.notRunning(err, role)
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
	networkText(&b, st)
	for _, p := range st.Peers {
		peerText(&b, p, now)
	}
	return b.String()
}

// networkText tells where this machine is.
func networkText(b *strings.Builder, st control.Status) {
	var known []string
	for _, n := range st.Networks {
		if n.Network == "" {
			continue
		}
		text := n.Network + " (" + n.Interface
		if n.Metered {
			text += ", metered"
		}
		known = append(known, text+")")
	}
	if st.Tailnet {
		known = append(known, "a tailnet")
	}
	if len(known) > 0 {
		fmt.Fprintf(b, "  this machine is on %s\n", strings.Join(known, ", "))
	}
}

func peerText(b *strings.Builder, p control.Peer, now time.Time) {
	state := p.State
	if state == string(dialer.StateIdle) && p.Error == "" {
		state = "idle: it is reached once an app asks"
	}
	fmt.Fprintf(b, "\n%s  %s\n", p.Name, state)
	if p.Pin != "" {
		fmt.Fprintf(b, "  pinned: %s, until `linkproxy use %s auto` or a restart of `up`\n", p.Pin, p.Name)
	}
	if p.Error != "" {
		fmt.Fprintf(b, "  %s\n", strings.ReplaceAll(p.Error, "\n", "\n  "))
	}
	if !p.Next.IsZero() && p.Next.After(now) {
		fmt.Fprintf(b, "  next try in %s\n", ago(p.Next.Sub(now)+time.Second))
	}
	for _, l := range p.Links {
		linkText(b, l, now)
	}
	if p.NoAgent {
		connsText(b, p, now)
	}
	others := 0
	for _, r := range p.Routes {
		if r.Attached {
			continue
		}
		if others++; others == 1 {
			b.WriteString(map[bool]string{true: "  other routes, in the order of trying:\n", false: "  routes, in the order of trying:\n"}[p.Active != ""])
		}
		fmt.Fprintf(b, "    %-34s %s\n", r.Route, r.State)
	}
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
		way := ""
		if s.FromRoute != "" && s.ToRoute != "" {
			way = fmt.Sprintf(" from %s to %s", s.FromRoute, s.ToRoute)
		}
		how := "because it had to: " + plainly(s.Reason)
		if s.Planned {
			how = "as planned"
		}
		fmt.Fprintf(b, "    moved%s %s ago, %s\n", way, ago(now.Sub(s.At)), how)
	}
}

// --- from the packages' own types

// linkStatus is a link with the names of its carriers' routes by generation, also of those that are gone.
func linkStatus(s link.Status, streams []link.StreamStatus, since time.Time, routeOf map[uint64]string) control.Link {
	l := control.Link{
		ID: s.ID.String(), State: "connected", Since: since, BytesIn: s.Counts.BytesIn, BytesOut: s.Counts.BytesOut,
		Repeated: s.Counts.Repeated, Moves: s.Epoch, Doubtful: s.Doubtful, Carriers: []control.Carrier{}, Streams: []control.Stream{}, Switches: []control.Switch{},
	}
	switch {
	case s.Err != nil:
		l.State = "ended"
	case s.Lost:
		l.State = "waiting"
		if s.LostAt > 0 {
			l.LostAt = s.At(s.LostAt)
		}
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
			At: s.At(w.At), From: w.From, To: w.To, FromRoute: routeOf[w.From], ToRoute: routeOf[w.To], Planned: w.Planned, Unseen: w.UnseenFrom, Reason: w.Reason,
		})
	}
	return l
}

// namesOf are the names of the carriers that are there.
func namesOf(s link.Status) map[uint64]string {
	names := map[uint64]string{}
	for _, c := range s.Carriers {
		names[c.Gen] = c.Name
	}
	return names
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
		st.Peers[i].Links = append(st.Peers[i].Links, linkStatus(l.Status, l.Streams, l.Since, namesOf(l.Status)))
	}
	return st
}
