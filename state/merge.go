package state

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"linkproxy/dialer/route"
)

// merge joins what two processes have learned since both knew base: what only one has changed is its, and of what both have changed,
// the later is kept.
func merge(base, ours, theirs route.Memory) route.Memory {
	out := route.Memory{Last: ours.Last, LastAt: ours.LastAt, ReadyV2: maps.Clone(ours.ReadyV2)}
	if theirs.LastAt.After(ours.LastAt) || ours.Last == base.Last && ours.LastAt.Equal(base.LastAt) {
		out.Last, out.LastAt = theirs.Last, theirs.LastAt
	}
	for url, yes := range theirs.ReadyV2 {
		if out.ReadyV2 == nil {
			out.ReadyV2 = map[string]bool{}
		}
		out.ReadyV2[url] = yes || out.ReadyV2[url]
	}
	all := map[route.Network]bool{}
	for _, m := range []route.Memory{ours, theirs} {
		for _, n := range m.Networks {
			all[n.Network] = true
		}
	}
	for n := range all {
		out.Networks = append(out.Networks, mergeNetwork(of(base, n), of(ours, n), of(theirs, n)))
	}
	slices.SortFunc(out.Networks, func(a, b route.NetworkMemory) int {
		if c := b.Used.Compare(a.Used); c != 0 {
			return c
		}
		return cmp.Compare(a.Network.String()+a.Network.Router, b.Network.String()+b.Network.Router)
	})
	out.Networks = out.Networks[:min(len(out.Networks), route.MaxNetworks)]
	return out
}

func of(m route.Memory, n route.Network) route.NetworkMemory {
	i := slices.IndexFunc(m.Networks, func(x route.NetworkMemory) bool { return x.Network == n })
	if i < 0 {
		return route.NetworkMemory{Network: n}
	}
	return m.Networks[i]
}

func mergeNetwork(base, ours, theirs route.NetworkMemory) route.NetworkMemory {
	out := route.NetworkMemory{Network: ours.Network, Used: ours.Used, Last: ours.Last, Routes: map[string]route.RouteMemory{}}
	if theirs.Used.After(ours.Used) {
		out.Used, out.Last = theirs.Used, theirs.Last
	}
	ids := maps.Clone(ours.Routes)
	if ids == nil {
		ids = map[string]route.RouteMemory{}
	}
	maps.Copy(ids, theirs.Routes)
	for id := range ids {
		b, inBase := base.Routes[id]
		a, inOurs := ours.Routes[id]
		c, inTheirs := theirs.Routes[id]
		switch {
		case inOurs && inTheirs:
			out.Routes[id] = later(b, a, c)
		case inOurs && !(inBase && same(b, a)): // else they have forgotten it
			out.Routes[id] = a
		case inTheirs && !(inBase && same(b, c)):
			out.Routes[id] = c
		}
	}
	bound(&out)
	return out
}

// later is the record of a route that both know.
func later(base, ours, theirs route.RouteMemory) route.RouteMemory {
	switch {
	case same(base, theirs):
		return ours
	case same(base, ours), at(theirs).After(at(ours)):
		return theirs
	default:
		return ours
	}
}

// at is when something was last learned of a route, as far as it shows. When a penalty ends says nothing of that.
func at(r route.RouteMemory) time.Time {
	t := r.LastSuccess
	for _, f := range r.Failures {
		if f.After(t) {
			t = f
		}
	}
	return t
}

// same compares by what a file can hold.
func same(a, b route.RouteMemory) bool {
	p, q := a.Penalty, b.Penalty
	return a.LastSuccess.Equal(b.LastSuccess) && a.Handshake.Microseconds() == b.Handshake.Microseconds() && a.Relayed == b.Relayed &&
		slices.EqualFunc(a.Failures, b.Failures, time.Time.Equal) &&
		p.Step == q.Step && p.Until.Equal(q.Until) && p.CoolUntil.Equal(q.CoolUntil) && slices.Equal(p.Reasons, q.Reasons)
}

// bound drops the routes of which nothing was learned for longest, but not the one to be tried first.
func bound(n *route.NetworkMemory) {
	ids := slices.SortedFunc(maps.Keys(n.Routes), func(a, b string) int {
		return cmp.Or(at(n.Routes[b]).Compare(at(n.Routes[a])), cmp.Compare(a, b))
	})
	if i := slices.Index(ids, n.Last); i >= maxRoutes {
		ids = slices.Insert(slices.Delete(ids, i, i+1), 0, n.Last)
	}
	for _, id := range ids[min(len(ids), maxRoutes):] {
		delete(n.Routes, id)
	}
}
