package netwatch

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// world is a system whose network the test sets.
type world struct {
	mu      sync.Mutex
	reading Reading
	err     error
	reads   []time.Time
	onRead  func()
	wakes   bool
	deaf    error // of listen
	heard   *signal
	closed  bool
}

func (w *world) read() (Reading, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = append(w.reads, time.Now())
	r := w.reading
	if w.onRead != nil {
		w.onRead()
	}
	return r, w.err
}

func (w *world) listen(s *signal) (changes, wakes bool, err error) {
	w.heard = s
	return w.deaf == nil, w.wakes && w.deaf == nil, w.deaf
}

func (w *world) close() { w.closed = true }

// set changes the network, and tells it if loud.
func (w *world) set(loud bool, r Reading) {
	w.mu.Lock()
	w.reading = r
	w.mu.Unlock()
	if loud {
		w.heard.add(news{changed: true})
	}
}

// readsSince are the times of reads since start, and forgets them.
func (w *world) readsSince(start time.Time) (out []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.reads {
		out = append(out, at.Sub(start))
	}
	w.reads = nil
	return out
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// at is a reading with wlan0 at that address and a router whose MAC is known.
func at(addr string) Reading { return routed(addr, []byte{2, 0, 0, 0, 0, 1}) }

func routed(addr string, mac []byte) Reading {
	p := netip.MustParsePrefix(addr)
	return Reading{
		Links:    []Link{{Name: "wlan0", Index: 3, Kind: WiFi, Running: true, Addrs: []netip.Prefix{p}}},
		Gateways: []Gateway{{Index: 3, Addr: p.Masked().Addr().Next(), MAC: mac}},
	}
}

const (
	home   = "192.168.1.23/24"
	office = "10.1.2.3/24"
)

// start runs a watcher of w until the test ends.
func start(t *testing.T, w *world, cfg Config) *Watcher {
	t.Helper()
	if cfg.Secret == nil {
		cfg.Secret = []byte("secret")
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	watcher := newWatcher(cfg, w)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watcher.Run(context.Background())
	}()
	t.Cleanup(func() {
		watcher.Close()
		<-ended
		if _, more := <-watcher.Events(); more {
			if _, more = <-watcher.Events(); more {
				t.Error("events go on after Close")
			}
		}
		if !w.closed {
			t.Error("Close did not let go of the system")
		}
	})
	synctest.Wait()
	return watcher
}

// quiet fails if there is an event.
func quiet(t *testing.T, w *Watcher, why string) {
	t.Helper()
	synctest.Wait()
	select {
	case e := <-w.Events():
		t.Errorf("%s: there is an event: %v, woke %v", why, e.Delta, e.Woke)
	default:
	}
}

// next is the next event, and how long it took to come.
func next(t *testing.T, w *Watcher) (Event, time.Duration) {
	t.Helper()
	began := time.Now()
	select {
	case e := <-w.Events():
		return e, time.Since(began)
	case <-time.After(time.Hour):
		t.Fatal("no event within an hour")
		panic("unreachable")
	}
}

func TestBurstIsOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		began := time.Now()
		w.readsSince(began)
		w.set(true, Reading{})
		time.Sleep(10 * time.Millisecond)
		w.set(true, at(office)) // within the same 15 ms
		e, took := next(t, watcher)
		if took != 5*time.Millisecond {
			t.Errorf("told %v after the second notice, want 5ms", took)
		}
		want := Delta{New: addrs("10.1.2.3"), Gone: addrs("192.168.1.23"), Moved: []string{"wlan0"}}
		if !reflect.DeepEqual(e.Delta, want) || e.Woke {
			t.Errorf("delta %+v, want %+v", e.Delta, want)
		}
		if got := w.readsSince(began); !slices.Equal(got, []time.Duration{coalesce}) {
			t.Errorf("looked at %v, want once at 15ms", got)
		}
		if !watcher.Snapshot().Has(netip.MustParseAddr("10.1.2.3")) {
			t.Error("Snapshot is not the newest")
		}
	})
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, a := range texts {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// A change during a look is not told half: the /24 of one network with the router of another.
func TestLookIsRepeatedWhenOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		began := time.Now()
		w.readsSince(began)
		w.onRead = func() { // the address is new, the router is still the old one
			w.onRead = nil
			w.reading = at(office)
			w.heard.add(news{changed: true})
		}
		w.set(true, Reading{Links: at(office).Links, Gateways: at(home).Gateways})
		e, took := next(t, watcher)
		if took != 2*coalesce {
			t.Errorf("told after %v, want 30ms", took)
		}
		if i, _ := e.Snapshot.Interface("wlan0"); i.Gateway != netip.MustParseAddr("10.1.2.1") {
			t.Errorf("told a gateway of %v", i.Gateway)
		}
		quiet(t, watcher, "the half of it")
	})
}

