package dialer

import (
	"slices"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// bulkFor is how long after somebody last conversed beside bulk the carrier for bulk is kept.
const bulkFor = 60 * time.Second

// tendBulk looks after the carrier for bulk: one that runs beside the carrier in use, over the same route, for as long as
// somebody converses beside bulk. The link leaves it with the next switch by itself.
func (p *peer) tendBulk(now time.Time, st link.Status, in link.CarrierStatus, wake *alarm) {
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
	i := slices.IndexFunc(p.conf.Routes, func(r route.Route) bool { return r.ID() == in.Name })
	if i < 0 {
		return
	}
	if p.bulk.next.After(now) {
		wake.add(p.bulk.next)
		return
	}
	if !p.budget.TakeSpare(now) {
		wake.add(p.budget.ReadySpare(now))
		return
	}
	p.log.Debug("dialling for a carrier for bulk", "route", in.Name)
	p.single(now, p.conf.Routes[i], true, func(now time.Time, a *attempt, ev route.Event) {
		if e, ended := ev.(route.Ended); ended && e.Outcome == route.NoRoute {
			p.budget.Refund(now)
		}
		p.bulk.failed(now, a.record.Outcome != route.Won)
	})
}
