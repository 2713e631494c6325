package core

import "sort"

// Memory lends the buffers that stream bytes live in. Get returns a buffer of at least one and at most n bytes (len is its
// size) for n > 0; Put takes one back that nobody uses any more.
type Memory interface {
	Get(n int) []byte
	Put(b []byte)
}

// sendBuf keeps what an app wrote until the other side acknowledged it: bytes [base, end) of the stream.
type sendBuf struct {
	mem    Memory
	base   uint64 // first byte kept: everything before is acknowledged
	end    uint64 // bytes written so far
	chunks []sendChunk
	first  [1]sendChunk // where chunks begins: a keystroke costs no allocation
	lent   int          // bytes of the last chunk's free tail that are lent to a reader of the app's socket
}

type sendChunk struct {
	off uint64
	n   int // bytes filled
	b   []byte
}

// append copies p behind end.
func (s *sendBuf) append(p []byte) {
	for len(p) > 0 {
		n := copy(s.tail(len(p)), p)
		s.grow(n)
		p = p[n:]
	}
}

// minTail is the least room worth a read of its own where much more is wanted.
const minTail = 4 << 10

// tail returns free room behind end, at least one byte; grow makes it part of the stream.
func (s *sendBuf) tail(want int) []byte {
	if k := len(s.chunks); k > 0 {
		if c := &s.chunks[k-1]; len(c.b)-c.n >= min(want, minTail) {
			return c.b[c.n:]
		}
	}
	if s.chunks == nil {
		s.chunks = s.first[:0]
	}
	s.chunks = append(s.chunks, sendChunk{off: s.end, b: s.mem.Get(want)})
	return s.chunks[len(s.chunks)-1].b
}

func (s *sendBuf) grow(n int) {
	s.chunks[len(s.chunks)-1].n += n
	s.end += uint64(n)
}

// at returns bytes from off on that lie together, at most limit; off must be within [base, end).
func (s *sendBuf) at(off uint64, limit int) []byte {
	i := sort.Search(len(s.chunks), func(i int) bool { return off < s.chunks[i].off+uint64(s.chunks[i].n) })
	if i == len(s.chunks) {
		return nil
	}
	c := &s.chunks[i]
	b := c.b[off-c.off : c.n]
	return b[:min(len(b), limit)]
}

// trim forgets bytes before to.
func (s *sendBuf) trim(to uint64) {
	if to > s.base {
		s.base = min(to, s.end)
		s.sweep()
	}
}

// sweep gives chunks back that hold no byte any more, but the one that is lent.
func (s *sendBuf) sweep() {
	i := 0
	for i < len(s.chunks) && s.chunks[i].off+uint64(s.chunks[i].n) <= s.base && !(s.lent > 0 && i == len(s.chunks)-1) {
		s.mem.Put(s.chunks[i].b)
		s.chunks[i].b = nil
		i++
	}
	if i == len(s.chunks) {
		s.chunks = nil // an idle stream holds nothing
		return
	}
	if i > 0 {
		s.chunks = append(s.chunks[:0], s.chunks[i:]...)
	}
}

// drop forgets everything. A lent tail is left to the garbage collector: its borrower may still write to it.
func (s *sendBuf) drop() {
	for i, c := range s.chunks {
		if s.lent == 0 || i < len(s.chunks)-1 {
			s.mem.Put(c.b)
		}
	}
	s.chunks, s.base = nil, s.end
}

// recvBuf puts a stream's bytes in order: [read, next) lies ready for the app, pieces beyond next wait for the gap to close.
type recvBuf struct {
	mem    Memory
	read   uint64 // bytes the app took
	next   uint64 // bytes received without a gap
	queue  []recvChunk
	first  [1]recvChunk // where queue begins
	lossy  bool         // bytes were dropped that the app had not read
	bulk   bool         // much comes: large buffers become few writes
	peeked bool         // the app holds peeked bytes of what is in queue now
	pieces []piece      // beyond next, sorted, not overlapping, none touching next
}

type recvChunk struct {
	b      []byte
	r, w   int
	pooled bool
}

type piece struct {
	off uint64
	b   []byte
}

// maxPieces bounds the gaps of one stream; a peer that makes more breaks the protocol.
const maxPieces = 1024

// maxPiece is how far adjoining bytes are gathered in one piece.
const maxPiece = 32 << 10

// put takes bytes at off; false: too many gaps. What is there already is skipped.
func (s *recvBuf) put(off uint64, p []byte) bool {
	if off < s.next {
		skip := s.next - off
		if skip >= uint64(len(p)) {
			return true
		}
		off, p = s.next, p[skip:]
	}
	if len(p) == 0 {
		return true
	}
	if off > s.next {
		return s.keep(off, p)
	}
	s.append(p)
	s.join()
	return true
}

// append takes bytes that follow next.
func (s *recvBuf) append(p []byte) {
	s.next += uint64(len(p))
	size := len(p) // also for the rest of a large frame: small buffers in between would become small writes
	if s.bulk {
		size = bulkTurn
	}
	for len(p) > 0 {
		k := len(s.queue)
		if k == 0 || s.queue[k-1].w == len(s.queue[k-1].b) {
			if s.queue == nil {
				s.queue = s.first[:0]
			}
			s.queue = append(s.queue, recvChunk{b: s.mem.Get(size), pooled: true})
			k++
		}
		c := &s.queue[k-1]
		n := copy(c.b[c.w:], p)
		c.w += n
		p = p[n:]
	}
}

