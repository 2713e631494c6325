package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrBadPin says that a text names neither a route of the peer, nor a class, nor
// auto.
var ErrBadPin = errors.New("route: no such route or class")

// Pin is what the user wants used: one route, one class, or, as the zero Pin,
// whatever is best. It is preferred to all else; while it is down the others
// serve, unless Only, and it is returned to when it answers.
type Pin struct {
	RouteID string // "": no single route
	Class   Class  // 0: no class
	Only    bool   // nothing else may be used: streams wait, and no standby is kept elsewhere
}

// ParsePin reads a pin as the user writes it: the ID of one of routes, or its
// address if only one route has it, a class, or "auto".
func ParsePin(text string, only bool, routes []Route) (Pin, error) {
	if strings.EqualFold(text, "auto") {
		if only {
			return Pin{}, fmt.Errorf("%w: auto leaves the choice open, which --only does not; leave out --only, or name a route or a class", ErrBadPin)
		}
		return Pin{}, nil
	}
	if c, err := ParseClass(text); err == nil {
		return Pin{Class: c, Only: only}, nil
	}
	alike := slices.DeleteFunc(slices.Clone(routes), func(r Route) bool {
		return !strings.EqualFold(r.ID(), text) && !strings.EqualFold(r.Address, text)
	})
	if len(alike) == 1 {
		return Pin{RouteID: alike[0].ID(), Only: only}, nil
	}
	ids := make([]string, len(routes))
	for i, r := range routes {
		ids[i] = r.ID()
	}
	return Pin{}, fmt.Errorf("%w: %q is none of lan, tailnet, direct, relay, auto, %s", ErrBadPin, text, strings.Join(ids, ", "))
}

// Set reports whether anything is pinned.
func (p Pin) Set() bool { return p.RouteID != "" || p.Class != 0 }

// Wants reports whether a route is what the user wants; always true if nothing
// is pinned.
func (p Pin) Wants(r Route) bool {
	switch {
	case p.RouteID != "":
		return r.ID() == p.RouteID
	case p.Class != 0:
		return r.Class == p.Class
	default:
		return true
	}
}

// Allows reports whether a route may be used at all.
func (p Pin) Allows(r Route) bool { return !p.Only || p.Wants(r) }

// String is the pin as the user writes it: "lan --only".
func (p Pin) String() string {
	text := "auto"
	switch {
	case p.RouteID != "":
		text = p.RouteID
	case p.Class != 0:
		text = p.Class.String()
	}
	if p.Only {
		text += " --only"
	}
	return text
}

// pinned orders a plan by the pin: what it wants comes first, what it does not
// allow goes.
func (p Pin) pinned(plan []Ranked) []Ranked {
	if !p.Set() {
		return plan
	}
	var first, rest []Ranked
	for _, e := range plan {
		switch {
		case p.Wants(e.Route):
			e.Why.Hoisted = "pinned by the user: " + p.String()
			first = append(first, e)
		case !p.Only:
			rest = append(rest, e)
		}
	}
	return append(first, rest...)
}
