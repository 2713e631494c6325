package testenv

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelaysOfEachWay(t *testing.T) {
	bubble(t, 0, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetDelays(10*ms, 300*ms)
		start := time.Now()
		got := reads(near, start)
		write(t, near, "up")
		far.Read(make([]byte, 2))
		if at := time.Since(start); at != 10*ms {
			t.Errorf("up took %v", at)
		}
		write(t, far, "down")
		far.Close()
		same(t, got(), outcome{"down", nil, 310 * ms}, outcome{"", io.EOF, 310 * ms})
	})
}

// jitters is when each of n bytes written at the same time arrives, over a route with a seed.
func jitters(t *testing.T, seed uint64, n int) (times []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := NewWorld(seed).Link("a", "b")
		r.SetDelay(10 * ms)
		r.SetJitter(20 * ms)
		near, far := r.Pipe()
		start := time.Now()
		go func() {
			for i := range n {
				write(t, near, string(rune('a'+i%26)))
				time.Sleep(5 * ms)
			}
			near.Close()
		}()
		buf := make([]byte, 1)
		for i := range n {
			if _, err := far.Read(buf); err != nil || buf[0] != byte('a'+i%26) {
				t.Fatalf("byte %d: %q, %v", i, buf, err)
			}
			times = append(times, time.Since(start))
		}
	})
	return times
}

func TestJitterKeepsOrderAndFollowsTheSeed(t *testing.T) {
	const n = 1000
	a := jitters(t, 1, n)
	late := time.Duration(0)
	for i, at := range a {
		late = max(late, at-time.Duration(i)*5*ms)
		if at < time.Duration(i)*5*ms+10*ms || at >= time.Duration(i)*5*ms+30*ms {
			t.Fatalf("byte %d came at %v", i, at)
		}
	}
	if late < 29*ms {
		t.Errorf("the latest was %v late, want up to 30 ms", late)
	}
	if !slices.Equal(a, jitters(t, 1, n)) {
		t.Error("the same seed gives other times")
	}
	if slices.Equal(a, jitters(t, 2, n)) {
		t.Error("another seed gives the same times")
	}
}

// TestQueueIsFiniteAndShared: with a queue of 10 packets at 1 packet a millisecond, writers block as soon as it is full, and
// share the rate packet by packet.
func TestQueueIsFiniteAndShared(t *testing.T) {
	bubble(t, 5*ms, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetRate(1000 * packet)
		r.SetQueue(10 * packet)
		near2, far2 := r.Pipe()
		start := time.Now()
		write(t, near, string(make([]byte, 10*packet)))
		if at := time.Since(start); at != 0 {
			t.Errorf("what the queue takes was written at %v", at)
		}
		write(t, near, string(make([]byte, 90*packet)))
		if at := time.Since(start); at != 90*ms {
			t.Errorf("100 packets were taken at %v, want 90 ms: ten wait", at)
		}
		go io.Copy(io.Discard, far2)
		if _, err := io.ReadFull(far, make([]byte, 100*packet)); err != nil || time.Since(start) != 105*ms {
			t.Errorf("100 packets were there at %v, %v; want 105 ms", time.Since(start), err)
		}
		start = time.Now()
		var wg sync.WaitGroup
		done := make([]time.Duration, 2)
		for i, c := range []*Conn{near, near2} {
			wg.Go(func() {
				write(t, c, string(make([]byte, (100+100*i)*packet)))
				done[i] = time.Since(start)
			})
		}
		go io.Copy(io.Discard, far)
		wg.Wait()
		// Both share until the first has its 100, after 200 or so; all 300 less the queue after 290.
		if done[0] < 175*ms || done[0] > 200*ms || done[1] != 290*ms {
			t.Errorf("written at %v and %v", done[0], done[1])
		}
		r.Reset()
	})
}

