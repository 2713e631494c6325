package route

import (
	"net/netip"
	"slices"
	"time"
)

// maxRoutes bounds what is remembered of a peer's routes on one network; the
// learned and the discovered ones come and go.
const maxRoutes = 32

// Raced is a race that has ended, as memory needs it.
type Raced struct {
	Start, End Path // this machine's path when it began and when it ended
	Attempts   []Attempt
	// Known holds all routes that are known of the peer, vetted or not: what was
	// to be tried first and is none of them any more gives way to any winner.
	Known []Route
}

// Record returns the memory with what a race taught. A result goes to the
// network that its socket was on, if that is still the same; a race teaches at
// most one failure of each route. Where a network wants a sign-in first, nothing
// is learned from failures.
func (m Memory) Record(now time.Time, race Raced) Memory {
	captive := Captive(race.Attempts)
	seen := map[string]bool{}
	for _, a := range race.Attempts {
		id := a.Route.ID()
		success := a.Outcome == Won || a.Outcome == Kept
		if !success && (captive || !a.IsFailure()) || seen[id] {
			continue
		}
		seen[id] = true
		n := race.network(a)
		known, _ := m.At(n, id)
		at := wall(now)
		if success {
			known.LastSuccess, known.Handshake, known.Failures = at, a.Duration, nil
		} else {
			known.Failures = append(slices.Clip(known.Failures), at)
			known.Failures = known.Failures[max(0, len(known.Failures)-FailuresToDemote):]
		}
		m = m.With(now, n, id, known)
	}
	if winner, ok := inUse(race.Attempts); ok {
		m = m.lead(now, race, winner)
	}
	return m
}

// inUse is the attempt whose carrier is used after the race: the standby of a
// better class is switched to.
func inUse(attempts []Attempt) (winner Attempt, ok bool) {
	for _, a := range attempts {
		if a.Outcome == Won && !ok || a.Outcome == Kept && (winner.Outcome != Kept || a.Route.Class < winner.Route.Class) {
			winner, ok = a, true
		}
	}
	return winner, ok
}

// lead remembers the winner as the route to be tried first, there and elsewhere.
func (m Memory) lead(now time.Time, race Raced, winner Attempt) Memory {
	id := winner.Route.ID()
	if n := race.network(winner); n.Known() {
		var here *NetworkMemory
		if m, here = m.touch(now, n); race.replaces(winner, here.Last) {
			here.Last = id
		}
	}
	if winner.Route.Class != LAN && race.replaces(winner, m.Last) {
		m.Last = id
	}
	if m.Last == id {
		m.LastAt = wall(now)
	}
	return m
}

// replaces reports whether a winner takes the place of the route that was to be
// tried first. A relay that was faster by a millisecond does not take that of a
// better class: it would lead from then on, and win again.
func (race Raced) replaces(winner Attempt, last string) bool {
	if winner.Route.Class != Relay || last == "" {
		return true
	}
	if class, _ := classOfID(last); class == Relay || failedIn(race.Attempts, last) {
		return true
	}
	return race.Known != nil && !slices.ContainsFunc(race.Known, func(r Route) bool { return r.ID() == last })
}

// network is where an attempt's result belongs; unknown if that network was left
// or became another during the race.
func (race Raced) network(a Attempt) Network {
	before := race.Start.networkFor(a.Route, a.Local)
	for _, i := range race.End.Interfaces {
		switch {
		case i.Network == before:
			return before
		case before.Router == "" && before == Network{Kind: i.Network.Kind, Prefix: i.Network.Prefix}:
			return i.Network // its router was read meanwhile
		}
	}
	return Network{}
}

// networkFor is NetworkOf for an attempt that may not have got a socket: to a
// local address it would have gone out by the interface whose prefix holds it.
func (p Path) networkFor(r Route, local netip.Addr) Network {
	if local.IsValid() {
		return p.NetworkOf(local)
	}
	if to, err := netip.ParseAddr(r.host()); err == nil {
		for _, i := range p.Interfaces {
			if i.Network.Known() && slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return a.Contains(to.Unmap().WithZone("")) }) {
				return i.Network
			}
		}
	}
	return p.underlay()
}

// bound drops the records that were of no use for longest.
func (n *NetworkMemory) bound(keep string) {
	for len(n.Routes) > maxRoutes {
		oldest, at := "", time.Time{}
		for id, r := range n.Routes {
			last := r.LastSuccess
			for _, f := range append(slices.Clip(r.Failures), r.Penalty.Until) {
				last = later(last, f)
			}
			// By ID among equals, so that the same input gives the same output.
			if id != keep && id != n.Last && (oldest == "" || last.Before(at) || last.Equal(at) && id < oldest) {
				oldest, at = id, last
			}
		}
		delete(n.Routes, oldest)
	}
}
