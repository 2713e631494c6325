package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"linkproxy/dialer/route"
)

// The format: one object {"version": 1, "peers": {KEY: peer}}. Members this version does not know are kept, at every level:
// a newer linkproxy may have written them.
const (
	version = 1
	// maxFile bounds what is read and written. A peer with 8 networks and some routes takes 10 KiB.
	maxFile = 1 << 20
	// maxPeers and maxRoutes, on one network, bound how many are remembered; those not used for longest go.
	maxPeers  = 64
	maxStep   = 1 << 20 // of a penalty: more rungs than anybody lives to climb
	maxRoutes = 32
	// maxHandshake is far more than a race takes. A process that was stopped in the middle of one may have measured more.
	maxHandshake = time.Hour
)

var (
	errCorrupt = errors.New("corrupt")
	errNewer   = errors.New("made by a newer linkproxy")
)

type (
	fields map[string]json.RawMessage

	file struct {
		peers map[string]*peer
		extra fields
	}
	peer struct {
		mem   route.Memory
		extra fields
		nets  map[route.Network]*network // what else is known of each
	}
	network struct {
		extra  fields
		routes map[string]fields
	}
)

// take moves a known member out of f; a missing one leaves into as it is.
func (f fields) take(name string, into any) error {
	raw, ok := f[name]
	if !ok {
		return nil
	}
	delete(f, name)
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %q: %w", errCorrupt, name, err)
	}
	return nil
}

// with is f with known members put in.
func (f fields) with(known map[string]any) map[string]any {
	for k, v := range f {
		if _, ours := known[k]; !ours {
			known[k] = v
		}
	}
	return known
}

// parse reads a file. A file without a version is one of before there was any.
func parse(data []byte) (*file, error) {
	f := &file{peers: map[string]*peer{}}
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &f.extra); err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	v := 0
	if err := f.extra.take("version", &v); err != nil {
		return nil, err
	}
	if v > version {
		return nil, fmt.Errorf("%w: version %d", errNewer, v)
	}
	var peers map[string]fields
	if err := f.extra.take("peers", &peers); err != nil {
		return nil, err
	}
	if peers == nil {
		return nil, fmt.Errorf("%w: it has no peers", errCorrupt)
	}
	for key, raw := range peers {
		p, err := parsePeer(raw)
		if err != nil {
			return nil, fmt.Errorf("peer %s: %w", key, err)
		}
		f.peers[key] = p
	}
	return f, nil
}

func parsePeer(raw fields) (*peer, error) {
	if raw == nil {
		return nil, fmt.Errorf("%w: it is empty", errCorrupt)
	}
	p := &peer{extra: raw, nets: map[route.Network]*network{}}
	var nets []fields
	err := errors.Join(raw.take("last", &p.mem.Last), raw.take("last_at", &p.mem.LastAt),
		raw.take("ready_v2", &p.mem.ReadyV2), raw.take("networks", &nets))
	if err != nil {
		return nil, err
	}
	for i, n := range nets {
		if err := p.parseNetwork(n); err != nil {
			return nil, fmt.Errorf("network %d: %w", i+1, err)
		}
	}
	p.mem.Networks = p.mem.Networks[:min(len(p.mem.Networks), route.MaxNetworks)]
	return p, nil
}

func (p *peer) parseNetwork(raw fields) error {
	var kind, prefix string
	var routes map[string]fields
	m := route.NetworkMemory{Routes: map[string]route.RouteMemory{}}
	err := errors.Join(raw.take("kind", &kind), raw.take("prefix", &prefix), raw.take("router", &m.Network.Router),
		raw.take("used", &m.Used), raw.take("last", &m.Last), raw.take("routes", &routes))
	if err != nil {
		return err
	}
	if m.Network.Kind, err = route.ParseKind(kind); err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if prefix != "" {
		if m.Network.Prefix, err = netip.ParsePrefix(prefix); err != nil {
			return fmt.Errorf("%w: %w", errCorrupt, err)
		}
	}
	n := &network{extra: raw, routes: map[string]fields{}}
	for id, r := range routes {
		one, err := parseRoute(r)
		if err != nil {
			return fmt.Errorf("route %s: %w", id, err)
		}
		m.Routes[id], n.routes[id] = one, r
	}
	bound(&m)
	if _, twice := p.nets[m.Network]; twice || !m.Network.Known() {
		return fmt.Errorf("%w: %s is there twice, or cannot be told from others", errCorrupt, m.Network)
	}
	p.nets[m.Network] = n
	p.mem.Networks = append(p.mem.Networks, m)
	return nil
}

