package dialer

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

func TestUseMovesTheLinkAsPlanned(t *testing.T) {
	for _, r := range []time.Duration{2 * ms, 20 * ms, 80 * ms} {
		t.Run(r.String(), func(t *testing.T) {
			in(t, delays{lan: 5 * ms, tailnet: r / 2}, nil, func(t *testing.T, w *world) {
				s := w.open(tickTarget)
				stall(t, s, time.Second)
				for i := range 6 {
					to, delay := tailnet, r/2
					if i%2 == 1 {
						to, delay = lan, 5*ms
					}
					errs := make(chan error, 1)
					go func() { errs <- w.d.Use(t.Context(), "devbox", to.ID(), false) }()
					// A tick that was sent just before on the slower way may still be on it.
					if worst, most := stall(t, s, 20*time.Second), 5*ms+max(delay, 5*ms, r/2)+tickEvery; worst > most {
						t.Errorf("move %d: the stream stood still for %s, the goal is %s", i, worst, most)
					}
					if err := <-errs; err != nil {
						t.Fatal(err)
					}
					if a := w.active(); a != to.ID() {
						t.Fatalf("the link is on %s", a)
					}
					if n := w.attached(); n != 1 {
						t.Errorf("%d carriers are attached 20 s after the move", n)
					}
				}
				for _, sw := range w.status().Link.Switches[1:] {
					if !sw.Planned {
						t.Errorf("a move was not planned: %+v", sw)
					}
				}
			})
		})
	}
}

func TestUseUnderLoad(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		w.route(lan).SetRate(8 << 20)
		w.route(tailnet).SetRate(8 << 20)
		bulk := w.open(echoTarget)
		quit := make(chan struct{})
		done := make(chan struct{}, 2)
		go func() {
			defer func() { done <- struct{}{} }()
			block := make([]byte, 64<<10)
			for {
				select {
				case <-quit:
					return
				default:
				}
				if _, err := bulk.Write(block); err != nil {
					return
				}
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, bulk); done <- struct{}{} }()
		s := w.open(tickTarget)
		usual := stall(t, s, time.Second)
		for _, to := range []route.Route{tailnet, lan, tailnet} {
			errs := make(chan error, 1)
			go func() { errs <- w.d.Use(t.Context(), "devbox", to.ID(), false) }()
			worst := stall(t, s, 1500*ms)
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
			// Goals: 5 ms and one way of 10 ms; copies of what bulk had in flight may take another 15 ms of this rate.
			if worst > usual+30*ms {
				t.Errorf("moving to %s: the stream stood still for %s, %s is usual under this load", to, worst, usual)
			}
		}
		close(quit)
		bulk.Reset(0)
		<-done
		<-done
	})
}

func TestUseTellsWhyItDidNotMove(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 5 * ms}, nil, func(t *testing.T, w *world) {
		use := func(id, want string) {
			t.Helper()
			if err := w.d.Use(t.Context(), "devbox", id, false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("moving to %s: %v, want %q", id, err, want)
			}
		}
		if err := w.d.Use(t.Context(), "devbox", "tailnet", false); err != nil {
			t.Errorf("pinning a class while nothing is up: %v", err)
		}
		s := w.open(echoTarget)
		if w.active() != tailnet.ID() {
			t.Errorf("on %s, though the user wants a tailnet route", w.active())
		}
		if err := w.d.Use(t.Context(), "devbox", lan.ID(), false); err != nil {
			t.Errorf("moving to lan: %v", err)
		}
		time.Sleep(time.Minute) // until the carrier that was left is closed
		synctest.Wait()
		use(direct.ID(), "no route "+direct.ID())
		_ = w.route(tailnet).Refuse(true)
		use(tailnet.ID(), "connection refused")
		_ = w.route(tailnet).Refuse(false)
		w.route(tailnet).LoseLarge(2000, 2000) // the handshake passes, the proof of 4 KiB does not
		use(tailnet.ID(), "switching to carrier")
		if err := w.d.Use(t.Context(), "devbox", lan.ID(), false); err != nil {
			t.Errorf("moving to the route in use: %v", err)
		}
		if w.active() != lan.ID() || w.attached() != 1 {
			t.Errorf("on %s, %d attached", w.active(), w.attached())
		}
		echo(t, s, "still here")
	})
}

