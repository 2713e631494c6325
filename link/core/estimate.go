package core

import "time"

// Time is the time since the link began, on the monotonic clock of this process.
type Time = time.Duration

// rtt estimates the round trip of one carrier (RFC 6298 §2, with the least of the last minute beside it).
type rtt struct {
	srtt, rttvar time.Duration
	// The least sample of the running and of the previous half minute: together they look back 30 to 60 s.
	least, leastBefore time.Duration
	since              Time
}

// leastWindow is half of the minute over which the least round trip is taken (docs/wire.md, Signs of life).
const leastWindow = 30 * time.Second

// sample takes one round trip: d since the write that it is of has returned, all since that began. A busy machine may see the
// return late, so that d is too small; all is not, which is why the least is taken of it.
func (r *rtt) sample(now Time, d, all time.Duration) {
	d = max(d, time.Microsecond)
	all = max(all, d)
	if r.srtt == 0 {
		r.srtt, r.rttvar, r.least, r.leastBefore, r.since = d, d/2, all, all, now
		return
	}
	r.rttvar += ((r.srtt - d).Abs() - r.rttvar) / 4
	r.srtt += (d - r.srtt) / 8
	if now-r.since > leastWindow {
		r.leastBefore, r.least, r.since = r.least, all, now
	}
	r.least = min(r.least, all)
}

// minRTT is the least round trip of the last minute.
func (r *rtt) minRTT() time.Duration { return min(r.least, r.leastBefore) }

// base is B without what lies ahead in the carrier: min(srtt + max(4 × rttvar, 100 ms), 2 × least + 500 ms).
func (r *rtt) base() time.Duration {
	if r.srtt == 0 {
		return unknownRTT
	}
	return min(r.srtt+max(4*r.rttvar, 100*time.Millisecond), 2*r.minRTT()+500*time.Millisecond)
}

// unknownRTT stands in for B before the first sample; a carrier always starts with its handshake's, so it is a floor only
// for tests and for carriers whose handshake was not timed.
const unknownRTT = time.Second

// rate estimates the delivery rate of one carrier in bytes per second: the greatest of the last two windows, as samples
// taken while the app had little to send say too little, never too much.
type rate struct {
	now, before float64
	since       Time
}

// rateWindow is how long a delivery rate is believed: long against a round trip, short against a change of radio.
const rateWindow = 2 * time.Second

func (r *rate) sample(now Time, bytes uint64, took time.Duration) {
	if bytes == 0 || took <= 0 {
		return
	}
	if now-r.since > rateWindow {
		r.before, r.now, r.since = r.now, 0, now
	}
	r.now = max(r.now, float64(bytes)/took.Seconds())
}

// bytesPerSecond is 0 while nothing is known.
func (r *rate) bytesPerSecond() float64 { return max(r.now, r.before) }

// during is how many bytes pass in d.
func (r *rate) during(d time.Duration) int { return int(r.bytesPerSecond() * d.Seconds()) }