// What changes in every look is told all the same.
func TestEndlessChangeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		w.onRead = func() { w.heard.add(news{changed: true}) }
		w.set(true, at(office))
		_, took := next(t, watcher)
		if took != settleMax*coalesce {
			t.Errorf("told after %v, want 60ms", took)
		}
		w.mu.Lock()
		w.onRead = nil
		w.mu.Unlock()
	})
}

func TestNoChangeIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		veth := at(home)
		veth.Links = append(veth.Links,
			Link{Name: "veth12ab", Index: 9, Virtual: true, Running: true, Addrs: prefixes("172.18.0.1/16")},
			Link{Name: "docker0", Index: 10, Running: true, Addrs: prefixes("172.17.0.1/16")},
			Link{Name: "eth7", Index: 11, Kind: Wired, Running: true, Addrs: prefixes("169.254.3.4/16", "fe80::1/64")},
			Link{Name: "eth8", Index: 12, Kind: Wired, Addrs: prefixes("10.9.9.9/24")})
		w.set(true, veth)
		time.Sleep(10 * time.Minute)
		quiet(t, watcher, "a container, a cable to nowhere, a link that is down")
	})
}

// The owner that is late gets one event with the last state, and none for what came and left.
func TestLastStateIsNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		for range 10 { // within 5 s, as an interface with a bad plug
			w.set(true, Reading{})
			time.Sleep(250 * time.Millisecond)
			w.set(true, at(home))
			time.Sleep(250 * time.Millisecond)
		}
		quiet(t, watcher, "the interface is there as before")
		w.set(true, Reading{})
		time.Sleep(time.Second)
		w.set(true, at(office))
		time.Sleep(time.Second)
		e, took := next(t, watcher)
		if took != 0 || !slices.Equal(e.Delta.Gone, addrs("192.168.1.23")) || !slices.Equal(e.Delta.New, addrs("10.1.2.3")) || e.Delta.Removed != nil {
			t.Errorf("after %v: %+v", took, e.Delta)
		}
		w.set(true, at(home))
		e, _ = next(t, watcher)
		if !slices.Equal(e.Delta.Gone, addrs("10.1.2.3")) {
			t.Errorf("against what the owner took: %+v", e.Delta)
		}
		quiet(t, watcher, "all is told")
	})
}

// The owner that keeps up hears of each state.
func TestFlapIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		for range 10 {
			w.set(true, Reading{})
			if e, took := next(t, watcher); took != coalesce || !slices.Equal(e.Delta.Removed, []string{"wlan0"}) {
				t.Fatalf("after %v: %v", took, e.Delta)
			}
			w.set(true, at(home))
			if e, took := next(t, watcher); took != coalesce || !slices.Equal(e.Delta.Added, []string{"wlan0"}) {
				t.Fatalf("after %v: %v", took, e.Delta)
			}
		}
	})
}

