package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// desk is a peer's loop as far as Roam sees it: it keeps what the link shows and
// tells it. Its commands are those of the stories.
type desk struct {
	*Roam
	link LinkState
}

func newDesk() *desk { return &desk{Roam: NewRoam(RoamConfig{})} }

func (d *desk) tell(at time.Duration, cmd string, args []string) ([]string, error) {
	actions, wake, err := d.do(at, cmd, args)
	if err != nil {
		return nil, err
	}
	var said []string
	for _, a := range actions {
		said = append(said, a.String())
	}
	return append(said, "wake "+since(wake)), nil
}

// do carries one command out.
func (d *desk) do(at time.Duration, cmd string, args []string) ([]RoamAction, time.Time, error) {
	now := epoch.Add(at)
	ev, err := d.event(now, cmd, args)
	if err != nil {
		return nil, time.Time{}, err
	}
	actions, wake := d.Step(now, ev)
	d.obey(actions)
	if _, level := ev.(LinkState); !level {
		more, w := d.Step(now, d.link) // as the loop does in every turn
		d.obey(more)
		actions, wake = append(actions, more...), w
	}
	return actions, wake, nil
}

// obey closes what Roam drops.
func (d *desk) obey(actions []RoamAction) {
	for _, a := range actions {
		if drop, ok := a.(Drop); ok {
			d.link.Carriers = slices.DeleteFunc(slices.Clone(d.link.Carriers), func(c Carrier) bool { return c.ID == drop.ID })
			if d.link.Active == drop.ID {
				d.link.Active = 0
			}
		}
	}
}

func (d *desk) event(now time.Time, cmd string, args []string) (RoamEvent, error) {
	switch cmd {
	case "tick":
		return Tick{}, nil
	case "routes":
		return RoutesChanged{Routes: mustRoutes(args...), What: "the config"}, nil
	case "path":
		p, err := parsePath(args)
		return PathChanged{Path: p}, err
	case "found":
		return Found{Route: mustRoutes(args[0])[0]}, nil
	case "unseen":
		return Gone{Route: mustRoutes(args[0])[0]}, nil
	case "relayed":
		d.Facts.Relayed = map[string]bool{mustRoutes(args[0])[0].ID(): true}
		return Tick{}, nil
	case "woke":
		return Woke{}, nil
	case "restarted":
		return PeerRestarted{}, nil
	case "pin":
		pin, err := ParsePin(args[0], slices.Contains(args, "only"), d.Facts.Routes)
		return Pinned{Pin: pin}, err
	case "standby":
		modes := map[string]Standby{"auto": StandbyAuto, "always": StandbyAlways, "never": StandbyNever}
		return RoutesChanged{Routes: d.Facts.Routes, Standby: modes[args[0]], What: "the config", ByHand: true}, nil
	case "refused":
		return DialRefused{Route: mustRoutes(args[0])[0]}, nil
	case "asked":
		d.link.Exists, d.link.Held = true, true
		d.link.Streams = max(1, d.link.Streams)
		d.Budget.SetWaiting(now, d.link.Active == 0)
		return Asked{}, nil
	case "ended":
		return parseRaceEnded(args)
	case "checked":
		e := CheckEnded{Route: mustRoutes(args[0])[0]}
		if rtt, err := time.ParseDuration(args[1]); err == nil {
			e.Answered, e.RTT = true, rtt
			return e, nil
		}
		outcome, err := parseOutcome(args[1])
		e.Outcome = outcome
		return e, err
	}
	return d.linkEvent(now, cmd, args)
}

