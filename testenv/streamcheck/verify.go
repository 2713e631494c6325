package streamcheck

import (
	"encoding/binary"
	"slices"
	"time"
)

const (
	// window is how many bytes are looked at together to find out where in the sequence the reader is: up to two words that
	// were right, the rest of one, two whole ones or an end mark, and room for changed bytes before them.
	window = 80
	// mostGaps bounds the missing pieces remembered; what comes late for an older one counts as repeated.
	mostGaps = 256
)

// hole is a missing piece of the sequence, [from, to), and the fault that tells of it, −1 = none.
type hole struct {
	from, to int64
	fault    int
}

// verifier compares what comes with the sequence of key.
type verifier struct {
	key  uint64
	w    *Way
	pos  int64 // where in the sequence the next byte should be from
	high int64 // all below has come, but for gaps
	gaps []hole
	// pending begins at a word of the sequence that holds the first wrong byte; matched is how much of it was right.
	pending []byte
	matched int
	foreign bool
	ended   bool
	tail    []byte // what came after the end mark
}

// take verifies p, which came at at.
func (v *verifier) take(p []byte, at time.Duration) {
	for len(p) > 0 {
		if v.ended {
			v.tail = append(v.tail, p...)
			return
		}
		if v.pending == nil {
			n := match(p, v.key, v.pos)
			v.advance(int64(n), at)
			if p = p[n:]; len(p) == 0 {
				return
			}
			v.suspect()
		}
		n := min(len(p), window-len(v.pending))
		v.pending = append(v.pending, p[:n]...)
		p = p[n:]
		v.resync(at)
	}
}

// suspect starts pending with the right bytes of the word that the next byte is of, and the word before: the first bytes
// of what is wrong may have looked right.
func (v *verifier) suspect() {
	v.matched = int(v.pos % word)
	if v.pos >= word {
		v.matched += word
	}
	v.pending = make([]byte, v.matched, window)
	fill(v.pending, v.key, v.pos-int64(v.matched))
}

// resync finds out from where in the sequence pending is, or waits for more.
func (v *verifier) resync(at time.Duration) {
	for j := 0; j+2*word <= len(v.pending); j++ {
		if total, ok := isEndMark(v.pending[j:], v.key); ok {
			v.last(j, total, at)
			return
		}
		w := binary.LittleEndian.Uint64(v.pending[j:])
		if binary.LittleEndian.Uint64(v.pending[j+word:])-w != step {
			continue
		}
		if pos, ok := where(v.key, w); ok {
			rest := v.jump(j, pos, at)
			v.take(rest, at)
			return
		}
		v.foreign = true
	}
	if len(v.pending) == window {
		v.junk(window-markSize, at)
		v.pending = v.pending[window-markSize:]
	}
}

// jump says that pending[j:] is the sequence from pos on, and returns what of it is still to be verified. Bytes that were
// right before the jump and are after it, too, stay where they were counted.
func (v *verifier) jump(j int, pos int64, at time.Duration) []byte {
	shift := pos - int64(j) - (v.pos - int64(v.matched)) // how far the sequence has moved on
	splice := max(j, v.matched)
	for shift != 0 && splice > v.matched && v.pending[splice-1] == byteAt(v.key, pos-int64(j-splice)-1) {
		splice--
	}
	v.junk(splice, at)
	rest := v.pending[splice:]
	v.pending, v.matched, v.foreign = nil, 0, false
	if shift != 0 {
		v.move(v.pos+shift, at)
	}
	return rest
}

// junk takes pending[matched:n] for what should be there, and counts the bytes that are not.
func (v *verifier) junk(n int, at time.Duration) {
	from, wrong := v.pos, int64(0)
	first := int64(-1)
	for i := v.matched; i < n; i++ {
		if v.pending[i] == byteAt(v.key, v.pos) {
			v.advance(1, at)
			continue
		}
		if first < 0 {
			first = v.pos
		}
		wrong++
		v.pos++
		v.high = max(v.high, v.pos)
	}
	v.matched = max(0, v.matched-n)
	if wrong == 0 {
		return
	}
	v.w.Changed += wrong
	kind := Changed
	if v.foreign {
		kind = Foreign
	}
	if i := len(v.w.Faults) - 1; i >= 0 && v.w.Faults[i].Kind == kind && v.w.Faults[i].Offset+v.w.Faults[i].Bytes == from {
		v.w.Faults[i].Bytes += v.pos - from
		return
	}
	v.w.fault(Fault{Kind: kind, Offset: first, Bytes: wrong, At: at})
}

