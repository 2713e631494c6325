package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	xproxy "golang.org/x/net/proxy"
)

const socksOK = "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"

func socksDialer(t testing.TB, addr string, auth *xproxy.Auth) xproxy.Dialer {
	t.Helper()
	d, err := xproxy.SOCKS5("tcp", addr, auth, xproxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSOCKSEcho(t *testing.T) {
	target := tcpServer(t, echo)
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	for _, host := range []string{"devbox", "DevBox.linkproxy.internal", "127.0.0.1", "::1"} {
		want := net.JoinHostPort(host, portOf(target))
		c, err := socksDialer(t, addr, nil).Dial("tcp", want)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		send(t, c, "hello")
		expect(t, c, "hello")
		c.Close()
		reqs := d.all()
		if got := reqs[len(reqs)-1]; got != (Request{Target: want, Via: "socks"}) {
			t.Errorf("dialled %+v, want target %s", got, want)
		}
	}
}

// TestSOCKSPipelined: the whole conversation in one write, with bytes for the target behind it. None is lost.
func TestSOCKSPipelined(t *testing.T) {
	target := tcpServer(t, echo)
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	for _, early := range []int{0, 1, 400, 4096, 9000, 300_000} {
		c := connect(t, addr)
		data := string(noise(early))
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(c)
			got <- b
		}()
		send(t, c, "\x05\x01\x00"+socksRequest("devbox", atoi(portOf(target)))+data)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if want := "\x05\x00" + socksOK + data; string(<-got) != want {
			t.Errorf("%d early bytes: the answer differs", early)
		}
	}
}

// TestSOCKSByteByByte: a handshake in single bytes works like any other.
func TestSOCKSByteByByte(t *testing.T) {
	target := tcpServer(t, echo)
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	c := connect(t, addr)
	_ = c.SetNoDelay(true)
	for _, b := range []byte("\x05\x01\x00" + socksRequest("devbox", atoi(portOf(target))) + "x") {
		send(t, c, string([]byte{b}))
	}
	expect(t, c, "\x05\x00"+socksOK+"x")
}

// TestSOCKSReplies: each reason has its exact code, whatever words its text has.
func TestSOCKSReplies(t *testing.T) {
	for reason, o := range outcomes {
		if reason == reasonNetwork || reason == reasonOther {
			continue
		}
		t.Run(reason, func(t *testing.T) {
			err := error(&reasonError{reason, "refused? network is unreachable? a sentence"})
			_, addr := startServer(t, Config{Dial: func(context.Context, Request) (net.Conn, error) { return nil, err }})
			c := connect(t, addr)
			send(t, c, "\x05\x01\x00"+socksRequest("devbox", 22))
			expect(t, c, "\x05\x00\x05"+string(o.SOCKS)+"\x00\x01\x00\x00\x00\x00\x00\x00")
			if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("after the reply: %d, %v", n, err)
			}
		})
	}
}

