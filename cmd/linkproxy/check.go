package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
)

func (w *world) cmdCheck() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "try every route of a peer now, without moving anything",
		ArgsUsage: "PEER",
		Description: "Says of each route whether the peer answers there with its own key, how long that takes, through which address\n" +
			"and interface, and where the route would stand in a race now. Needs no running `up`, but asks it if there is one.\n" +
			"Exit codes: 0 one route works, 1 none does.\n\n" +
			"   linkproxy check devbox\n   linkproxy check devbox --json",
		Flags: []cli.Flag{jsonFlag},
		Action: func(c *cli.Context) error {
			a, err := args(c, 1, 1, "check PEER [--json]")
			if err != nil {
				return err
			}
			return w.check(c.Context, a[0], c.Bool("json"))
		},
	}
}

func (w *world) check(ctx context.Context, peer string, asJSON bool) error {
	list, err := control.NewClient(w.state, "up").Check(ctx, peer)
	if errors.Is(err, control.ErrNotRunning) {
		list, err = w.checkAlone(ctx, peer)
	}
	if err != nil {
		return err
	}
	if asJSON {
		if err := w.printJSON(list); err != nil {
			return err
		}
	} else {
		fmt.Fprint(w.out, checkText(list, w.wide()))
	}
	if slices.ContainsFunc(list, func(c control.Checked) bool { return c.Works }) {
		return nil
	}
	if len(list) == 0 {
		m := route.Describe(peer, nil)
		return fmt.Errorf("%s; %s", m.Text, m.Next)
	}
	if list[0].NoKey {
		return fmt.Errorf("none of %s to %s works now; see that it is on, and that this machine is on a network that reaches it", count(len(list), "route"), peer)
	}
	return fmt.Errorf("none of %s to %s works now; see that `linkproxy host` runs there, and that this machine is on a network that reaches it",
		count(len(list), "route"), peer)
}

// checkAlone checks without a running up.
func (w *world) checkAlone(ctx context.Context, peer string) ([]control.Checked, error) {
	cfg, err := w.configFor(peer + ":1")
	if err != nil {
		return nil, err
	}
	key, err := identity.LoadOrCreateKey(w.state)
	if err != nil {
		return nil, err
	}
	inst := identity.Ephemeral(nil)
	r, err := newReach(w, cfg, key, link.Process{Instance: inst.ID, Boot: inst.Boot})
	if err != nil {
		return nil, err
	}
	defer r.close()
	list, err := checkPeer(ctx, r.dialer, peer)
	var names []string
	for _, p := range cfg.Peers {
		names = append(names, p.Name)
	}
	return list, unmistyped(err, peer, names)
}

// check serves `linkproxy check`.
func (u *up) check(ctx context.Context, peer string) ([]control.Checked, error) {
	list, err := checkPeer(ctx, u.dialer, peer)
	return list, unmistyped(err, peer, u.peerNames())
}

// checkPeer checks all routes of a peer and ranks them by what is known then.
func checkPeer(ctx context.Context, d *dialer.Dialer, peer string) ([]control.Checked, error) {
	found, err := d.Check(ctx, peer)
	if err != nil {
		return nil, err
	}
	st, err := d.PeerStatus(ctx, peer)
	if err != nil {
		return nil, err
	}
	now, list := time.Now(), []control.Checked{}
	for _, c := range found {
		list = append(list, checked(peer, c, st, now))
	}
	slices.SortStableFunc(list, func(a, b control.Checked) int { return placeOrLast(a.Place) - placeOrLast(b.Place) })
	return list, nil
}

func placeOrLast(place int) int {
	const last = 1 << 20
	if place == 0 {
		return last
	}
	return place
}

func checked(peer string, c dialer.RouteCheck, st dialer.PeerStatus, now time.Time) control.Checked {
	res := control.Checked{
		Route: c.Route.ID(), Works: c.Outcome == route.Won, Reachable: c.Answered() || c.Outcome == route.Won,
		RightKey: !c.NoKey && (c.Outcome == route.Won || c.Stage >= route.Attach), NoKey: c.NoKey, Outcome: c.Outcome.String(),
		RoundTripMicros: c.RoundTrip.Microseconds(), HandshakeMicros: c.Handshake.Microseconds(), TookMicros: c.Duration.Microseconds(),
		Address: c.Address, InUse: activeRoute(st) == c.Route.ID(), Rank: "it would not be tried",
	}
	if !res.Works {
		res.Error = plainly(route.Describe(peer, []route.Attempt{c.Attempt}).Text)
	}
	if c.Local.IsValid() {
		res.Local = c.Local.String()
		res.Through = through(st.Path, c.Local.Unmap().WithZone("").String())
	}
	for i, e := range st.Ranked {
		if e.Route.Same(c.Route) {
			res.Place, res.Rank = i+1, place(strings.TrimPrefix(strings.TrimPrefix(e.Explain(now), e.Route.ID()+": "), "first, "))
		}
	}
	for _, r := range st.Refused {
		if r.Route.Same(c.Route) {
			res.Rank = "it would not be tried: " + plainly(r.Why)
		}
	}
	return res
}

// through is the interface that has an own address, and its network.
func through(path route.Path, local string) string {
	for _, i := range path.Interfaces {
		for _, a := range i.Addrs {
			if a.Addr().Unmap().WithZone("").String() != local {
				continue
			}
			if i.Network.Known() {
				return i.Name + ", " + i.Network.String()
			}
			return i.Name + ", " + i.Kind.String()
		}
	}
	return ""
}

// checkText is what a check found, for people.
func checkText(list []control.Checked, width int) string {
	var b strings.Builder
	const indent = "    "
	line := func(format string, a ...any) {
		b.WriteString(wrap(indent+fmt.Sprintf(format, a...), width, indent+"  ") + "\n")
	}
	for _, c := range list {
		inUse := ""
		if c.InUse {
			inUse = ", in use"
		}
		if c.Works {
			fmt.Fprintf(&b, "%s  works%s\n", c.Route, inUse)
			if c.NoKey {
				line("a TCP connection to %s is answered in %s; no key was proved, as no agent runs there", c.Address, micros(c.RoundTripMicros))
			} else {
				line("right key; round trip %s, handshake %s", micros(c.RoundTripMicros), micros(c.HandshakeMicros))
			}
		} else {
			fmt.Fprintf(&b, "%s  does not work%s\n", c.Route, inUse)
			line("%s", c.Error)
		}
		if c.Local != "" {
			way := "from " + c.Local
			if c.Through != "" {
				way += " (" + c.Through + ")"
			}
			if c.Address != "" {
				way += " to " + c.Address
			}
			line("%s", way)
		}
		if c.Place > 0 {
			line("%s in a race now: %s", ordinal(c.Place), c.Rank)
		} else {
			line("%s", c.Rank)
		}
	}
	return b.String()
}

func micros(n int64) string { return short(time.Duration(n) * time.Microsecond) }
