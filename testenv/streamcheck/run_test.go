package streamcheck

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/testenv"
)

// play runs p over a route in memory with a delay of 10 ms each way, while world does things to it, and returns what both
// ends saw.
func play(t *testing.T, p Plan, world func(r *testenv.Route, cancel func())) (client, server Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := testenv.NewRoute()
		r.SetDelay(10 * ms)
		near, far := r.Pipe()
		served := make(chan Report, 1)
		go func() {
			s, err := Serve(far)
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
			served <- s
		}()
		ctx, cancel := context.WithCancelCause(t.Context())
		if world != nil {
			go world(r, func() { cancel(errors.New("the test is over")) })
			synctest.Wait() // what it does first comes first
		}
		client = Run(ctx, near, p)
		if !client.Whole() {
			r.Reset() // a server that has lost its client without a word
		}
		server = <-served
		cancel(nil)
		if n := r.Live(); n != 0 {
			t.Errorf("%d connections live", n)
		}
	})
	return client, server
}

func wantWhole(t *testing.T, r Report) {
	t.Helper()
	if !r.Whole() || r.Err != "" {
		t.Errorf("not whole: %s", r.String())
	}
	for _, w := range []Way{r.Up, r.Down} {
		if w.Sent != w.Verified || w.Received != w.Sent {
			t.Errorf("sent %d, received %d, verified %d", w.Sent, w.Received, w.Verified)
		}
	}
}

func TestTick(t *testing.T) {
	p := Tick(1, 10*ms, time.Second)
	p.Arrivals = true
	client, server := play(t, p, nil)
	wantWhole(t, client)
	for name, w := range map[string]Way{"up": client.Up, "down": client.Down} {
		if w.Sent != 100*tickSize || w.Longest.For != 10*ms || w.StallCount != 0 || len(w.Arrivals) != 100 {
			t.Errorf("%s: %+v", name, w)
		}
		if n := w.Bytes(500*ms, 600*ms); n != 10*tickSize {
			t.Errorf("%s: %d bytes in the sixth tenth of a second", name, n)
		}
	}
	if d := client.Down; d.First != 20*ms || d.Last != 1010*ms || d.Arrivals[50] != 520*ms {
		t.Errorf("down: first %v, last %v, arrival 50 at %v", d.First, d.Last, d.Arrivals[50])
	}
	if !slices.Equal(server.Up.Arrivals, client.Up.Arrivals) {
		t.Error("the client did not get the server's half")
	}
	if _, err := json.Marshal(client); err != nil {
		t.Error(err)
	}
}

