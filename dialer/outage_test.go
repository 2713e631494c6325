package dialer

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

func TestLostCarrierIsReplacedAtOnce(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(tickTarget)
		w.dialled()
		_ = w.route(lan).Refuse(true)
		time.AfterFunc(time.Second, w.route(lan).Reset)
		// All routes start at the loss, and the first carrier to attach takes the stream along: TCP, TLS, then ATTACH and
		// the answer with the bytes that were lost. Ticks come every 10 ms, so that one may have come just before.
		worst := stall(t, s, 2*time.Second)
		if worst < 60*ms || worst > 60*ms+2*tickEvery {
			t.Errorf("the stream stood still for %s", worst)
		}
		want := []dial{{1030 * ms, lan.Address}, {1030 * ms, tailnet.Address}} // a second after the stream was opened
		got := w.dialled()
		slices.SortFunc(got, func(a, b dial) int { return strings.Compare(b.address, a.address) }) // both at the same time
		if !slices.Equal(got, want) {
			t.Errorf("dials: %v, want %v", got, want)
		}
	})
}

func TestHoldEndsAStreamAndTheDialling(t *testing.T) {
	in(t, delays{lan: 5 * ms}, func(c *Config) { c.Hold = 10 * time.Minute }, func(t *testing.T, w *world) {
		short, err := w.d.Dial(t.Context(), "devbox", echoTarget, OpenOptions{Hold: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		long := w.open(echoTarget)
		_ = w.route(lan).Refuse(true)
		w.route(lan).Reset()
		cut := w.since()
		if _, err := short.Read(make([]byte, 1)); !errors.Is(err, link.ErrHoldOver) {
			t.Errorf("the short one ended with %v", err)
		}
		wantTime(t, "the short one ended", w.since()-cut, time.Minute)
		if _, err := long.Read(make([]byte, 1)); !errors.Is(err, link.ErrHoldOver) {
			t.Errorf("the long one ended with %v", err)
		}
		wantTime(t, "the long one ended", w.since()-cut, 10*time.Minute)
		synctest.Wait()
		w.dialled()
		time.Sleep(time.Hour)
		if d := w.dialled(); len(d) != 0 {
			t.Errorf("dials: %v", d)
		}
	})
}

func TestBackoff(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		w.open(echoTarget)
		w.dialled()
		_ = w.route(lan).Refuse(true)
		w.route(lan).Reset()
		time.Sleep(3 * time.Minute)
		dials := w.dialled()
		if dials[0].at != 30*ms {
			t.Errorf("the first dial came at %s", dials[0].at)
		}
		for i, most := 1, time.Second; i < len(dials); i, most = i+1, min(2*most, 30*time.Second) {
			wait := dials[i].at - dials[i-1].at - 10*ms // each was refused after a round trip
			low, high := most/2, most
			if dials[i-1].at+high < route.StreamHaste { // a stream is held, and not for long
				low, high = min(low, route.StreamWait), min(high, route.StreamWait)
			} else if dials[i-1].at < route.StreamHaste {
				low = route.StreamWait
			}
			if wait < low-time.Second || wait > high+time.Second { // the dial budget may hold one back
				t.Errorf("wait %d: %s, want %s to %s", i, wait, low, high)
			}
		}
		if len(dials) < 25 || len(dials) > 40 {
			t.Errorf("%d dials", len(dials))
		}
		st := w.status()
		if st.State != StateWaiting || !st.Next.After(time.Now()) || st.Err == nil || st.Attempts[0].Outcome != route.Failed {
			t.Errorf("status: %+v", st)
		}
	})
}

func TestAppEndsTheBackoff(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		w.open(echoTarget)
		_ = w.route(lan).Refuse(true)
		w.route(lan).Reset()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		last := w.dialled()
		_ = w.route(lan).Refuse(false)
		asked := w.since()
		w.open(echoTarget)
		want := max(asked, last[len(last)-1].at+10*ms+time.Second) // a second after the last race at the earliest
		if got := w.dialled()[0].at; got != want {
			t.Errorf("asked at %s, dialled at %s, want %s", asked, got, want)
		}
	})
}