// join moves pieces that next has reached to the queue.
func (s *recvBuf) join() {
	i := 0
	for ; i < len(s.pieces) && s.pieces[i].off <= s.next; i++ {
		p := s.pieces[i]
		if skip := s.next - p.off; skip < uint64(len(p.b)) {
			b := p.b[skip:]
			s.next += uint64(len(b))
			s.queue = append(s.queue, recvChunk{b: b, w: len(b)})
		}
	}
	if i > 0 {
		s.pieces = append(s.pieces[:0], s.pieces[i:]...)
		if len(s.pieces) == 0 {
			s.pieces = nil
		}
	}
}

// keep files bytes beyond next, without what neighbouring pieces hold already.
func (s *recvBuf) keep(off uint64, p []byte) bool {
	i := len(s.pieces)
	for i > 0 && s.pieces[i-1].off > off {
		i--
	}
	for len(p) > 0 {
		if i > 0 {
			last := &s.pieces[i-1]
			if end := last.off + uint64(len(last.b)); end > off {
				skip := end - off
				if skip >= uint64(len(p)) {
					return true
				}
				off, p = end, p[skip:]
			}
		}
		n := len(p)
		if i < len(s.pieces) {
			n = min(n, int(s.pieces[i].off-off))
		}
		if n > 0 {
			if !s.insert(i, off, p[:n]) {
				return false
			}
		}
		off, p = off+uint64(n), p[n:]
		// Behind what was just put in (or joined to its neighbour) the next piece follows.
		for i < len(s.pieces) && s.pieces[i].off <= off {
			i++
		}
	}
	return true
}

func (s *recvBuf) insert(i int, off uint64, p []byte) bool {
	if i > 0 {
		last := &s.pieces[i-1]
		if last.off+uint64(len(last.b)) == off && len(last.b)+len(p) <= maxPiece {
			last.b = append(last.b, p...)
			return true
		}
	}
	if len(s.pieces) >= maxPieces {
		return false
	}
	s.pieces = append(s.pieces, piece{})
	copy(s.pieces[i+1:], s.pieces[i:])
	s.pieces[i] = piece{off, append([]byte(nil), p...)}
	return true
}

// peek returns the next bytes for the app that lie together; empty: none ready. They stay valid until discard.
func (s *recvBuf) peek() []byte {
	if len(s.queue) == 0 {
		return nil
	}
	s.peeked = true
	c := &s.queue[0]
	return c.b[c.r:c.w]
}

// discard marks n peeked bytes as read.
func (s *recvBuf) discard(n int) {
	s.peeked = false
	c := &s.queue[0]
	c.r += n
	s.read += uint64(n)
	if c.r < c.w {
		return
	}
	if c.pooled {
		s.mem.Put(c.b)
	}
	s.queue[0] = recvChunk{}
	s.queue = s.queue[1:]
	if len(s.queue) == 0 {
		s.queue = nil // an idle stream holds nothing
	}
}

// flush forgets what lies ready; the app's reader may still hold peeked bytes, so nothing goes back to the pool.
func (s *recvBuf) flush() {
	s.lossy = s.lossy || s.read < s.next
	s.queue, s.read, s.peeked = nil, s.next, false
}

// drop forgets everything, as the direction has ended at final.
func (s *recvBuf) drop(final uint64) {
	s.queue, s.pieces, s.read, s.next, s.peeked = nil, nil, final, final, false
}

// top is the end of the last byte that is held.
func (s *recvBuf) top() uint64 {
	if n := len(s.pieces); n > 0 {
		return s.pieces[n-1].off + uint64(len(s.pieces[n-1].b))
	}
	return s.next
}

// intervals is a set of stream ids that mostly come in ascending order.
type intervals []interval

type interval struct{ lo, hi uint64 } // both inclusive

// maxGaps bounds what a peer can make the set hold (docs/wire.md, stream rules).
const maxGaps = 1024

func (s intervals) has(id uint64) bool {
	for i := len(s) - 1; i >= 0; i-- {
		if id > s[i].hi {
			return false
		}
		if id >= s[i].lo {
			return true
		}
	}
	return false
}

// add puts id in; false: the set would need more than maxGaps gaps.
func (s *intervals) add(id uint64) bool {
	v := *s
	i := len(v)
	for i > 0 && v[i-1].lo > id {
		i--
	}
	if i > 0 && id <= v[i-1].hi {
		return true
	}
	left := i > 0 && v[i-1].hi+1 == id
	right := i < len(v) && id+1 == v[i].lo
	switch {
	case left && right:
		v[i-1].hi = v[i].hi
		v = append(v[:i], v[i+1:]...)
	case left:
		v[i-1].hi = id
	case right:
		v[i].lo = id
	default:
		if len(v) > maxGaps {
			return false
		}
		v = append(v, interval{})
		copy(v[i+1:], v[i:])
		v[i] = interval{id, id}
	}
	*s = v
	return true
}
