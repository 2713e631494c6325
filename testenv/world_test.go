package testenv

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const sec = time.Second

// places is a laptop at home, with Wi-Fi and cellular, and a devbox in the office: 10 ms one way from home, 30 from the
// cellular network. Both are also on a tailnet of 15 ms.
type places struct {
	w              *World
	laptop, devbox *Host
	wlan, wwan     *Interface
}

const (
	devboxAddr  = "198.51.100.7:7000"
	devboxTail  = "100.64.0.9:7000"
	nobodysAddr = "203.0.113.1:7000"
)

// inWorld runs f in a bubble; devbox echoes on port 7000 of all its addresses until f returns.
func inWorld(t *testing.T, f func(t *testing.T, p *places)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(1)
		w.LogTo(t)
		p := &places{w: w, laptop: w.Host("laptop"), devbox: w.Host("devbox")}
		w.Link("home", "office").SetDelay(10 * ms)
		w.Link("lte", "office").SetDelay(30 * ms)
		w.Link("tailnet", "tailnet").SetDelay(15 * ms)
		p.wlan = p.laptop.Add("wlan0", "home", "192.168.1.23/24", "2001:db8:1::23/64")
		p.wwan = p.laptop.Add("wwan0", "lte", "10.0.0.5/32")
		p.laptop.Add("tailscale0", "tailnet", "100.64.0.5/32")
		p.devbox.Add("eth0", "office", "198.51.100.7/24", "2001:db8:2::7/64")
		p.devbox.Add("tailscale0", "tailnet", "100.64.0.9/32")
		ln, err := p.devbox.Listen(t.Context(), "tcp", ":7000")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		f(t, p)
		p.devbox.Kill()
		synctest.Wait()
	})
}

// dial connects from the laptop, or fails the test.
func (p *places) dial(t *testing.T, address string) *Conn {
	t.Helper()
	c, err := p.laptop.Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("dialling %s: %v", address, err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*Conn)
}

// trip is how long an echo takes; it fails the test when none comes within a minute.
func trip(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	c.SetDeadline(start.Add(time.Minute))
	write(t, c, "ping")
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
		t.Fatalf("echo: %q, %v", got, err)
	}
	c.SetDeadline(time.Time{})
	return time.Since(start)
}

func wantTrip(t *testing.T, c net.Conn, want time.Duration) {
	t.Helper()
	if got := trip(t, c); got != want {
		t.Errorf("the echo took %v, want %v", got, want)
	}
}

// mute sends something and checks that nothing comes back within a minute.
func mute(t *testing.T, c net.Conn) {
	t.Helper()
	write(t, c, "anybody?")
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 100)); n != 0 || !isTimeout(err) {
		t.Errorf("Read = %d, %v, want silence", n, err)
	}
	c.SetReadDeadline(time.Time{})
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// wantDial dials and checks the outcome and its time.
func (p *places) wantDial(t *testing.T, address string, want error, after time.Duration) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := p.laptop.Dial(ctx, "tcp", address)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, want) || time.Since(start) != after {
		t.Errorf("dialling %s: %v after %v, want %v after %v", address, err, time.Since(start), want, after)
	}
}

func TestWorldRoutes(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		for _, c := range []struct {
			to, from string
			r        time.Duration
		}{
			{devboxAddr, "192.168.1.23", 20 * ms},
			{"[2001:db8:2::7]:7000", "2001:db8:1::23", 20 * ms},
			{devboxTail, "100.64.0.5", 30 * ms},
		} {
			p.wantDial(t, c.to, nil, c.r)
			conn := p.dial(t, c.to)
			wantTrip(t, conn, c.r)
			if got := conn.LocalAddr().(*net.TCPAddr).IP.String(); got != c.from {
				t.Errorf("dialled %s from %s, want %s", c.to, got, c.from)
			}
			if conn.RemoteAddr().String() != c.to {
				t.Errorf("RemoteAddr() = %s, want %s", conn.RemoteAddr(), c.to)
			}
		}
		bound, err := p.wwan.Dial(t.Context(), "tcp", devboxAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer bound.Close()
		wantTrip(t, bound, 60*ms)
		back, err := p.devbox.Dial(t.Context(), "tcp", "192.168.1.23:22") // the other way round
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling back: %v, %v", back, err)
		}
	})
}