func TestPolling(t *testing.T) {
	for _, c := range []struct {
		name     string
		world    *world
		poll     time.Duration
		watchful bool
		want     []time.Duration // looks in the first 70 s
		told     time.Duration   // how long a change that nobody told takes to be told
	}{
		{"the system tells all", &world{wakes: true}, 0, false, seconds(60), time.Minute},
		{"no wake-ups told", &world{}, 0, false, seconds(60), time.Minute},
		{"nothing told", &world{deaf: errors.New("no")}, 0, false, seconds(15, 30, 45, 60), 15 * time.Second},
		{"nothing told, configured", &world{deaf: errors.New("no")}, 30 * time.Second, false, seconds(30, 60), 30 * time.Second},
		{"nothing told, never", &world{deaf: errors.New("no")}, -1, false, nil, 0},
		{"told, watchful", &world{wakes: true}, 0, true, seconds(60), time.Minute},
		{"nothing told, watchful", &world{deaf: errors.New("no")}, -1, true, every(time.Second, 69), time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := c.world
				w.reading = at(home)
				watcher := start(t, w, Config{Poll: c.poll})
				began := time.Now()
				watcher.SetWatchful(c.watchful)
				synctest.Wait()
				w.readsSince(began)
				time.Sleep(69*time.Second + 500*time.Millisecond)
				if got := w.readsSince(began); !slices.Equal(got, c.want) {
					t.Errorf("looked at %v, want %v", got, c.want)
				}
				if (watcher.Problem() != nil) != (w.deaf != nil) || w.deaf != nil && !errors.Is(watcher.Problem(), w.deaf) {
					t.Errorf("problem: %v", watcher.Problem())
				}
				w.set(false, at(office))
				if c.told == 0 {
					time.Sleep(time.Hour)
					quiet(t, watcher, "never looked at")
					return
				}
				if _, took := next(t, watcher); took > c.told {
					t.Errorf("told after %v", took)
				}
			})
		})
	}
}

func seconds(list ...int) (out []time.Duration) {
	for _, s := range list {
		out = append(out, time.Duration(s)*time.Second)
	}
	return out
}

func every(d time.Duration, n int) (out []time.Duration) {
	for i := range n {
		out = append(out, time.Duration(i+1)*d)
	}
	return out
}

// A system that stops telling is looked at by the clock from then on.
func TestGoesDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		gone := errors.New("gone")
		w.heard.add(news{changed: true, err: gone})
		time.Sleep(time.Second)
		if !errors.Is(watcher.Problem(), gone) {
			t.Errorf("problem: %v", watcher.Problem())
		}
		w.set(false, at(office))
		if _, took := next(t, watcher); took != 14*time.Second+coalesce {
			t.Errorf("told after %v, want 15s after the last look", took)
		}
	})
}

// wallClock is a wall clock that a test has jump.
type wallClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *wallClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *wallClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func TestWakeUp(t *testing.T) {
	for _, c := range []struct {
		name     string
		wakes    bool
		watchful bool
		jump     time.Duration
		within   time.Duration // of the last look at the clock
		hint     *news         // what the system says when it wakes
		want     Event
	}{
		{name: "watchful", watchful: true, jump: 8 * time.Hour, within: time.Second, want: Event{Woke: true, Slept: 8 * time.Hour}},
		{name: "idle", jump: 8 * time.Hour, within: 15 * time.Second, want: Event{Woke: true, Slept: 8 * time.Hour}},
		{name: "idle, told", wakes: true, jump: 8 * time.Hour, hint: &news{}, want: Event{Woke: true, Slept: 8 * time.Hour}},
		{name: "short, told", wakes: true, jump: time.Second, hint: &news{woke: true}, want: Event{Woke: true}},
		{name: "2 s are sleep", watchful: true, jump: 2 * time.Second, within: time.Second, want: Event{Woke: true, Slept: 2 * time.Second}},
		{name: "less is not", watchful: true, jump: 2*time.Second - 1},
		{name: "a clock set back is not", watchful: true, jump: -time.Hour},
		{name: "a clock set a little is not", wakes: true, jump: time.Second, hint: &news{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wall wallClock
				w := &world{reading: at(home), wakes: c.wakes}
				watcher := start(t, w, Config{Wall: wall.now})
				watcher.SetWatchful(c.watchful)
				synctest.Wait()
				wall.jump(c.jump)
				if c.hint != nil {
					w.heard.add(*c.hint)
				}
				if !c.want.Woke {
					time.Sleep(time.Hour)
					quiet(t, watcher, "no sleep")
					return
				}
				e, took := next(t, watcher)
				if took != c.within || !e.Woke || e.Slept != c.want.Slept || !e.Delta.IsZero() || !e.Snapshot.Known {
					t.Errorf("after %v: %+v, want %+v after %v", took, e, c.want, c.within)
				}
				time.Sleep(time.Hour)
				quiet(t, watcher, "it woke once")
			})
		})
	}
}

