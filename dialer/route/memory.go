package route

import (
	"net/netip"
	"slices"
	"time"
)

// MaxNetworks is how many networks are remembered for a peer: the places of a
// working week, and some trains.
const MaxNetworks = 8

// Memory is all that was learned about one peer. It is plain data that may be
// stored as it is; losing it costs speed, never correctness. The zero Memory
// knows nothing. Methods do not change what others hold: those that learn
// return a new Memory.
type Memory struct {
	Networks []NetworkMemory // most recently used first, at most MaxNetworks, each Network once and Known
	Last     string          // ID of the route to be tried first where nothing else is known; never a LAN route
	LastAt   time.Time       // when Last last authenticated
	// ReadyV2 says which relays, by URL, have ever negotiated ready-v2: they are
	// not asked again whether they can.
	ReadyV2 map[string]bool
}

// NetworkMemory is what was learned about a peer's routes on one network.
type NetworkMemory struct {
	Network Network
	Used    time.Time              // when something was last learned here
	Last    string                 // ID of the route to be tried first here; "": none
	Routes  map[string]RouteMemory // by route ID
}

// RouteMemory is what was learned about one route on one network. All times are
// wall clock: a monotonic one stands still while the machine sleeps.
type RouteMemory struct {
	LastSuccess time.Time     // zero: never
	Handshake   time.Duration // from the dial to attached, of the last success
	// Failures are the times of the last failures since the last success, oldest
	// first, at most FailuresToDemote, at most one a race.
	Failures []time.Time
	// Relayed: this tailnet route's path was still relayed RelayedAfter after
	// traffic began, so that it is no better than a relay here.
	Relayed bool
	Penalty Penalty
}

// Penalty keeps upgrades away from a route that did not hold on a network. The
// zero Penalty is none.
type Penalty struct {
	Step    int       // how many rungs of the ladder were climbed; 0: none
	Until   time.Time // skipped by upgrades and tried last until then
	Reasons []string  // what earned each rung, latest last, bounded
	// CoolUntil: an upgrade to it did not attach; skipped by upgrades until then,
	// but not tried last.
	CoolUntil time.Time
}

// Active reports whether the route is tried last at now.
func (p Penalty) Active(now time.Time) bool {
	return runs(now, p.Until, penaltyLadder[len(penaltyLadder)-1])
}

// Cooling reports whether upgrades leave the route alone at now because one to
// it did not attach.
func (p Penalty) Cooling(now time.Time) bool { return runs(now, p.CoolUntil, CoolDown) }

// runs reports whether what ends at until, and lasts at most most, runs at now.
// One that would end later was written under another clock, and is none.
func runs(now, until time.Time, most time.Duration) bool {
	return now.Before(until) && until.Sub(now) <= most
}

// wall strips the monotonic reading, which stands still while the machine
// sleeps and does not survive a restart.
func wall(t time.Time) time.Time { return t.Round(0) }

// find is the index of the memory of a network, or -1. Where the router is not
// read yet the prefix alone will do if only one such network is known; half the
// world's homes are 192.168.1.0/24.
func (m Memory) find(n Network) int {
	if !n.Known() {
		return -1
	}
	alike, found := 0, -1
	for i, known := range m.Networks {
		if known.Network == n {
			return i
		}
		if n.Router == "" && known.Network.Kind == n.Kind && known.Network.Prefix == n.Prefix {
			alike, found = alike+1, i
		}
	}
	if alike != 1 {
		return -1 // none, or it cannot be told which
	}
	return found
}

// Here is what is remembered about the networks of all interfaces of a path,
// most recently used first.
func (m Memory) Here(p Path) []NetworkMemory {
	var places []int
	for _, i := range p.Interfaces {
		if at := m.find(i.Network); at >= 0 && !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	slices.Sort(places)
	here := make([]NetworkMemory, len(places))
	for i, at := range places {
		here[i] = m.Networks[at]
	}
	return here
}

// At is what is remembered about a route on one network.
func (m Memory) At(n Network, routeID string) (RouteMemory, bool) {
	i := m.find(n)
	if i < 0 {
		return RouteMemory{}, false
	}
	r, ok := m.Networks[i].Routes[routeID]
	return r, ok
}

// With is the memory with one route's record on one network replaced, which
// makes that network the most recently used. An unknown network changes
// nothing. Record uses it for races; penalties are written by it too.
func (m Memory) With(now time.Time, n Network, routeID string, r RouteMemory) Memory {
	if !n.Known() {
		return m
	}
	m, here := m.touch(now, n)
	here.Routes[routeID] = r
	here.bound(routeID)
	return m
}

// WithReadyV2 is the memory in which the relay has negotiated ready-v2.
func (m Memory) WithReadyV2(url string) Memory {
	relays := map[string]bool{}
	for known, yes := range m.ReadyV2 {
		relays[known] = yes
	}
	relays[url] = true
	m.ReadyV2 = relays
	return m
}

// touch copies m so that the network's record is the first and may be changed.
func (m Memory) touch(now time.Time, n Network) (Memory, *NetworkMemory) {
	here := NetworkMemory{Network: n}
	rest := slices.Clone(m.Networks)
	if i := m.find(n); i >= 0 {
		here = rest[i]
		rest = slices.Delete(rest, i, i+1)
	}
	here.Used = wall(now)
	routes := make(map[string]RouteMemory, len(here.Routes)+1)
	for id, r := range here.Routes {
		routes[id] = r
	}
	here.Routes = routes
	m.Networks = append([]NetworkMemory{here}, rest...)
	m.Networks = m.Networks[:min(len(m.Networks), MaxNetworks)]
	return m, &m.Networks[0]
}

// NetworkOf is the network whose memory a socket's result belongs to: that of
// the interface its own address is on. Tunnels and loopback lead through the
// default route's; so does an address that is not known.
func (p Path) NetworkOf(local netip.Addr) Network {
	local = local.Unmap().WithZone("")
	for _, i := range p.Interfaces {
		if i.Kind == Tunnel || i.Kind == Loopback {
			continue
		}
		if slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return a.Addr().Unmap().WithZone("") == local }) {
			return i.Network
		}
	}
	return p.underlay()
}

// underlay is the network of the interface with the default route; if a tunnel
// has that, of the first that is none.
func (p Path) underlay() Network {
	var first Network
	for _, i := range p.Interfaces {
		if i.Kind == Tunnel || i.Kind == Loopback || !i.Network.Known() {
			continue
		}
		if i.Default {
			return i.Network
		}
		if !first.Known() {
			first = i.Network
		}
	}
	return first
}
