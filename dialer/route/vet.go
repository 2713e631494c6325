package route

import (
	"fmt"
	"slices"
	"time"
)

// The numbers of vetting.
const (
	// MaxDiscovered bounds the discovered routes of one peer: enough for a machine
	// with two networks and two families, too few to make a race a scan.
	MaxDiscovered = 4
	// WrongKeyFor is how long an address that showed another key is ignored on
	// that network: the lease of an address that changed hands is longer, a
	// person's patience shorter.
	WrongKeyFor = 10 * time.Minute
	// maxWrongKeys bounds what is remembered of that.
	maxWrongKeys = 64
)

// RelayAccess says whether a relay may be used.
type RelayAccess struct {
	Allowed bool // by the config
	Token   bool // a source for its token is configured, or it needs none
}

// Vetting decides which known routes may enter a plan at all. Nothing after it
// adds a route.
type Vetting struct {
	Now    time.Time
	Path   Path
	Pinned bool                   // the peer's key is known: whoever answers must prove it
	Relays map[string]RelayAccess // by URL
	Wrong  WrongKeys
}

// Refusal is a known route that must not be tried, and why not.
type Refusal struct {
	Route Route
	Why   string
}

// Vet returns the routes that may be tried, in their order, each once. Configured
// routes are taken as they are, but for relays and wrong keys. A configured
// route is never ignored for a wrong key when nothing else is left: whoever has
// just repaired the host must not wait, and the reason is told at each try.
func (v Vetting) Vet(known []Route) (vetted []Route, refused []Refusal) {
	discovered := 0
	var last []Route // configured, but ignored
	for _, r := range distinct(known) {
		why := v.refuse(r)
		if why == "" {
			if why = v.wrongKey(r); why != "" && r.Source == Configured {
				last = append(last, r)
			}
		}
		if why == "" && r.Source.discovered() { // one that is ignored takes no place
			if discovered++; discovered > MaxDiscovered {
				why = fmt.Sprintf("%d discovered routes are tried already", MaxDiscovered)
			}
		}
		if why == "" {
			vetted = append(vetted, r)
		} else {
			refused = append(refused, Refusal{r, why})
		}
	}
	if len(vetted) > 0 {
		return vetted, refused
	}
	refused = slices.DeleteFunc(refused, func(f Refusal) bool { return slices.ContainsFunc(last, f.Route.Same) })
	return last, refused
}

// distinct keeps each route once, as configured where it is that too.
func distinct(known []Route) []Route {
	var list []Route
	for _, r := range known {
		switch i := slices.IndexFunc(list, r.Same); {
		case i < 0:
			list = append(list, r)
		case r.Source == Configured:
			list[i].Source = Configured
		}
	}
	return list
}

// refuse says why a route must never be tried as things are; "": it may.
func (v Vetting) refuse(r Route) string {
	if r.Class == Relay {
		switch access := v.Relays[r.Address]; {
		case !access.Allowed:
			return "this relay is not allowed by the config"
		case !access.Token:
			return "no token is configured for this relay"
		}
	}
	if r.Source != Configured && !v.Pinned {
		return "the peer's key is not known: whoever answers there could not prove anything"
	}
	return ""
}

func (v Vetting) wrongKey(r Route) string {
	until := v.Wrong.until(v.Path, r.Address)
	if now := wall(v.Now); now.Before(until) && until.Sub(now) <= WrongKeyFor {
		return fmt.Sprintf("another key answered there: ignored for %s more", until.Sub(now))
	}
	return ""
}

// WrongKeys remembers which addresses showed another key, and on which network:
// elsewhere the same address is another machine. The zero WrongKeys is empty.
type WrongKeys struct {
	list []wrongKey // latest last
}

type wrongKey struct {
	network Network
	address string
	until   time.Time
}

// Note says that an address showed another key on a network.
func (w *WrongKeys) Note(now time.Time, n Network, address string) {
	w.list = slices.DeleteFunc(w.list, func(k wrongKey) bool { return k.address == address && k.network == n })
	w.list = append(w.list, wrongKey{n, address, wall(now).Add(WrongKeyFor)})
	w.list = w.list[max(0, len(w.list)-maxWrongKeys):]
}

// Proved says that an address showed the right key.
func (w *WrongKeys) Proved(n Network, address string) {
	w.list = slices.DeleteFunc(w.list, func(k wrongKey) bool { return k.address == address && (k.network == n || !k.network.Known()) })
}

// Clear forgets all: the user or the config said that something was changed.
func (w *WrongKeys) Clear() { w.list = nil }

// until is when the last ignoring of an address on the networks of p ends.
func (w WrongKeys) until(p Path, address string) time.Time {
	var until time.Time
	for _, k := range w.list {
		here := !k.network.Known() || slices.ContainsFunc(p.Interfaces, func(i Interface) bool { return i.Network == k.network })
		if k.address == address && here && k.until.After(until) {
			until = k.until
		}
	}
	return until
}
