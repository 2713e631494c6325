package host

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestNetworkOf(t *testing.T) {
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, c := range []struct {
		a, b net.Addr
		same bool
	}{
		{tcp("192.0.2.1:1"), tcp("192.0.2.255:9"), true},
		{tcp("192.0.2.1:1"), tcp("192.0.3.1:1"), false},
		{tcp("192.0.2.1:1"), tcp("[::ffff:192.0.2.7]:1"), true},
		{tcp("[2001:db8:0:1200::1]:1"), tcp("[2001:db8:0:12ff::2]:1"), true},
		{tcp("[2001:db8:0:1200::1]:1"), tcp("[2001:db8:0:1300::1]:1"), false},
		{tcp("[fe80::1%eth0]:1"), tcp("[fe80::2%eth1]:1"), true},
		{addr("192.0.2.1:1"), tcp("192.0.2.2:1"), true},
		{addr("relay 1"), addr("relay 1"), true},
		{addr("relay 1"), addr("relay 2"), false},
		{nil, addr(""), false},
		{nil, nil, true},
		{&net.TCPAddr{}, &net.TCPAddr{}, true},
	} {
		if got := networkOf(c.a) == networkOf(c.b); got != c.same {
			t.Errorf("%v and %v are one network: %v", c.a, c.b, got)
		}
	}
}

type addr string

func (addr) Network() string  { return "test" }
func (a addr) String() string { return string(a) }

func TestWhoYields(t *testing.T) {
	for name, c := range map[string]struct {
		most, perNetwork int
		came             string // networks by letter, in order
		yields           string // for each who had to yield, by number of arrival, 0: nobody
	}{
		"room for all":              {4, 4, "abab", "0000"},
		"a network at its bound":    {9, 2, "aabaa", "00012"},
		"the largest network":       {4, 9, "abbbc", "00002"},
		"the older of two as large": {4, 9, "abbaccc", "0000125"},
		"all alike: the oldest":     {3, 9, "abcde", "00012"},
		"no bound for a network":    {3, -1, "aaaa", "0001"},
		"no bound at all":           {-1, -1, "aaaabbbb", "00000000"},
		"its own network first":     {4, 2, "aabba", "00001"},
	} {
		s := strangers{most: c.most, perNetwork: c.perNetwork}
		var got string
		for _, n := range c.came {
			_, y := s.add(network{name: string(n)}, nil)
			if y == nil {
				got += "0"
			} else {
				got += fmt.Sprint(y.number)
			}
		}
		if got != c.yields {
			t.Errorf("%s: %s came, %s yielded, want %s", name, c.came, got, c.yields)
		}
	}
}

// TestStrangersHold checks the bounds and who yields against a plain list, whatever comes and goes.
func TestStrangersHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, per := rapid.IntRange(1, 12).Draw(t, "most"), rapid.IntRange(1, 4).Draw(t, "per")
		s := strangers{most: most, perNetwork: per}
		var here []*guest // in the order they came
		without := func(g *guest) {
			for i, o := range here {
				if o == g {
					here = append(here[:i:i], here[i+1:]...)
					return
				}
			}
			t.Fatalf("%+v is not here", g)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if len(here) > 0 && rapid.IntRange(0, 2).Draw(t, "leaves") == 0 {
				g := rapid.SampledFrom(here).Draw(t, "who")
				s.remove(g)
				s.remove(g)
				without(g)
				continue
			}
			g, y := s.add(network{name: rapid.StringMatching("[a-e]").Draw(t, "from")}, nil)
			here = append(here, g)
			count := map[network]int{}
			for _, o := range here {
				count[o.from]++
			}
			checkYields(t, here, count, g, y, most, per)
			if y != nil {
				without(y)
				count[y.from]--
			}
			if s.n != len(here) || s.n > most || count[g.from] > per {
				t.Fatalf("%d are counted, %d are here, bounds %d and %d", s.n, len(here), most, per)
			}
		}
		for _, g := range here {
			s.remove(g)
		}
		if s.n != 0 || len(s.groups) != 0 {
			t.Fatalf("%d and %d networks are left", s.n, len(s.groups))
		}
	})
}

