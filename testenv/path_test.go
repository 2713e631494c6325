package testenv

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test on real sockets waits for an event that has to come.
const patience = 20 * time.Second

// quiet is how long a test watches that nothing comes.
const quiet = 100 * time.Millisecond

// echoServer returns the address of a server that sends everything back and, at EOF, half-closes.
func echoServer(t testing.TB) string {
	t.Helper()
	return server(t, func(c *net.TCPConn) {
		io.Copy(c, c)
		c.CloseWrite()
	})
}

// server serves each connection by serve until the test ends, and then waits for all of them.
func server(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

func newPath(t testing.TB, target string) *Path {
	t.Helper()
	p, err := NewPath(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := p.Live(); n != 0 {
			t.Errorf("%d connections live after Close", n)
		}
	})
	return p
}

// dialPath connects through p; every operation has to end in time.
func dialPath(t testing.TB, p *Path) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// expect reads exactly want.
func expect(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// silent reads nothing for a while.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(quiet))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read = %d, %v, want silence", n, err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
}

func TestPathEchoAndHalfClose(t *testing.T) {
	p := newPath(t, echoServer(t))
	c := dialPath(t, p)
	write(t, c, "hello")
	expect(t, c, "hello")
	write(t, c, "bye")
	c.CloseWrite()
	rest, err := io.ReadAll(c)
	if string(rest) != "bye" || err != nil {
		t.Errorf("after CloseWrite: %q, %v", rest, err)
	}
	if up, down := p.Bytes(); up != 8 || down != 8 {
		t.Errorf("Bytes() = %d, %d, want 8, 8", up, down)
	}
}

func TestPathDelay(t *testing.T) {
	const d = 10 * ms
	p := newPath(t, echoServer(t))
	p.SetDelay(d)
	start := time.Now()
	c := dialPath(t, p)
	write(t, c, "first")
	expect(t, c, "first")
	if took := time.Since(start); took < 4*d-lump {
		t.Errorf("the first echo took %v: less than a handshake and a round trip", took)
	}
	var trips []time.Duration
	for range 20 {
		start := time.Now()
		write(t, c, "x")
		expect(t, c, "x")
		trips = append(trips, time.Since(start))
	}
	slices.Sort(trips)
	t.Logf("round trips: best %v, median %v, worst %v", trips[0], trips[10], trips[19])
	if trips[0] < 2*d {
		t.Errorf("a round trip took %v, less than %v", trips[0], 2*d)
	}
	if trips[0] > 3*d { // how exact it is on a quiet machine is for BenchmarkPathDelay to say
		t.Errorf("the best round trip took %v, want about %v", trips[0], 2*d)
	}
	start = time.Now()
	c.CloseWrite()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF || time.Since(start) < 2*d {
		t.Errorf("EOF took %v, %v; want no less than %v", time.Since(start), err, 2*d)
	}
}

func TestPathServerSpeaksFirst(t *testing.T) {
	const d = 10 * ms
	p := newPath(t, server(t, func(c *net.TCPConn) { io.WriteString(c, "220 ready") }))
	p.SetDelay(d)
	start := time.Now()
	c := dialPath(t, p)
	expect(t, c, "220 ready")
	if took := time.Since(start); took < 4*d {
		t.Errorf("greeted after %v, want two round trips", took)
	}
}

func TestPathRate(t *testing.T) {
	p := newPath(t, echoServer(t))
	p.SetRate(1_000_000)
	c := dialPath(t, p)
	start := time.Now()
	go func() {
		c.Write(make([]byte, 200_000))
		c.CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	if took := time.Since(start); n != 200_000 || err != nil || took < 199*ms {
		t.Errorf("read %d, %v in %v; want 200000 in 200 ms", n, err, took)
	}
}

func TestPathReset(t *testing.T) {
	p := newPath(t, echoServer(t))
	a, b := dialPath(t, p), dialPath(t, p)
	for _, c := range []net.Conn{a, b} {
		write(t, c, "x")
		expect(t, c, "x")
	}
	if p.Live() != 2 {
		t.Errorf("%d live, want 2", p.Live())
	}
	p.Reset()
	for _, c := range []net.Conn{a, b} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read: %v, want ECONNRESET", err)
		}
	}
	if p.Live() != 0 {
		t.Errorf("%d live after Reset", p.Live())
	}
	c := dialPath(t, p) // new ones are welcome
	write(t, c, "x")
	expect(t, c, "x")
}

