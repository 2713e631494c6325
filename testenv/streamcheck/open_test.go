package streamcheck

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/armon/go-socks5"
)

// asPipe in the environment makes the test binary a program that joins its stdio with a TCP address.
const asPipe = "STREAMCHECK_TEST_PIPE"

func pipe(address string) int {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 3
	}
	go func() {
		_, _ = io.Copy(c, os.Stdin)
		closeWrite(c)
	}()
	if _, err := io.Copy(os.Stdout, c); err != nil {
		return 4
	}
	return 0
}

// listen serves each connection on a loopback address until the test ends, and waits for all.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

func target(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- ServeAll(ctx, ln, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ServeAll: %v", err)
		}
	})
	return ln.Addr().String()
}

func socksProxy(t *testing.T, user string) string {
	t.Helper()
	conf := &socks5.Config{Logger: log.New(io.Discard, "", 0)}
	if user != "" {
		conf.Credentials = socks5.StaticCredentials{user: ""}
	}
	s, err := socks5.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, func(c net.Conn) { _ = s.ServeConn(c) })
}

// httpProxy answers CONNECT with status, and after 200 joins both sides.
func httpProxy(t *testing.T, status string) string {
	t.Helper()
	return listen(t, func(c net.Conn) {
		defer c.Close()
		head := make([]byte, 0, 1000)
		for b := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, b[0]) {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, status+"\r\nProxy-Agent: test\r\n\r\n")
		if !strings.Contains(status, " 200") {
			return
		}
		far, err := net.Dial("tcp", strings.Fields(string(head))[1])
		if err != nil {
			return
		}
		defer far.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(far, c)
			closeWrite(far)
		}()
		_, _ = io.Copy(c, far)
		closeWrite(c)
		<-done
	})
}

func TestWaysToOpen(t *testing.T) {
	addr := target(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, open := range map[string]func() (net.Conn, error){
		"plain":          func() (net.Conn, error) { return Dial(ctx, addr) },
		"socks":          func() (net.Conn, error) { return DialSOCKS5(ctx, socksProxy(t, ""), addr, "") },
		"socks, by user": func() (net.Conn, error) { return DialSOCKS5(ctx, socksProxy(t, "me"), addr, "me") },
		"http":           func() (net.Conn, error) { return DialHTTP(ctx, httpProxy(t, "HTTP/1.1 200 Go on"), addr) },
		"stdio": func() (net.Conn, error) {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), asPipe+"="+addr)
			return Start(cmd)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := open()
			if err != nil {
				t.Fatal(err)
			}
			r := Run(ctx, c, Blast(11, Both, 0, 8<<20))
			wantWhole(t, r)
			if p, ok := c.(*Process); ok && p.Exit() != nil {
				t.Errorf("the process exited with %v", p.Exit())
			}
		})
	}
}

func TestProxiesThatRefuse(t *testing.T) {
	ctx := t.Context()
	refused := "127.0.0.1:1"
	for name, c := range map[string]struct {
		open func() (net.Conn, error)
		code int
		text string
	}{
		"socks": {func() (net.Conn, error) { return DialSOCKS5(ctx, socksProxy(t, ""), refused, "") }, 5, ""},
		"socks, wrong user": {
			func() (net.Conn, error) { return DialSOCKS5(ctx, socksProxy(t, "me"), refused, "you") }, 1, "user's name",
		},
		"socks, no user": {
			func() (net.Conn, error) { return DialSOCKS5(ctx, socksProxy(t, "me"), refused, "") }, 255, "method",
		},
		"http": {
			func() (net.Conn, error) { return DialHTTP(ctx, httpProxy(t, "HTTP/1.1 502 Bad Gateway"), refused) },
			http.StatusBadGateway, "Bad Gateway",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.open()
			var p *ProxyError
			if !errors.As(err, &p) || p.Code != c.code || !strings.Contains(p.Text, c.text) {
				t.Errorf("error %v, want code %d", err, c.code)
			}
		})
	}
	for name, answer := range map[string]string{"ssh": "SSH-2.0-x\r\n\r\n", "none": "", "endless": strings.Repeat("x", 2*mostLine)} {
		if _, err := DialHTTP(ctx, listen(t, func(c net.Conn) {
			_, _ = io.WriteString(c, answer)
			closeWrite(c)
			_, _ = io.Copy(io.Discard, c)
		}), refused); err == nil {
			t.Errorf("%s was taken for a proxy", name)
		}
	}
	cancelled, cancel := context.WithCancelCause(ctx)
	gone := errors.New("the app has left")
	silent := listen(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		cancel(gone)
		_, _ = io.Copy(io.Discard, c)
	})
	if _, err := DialSOCKS5(cancelled, silent, refused, ""); err == nil {
		t.Error("a proxy that says nothing was waited for and then taken")
	}
	if err := SOCKS5(nil, "no port", ""); err == nil {
		t.Error("a target without a port was asked for")
	}
}

func TestProcessThatIsCutOff(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asPipe+"="+target(t))
	c, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := Tick(12, ms, 0)
	p.Stop = nil
	done := make(chan Report, 1)
	go func() { done <- Run(ctx, c, p) }()
	cancel()
	if r := <-done; r.Whole() || r.Err == "" {
		t.Errorf("whole: %v, %s", r.Whole(), r.Err)
	}
	var e *exec.ExitError
	if !errors.As(c.Exit(), &e) {
		t.Errorf("the process that was killed exited with %v", c.Exit())
	}
	if _, err := Start(exec.Command("/no/such/program")); err == nil {
		t.Error("a program that is not there was started")
	}
}