// TestStandbyThatTakesNoLargeSegmentsIsDropped: it could not take over either.
func TestStandbyThatTakesNoLargeSegmentsIsDropped(t *testing.T) {
	auto := func(c *Config) { c.Peers[0].Standby = StandbyAuto }
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, auto, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		echo(t, s, "x")
		time.Sleep(100 * ms)
		if n := w.attached(); n != 2 {
			t.Fatalf("%d attached", n)
		}
		w.route(tailnet).LoseLarge(2000, 2000)
		if err := w.d.Use(t.Context(), "devbox", tailnet.ID(), false); err == nil {
			t.Fatal("the link has moved to a route that loses what is large")
		}
		if n := w.attached(); n != 1 || w.active() != lan.ID() {
			t.Errorf("%d attached, on %s", n, w.active())
		}
		echo(t, s, "still here")
	})
}

func TestStandbyIsKeptWhileBytesMove(t *testing.T) {
	auto := func(c *Config) { c.Peers[0].Standby = StandbyAuto }
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, auto, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		echo(t, s, "x")
		time.Sleep(100 * ms)
		if n := w.attached(); n != 2 || w.active() != lan.ID() {
			t.Fatalf("%d attached, on %s", n, w.active())
		}
		time.Sleep(59 * time.Second)
		if n := w.attached(); n != 2 {
			t.Errorf("%d attached after 59 s", n)
		}
		time.Sleep(time.Second)
		if n := w.attached(); n != 1 {
			t.Errorf("%d attached after 60 s without a byte", n)
		}
		w.dialled()
		time.Sleep(time.Hour)
		if d := w.dialled(); len(d) != 0 {
			t.Errorf("dials: %v", d)
		}
		echo(t, s, "y")
		time.Sleep(100 * ms)
		if n := w.attached(); n != 2 {
			t.Errorf("%d attached after the stream has woken up", n)
		}
		_ = w.route(tailnet).Refuse(true) // and it is replaced by nothing while its route is dead
		w.dialled()
		w.route(tailnet).Reset()
		cut := w.since()
		for range 60 {
			time.Sleep(5 * time.Second)
			echo(t, s, "z")
		}
		var waits []time.Duration
		for i, d := range w.dialled() {
			if d.address != tailnet.Address {
				t.Errorf("dial %d went to %s", i, d.address)
			}
			waits = append(waits, (d.at - cut).Round(time.Second))
			cut = d.at
		}
		// The first one comes at once, or 5 s after the last dial, by when the stream was found awake.
		if want := seconds(5, 10, 20, 40, 60, 60, 60); waits[0] > 5*time.Second || !slices.Equal(waits[1:], want) {
			t.Errorf("waits between dials: %v, want %v", waits, want)
		}
	})
}

// TestStandbyIsSoughtForAnEarlyStream: who opens one without asking the loop wakes it, where it slept for want of streams.
func TestStandbyIsSoughtForAnEarlyStream(t *testing.T) {
	auto := func(c *Config) { c.Peers[0].Standby = StandbyAuto }
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, auto, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		echo(t, s, "x")
		_ = s.Close()
		time.Sleep(time.Hour)
		w.dialled()
		early := func() *link.Stream {
			s, err := w.d.Open(t.Context(), "devbox", echoTarget, OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			echo(t, s, "y")
			return s
		}
		start := w.since()
		first := early()
		time.Sleep(time.Second)
		d := w.dialled()
		if len(d) != 1 || d[0].address != tailnet.Address || d[0].at-start > 100*ms {
			t.Fatalf("dialled %v, want the tailnet at once, at %v", d, start)
		}
		second := early() // this time the loop watches
		if n := w.attached(); n != 2 {
			t.Errorf("%d attached", n)
		}
		_, _ = first.Close(), second.Close()
	})
}