func TestPathFin(t *testing.T) {
	const before, after = 100_000, 50_000
	arrived, rest := make(chan error, 1), make(chan int64, 1)
	p := newPath(t, server(t, func(c *net.TCPConn) {
		_, err := io.ReadFull(c, make([]byte, before))
		arrived <- err
		n, err := io.Copy(io.Discard, c)
		if err != nil {
			t.Errorf("the target read %v, want EOF", err)
		}
		rest <- n
	}))
	c := dialPath(t, p)
	write(t, c, string(make([]byte, before)))
	if err := <-arrived; err != nil {
		t.Fatal(err)
	}
	p.Fin()
	write(t, c, string(make([]byte, after))) // into the void
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the app read %d bytes, %v; want EOF", n, err)
	}
	if n := <-rest; n != 0 {
		t.Errorf("%d bytes passed after Fin", n)
	}
}

func TestPathPassesResetsOn(t *testing.T) {
	ended := make(chan error, 1)
	p := newPath(t, server(t, func(c *net.TCPConn) {
		io.WriteString(c, "x")
		_, err := io.Copy(io.Discard, c)
		ended <- err
	}))
	c := dialPath(t, p)
	expect(t, c, "x")
	c.SetLinger(0)
	c.Close()
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the target saw %v, want ECONNRESET", err)
	}
	q := newPath(t, server(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0)
	}))
	c = dialPath(t, q)
	write(t, c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the app saw %v, want ECONNRESET", err)
	}
}

func TestPathTargetThatHasGone(t *testing.T) {
	p := newPath(t, server(t, func(*net.TCPConn) {})) // closes at once
	c := dialPath(t, p)
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("Read = %d, %v, want EOF", n, err)
	}
	for { // the first writes are answered by a reset, which then comes through
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("writing to a target that has gone never fails")
			}
			break
		}
	}
	q := newPath(t, "127.0.0.1:1")         // nobody listens
	late, err := net.Dial("tcp", q.Addr()) // the reset may be faster than the dial
	if err == nil {
		defer late.Close()
		late.SetDeadline(time.Now().Add(patience))
		_, err = late.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("no target: %v, want ECONNRESET", err)
	}
}

func TestPathBlackHole(t *testing.T) {
	for _, way := range []struct {
		name     string
		up, down bool
	}{{"up", true, false}, {"down", false, true}, {"both", true, true}} {
		t.Run(way.name, func(t *testing.T) {
			p := newPath(t, echoServer(t))
			p.SetDelay(ms)
			c := dialPath(t, p)
			write(t, c, "a")
			expect(t, c, "a")
			p.BlackHole(way.up, way.down)
			late := dialPath(t, p)
			write(t, late, "late")
			write(t, c, "b")
			c.CloseWrite()
			silent(t, c)
			if p.Live() == 0 { // late may not be counted yet
				t.Error("the connection did not survive the black hole")
			}
			p.Heal()
			expect(t, late, "late")
			if rest, err := io.ReadAll(c); string(rest) != "b" || err != nil {
				t.Errorf("after Heal: %q, %v", rest, err)
			}
		})
	}
}

func TestPathBlackHoleReadsNothing(t *testing.T) {
	p := newPath(t, echoServer(t))
	c := dialPath(t, p)
	write(t, c, "a")
	expect(t, c, "a")
	p.BlackHole(true, true)
	const total = 1 << 20
	var wg sync.WaitGroup
	wg.Go(func() {
		c.Write(make([]byte, total))
		c.CloseWrite()
	})
	silent(t, c)
	p.mu.Lock()
	taken := p.pairs[0].up.size
	p.mu.Unlock()
	if taken > ringStart { // the read that was waiting when the hole opened
		t.Errorf("%d bytes read in a black hole", taken)
	}
	p.Heal()
	if n, err := io.Copy(io.Discard, c); n != total || err != nil {
		t.Errorf("after Heal: %d bytes, %v", n, err)
	}
	wg.Wait()
}

func TestPathLoseLarge(t *testing.T) {
	p := newPath(t, echoServer(t))
	c := dialPath(t, p)
	p.LoseLarge(1000, 0)
	write(t, c, "small")
	expect(t, c, "small")
	large := string(bytes.Repeat([]byte("L"), 5000))
	write(t, c, large)
	silent(t, c)
	write(t, c, "small")
	silent(t, c)
	p.Heal()
	expect(t, c, large+"small")
}