// TestWorldLinksHaveADirection: up is from the network that was named first, whoever dials.
func TestWorldLinksHaveADirection(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		link := p.w.Link("office", "home") // the one named home, office before
		link.SetDelays(10*ms, 100*ms)
		ln, err := p.laptop.Listen(t.Context(), "tcp", ":22")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		start := time.Now()
		near, err := p.devbox.Dial(t.Context(), "tcp", "192.168.1.23:22")
		if err != nil || time.Since(start) != 110*ms {
			t.Fatalf("Dial: %v after %v", err, time.Since(start))
		}
		defer near.Close()
		far, err := ln.Accept()
		if err != nil || time.Since(start) != 210*ms {
			t.Fatalf("Accept: %v after %v", err, time.Since(start))
		}
		defer far.Close()
		if got := far.RemoteAddr().(*net.TCPAddr).IP.String(); got != "198.51.100.7" {
			t.Errorf("accepted from %s", got)
		}
		for _, c := range []struct {
			from, to net.Conn
			want     time.Duration
		}{{near, far, 100 * ms}, {far, near, 10 * ms}} {
			start := time.Now()
			write(t, c.from, "x")
			if _, err := io.ReadFull(c.to, make([]byte, 1)); err != nil || time.Since(start) != c.want {
				t.Errorf("%v after %v, want %v", err, time.Since(start), c.want)
			}
		}
		if up, down := link.Bytes(); up != 1 || down != 1 {
			t.Errorf("Bytes() = %d, %d", up, down)
		}
		link.BlackHole(true, false)
		write(t, near, "down passes")
		if _, err := io.ReadFull(far, make([]byte, 11)); err != nil {
			t.Error(err)
		}
		mute(t, far) // nothing from the laptop
		link.CutAfter(false, 1)
		write(t, near, "xy")
		if n, err := io.Copy(io.Discard, far); n != 1 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

func TestWorldDialsThatFail(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		p.wantDial(t, "198.51.100.7:81", syscall.ECONNREFUSED, 20*ms)
		p.wantDial(t, "192.168.1.99:7000", syscall.EHOSTUNREACH, 3*sec) // on the own network, and nobody's
		p.wantDial(t, nobodysAddr, context.DeadlineExceeded, time.Minute)
		p.w.Link("home", "office").Refuse(true)
		p.wantDial(t, devboxAddr, syscall.ECONNREFUSED, 20*ms)
		p.w.Link("home", "office").Refuse(false)
		p.devbox.Suspend()
		p.wantDial(t, devboxAddr, context.DeadlineExceeded, time.Minute)
		p.devbox.Resume()
		p.wantDial(t, devboxAddr, nil, 20*ms)
		for _, i := range p.laptop.Interfaces() {
			i.Up(false)
		}
		p.wantDial(t, devboxAddr, syscall.ENETUNREACH, 0)
		p.wantDial(t, devboxTail, syscall.ENETUNREACH, 0)
	})
}

func TestWorldInterfaceDownAndUp(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		c := p.dial(t, devboxAddr)
		changed := p.laptop.Changed()
		p.wlan.Up(false)
		<-changed
		mute(t, c)
		wantTrip(t, p.dial(t, devboxAddr), 60*ms) // by wwan0 now
		start := time.Now()
		p.wlan.Up(true)
		got := make([]byte, 8)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "anybody?" || time.Since(start) != 20*ms {
			t.Errorf("what was swallowed: %q, %v after %v", got, err, time.Since(start))
		}
		wantTrip(t, c, 20*ms)
		if up, network, addrs := p.wlan.State(); !up || network != "home" || len(addrs) != 2 {
			t.Errorf("State() = %v, %s, %v", up, network, addrs)
		}
	})
}

func TestWorldSilenceTakesWhatIsUnderWay(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		c := p.dial(t, devboxAddr)
		trip(t, c)
		write(t, c, "under way")
		time.Sleep(5 * ms)
		p.wlan.Up(false)
		p.w.Link("home", "office").Heal() // heals the link, which is not what is broken
		time.Sleep(time.Minute)
		if up, _ := p.w.Link("home", "office").Bytes(); up != 4 {
			t.Errorf("%d bytes arrived, want the 4 before", up)
		}
		write(t, c, ", later")
		c.CloseWrite()
		p.w.Link("home", "office").Heal()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("Read = %d, %v, want silence", n, err)
		}
		c.SetReadDeadline(time.Time{})
		start := time.Now()
		p.wlan.Up(true)
		same(t, reads(c, start)(), outcome{"under way, later", nil, 20 * ms}, outcome{"", io.EOF, 20 * ms})

		c = p.dial(t, devboxAddr)
		p.wlan.Up(false)
		p.w.Link("home", "office").Heal()
		c.CloseWrite() // the first thing that is sent in silence
		time.AfterFunc(time.Minute, func() { p.wlan.Up(true) })
		same(t, reads(c, time.Now())(), outcome{"", io.EOF, time.Minute + 20*ms})

		c = p.dial(t, devboxAddr)
		p.wlan.Up(false)
		p.w.Link("home", "office").Heal()
		write(t, c, "x")
		time.AfterFunc(time.Minute, func() { p.wlan.Up(true) })
		c.SetReadDeadline(time.Now().Add(time.Hour))
		start = time.Now()
		if _, err := c.Read(make([]byte, 1)); err != nil || time.Since(start) != time.Minute+20*ms {
			t.Errorf("Read: %v after %v", err, time.Since(start))
		}
	})
}

