package netns

import "time"

// Limits of what one direction holds on its way.
const (
	ringBytes  = 64 << 20 // half a second of 1 Gbit/s
	ringFrames = 1 << 17
	maxFrame   = 66 << 10 // the largest offloaded frame: 64 KiB of IP, Ethernet header, offload header
)

// ring is a queue of frames, each with its time of arrival. Frames lie one after the other in data, never torn, so that
// they are read from one interface and written to the other in place.
type ring struct {
	data  []byte
	slots []slot
	head  int // of slots, counting up; the place is modulo ringFrames
	tail  int
}

type slot struct {
	due    time.Duration
	off, n int
}

// space is where the next frame goes, maxFrame long; nil: the ring is full.
func (r *ring) space() []byte {
	off, ok := r.place()
	if !ok {
		return nil
	}
	return r.data[off : off+maxFrame : off+maxFrame]
}

func (r *ring) place() (off int, ok bool) {
	if r.head == r.tail {
		return 0, true // from the start again: little traffic touches little memory
	}
	if r.tail-r.head == ringFrames {
		return 0, false
	}
	first, last := r.slots[r.head%ringFrames].off, r.slots[(r.tail-1)%ringFrames]
	end := last.off + last.n
	switch {
	case last.off < first: // wrapped around
		return end, end+maxFrame <= first
	case end+maxFrame <= len(r.data):
		return end, true
	}
	return 0, maxFrame <= first
}

// push queues the frame of n bytes that was put into space.
func (r *ring) push(n int, due time.Duration) {
	off, _ := r.place()
	r.slots[r.tail%ringFrames] = slot{due, off, n}
	r.tail++
}

// due is when the first frame arrives; false: there is none.
func (r *ring) due() (time.Duration, bool) {
	if r.head == r.tail {
		return 0, false
	}
	return r.slots[r.head%ringFrames].due, true
}

// pop takes the first frame; it stays valid until the next push.
func (r *ring) pop() []byte {
	s := r.slots[r.head%ringFrames]
	r.head++
	return r.data[s.off : s.off+s.n]
}

// drop forgets all frames and says how many.
func (r *ring) drop() (n int64) {
	n = int64(r.tail - r.head)
	r.head = r.tail
	return n
}
