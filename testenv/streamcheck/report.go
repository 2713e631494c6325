package streamcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stallFloor is from which gap between two arrivals on a gap is listed as a stall: a user begins to notice.
const stallFloor = 50 * time.Millisecond

const (
	firstBucket = 100 * time.Millisecond // the width of goodput's buckets
	mostBuckets = 6000                   // beyond it, two buckets become one of twice the width: ten minutes of 100 ms
	mostFaults  = 32                     // faults listed, of those counted
	mostStalls  = 4096                   // stalls listed, of those counted
	mostTrips   = 100_000                // round trips and arrivals listed
)

// How a direction ended, as its reader saw it.
const (
	EndClean     = "clean"     // the end mark came, and after it EOF or the end of the run
	EndEarly     = "early"     // EOF came before the end mark: somebody cut the stream and told nobody
	EndReset     = "reset"     // ECONNRESET, or an error that says it stands for one
	EndError     = "error"     // another error
	EndCancelled = "cancelled" // the run was given up from this side
	EndUnknown   = ""          // its reader has not reported
)

// Report is what one run saw. A client's report knows both directions when the run ended well, as the server sends its
// half at the end; else [Report.Merge] joins what both ends saw.
type Report struct {
	Plan  Plan          `json:"plan"`
	Start time.Time     `json:"start"` // when the plan was sent, or read; all times below count from it
	Took  time.Duration `json:"took"`
	Up    Way           `json:"up"`   // client to server
	Down  Way           `json:"down"` // server to client
	// Trips are the round trips of [Keys] and [Idle], in the order of sending.
	Trips []Span `json:"trips,omitempty"`
	// Err is the error that ended the run, in words; empty when it ended as planned.
	Err string `json:"err,omitempty"`
}

// Way is one direction.
type Way struct {
	Sent     int64  `json:"sent"`     // bytes that writes took
	Received int64  `json:"received"` // bytes that reads gave
	Verified int64  `json:"verified"` // bytes that came and were right, each counted once
	End      string `json:"end"`

	// Lost bytes never came though later ones did, or the stream ended as if they had not been sent. Repeated ones came
	// again. Swapped ones came after later ones. Changed ones had another value.
	Lost     int64   `json:"lost"`
	Repeated int64   `json:"repeated"`
	Swapped  int64   `json:"swapped"`
	Changed  int64   `json:"changed"`
	Faults   []Fault `json:"faults,omitempty"` // the first 32, in the order of appearance

	First   time.Duration `json:"first"` // arrival of the first byte
	Last    time.Duration `json:"last"`  // arrival of the last
	Longest Span          `json:"longest"`
	// Stalls are the gaps between arrivals over StallFloor: 50 ms, or twice the pace of a slower sender. The first 4096.
	Stalls     []Span        `json:"stalls,omitempty"`
	StallFloor time.Duration `json:"stall_floor"`
	StallCount int           `json:"stall_count"`
	StallTime  time.Duration `json:"stall_time"` // sum of all
	// Goodput is the bytes that came in each Bucket of time since Start.
	Bucket  time.Duration `json:"bucket"`
	Goodput []int64       `json:"goodput,omitempty"`
	// Worst is the longest gap, of any length, that ended in each of these buckets.
	Worst []time.Duration `json:"worst,omitempty"`
	// Arrivals are the times of the reads of a [Plan] that asks for them: the first 100 000.
	Arrivals []time.Duration `json:"arrivals,omitempty"`
}

// Fault is one place where a direction went wrong.
type Fault struct {
	Kind   string        `json:"kind"`   // lost, repeated, swapped, changed or foreign (bytes of another stream)
	Offset int64         `json:"offset"` // position in the sequence
	Bytes  int64         `json:"bytes"`
	At     time.Duration `json:"at"`
}

// Kinds of faults.
const (
	Lost     = "lost"
	Repeated = "repeated"
	Swapped  = "swapped"
	Changed  = "changed"
	Foreign  = "foreign"
)

// Span is a stall, counted from the last byte before it, or a round trip, from the sending.
type Span struct {
	At  time.Duration `json:"at"`
	For time.Duration `json:"for"`
}

// Intact says that every byte that came was right, in order, once, and that none is missing before one that came.
func (w *Way) Intact() bool {
	return len(w.Faults) == 0 && w.Lost+w.Repeated+w.Swapped+w.Changed == 0
}

// Whole says that the direction is intact and ended with all bytes.
func (w *Way) Whole() bool { return w.Intact() && w.End == EndClean }