func TestSOCKSBadInput(t *testing.T) {
	never := func(context.Context, Request) (net.Conn, error) { panic("dialled") }
	_, addr := startServer(t, Config{Dial: never})
	fail := func(code string) string { return "\x05\x00\x05" + code + "\x00\x01\x00\x00\x00\x00\x00\x00" }
	for name, tc := range map[string]struct{ send, want string }{
		"empty name":        {"\x05\x01\x00" + socksRequest("", 22), fail("\x04")},
		"port 0":            {"\x05\x01\x00" + socksRequest("devbox", 0), fail("\x04")},
		"NUL in name":       {"\x05\x01\x00" + socksRequest("dev\x00box", 22), fail("\x04")},
		"blank in name":     {"\x05\x01\x00" + socksRequest("dev box", 22), fail("\x04")},
		"long name":         {"\x05\x01\x00" + socksRequest(strings.Repeat("a", 255), 22), fail("\x04")},
		"colons":            {"\x05\x01\x00" + socksRequest("devbox:22", 22), fail("\x04")},
		"BIND":              {"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x16", fail("\x07")},
		"UDP ASSOCIATE":     {"\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", fail("\x07")},
		"command 9":         {"\x05\x01\x00\x05\x09\x00\x01\x7f\x00\x00\x01\x00\x16", fail("\x07")},
		"address type 9":    {"\x05\x01\x00\x05\x01\x00\x09", fail("\x08")},
		"no method we know": {"\x05\x01\x01", "\x05\xff"},
		"SOCKS4":            {"\x04\x01\x00\x16\x7f\x00\x00\x01\x00", ""},
		"wrong version":     {"\x05\x01\x00\x04\x01\x00", "\x05\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, addr)
			send(t, c, tc.send)
			_ = c.CloseWrite()
			got, err := io.ReadAll(c)
			if string(got) != tc.want || (err != nil && tc.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestSOCKSAuth(t *testing.T) {
	target := tcpServer(t, echo)
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial, Users: map[string]string{"ann": "secret"}})
	to := "devbox:" + portOf(target)
	if c, err := socksDialer(t, addr, &xproxy.Auth{User: "ann", Password: "secret"}).Dial("tcp", to); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	for _, bad := range []*xproxy.Auth{nil, {User: "ann", Password: "Secret"}, {User: "bob", Password: "secret"}, {User: "ann", Password: ""}} {
		if c, err := socksDialer(t, addr, bad).Dial("tcp", to); err == nil {
			c.Close()
			t.Errorf("%+v was let in", bad)
		}
	}
	reqs := d.all()
	if len(reqs) != 1 || reqs[0].User != "ann" {
		t.Errorf("dialled %+v", reqs)
	}
}

// TestSOCKSUserWithoutUsers: a name is passed on though nobody has to authenticate.
func TestSOCKSUserWithoutUsers(t *testing.T) {
	target := tcpServer(t, echo)
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	c := connect(t, addr)
	send(t, c, "\x05\x01\x02\x01\x03tab\x01x"+socksRequest("devbox", atoi(portOf(target))))
	expect(t, c, "\x05\x02\x01\x00"+socksOK)
	if reqs := d.all(); reqs[0].User != "tab" {
		t.Errorf("dialled %+v", reqs)
	}
}

// TestAppLeavesDuringDial: the dial is cancelled, whether the app ends or resets, for SOCKS, HTTP and fixed ports. But the end
// of one that has sent a whole HTTP request is none: see TestHalfClosedRequest.
func TestAppLeavesDuringDial(t *testing.T) {
	opening := map[string]string{
		"socks":   "\x05\x01\x00" + socksRequest("devbox", 22),
		"connect": "CONNECT devbox:22 HTTP/1.1\r\nHost: devbox:22\r\n\r\n",
		"http":    "GET http://devbox/ HTTP/1.1\r\nHost: devbox\r\n\r\n",
		"forward": "",
	}
	for kind, bytes := range opening {
		for _, how := range []string{"end", "reset"} {
			if kind == "http" && how == "end" {
				continue
			}
			t.Run(kind+"-"+how, func(t *testing.T) {
				dialling, ended := make(chan struct{}), make(chan error, 1)
				dial := func(ctx context.Context, _ Request) (net.Conn, error) {
					close(dialling)
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return nil, ctx.Err()
				}
				l := listen(t)
				if kind == "forward" {
					f := NewForward(ForwardConfig{Dial: dial, Peer: "devbox", Target: "127.0.0.1:22"})
					serveUntilEnd(t, l, f.Serve, f.Close)
				} else {
					s := New(Config{Dial: dial})
					serveUntilEnd(t, l, s.Serve, s.Close)
				}
				c := connect(t, l.Addr().String())
				send(t, c, bytes)
				<-dialling
				if how == "reset" {
					_ = c.SetLinger(0)
				}
				if kind == "socks" {
					expect(t, c, "\x05\x00")
				}
				c.Close()
				select {
				case <-ended:
				case <-time.After(patience):
					t.Fatal("the dial went on")
				}
			})
		}
	}
}

// TestSilentClients: a bound on apps that say nothing, the oldest yields, and others are served.
func TestSilentClients(t *testing.T) {
	target := tcpServer(t, echo)
	var d dials
	s, addr := startServer(t, Config{Dial: d.dial, MaxHandshakes: 10})
	reset := make(chan struct{}, 50)
	for range 50 {
		c := connect(t, addr)
		go func() {
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNRESET) {
				reset <- struct{}{}
			}
		}()
	}
	for range 40 {
		select {
		case <-reset:
		case <-time.After(patience):
			t.Fatal("silent apps were not reset")
		}
	}
	eventually(t, "the bound", func() bool { return s.Live() <= 10 })
	c, err := socksDialer(t, addr, nil).Dial("tcp", "devbox:"+portOf(target))
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "x")
	expect(t, c, "x")
	c.Close()
}

