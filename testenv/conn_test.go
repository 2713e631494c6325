package testenv

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// bubble runs f in a synctest bubble with a fresh connection whose route has delay d.
func bubble(t *testing.T, d time.Duration, f func(t *testing.T, r *Route, near, far *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := NewRoute()
		r.SetDelay(d)
		near, far := r.Pipe()
		f(t, r, near, far)
	})
}

// take is the outcome of one Read of up to 64 KiB and when it returned.
type outcome struct {
	s   string
	err error
	at  time.Duration
}

// reads starts reading c until an error and returns the outcomes when collected.
func reads(c net.Conn, start time.Time) func() []outcome {
	done := make(chan []outcome, 1)
	go func() {
		var all []outcome
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			all = append(all, outcome{string(buf[:n]), err, time.Since(start)})
			if err != nil {
				done <- all
				return
			}
		}
	}()
	return func() []outcome { return <-done }
}

func write(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if n, err := io.WriteString(c, s); err != nil || n != len(s) {
		t.Fatalf("Write(%d bytes) = %d, %v", len(s), n, err)
	}
}

// same compares outcomes: text, time, and errors by errors.Is.
func same(t *testing.T, got []outcome, want ...outcome) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d outcomes %v, want %v", len(got), got, want)
	}
	for i, w := range want {
		if g := got[i]; g.s != w.s || g.at != w.at || !errors.Is(g.err, w.err) {
			t.Errorf("outcome %d = %.40q %v at %v, want %.40q %v at %v", i, g.s, g.err, g.at, w.s, w.err, w.at)
		}
	}
}

func TestDelayIsExact(t *testing.T) {
	bubble(t, 40*ms, func(t *testing.T, r *Route, near, far *Conn) {
		got := reads(far, time.Now())
		write(t, near, "a")
		time.Sleep(7 * ms)
		write(t, near, "b")
		r.SetDelay(ms) // overtakes nothing
		write(t, near, "c")
		near.CloseWrite()
		same(t, got(), outcome{"a", nil, 40 * ms}, outcome{"bc", nil, 47 * ms}, outcome{"", io.EOF, 47 * ms})
		if up, down := r.Bytes(); up != 3 || down != 0 {
			t.Errorf("Bytes() = %d, %d, want 3, 0", up, down)
		}
	})
}

func TestEOFNeverOvertakesData(t *testing.T) {
	for range 500 {
		bubble(t, ms, func(t *testing.T, _ *Route, near, far *Conn) {
			got := reads(far, time.Now())
			write(t, near, "x")
			near.Close()
			same(t, got(), outcome{"x", nil, ms}, outcome{"", io.EOF, ms})
		})
	}
}

func TestRateIsExactAndShared(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetRate(1_000_000)
		near2, far2 := r.Pipe()
		start := time.Now()
		write(t, near, string(make([]byte, 100_000)))
		write(t, near2, "x") // queues behind the other connection
		got2 := reads(far2, start)
		buf := make([]byte, 100_000)
		if n, err := far.Read(buf); n != packet || err != nil || time.Since(start) != 10*ms+packet*time.Microsecond {
			t.Errorf("first Read = %d, %v at %v", n, err, time.Since(start))
		}
		if _, err := io.ReadFull(far, buf[packet:]); err != nil || time.Since(start) != 110*ms {
			t.Errorf("all read: %v at %v, want 110 ms", err, time.Since(start))
		}
		near2.Close()
		same(t, got2(), outcome{"x", nil, 110*ms + time.Microsecond}, outcome{"", io.EOF, 120 * ms})
	})
}

func TestWriteBlocksWhenNobodyReads(t *testing.T) {
	bubble(t, 0, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetBuffer(1000)
		start := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			io.CopyN(io.Discard, far, 1)
		}()
		write(t, near, string(make([]byte, 1001)))
		if at := time.Since(start); at != 3*time.Second {
			t.Errorf("the byte too many was taken at %v, want 3 s", at)
		}
		near.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := near.Write([]byte("x"))
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 4*time.Second {
			t.Errorf("Write = %d, %v at %v", n, err, time.Since(start))
		}
	})
}

func TestReadSize(t *testing.T) {
	bubble(t, 0, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetReadSize(2)
		write(t, near, "abc")
		near.CloseWrite()
		same(t, reads(far, time.Now())(), outcome{"ab", nil, 0}, outcome{"c", nil, 0}, outcome{"", io.EOF, 0})
	})
}

func TestHalfClose(t *testing.T) {
	bubble(t, 5*ms, func(t *testing.T, _ *Route, near, far *Conn) {
		start := time.Now()
		got := reads(near, start)
		near.CloseWrite()
		if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: %v, want EPIPE", err)
		}
		same(t, reads(far, start)(), outcome{"", io.EOF, 5 * ms})
		write(t, far, "answer")
		far.Close()
		same(t, got(), outcome{"answer", nil, 10 * ms}, outcome{"", io.EOF, 10 * ms})
	})
}

