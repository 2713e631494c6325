package testenv

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// outages is a timetable of silence, known in advance: what is sent during an outage leaves at its end. It needs no timer,
// as it says of any time whether that is in an outage. The nil table is empty.
type outages struct {
	rnd   *rand.Rand
	share float64
	mean  time.Duration
	until time.Time // the end of the last outage made
	list  []outage
	note  func(from time.Time, d time.Duration)
}

type outage struct{ from, to time.Time }

// mostOutages bounds the list: older ones are dropped by halves.
const mostOutages = 8192

// clear is the first time from t on that is in no outage.
func (o *outages) clear(t time.Time) time.Time {
	if o == nil {
		return t
	}
	for !o.until.After(t) {
		o.add()
	}
	i := sort.Search(len(o.list), func(i int) bool { return o.list[i].to.After(t) })
	if i < len(o.list) && !o.list[i].from.After(t) {
		return o.list[i].to
	}
	return t
}

// add makes the next outage: lengths and gaps lie between half their mean and one and a half.
func (o *outages) add() {
	spread := func(mean float64) time.Duration { return time.Duration(mean * (0.5 + o.rnd.Float64())) }
	from := o.until.Add(spread(float64(o.mean) * (1 - o.share) / o.share))
	d := max(1, spread(float64(o.mean)))
	o.until = from.Add(d)
	o.list = append(o.list, outage{from, o.until})
	if len(o.list) > mostOutages {
		o.list = slices.Clone(o.list[mostOutages/2:])
	}
	o.note(from, d)
}