// move goes on at to.
func (v *verifier) move(to int64, at time.Duration) {
	switch {
	case to > v.high && to-v.high < word && v.unrepeat(to-v.high):
		v.pos = v.high
		v.advance(to-v.high, at)
	case to > v.high:
		f := v.w.fault(Fault{Kind: Lost, Offset: v.high, Bytes: to - v.high, At: at})
		if len(v.gaps) < mostGaps {
			v.gaps = append(v.gaps, hole{v.high, to, f})
		}
		v.w.Lost += to - v.high
		v.high = to
	case to < v.pos:
		v.snap(to)
	}
	v.pos = to
}

// unrepeat takes the last d bytes for the first of those at high, if they are alike, though they looked like a repetition
// of d bytes behind a piece that came late: see snap.
func (v *verifier) unrepeat(d int64) bool {
	i := len(v.w.Faults) - 1
	if i < 0 || v.pos >= v.high || !v.like(v.pos-d, v.high, d) {
		return false
	}
	if f := v.w.Faults[i]; f.Kind != Repeated || f.Bytes != d || f.Offset+d != v.pos {
		return false
	}
	v.w.Faults = v.w.Faults[:i]
	v.w.Repeated -= d
	return true
}

// snap prepares the move back to to, which may lie within a word of the beginning of a gap. Where like bytes meet, the place
// of a splice is a matter of taste; the one that lets what comes late fill the gap is the true one. So the gap moves, or
// the last bytes count as the first of the late ones.
func (v *verifier) snap(to int64) {
	for i := range v.gaps {
		g := &v.gaps[i]
		d := to - g.from
		switch {
		case -word < d && d < 0 && v.like(to, to+g.to-g.from, -d):
			g.from, g.to = g.from+d, g.to+d
			if g.fault >= 0 {
				v.w.Faults[g.fault].Offset = g.from
			}
		case 0 < d && d < word && v.pos == v.high && v.like(g.from, v.pos-d, d):
			v.high -= d
			v.w.Verified -= d
			v.pos = g.from
			v.late(i, d)
		default:
			continue
		}
		return
	}
}

// like says whether the n bytes from a on are those from b on.
func (v *verifier) like(a, b, n int64) bool {
	for k := range n {
		if byteAt(v.key, a+k) != byteAt(v.key, b+k) {
			return false
		}
	}
	return true
}

// advance counts the n bytes from pos on, which came and are right.
func (v *verifier) advance(n int64, at time.Duration) {
	if v.pos == v.high { // nearly always
		v.pos += n
		v.high += n
		v.w.Verified += n
		return
	}
	for n > 0 {
		if v.pos >= v.high {
			v.advance(n, at)
			return
		}
		k, gap := min(n, v.high-v.pos), -1
		for i, g := range v.gaps {
			if v.pos >= g.from && v.pos < g.to {
				k, gap = min(k, g.to-v.pos), i
			} else if v.pos < g.from {
				k = min(k, g.from-v.pos)
			}
		}
		if gap >= 0 {
			v.late(gap, k)
		} else {
			v.repeat(k, at)
		}
		v.pos += k
		n -= k
	}
}

// late takes the k bytes from pos on out of a gap.
func (v *verifier) late(gap int, k int64) {
	v.w.Lost -= k
	v.w.Swapped += k
	v.w.Verified += k
	g := v.gaps[gap]
	if g.fault >= 0 {
		v.w.Faults[g.fault].Kind = Swapped
	}
	rest := v.gaps[:gap:gap]
	if g.from < v.pos {
		rest = append(rest, hole{g.from, v.pos, g.fault})
	}
	if v.pos+k < g.to {
		rest = append(rest, hole{v.pos + k, g.to, g.fault})
	}
	v.gaps = append(rest, v.gaps[gap+1:]...)
}

// repeat counts the k bytes from pos on, which have come before.
func (v *verifier) repeat(k int64, at time.Duration) {
	v.w.Repeated += k
	if i := len(v.w.Faults) - 1; i >= 0 && v.w.Faults[i].Kind == Repeated {
		if f := &v.w.Faults[i]; f.Offset+f.Bytes == v.pos {
			f.Bytes += k
			return
		}
	}
	v.w.fault(Fault{Kind: Repeated, Offset: v.pos, Bytes: k, At: at})
}

// last notes that the end mark is at pending[j].
func (v *verifier) last(j int, total int64, at time.Duration) {
	v.tail = slices.Clone(v.pending[j+markSize:])
	if d := int64(v.matched - j); d > 0 && v.pos == v.high { // of the mark, but like what should have come
		v.pos -= d
		v.high -= d
		v.w.Verified -= d
		v.matched = j
	}
	v.jump(j, total, at)
	v.ended = true
	if v.high > total { // more has come than was sent
		v.w.fault(Fault{Kind: Foreign, Offset: total, Bytes: v.high - total, At: at})
	}
}

// finish counts what came last and could not be placed.
func (v *verifier) finish(at time.Duration) {
	if v.pending != nil {
		v.junk(len(v.pending), at)
		v.pending = nil
	}
}
