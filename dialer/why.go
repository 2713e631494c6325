package dialer

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// Event is a decision about a peer, as it is made.
type Event struct {
	Peer string
	route.Decision
	Missed int // how many were made before this one and after the last, and are not told
}

// Why tells the last decisions about a peer, oldest first, at most route.MaxDecisions.
func (d *Dialer) Why(ctx context.Context, peer string) (list []route.Decision, err error) {
	p, err := d.find(peer)
	if err != nil {
		return nil, err
	}
	err = p.ask(ctx, func(time.Time) { list = p.decisions.All() })
	return list, err
}

// watchers are those who are told of decisions as they are made.
type watchers struct {
	mu   sync.Mutex
	list map[*watcher]bool
}

// watched is how many events wait for one who is slow; those beyond are missed, and counted.
const watched = 256

type watcher struct {
	c      chan Event
	missed int
}

// Watch sends every decision about any peer to the channel until stop is called. Nobody waits for a slow reader: it misses some.
func (d *Dialer) Watch() (events <-chan Event, stop func()) {
	w := &watcher{c: make(chan Event, watched)}
	d.watchers.mu.Lock()
	defer d.watchers.mu.Unlock()
	if d.watchers.list == nil {
		d.watchers.list = map[*watcher]bool{}
	}
	d.watchers.list[w] = true
	return w.c, func() {
		d.watchers.mu.Lock()
		defer d.watchers.mu.Unlock()
		delete(d.watchers.list, w)
	}
}

func (ws *watchers) tell(e Event) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.list {
		e.Missed = w.missed
		select {
		case w.c <- e:
			w.missed = 0
		default:
			w.missed++
		}
	}
}

// decided keeps a decision for those who ask why, and tells those who watch.
func (p *peer) decided(d route.Decision) {
	p.decisions.Add(d)
	p.d.watchers.tell(Event{Peer: p.name, Decision: d})
}

// swap names one move of a link.
type swap struct {
	at       time.Time
	from, to uint64 // generations
}

// noteSwaps makes a decision of each move of the link that was not told yet, whoever has decided it.
func (p *peer) noteSwaps(st link.Status) {
	untold := 0
	for i, s := range st.Switches {
		if (swap{st.At(s.At), s.From, s.To}) == p.swapped {
			untold = i + 1
		}
	}
	for _, s := range st.Switches[untold:] {
		p.swapped = swap{st.At(s.At), s.From, s.To}
		p.decided(p.explainSwap(p.swapped, s.Planned, s.UnseenFrom, s.Reason))
	}
}

func (p *peer) explainSwap(s swap, planned bool, unseen int, why string) route.Decision {
	to := cmp.Or(p.names[s.to], "a route that is not known any more")
	d := route.Decision{At: s.at, What: "connected over " + to, Why: "the first carrier that was attached"}
	if s.from == 0 {
		return d
	}
	d.Why = why
	d.What = fmt.Sprintf("moved to %s", to)
	if from := p.names[s.from]; from != "" {
		d.What = fmt.Sprintf("moved from %s to %s", from, to)
	}
	if planned {
		d.Why = "as planned: the old carrier served until the new one carried all"
	}
	d.Facts = []route.Fact{{Name: "on the way over the old one", Value: fmt.Sprintf("%d bytes, sent again where they were lost", unseen)}}
	return d
}

// explain is the record of what roam has decided, in words for people.
func (p *peer) explain(now time.Time, action route.RoamAction) route.Decision {
	d := route.ExplainAction(now, action)
	name := func(id uint64) string {
		if n := p.names[id]; n != "" {
			return fmt.Sprintf("%s (carrier %d)", n, id)
		}
		return fmt.Sprintf("carrier %d", id)
	}
	switch a := action.(type) {
	case route.JoinRace:
		d.What = "race: goes on with " + routeList(a.Plan)
	case route.TryAgain:
		d.What = "race: dial again " + routeNames(a.Routes)
	case route.DialStandby:
		d.What = fmt.Sprintf("dial %s, to have it in reserve", a.Route)
		d.Changes = []string{`standby = "never" in the config, a metered network, or a minute in which no byte moves`}
	case route.Check:
		d.What = "check " + routeNames(a.Routes)
		d.Changes = []string{"no open stream: then nothing is looked for"}
	case route.Prove:
		d.What = fmt.Sprintf("ask for a sign of life on %s", name(a.ID))
		d.Changes = []string{fmt.Sprintf("no answer within %s: then another is taken", a.Within)}
	case route.Switch:
		d.What = fmt.Sprintf("move to %s", a.Route)
		if a.Planned {
			d.Changes = []string{fmt.Sprintf("large segments that do not pass there within %s: then the link stays where it is", moveLimit)}
		}
	case route.KeepStandby:
		d.What = fmt.Sprintf("keep %s in reserve", name(a.ID))
	case route.Release:
		d.What = fmt.Sprintf("let %s go once nothing needs it", name(a.ID))
	case route.Drop:
		d.What = fmt.Sprintf("close %s", name(a.ID))
	case route.Remember:
		d.What = fmt.Sprintf("remember of %s on %s: %s", a.RouteID, a.Network, cmp.Or(a.Penalty.Text(now), "nothing is held against it"))
		if a.Penalty.Step > 0 {
			d.Changes = []string{fmt.Sprintf("holding for %s after the next move to it: that clears it", route.PenaltyHold)}
		}
	}
	d.Facts = append(d.Facts, p.linkFacts(now)...)
	return d
}

// linkFacts are what most decisions about a link rest on.
func (p *peer) linkFacts(now time.Time) []route.Fact {
	if p.client == nil {
		return nil
	}
	st := p.client.Status()
	in := activeOf(st)
	var facts []route.Fact
	add := func(name, format string, args ...any) {
		facts = append(facts, route.Fact{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	switch {
	case !in.Attached:
		add("in use", "nothing")
	default:
		text := fmt.Sprintf("%s for %s, round trip %s", in.Name, now.Sub(st.At(in.Since)), in.RTT)
		if in.Suspect {
			text += ", no answer at present"
		}
		add("in use", "%s", text)
	}
	if st.Streams > 0 && st.LastByte > 0 {
		add("streams", "%d open, the last byte %s ago", st.Streams, now.Sub(st.At(st.LastByte)))
	} else {
		add("streams", "%d open", st.Streams)
	}
	if p.pin.Set() {
		add("pinned", "%s", p.pin)
	}
	return facts
}

func routeNames(routes []route.Route) string {
	var list []string
	for _, r := range routes {
		list = append(list, r.ID())
	}
	return strings.Join(list, ", ")
}

func routeList(plan []route.Ranked) string {
	var list []route.Route
	for _, e := range plan {
		list = append(list, e.Route)
	}
	return routeNames(list)
}