// After a wake-up address, router and tailnet come one by one within 3 s: each is told as it comes, and nothing of the network before
// is believed.
func TestWakesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wall wallClock
		w := &world{reading: at(home)}
		watcher := start(t, w, Config{Wall: wall.now})
		watcher.SetWatchful(true)
		synctest.Wait()
		before, _ := watcher.Snapshot().Interface("wlan0")

		wall.jump(8 * time.Hour)
		w.set(false, Reading{})
		e, took := next(t, watcher)
		if took != time.Second || !e.Woke || !slices.Equal(e.Delta.Removed, []string{"wlan0"}) {
			t.Errorf("after %v: %+v", took, e)
		}
		time.Sleep(500 * time.Millisecond)
		coming := routed(home, nil) // another home, with the same /24
		tailscale := Link{Name: "tailscale0", Index: 5, Running: true, Addrs: prefixes("100.101.102.103/32")}
		w.set(true, Reading{Links: coming.Links})
		e, _ = next(t, watcher)
		if !slices.Equal(e.Delta.Added, []string{"wlan0"}) {
			t.Errorf("address: %v", e.Delta)
		}
		time.Sleep(500 * time.Millisecond)
		w.set(true, coming)
		e, _ = next(t, watcher)
		i, _ := e.Snapshot.Interface("wlan0")
		if !slices.Equal(e.Delta.Default, []string{"wlan0"}) || !e.Delta.Path() || i.Network.Router != "" {
			t.Errorf("router: %v, network %+v", e.Delta, i.Network)
		}
		coming.Links = append(coming.Links, tailscale)
		w.set(true, coming)
		e, _ = next(t, watcher)
		if !slices.Equal(e.Delta.Added, []string{"tailscale0"}) || !e.Delta.Tailnet {
			t.Errorf("tailnet: %v", e.Delta)
		}
		coming.Gateways[0].MAC = []byte{2, 0, 0, 0, 0, 9}
		w.set(false, coming)
		e, took = next(t, watcher)
		i, _ = e.Snapshot.Interface("wlan0")
		if !slices.Equal(e.Delta.Learned, []string{"wlan0"}) || e.Delta.Path() || i.Network.Router == "" || i.Network == before.Network {
			t.Errorf("router known: %+v, network %+v, before %+v", e.Delta, i.Network, before.Network)
		}
		if took != 200*time.Millisecond {
			t.Errorf("router known after %v, want 200ms after the tailnet came", took)
		}
	})
}

// The router's address is looked for a few times, and then with the other looks.
func TestRouterLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		w.set(true, routed(office, nil))
		next(t, watcher)
		told := time.Now()
		w.readsSince(told)
		time.Sleep(2 * time.Minute)
		want := append(slices.Clone(routerLooks), 65*time.Second)
		if got := w.readsSince(told); !slices.Equal(got, want) {
			t.Errorf("looked at %v, want %v", got, want)
		}
		w.set(false, at(office))
		if e, _ := next(t, watcher); !slices.Equal(e.Delta.Learned, []string{"wlan0"}) {
			t.Errorf("told %v", e.Delta)
		}
	})
}