func parseRoute(raw fields) (r route.RouteMemory, err error) {
	var handshake int64
	var penalty fields
	err = errors.Join(raw.take("last_success", &r.LastSuccess), raw.take("handshake_us", &handshake),
		raw.take("failures", &r.Failures), raw.take("relayed", &r.Relayed), raw.take("penalty", &penalty),
		penalty.take("step", &r.Penalty.Step), penalty.take("until", &r.Penalty.Until),
		penalty.take("reasons", &r.Penalty.Reasons), penalty.take("cool_until", &r.Penalty.CoolUntil))
	if handshake < 0 || handshake > maxHandshake.Microseconds() || r.Penalty.Step < 0 || r.Penalty.Step > maxStep {
		err = errors.Join(err, fmt.Errorf("%w: a number is out of range", errCorrupt))
	}
	if len(penalty) > 0 { // what is not known of it is kept
		raw["penalty"], _ = json.Marshal(penalty) // of what was just parsed
	}
	r.Handshake = time.Duration(handshake) * time.Microsecond
	r.Failures = r.Failures[max(0, len(r.Failures)-route.FailuresToDemote):]
	return r, err
}

func (f *file) encode() ([]byte, error) {
	peers := map[string]any{}
	for key, p := range f.peers {
		peers[key] = p.encode()
	}
	data, err := json.MarshalIndent(f.extra.with(map[string]any{"version": version, "peers": peers}), "", "  ")
	return append(data, '\n'), err
}

// encode leaves out and trims what parsePeer would refuse: one odd record must not cost the whole file.
func (p *peer) encode() any {
	nets, seen := []any{}, map[route.Network]bool{}
	for _, m := range p.mem.Networks {
		if seen[m.Network] || !m.Network.Known() {
			continue
		}
		seen[m.Network] = true
		more := p.nets[m.Network]
		if more == nil {
			more = &network{}
		}
		routes := map[string]any{}
		for id, r := range m.Routes {
			routes[id] = encodeRoute(r, more.routes[id])
		}
		known := map[string]any{"kind": m.Network.Kind.String(), "used": m.Used, "last": m.Last, "routes": routes}
		if m.Network.Prefix.IsValid() {
			known["prefix"] = m.Network.Prefix
		}
		if m.Network.Router != "" {
			known["router"] = m.Network.Router
		}
		nets = append(nets, more.extra.with(known))
	}
	known := map[string]any{"last": p.mem.Last, "last_at": p.mem.LastAt, "networks": nets}
	if len(p.mem.ReadyV2) > 0 {
		known["ready_v2"] = p.mem.ReadyV2
	}
	return p.extra.with(known)
}

func encodeRoute(r route.RouteMemory, extra fields) any {
	known := map[string]any{}
	if !r.LastSuccess.IsZero() {
		known["last_success"], known["handshake_us"] = r.LastSuccess, min(max(r.Handshake, 0), maxHandshake).Microseconds()
	}
	if len(r.Failures) > 0 {
		known["failures"] = r.Failures
	}
	if r.Relayed {
		known["relayed"] = true
	}
	more := fields{}
	if extra = maps.Clone(extra); extra.take("penalty", &more) != nil {
		more = nil // never: it was read from a file
	}
	if p := r.Penalty; p.Step != 0 || !p.Until.IsZero() || !p.CoolUntil.IsZero() || len(p.Reasons) > 0 || len(more) > 0 {
		known["penalty"] = more.with(map[string]any{"step": min(max(p.Step, 0), maxStep), "until": p.Until, "reasons": p.Reasons, "cool_until": p.CoolUntil})
	}
	return extra.with(known)
}
