package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/internal/pipe"
	"linkproxy/link"
)

// echo answers what comes until it ends.
func echo(c net.Conn) {
	_, _ = io.Copy(c, struct{ io.Reader }{c})
	_ = c.Close()
}

func TestEcho(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		s := w.open(w.target(echo))
		w.exchange(s, "hello")
		_ = s.CloseWrite()
		if b, err := io.ReadAll(s); len(b) != 0 || err != nil {
			w.t.Errorf("behind the end: %q, %v", b, err)
		}
		_ = s.Close()
	})
}

// TestHalfClose: either side may end its direction first and still gets the other's bytes.
func TestHalfClose(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		got := make(chan string, 2)
		answers := w.target(func(c net.Conn) { // ends last
			b, err := io.ReadAll(c)
			if err != nil {
				w.t.Error(err)
			}
			got <- string(b)
			_, _ = c.Write([]byte("answer"))
			_ = c.Close()
		})
		s := w.open(answers)
		_, _ = s.Write([]byte("question"))
		_ = s.CloseWrite()
		if b, err := io.ReadAll(s); string(b) != "answer" || err != nil {
			w.t.Errorf("the answer is %q, %v", b, err)
		}
		talks := w.target(func(c net.Conn) { // ends first
			_, _ = c.Write([]byte("greeting"))
			closeWrite(c)
			b, _ := io.ReadAll(c)
			got <- string(b)
			_ = c.Close()
		})
		s = w.open(talks)
		if b, err := io.ReadAll(s); string(b) != "greeting" || err != nil {
			w.t.Errorf("the greeting is %q, %v", b, err)
		}
		_, _ = s.Write([]byte("late word"))
		_ = s.CloseWrite()
		if a, b := <-got, <-got; a != "question" || b != "late word" {
			w.t.Errorf("the targets got %q and %q", a, b)
		}
	})
}

func TestTargetResets(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		s := w.open(w.target(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			pipe.Reset(c)
		}))
		_, _ = s.Write([]byte("x"))
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, link.ErrReset) {
			w.t.Errorf("reading: %v, want a reset", err)
		}
		_ = s.Close()
	})
}

func TestClientResets(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		got := make(chan error, 1)
		s := w.open(w.target(func(c net.Conn) {
			_, err := io.Copy(io.Discard, c)
			got <- err
			_ = c.Close()
		}))
		s.Reset(uint32(link.CodeAborted))
		if err := <-got; err == nil {
			w.t.Error("the target saw a clean end")
		}
	})
}

// TestTargetThatNeverReads stalls its own stream only.
func TestTargetThatNeverReads(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		release := make(chan struct{})
		defer close(release)
		deaf := w.open(w.target(func(c net.Conn) {
			<-release
			_ = c.Close()
		}))
		stalled := make(chan error, 1)
		w.wg.Go(func() {
			_, err := deaf.Write(make([]byte, 64<<20))
			stalled <- err
		})
		other := w.open(w.target(echo))
		for range 100 {
			w.exchange(other, "still here")
		}
		select {
		case err := <-stalled:
			w.t.Errorf("64 MiB went to a target that reads nothing: %v", err)
		default:
		}
		_, _ = other.Close(), w.client.Close()
		if err := <-stalled; err == nil {
			w.t.Error("the stalled write succeeded")
		}
	})
}

// TestAppThatNeverReads: what a target sends stays there, and other streams go on.
func TestAppThatNeverReads(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		var sent atomic.Int64
		deaf := w.open(w.target(func(c net.Conn) {
			for chunk := make([]byte, 64<<10); ; {
				n, err := c.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					_ = c.Close()
					return
				}
			}
		}))
		other := w.open(w.target(echo))
		for range 200 {
			w.exchange(other, "still here")
		}
		if !w.real {
			time.Sleep(time.Minute)
			if n := sent.Load(); n == 0 || n > 2<<20 {
				w.t.Errorf("%d bytes were taken from the target", n)
			}
		}
		_, _ = other.Close(), deaf.Close()
	})
}

