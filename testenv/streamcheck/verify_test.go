package streamcheck

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestSequenceTellsItsPlace(t *testing.T) {
	if unstep*step&(1<<64-1) != 1 {
		t.Fatal("unstep is not the inverse of step")
	}
	up, down := keys(7)
	if up == down || up == 0 {
		t.Fatalf("keys %x, %x", up, down)
	}
	for _, pos := range []int64{0, 8, 4096, longest - 8} {
		if got, ok := where(up, wordAt(up, pos)); got != pos || !ok {
			t.Errorf("word at %d: found at %d, %v", pos, got, ok)
		}
		if got, ok := where(up, wordAt(down, pos)); ok {
			t.Errorf("a word of another sequence is found at %d", got)
		}
	}
	whole := make([]byte, 300)
	fill(whole, up, 0)
	for from := range 20 {
		for n := range 60 {
			p := make([]byte, n)
			fill(p, up, int64(from))
			if !slices.Equal(p, whole[from:from+n]) || match(p, up, int64(from)) != n {
				t.Fatalf("fill(%d bytes from %d) = %x, match %d", n, from, p, match(p, up, int64(from)))
			}
			for i := range p {
				p[i] ^= 1
				if got := match(p, up, int64(from)); got != i {
					t.Fatalf("match of %d bytes with the wrong one at %d = %d", n, i, got)
				}
				p[i] ^= 1
			}
		}
	}
}

// fed is what a verifier makes of b, handed over in pieces of random sizes.
func fed(b []byte, key uint64, rnd *rand.Rand) (*Way, *verifier) {
	w := new(Way)
	v := &verifier{key: key, w: w}
	for at := time.Duration(0); len(b) > 0; at += ms {
		n := min(len(b), 1+rnd.IntN(200))
		if rnd.IntN(10) == 0 {
			n = min(len(b), 1+rnd.IntN(10_000))
		}
		v.take(b[:n], at)
		b = b[n:]
	}
	v.finish(time.Hour)
	return w, v
}

// planted is total bytes of the sequence, changed by plant, with the end mark.
func planted(key uint64, total int64, plant func([]byte) []byte) []byte {
	b := make([]byte, total)
	fill(b, key, 0)
	return append(plant(b), endMark(key, total)...)
}

func TestPlantedFaultsAreRecognised(t *testing.T) {
	const total = 4000
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 150
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 1))
		key, other := keys(seed)
		from := 100 + rnd.IntN(1500)
		n := 1 + rnd.IntN(500)
		m := 24 + rnd.IntN(500)
		for name, c := range map[string]struct {
			plant                            func(b []byte) []byte
			lost, repeated, swapped, changed int64
			kind                             string
			offset, bytes                    int
		}{
			"nothing": {plant: func(b []byte) []byte { return b }},
			"lost": {
				plant: func(b []byte) []byte { return slices.Delete(b, from, from+n) },
				lost:  int64(n), kind: Lost, offset: from, bytes: n,
			},
			"lost at the end": {
				plant: func(b []byte) []byte { return b[:total-n] },
				lost:  int64(n), kind: Lost, offset: total - n, bytes: n,
			},
			"repeated": {
				plant:    func(b []byte) []byte { return slices.Insert(b, from+m, slices.Clone(b[from:from+m])...) },
				repeated: int64(m), kind: Repeated, offset: from, bytes: m,
			},
			"swapped": {
				plant: func(b []byte) []byte {
					moved := slices.Clone(b[from : from+m])
					return slices.Insert(slices.Delete(b, from, from+m), from+2*m, moved...)
				},
				swapped: int64(m), kind: Swapped, offset: from, bytes: m,
			},
			"changed": {
				plant:   func(b []byte) []byte { b[from] ^= 0x10; return b },
				changed: 1, kind: Changed, offset: from, bytes: 1,
			},
			"foreign": {
				plant: func(b []byte) []byte { fill(b[from:from+m+100], other, int64(from)); return b },
				kind:  Foreign, offset: from, bytes: -1, changed: -1,
			},
		} {
			w, v := fed(planted(key, total, c.plant), key, rnd)
			label := fmt.Sprintf("seed %d: %s (from %d, n %d, m %d)", seed, name, from, n, m)
			if c.changed < 0 {
				c.changed = w.Changed
				if w.Changed < int64(m)*3/4 {
					t.Errorf("%s: only %d bytes changed", label, w.Changed)
				}
			}
			if w.Lost != c.lost || w.Repeated != c.repeated || w.Swapped != c.swapped || w.Changed != c.changed {
				t.Errorf("%s: lost %d, repeated %d, swapped %d, changed %d: %v",
					label, w.Lost, w.Repeated, w.Swapped, w.Changed, w.Faults)
			}
			if w.Verified != total-w.Lost-w.Changed || !v.ended || len(v.tail) != 0 {
				t.Errorf("%s: verified %d, ended %v, %d bytes behind", label, w.Verified, v.ended, len(v.tail))
			}
			if w.Intact() != (c.kind == "") {
				t.Errorf("%s: intact: %v", label, w.Intact())
			}
			if c.kind == "" {
				continue
			}
			// Where like bytes meet at a splice, the fault may be said to lie a byte or two further on.
			if f := w.Faults[0]; f.Kind != c.kind || f.Offset < int64(c.offset) || f.Offset > int64(c.offset+4) ||
				c.bytes >= 0 && f.Bytes != int64(c.bytes) {
				t.Errorf("%s: %+v", label, w.Faults)
			}
			if c.bytes >= 0 && len(w.Faults) != 1 {
				t.Errorf("%s: %d faults: %+v", label, len(w.Faults), w.Faults)
			}
		}
	}
}