// A router that falls silent is forgotten by the system, not by us; a link that lost its carrier may be elsewhere.
func TestRouterIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		before, _ := watcher.Snapshot().Interface("wlan0")
		w.set(true, routed(home, nil))
		time.Sleep(time.Minute)
		quiet(t, watcher, "the router fell silent")
		if i, _ := watcher.Snapshot().Interface("wlan0"); i.Network != before.Network {
			t.Errorf("network %+v, was %+v", i.Network, before.Network)
		}
		w.heard.add(news{changed: true, lost: map[int]bool{7: true}})
		time.Sleep(time.Minute)
		quiet(t, watcher, "another link lost its carrier")
		w.heard.add(news{changed: true, lost: map[int]bool{3: true}})
		e, _ := next(t, watcher)
		if !slices.Equal(e.Delta.Moved, []string{"wlan0"}) {
			t.Errorf("told %v", e.Delta)
		}
	})
}

// Nor is a router kept that is behind another gateway's address, or if the carrier was lost while a burst was waited for.
func TestRouterIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		elsewhere := routed(home, nil)
		elsewhere.Gateways[0].Addr = netip.MustParseAddr("192.168.1.254")
		w.set(true, elsewhere)
		if e, _ := next(t, watcher); !slices.Equal(e.Delta.Moved, []string{"wlan0"}) {
			t.Errorf("another gateway: %v", e.Delta)
		}
		w.set(true, at(home))
		if e, _ := next(t, watcher); !slices.Equal(e.Delta.Learned, []string{"wlan0"}) {
			t.Errorf("its router: %v", e.Delta)
		}
		w.set(true, routed(home, nil))
		time.Sleep(5 * time.Millisecond)
		w.heard.add(news{changed: true, lost: map[int]bool{3: true}})
		if e, took := next(t, watcher); took != 10*time.Millisecond || !slices.Equal(e.Delta.Moved, []string{"wlan0"}) {
			t.Errorf("lost within the burst: %v after %v", e.Delta, took)
		}
	})
}

// It may have woken anywhere: in another home with the same addresses.
func TestRouterIsNotKeptAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		w.set(false, routed(home, nil))
		w.heard.add(news{woke: true})
		if e, took := next(t, watcher); took != 0 || !e.Woke || !slices.Equal(e.Delta.Moved, []string{"wlan0"}) {
			t.Errorf("after %v: %+v", took, e)
		}
		w.set(false, routed(home, []byte{2, 0, 0, 0, 0, 9}))
		if e, took := next(t, watcher); took != 200*time.Millisecond || e.Woke || !slices.Equal(e.Delta.Learned, []string{"wlan0"}) {
			t.Errorf("after %v: %+v", took, e)
		}
	})
}

// The machine may sleep in the middle of a burst.
func TestSleepsWithinBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wall wallClock
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{Wall: wall.now})
		w.set(true, routed(home, nil))
		time.Sleep(time.Millisecond)
		wall.jump(time.Hour)
		e, took := next(t, watcher)
		if took != 14*time.Millisecond || !e.Woke || e.Slept != time.Hour || !slices.Equal(e.Delta.Moved, []string{"wlan0"}) {
			t.Errorf("after %v: %+v", took, e)
		}
		time.Sleep(time.Hour)
		quiet(t, watcher, "it woke once")
	})
}

// A wake-up that the owner has not taken yet is in the next event.
func TestWakeUpIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wall wallClock
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{Wall: wall.now})
		for range 2 {
			wall.jump(time.Hour)
			w.heard.add(news{})
			time.Sleep(time.Second)
		}
		w.set(true, at(office))
		time.Sleep(time.Second)
		if e, _ := next(t, watcher); !e.Woke || e.Slept != 2*time.Hour || !e.Delta.Path() {
			t.Errorf("told %+v", e)
		}
		w.set(true, at(home))
		if e, _ := next(t, watcher); e.Woke || e.Slept != 0 {
			t.Errorf("told again: %+v", e)
		}
	})
}

