package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestDemoBytesAnyPart(t *testing.T) {
	whole := make([]byte, 4096)
	demoSeed.fill(whole, 0)
	for _, at := range []uint64{0, 1, 7, 8, 9, 1000, 4000} {
		for _, n := range []int{0, 1, 7, 8, 9, 64, 95} {
			part := make([]byte, n)
			demoSeed.fill(part, at)
			if !bytes.Equal(part, whole[at:at+uint64(n)]) {
				t.Fatalf("%d bytes at %d are not those of the whole", n, at)
			}
		}
	}
	other := make([]byte, 4096)
	echoSeed.fill(other, 0)
	if bytes.Equal(whole, other) {
		t.Fatal("two seeds give one stream")
	}
}

func TestVerifier(t *testing.T) {
	const total = 512 << 10
	whole := make([]byte, total)
	demoSeed.fill(whole, 0)
	cut := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	flipped := slices.Clone(whole)
	flipped[5000] ^= 1
	cases := []struct {
		name                    string
		came                    []byte
		lost, repeated, altered uint64
		firstBad                uint64
	}{
		{name: "as sent", came: whole},
		{name: "one byte lost", came: cut(whole[:1000], whole[1001:]), lost: 1, firstBad: 1000},
		{name: "many bytes lost", came: cut(whole[:1000], whole[301000:]), lost: 300000, firstBad: 1000},
		{name: "the first lost", came: whole[16:], lost: 16},
		{name: "the end lost", came: whole[:total-5], lost: 5, firstBad: total - 5},
		{name: "all lost", lost: total},
		{name: "one byte repeated", came: cut(whole[:1000], whole[999:]), repeated: 1, firstBad: 1000},
		{name: "many bytes repeated", came: cut(whole[:400000], whole[100000:]), repeated: 300000, firstBad: 400000},
		{name: "the end repeated", came: cut(whole, whole[total-3:]), altered: 3, repeated: 3, firstBad: total},
		{name: "lost, then repeated", came: cut(whole[:1000], whole[1001:1032], whole[1031:]), lost: 1, repeated: 1, firstBad: 1000},
		{name: "swapped", came: cut(whole[:1000], whole[2000:3000], whole[1000:2000], whole[3000:]), lost: 2000, repeated: 2000, firstBad: 1000},
		{name: "one byte altered", came: flipped, altered: 1, firstBad: 5000},
		{name: "many bytes altered", came: sparse(whole), altered: 512, firstBad: 0},
		{name: "nothing right", came: make([]byte, total), altered: total},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, most := range []int{1, 13, 4096, total} {
				if most == 1 && len(c.came) > 0 && c.lost+c.repeated > 1000 {
					continue // one byte at a time is for the small ones
				}
				v := verifier{want: demoSeed}
				for p := range slices.Chunk(c.came, most) {
					v.add(p)
				}
				v.finish(total)
				if v.lost != c.lost || v.repeated != c.repeated || v.altered != c.altered || v.firstBad != c.firstBad {
					t.Errorf("pieces of %d: %d lost, %d repeated, %d altered, first at %d; want %d, %d, %d, %d", most, v.lost, v.repeated,
						v.altered, v.firstBad, c.lost, c.repeated, c.altered, c.firstBad)
				}
				if v.faulty != (c.lost+c.repeated+c.altered > 0) || v.came != uint64(len(c.came)) {
					t.Errorf("pieces of %d: faulty %v, %d came", most, v.faulty, v.came)
				}
			}
		})
	}
}

// sparse alters every 1024th byte.
func sparse(b []byte) []byte {
	b = slices.Clone(b)
	for i := 0; i < len(b); i += 1024 {
		b[i] ^= 1
	}
	return b
}

// TestVerifierMissesNothing damages a stream at random: whatever was done to it shows.
func TestVerifierMissesNothing(t *testing.T) {
	const total = 64 << 10
	r := rand.New(rand.NewPCG(7, 11))
	whole := make([]byte, total)
	demoSeed.fill(whole, 0)
	for range 100 {
		at, n := 1+r.IntN(total-2000), 1+r.IntN(900)
		var came []byte
		var lost, repeated uint64
		if r.IntN(2) == 0 {
			came, lost = slices.Concat(whole[:at], whole[at+n:]), uint64(n)
		} else {
			back := min(n, at)
			came, repeated = slices.Concat(whole[:at], whole[at-back:]), uint64(back)
		}
		v := verifier{want: demoSeed}
		for len(came) > 0 {
			k := min(1+r.IntN(5000), len(came))
			v.add(came[:k])
			came = came[k:]
		}
		v.finish(total)
		if v.lost != lost || v.repeated != repeated || v.altered != 0 {
			t.Fatalf("at %d: %d lost, %d repeated, %d altered; want %d, %d, 0", at, v.lost, v.repeated, v.altered, lost, repeated)
		}
	}
}