func TestCloseLeavingBytesUnreadResets(t *testing.T) {
	bubble(t, 5*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		write(t, far, "unread")
		time.Sleep(5 * ms)
		write(t, near, "lost behind the reset")
		near.Close()
		same(t, reads(far, start)(), outcome{"", syscall.ECONNRESET, 10 * ms})
		far.Close()
		if n := r.Live(); n != 0 {
			t.Errorf("%d connections live", n)
		}
	})
}

func TestWriteToClosedEndIsAnsweredByReset(t *testing.T) {
	bubble(t, 5*ms, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetBuffer(4)
		start := time.Now()
		near.Close()
		write(t, far, "abcd")
		n, err := far.Write([]byte("e"))
		if n != 0 || !errors.Is(err, syscall.ECONNRESET) || time.Since(start) != 10*ms {
			t.Errorf("Write = %d, %v at %v, want ECONNRESET at 10 ms", n, err, time.Since(start))
		}
	})
}

func TestResetIsImmediateAndDropsAll(t *testing.T) {
	bubble(t, 5*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		got := reads(near, start)
		write(t, near, "arrived, not read")
		time.Sleep(6 * ms)
		r.Reset()
		same(t, reads(far, start)(), outcome{"", syscall.ECONNRESET, 6 * ms})
		same(t, got(), outcome{"", syscall.ECONNRESET, 6 * ms})
		if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Write after Reset: %v", err)
		}
		if r.Live() != 0 {
			t.Error("a reset connection lives")
		}
	})
}

func TestConnResetReachesThePeerOneDelayLater(t *testing.T) {
	bubble(t, 5*ms, func(t *testing.T, _ *Route, near, far *Conn) {
		got := reads(far, time.Now())
		near.Reset(7)
		same(t, got(), outcome{"", syscall.ECONNRESET, 5 * ms})
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read after Reset: %v, want net.ErrClosed", err)
		}
	})
}

func TestBlackHoleKeepsOrderAndHeals(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		got, back := reads(far, start), reads(near, start)
		write(t, near, "1")
		time.Sleep(10 * ms)
		write(t, near, "2") // on its way when the hole opens
		time.Sleep(ms)
		r.BlackHole(true, false)
		write(t, near, "3")
		write(t, far, "still passes")
		near.CloseWrite()
		time.Sleep(time.Hour)
		r.Heal()
		healed := time.Hour + 11*ms
		same(t, got(), outcome{"1", nil, 10 * ms}, outcome{"23", nil, healed + 10*ms}, outcome{"", io.EOF, healed + 10*ms})
		far.Close()
		same(t, back(), outcome{"still passes", nil, 21 * ms}, outcome{"", io.EOF, healed + 20*ms})
	})
}

func TestBlackHoleBlocksWhenTheBufferIsFull(t *testing.T) {
	bubble(t, 0, func(t *testing.T, r *Route, near, far *Conn) {
		r.SetBuffer(4)
		r.BlackHole(true, true)
		got := reads(far, time.Now())
		near.SetWriteDeadline(time.Now().Add(time.Minute))
		if n, err := near.Write([]byte("abcdef")); n != 4 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write into a hole = %d, %v, want 4 and the deadline", n, err)
		}
		far.SetReadDeadline(time.Now().Add(time.Second))
		same(t, got(), outcome{"", os.ErrDeadlineExceeded, time.Minute + time.Second})
		r.BlackHole(false, true)
		far.SetReadDeadline(time.Time{})
		near.Reset(0)
		same(t, reads(far, time.Now())(), outcome{"", syscall.ECONNRESET, 0})
	})
}

func TestResetIntoABlackHoleIsSilentUntilHeal(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		got := reads(far, time.Now())
		r.BlackHole(true, false)
		near.Reset(0)
		time.Sleep(time.Minute)
		r.Heal()
		same(t, got(), outcome{"", syscall.ECONNRESET, time.Minute + 10*ms})
	})
}

func TestBlackHoleLeavesWhatHasArrived(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		write(t, near, "arrived")
		near.CloseWrite()
		time.Sleep(10 * ms)
		r.BlackHole(true, true)
		same(t, reads(far, start)(), outcome{"arrived", nil, 10 * ms}, outcome{"", io.EOF, 10 * ms})
	})
}