// Rate is the mean in bytes a second from the start of the run until the last byte.
func (w *Way) Rate() float64 {
	if w.Last <= 0 {
		return 0
	}
	return float64(w.Verified) / w.Last.Seconds()
}

// Intact says that both directions are, as far as is known: see [Report.Merge].
func (r *Report) Intact() bool { return r.Up.Intact() && r.Down.Intact() }

// Whole says that both directions are: the run went as planned.
func (r *Report) Whole() bool { return r.Up.Whole() && r.Down.Whole() }

// Trip is the round trip that the share q (0 to 1) of all do not exceed; 0 without any.
func (r *Report) Trip(q float64) time.Duration {
	if len(r.Trips) == 0 {
		return 0
	}
	var all []time.Duration
	for _, t := range r.Trips {
		all = append(all, t.For)
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// Stall is the longest time within [from, to) in which nothing came: to the nanosecond if it is one of Stalls, and else
// as the buckets show it.
func (w *Way) Stall(from, to time.Duration) (longest time.Duration) {
	for _, s := range w.Stalls {
		longest = max(longest, min(to, s.At+s.For)-max(from, s.At))
	}
	for i, d := range w.Worst {
		if end := time.Duration(i) * w.Bucket; end >= from && end < to && d <= w.floor() {
			longest = max(longest, d)
		}
	}
	return longest
}

// floor is up to which length gaps are not among Stalls.
func (w *Way) floor() time.Duration {
	if len(w.Stalls) < w.StallCount || w.StallFloor == 0 {
		return 1<<63 - 1
	}
	return w.StallFloor
}

// Bytes is how many came within [from, to), to the bucket.
func (w *Way) Bytes(from, to time.Duration) (n int64) {
	for i, b := range w.Goodput {
		if at := time.Duration(i) * w.Bucket; at >= from && at < to {
			n += b
		}
	}
	return n
}

// Merge joins a client's report with that of its server: each direction as its reader saw it.
func (r *Report) Merge(server Report) {
	sent, up := r.Up.Sent, server.Up
	r.Up = up
	r.Up.Sent = sent
	r.Down.Sent = server.Down.Sent
	r.settle()
}

// settle counts what was sent and is missing at an end that looked like one.
func (r *Report) settle() {
	for _, w := range []*Way{&r.Up, &r.Down} {
		have := w.Verified + w.Lost
		if w.End == EndEarly && w.Sent > have {
			w.fault(Fault{Kind: Lost, Offset: have, Bytes: w.Sent - have, At: w.Last})
			w.Lost += w.Sent - have
		}
	}
}

// String is the report in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, seed %d, %s", r.Plan.Kind, r.Plan.Seed, r.Took.Round(time.Millisecond))
	if r.Err != "" {
		fmt.Fprintf(&b, ", %s", r.Err)
	}
	for _, d := range []struct {
		name string
		w    *Way
	}{{"up", &r.Up}, {"down", &r.Down}} {
		fmt.Fprintf(&b, "\n%-4s %s", d.name, d.w)
	}
	if len(r.Trips) > 0 {
		fmt.Fprintf(&b, "\n%d answers: median %s, 99 %% %s, longest %s",
			len(r.Trips), r.Trip(0.5), r.Trip(0.99), r.Trip(1))
	}
	return b.String()
}

func (w *Way) String() string {
	if w.End == EndClean && w.Sent == 0 && w.Intact() {
		return "nothing"
	}
	if w.End == EndUnknown {
		return fmt.Sprintf("sent %d B; the other end has not reported", w.Sent)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sent %d B, verified %d B (%.1f MB/s), end %s; longest stall %s at %s, %d stalls, together %s",
		w.Sent, w.Verified, w.Rate()/1e6, w.End, w.Longest.For, w.Longest.At, w.StallCount, w.StallTime)
	if !w.Intact() {
		fmt.Fprintf(&b, "; LOST %d, REPEATED %d, SWAPPED %d, CHANGED %d", w.Lost, w.Repeated, w.Swapped, w.Changed)
	}
	for _, f := range w.Faults {
		fmt.Fprintf(&b, "\n       at %s: %d B %s at byte %d", f.At, f.Bytes, f.Kind, f.Offset)
	}
	return b.String()
}

// fault lists f and returns its index, −1 when the list is full.
func (w *Way) fault(f Fault) int {
	if len(w.Faults) >= mostFaults {
		return -1
	}
	w.Faults = append(w.Faults, f)
	return len(w.Faults) - 1
}
