package route

import "time"

// NextRace is when the next race is due if nothing happens, and why; false: none
// is planned. It changes nothing.
func (r *Roam) NextRace(now time.Time) (at time.Time, why string, ok bool) {
	if r.state == sound || r.race != nil || r.halted || !r.link.Exists {
		return time.Time{}, "", false
	}
	return r.again.Next(now, r.link.Held, &r.Budget)
}

// Ranking is the order in which routes would be tried now. It changes nothing.
func (r *Roam) Ranking(now time.Time) []Ranked {
	facts := r.Facts
	facts.Now = now
	list := Rank(facts)
	if len(r.unplaced) > 0 {
		list = r.withUnplaced(list, now)
	}
	return r.pin.pinned(list)
}
