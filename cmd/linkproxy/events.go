package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
)

func (w *world) cmdEvents() *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "what was decided about the routes of all peers, and where their links went",
		Description: "Without --follow it prints the last ones of each peer and ends; with it, it goes on with what happens, until\n" +
			"interrupted or until `up` ends. `linkproxy why PEER` tells the facts behind each.\n\n" +
			"   linkproxy events\n   linkproxy events --follow\n   linkproxy events --follow --json",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Usage: "go on with what happens"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, one event a line"},
		},
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "events [--follow] [--json]"); err != nil {
				return err
			}
			return w.events(c.Context, c.Bool("follow"), c.Bool("json"))
		},
	}
}

func (w *world) events(ctx context.Context, follow, asJSON bool) error {
	none := true
	err := control.NewClient(w.state, "up").Events(ctx, follow, func(e control.Event) error {
		none = false
		if asJSON {
			return w.printLine(e)
		}
		_, err := fmt.Fprint(w.out, eventText(e, time.Now()))
		return err
	})
	switch {
	case err != nil:
		return w.notRunning(err, "up")
	case follow && ctx.Err() == nil:
		w.note("`linkproxy up` has ended")
	case none && !follow && !asJSON:
		w.note("nothing has been decided yet: a peer is reached once an app asks")
	}
	return nil
}

// eventText is an event on one line.
func eventText(e control.Event, now time.Time) string {
	missed := ""
	if e.Missed > 0 {
		missed = fmt.Sprintf("          %s before this one cannot be told: they came faster than they were read\n", count(e.Missed, "event"))
	}
	return fmt.Sprintf("%s%s  %s  %s (%s)\n", missed, moment(now, e.At), e.Peer, plainly(e.What), reason(e.Why))
}

// events sends what is kept of all peers, oldest first, and with follow what comes.
func (u *up) events(ctx context.Context, follow bool, send func(control.Event) error) error {
	coming, stop := u.dialer.Watch() // first, so that none is between
	defer stop()
	kept := u.kept(ctx)
	sent := map[eventKey]bool{}
	for _, e := range kept {
		sent[keyOf(e)] = true
		if err := send(e); err != nil {
			return err
		}
	}
	for follow {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d := <-coming:
			e := eventOf(d)
			if sent[keyOf(e)] && e.Missed == 0 {
				continue
			}
			if err := send(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// eventKey tells events from each other.
type eventKey struct {
	peer, what, why string
	at              time.Time
}

func keyOf(e control.Event) eventKey { return eventKey{e.Peer, e.What, e.Why, e.At} }

// kept is what is kept of all peers, oldest first.
func (u *up) kept(ctx context.Context) []control.Event {
	var list []control.Event
	for _, name := range u.peerNames() {
		decisions, err := u.dialer.Why(ctx, name)
		if err != nil {
			continue // it has just been removed
		}
		for _, d := range decisions {
			list = append(list, eventOf(dialer.Event{Peer: name, Decision: d}))
		}
	}
	slices.SortStableFunc(list, func(a, b control.Event) int { return a.At.Compare(b.At) })
	return list
}

func eventOf(e dialer.Event) control.Event {
	return control.Event{Peer: e.Peer, Decision: decisionOf(e.Decision), Missed: e.Missed}
}

func decisionOf(d route.Decision) control.Decision {
	c := control.Decision{At: d.At.Round(0), What: d.What, Why: d.Why, Routes: d.Routes, Changes: d.Changes}
	for _, f := range d.Facts {
		c.Facts = append(c.Facts, control.Fact{Name: f.Name, Value: f.Value})
	}
	return c
}