func TestRefusals(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		good := w.target(echo)
		for target, want := range map[string]link.Code{
			w.closedPort():     link.CodeRefused,
			"10.1.2.3:80":      link.CodeNotAllowed,
			"0.0.0.0:80":       link.CodeNotAllowed,
			"db.internal:5432": link.CodeNotFound,
			"no target":        link.CodeNotAllowed,
			"":                 link.CodeNotAllowed,
			"\x00\xff:1":       link.CodeNotAllowed,
		} {
			if got := w.refusal(w.start(target)); got != want {
				w.t.Errorf("%q: %s, want %s", target, got, want)
			}
		}
		s := w.open(good)
		w.exchange(s, "unharmed")
		_ = s.Close()
	})
}

// TestRefusalsOfFarTargets needs a network of its own making.
func TestRefusalsOfFarTargets(t *testing.T) {
	edit := func(c *Config) {
		c.Policy.Allow = rules(t, "10.0.0.0/8:*", "*.internal:5432")
		c.Policy.Own = func() ([]netip.Addr, error) { return nil, nil }
		c.Policy.Resolve = answers(t, map[string]string{"db.internal": "10.0.0.5"})
	}
	bubble(t, edit, func(w *world) {
		t := w.t
		w.attached()
		w.net.Route("10.0.0.1:80").Unreachable(true)
		w.net.Route("10.0.0.2:80").Hang(true)
		for _, c := range []struct {
			target string
			want   link.Code
			after  time.Duration
		}{
			{"10.0.0.1:80", link.CodeUnreachable, 0},
			{"10.0.0.2:80", link.CodeTimeout, targetTimeout},
			{"gone.internal:5432", link.CodeNotFound, 0},
			{"db.internal:5432", link.CodeRefused, 0},
		} {
			start := time.Now()
			if got := w.refusal(w.start(c.target)); got != c.want || time.Since(start).Round(100*time.Millisecond) != c.after {
				t.Errorf("%s: %s after %v, want %s after %v", c.target, got, time.Since(start), c.want, c.after)
			}
		}
		synctest.Wait()
		if n := w.srv.Status()[0].Status.Streams; n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// TestManyStreams: two thousand at a time, each with its own bytes.
func TestManyStreams(t *testing.T) {
	const n = 2000
	bubble(t, func(c *Config) { c.Waiting = n }, func(w *world) {
		t := w.t
		w.attached()
		target := w.target(echo)
		var wg sync.WaitGroup
		all, counted := make(chan struct{}), make(chan struct{})
		var open atomic.Int64
		for i := range n {
			s := w.start(target)
			wg.Go(func() {
				word := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 50)
				w.exchange(s, string(word))
				if open.Add(1) == n {
					close(all)
				}
				<-counted
				w.exchange(s, string(word))
				_ = s.CloseWrite()
				if b, err := io.ReadAll(s); len(b) != 0 || err != nil {
					t.Errorf("stream %d: %d bytes behind the end, %v", i, len(b), err)
				}
				_ = s.Close()
			})
		}
		<-all
		if st := w.srv.Status()[0]; st.Status.Streams != n || len(st.Streams) != n {
			t.Errorf("the status has %d streams and lists %d", st.Status.Streams, len(st.Streams))
		}
		close(counted)
		wg.Wait()
		synctest.Wait()
		if a, b := w.srv.Status()[0].Status.Streams, w.client.Status().Streams; a+b != 0 {
			t.Errorf("%d streams are left at the host, %d at the client", a, b)
		}
	})
}

// TestOutOfFiles: a client is told that this host is busy, not that its target cannot be reached.
func TestOutOfFiles(t *testing.T) {
	edit := func(cfg *Config) {
		cfg.Policy.Connect = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}
	}
	bubble(t, edit, func(w *world) {
		w.attached()
		if code := w.refusal(w.start("127.0.0.1:1")); code != link.CodeBusy {
			w.t.Errorf("the client was told %s", code)
		}
	})
}

// TestDialsInFlight: so many at a time, further ones wait in order, the next ones are told that it is busy. Another client
// has its own.
func TestDialsInFlight(t *testing.T) {
	for name, c := range map[string]struct{ dials, waiting, inFlight, queue int }{
		"defaults": {0, 0, 64, 1024},
		"few":      {2, 3, 2, 3},
		"no queue": {1, -1, 1, 20},
	} {
		t.Run(name, func(t *testing.T) {
			var running, most atomic.Int64
			release := make(chan struct{})
			edit := func(cfg *Config) {
				cfg.Dials, cfg.Waiting = c.dials, c.waiting
				cfg.Policy.Timeout = -1
				cfg.Policy.Connect = func(ctx context.Context, _, _ string) (net.Conn, error) {
					defer running.Add(-1)
					n := running.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-release:
						return nil, errors.New("no way")
					}
				}
			}
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				w := newWorld(t, inMemory, edit)
				defer w.close()
				testDialsInFlight(w, c.inFlight, c.queue, c.waiting >= 0, &running, release)
				if n := most.Load(); n != int64(c.inFlight)+1 { // and the other client's
					t.Errorf("%d dials were in flight at a time", n)
				}
			})
		})
	}
}