// TestManyFaultsAddUp: random losses, repetitions and changes, far enough from each other, are counted to the byte.
func TestManyFaultsAddUp(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		key, _ := keys(seed)
		var b []byte
		var lost, repeated, changed int64
		pos := int64(0)
		add := func(n int) {
			piece := make([]byte, n)
			fill(piece, key, pos)
			b = append(b, piece...)
			pos += int64(n)
		}
		for range 20 {
			add(200 + rnd.IntN(3000))
			n := int64(24 + rnd.IntN(70))
			switch rnd.IntN(3) {
			case 0:
				pos += n
				lost += n
			case 1:
				pos -= n
				repeated += n
			case 2:
				b[len(b)-50] ^= 1
				changed++
			}
		}
		add(100)
		add(int(-pos & 7))
		b = append(b, endMark(key, pos)...)
		b = append(b, "behind"...)
		w, v := fed(b, key, rnd)
		if w.Lost != lost || w.Repeated != repeated || w.Changed != changed || w.Verified != pos-lost-changed {
			t.Errorf("seed %d: lost %d of %d, repeated %d of %d, changed %d of %d, verified %d: %+v", seed,
				w.Lost, lost, w.Repeated, repeated, w.Changed, changed, w.Verified, w.Faults)
		}
		if !v.ended || string(v.tail) != "behind" {
			t.Errorf("seed %d: ended %v, tail %q", seed, v.ended, v.tail)
		}
	}
}

// FuzzVerify: whatever comes, the verifier ends, counts no byte twice and never takes wrong bytes for right.
func FuzzVerify(f *testing.F) {
	key, _ := keys(1)
	f.Add(planted(key, 80, func(b []byte) []byte { return b }), uint64(1))
	f.Add(planted(key, 800, func(b []byte) []byte { return slices.Delete(b, 100, 200) }), uint64(2))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n and much more, so that the window has to move on and on and on"), uint64(3))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		w, v := fed(b, key, rand.New(rand.NewPCG(seed, 3)))
		if n := w.Verified + w.Repeated + w.Changed + int64(len(v.tail)); n > int64(len(b)) {
			t.Errorf("%d bytes came, %d are accounted for: %+v", len(b), n, w)
		}
		whole := make([]byte, min(len(b), 1<<20))
		fill(whole, key, 0)
		if w.Intact() && !v.ended && !slices.Equal(whole, b) {
			t.Errorf("%d wrong bytes are said to be intact", len(b))
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	key, _ := keys(1)
	p := make([]byte, blastSize)
	fill(p, key, 0)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		v := &verifier{key: key, w: new(Way)}
		v.take(p, 0)
	}
}

func BenchmarkFill(b *testing.B) {
	p := make([]byte, blastSize)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		fill(p, 1, 0)
	}
}
