package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
)

func (w *world) cmdUse() *cli.Command {
	return &cli.Command{
		Name:      "use",
		Usage:     "pin a peer's route or class of routes, or let linkproxy choose again",
		ArgsUsage: "PEER ROUTE|CLASS|auto",
		Description: "What is pinned is preferred: the live link of PEER moves there, and apps notice nothing; while it is down the\n" +
			"others serve, and the link returns when it answers again. With --only nothing else is used: connections wait.\n" +
			"ROUTE is one of its routes in the config, CLASS is lan, tailnet, direct or relay. It is pinned until\n" +
			"`linkproxy use PEER auto` or a restart of `linkproxy up`.\n\n" +
			"   linkproxy use devbox tailnet:100.64.0.7:8639\n" +
			"   linkproxy use devbox lan --only\n" +
			"   linkproxy use devbox auto",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "only", Usage: "use nothing else, even while it does not answer"}},
		Action: func(c *cli.Context) error {
			a, err := args(c, 2, 2, "use PEER ROUTE|CLASS|auto [--only]")
			if err != nil {
				return err
			}
			return w.use(c.Context, a[0], a[1], c.Bool("only"))
		},
	}
}

func (w *world) use(ctx context.Context, peer, what string, only bool) error {
	ctl := control.NewClient(w.state, "up")
	if err := ctl.Use(ctx, peer, what, only); err != nil {
		return w.notRunning(err, "up")
	}
	st, err := ctl.Status(ctx)
	if err != nil {
		return w.notRunning(err, "up")
	}
	for _, p := range st.Peers {
		if p.Name == peer {
			w.print("%s", usedText(p))
		}
	}
	return nil
}

// usedText says what came of `use`.
func usedText(p control.Peer) string {
	where := "is not connected now"
	if p.Active != "" {
		where = "is on " + p.Active + " now"
	}
	undo := fmt.Sprintf("`linkproxy use %s auto` or a restart of `linkproxy up`", p.Name)
	switch {
	case p.NoAgent && p.Pin == "":
		return fmt.Sprintf("nothing is pinned: each new connection to %s takes the best route", p.Name)
	case p.NoAgent:
		return fmt.Sprintf("new connections to %s take %s, open ones stay where they are; pinned until %s", p.Name, p.Pin, undo)
	case p.Pin == "" && p.Active == "":
		return fmt.Sprintf("%s %s; nothing is pinned: the best route is chosen once an app asks", p.Name, where)
	case p.Pin == "":
		return fmt.Sprintf("%s %s; nothing is pinned: it moves when another is better", p.Name, where)
	case p.Active == "":
		return fmt.Sprintf("%s %s: %s is used once an app asks; pinned until %s", p.Name, where, p.Pin, undo)
	default:
		return fmt.Sprintf("%s %s; %s is pinned until %s", p.Name, where, p.Pin, undo)
	}
}

// use pins a peer's route, given as in the config, with or without its port, or a class, or with "auto" nothing.
func (u *up) use(ctx context.Context, peer, what string, only bool) error {
	u.mu.Lock()
	p, _ := u.cfg.Peer(peer)
	u.mu.Unlock()
	for _, c := range p.Routes {
		rt, err := dialerRoute(p, c)
		if err != nil {
			return err
		}
		if what == c.String() {
			what = rt.ID()
		}
	}
	err := u.dialer.Use(ctx, peer, what, only)
	if err == nil {
		return nil
	}
	if st, gone := u.dialer.PeerStatus(ctx, peer); gone == nil && pinnedTo(st, what, only) {
		return &staysPinned{peer, st.Pin.String(), err}
	}
	return unmistyped(err, peer, u.peerNames())
}

// pinnedTo says whether what the user has asked for is in force, though the link is elsewhere.
func pinnedTo(st dialer.PeerStatus, what string, only bool) bool {
	pin, err := route.ParsePin(what, only, st.Routes)
	return err == nil && pin.Set() && pin == st.Pin
}

// staysPinned tells that the link could not be moved to what is pinned, which stays so.
type staysPinned struct {
	peer, pin string
	cause     error
}

func (e *staysPinned) Error() string {
	return fmt.Sprintf("%v\n%s stays pinned, and %s moves there once it answers; to undo that: linkproxy use %s auto", e.cause, e.pin, e.peer, e.peer)
}

func (e *staysPinned) Unwrap() error { return e.cause }