// TestStandbyIsSoughtForAStreamThatSaysNothing: no byte tells the loop of it, only the one who opened it.
func TestStandbyIsSoughtForAStreamThatSaysNothing(t *testing.T) {
	always := func(c *Config) { c.Peers[0].Standby = StandbyAlways }
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, always, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		echo(t, s, "x")
		_ = s.Close()
		time.Sleep(time.Hour)
		w.route(tailnet).Reset()
		time.Sleep(time.Hour)
		if n := w.attached(); n != 1 {
			t.Fatalf("%d attached without a stream", n)
		}
		w.dialled()
		early, err := w.d.Open(t.Context(), "devbox", echoTarget, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if d := w.dialled(); len(d) != 1 || d[0].address != tailnet.Address || w.attached() != 2 {
			t.Errorf("dialled %v, %d attached", d, w.attached())
		}
		_ = early.Close()
	})
}

// TestCarrierThatTheLinkLeftServesAsStandby: it is attached already, so that nothing has to be dialled.
func TestCarrierThatTheLinkLeftServesAsStandby(t *testing.T) {
	auto := func(c *Config) { c.Peers[0].Standby = StandbyAuto }
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, auto, func(t *testing.T, w *world) {
		s := w.open(tickTarget)
		stall(t, s, 10*time.Second)
		w.dialled()
		if err := w.d.Use(t.Context(), "devbox", tailnet.ID(), false); err != nil {
			t.Fatal(err)
		}
		stall(t, s, time.Minute)
		if d := w.dialled(); len(d) != 0 || w.attached() != 2 || w.active() != tailnet.ID() {
			t.Errorf("dialled %v, %d attached, on %s", d, w.attached(), w.active())
		}
	})
}

func seconds(list ...time.Duration) (out []time.Duration) {
	for _, d := range list {
		out = append(out, d*time.Second)
	}
	return out
}

func TestStandbyTakesOverAndIsReplaced(t *testing.T) {
	auto := func(c *Config) { c.Peers[0].Standby = StandbyAuto }
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms, direct: 20 * ms}, auto, func(t *testing.T, w *world) {
		s := w.open(tickTarget)
		stall(t, s, 10*time.Second)
		_ = w.route(lan).Refuse(true)
		time.AfterFunc(time.Second, w.route(lan).Reset)
		if worst := stall(t, s, 20*time.Second); worst > 40*ms+10*ms {
			t.Errorf("the stream stood still for %s", worst)
		}
		if w.active() != tailnet.ID() || w.attached() != 2 {
			t.Errorf("on %s, %d attached", w.active(), w.attached())
		}
		_ = w.route(lan).Refuse(false)
		if err := w.d.Use(t.Context(), "devbox", direct.ID(), false); err != nil { // it was the standby
			t.Error(err)
		}
		stall(t, s, 20*time.Second)
		if w.active() != direct.ID() || w.attached() != 2 { // the tailnet serves as standby now
			t.Errorf("on %s, %d attached", w.active(), w.attached())
		}
	})
}

func TestStandbyAlways(t *testing.T) {
	always := func(c *Config) { c.Peers[0].Standby = StandbyAlways }
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, always, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		time.Sleep(time.Hour)
		if n := w.attached(); n != 2 {
			t.Errorf("%d attached after an hour", n)
		}
		echo(t, s, "x")
	})
}