func TestStallsAreExact(t *testing.T) {
	client, _ := play(t, Tick(2, 10*ms, 2*time.Second), func(r *testenv.Route, _ func()) {
		time.Sleep(515 * ms) // the last byte that passed came at 510 ms, at either end
		r.BlackHole(true, true)
		time.Sleep(300 * ms)
		r.Heal() // what was held comes 10 ms later
		time.Sleep(500 * ms)
		r.BlackHole(false, true)
		time.Sleep(45 * ms)
		r.Heal()
	})
	wantWhole(t, client)
	up, down := client.Up, client.Down
	// The server counts from the arrival of the plan, 10 ms after the client's start.
	if want := []Span{{500 * ms, 315 * ms}}; !slices.Equal(up.Stalls, want) || up.Longest != want[0] {
		t.Errorf("up: %v, want %v", up.Stalls, want)
	}
	if want := []Span{{510 * ms, 315 * ms}, {1310 * ms, 60 * ms}}; !slices.Equal(down.Stalls, want) {
		t.Errorf("down: %v, want %v", down.Stalls, want)
	}
	if down.StallCount != 2 || down.StallTime != 375*ms {
		t.Errorf("down: %d stalls, %v", down.StallCount, down.StallTime)
	}
	for _, c := range []struct{ from, to, want time.Duration }{
		{0, 2 * time.Second, 315 * ms},
		{0, 500 * ms, 10 * ms},
		{600 * ms, 700 * ms, 100 * ms},
		{900 * ms, 1300 * ms, 10 * ms},
		{1300 * ms, 2 * time.Second, 60 * ms},
	} {
		if got := down.Stall(c.from, c.to); got != c.want {
			t.Errorf("the longest stall of %v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestBlast(t *testing.T) {
	for name, c := range map[string]struct {
		plan     Plan
		up, down bool
	}{
		"up":   {Blast(3, Up, 0, 1<<20), true, false},
		"down": {Blast(3, Down, 0, 1<<20), false, true},
		"both": {Blast(3, Both, 0, 1<<20), true, true},
		"time": {Blast(3, Both, 400*ms, 0), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := play(t, c.plan, func(r *testenv.Route, _ func()) { r.SetRate(5_000_000) })
			wantWhole(t, client)
			for _, d := range []struct {
				w  Way
				on bool
			}{{client.Up, c.up}, {client.Down, c.down}} {
				switch {
				case !d.on && d.w.Sent != 0:
					t.Errorf("sent %d", d.w.Sent)
				case d.on && c.plan.Up.Bytes+c.plan.Down.Bytes > 0 && d.w.Sent != 1<<20:
					t.Errorf("sent %d", d.w.Sent)
				case d.on && (d.w.Rate() < 4e6 || d.w.Rate() > 5e6):
					t.Errorf("%.0f bytes a second of 5 000 000", d.w.Rate())
				}
			}
		})
	}
}

func TestIdleAndKeys(t *testing.T) {
	client, _ := play(t, Idle(4, time.Hour), nil)
	wantWhole(t, client)
	if want := []Span{{time.Hour, 20 * ms}}; !slices.Equal(client.Trips, want) {
		t.Errorf("trips: %v, want %v", client.Trips, want)
	}
	client, _ = play(t, Keys(4, 100*ms, time.Second), func(r *testenv.Route, _ func()) {
		time.Sleep(450 * ms)
		r.BlackHole(false, true)
		time.Sleep(100 * ms)
		r.Heal() // the answer to the key of 500 ms, held at 510, comes at 560
	})
	wantWhole(t, client)
	if len(client.Trips) != 10 || client.Trip(0.5) != 20*ms || client.Trip(1) != 60*ms {
		t.Errorf("trips: %v", client.Trips)
	}
}

func TestStopEndsWhatHasNoEnd(t *testing.T) {
	for name, p := range map[string]Plan{
		"tick": Tick(5, 10*ms, 0), "blast": Blast(5, Both, 0, 0), "keys": Keys(5, 10*ms, 0), "idle": Idle(5, 0),
		"down only": Blast(5, Down, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			var client Report
			stop := make(chan struct{})
			synctest.Test(t, func(t *testing.T) {
				stop = make(chan struct{})
				p.Stop = stop
				near, far := testenv.Pipe()
				near.Route().SetRate(1_000_000)
				near.Route().SetDelay(10 * ms)
				go Serve(far)
				time.AfterFunc(time.Second, func() { close(stop) })
				client = Run(t.Context(), near, p)
			})
			wantWhole(t, client)
			if client.Took < time.Second || client.Took > 2*time.Second {
				t.Errorf("took %v", client.Took)
			}
			if name == "idle" && (len(client.Trips) != 1 || client.Trips[0].At != time.Second) {
				t.Errorf("trips: %v", client.Trips)
			}
		})
	}
}

func TestSlowReaders(t *testing.T) {
	client, _ := play(t, Blast(6, Down, 0, 1<<20).Slow(100_000, 0, 0), nil)
	wantWhole(t, client)
	if r := client.Down.Rate(); r < 95_000 || r > 110_000 {
		t.Errorf("%.0f bytes a second, want 100 000", r)
	}
	client, server := play(t, Blast(6, Both, 20*time.Minute, 0).Slow(0, time.Minute, 10*time.Minute), func(r *testenv.Route, _ func()) {
		r.SetRate(10_000)
	})
	wantWhole(t, client)
	if client.Down.Bytes(90*time.Second, 600*time.Second) != 0 || client.Down.Longest.For > time.Minute {
		t.Errorf("the reader's own pause is no stall: %v", client.Down.Longest)
	}
	if client.Took < 20*time.Minute || server.Up.Verified != client.Up.Sent {
		t.Errorf("took %v, %d of %d bytes up", client.Took, server.Up.Verified, client.Up.Sent)
	}
}

func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		world          func(r *testenv.Route, cancel func())
		client, server string
	}{
		"reset": {func(r *testenv.Route, _ func()) { time.Sleep(time.Second); r.Reset() }, EndReset, EndReset},
		"cancelled": {
			func(_ *testenv.Route, cancel func()) { time.Sleep(time.Second); cancel() }, EndCancelled, EndReset,
		},
		"cut after a byte": {func(r *testenv.Route, _ func()) { r.CutAfter(false, 3333) }, EndReset, EndReset},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := play(t, Tick(7, 10*ms, time.Minute), c.world)
			if client.Down.End != c.client || server.Up.End != c.server || client.Err == "" {
				t.Errorf("ended %q and %q: %s", client.Down.End, server.Up.End, client.Err)
			}
			if client.Whole() || !client.Down.Intact() {
				t.Errorf("whole: %v; %s", client.Whole(), client.String())
			}
		})
	}
}

