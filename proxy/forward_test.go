package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func startForward(t testing.TB, cfg ForwardConfig) string {
	t.Helper()
	f := NewForward(cfg)
	l := listen(t)
	serveUntilEnd(t, l, f.Serve, f.Close)
	return l.Addr().String()
}

func TestForward(t *testing.T) {
	target := tcpServer(t, echo)
	d := dials{to: target}
	for _, refuse := range []bool{false, true} {
		addr := startForward(t, ForwardConfig{
			Dial: d.dial, Peer: "devbox", Target: "127.0.0.1:5432", Hold: time.Hour, RefuseHTTP: refuse,
		})
		c := connect(t, addr)
		data := string(noise(1 << 20))
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(c)
			got <- b
		}()
		send(t, c, data)
		_ = c.CloseWrite()
		if string(<-got) != data {
			t.Errorf("refuse %v: the echo differs", refuse)
		}
		reqs := d.all()
		want := Request{Target: "127.0.0.1:5432", Via: "forward", Early: true, Peer: "devbox", Hold: time.Hour}
		if reqs[len(reqs)-1] != want {
			t.Errorf("dialled %+v", reqs)
		}
	}
}

// TestForwardServerFirst: the gate for HTTP holds up neither the dial nor the server's greeting, nor an app without words.
func TestForwardServerFirst(t *testing.T) {
	target := tcpServer(t, func(c net.Conn) { send(t, c, "SSH-2.0-x\r\n"); echo(c) })
	d := dials{to: target}
	addr := startForward(t, ForwardConfig{Dial: d.dial, Peer: "devbox", Target: "x:22", RefuseHTTP: true})
	c := connect(t, addr)
	expect(t, c, "SSH-2.0-x\r\n")
	send(t, c, "SSH-2.0-y\r\n")
	expect(t, c, "SSH-2.0-y\r\n")
	c2 := connect(t, addr)
	_ = c2.CloseWrite()
	if got, err := io.ReadAll(c2); err != nil || string(got) != "SSH-2.0-x\r\n" {
		t.Errorf("%q %v", got, err)
	}
}