func TestAppWaitsForARouteAndIsServed(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		w.route(lan).Unreachable(true)
		time.AfterFunc(40*time.Second, func() { w.route(lan).Unreachable(false) })
		early, err := w.d.Open(t.Context(), "devbox", echoTarget, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(early, "early")
		echo(t, w.open(echoTarget), "hello")
		if at := w.since(); at < 40*time.Second || at > 45*time.Second+30*ms {
			t.Errorf("served at %s", at)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(early, got); err != nil || string(got) != "early" {
			t.Errorf("the early stream: %q, %v", got, err)
		}
		time.Sleep(5 * time.Minute) // its patience ended with the first carrier
		echo(t, early, "later")
	})
}

func TestPatienceOfAnAppEnds(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 5 * ms}, nil, func(t *testing.T, w *world) {
		_ = w.route(lan).Refuse(true)
		w.route(tailnet).Hang(true)
		early, err := w.d.Open(t.Context(), "devbox", echoTarget, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		_, err = w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantTime(t, "the app was told", w.since(), 70*time.Second)
		wantReason(t, err, "no_route")
		for _, part := range []string{"waited 60s", lan.ID(), "refused", tailnet.ID(), "no answer within 5s", "linkproxy host"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		var e *Error
		if !errors.As(err, &e) || len(e.Attempts) != 2 || len(e.Unwrap()) != 2 {
			t.Errorf("error: %+v", e)
		}
		_, err = early.Read(make([]byte, 1))
		wantReason(t, err, "no_route")
		if _, err := early.Write([]byte("x")); !errors.As(err, &e) {
			t.Errorf("writing after the end: %v", err)
		}
		w.dialled()
		time.Sleep(time.Hour)
		if n := len(w.dialled()); n != 0 {
			t.Errorf("%d dials though nobody waits", n)
		}
	})
}

func TestPatienceInAMomentOfTheFirstRace(t *testing.T) {
	in(t, delays{lan: 5 * ms}, func(c *Config) { c.Wait = 2 * time.Second }, func(t *testing.T, w *world) {
		w.route(lan).Hang(true)
		_, err := w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantTime(t, "told", w.since(), 2*time.Second)
		if !strings.Contains(err.Error(), "could not reach devbox at 192.168.1.20:7000: no answer within 2s") {
			t.Errorf("error: %v", err)
		}
		w.d.SetWait(-1)
		_, err = w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantTime(t, "told when the race, begun at 0 or a second after it, had failed", w.since(), 5*time.Second)
		wantReason(t, err, "no_route")
	})
}

func TestAppThatLeavesIsNotWaitedFor(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		w.route(lan).Hang(true)
		ctx, cancel := contextWithTimeout(t, 3*time.Second)
		defer cancel()
		if _, err := w.d.DialContext(ctx, "devbox", echoTarget); !errors.Is(err, errLeft) {
			t.Errorf("error: %v", err)
		}
		wantTime(t, "left", w.since(), 3*time.Second)
		synctest.Wait()
		if n := w.status().Waiting; n != 0 {
			t.Errorf("%d wait", n)
		}
		w.dialled()
		time.Sleep(time.Hour)
		if n := len(w.dialled()); n != 0 {
			t.Errorf("%d dials though nobody waits", n)
		}
	})
}

func TestManyAppsAtADeadHost(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 5 * ms}, nil, func(t *testing.T, w *world) {
		w.route(lan).Hang(true)
		w.route(tailnet).Hang(true)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * ms)
				if _, err := w.d.DialContext(t.Context(), "devbox", echoTarget); err == nil {
					t.Error("a dead host was reached")
				}
			})
		}
		wg.Wait()
		dials := w.dialled()
		if bound := route.BudgetSize + int(65*time.Second/route.RefillWaiting); len(dials) > bound {
			t.Errorf("%d dials in 65 s, the budget is %d", len(dials), bound)
		}
		perAddress := map[string][]time.Duration{}
		for _, d := range dials {
			perAddress[d.address] = append(perAddress[d.address], d.at)
		}
		for address, at := range perAddress {
			for i := 1; i < len(at); i++ {
				if at[i]-at[i-1] < route.OpenLimit { // one race at a time: the last dial must have ended
					t.Errorf("%s was dialled at %s and %s", address, at[i-1], at[i])
				}
			}
		}
		if len(dials) < 8 {
			t.Errorf("only %d dials", len(dials))
		}
	})
}