// fin is a machine in the way that closes both sides of the stream while more is sent.
func TestFinInTheWayIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, mid := testenv.Pipe()
		dim, far := testenv.Pipe()
		served := make(chan Report, 1)
		go func() {
			s, _ := Serve(far)
			served <- s
		}()
		go copyN(dim, mid, 2000)
		go copyN(mid, dim, 2000)
		client := Run(t.Context(), near, Tick(8, 10*ms, 5*time.Second))
		server := <-served
		client.Merge(server)
		for name, w := range map[string]Way{"up": client.Up, "down": client.Down} {
			if w.End != EndEarly || w.Intact() != (w.Lost == 0) || w.Verified+w.Lost != w.Sent {
				t.Errorf("%s: %s", name, &w)
			}
		}
		if client.Up.Lost == 0 {
			t.Error("nothing was lost on the way up")
		}
		mid.Close()
		dim.Close()
	})
}

// copyN copies n bytes, ends its direction and swallows the rest.
func copyN(dst, src *testenv.Conn, n int) {
	buf := make([]byte, 100)
	for {
		k, err := src.Read(buf)
		if err != nil {
			dst.CloseWrite()
			return
		}
		if n -= k; n > 0 {
			dst.Write(buf[:k])
		} else {
			dst.CloseWrite()
		}
	}
}

// TestServerWantsAClientOfStreamcheck: strangers are told apart.
func TestServerWantsAClientOfStreamcheck(t *testing.T) {
	for _, line := range []string{"GET / HTTP/1.1\r\n", greeting + "{\n", greeting + `{"up":{"size":-1}}` + "\n", greeting + `{"up":{"for":-1}}` + "\n", "no end"} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			go func() {
				near.Write([]byte(line))
				near.Close()
			}()
			if _, err := Serve(far); err == nil {
				t.Errorf("%q was taken for a plan", line)
			}
		})
	}
}

// TestWithoutHalfClose: the end marks end a run where a connection can only be closed whole.
func TestWithoutHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go Serve(far)
		wantWhole(t, Run(t.Context(), near, Tick(9, 10*ms, time.Second)))
	})
}

func TestLongRunsHaveWideBuckets(t *testing.T) {
	client, _ := play(t, Tick(10, time.Second, time.Hour), nil)
	wantWhole(t, client)
	w := client.Down
	if w.Bucket != 800*ms || len(w.Goodput) != 4499 || len(w.Worst) != 4499 || w.Bytes(0, 2*time.Hour) != w.Sent {
		t.Errorf("%d and %d buckets of %v, %d of %d bytes", len(w.Goodput), len(w.Worst), w.Bucket, w.Bytes(0, 2*time.Hour), w.Sent)
	}
	if w.StallCount != 0 || w.Stall(0, time.Hour) != time.Second {
		t.Errorf("%d stalls, longest %v", w.StallCount, w.Stall(0, time.Hour))
	}
}
