package lab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// gapFloor is from which time without an arrival on a gap is kept: far below anything that a goal speaks of.
const gapFloor = 2 * time.Millisecond

// gap is a time in which nothing came.
type gap struct{ from, to time.Duration }

// recorder notes when bytes arrive at one end of one app's connection; times count from the start of the scenario. It says
// nothing about their worth, which streamcheck does.
type recorder struct {
	start  time.Time
	bucket time.Duration

	mu    sync.Mutex // guards the following
	first time.Duration
	last  time.Duration
	any   bool
	gaps  []gap
	bytes []int64 // by bucket
}

func newRecorder(start time.Time, bucket time.Duration) *recorder {
	return &recorder{start: start, bucket: bucket}
}

func (r *recorder) note(n int) {
	now := time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.any && now-r.last > gapFloor {
		r.gaps = append(r.gaps, gap{r.last, now})
	}
	if !r.any {
		r.first = now
	}
	r.any, r.last = true, now
	i := int(now / r.bucket)
	for len(r.bytes) <= i {
		r.bytes = append(r.bytes, 0)
	}
	r.bytes[i] += int64(n)
}

// slack is how long before an event the last arrival may lie and still count as the beginning of its stall: a tick.
const slack = 25 * time.Millisecond

// stall is the longest time between from and to in which nothing came. A gap that began well before from counts from there,
// one that lasts until to counts up to there.
func (r *recorder) stall(from, to time.Duration) (worst time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := func(g gap) {
		if g.from < from-slack {
			g.from = from
		}
		worst = max(worst, min(g.to, to)-g.from)
	}
	for i := len(r.gaps) - 1; i >= 0 && r.gaps[i].to > from; i-- {
		if r.gaps[i].from < to {
			count(r.gaps[i])
		}
	}
	if last := r.last; r.any && last < to {
		count(gap{last, to})
	}
	return worst
}

// firstAt is when the first byte came; never, if none has.
func (r *recorder) firstAt(never time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.any {
		return never
	}
	return r.first
}

// longest lists the gaps of at least floor, as pairs of times.
func (r *recorder) longest(floor time.Duration) (list []gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.gaps {
		if g.to-g.from >= floor {
			list = append(list, g)
		}
	}
	return list
}

// came is how many bytes came from from to to, to the bucket.
func (r *recorder) came(from, to time.Duration) (sum int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := int(from / r.bucket); i < len(r.bytes) && time.Duration(i)*r.bucket < to; i++ {
		sum += r.bytes[i]
	}
	return sum
}

// series is the bytes of each bucket.
func (r *recorder) series() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64(nil), r.bytes...)
}

// recorded is a connection whose reads are noted.
type recorded struct {
	net.Conn
	r *recorder
}

func (c *recorded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.r.note(n)
	}
	return n, trueEnd(c.Conn, err)
}

// trueEnd finds the resets among the ends: a kernel tells of a reset once, and if a write was told, a read sees an end.
func trueEnd(c net.Conn, err error) error {
	if errors.Is(err, io.EOF) && wasReset(c) {
		return syscall.ECONNRESET
	}
	return err
}

// CloseWrite passes a half-close on.
func (c *recorded) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// arriving is a connection that reaches the target. Which app it is of shows the seed in its first line.
type arriving struct {
	net.Conn
	find func(seed uint64) *recorder
	head []byte
	r    *recorder
}

// CloseWrite passes a half-close on.
func (c *arriving) CloseWrite() error { return closeWrite(c.Conn) }

var seedField = regexp.MustCompile(`"seed":(\d+)`)

func (c *arriving) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case n == 0:
	case c.r != nil:
		c.r.note(n)
	case len(c.head) < 4<<10: // no first line of streamcheck's is longer
		c.head = append(c.head, p[:n]...)
		if m := seedField.FindSubmatch(c.head); m != nil && bytes.IndexByte(c.head, '\n') >= 0 {
			seed, _ := strconv.ParseUint(string(m[1]), 10, 64) // digits; too many of them are nobody's seed
			c.r = c.find(seed)
			c.r.note(n)
		}
	}
	return n, trueEnd(c.Conn, err)
}

// Freezes are the times in which the machine itself stood still, as a timer of this process saw it.
type Freezes struct {
	Total, Longest time.Duration
}

const (
	freezeTick  = 5 * time.Millisecond
	freezeFloor = 20 * time.Millisecond // what a timer may be late on a machine that has time
	// freezeMost is from which freeze on nothing that was late is held against the product.
	freezeMost = 100 * time.Millisecond
)

// watchFreezes measures until ctx ends.
func watchFreezes(ctx context.Context) (f Freezes) {
	tick := time.NewTicker(freezeTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return f
		case <-tick.C:
		}
		now := time.Now()
		if late := now.Sub(last) - freezeTick; late > freezeFloor {
			f.Total += late
			f.Longest = max(f.Longest, late)
		}
		last = now
	}
}