// A privacy address that came without a word is told when it goes: a socket may be bound to it.
func TestPrivacyAddressGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{wakes: true}
		with := func(list ...string) Reading {
			return Reading{Links: []Link{{Name: "eth0", Index: 2, Kind: Wired, Running: true, Addrs: prefixes(list...)}}}
		}
		w.reading = with("2001:db8::5/64")
		watcher := start(t, w, Config{})
		w.set(true, with("2001:db8::5/64", "2001:db8::6/64"))
		time.Sleep(time.Second)
		quiet(t, watcher, "one more of a /64")
		w.set(true, with("2001:db8::5/64"))
		if e, _ := next(t, watcher); !slices.Equal(e.Delta.Gone, addrs("2001:db8::6")) {
			t.Errorf("told %v", e.Delta)
		}
	})
}

// What cannot be read is unknown: no interface left because of it.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home), wakes: true}
		watcher := start(t, w, Config{})
		broken := errors.New("broken")
		w.fail(broken)
		w.set(true, at(home))
		e, _ := next(t, watcher)
		if e.Snapshot.Known || !e.Delta.IsZero() || !errors.Is(watcher.Problem(), broken) || watcher.Snapshot().Known {
			t.Errorf("told %+v, problem %v", e, watcher.Problem())
		}
		w.set(true, at(home))
		time.Sleep(20 * time.Second)
		quiet(t, watcher, "still unreadable")
		w.fail(nil)
		w.set(false, at(office)) // it is tried again although nothing is told
		e, took := next(t, watcher)
		if took != 10*time.Second+coalesce || !e.Snapshot.Known || !slices.Equal(e.Delta.Gone, addrs("192.168.1.23")) || watcher.Problem() != nil {
			t.Errorf("told %+v, problem %v", e, watcher.Problem())
		}
	})
}

func TestUnreadableAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{err: errors.New("not yet"), wakes: true}
		watcher := start(t, w, Config{})
		if watcher.Snapshot().Known {
			t.Error("known from the beginning")
		}
		w.fail(nil)
		w.set(true, at(home))
		if e, _ := next(t, watcher); !e.Snapshot.Known || !e.Delta.IsZero() {
			t.Errorf("told %+v", e)
		}
	})
}

// A given world is read and listened to in place of this machine.
func TestGivenSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		changed, reading := make(chan struct{}), at(home)
		change := func(r Reading) {
			mu.Lock()
			defer mu.Unlock()
			close(changed)
			changed, reading = make(chan struct{}), r
		}
		var wall wallClock
		w := New(Config{
			Secret: []byte("s"), Wall: wall.now,
			Read: func() (Reading, error) {
				mu.Lock()
				defer mu.Unlock()
				return reading, nil
			},
			Changed: func() <-chan struct{} {
				mu.Lock()
				defer mu.Unlock()
				return changed
			},
		})
		defer w.Close()
		go w.Run(t.Context())
		for range 3 {
			change(at(office))
			if e, took := next(t, w); took != coalesce || !slices.Equal(e.Delta.New, addrs("10.1.2.3")) {
				t.Errorf("after %v: %v", took, e.Delta)
			}
			change(at(home))
			next(t, w)
		}
		if diff := cmp.Diff([]string{"wlan0"}, names(w.Snapshot())); diff != "" {
			t.Error(diff)
		}
	})
}

func names(s Snapshot) (out []string) {
	for _, i := range s.Interfaces {
		out = append(out, i.Name)
	}
	return out
}

func TestCloseWithoutRun(t *testing.T) {
	w := &world{reading: at(home)}
	watcher := newWatcher(Config{}, w)
	watcher.Close()
	watcher.Close()
	if _, more := <-watcher.Events(); more || !w.closed {
		t.Error("Close left something open")
	}
	watcher.Run(t.Context()) // returns at once
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: at(home)}
		watcher := newWatcher(Config{}, w)
		ctx, cancel := context.WithCancel(t.Context())
		go watcher.Run(ctx)
		w.set(true, at(office)) // in the middle of a burst
		synctest.Wait()
		cancel()
		if _, more := <-watcher.Events(); more {
			t.Error("an event after the end")
		}
		watcher.Close()
	})
}
