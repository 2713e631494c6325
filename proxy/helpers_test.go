package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test on real sockets.
const patience = 20 * time.Second

// need skips a test whose program is not installed; with LINKPROXY_STRICT=1 that is a failure.
func need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("LINKPROXY_STRICT") == "1" {
		t.Fatalf("%s is not installed", program)
	}
	t.Skipf("%s is not installed", program)
	return ""
}

// reasonError is a dialer's error with a class.
type reasonError struct{ reason, text string }

func (e *reasonError) Error() string  { return e.text }
func (e *reasonError) Reason() string { return e.reason }

// syncBuffer takes log lines from any goroutine.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func logTo(b *syncBuffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// dials records what was asked for and dials the target's port on this machine.
type dials struct {
	mu   sync.Mutex
	reqs []Request
	to   string // dialled instead of the target if set
}

func (d *dials) dial(ctx context.Context, r Request) (net.Conn, error) {
	d.mu.Lock()
	d.reqs = append(d.reqs, r)
	to := d.to
	d.mu.Unlock()
	if to == "" {
		_, port, _ := net.SplitHostPort(r.Target)
		to = "127.0.0.1:" + port
	}
	var nd net.Dialer
	c, err := nd.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (d *dials) all() []Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Request(nil), d.reqs...)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ls, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ls[0]
}

// startServer serves cfg until the test ends; its address is returned. Ending checks that Close returns.
func startServer(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	s := New(cfg)
	l := listen(t)
	serveUntilEnd(t, l, s.Serve, s.Close)
	return s, l.Addr().String()
}

func serveUntilEnd(t testing.TB, l net.Listener, serve func(net.Listener) error, stop func() error) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- serve(l) }()
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- stop() }()
		for _, ch := range []chan error{closed, served} {
			select {
			case err := <-ch:
				if err != nil && !errors.Is(err, net.ErrClosed) {
					t.Errorf("closing: %v", err)
				}
			case <-time.After(patience):
				t.Error("Close or Serve did not return")
			}
		}
	})
}

// tcpServer runs handle for each connection to it.
func tcpServer(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				handle(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

func connect(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func send(t testing.TB, c net.Conn, b string) {
	t.Helper()
	if _, err := io.WriteString(c, b); err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, c io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c, got)
	if err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// socksRequest is a CONNECT for a name, RFC 1928 section 4.
func socksRequest(name string, port int) string {
	b := append([]byte{5, 1, 0, 3, byte(len(name))}, name...)
	return string(append(b, byte(port>>8), byte(port)))
}

func atoi(s string) int {
	n := 0
	for _, c := range s {
		n = n*10 + int(c-'0')
	}
	return n
}

// told waits for something to be told on ch.
func told(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
}

// eventually waits for cond by asking it again after each tick of real time.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s did not come", what)
		}
	}
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}
