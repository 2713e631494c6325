package netns

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestLane(t *testing.T) {
	const lost = -1
	for _, c := range []struct {
		name   string
		faults Faults
		frames [][3]time.Duration // sent at, bytes, arrives at or lost
	}{
		{"nothing", Faults{}, [][3]time.Duration{{5, 1514, 5}}},
		{"delay", Faults{Delay: 10 * ms}, [][3]time.Duration{{0, 60, 10 * ms}, {3 * ms, 60, 13 * ms}}},
		{"rate", Faults{Rate: 1000, Delay: ms}, [][3]time.Duration{{0, 20, 21 * ms}, {0, 20, 41 * ms}, {50 * ms, 10, 61 * ms}}},
		{
			"queue",
			Faults{Rate: 1000, Queue: 30 * ms},
			[][3]time.Duration{{0, 20, 20 * ms}, {0, 20, 40 * ms}, {0, 20, lost}, {10 * ms, 20, 60 * ms}},
		},
		{"queue by default", Faults{Rate: 1000}, [][3]time.Duration{{0, 100, 100 * ms}, {0, 1, 101 * ms}, {0, 1, lost}}},
		{"hole", Faults{Hole: true}, [][3]time.Duration{{0, 60, lost}}},
		{"large", Faults{Large: 1000}, [][3]time.Duration{{0, 1014, 0}, {0, 1015, lost}, {0, 60, 0}}},
	} {
		l := newLane(1)
		l.set(0, c.faults)
		for i, f := range c.frames {
			due, ok := l.admit(f[0], int(f[1]))
			if !ok {
				due = lost
			}
			if due != f[2] {
				t.Errorf("%s: frame %d arrives at %v, want %v", c.name, i, due, f[2])
			}
		}
	}
}

func TestLaneKeepsOrder(t *testing.T) {
	l := newLane(7)
	l.set(0, Faults{Delay: 50 * ms, Jitter: 20 * ms})
	var last, sum time.Duration
	for i := range 1000 {
		sent := time.Duration(i) * 100 * ms
		if i == 500 {
			l.set(sent, Faults{Delay: ms, Jitter: 20 * ms})
			sent -= 90 * ms // just behind frame 499, which takes longer
		}
		due, ok := l.admit(sent, 60)
		if !ok || due < last || i < 500 && (due < sent+50*ms || due >= sent+70*ms) {
			t.Fatalf("frame %d, sent at %v, arrives at %v, the one before at %v", i, sent, due, last)
		}
		last = due
		if i < 500 {
			sum += due - sent
		}
	}
	if mean := sum / 500; mean < 58*ms || mean > 62*ms {
		t.Errorf("mean delay %v, want 60 ms", mean)
	}
}

func TestLaneLoses(t *testing.T) {
	l := newLane(5)
	l.set(0, Faults{Loss: 0.01})
	lost, twice, last := 0, 0, false
	const frames = 100_000
	for range frames {
		_, ok := l.admit(0, 60)
		if !ok {
			lost++
			if last {
				twice++
			}
		}
		last = !ok
	}
	if lost < frames*8/1000 || lost > frames*12/1000 {
		t.Errorf("%d of %d frames are lost, want 1 %%", lost, frames)
	}
	if twice > 30 { // 10 are to be expected
		t.Errorf("%d times two in a row are lost, so it is not chance", twice)
	}
	l.set(0, Faults{})
	if _, ok := l.admit(0, 60); !ok {
		t.Error("a frame is lost without Loss")
	}
}

func TestOutages(t *testing.T) {
	o := Outages{Seed: 3, Share: 0.05, Length: 2 * time.Second}
	up, down := newLane(0), newLane(1)
	up.set(0, Faults{Outages: o})
	down.set(0, Faults{Outages: o})
	dead, changes, was, since := 0, 0, false, 0
	const steps = 1_000_000 // of 10 ms
	for i := range steps {
		now := time.Duration(i) * 10 * ms
		_, ok := up.admit(now, 60)
		if _, other := down.admit(now, 60); ok != other {
			t.Fatalf("at %v only one direction is dead", now)
		}
		if i == steps/2 {
			up.set(now, Faults{Outages: o, Delay: ms}) // other changes leave the outages alone
		}
		if !ok {
			dead++
		}
		if was != !ok {
			if was && (i-since < 99 || i-since > 301) {
				t.Errorf("outage of %v, want 1 to 3 s", time.Duration(i-since)*10*ms)
			}
			changes, was, since = changes+1, !ok, i
		}
	}
	if share := float64(dead) / steps; share < 0.045 || share > 0.055 {
		t.Errorf("dead for %.3f of the time, want 0.05", share)
	}
	if changes < 400 || changes > 600 {
		t.Errorf("%d changes, want about 500", changes)
	}
}

// TestRing compares a small ring with a plain list of frames.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := ring{data: make([]byte, 7*maxFrame+1000), slots: make([]slot, ringFrames)}
	var want [][]byte
	refused, wrapped := 0, 0
	for i := range 20000 {
		if rng.IntN(100) < 40+20*(i/2000%2) { // fills and empties in turns
			buf := r.space()
			if buf == nil {
				refused++
				continue
			}
			frame := bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(maxFrame))
			copy(buf, frame)
			r.push(len(frame), time.Duration(i))
			want = append(want, frame)
			continue
		}
		if _, ok := r.due(); ok != (len(want) > 0) {
			t.Fatalf("step %d: frames queued: %v, want %d", i, ok, len(want))
		}
		if len(want) == 0 {
			continue
		}
		first := r.slots[r.head%ringFrames].off
		if got := r.pop(); !bytes.Equal(got, want[0]) {
			t.Fatalf("step %d: not the frame that was pushed", i)
		}
		if r.head != r.tail && r.slots[r.head%ringFrames].off < first {
			wrapped++
		}
		want = want[1:]
	}
	if refused == 0 || wrapped == 0 {
		t.Errorf("never full (%d) or never around (%d)", refused, wrapped)
	}
	if n := r.drop(); int(n) != len(want) {
		t.Errorf("dropped %d, want %d", n, len(want))
	}
}
