package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// fuzzServer serves one connection at a time; whatever comes, it must end soon after the app has ended, and what it dials
// must be a valid target.
func fuzzServer(f *testing.F, cfg Config) string {
	f.Helper()
	cfg.Dial = func(_ context.Context, r Request) (net.Conn, error) {
		host, port, err := net.SplitHostPort(r.Target)
		if err != nil || host == "" || port == "" || port == "0" || strings.ContainsAny(host, " \x00\r\n") {
			panic("dialled " + r.Target)
		}
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}
	s := New(cfg)
	path := f.TempDir() + "/s" // not TCP: a fuzzer would use up the ports
	ls, err := Listen("unix:" + path)
	if err != nil {
		f.Fatal(err)
	}
	go func() { _ = s.Serve(ls[0]) }()
	f.Cleanup(func() { s.Close() })
	return path
}

func throw(t *testing.T, addr string, input []byte) {
	c, err := net.Dial("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(fuzzPatience))
	go func() {
		_, _ = c.Write(input)
		_ = c.(*net.UnixConn).CloseWrite()
	}()
	if _, err := io.Copy(io.Discard, c); err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			t.Fatalf("%q hangs", input)
		}
	}
}

func FuzzSOCKS(f *testing.F) {
	for _, s := range []string{
		"\x05\x01\x00" + socksRequest("devbox", 22) + "data",
		"\x05\x02\x00\x02\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x16",
		"\x05\x01\x02\x01\x03ann\x02pw\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x16",
		"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x16", "\x05\x01\x00\x05\x03\x00\x03\x00\x00\x00", "\x05\x00", "\x05\xff", "\x04\x01",
	} {
		f.Add([]byte(s))
	}
	addr := fuzzServer(f, Config{})
	auth := fuzzServer(f, Config{Users: map[string]string{"ann": "pw"}})
	f.Fuzz(func(t *testing.T, input []byte) {
		throw(t, addr, append([]byte{socks5}, input...))
		throw(t, auth, input)
	})
}

func FuzzHTTP(f *testing.F) {
	for _, s := range []string{
		"CONNECT devbox:22 HTTP/1.1\r\nHost: devbox\r\n\r\ndata", "CONNECT [::1]:22 HTTP/1.0\r\n\r\n",
		"GET http://devbox/ HTTP/1.1\r\nHost: devbox\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://devbox/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\n\r\n",
		"GET http://devbox/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
		"POST http://devbox/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
		"GET http://devbox/ HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic YTpi\r\nConnection: Host, Te\r\n\r\n", "\x16\x03\x01",
	} {
		f.Add([]byte(s))
	}
	addr := fuzzServer(f, Config{})
	f.Fuzz(func(t *testing.T, input []byte) { throw(t, addr, input) })
}

// fuzzPatience is below DefaultHandshakeTimeout: an app that has ended must not be waited for.
const fuzzPatience = 5 * time.Second
