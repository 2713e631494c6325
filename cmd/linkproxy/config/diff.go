package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// Change says what a new config changes. What is unchanged keeps its sockets
// and streams; what is changed keeps them too, and only new connections follow
// the new values. Sockets of what is removed are closed before those of what is
// added are opened: a port may have moved from one to the other.
type Change struct {
	Listeners Delta[Listener] // by address; changed: what is spoken there
	Forwards  Delta[Forward]  // by listening address
	Peers     Delta[Peer]     // by id, so that a renamed peer keeps its link; by name where agent = false

	Users bool // who may log in at the listeners
	Wait  bool
	Names bool // what Names.Resolve answers: peers' names, reach rules, default

	HostListen bool
	HostAllow  bool
}

// Delta tells two lists of things apart by their identity.
type Delta[T any] struct {
	Added, Removed, Unchanged []T
	Changed                   []Pair[T]
}

// Pair is a thing before and after.
type Pair[T any] struct{ Old, New T }

// Empty tells whether nothing is to be done.
func (d Delta[T]) Empty() bool {
	return len(d.Added) == 0 && len(d.Removed) == 0 && len(d.Changed) == 0
}

// Empty tells whether nothing is to be done.
func (c Change) Empty() bool {
	return c.Listeners.Empty() && c.Forwards.Empty() && c.Peers.Empty() &&
		!c.Users && !c.Wait && !c.Names && !c.HostListen && !c.HostAllow
}

// Diff compares two valid configs; a nil one has nothing in it (but the
// defaults that are not sockets). Order matters only where it decides: among a
// peer's routes, and among reach rules.
func Diff(old, new *Config) Change {
	o, n := cmp.Or(old, &Config{}), cmp.Or(new, &Config{})
	return Change{
		Listeners:  delta(o.Listeners(), n.Listeners(), func(l Listener) string { return l.Address }),
		Forwards:   delta(o.Forwards, n.Forwards, func(f Forward) string { return f.Listen }),
		Peers:      delta(o.Peers, n.Peers, Peer.identity),
		Users:      !maps.Equal(o.Listen.Users, n.Listen.Users),
		Wait:       o.Listen.Wait != n.Listen.Wait,
		Names:      !reflect.DeepEqual(o.Names(), n.Names()),
		HostListen: o.Host.Listen != n.Host.Listen,
		HostAllow:  !sameRules(o.Host.Allow, n.Host.Allow),
	}
}

// identity tells peers apart: by their keys, and those that have none by their names.
func (p Peer) identity() string {
	if p.NoAgent {
		return "no agent: " + p.Name
	}
	return p.ID.String()
}

// delta compares two lists whose members are told apart by key. Of several
// with one key (port 0) each is matched in turn.
func delta[T any](old, new []T, key func(T) string) Delta[T] {
	var d Delta[T]
	was := map[string][]T{}
	for _, o := range old {
		was[key(o)] = append(was[key(o)], o)
	}
	kept := map[string]int{}
	for _, n := range new {
		k := key(n)
		if kept[k] == len(was[k]) {
			d.Added = append(d.Added, n)
			continue
		}
		o := was[k][kept[k]]
		kept[k]++
		if reflect.DeepEqual(o, n) {
			d.Unchanged = append(d.Unchanged, n)
		} else {
			d.Changed = append(d.Changed, Pair[T]{o, n})
		}
	}
	for _, o := range old {
		if k := key(o); kept[k] > 0 {
			kept[k]--
		} else {
			d.Removed = append(d.Removed, o)
		}
	}
	return d
}

// sameRules compares allow rules, whose order means nothing.
func sameRules(a, b []Allow) bool {
	order := func(x, y Allow) int { return cmp.Or(cmp.Compare(x.To, y.To), cmp.Compare(x.Hold, y.Hold)) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}