// TestRefuseHTTP: a web request is reset before one byte of it reaches the target, in one piece or many; logged once.
func TestRefuseHTTP(t *testing.T) {
	got := make(chan string, 100)
	target := tcpServer(t, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	d := dials{to: target}
	var log syncBuffer
	addr := startForward(t, ForwardConfig{Dial: d.dial, Peer: "devbox", Target: "x:5432", RefuseHTTP: true, Logger: logTo(&log)})
	for _, s := range httpStarts {
		for _, pieces := range [][]string{{string(s) + "/ HTTP/1.1\r\n\r\n"}, {string(s[:1]), string(s[1:])}} {
			c := connect(t, addr)
			_ = c.SetNoDelay(true)
			for _, p := range pieces {
				_, _ = io.WriteString(c, p)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q: read %v, want a reset", pieces, err)
			}
			if b := <-got; b != "" {
				t.Errorf("%q: the target got %q", pieces, b)
			}
		}
	}
	if n := strings.Count(log.String(), "speaks HTTP"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// TestRefuseHTTPPassesOthers: what only begins like a method goes on, at once or when nothing more comes.
func TestRefuseHTTPPassesOthers(t *testing.T) {
	target := tcpServer(t, echo)
	d := dials{to: target}
	addr := startForward(t, ForwardConfig{Dial: d.dial, Peer: "devbox", Target: "x:5432", RefuseHTTP: true})
	for _, first := range []string{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "GETX", "get x", "PRI * HTTP/1", "G", "P", "*1\r\n"} {
		c := connect(t, addr)
		send(t, c, first)
		expect(t, c, first)
		send(t, c, " GET / HTTP/1.1")
		expect(t, c, " GET / HTTP/1.1")
	}
	c := connect(t, addr)
	send(t, c, "GE")
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || string(b) != "GE" {
		t.Errorf("%q %v", b, err)
	}
}

func TestForwardUnreachable(t *testing.T) {
	var log syncBuffer
	no := &reasonError{ReasonNoRoute, "devbox: no route works; see linkproxy why devbox"}
	addr := startForward(t, ForwardConfig{
		Dial: func(context.Context, Request) (net.Conn, error) { return nil, no }, Peer: "devbox", Target: "x:1", Logger: logTo(&log),
	})
	c, err := net.Dial("tcp", addr)
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) { // by the time connect looks it may have come already
		t.Errorf("%v, want a reset", err)
	}
	eventually(t, "the log line", func() bool { return strings.Contains(log.String(), "linkproxy why devbox") })
	contains(t, log.String(), "reason=no_route", "peer=devbox")
}

// flaky fails like a system out of files, twice.
type flaky struct {
	net.Listener
	fails int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.fails > 0 {
		f.fails--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestAcceptGoesOn(t *testing.T) {
	target := tcpServer(t, echo)
	d := dials{to: target}
	var log syncBuffer
	f := NewForward(ForwardConfig{Dial: d.dial, Target: "x:1", Logger: logTo(&log)})
	l := listen(t)
	serveUntilEnd(t, &flaky{Listener: l, fails: 2}, f.Serve, f.Close)
	c := connect(t, l.Addr().String())
	send(t, c, "x")
	expect(t, c, "x")
	contains(t, log.String(), "ulimit -n")
	// A listener that is broken for good ends Serve with its error.
	broken := NewForward(ForwardConfig{Dial: d.dial})
	defer broken.Close()
	if err := broken.Serve(&brokenListener{listen(t)}); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}

type brokenListener struct{ net.Listener }

func (b *brokenListener) Accept() (net.Conn, error) { _ = b.Close(); return nil, syscall.EINVAL }

// BenchmarkForward is a new connection through a fixed port, one echo, and its end.
func BenchmarkForward(b *testing.B) {
	d := dials{to: tcpServer(b, echo)}
	benchConnections(b, startForward(b, ForwardConfig{Dial: d.dial, Target: "x:1"}), "")
}

// BenchmarkSOCKS is the same through a SOCKS handshake.
func BenchmarkSOCKS(b *testing.B) {
	d := dials{to: tcpServer(b, echo)}
	_, addr := startServer(b, Config{Dial: d.dial})
	benchConnections(b, addr, "\x05\x01\x00"+socksRequest("devbox", 1))
}

func benchConnections(b *testing.B, addr, opening string) {
	b.ReportAllocs()
	answer := make([]byte, 64)
	for b.Loop() {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		send(b, c, opening+"x")
		want := 1
		if opening != "" {
			want += 2 + len(socksOK)
		}
		if _, err := io.ReadFull(c, answer[:want]); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// BenchmarkIdle reports the heap and stacks that one idle connection holds in the proxy, beside its sockets. The far side
// is a stream that calls back, as a link's does.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range []string{"forward", "socks", "connect"} {
		b.Run(kind, func(b *testing.B) {
			dial := func(context.Context, Request) (net.Conn, error) { return &quietStream{}, nil }
			var addr, opening, reply string
			switch kind {
			case "forward":
				addr = startForward(b, ForwardConfig{Dial: dial, Target: "x:1"})
			case "socks":
				_, addr = startServer(b, Config{Dial: dial})
				opening, reply = "\x05\x01\x00"+socksRequest("devbox", 1), "\x05\x00"+socksOK
			case "connect":
				_, addr = startServer(b, Config{Dial: dial})
				opening, reply = "CONNECT devbox:1 HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\n"
			}
			before := held()
			const n = 1000
			for b.Loop() {
				conns := make([]net.Conn, n)
				for i := range conns {
					c, err := net.Dial("tcp", addr)
					if err != nil {
						b.Fatal(err)
					}
					send(b, c, opening)
					expect(b, c, reply)
					conns[i] = c
				}
				b.ReportMetric(float64(held()-before)/n, "B/conn")
				for _, c := range conns {
					c.Close()
				}
			}
		})
	}
}

func held() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// quietStream says nothing until it is closed.
type quietStream struct {
	net.Conn
	wake func()
}

func (s *quietStream) OnReadable(f func())                     { s.wake = f }
func (s *quietStream) WriteAvailable(io.Writer) (int64, error) { return 0, io.EOF }
func (s *quietStream) ReadFrom(r io.Reader) (int64, error)     { return io.Copy(io.Discard, &waits{r}) }
func (s *quietStream) Write(p []byte) (int, error)             { return len(p), nil }
func (s *quietStream) CloseWrite() error                       { s.wake(); return nil }
func (s *quietStream) Reset(uint32)                            {}
func (s *quietStream) Close() error                            { return nil }

// waits reads without holding a buffer while there is nothing.
type waits struct{ r io.Reader }

func (w *waits) Read(p []byte) (int, error) { return w.r.Read(p) }

func (w *waits) WriteTo(dst io.Writer) (n int64, err error) {
	for {
		if err := w.r.(interface{ WaitReadable() error }).WaitReadable(); err != nil {
			return n, err
		}
		k, err := w.r.Read(make([]byte, 64))
		n += int64(k)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// lateRefusal is an early connection whose target turns out not to be there.
type lateRefusal struct {
	net.Conn
	err error
}

func (c lateRefusal) Read([]byte) (int, error)    { return 0, c.err }
func (c lateRefusal) Write(p []byte) (int, error) { return len(p), nil }

// TestForwardSaysWhyAfterwards: all that the app of a fixed port sees is a reset; whoever looks at the log learns why.
func TestForwardSaysWhyAfterwards(t *testing.T) {
	var log syncBuffer
	addr := startForward(t, ForwardConfig{
		Dial: func(context.Context, Request) (net.Conn, error) {
			near, far := net.Pipe()
			_ = far.Close()
			return lateRefusal{near, &refusedError{}}, nil
		},
		Peer: "devbox", Target: "127.0.0.1:9", Logger: logTo(&log),
	})
	if c, err := net.Dial("tcp", addr); err == nil { // by the time connect looks the reset may have come already
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the app got a byte")
		}
	}
	eventually(t, "the log line", func() bool { return strings.Contains(log.String(), "target not reached") })
	contains(t, log.String(), "level=INFO", "target=127.0.0.1:9", "reason=refused", "nothing listens there")
}

type refusedError struct{}

func (*refusedError) Error() string  { return "nothing listens there" }
func (*refusedError) Reason() string { return "refused" }