func testDialsInFlight(w *world, inFlight, queue int, bounded bool, running *atomic.Int64, release chan struct{}) {
	t := w.t
	w.attached()
	var waiting []*link.Stream
	for range inFlight + queue {
		waiting = append(waiting, w.start("127.0.0.1:1"))
	}
	synctest.Wait()
	if n := running.Load(); n != int64(inFlight) {
		t.Errorf("%d dials in flight, want %d", n, inFlight)
	}
	if bounded {
		for range 3 {
			if code := w.refusal(w.start("127.0.0.1:1")); code != link.CodeBusy {
				t.Errorf("beyond the queue: %s", code)
			}
		}
	}
	key := w.newClientKey("other")
	other := w.newClient(key, 0)
	defer other.Close()
	if err := w.attach(other, key); err != nil {
		t.Fatal(err)
	}
	s := w.startOn(other, "127.0.0.1:1")
	synctest.Wait()
	if n := running.Load(); n != int64(inFlight)+1 {
		t.Errorf("%d dials in flight with another client's", n)
	}
	waiting[0].Reset(0)              // in flight
	waiting[len(waiting)-1].Reset(0) // in the queue
	synctest.Wait()
	if n := running.Load(); n != int64(inFlight)+1 {
		t.Errorf("%d dials in flight after one was cancelled", n)
	}
	close(release)
	for _, s := range append(waiting[1:len(waiting)-1], s) {
		if code := w.refusal(s); code != link.CodeUnreachable {
			t.Errorf("released: %s", code)
		}
	}
	synctest.Wait()
	w.srv.dials.mu.Lock()
	defer w.srv.dials.mu.Unlock()
	if n := len(w.srv.dials.keys); n != 0 {
		t.Errorf("%d keys are still counted", n)
	}
}

// TestDialIsCancelled by a reset, also when first bytes came with OPEN, and by the end of the link; not by the loss of its
// carriers.
func TestDialIsCancelled(t *testing.T) {
	type dial struct {
		ended time.Duration
		err   error
	}
	dials := make(chan dial, 1)
	edit := func(c *Config) {
		c.Policy.Connect = func(ctx context.Context, _, _ string) (net.Conn, error) {
			start := time.Now()
			<-ctx.Done()
			dials <- dial{time.Since(start), context.Cause(ctx)}
			return nil, ctx.Err()
		}
	}
	for name, c := range map[string]struct {
		end  func(w *world, s *link.Stream)
		want dial
	}{
		"reset":    {func(_ *world, s *link.Stream) { s.Reset(0) }, dial{time.Second, context.Canceled}},
		"close":    {func(w *world, _ *link.Stream) { _ = w.client.Close() }, dial{time.Second, context.Canceled}},
		"revoke":   {func(w *world, _ *link.Stream) { w.srv.links.Revoke(w.key.Fingerprint()) }, dial{time.Second, context.Canceled}},
		"lost":     {func(w *world, _ *link.Stream) { w.net.Route("lan").Reset() }, dial{targetTimeout, context.DeadlineExceeded}},
		"shutdown": {func(w *world, _ *link.Stream) { _ = w.srv.Close() }, dial{time.Second, context.Canceled}},
	} {
		for _, early := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				dialsOfTest := make(chan dial, 1)
				synctest.Test(t, func(t *testing.T) {
					dials = make(chan dial, 1)
					w := newWorld(t, inMemory, edit)
					defer w.close()
					w.attached()
					s := w.start("127.0.0.1:1")
					if early {
						_, _ = s.Write([]byte("first bytes"))
					}
					time.Sleep(time.Second)
					c.end(w, s)
					dialsOfTest <- <-dials
				})
				if got := <-dialsOfTest; got != c.want {
					t.Errorf("early %v: the dial ended %+v, want %+v", early, got, c.want)
				}
			})
		}
	}
}

