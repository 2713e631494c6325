package dialer

import (
	"slices"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// bulkFor is how long after somebody last conversed beside bulk the carrier for bulk is kept.
const bulkFor = 60 * time.Second

// The pace of dials for it: it is a comfort, no need.
const (
	seekMin = 5 * time.Second
	seekMax = 60 * time.Second
)

// seek paces the dials for the carrier for bulk.
type seek struct {
	next  time.Time     // not before
	delay time.Duration // after the next failure
}

// reset makes the next dial due at once, because facts have changed.
func (s *seek) reset() { *s = seek{} }

// failed notes the end of a dial.
func (s *seek) failed(now time.Time, failed bool) {
	if !failed {
		s.delay = 0
	}
	s.delay = max(s.delay, seekMin)
	s.next = now.Add(s.delay)
	if failed {
		s.delay = min(2*s.delay, seekMax)
	}
}

// tendBulk looks after the carrier for bulk: one that runs beside the carrier in use, over the same route, for as long as
// somebody converses beside bulk. The link leaves it with the next switch by itself.
func (p *peer) tendBulk(now time.Time, st link.Status, wake *alarm) {
	in := activeOf(st)
	if p.client == nil || p.state != up || p.race != nil || p.moves > 0 || in.Suspect {
		return // whoever is at work owns the carriers, or another is about to take over
	}
	gen := uint64(0)
	for _, c := range st.Carriers {
		switch {
		case !c.Attached || !c.Bulk || c.Draining:
		case c.Name != in.Name: // the link has moved while it was dialled
			p.client.Drop(c.Gen)
		default:
			gen = c.Gen
		}
	}
	until := st.At(st.BesideAt).Add(bulkFor)
	wanted := st.WantsBulk && until.After(now)
	switch {
	case gen != 0 && wanted:
		wake.add(until)
	case gen != 0:
		p.client.Drop(gen)
	case wanted:
		p.seekBulk(now, in, wake)
	}
}

// seekBulk dials the route in use once more.
func (p *peer) seekBulk(now time.Time, in link.CarrierStatus, wake *alarm) {
	to, ok := p.known[in.Name]
	if !ok || !slices.ContainsFunc(p.roam.Facts.Routes, to.Same) {
		return
	}
	if p.bulk.next.After(now) {
		wake.add(p.bulk.next)
		return
	}
	if !p.roam.Budget.TakeSpare(now) {
		wake.add(p.roam.Budget.ReadySpare(now))
		return
	}
	p.log.Debug("dialling for a carrier for bulk", "route", in.Name)
	p.single(now, to, true, func(now time.Time, a *attempt, ev route.Event) {
		if e, ended := ev.(route.Ended); ended && e.Outcome == route.NoRoute {
			p.roam.Budget.Refund(now)
		}
		p.bulk.failed(now, a.record.Outcome != route.Won)
	})
}