func TestIdleClientDialsNothing(t *testing.T) {
	for _, standby := range []Standby{StandbyAuto, StandbyAlways, StandbyNever} {
		t.Run(string(standby), func(t *testing.T) {
			in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
				w.setPeer(Peer{Routes: []route.Route{lan, tailnet}, Standby: standby})
				s := w.open(echoTarget)
				echo(t, s, "x")
				_ = s.Close()
				time.Sleep(2 * time.Minute)
				w.dialled()
				time.Sleep(time.Hour)
				if d := w.dialled(); len(d) != 0 {
					t.Errorf("dials: %v", d)
				}
				if st := w.status(); st.State != StateConnected {
					t.Errorf("state: %s", st.State)
				}
				at := w.since()
				w.open(echoTarget)
				wantTime(t, "warm after an hour", w.since()-at, 10*ms)
			})
		})
	}
}

func TestIdleLinkThatIsLostIsTriedOnce(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		_ = s.Close()
		time.Sleep(time.Minute)
		w.dialled()
		_ = w.route(lan).Refuse(true)
		w.route(lan).Reset()
		time.Sleep(time.Hour)
		if d := w.dialled(); len(d) != 1 || d[0].at != time.Minute+30*ms {
			t.Errorf("dials: %v", d)
		}
		if st := w.status(); st.State != StateIdle {
			t.Errorf("state: %s", st.State)
		}
		_ = w.route(lan).Refuse(false)
		at := w.since()
		w.open(echoTarget)
		wantTime(t, "connected anew", w.since()-at, 30*ms)
	})
}

// black holes: how long an app's ticking stream stands still when the carrier in use falls silent.
func TestBlackHole(t *testing.T) {
	for _, c := range []struct {
		from, to time.Duration // one way
		standby  bool
	}{
		{1 * ms / 2, 25 * ms / 2, false},
		{10 * ms, 10 * ms, false},
		{25 * ms / 2, 1 * ms / 2, false},
		{50 * ms, 50 * ms, false},
		{1 * ms / 2, 25 * ms / 2, true},
		{10 * ms, 10 * ms, true},
		{50 * ms, 50 * ms, true},
	} {
		t.Run(fmt.Sprintf("%s to %s standby %v", 2*c.from, 2*c.to, c.standby), func(t *testing.T) {
			in(t, delays{lan: c.from, tailnet: c.to}, nil, func(t *testing.T, w *world) {
				if c.standby {
					w.setPeer(Peer{Routes: []route.Route{lan, tailnet}, Standby: StandbyAuto})
				}
				s := w.open(tickTarget)
				stall(t, s, 20*time.Second)
				if c.standby != (w.attached() == 2) {
					t.Fatalf("%d carriers are attached", w.attached())
				}
				w.route(lan).BlackHole(true, true)
				r := 2 * c.to
				most := 3*r + 200*ms
				if c.standby {
					most = r + 150*ms
				}
				if worst := stall(t, s, 10*time.Second); worst > most {
					t.Errorf("the stream stood still for %s, the goal is %s", worst, most)
				} else {
					t.Logf("the stream stood still for %s, the goal is %s", worst, most)
				}
				if a := w.active(); a != tailnet.ID() {
					t.Errorf("the link is on %s", a)
				}
			})
		})
	}
}

func TestBlackHoleWithoutAWayOutKeepsTheCarrier(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(tickTarget)
		stall(t, s, time.Second)
		w.dialled()
		for _, r := range []route.Route{lan, tailnet} {
			w.route(r).BlackHole(true, true)
		}
		time.AfterFunc(20*time.Second, func() { w.route(lan).Heal() })
		if worst := stall(t, s, 30*time.Second); worst < 20*time.Second || worst > 20*time.Second+2*tickEvery {
			t.Errorf("the stream stood still for %s", worst)
		}
		if st := w.status(); len(st.Link.Switches) != 1 || w.active() != lan.ID() {
			t.Errorf("switches: %v", st.Link.Switches)
		}
		if n := len(w.dialled()); n < 4 || n > 12 {
			t.Errorf("%d dials", n)
		}
	})
}

func TestHostRestart(t *testing.T) {
	for _, c := range []struct {
		name    string
		restart func(w *world)
		reset   time.Duration
	}{
		{"told", func(w *world) { _ = w.restart().Close() }, 5 * ms},
		{"crashed", func(w *world) { w.crash(lan) }, 30 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
				s := w.open(echoTarget)
				echo(t, s, "x")
				time.Sleep(time.Second)
				at := w.since()
				go c.restart(w)
				_, err := s.Read(make([]byte, 1))
				wantTime(t, "reset", w.since()-at, c.reset)
				wantReason(t, err, "lost")
				at = w.since()
				echo(t, w.open(echoTarget), "y")
				wantTime(t, "connected and echoed", w.since()-at, 40*ms)
			})
		})
	}
}