// TestSlowHandshake: dribbling does not extend the time an app has.
func TestSlowHandshake(t *testing.T) {
	const limit = 300 * time.Millisecond
	never := func(context.Context, Request) (net.Conn, error) { panic("dialled") }
	_, addr := startServer(t, Config{Dial: never, HandshakeTimeout: limit})
	for name, opening := range map[string]string{
		"silent": "", "socks": "\x05\xff", "auth": "\x05\x01\x02\x01", "http": "GET http://x/ HTTP/1.1\r\nX: ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			c := connect(t, addr)
			send(t, c, opening)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(io.Discard, c)
			}()
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for open := true; open; {
				select {
				case <-done:
					open = false
				case <-tick.C:
					if opening != "" {
						_, _ = c.Write([]byte("a"))
					}
				}
			}
			if d := time.Since(start); d < limit || d > 3*limit+2*politeTime {
				t.Errorf("dropped after %v, want about %v", d, limit)
			}
		})
	}
}

// TestSOCKSAnswerWhole: 4 MiB to an app that half-closed, and to one that is still sending.
func TestSOCKSAnswerWhole(t *testing.T) {
	answer := noise(4 << 20)
	target := tcpServer(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 7))
		_, _ = c.Write(answer)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	for _, half := range []bool{true, false} {
		c := connect(t, addr)
		send(t, c, "\x05\x01\x00"+socksRequest("devbox", atoi(portOf(target))))
		expect(t, c, "\x05\x00"+socksOK)
		send(t, c, "request")
		if half {
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		} else {
			send(t, c, string(noise(256<<10)))
		}
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, answer) {
			t.Errorf("half-close %v: %d of %d bytes, %v", half, len(got), len(answer), err)
		}
		c.Close()
	}
}

// TestSOCKSResetPasses: a reset target is a reset for the app.
func TestSOCKSResetPasses(t *testing.T) {
	target := tcpServer(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	c, err := socksDialer(t, addr, nil).Dial("tcp", "devbox:"+portOf(target))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send(t, c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %v, want a reset", err)
	}
}

// TestSOCKSIdleGoroutines: what a handshake used is gone; between sockets two goroutines are left.
func TestSOCKSIdleGoroutines(t *testing.T) {
	const pairs = 20
	target := tcpServer(t, func(c net.Conn) { _, _ = c.Write([]byte("hi")); _, _ = io.Copy(io.Discard, c) })
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	before := runtime.NumGoroutine()
	for range pairs {
		c := connect(t, addr)
		send(t, c, "\x05\x01\x00"+socksRequest("devbox", atoi(portOf(target))))
		expect(t, c, "\x05\x00"+socksOK+"hi")
	}
	// One of the target's, two of ours.
	eventually(t, "few goroutines", func() bool { return runtime.NumGoroutine()-before <= 3*pairs })
}

// TestOddAddresses: a dialled connection whose addresses are not TCP's harms nothing.
func TestOddAddresses(t *testing.T) {
	near, far := net.Pipe()
	_, addr := startServer(t, Config{Dial: func(context.Context, Request) (net.Conn, error) { return near, nil }})
	c := connect(t, addr)
	send(t, c, "\x05\x01\x00"+socksRequest("devbox", 22)+"x")
	expect(t, c, "\x05\x00"+socksOK)
	expect(t, far, "x")
	far.Close()
}