func TestBytesHealedIntoAClosedEndAreAnsweredByReset(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		got := reads(near, time.Now())
		r.BlackHole(true, false)
		write(t, near, "x")
		far.Reset(0) // reaches near at 10 ms
		same(t, got(), outcome{"", syscall.ECONNRESET, 10 * ms})
	})
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		start := time.Now()
		r.BlackHole(true, false)
		write(t, near, "x")
		far.Close()
		same(t, reads(near, start)(), outcome{"", io.EOF, 10 * ms})
		time.Sleep(990 * ms)
		r.Heal() // x arrives at 1010 ms, its answer at 1020 ms
		time.Sleep(19 * ms)
		write(t, near, "y")
		time.Sleep(ms)
		if _, err := near.Write([]byte("z")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Write after the answer: %v, want ECONNRESET", err)
		}
	})
}

func TestLoseLarge(t *testing.T) {
	bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
		got := reads(far, time.Now())
		r.LoseLarge(4, 0)
		write(t, near, "1234")
		write(t, near, "12345")
		write(t, near, "6") // behind the lost one
		other, otherFar := r.Pipe()
		write(t, other, "ok")
		other.Close()
		same(t, reads(otherFar, time.Now())(), outcome{"ok", nil, 10 * ms}, outcome{"", io.EOF, 10 * ms})
		write(t, far, "large ones pass this way")
		time.Sleep(90 * ms)
		r.Heal()
		near.CloseWrite()
		same(t, got(), outcome{"1234", nil, 10 * ms}, outcome{"123456", nil, 110 * ms}, outcome{"", io.EOF, 110 * ms})
	})
}

func TestCutAfter(t *testing.T) {
	const text = "0123456789"
	for n := int64(0); n <= 10; n++ {
		for _, onRoute := range []bool{false, true} {
			bubble(t, 10*ms, func(t *testing.T, r *Route, near, far *Conn) {
				if onRoute && n > 0 {
					r.CutAfter(true, n)
				} else {
					near.CutAfter(n)
				}
				start := time.Now()
				for len := range 2 { // the cut may come in the first or the second write
					if _, err := io.WriteString(near, text[len*5:len*5+5]); err != nil && int64(len*5) < n {
						t.Fatalf("write %d with a cut after %d: %v", len, n, err)
					}
				}
				if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the writing end reads %v, want ECONNRESET", err)
				}
				want := []outcome{{text[:n], nil, 10 * ms}, {"", syscall.ECONNRESET, 10 * ms}}
				if n == 0 {
					want = []outcome{{"", syscall.ECONNRESET, 0}}
				}
				same(t, reads(far, start)(), want...)
				if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the reading end writes: %v, want ECONNRESET", err)
				}
			})
		}
	}
}

func TestDeadlines(t *testing.T) {
	bubble(t, 0, func(t *testing.T, _ *Route, near, far *Conn) {
		start := time.Now()
		near.SetReadDeadline(start.Add(time.Second))
		go func() {
			time.Sleep(500 * ms)
			near.SetReadDeadline(start.Add(2 * time.Second)) // moves the one that is waited for
		}()
		_, err := near.Read(make([]byte, 1))
		var ne net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() || time.Since(start) != 2*time.Second {
			t.Errorf("Read: %v at %v, want a time-out at 2 s", err, time.Since(start))
		}
		near.SetDeadline(time.Time{})
		write(t, far, "x")
		if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
			t.Errorf("Read after the deadline was lifted: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			near.Close()
		}()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read of a conn that is closed meanwhile: %v", err)
		}
		if err := near.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		if err := near.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetDeadline after Close: %v", err)
		}
	})
}

// TestRandomFaultsKeepTheStream: whatever delays, holes, rates and sizes come, what is read is what was written.
func TestRandomFaultsKeepTheStream(t *testing.T) {
	for seed := range uint64(30) {
		bubble(t, 0, func(t *testing.T, r *Route, near, far *Conn) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			want := make([]byte, 50_000)
			for i := range want {
				want[i] = byte(rnd.Uint32())
			}
			r.SetBuffer(100 + rnd.IntN(20_000))
			go func() {
				for p := want; len(p) > 0; {
					n := min(len(p), 1+rnd.IntN(5000))
					near.Write(p[:n])
					p = p[n:]
				}
				near.Close()
			}()
			faults := rand.New(rand.NewPCG(seed, 2))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 50 {
					r.BlackHole(faults.IntN(2) == 0, faults.IntN(2) == 0)
					r.LoseLarge(faults.IntN(5000), 0)
					r.SetDelay(time.Duration(faults.IntN(50)) * ms)
					r.SetRate(int64(faults.IntN(2) * 1_000_000))
					r.SetReadSize(faults.IntN(3000))
					time.Sleep(time.Duration(faults.IntN(20)) * ms)
				}
				r.SetRate(0)
				r.Heal()
			}()
			got, err := io.ReadAll(far)
			<-done
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("seed %d: read %d bytes, %v; equal: %v", seed, len(got), err, bytes.Equal(got, want))
			}
		})
	}
}