// TestQueueBoundsTheWaitOfAKeystroke: beside a bulk copy, a byte waits for what is in the queue, and no longer.
func TestQueueBoundsTheWaitOfAKeystroke(t *testing.T) {
	bubble(t, 0, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetRate(32_000) // 256 kbit/s
		r.SetQueue(8000)  // 250 ms
		bulk, sink := r.Pipe()
		go func() {
			for {
				if _, err := bulk.Write(make([]byte, 16<<10)); err != nil {
					return
				}
			}
		}()
		go io.Copy(io.Discard, sink)
		for range 10 {
			time.Sleep(sec)
			start := time.Now()
			write(t, near, "k")
			far.Read(make([]byte, 1))
			if at := time.Since(start); at < 150*ms || at > 345*ms { // the queue and two packets
				t.Errorf("a key took %v", at)
			}
		}
		r.Reset()
	})
}

func TestQueueIsGivenUpOnDeadlineHoleAndChange(t *testing.T) {
	bubble(t, 0, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetRate(packet)
		r.SetQueue(packet)
		second, _ := r.Pipe()
		start := time.Now()
		near.SetWriteDeadline(start.Add(1500 * ms))
		if n, err := near.Write(make([]byte, 9*packet)); n != 2*packet || !isTimeout(err) {
			t.Errorf("Write = %d, %v; want two packets and the deadline", n, err)
		}
		write(t, second, "is not kept waiting by one that has given up")
		if at := time.Since(start); at != 2*sec {
			t.Errorf("the second writer had its turn at %v, want 2 s", at)
		}
		near.SetWriteDeadline(time.Time{})
		time.AfterFunc(100*ms, func() { r.SetQueue(0) })
		write(t, near, string(make([]byte, 20*packet)))
		if at := time.Since(start); at != 2100*ms {
			t.Errorf("without a queue written at %v", at)
		}
		r.SetQueue(packet)
		r.BlackHole(true, true)
		write(t, near, "goes into the buffer")
		if at := time.Since(start); at != 2100*ms {
			t.Errorf("into the hole written at %v", at)
		}
	})
}

func TestOutagesByTheClock(t *testing.T) {
	silence := func(seed uint64) (down time.Duration, number int, longest time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			r := NewWorld(seed).Link("a", "b")
			r.Outages(0.05, 2*sec)
			near, far := r.Pipe()
			go func() {
				for range 2 * 3600 * 10 {
					near.Write([]byte("."))
					time.Sleep(100 * ms)
				}
				near.Close()
			}()
			last := time.Now()
			for {
				n, err := far.Read(make([]byte, 1000))
				if err != nil {
					break
				}
				if gap := time.Since(last); gap > 100*ms {
					if n < 2 {
						t.Fatalf("a gap of %v, and then %d bytes", gap, n)
					}
					down += gap
					number++
					longest = max(longest, gap)
				}
				last = time.Now()
			}
			if up, _ := r.Bytes(); up != 2*3600*10 {
				t.Errorf("%d bytes arrived", up)
			}
		})
		return down, number, longest
	}
	down, number, longest := silence(1)
	if share := down.Seconds() / (2 * 3600); share < 0.04 || share > 0.07 || number < 150 || longest > 3100*ms {
		t.Errorf("%d outages, %.3f of the time, the longest %v", number, share, longest)
	}
	if d, n, l := silence(1); d != down || n != number || l != longest {
		t.Error("the same seed gives other outages")
	}
	if d, _, _ := silence(2); d == down {
		t.Error("another seed gives the same outages")
	}
}

func TestOutagesHaveTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, share := range []float64{0.05, 0.5, 0.9} {
			w := NewWorld(4)
			r := w.Link("a", "b")
			r.Outages(share, 3*sec)
			start := time.Now()
			w.mu.Lock()
			r.up.out.clear(start.Add(3 * time.Hour))
			var silent time.Duration
			for _, o := range r.up.out.list {
				silent += o.to.Sub(o.from)
				if d := o.to.Sub(o.from); d < 1500*ms || d > 4500*ms {
					t.Errorf("an outage of %v", d)
				}
			}
			got := silent.Seconds() / r.up.out.until.Sub(start).Seconds()
			w.mu.Unlock()
			if got < 0.93*share || got > 1.07*share {
				t.Errorf("silent for %.3f of the time, want %g", got, share)
			}
		}
	})
}

func TestOutageIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(3)
		r := w.Link("a", "b")
		r.SetDelay(100 * ms)
		r.Outages(0.5, 10*sec)
		w.mu.Lock()
		r.up.out.clear(time.Now().Add(time.Minute))
		o := r.up.out.list[0]
		w.mu.Unlock()
		near, far := r.Pipe()
		time.Sleep(time.Until(o.from) - ms)
		got := reads(far, o.from)
		write(t, near, "just before")
		time.Sleep(ms)
		write(t, near, "just in it")
		time.Sleep(time.Until(o.to) - ms)
		write(t, near, ", late in it")
		time.Sleep(ms)
		write(t, near, ", after it")
		near.Close()
		d := o.to.Sub(o.from)
		same(t, got(), outcome{"just before", nil, 99 * ms},
			outcome{"just in it, late in it, after it", nil, d + 100*ms}, outcome{"", io.EOF, d + 100*ms})
		r.Outages(0, 0)
		if r.up.out != nil {
			t.Error("outages were not switched off")
		}
	})
}

func TestFinInTheWay(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		up, down := reads(far, start), reads(near, start)
		write(t, near, "under way")
		time.Sleep(5 * ms)
		r.Fin()
		write(t, near, "into the void")
		write(t, far, "into the void")
		same(t, up(), outcome{"under way", nil, 10 * ms}, outcome{"", io.EOF, 15 * ms})
		same(t, down(), outcome{"", io.EOF, 15 * ms})
		near.Close()
		far.Close()
		if r.Live() != 0 {
			t.Error("the connection lives")
		}
	})
}

func TestHalfOpen(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		up, down := reads(far, start), reads(near, start)
		write(t, far, "its last words")
		time.Sleep(5 * ms)
		r.Forget()
		same(t, up(), outcome{"", syscall.ECONNRESET, 5 * ms})
		time.Sleep(time.Hour)
		write(t, near, "x")
		same(t, down(), outcome{"its last words", nil, 10 * ms}, outcome{"", syscall.ECONNRESET, time.Hour + 25*ms})
		if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Write: %v", err)
		}
	})
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		down := reads(near, start)
		write(t, near, "under way")
		time.Sleep(5 * ms)
		r.Forget()
		same(t, down(), outcome{"", syscall.ECONNRESET, 20 * ms}) // its byte arrives at 10 ms
		_ = far
	})
}

// TestVerbsAreToldOnTheTimeline: what was done to a link can be read when a test fails.
func TestVerbsAreToldOnTheTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(1)
		r := w.Link("a", "b")
		r.SetDelay(ms)
		r.SetJitter(ms)
		r.SetRate(1)
		r.SetQueue(2)
		r.Outages(0.1, sec)
		r.BlackHole(true, false)
		r.LoseLarge(1000, 0)
		r.Heal()
		r.CutAfter(true, 5)
		r.Reset()
		r.Fin()
		r.Forget()
		_ = r.Refuse(true)
		r.Hang(true)
		r.Unreachable(true)
		got := w.Timeline()
		for _, part := range []string{
			"delay 1ms up", "jitter 1ms", "rate 1 B/s", "queue 2 B", "outages: 10 %", "black hole up true, down false",
			"loses writes of more than 1000 B up", "black hole up false", "loses writes of more than 0 B up", "cut after 5 B", "reset: 0", "fin: 0",
			"half open: 0", "refuse true", "hang true", "unreachable true",
		} {
			if want := fmt.Sprintf("%12s  a–b: %s", "0s", part); !strings.Contains(got, want) {
				t.Errorf("the timeline does not tell %q:\n%s", want, got)
			}
		}
	})
}