func TestWorldAddressChange(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		old := p.dial(t, devboxAddr)
		p.wlan.SetAddrs("192.168.1.77/24")
		mute(t, old)
		fresh := p.dial(t, devboxAddr)
		wantTrip(t, fresh, 20*ms)
		p.w.Link("cafe", "office").SetDelay(5 * ms)
		p.wlan.Join("cafe", "192.168.1.77/24") // the same address elsewhere
		mute(t, fresh)
		wantTrip(t, p.dial(t, devboxAddr), 10*ms)
	})
}

func TestWorldSocketsThatAbort(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		p.laptop.Abort(true)
		c := p.dial(t, devboxAddr)
		tail := p.dial(t, devboxTail)
		start := time.Now()
		time.AfterFunc(5*sec, func() { p.wlan.Up(false) })
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNABORTED) || time.Since(start) != 5*sec {
			t.Errorf("Read: %v after %v", err, time.Since(start))
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("Write: %v", err)
		}
		wantTrip(t, tail, 30*ms)
	})
}

func TestWorldSleep(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		c := p.dial(t, devboxAddr)
		wall, mono := p.laptop.Wall(), time.Now()
		go p.laptop.Sleep(8 * time.Hour)
		synctest.Wait()
		mute(t, c)
		p.wantDial(t, devboxAddr, context.DeadlineExceeded, time.Minute)
		if got := p.laptop.Wall().Sub(wall) - time.Since(mono); got != 0 {
			t.Errorf("asleep, the wall is %v ahead", got)
		}
		changed := p.laptop.Changed()
		<-changed
		if at := time.Since(mono); at != 8*time.Hour {
			t.Errorf("woke after %v", at)
		}
		if got := p.laptop.Wall().Sub(wall) - time.Since(mono); got != 8*time.Hour {
			t.Errorf("awake, the wall is %v ahead", got)
		}
		got := make([]byte, 8)
		if _, err := io.ReadFull(c, got); err != nil || time.Since(mono) != 8*time.Hour+20*ms {
			t.Errorf("what was written asleep came back: %q, %v at %v", got, err, time.Since(mono))
		}
		if p.devbox.Wall().Sub(wall) != time.Since(mono) {
			t.Error("the other host's clock jumped, too")
		}
		p.laptop.Jump(-time.Hour)
		if got := p.laptop.Wall().Sub(wall) - time.Since(mono); got != 7*time.Hour {
			t.Errorf("after a jump back the wall is %v ahead", got)
		}
	})
}

func TestWorldPowerCutAndKill(t *testing.T) {
	for name, c := range map[string]struct {
		end func(h *Host)
		at  time.Duration // when the laptop, which writes every second, learns of it
	}{
		"power cut": {(*Host).Forget, 6*sec + 20*ms}, // by the answer to its next byte
		"kill":      {(*Host).Kill, 5*sec + 510*ms},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, p *places) {
				conn := p.dial(t, devboxAddr)
				start := time.Now()
				time.AfterFunc(5500*ms, func() { c.end(p.devbox) })
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() {
					for range 10 {
						if _, err := conn.Write([]byte("x")); err != nil {
							return
						}
						time.Sleep(sec)
					}
				})
				n, err := io.Copy(io.Discard, conn)
				if n != 6 || !errors.Is(err, syscall.ECONNRESET) || time.Since(start) != c.at {
					t.Errorf("%d bytes, then %v after %v, want 6 and %v", n, err, time.Since(start), c.at)
				}
				p.wantDial(t, devboxAddr, syscall.ECONNREFUSED, 20*ms)
			})
		})
	}
}