// TestHoldOfARule: the allow rule's hold bounds the stream's, to the nanosecond; the target sees a reset then.
func TestHoldOfARule(t *testing.T) {
	edit := func(c *Config) {
		c.Policy.Allow = rules(t, "127.0.0.1:1001", "127.0.0.1:*")
		c.Policy.Allow[0].Hold = time.Hour
	}
	bubble(t, edit, func(w *world) {
		t := w.t
		w.attached()
		ends := make(chan time.Time, 2)
		target := func(c net.Conn) {
			_, err := io.Copy(io.Discard, c)
			if err == nil {
				t.Error("the target saw a clean end")
			}
			ends <- time.Now()
			_ = c.Close()
		}
		short, long := w.open(w.target(target)), w.open(w.target(target))
		_ = short
		synctest.Wait()
		w.net.Route("lan").Reset()
		lost := time.Now()
		if d := (<-ends).Sub(lost); d != time.Hour {
			t.Errorf("the bounded stream was held for %v", d)
		}
		if d := (<-ends).Sub(lost); d != 24*time.Hour {
			t.Errorf("the other one was held for %v", d)
		}
		_ = long
	})
}

// TestStreamsOfAKey: beyond the bound a stream is refused, and the others are not harmed.
func TestStreamsOfAKey(t *testing.T) {
	bubble(t, func(c *Config) { c.Streams = 10 }, func(w *world) {
		t := w.t
		client := w.newClient(w.key, -1)
		defer client.Close()
		if err := w.attach(client, w.key); err != nil {
			t.Fatal(err)
		}
		target := w.target(echo)
		var held []*link.Stream
		for range 10 {
			held = append(held, w.startOn(client, target))
			w.exchange(held[len(held)-1], "word")
		}
		for range 5 {
			if code := w.refusal(w.startOn(client, target)); code != link.CodeBusy {
				t.Errorf("beyond the bound: %s", code)
			}
		}
		_ = held[0].CloseWrite()
		_, _ = io.ReadAll(held[0])
		_ = held[0].Close()
		synctest.Wait()
		held[0] = w.startOn(client, target)
		for _, s := range held {
			w.exchange(s, "another word")
		}
	})
}

// TestStreamsByDefault: 8192.
func TestStreamsByDefault(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 8192 streams")
	}
	edit := func(c *Config) {
		c.Dials = -1
		c.Policy.Timeout = -1
		c.Policy.Connect = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	bubble(t, edit, func(w *world) {
		t := w.t
		client := w.newClient(w.key, -1)
		defer client.Close()
		if err := w.attach(client, w.key); err != nil {
			t.Fatal(err)
		}
		for range link.DefaultStreams {
			w.startOn(client, "127.0.0.1:1")
		}
		synctest.Wait()
		if n := len(w.srv.Status()[0].Streams); n != link.DefaultStreams {
			t.Errorf("%d streams are open", n)
		}
		if code := w.refusal(w.startOn(client, "127.0.0.1:1")); code != link.CodeBusy {
			t.Errorf("one more: %s", code)
		}
	})
}
