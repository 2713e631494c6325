package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
	"linkproxy/link"
)

// lastDecisions are how many `why` shows: about a screen.
const lastDecisions = 5

func (w *world) cmdWhy() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "why a peer's link is where it is: the last decisions, each with its facts and what would change it",
		ArgsUsage: "PEER",
		Description: "First it says where the link is, why, and what would move it; then the last decisions, the newest last.\n\n" +
			"   linkproxy why devbox\n   linkproxy why devbox --last 20\n   linkproxy why devbox --json",
		Flags: []cli.Flag{
			jsonFlag,
			&cli.IntFlag{Name: "last", Usage: fmt.Sprintf("how many decisions, of the %d that are kept", route.MaxDecisions), Value: lastDecisions},
		},
		Action: func(c *cli.Context) error {
			a, err := args(c, 1, 1, "why PEER [--last N] [--json]")
			if err != nil {
				return err
			}
			if c.Int("last") < 0 {
				return &usage{"--last takes a number of decisions, from 0"}
			}
			last := c.Int("last")
			if c.Bool("json") && !c.IsSet("last") {
				last = route.MaxDecisions // a program chooses for itself
			}
			return w.why(c.Context, a[0], last, c.Bool("json"))
		},
	}
}

func (w *world) why(ctx context.Context, peer string, last int, asJSON bool) error {
	why, err := control.NewClient(w.state, "up").Why(ctx, peer)
	if err != nil {
		return w.notRunning(err, "up")
	}
	all := len(why.Decisions)
	why.Decisions = why.Decisions[max(0, all-last):]
	if asJSON {
		return w.printJSON(why)
	}
	fmt.Fprint(w.out, whyText(why, all, w.wide(), time.Now()))
	return nil
}

// whyText is an answer to why, for people; all is how many decisions there are.
func whyText(why control.Why, all, width int, now time.Time) string {
	var b strings.Builder
	b.WriteString(wrap(why.Now, width, "") + "\n")
	if why.Moves != "" {
		b.WriteString(wrap(why.Moves, width, "") + "\n")
	}
	switch n := len(why.Decisions); {
	case all == 0:
		b.WriteString("\nNothing has been decided since `linkproxy up` was started.\n")
	case n == 0:
	case n < all:
		fmt.Fprintf(&b, "\nThe last %d of %s, the newest last (more: --last %d):\n", n, count(all, "decision"), all)
	default:
		fmt.Fprintf(&b, "\n%s, the newest last:\n", count(all, "decision"))
	}
	for _, d := range why.Decisions {
		b.WriteString("\n" + decisionText(d, width, now))
	}
	return b.String()
}

func decisionText(d control.Decision, width int, now time.Time) string {
	var b strings.Builder
	at := moment(now, d.At) + "  "
	indent := strings.Repeat(" ", len(at))
	b.WriteString(wrap(at+plainly(d.What), width, indent) + "\n")
	line := func(label, text string) {
		b.WriteString(wrap(indent+label+text, width, indent+"  ") + "\n")
	}
	line("why: ", reason(d.Why))
	for _, f := range d.Facts {
		line(f.Name+": ", plainly(f.Value))
	}
	for i, r := range d.Routes {
		line(fmt.Sprintf("%d. ", i+1), place(r))
	}
	for _, c := range d.Changes {
		line("would change with: ", plainly(c))
	}
	return b.String()
}

// why serves `linkproxy why`.
func (u *up) why(ctx context.Context, peer string) (control.Why, error) {
	st, err := u.dialer.PeerStatus(ctx, peer)
	if err != nil {
		return control.Why{}, unmistyped(err, peer, u.peerNames())
	}
	decisions, err := u.dialer.Why(ctx, peer)
	if err != nil {
		return control.Why{}, err
	}
	why := control.Why{Peer: peer, Decisions: []control.Decision{}}
	why.Now, why.Moves = standing(st, time.Now())
	for _, d := range decisions {
		why.Decisions = append(why.Decisions, decisionOf(d))
	}
	return why, nil
}

// activeRoute is the ID of the route in use; "": none is.
func activeRoute(st dialer.PeerStatus) string { return activeCarrier(st).Name }

func activeCarrier(st dialer.PeerStatus) link.CarrierStatus {
	if st.Link != nil {
		for _, c := range st.Link.Carriers {
			if c.Active {
				return c
			}
		}
	}
	return link.CarrierStatus{}
}

