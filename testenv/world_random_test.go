package testenv_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/testenv"
	"linkproxy/testenv/streamcheck"
)

// randomWorld lets two apps tick for minutes between hosts that everything happens to which does not end connections,
// and returns the timeline.
func randomWorld(t *testing.T, seed uint64) (timeline string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := testenv.NewWorld(seed)
		w.LogTo(t)
		link := w.Link("home", "office")
		link.SetDelay(10 * time.Millisecond)
		laptop, devbox := w.Host("laptop"), w.Host("devbox")
		wlan := laptop.Add("wlan0", "home", "192.168.1.23/24")
		eth := devbox.Add("eth0", "office", "198.51.100.7/24")
		ln, err := devbox.Listen(t.Context(), "tcp", ":7000")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = streamcheck.ServeAll(t.Context(), ln, nil) })
		reports := make([]streamcheck.Report, 2)
		for i, plan := range []streamcheck.Plan{
			streamcheck.Tick(seed+1, 50*time.Millisecond, 4*time.Minute),
			streamcheck.Blast(seed+2, streamcheck.Both, 4*time.Minute, 500_000),
		} {
			conn, err := laptop.Dial(t.Context(), "tcp", "198.51.100.7:7000")
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { reports[i] = streamcheck.Run(t.Context(), conn, plan) })
		}
		rnd := rand.New(rand.NewPCG(seed, 0))
		for range 50 {
			pause := time.Duration(rnd.IntN(5000)) * time.Millisecond
			switch rnd.IntN(10) {
			case 0:
				wlan.Up(false)
				time.Sleep(pause)
				wlan.Up(true)
			case 1:
				eth.SetAddrs("198.51.100.8/24")
				time.Sleep(pause)
				eth.SetAddrs("198.51.100.7/24")
			case 2:
				laptop.Sleep(pause)
			case 3:
				link.BlackHole(rnd.IntN(2) == 0, true)
				time.Sleep(pause)
				link.Heal()
			case 4:
				link.SetJitter(time.Duration(rnd.IntN(100)) * time.Millisecond)
			case 5:
				link.SetRate(int64(20_000 * rnd.IntN(50)))
			case 6:
				link.SetQueue(rnd.IntN(30_000))
			case 7:
				link.Outages(float64(rnd.IntN(3))/10, time.Second)
			case 8:
				link.LoseLarge(rnd.IntN(1000), 0)
				time.Sleep(pause)
				link.Heal()
			case 9:
				wlan.Join("elsewhere", "192.168.1.23/24")
				time.Sleep(pause)
				wlan.Join("home", "192.168.1.23/24")
			}
			time.Sleep(pause)
		}
		link.Outages(0, 0)
		link.SetRate(0)
		ln.Close() // serves what it has
		wg.Wait()
		for _, r := range reports {
			if !r.Whole() {
				t.Errorf("seed %d: %s", seed, r.String())
			}
		}
		timeline = w.Timeline()
	})
	return timeline
}

// TestRandomWorldsKeepTheStreams: what a network does to packets is no loss to a stream, and the seed says when it is.
func TestRandomWorldsKeepTheStreams(t *testing.T) {
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			first := randomWorld(t, seed)
			if again := randomWorld(t, seed); again != first {
				t.Errorf("the seed plays two stories:\n%s\n%s", first, again)
			}
			if strings.Count(first, "\n") < 50 {
				t.Errorf("a short story:\n%s", first)
			}
		})
	}
}
