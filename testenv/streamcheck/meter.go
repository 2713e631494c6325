package streamcheck

import "time"

// meter keeps the times of one direction.
type meter struct {
	w     *Way
	start time.Time
	since time.Time // the arrival of the last byte, or the end of a pause of the reader's own; zero before the first
	each  bool      // list arrivals
}

func newMeter(w *Way, start time.Time, f Flow, each bool) *meter {
	w.Bucket, w.StallFloor = firstBucket, max(stallFloor, 2*f.Every)
	return &meter{w: w, start: start, each: each}
}

// arrived notes n bytes that came at now.
func (m *meter) arrived(now time.Time, n int) {
	at := now.Sub(m.start)
	if m.since.IsZero() {
		m.w.First = at
	}
	gap := m.gap(now)
	m.since, m.w.Last = now, at
	m.w.Received += int64(n)
	if m.each && len(m.w.Arrivals) < mostTrips {
		m.w.Arrivals = append(m.w.Arrivals, at)
	}
	i := int(at / m.w.Bucket)
	for i >= mostBuckets {
		m.widen()
		i = int(at / m.w.Bucket)
	}
	for len(m.w.Goodput) <= i {
		m.w.Goodput = append(m.w.Goodput, 0)
		m.w.Worst = append(m.w.Worst, 0)
	}
	m.w.Goodput[i] += int64(n)
	m.w.Worst[i] = max(m.w.Worst[i], gap)
}

// gap notes that nothing came until now, and returns since when.
func (m *meter) gap(now time.Time) time.Duration {
	if m.since.IsZero() {
		return 0
	}
	s := Span{At: m.since.Sub(m.start), For: now.Sub(m.since)}
	if s.For > m.w.Longest.For {
		m.w.Longest = s
	}
	if s.For <= m.w.StallFloor {
		return s.For
	}
	m.w.StallCount++
	m.w.StallTime += s.For
	if len(m.w.Stalls) < mostStalls {
		m.w.Stalls = append(m.w.Stalls, s)
	}
	return s.For
}

// paused notes that the reader did not want to read until now: no stall of the connection.
func (m *meter) paused(now time.Time) {
	if !m.since.IsZero() {
		m.since = now
	}
}

// widen makes one bucket of two.
func (m *meter) widen() {
	g, w := m.w.Goodput, m.w.Worst
	n := (len(g) + 1) / 2
	goodput, worst := make([]int64, n, mostBuckets), make([]time.Duration, n, mostBuckets)
	for i := range g {
		goodput[i/2] += g[i]
		worst[i/2] = max(worst[i/2], w[i])
	}
	m.w.Goodput, m.w.Worst, m.w.Bucket = goodput, worst, 2*m.w.Bucket
}