// standing says where a peer is and why, and what would move it.
func standing(st dialer.PeerStatus, now time.Time) (is, moves string) {
	if c := activeCarrier(st); c.Name != "" && !st.Link.Lost {
		return standingOn(st, c, now)
	}
	switch st.State {
	case dialer.StateConnecting:
		is = fmt.Sprintf("%s is not connected: its routes are being tried.", st.Name)
	case dialer.StateWaiting:
		is = fmt.Sprintf("%s is not connected; it is tried again in %s (%s).", st.Name, ago(st.Next.Sub(now)+time.Second), plainly(st.NextWhy))
	default:
		is = fmt.Sprintf("%s is not connected: no app asks for it.", st.Name)
	}
	if len(st.Conns) > 0 {
		is = standingPlain(st)
	}
	if st.Err != nil {
		is += " " + capital(plainly(said(st.Err))) + "."
	}
	if len(st.Ranked) > 0 {
		first := st.Ranked[0]
		moves = fmt.Sprintf("Tried first: %s.", place(first.Explain(now)))
	}
	return is, moves
}

func standingOn(st dialer.PeerStatus, c link.CarrierStatus, now time.Time) (is, moves string) {
	var better []route.Ranked
	own := route.Ranked{}
	for _, e := range st.Ranked {
		if e.Route.ID() == c.Name {
			own = e
		}
	}
	for _, e := range st.Ranked {
		if own.Route.Class != 0 && e.Why.Class < own.Why.Class {
			better = append(better, e)
		}
	}
	because := []string{came(st, c, now)}
	pinned := st.Pin.Set() && own.Route.Class != 0 && st.Pin.Wants(own.Route)
	switch {
	case own.Route.Class == 0:
		because = append(because, "it may not be used any more, and is left once another works")
	case pinned:
		because = append([]string{fmt.Sprintf("%s is pinned", st.Pin)}, because...)
	case len(better) == 0:
		because = append(because, "no better class is known")
	}
	is = fmt.Sprintf("%s is on %s because %s.", st.Name, c.Name, strings.Join(because, ", and "))
	if st.Link.Doubtful {
		is += " It gives no answer at present; what apps send is kept."
	}
	var list []string
	switch {
	case st.Pin.Only:
		return is, fmt.Sprintf("It would move only after `linkproxy use %s auto`, or a restart of `linkproxy up`: nothing else may be used.", st.Name)
	case st.Pin.Set() && !pinned:
		list = append(list, fmt.Sprintf("to %s, which is pinned, once that answers", st.Pin))
	case !pinned:
		for _, e := range better {
			list = append(list, fmt.Sprintf("to %s once %s", e.Route, condition(st, e, c, now)))
		}
	}
	if to := instead(st, c); to != "" {
		list = append(list, fmt.Sprintf("to %s if %s stops answering, or this machine loses its address there", to, c.Name))
		return is, "It would move " + strings.Join(list, "; ") + "."
	}
	return is, "There is no other route: if this one stops answering, connections are held until it answers again."
}

// came says how the carrier in use came into use.
func came(st dialer.PeerStatus, c link.CarrierStatus, now time.Time) string {
	for i := len(st.Link.Switches) - 1; i >= 0; i-- {
		s := st.Link.Switches[i]
		if s.To != c.Gen {
			continue
		}
		at := moment(now, st.Link.At(s.At))
		switch {
		case s.From == 0:
			return "it was the first to connect at " + at
		case s.Planned:
			return "the link was moved there as planned at " + at
		default:
			return fmt.Sprintf("the link had to move there at %s (%s)", at, plainly(s.Reason))
		}
	}
	return "it connected at " + moment(now, st.Link.At(c.Since))
}

// condition is what a route of a better class has to fulfil before the link moves to it.
func condition(st dialer.PeerStatus, e route.Ranked, in link.CarrierStatus, now time.Time) string {
	answers := "it answers a check"
	if in.RTT > 0 {
		answers += " within " + short(in.RTT*3/2+route.UpgradeSlack)
	}
	answers += fmt.Sprintf(" (looked for every %s while bytes move, more rarely while not, never without an open connection)", short(route.CheckEvery))
	held := penaltyOf(st, e, now)
	until := held.Skipped(now)
	switch {
	case e.Why.Implausible != "":
		return fmt.Sprintf("it can work here at all (%s)", e.Why.Implausible)
	case !until.IsZero():
		return fmt.Sprintf("nothing is held against it (%s), and %s", held.Text(now), answers)
	default:
		return answers
	}
}

// instead is where the link would go without the carrier in use; "": nowhere.
func instead(st dialer.PeerStatus, in link.CarrierStatus) string {
	for _, c := range st.Link.Carriers {
		if c.Attached && !c.Active && !c.Draining && !c.Bulk && !c.Suspect {
			return c.Name + ", which is in reserve,"
		}
	}
	var others []string
	for _, e := range st.Ranked {
		if e.Route.ID() != in.Name {
			others = append(others, e.Route.ID())
		}
	}
	if len(others) == 0 {
		return ""
	}
	return "whichever answers first of " + strings.Join(others, ", ")
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