func TestReload(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms, direct: 10 * ms}, nil, func(t *testing.T, w *world) {
		w.setRoutes(lan, tailnet)
		s := w.open(tickTarget)
		stall(t, s, time.Second)
		w.dialled()

		w.setRoutes(lan, tailnet)
		w.setRoutes(lan, direct)
		if worst := stall(t, s, time.Minute); worst > tickEvery {
			t.Errorf("the stream stood still for %s", worst)
		}
		if d := w.dialled(); len(d) != 0 || w.active() != lan.ID() {
			t.Errorf("a change of other routes dialled %v, on %s", d, w.active())
		}

		w.setRoutes(tailnet, direct) // the route in use is gone
		if worst := stall(t, s, time.Minute); worst > 25*ms {
			t.Errorf("the stream stood still for %s", worst)
		}
		if a := w.active(); a == lan.ID() || w.attached() != 1 {
			t.Errorf("on %s, %d attached", a, w.attached())
		}
		_ = w.route(tailnet).Refuse(true)
		_ = w.route(direct).Refuse(true)
		w.dialled()
		w.setRoutes(lan)
		stall(t, s, 15*time.Second)
		if a := w.active(); a != lan.ID() {
			t.Errorf("on %s", a)
		}
		_ = w.route(lan).Refuse(true)
		w.setRoutes(tailnet) // none to move to: the living carrier serves on
		if worst := stall(t, s, time.Minute); worst > tickEvery || w.active() != lan.ID() {
			t.Errorf("the stream stood still for %s, on %s", worst, w.active())
		}

		w.d.SetPeers(nil)
		_, err := io.Copy(io.Discard, s)
		wantReason(t, err, "unknown_peer")
		if err == nil || !strings.Contains(err.Error(), "devbox was removed from the config") {
			t.Errorf("the stream ended with %v", err)
		}
		synctest.Wait()
		if _, err := w.d.DialContext(t.Context(), "devbox", echoTarget); err == nil {
			t.Error("a removed peer was dialled")
		}
		for _, r := range []route.Route{lan, tailnet, direct} {
			_ = w.route(r).Refuse(false)
		}
		w.setRoutes(direct)
		echo(t, w.open(echoTarget), "back")
	})
}

func TestReloadWhileEverythingRuns(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(tickTarget)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 50 {
					switch (i + n) % 4 {
					case 0:
						w.setPeer(Peer{Routes: []route.Route{lan, tailnet}, Standby: StandbyAuto})
					case 1:
						w.setPeer(Peer{Routes: []route.Route{tailnet}})
					case 2:
						w.d.Status()
						w.d.SetWait(time.Minute)
					default:
						_ = w.d.Use(t.Context(), "devbox", lan.ID(), false)
					}
					time.Sleep(time.Duration(n) * ms)
				}
			})
		}
		stall(t, s, 10*time.Second) // fails unless every tick comes once, in order
		wg.Wait()
		w.setRoutes(lan)
		stall(t, s, 15*time.Second)
		if w.active() != lan.ID() || w.attached() != 1 {
			t.Errorf("on %s, %d attached", w.active(), w.attached())
		}
	})
}

func TestReloadServesWhoWaits(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 5 * ms}, nil, func(t *testing.T, w *world) {
		w.setRoutes(lan)
		w.route(lan).Hang(true)
		time.AfterFunc(2*time.Second, func() { w.setRoutes(lan, tailnet) })
		w.open(echoTarget)
		wantTime(t, "served by the route that joined the race", w.since(), 2030*ms)
	})
}

func TestPeerWithoutRoutes(t *testing.T) {
	in(t, nil, nil, func(t *testing.T, w *world) {
		_, err := w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantTime(t, "told", w.since(), 0)
		wantReason(t, err, "no_route")
		if !strings.Contains(err.Error(), "no route to devbox is configured") {
			t.Errorf("error: %v", err)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	for _, c := range []struct {
		name  string
		state func(w *world)
		took  time.Duration // at most
	}{
		{"idle", func(*world) {}, 0},
		{"connected", func(w *world) { w.open(tickTarget) }, 20 * ms},
		{"silent", func(w *world) {
			s := w.open(tickTarget)
			w.route(lan).BlackHole(true, true)
			w.route(tailnet).BlackHole(true, true)
			_, _ = s.Write([]byte("x"))
			time.Sleep(2 * time.Second)
		}, time.Second},
		{"racing", func(w *world) {
			w.route(lan).Hang(true)
			w.route(tailnet).Hang(true)
			_, _ = w.d.Open(w.t.Context(), "devbox", echoTarget, OpenOptions{})
			time.Sleep(300 * ms)
		}, 0},
		{"handshaking", func(w *world) {
			_, _ = w.d.Open(w.t.Context(), "devbox", echoTarget, OpenOptions{})
			time.Sleep(15 * ms)
		}, 0},
		{"attaching", func(w *world) {
			_, _ = w.d.Open(w.t.Context(), "devbox", echoTarget, OpenOptions{})
			time.Sleep(25 * ms)
		}, time.Second},
		{"moving", func(w *world) {
			w.open(tickTarget)
			w.wg.Go(func() { _ = w.d.Use(w.t.Context(), "devbox", tailnet.ID(), false) })
			time.Sleep(25 * ms)
		}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, delays{lan: 5 * ms, tailnet: 5 * ms}, nil, func(t *testing.T, w *world) {
				c.state(w)
				waiting := make(chan error, 1)
				go func() {
					_, err := w.d.DialContext(t.Context(), "devbox", "127.0.0.1:1000")
					waiting <- err
				}()
				at := time.Now()
				if err := w.d.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(at); took > c.took {
					t.Errorf("closing took %s", took)
				}
				if err := <-waiting; err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("who waited was told %v", err)
				}
				if _, err := w.d.DialContext(t.Context(), "devbox", echoTarget); !errors.Is(err, ErrClosed) {
					t.Errorf("dialling after Close: %v", err)
				}
				if err := w.d.Use(t.Context(), "devbox", lan.ID(), false); !errors.Is(err, ErrClosed) {
					t.Errorf("moving after Close: %v", err)
				}
				w.d.SetPeers(nil)
				if st := w.d.Status(); len(st) != 0 {
					t.Errorf("status after Close: %v", st)
				}
			})
		})
	}
}

