package main

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"
)

// demoBytes is an endless pseudo-random stream, by its seed: any part of it can be made at any time, so that neither end has
// to keep what it sends or expects.
type demoBytes uint64

// word is the i-th eight bytes, by the mixer of SplitMix64.
func (b demoBytes) word(i uint64) uint64 {
	x := uint64(b) + (i+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill makes the bytes from offset off on.
func (b demoBytes) fill(p []byte, off uint64) {
	var w [8]byte
	for len(p) > 0 {
		i, skip := off/8, int(off%8)
		if skip == 0 && len(p) >= 8 {
			binary.LittleEndian.PutUint64(p, b.word(i))
			p, off = p[8:], off+8
			continue
		}
		binary.LittleEndian.PutUint64(w[:], b.word(i))
		n := copy(p, w[skip:])
		p, off = p[n:], off+uint64(n)
	}
}

const (
	// probeBytes is how many bytes are enough to find a place in the stream: by chance they fit one in 2⁴³ times.
	probeBytes = 8
	// probeNear and probeFar are how far around the place where a stream went wrong its bytes are looked for: usually they
	// are near, and no carrier of the demo has more than the larger one in flight.
	probeNear = 64 << 10
	probeFar  = 4 << 20
	// probeMost bounds the searches in a row that find nothing: from there on the stream counts as altered, to its end.
	probeMost = 16
)

// verifier compares a stream that comes in with what was sent, and tells what is missing from what came twice.
type verifier struct {
	want demoBytes

	at       uint64 // the place in the stream of the next byte
	came     uint64
	lost     uint64
	repeated uint64
	altered  uint64
	faulty   bool
	firstBad uint64 // the place where it went wrong first, where faulty

	run    int    // bytes in a row that were right
	misses int    // searches in a row that found nothing
	rest   []byte // came, but are too few to find their place
	buf    []byte
}

// add takes the next bytes.
func (v *verifier) add(p []byte) {
	v.came += uint64(len(p))
	if len(v.rest) > 0 {
		p = append(v.rest, p...)
		v.rest = nil
	}
	for len(p) > 0 {
		if v.misses >= probeMost {
			v.altered += uint64(len(p))
			v.at += uint64(len(p))
			return
		}
		n := v.match(p)
		v.at += uint64(n)
		if v.run += n; v.run >= probeBytes {
			v.misses = 0
		}
		p = p[n:]
		switch {
		case len(p) == 0:
			return
		case len(p) < probeBytes:
			v.rest = bytes.Clone(p)
			return
		}
		v.run = 0
		if !v.search(p[:probeBytes]) {
			v.altered++
			v.at++
			p = p[1:]
		}
	}
}

// match is how many bytes of p are as they should be.
func (v *verifier) match(p []byte) int {
	const step = 16 << 10
	for n := 0; n < len(p); n += step {
		part := p[n:min(n+step, len(p))]
		b := v.scratch(len(part))
		v.want.fill(b, v.at+uint64(n))
		if bytes.Equal(b, part) {
			continue
		}
		for i := range part {
			if part[i] != b[i] {
				return n + i
			}
		}
	}
	return len(p)
}

// search finds the place of p, nearest first, and goes on from there; false: it is nowhere near.
func (v *verifier) search(p []byte) bool {
	if !v.faulty {
		v.faulty, v.firstBad = true, v.at
	}
	next := v.scratch(probeBytes - 1)
	v.want.fill(next, v.at+1)
	if bytes.Equal(next, p[1:]) {
		return false // but for one byte, all is in its place
	}
	for _, reach := range []uint64{probeNear, probeFar} {
		from := v.at - min(v.at, reach)
		b := v.scratch(int(v.at - from + reach))
		v.want.fill(b, from)
		if i := bytes.Index(b[v.at-from:], p); i >= 0 {
			v.lost += uint64(i)
			v.at += uint64(i)
			return true
		}
		if i := bytes.LastIndex(b, p); i >= 0 {
			v.repeated += v.at - from - uint64(i)
			v.at = from + uint64(i)
			return true
		}
	}
	v.misses++
	return false
}

// finish is told how long the stream was, after its last byte.
func (v *verifier) finish(total uint64) {
	if len(v.rest) > 0 {
		if !v.faulty {
			v.faulty, v.firstBad = true, v.at
		}
		v.altered += uint64(len(v.rest))
		v.at += uint64(len(v.rest))
		v.rest = nil
	}
	if v.at == total {
		return
	}
	if !v.faulty {
		v.faulty, v.firstBad = true, min(v.at, total)
	}
	if v.at < total {
		v.lost += total - v.at
	} else {
		v.repeated += v.at - total
	}
}

func (v *verifier) scratch(n int) []byte {
	if cap(v.buf) < n {
		v.buf = make([]byte, n)
	}
	return v.buf[:n]
}

// stallMeter finds the longest time in which nothing came, within a window.
type stallMeter struct {
	last    time.Time // when something last came
	longest time.Duration
}

// begin opens a window: a pause that is going on now counts from its beginning.
func (m *stallMeter) begin() { m.longest = 0 }

// tick tells that something came.
func (m *stallMeter) tick(now time.Time) {
	if !m.last.IsZero() {
		m.longest = max(m.longest, now.Sub(m.last))
	}
	m.last = now
}

// worst is the longest pause of the window, with the one that is going on.
func (m *stallMeter) worst(now time.Time) time.Duration {
	if m.last.IsZero() {
		return m.longest
	}
	return max(m.longest, now.Sub(m.last))
}

// demoStream is what an app has seen of its stream. Safe for concurrent use.
type demoStream struct {
	mu   sync.Mutex // guards the following
	v    verifier
	gaps stallMeter
}

// streamFacts are the counts of a demoStream at a time.
type streamFacts struct {
	came                    uint64
	lost, repeated, altered uint64
	firstBad                uint64        // the place where it went wrong first, where anything is wrong
	stall                   time.Duration // the longest of the window
}

func newDemoStream(seed demoBytes) *demoStream { return &demoStream{v: verifier{want: seed}} }

func (s *demoStream) add(now time.Time, p []byte) (at uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps.tick(now)
	s.v.add(p)
	return s.v.at
}

func (s *demoStream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps.begin()
}

func (s *demoStream) finish(total uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v.finish(total)
}

func (s *demoStream) facts(now time.Time) streamFacts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return streamFacts{
		came: s.v.came, lost: s.v.lost, repeated: s.v.repeated, altered: s.v.altered, firstBad: s.v.firstBad,
		stall: s.gaps.worst(now),
	}
}

// wrong says whether bytes are missing, came twice or are others.
func (f streamFacts) wrong() bool { return f.lost+f.repeated+f.altered > 0 }

// since is what happened after an earlier time.
func (f streamFacts) since(e streamFacts) streamFacts {
	f.came -= e.came
	f.lost -= e.lost
	f.repeated -= e.repeated
	f.altered -= e.altered
	return f
}
