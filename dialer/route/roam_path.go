package route

import (
	"fmt"
	"slices"
	"time"
)

// The numbers of a change of the path.
const (
	// PathDebounce is how long changes are collected while a carrier works: an
	// interface comes with its addresses one by one.
	PathDebounce = 250 * time.Millisecond
	// PathFloor is the least time between two races for it while a carrier works:
	// an interface may flap.
	PathFloor = 3 * time.Second
	// ClaimTime is how long after a change the first find of a better class still
	// belongs to it: discovery takes some seconds on a new network.
	ClaimTime = 30 * time.Second
	// AbsentLimit is how long a carrier is kept whose own address is gone: sockets
	// survive the renewal of a lease.
	AbsentLimit = 3 * time.Second
)

func (e PathChanged) happen(r *Roam, now time.Time) {
	old := r.Facts.Path
	r.Facts.Path = e.Path
	r.ranked = nil
	what := old.difference(e.Path)
	first := !r.told && len(old.Interfaces) == 0
	r.told = true
	if what == "" {
		return
	}
	if first {
		r.place(now) // not a change, but the first word about it
		return
	}
	r.changed, r.claim = now, now.Add(ClaimTime)
	clear(r.unplaced)
	r.place(now)
	r.acquit("its address left this machine", func(a appeal) bool { return a.placed && !e.Path.Has(a.carrier.Local) })
	r.refresh()
	r.weigh(now)
	if r.state == sound {
		if r.pathDue.IsZero() {
			r.pathDue = now
		}
	} else if r.link.Exists {
		r.again.Changed(now, "the network path")
	}
	r.joinFull(now, "the network path changed: "+what)
}

// place notes which carriers still have their address.
func (r *Roam) place(now time.Time) {
	for _, c := range r.carriers {
		_, on := r.Facts.Path.of(c.Local)
		switch {
		case on:
			c.placed, c.adrift = true, time.Time{}
		case c.placed && !r.Facts.Path.Has(c.Local) && c.adrift.IsZero():
			c.adrift = now
		}
	}
}

// difference says what a path has that the other has not, as far as it matters:
// usable interfaces, their addresses and which has the default route, and, where
// the router is known both times, that it is another one. Whether bytes cost
// money flaps, and changes nothing by itself.
func (p Path) difference(o Path) string {
	for _, i := range o.Interfaces {
		was, ok := p.named(i.Name)
		switch {
		case !ok:
			return i.Name + " came"
		case !sameAddrs(was, i):
			return "the addresses of " + i.Name + " changed"
		case was.Default != i.Default:
			return "the default route of " + i.Name + " changed"
		case was.Network.Router != "" && i.Network.Router != "" && was.Network.Router != i.Network.Router:
			return i.Name + " is on another network"
		case was.Kind != i.Kind:
			return i.Name + " is something else now"
		}
	}
	for _, i := range p.Interfaces {
		if _, ok := o.named(i.Name); !ok {
			return i.Name + " left"
		}
	}
	if p.Tailnet != o.Tailnet {
		return "the tailnet changed"
	}
	return ""
}

func (p Path) named(name string) (Interface, bool) {
	i := slices.IndexFunc(p.Interfaces, func(i Interface) bool { return i.Name == name })
	if i < 0 {
		return Interface{}, false
	}
	return p.Interfaces[i], true
}

func sameAddrs(a, b Interface) bool {
	if len(a.Addrs) != len(b.Addrs) {
		return false
	}
	for _, x := range a.Addrs {
		if !slices.Contains(b.Addrs, x) {
			return false
		}
	}
	return true
}

// replaceByPath runs the race that a change of the path asks for while a carrier
// works. With no stream open it waits for one: nobody would notice the gain.
func (r *Roam) replaceByPath(now time.Time) {
	if r.pathDue.IsZero() || !r.free() || r.link.Streams == 0 {
		return
	}
	at := r.pathDue.Add(PathDebounce)
	if !r.pathRace.IsZero() {
		at = later(at, r.pathRace.Add(PathFloor))
	}
	if now.Before(at) {
		r.wakeAt(at)
		return
	}
	plan := r.ranking()
	if len(plan) == 0 {
		return
	}
	since := now.Sub(r.pathDue)
	r.pathRace = now
	r.start(now, StartRace{Trigger: ForPath, Plan: plan, Why: fmt.Sprintf("interfaces or addresses changed %s ago", since)})
}

// flee leaves a carrier whose address is gone if another is attached.
func (r *Roam) flee() {
	in := r.inUse()
	if in == nil || in.adrift.IsZero() || r.moving != 0 {
		return
	}
	if best := r.bestOther(in, false); best != nil {
		r.order(errand{id: best.ID}, fmt.Sprintf("%s left this machine", in.Local))
	}
}

// abandon closes carriers whose address does not come back.
func (r *Roam) abandon(now time.Time) {
	for _, c := range r.carriers {
		if c.adrift.IsZero() || c.dropped {
			continue
		}
		if due := c.adrift.Add(AbsentLimit); now.Before(due) {
			r.wakeAt(due)
		} else {
			r.drop(c, fmt.Sprintf("%s has been gone for %s", c.Local, AbsentLimit))
		}
	}
	r.weigh(now)
}