func TestStatusTellsWhatIsGoingOn(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		if st := w.status(); st.State != StateIdle || st.Link != nil || len(st.Routes) != 2 || st.ID != w.hostKey.Fingerprint() {
			t.Errorf("before: %+v", st)
		}
		w.route(lan).Hang(true)
		w.route(tailnet).Hang(true)
		early, err := w.d.Open(t.Context(), "devbox", echoTarget, OpenOptions{Hold: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if st := w.status(); st.State != StateConnecting || st.Waiting != 1 {
			t.Errorf("racing: %+v", st)
		}
		w.route(lan).Hang(false)
		echo(t, early, "x")
		if err := w.d.Use(t.Context(), "devbox", lan.ID(), false); err != nil {
			t.Error(err)
		}
		st := w.status()
		if st.State != StateConnected || st.Waiting != 0 || st.Err != nil || len(st.Streams) != 1 ||
			st.Streams[0].Target != echoTarget || st.RouteOf[st.Link.Switches[0].To] != lan.ID() {
			t.Errorf("connected: %+v", st)
		}
		if c := activeOf(*st.Link); c.Name != lan.ID() || c.RTT != 10*ms || c.BytesIn == 0 {
			t.Errorf("carrier: %+v", c)
		}
		if a := st.Attempts; len(a) != 2 || a[0].Outcome != route.Won || a[1].Outcome != route.Lost {
			t.Errorf("attempts: %v", a)
		}
		_ = w.host.Load().Close()
		synctest.Wait()
		time.Sleep(10 * ms)
		var end *link.EndError
		if st := w.status(); st.State != StateIdle || st.Link != nil || !errors.As(st.Err, &end) || end.Code != link.CodeShutdown {
			t.Errorf("after the host's end: %+v", st)
		}
	})
}

// TestUseWaitsNoLongerThanItMay: nothing answers, so nothing can be moved; who asked is told, and what was asked for stays.
func TestUseWaitsNoLongerThanItMay(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(tickTarget)
		stall(t, s, time.Second)
		for _, r := range []route.Route{lan, tailnet} {
			w.route(r).BlackHole(true, true)
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		err := w.d.Use(t.Context(), "devbox", "tailnet", false)
		wantTime(t, "told", time.Since(start), useLimit)
		if err == nil || !strings.Contains(err.Error(), "has not moved within 15s; `linkproxy why devbox` tells") {
			t.Errorf("told: %v", err)
		}
		w.route(lan).Heal()
		w.route(tailnet).Heal()
		stall(t, s, time.Minute)
		if w.active() != tailnet.ID() {
			t.Errorf("on %s, though the user wants tailnet", w.active())
		}
		_ = s.Close()
	})
}