func TestPathCutAfter(t *testing.T) {
	got := make(chan int64, 1)
	target := server(t, func(c *net.TCPConn) {
		n, err := io.Copy(io.Discard, c)
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the target saw %v, want ECONNRESET", err)
		}
		got <- n
	})
	for _, n := range []int64{1, 1000, 70_001} {
		p := newPath(t, target)
		p.CutAfter(true, n)
		c := dialPath(t, p)
		c.Write(make([]byte, 100_000))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the app saw %v, want ECONNRESET", err)
		}
		if g := <-got; g > n {
			t.Errorf("the target got %d bytes, cut after %d", g, n)
		}
		if up, _ := p.Bytes(); up != n {
			t.Errorf("Bytes() = %d up, want %d", up, n)
		}
	}
}

func TestPathRefuseAndHang(t *testing.T) {
	p := newPath(t, echoServer(t))
	old := dialPath(t, p)
	write(t, old, "x")
	expect(t, old, "x")
	if err := p.Refuse(true); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial: %v, want ECONNREFUSED", err)
	}
	write(t, old, "still alive")
	expect(t, old, "still alive")
	for range 2 { // saying it again changes nothing
		if err := p.Refuse(false); err != nil {
			t.Fatal(err)
		}
	}
	p.Hang(true)
	c := dialPath(t, p)
	write(t, c, "x")
	silent(t, c)
	p.Hang(false)
	expect(t, c, "x")
	p.Hang(true)
	dialPath(t, p) // Close must not wait for it
}

func TestPathKeepsTheStream(t *testing.T) {
	p := newPath(t, echoServer(t))
	c := dialPath(t, p)
	const total = 8 << 20
	sent, got := sha256.New(), sha256.New()
	piece := make([]byte, 77_777)
	var wg sync.WaitGroup
	wg.Go(func() {
		for left := total; left > 0; {
			n := min(left, len(piece))
			for i := range piece {
				piece[i] = byte(left + i*i)
			}
			sent.Write(piece[:n])
			if _, err := c.Write(piece[:n]); err != nil {
				t.Errorf("Write: %v", err)
				return
			}
			left -= n
			switch left / len(piece) % 20 { // faults at fixed places of the stream
			case 3:
				p.SetDelay(3 * ms)
			case 7:
				p.BlackHole(true, true)
				p.BlackHole(true, false)
				p.Heal()
			case 11:
				p.SetRate(50_000_000)
			case 15:
				p.SetRate(0)
				p.SetDelay(0)
			}
		}
		c.CloseWrite()
	})
	n, err := io.Copy(got, c)
	wg.Wait()
	if n != total || err != nil || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("read %d of %d bytes, %v; equal: %v", n, total, err, bytes.Equal(sent.Sum(nil), got.Sum(nil)))
	}
}

func BenchmarkPath(b *testing.B) {
	for _, d := range []time.Duration{0, 10 * ms, 40 * ms} {
		b.Run(d.String(), func(b *testing.B) {
			chunk := make([]byte, 256<<10)
			p := newPath(b, server(b, func(c *net.TCPConn) {
				for {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			}))
			p.SetDelay(d)
			c := dialPath(b, p)
			buf := make([]byte, 256<<10)
			io.ReadFull(c, buf)
			b.SetBytes(1 << 20)
			b.ResetTimer()
			for range b.N {
				for left := 1 << 20; left > 0; {
					n, err := c.Read(buf)
					if err != nil {
						b.Fatal(err)
					}
					left -= n
				}
			}
			b.StopTimer()
			p.Reset()
		})
	}
}

// BenchmarkPathDelay reports how late each way is.
func BenchmarkPathDelay(b *testing.B) {
	const d = 10 * ms
	p := newPath(b, echoServer(b))
	p.SetDelay(d)
	c := dialPath(b, p)
	write(b, c, "x")
	expect(b, c, "x")
	trips := make([]time.Duration, b.N)
	for i := range trips {
		start := time.Now()
		write(b, c, "x")
		expect(b, c, "x")
		trips[i] = time.Since(start)
	}
	slices.Sort(trips)
	b.ReportMetric(float64(trips[len(trips)/2]-2*d)/2/float64(time.Microsecond), "µs-late/way")
}

func BenchmarkPipe(b *testing.B) {
	near, far := Pipe()
	chunk := make([]byte, 16<<10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(io.Discard, far)
	}()
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		near.Write(chunk)
	}
	near.Close()
	<-done
}