func TestWorldNames(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		p.w.SetName("devbox.example", "198.51.100.7", "2001:db8:2::7")
		ask := func(name string) ([]netip.Addr, time.Duration, error) {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*sec)
			defer cancel()
			addrs, err := p.laptop.Resolve(ctx, name)
			return addrs, time.Since(start), err
		}
		want := func(name, first, fails string, after time.Duration) {
			t.Helper()
			addrs, took, err := ask(name)
			var e *net.DNSError
			switch {
			case took != after:
				t.Errorf("%s: answered after %v, want %v", name, took, after)
			case fails != "" && (!errors.As(err, &e) || !strings.Contains(e.Error(), fails)):
				t.Errorf("%s: %v, %v, want an error with %q", name, addrs, err, fails)
			case fails == "" && (err != nil || addrs[0].String() != first):
				t.Errorf("%s: %v, %v, want %s", name, addrs, err, first)
			}
		}
		want("devbox.example", "198.51.100.7", "", 0)
		want("192.0.2.1", "192.0.2.1", "", 0)
		want("nobody.example", "", "no such host", 0)
		p.wantDial(t, "devbox.example:7000", nil, 20*ms)
		p.laptop.SetDNS(DNS{Late: 3 * sec})
		want("devbox.example", "198.51.100.7", "", 3*sec)
		p.laptop.SetDNS(DNS{Wrong: []netip.Addr{netip.MustParseAddr("192.0.2.66")}})
		want("devbox.example", "192.0.2.66", "", 0)
		p.laptop.SetDNS(DNS{Fail: "server misbehaving"})
		want("devbox.example", "", "server misbehaving", 0)
		p.laptop.SetDNS(DNS{Never: true})
		want("devbox.example", "", "deadline", 10*sec)
		time.AfterFunc(4*sec, func() { p.laptop.SetDNS(DNS{}) })
		want("devbox.example", "198.51.100.7", "", 4*sec)
		for _, i := range p.laptop.Interfaces() {
			i.Up(false)
		}
		want("devbox.example", "", "network is unreachable", 0)
	})
}

func TestWorldListeners(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		listen := func(address string) (net.Listener, error) { return p.laptop.Listen(t.Context(), "tcp", address) }
		for address, want := range map[string]error{
			"192.0.2.1:80": syscall.EADDRNOTAVAIL, ":7001": nil, "192.168.1.23:80": nil, "127.0.0.1:0": nil,
		} {
			ln, err := listen(address)
			if !errors.Is(err, want) {
				t.Errorf("listening on %s: %v, want %v", address, err, want)
			}
			if err != nil {
				continue
			}
			if _, err := listen(ln.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("listening on %s again: %v", address, err)
			}
			port := ln.Addr().(*net.TCPAddr).Port
			to := net.JoinHostPort("127.0.0.1", itoa(port))
			if address == "192.168.1.23:80" {
				p.wantDial(t, to, syscall.ECONNREFUSED, 0)
				to = address // to itself by its own address: no network in between
			}
			p.wantDial(t, to, nil, 0)
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
			p.wantDial(t, to, syscall.ECONNREFUSED, 0)
		}
		if _, err := listen("no port"); err == nil {
			t.Error("listening without a port")
		}
	})
}

func itoa(n int) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n)).String()[len("0.0.0.0:"):]
}

func TestWorldTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(42)
		h := w.Host("laptop")
		h.Add("wlan0", "home", "192.168.1.23/24")
		w.Link("home", "office").Outages(0.5, 10*sec)
		time.Sleep(sec)
		h.Interfaces()[0].Up(false)
		if _, err := h.Dial(t.Context(), "tcp", devboxAddr); err == nil {
			t.Error("dialled without a network")
		}
		w.Note("the test says so")
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.link("home", "office").r.up.leave(time.Now().Add(time.Hour)) // makes outages of the future
		w.mu.Unlock()
		got := w.Timeline()
		for _, part := range []string{
			"seed 42", "          0s  laptop: wlan0 is up on home", "          1s  laptop: wlan0 up false",
			"          1s  laptop: dialled 198.51.100.7:7000 through no interface: network is unreachable after 0s",
			"          1s  the test says so", "home–office: silent for ",
		} {
			if !strings.Contains(got, part) {
				t.Errorf("the timeline does not tell %q:\n%s", part, got)
			}
		}
		if n := strings.Count(got, "\n"); n > 20 {
			t.Errorf("%d lines: the future is told:\n%s", n, got)
		}
		for range 3 * mostEvents {
			w.Note("more")
		}
		if n := strings.Count(w.Timeline(), "\n"); n > mostEvents+2 || !strings.Contains(w.Timeline(), "older events") {
			t.Errorf("%d lines", n)
		}
	})
}

// failing is a test that has failed.
type failing struct {
	cleanup func()
	log     string
}

func (f *failing) Cleanup(c func())           { f.cleanup = c }
func (f *failing) Failed() bool               { return true }
func (f *failing) Logf(_ string, args ...any) { f.log = args[0].(string) }

func TestFailureTellsTheSeed(t *testing.T) {
	f := new(failing)
	NewWorld(99).LogTo(f)
	f.cleanup()
	if !strings.Contains(f.log, "seed 99") {
		t.Errorf("log: %q", f.log)
	}
}