// linkEvent is a command about one carrier, or about the streams.
func (d *desk) linkEvent(now time.Time, cmd string, args []string) (RoamEvent, error) {
	switch cmd {
	case "streams":
		n, err := strconv.Atoi(args[0])
		d.link.Exists, d.link.Streams, d.link.Held = true, n, n > 0
		return d.link, err
	case "byte":
		d.link.LastByte = now
		return d.link, nil
	case "dialled":
		if outcome, err := parseOutcome(args[1]); err == nil {
			return DialEnded{Route: mustRoutes(args[0])[0], Outcome: outcome}, nil
		}
		c, err := d.carrier(now, args)
		return DialEnded{Route: c.Route, Carrier: c, Outcome: Won}, err
	case "won":
		c, err := d.carrier(now, args)
		return RaceWon{Carrier: c}, err
	}
	words := strings.TrimPrefix(args[0], "#")
	id, err := strconv.ParseUint(words, 10, 64)
	i := slices.IndexFunc(d.link.Carriers, func(c Carrier) bool { return c.ID == id })
	if err != nil || i < 0 {
		return nil, fmt.Errorf("%s: no carrier %s", cmd, args[0])
	}
	c := &d.link.Carriers[i]
	switch cmd {
	case "gone":
		d.link.Carriers = slices.Delete(slices.Clone(d.link.Carriers), i, i+1)
		if d.link.Active == id {
			d.link.Active = 0
			if len(d.link.Carriers) > 0 {
				d.link.Active = d.link.Carriers[0].ID
			}
		}
	case "suspect":
		c.Suspect = true
	case "alive":
		c.Suspect, c.Heard = false, now
	case "active":
		d.link.Active = id
	case "rtt":
		c.RTT, err = time.ParseDuration(args[1])
	case "switched":
		if len(args) > 1 {
			return SwitchEnded{ID: id, Failed: true}, nil
		}
		d.link.Active = id
		return SwitchEnded{ID: id}, nil
	case "proved":
		return Proved{ID: id, Alive: args[1] == "alive"}, nil
	case "goes":
		return GoingAway{ID: id}, nil
	default:
		return nil, fmt.Errorf("no command %q", cmd)
	}
	d.link.Carriers = slices.Clone(d.link.Carriers)
	return d.link, err
}

// carrier puts one into the link: ROUTE #ID [LOCAL] [RTT].
func (d *desk) carrier(now time.Time, args []string) (Carrier, error) {
	id, err := strconv.ParseUint(strings.TrimPrefix(args[1], "#"), 10, 64)
	if err != nil {
		return Carrier{}, err
	}
	c := Carrier{ID: id, Route: mustRoutes(args[0])[0], Heard: now}
	for _, arg := range args[2:] {
		if rtt, err := time.ParseDuration(arg); err == nil {
			c.RTT = rtt
		} else {
			c.Local = netip.MustParseAddr(arg)
		}
	}
	d.link.Exists = true
	d.link.Carriers = append(slices.Clone(d.link.Carriers), c)
	if d.link.Active == 0 {
		d.link.Active = id
	}
	return c, nil
}

// parseRaceEnded reads: won | stopped | ROUTE=OUTCOME…
func parseRaceEnded(args []string) (RoamEvent, error) {
	var e RaceEnded
	for _, arg := range args {
		id, outcome, ok := strings.Cut(arg, "=")
		switch {
		case arg == "won":
			e.Won = true
		case arg == "stopped":
			e.Stopped = true
		case ok:
			o, err := parseOutcome(outcome)
			if err != nil {
				return nil, err
			}
			e.Attempts = append(e.Attempts, Attempt{Route: mustRoutes(id)[0], Outcome: o, Duration: RaceLimit, Err: errors.New(outcome)})
		default:
			return nil, fmt.Errorf("no end of a race: %q", arg)
		}
	}
	return e, nil
}

// parsePath reads: KIND:NAME:ADDRESS/BITS[,ADDRESS…][:metered][:default][:router=HEX]… [tailnet]
func parsePath(args []string) (Path, error) {
	var p Path
	for _, arg := range args {
		if arg == "tailnet" {
			p.Tailnet = true
			continue
		}
		words := strings.Split(arg, "/")
		if len(words) < 2 {
			return p, fmt.Errorf("no interface: %q", arg)
		}
		// kind/name/address-bits[/flag…]: no colon, for IPv6.
		kind, err := ParseKind(words[0])
		if err != nil {
			return p, err
		}
		i := Interface{Name: words[1], Kind: kind}
		for _, w := range words[2:] {
			switch {
			case w == "metered":
				i.Metered = true
			case w == "default":
				i.Default = true
			case strings.HasPrefix(w, "router="):
				i.Network.Router = strings.TrimPrefix(w, "router=")
			default:
				i.Addrs = append(i.Addrs, netip.MustParsePrefix(strings.ReplaceAll(w, "-", "/")))
			}
		}
		i.Network.Kind = kind
		if (kind == WiFi || kind == Wired) && len(i.Addrs) > 0 {
			i.Network.Prefix = netip.PrefixFrom(i.Addrs[0].Addr(), 24).Masked()
		}
		p.Interfaces = append(p.Interfaces, i)
	}
	return p, nil
}

func TestRoamStories(t *testing.T) {
	runStories(t, "roam-*.txt", func() teller { return newDesk() })
}

func TestPenaltyStories(t *testing.T) {
	runStories(t, "penalty-*.txt", func() teller { return newDesk() })
}