func checkYields(t *rapid.T, here []*guest, count map[network]int, g, y *guest, most, per int) {
	crowded, full := count[g.from] > per, len(here) > most
	if (y != nil) != (crowded || full) || y == g {
		t.Fatalf("crowded %v, full %v: %+v yields", crowded, full, y)
	}
	if y == nil {
		return
	}
	for _, o := range here {
		switch {
		case crowded && y.from != g.from:
			t.Fatalf("%+v yields to a crowd of %+v", y, g.from)
		case o.from == y.from && o.number < y.number:
			t.Fatalf("%+v yields and not its elder %+v", y, o)
		case !crowded && count[o.from] > count[y.from]:
			t.Fatalf("%+v yields though %+v is larger", y, o.from)
		}
	}
}

// TestStrangersAtTheirBounds: 16 of one network, 256 in all, five seconds each, and a client still gets in.
func TestStrangersAtTheirBounds(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		ended := make(chan string, 300)
		come := func(from string) net.Conn {
			t.Helper()
			c, err := w.net.DialFrom(t.Context(), from, "lan")
			if err != nil {
				t.Fatal(err)
			}
			w.wg.Go(func() {
				_, _ = io.Copy(io.Discard, c)
				ended <- from
				_ = c.Close()
			})
			synctest.Wait()
			return c
		}
		wantEnded := func(who string) {
			t.Helper()
			synctest.Wait()
			select {
			case from := <-ended:
				if from != who {
					t.Errorf("%s had to go, want %q", from, who)
				}
			default:
				if who != "" {
					t.Errorf("nobody had to go, want %s", who)
				}
			}
		}
		for n := range 16 {
			for i := range 16 {
				come(fmt.Sprintf("198.51.%d.%d:1", n, i))
			}
		}
		wantEnded("")
		come("198.51.3.100:1")
		wantEnded("198.51.3.0:1")
		come("203.0.113.1:1") // the largest are all 16 large: the oldest of the one whose oldest came first
		wantEnded("198.51.0.0:1")
		start := time.Now()
		if err := w.attach(w.client, w.key); err != nil {
			t.Errorf("a client among strangers: %v", err)
		}
		wantEnded("198.51.1.0:1")
		for range 255 {
			<-ended
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("strangers were cut off after %v", d)
		}
		s := w.open(w.target(echo))
		w.exchange(s, "unharmed")
		_ = s.Close()
	})
}

// TestCarriersAreNoStrangers: once attached they count no more, however many come from one network.
func TestCarriersAreNoStrangers(t *testing.T) {
	bubble(t, func(c *Config) { c.Strangers, c.PerNetwork = 2, 1 }, func(w *world) {
		t := w.t
		for range 20 {
			w.attached()
		}
		synctest.Wait()
		if n := len(w.srv.Status()[0].Carriers); n != 20 {
			t.Errorf("%d carriers live, want 20", n)
		}
		w.srv.mu.Lock()
		defer w.srv.mu.Unlock()
		if w.srv.strangers.n != 0 {
			t.Errorf("%d strangers are counted", w.srv.strangers.n)
		}
	})
}

// FuzzStranger: whatever bytes come from an unknown machine, the server neither panics nor hangs, and is rid of it in 6 s.
func FuzzStranger(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Add([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff})
	f.Add([]byte{21, 3, 3, 0, 2, 2, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		bubble(t, nil, func(w *world) {
			t := w.t
			c := w.dial()
			_, _ = c.Write(b)
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
			_, _ = io.Copy(io.Discard, c)
			if ctx.Err() != nil {
				t.Errorf("%x: still connected after 6 s", b)
			}
			_ = c.Close()
			synctest.Wait()
			if n := len(w.srv.Status()); n != 0 {
				t.Errorf("%x made %d links", b, n)
			}
		})
	})
}