func TestWaitingAppsMoveToTheNextLink(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		_ = w.route(lan).Refuse(true)
		w.crash(lan)
		time.AfterFunc(5*time.Second, func() { _ = w.route(lan).Refuse(false) })
		time.Sleep(time.Second)
		echo(t, w.open(echoTarget), "on the new link")
		if at := w.since(); at < 5*time.Second || at > 10*time.Second {
			t.Errorf("served at %s", at)
		}
		_, err := s.Read(make([]byte, 1))
		if !errors.Is(err, link.ErrUnknown) {
			t.Errorf("the old stream ended with %v", err)
		}
	})
}

func TestEarlyAppAfterAHostRestartGetsANewLink(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		_ = s.Close()
		time.Sleep(time.Second)
		_ = w.route(lan).Refuse(true)
		w.crash(lan)
		time.Sleep(time.Minute)
		_ = w.route(lan).Refuse(false)
		early, err := w.d.Open(t.Context(), "devbox", echoTarget, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		echo(t, early, "nobody noticed")
	})
}

func TestForgottenOnEveryRoute(t *testing.T) {
	// Another process with the peer's key answers on the only route: a lower boot of another instance.
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		other := link.NewHost(link.HostConfig{
			Key: w.hostKey, Process: link.Process{Instance: [16]byte{7}, Boot: 1},
			Trusted: func(fpType) bool { return true },
		})
		old := w.host.Swap(other)
		defer old.Close()
		w.route(lan).Reset()
		_, err := s.Read(make([]byte, 1))
		if !errors.Is(err, link.ErrUnknown) {
			t.Errorf("the stream ended with %v", err)
		}
		wantTime(t, "given up", w.since(), 60*ms)
	})
}

func TestRevokedIsTold(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		w.handle = func(*link.Stream) {} // the target takes its time
		open := make(chan error, 1)
		go func() {
			_, err := w.d.DialContext(t.Context(), "devbox", echoTarget)
			open <- err
		}()
		time.Sleep(time.Second)
		w.paired.Store(false)
		w.host.Load().Revoke(w.key.Fingerprint())
		err := <-open
		wantTime(t, "told", w.since(), time.Second+5*ms)
		wantReason(t, err, "blocked")
		var end *link.EndError
		if !errors.As(err, &end) || end.Code != link.CodeRevoked {
			t.Errorf("error: %v", err)
		}
		_, err = w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantReason(t, err, "blocked")
		w.dialled()
		time.Sleep(time.Hour)
		if d := w.dialled(); len(d) != 0 {
			t.Errorf("dials: %v", d)
		}
	})
}

func TestSupersededStopsDialling(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		newer := New(Config{
			Key: w.key, Process: link.Process{Instance: [16]byte{2}, Boot: 2}, Dial: w.dial,
			Peers: []Peer{{Name: "devbox", ID: w.hostKey.Fingerprint(), Routes: []route.Route{lan}}},
		})
		defer newer.Close()
		if _, err := newer.DialContext(t.Context(), "devbox", echoTarget); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, link.ErrSuperseded) {
			t.Errorf("the stream ended with %v", err)
		}
		w.dialled()
		_, err := w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantReason(t, err, "superseded")
		time.Sleep(time.Hour)
		if d := w.dialled(); len(d) != 0 {
			t.Errorf("dials: %v", d)
		}
	})
}

func TestCarriersThatAreCutAtRandomLoseNothing(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 20 * ms}, func(c *Config) { c.Peers[0].Standby = StandbyAuto }, func(t *testing.T, w *world) {
		s := w.open(tickTarget)
		done := make(chan struct{})
		go func() {
			defer close(done)
			rng := rand.New(rand.NewPCG(1, 2))
			for range 40 {
				time.Sleep(time.Duration(rng.IntN(3000)) * ms)
				r := []route.Route{lan, tailnet}[rng.IntN(2)]
				switch rng.IntN(3) {
				case 0:
					w.route(r).Reset()
				case 1:
					w.route(r).BlackHole(true, true)
					time.Sleep(time.Duration(rng.IntN(8000)) * ms)
					w.route(r).Heal()
				default:
					w.route(r).CutAfter(rng.IntN(2) == 0, int64(rng.IntN(500)))
				}
			}
		}()
		stall(t, s, 3*time.Minute) // fails unless every tick comes once, in order
		<-done
	})
}