func TestStallMeter(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	want := func(m *stallMeter, now int, stall time.Duration) {
		t.Helper()
		if got := m.worst(at(now)); got != stall*time.Millisecond {
			t.Errorf("at %d ms: longest stall %v, want %v", now, got, stall*time.Millisecond)
		}
	}
	var m stallMeter
	want(&m, 0, 0) // nothing came yet: no stall
	m.tick(at(0))
	m.tick(at(20))
	m.tick(at(320))
	m.tick(at(340))
	want(&m, 350, 300)
	want(&m, 900, 560) // the one that goes on
	m.tick(at(950))
	m.begin()
	want(&m, 960, 10) // the long one is of an earlier window
	m.tick(at(1100))
	m.tick(at(1110))
	want(&m, 1120, 150) // and this one began before the window
}

func TestDemoRowIsJudged(t *testing.T) {
	good := demoRow{Event: "cut", EchoStall: 100, DownloadStall: 200, Limit: 250, Link: "moved", BothSides: true}
	cases := []struct {
		name   string
		change func(*demoRow)
		bad    bool
	}{
		{"good", func(*demoRow) {}, false},
		{"a slow machine", func(r *demoRow) { r.EchoStall, r.Late = 400, 50 }, false},
		{"a slow machine is no excuse for more", func(r *demoRow) { r.EchoStall, r.Late = 401, 50 }, true},
		{"echo stalls", func(r *demoRow) { r.EchoStall = 251 }, true},
		{"download stalls", func(r *demoRow) { r.DownloadStall = 251 }, true},
		{"lost", func(r *demoRow) { r.Lost = 1 }, true},
		{"repeated", func(r *demoRow) { r.Repeated = 1 }, true},
		{"altered", func(r *demoRow) { r.Altered = 1 }, true},
		{"no record", func(r *demoRow) { r.Link = "" }, true},
		{"one side only", func(r *demoRow) { r.BothSides = false }, true},
		{"another link", func(r *demoRow) { r.Problem = "the link was replaced by another" }, true},
	}
	for _, c := range cases {
		row := good
		c.change(&row)
		row.judge()
		if (row.Problem != "") != c.bad {
			t.Errorf("%s: problem %q, want one: %v", c.name, row.Problem, c.bad)
		}
		report := demoReport{Rows: []demoRow{row}, Want: "a", Got: "a"}
		report.sum(1, app{"download", streamFacts{}}, app{"echo", streamFacts{}})
		if (len(report.Found) > 0) != c.bad {
			t.Errorf("%s: found %q", c.name, report.Found)
		}
	}
	hash := demoReport{Want: "a", Got: "b"}
	hash.sum(1, app{"download", streamFacts{}}, app{"echo", streamFacts{}})
	late := demoReport{Want: "a", Got: "a"}
	late.sum(1, app{"download", streamFacts{lost: 1}}, app{"echo", streamFacts{}})
	if len(hash.Found) != 1 || len(late.Found) != 1 {
		t.Errorf("a wrong hash: %q, bytes lost after the last event: %q", hash.Found, late.Found)
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	x := tail{most: 2}
	if x.String() != "" {
		t.Errorf("nothing said: %q", x.String())
	}
	for _, s := range []string{"one\ntw", "o\nthree\n", "fo", "ur"} {
		if n, err := x.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if want := "; the last it said:\ntwo\nthree\nfour"; x.String() != want {
		t.Errorf("%q, want %q", x.String(), want)
	}
	long := tail{most: 3}
	_, _ = long.Write(bytes.Repeat([]byte("x"), 3*maxLine))
	if got := long.String(); len(got) > 4*maxLine || len(long.part) > maxLine {
		t.Errorf("kept %d bytes, %d of them of a line that has not ended", len(got), len(long.part))
	}
}
