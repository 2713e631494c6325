package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// httpClient uses the proxy at addr.
func httpClient(t testing.TB, addr string) *http.Client {
	t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr}), DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func startHTTP(t testing.TB, h http.HandlerFunc) (addr string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// raw sends one request and reads one response.
func raw(t testing.TB, addr, request string) (*http.Response, string) {
	t.Helper()
	c := connect(t, addr)
	send(t, c, request)
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return res, string(body)
}

func TestConnect(t *testing.T) {
	target := tcpServer(t, echo)
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	for _, early := range []int{0, 1, 5000, 300_000} {
		c := connect(t, addr)
		data := string(noise(early))
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(c)
			got <- b
		}()
		send(t, c, fmt.Sprintf("CONNECT devbox:%s HTTP/1.1\r\nHost: devbox\r\n\r\n%s", portOf(target), data))
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if want := "HTTP/1.1 200 Connection established\r\n\r\n" + data; string(<-got) != want {
			t.Errorf("%d early bytes: the answer differs", early)
		}
	}
	if r := d.all()[0]; r != (Request{Target: "devbox:" + portOf(target), Via: "http"}) {
		t.Errorf("dialled %+v", r)
	}
}

// TestHTTPErrors: exact statuses with a sentence, for CONNECT and for plain requests.
func TestHTTPErrors(t *testing.T) {
	for reason, o := range outcomes {
		if reason == reasonNetwork || reason == reasonOther {
			continue
		}
		t.Run(reason, func(t *testing.T) {
			err := error(&reasonError{reason, "devbox: a sentence\r\nX-Evil: 1"})
			_, addr := startServer(t, Config{Dial: func(context.Context, Request) (net.Conn, error) { return nil, err }})
			for _, request := range []string{
				"CONNECT devbox:22 HTTP/1.1\r\nHost: devbox:22\r\n\r\n",
				"GET http://devbox/ HTTP/1.1\r\nHost: devbox\r\n\r\n",
				"POST http://devbox/ HTTP/1.1\r\nHost: devbox\r\nContent-Length: 4\r\n\r\nbody",
				"GET http://devbox/ HTTP/1.1\r\nHost: devbox\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			} {
				res, body := raw(t, addr, request)
				if res.StatusCode != o.Status || res.Header.Get("Proxy-Status") != "linkproxy; error="+o.Proxy ||
					res.Header.Get("X-Evil") != "" || body != "devbox: a sentence  X-Evil: 1\n" || !res.Close {
					t.Errorf("%.30q: %d %v %q, want %d", request, res.StatusCode, res.Header, body, o.Status)
				}
			}
		})
	}
}

// TestWebGuard: nothing that a web page can send passes; the text helps a person who opened the port.
func TestWebGuard(t *testing.T) {
	never := func(context.Context, Request) (net.Conn, error) { panic("dialled") }
	s, addr := startServer(t, Config{Dial: never, OwnHosts: []string{"proxy.example"}})
	path := t.TempDir() + "/s"
	ls, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(ls[0]) }()
	port := portOf(addr)
	for name, request := range map[string]string{
		"navigation":           "GET / HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
		"rebinding":            "GET /x HTTP/1.1\r\nHost: evil.example:" + port + "\r\nOrigin: http://evil.example\r\n\r\n",
		"form post":            "POST / HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
		"preflight":            "OPTIONS / HTTP/1.1\r\nHost: " + addr + "\r\nOrigin: http://evil.example\r\n\r\n",
		"asterisk":             "OPTIONS * HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
		"websocket":            "GET / HTTP/1.1\r\nHost: " + addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/1.0":             "GET / HTTP/1.0\r\n\r\n",
		"self":                 "GET http://" + addr + "/ HTTP/1.1\r\nHost: " + addr + "\r\n\r\n",
		"self, localhost":      "GET http://LocalHost:" + port + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"self, other loopback": "GET http://127.9.9.9:" + port + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"self, own name":       "GET http://proxy.example.:" + port + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"self, 0.0.0.0":        "GET http://0.0.0.0:" + port + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			res, body := raw(t, addr, request)
			if res.StatusCode != 400 || !res.Close || res.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%d %v", res.StatusCode, res.Header)
			}
			contains(t, body, "not a web server", "socks5h://"+addr)
		})
	}
	t.Run("unix socket", func(t *testing.T) {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		expect(t, c, "HTTP/1.1 400 Bad Request\r\n")
	})
	t.Run("https in the request line", func(t *testing.T) {
		res, body := raw(t, addr, "GET https://devbox/ HTTP/1.1\r\nHost: devbox\r\n\r\n")
		if res.StatusCode != 400 || !strings.Contains(body, "CONNECT") {
			t.Errorf("%d %q", res.StatusCode, body)
		}
	})
}

func TestHTTPBadInput(t *testing.T) {
	never := func(context.Context, Request) (net.Conn, error) { panic("dialled") }
	_, addr := startServer(t, Config{Dial: never})
	for name, tc := range map[string]struct {
		request string
		status  int
	}{
		"garbage":            {"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400},
		"no port":            {"CONNECT devbox HTTP/1.1\r\nHost: devbox\r\n\r\n", 400},
		"port 0":             {"CONNECT devbox:0 HTTP/1.1\r\nHost: devbox\r\n\r\n", 400},
		"port too large":     {"CONNECT devbox:65536 HTTP/1.1\r\nHost: devbox\r\n\r\n", 400},
		"empty host":         {"CONNECT :22 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		"CONNECT path":       {"CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		"empty URL host":     {"GET http://:80/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		"two Hosts":          {"GET http://devbox/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		"header too large":   {"GET http://devbox/ HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n", 431},
		"length and chunked": {"POST http://:1/ HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
		"HTTP/2 preface":     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			if res, _ := raw(t, addr, tc.request); res.StatusCode != tc.status {
				t.Errorf("status %d, want %d", res.StatusCode, tc.status)
			}
		})
	}
}

func TestHTTPAuth(t *testing.T) {
	target := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if v := r.Header.Get("Proxy-Authorization"); v != "" {
			t.Errorf("the target saw %q", v)
		}
	})
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial, Users: map[string]string{"ann": "se:cret"}})
	for _, auth := range []string{"", "Basic !", "Basic YW5u", "Basic YW5uOng=", "Bearer x"} {
		for _, line := range []string{"CONNECT devbox:22", "GET http://devbox/"} {
			h := ""
			if auth != "" {
				h = "Proxy-Authorization: " + auth + "\r\n"
			}
			res, _ := raw(t, addr, line+" HTTP/1.1\r\nHost: devbox\r\n"+h+"\r\n")
			if res.StatusCode != 407 || !strings.HasPrefix(res.Header.Get("Proxy-Authenticate"), "Basic realm=") {
				t.Errorf("%s with %q: %d %v", line, auth, res.StatusCode, res.Header)
			}
		}
	}
	if len(d.all()) != 0 {
		t.Fatalf("dialled %v", d.all())
	}
	res, _ := raw(t, addr, "GET http://"+target+"/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: bAsIc YW5uOnNlOmNyZXQ=\r\nConnection: close\r\n\r\n")
	if res.StatusCode != 200 || d.all()[0].User != "ann" {
		t.Errorf("%d %+v", res.StatusCode, d.all())
	}
}

// TestForwardedHeaders: what goes on and what ends here (RFC 9110 section 7.6).
func TestForwardedHeaders(t *testing.T) {
	var mu sync.Mutex
	var seen *http.Request
	target := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = r.Clone(context.Background())
		mu.Unlock()
		h := w.Header()
		h.Set("Connection", "X-Res-Hop")
		h.Set("X-Res-Hop", "1")
		h.Set("X-Res-End", "1")
		h.Set("Via", "1.0 other")
	})
	var d dials
	d.to = target
	_, addr := startServer(t, Config{Dial: d.dial})
	res, _ := raw(t, addr, "GET http://user:pw@Devbox:8080/a%2Fb;c?x=1;y=%zz HTTP/1.1\r\nHost: ignored.example\r\n"+
		"Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nProxy-Connection: keep-alive\r\nKeep-Alive: 1\r\nTE: trailers\r\n"+
		"Upgrade: h2c\r\nX-End: 1\r\nX-Forwarded-For: 10.0.0.1\r\nVia: 1.1 first\r\nAccept-Encoding: br\r\n\r\n")
	if res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, k := range []string{"Connection", "X-Hop", "Proxy-Connection", "Keep-Alive", "Upgrade", "Authorization", "User-Agent"} {
		if v := seen.Header.Values(k); len(v) > 0 {
			t.Errorf("the target saw %s: %q", k, v)
		}
	}
	for k, want := range map[string]string{
		"X-End": "1", "X-Forwarded-For": "10.0.0.1", "Via": "1.1 first, 1.1 linkproxy", "Accept-Encoding": "br",
	} {
		if got := seen.Header.Get(k); got != want {
			t.Errorf("the target saw %s: %q, want %q", k, got, want)
		}
	}
	if seen.Host != "Devbox:8080" || seen.RequestURI != "/a%2Fb;c?x=1;y=%zz" {
		t.Errorf("the target saw %q %q", seen.Host, seen.RequestURI)
	}
	if res.Header.Get("X-Res-Hop") != "" || res.Header.Get("X-Res-End") != "1" || res.Header.Get("Via") != "1.0 other, 1.1 linkproxy" {
		t.Errorf("the client saw %v", res.Header)
	}
	if got := d.all()[0].Target; got != "Devbox:8080" {
		t.Errorf("dialled %q", got)
	}
}

// TestForwardedBodies: length, chunks with trailers, HEAD, 204, keep-alive on both sides.
func TestForwardedBodies(t *testing.T) {
	target := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/chunked":
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write(body)
			w.(http.Flusher).Flush()
			_, _ = w.Write(body)
			w.Header().Set("X-Sum", "s"+r.Trailer.Get("X-In"))
		default:
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			_, _ = w.Write(body)
		}
	})
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	client := httpClient(t, addr)
	big := noise(1 << 20)
	do := func(method, path string, body io.Reader, trailer http.Header) (*http.Response, []byte) {
		req, _ := http.NewRequest(method, "http://"+target+path, body)
		if trailer != nil {
			req.ContentLength, req.Trailer = -1, trailer
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, got
	}
	if res, got := do("POST", "/", bytes.NewReader(big), nil); !bytes.Equal(got, big) || res.ContentLength != int64(len(big)) {
		t.Errorf("length: %d bytes of %d", len(got), res.ContentLength)
	}
	res, got := do("PUT", "/chunked", bytes.NewReader(big), http.Header{"X-In": {"t"}})
	if len(got) != 2*len(big) || res.Trailer.Get("X-Sum") != "st" {
		t.Errorf("chunked: %d bytes, trailer %v", len(got), res.Trailer)
	}
	if res, got := do("HEAD", "/", nil, nil); len(got) != 0 || res.StatusCode != 200 {
		t.Errorf("HEAD: %v %d", res.Status, len(got))
	}
	if res, _ := do("GET", "/204", nil, nil); res.StatusCode != 204 {
		t.Error(res.Status)
	}
	if n := len(d.all()); n != 1 {
		t.Errorf("%d connections to the target for one client's 4 requests, want 1", n)
	}
}

// TestStreaming: each piece of an answer passes as it comes, and 100-continue is asked of the target.
func TestStreaming(t *testing.T) {
	next := make(chan struct{})
	target := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed) // without having read: no 100 is sent
			return
		}
		for range 3 {
			_, _ = w.Write([]byte("tick\n"))
			w.(http.Flusher).Flush()
			<-next
		}
	})
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	res, err := httpClient(t, addr).Get("http://" + target + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for range 3 {
		expect(t, res.Body, "tick\n")
		next <- struct{}{}
	}
	c := connect(t, addr)
	send(t, c, "POST http://"+target+"/no HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
	expect(t, c, "HTTP/1.1 417 ")
}

// TestCutAnswer: an answer that breaks off does not look complete, even where only the end of the connection ends it.
func TestCutAnswer(t *testing.T) {
	for _, length := range []string{"", "Content-Length: 1000\r\n"} {
		target := tcpServer(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1000))
			send(t, c, "HTTP/1.1 200 OK\r\n"+length+"\r\nsome bytes")
			_, _ = c.Read(make([]byte, 1)) // until the client has seen them
			_ = c.(*net.TCPConn).SetLinger(0)
		})
		peers := make(chan net.Conn, 1)
		var d dials
		_, addr := startServer(t, Config{Dial: func(ctx context.Context, r Request) (net.Conn, error) {
			p, err := d.dial(ctx, r)
			if err == nil {
				peers <- p
			}
			return p, err
		}})
		c := connect(t, addr)
		send(t, c, "GET http://"+target+"/ HTTP/1.0\r\n\r\n")
		var got strings.Builder
		buf := make([]byte, 1)
		for !strings.HasSuffix(got.String(), "some bytes") {
			if _, err := c.Read(buf); err != nil {
				t.Fatalf("after %q: %v", got.String(), err)
			}
			got.Write(buf)
		}
		send(t, <-peers, "x")
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("length %q: the client saw %v, want a reset", length, err)
		}
	}
}

// TestHalfClosedRequest: a client that says that it will say nothing more behind its request gets its answer, though it takes
// a while; the same as one that is reset meanwhile ends what was begun for it.
func TestHalfClosedRequest(t *testing.T) {
	for name, request := range map[string]string{
		"get":     "GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"old":     "GET http://%s/ HTTP/1.0\r\n\r\n",
		"post":    "POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
		"upgrade": "GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " leaves ", leaves), func(t *testing.T) {
				asked, gone, answer := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
				target := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						t.Error(err)
					}
					asked <- struct{}{}
					select {
					case <-answer:
						_, _ = io.WriteString(w, "late, but whole")
					case <-r.Context().Done():
						gone <- struct{}{}
					}
				})
				dialling, noticed := make(chan struct{}), make(chan struct{})
				_, addr := startServer(t, Config{Dial: func(ctx context.Context, r Request) (net.Conn, error) {
					close(dialling)
					select { // long enough for net/http to have seen the end
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-noticed:
					}
					return net.Dial("tcp", target)
				}})
				c := connect(t, addr)
				send(t, c, fmt.Sprintf(request, target))
				told(t, "the dial", dialling)
				_ = c.CloseWrite()
				time.AfterFunc(50*time.Millisecond, func() { close(noticed) })
				told(t, "the request", asked)
				if leaves {
					_ = c.SetLinger(0)
					c.Close()
					told(t, "the end of the request", gone)
					return
				}
				close(answer)
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if body, err := io.ReadAll(res.Body); string(body) != "late, but whole" || res.StatusCode != 200 {
					t.Errorf("%s: %q, %v", res.Status, body, err)
				}
			})
		}
	}
}

// TestEndlessHeader: a target that never ends the header of its answer, or sends interim answers for ever, is cut off, and its
// client told; with and without an upgrade.
func TestEndlessHeader(t *testing.T) {
	const most = 16 << 20 // what lies in sockets is far less
	const upgrade, start = "Connection: upgrade\r\nUpgrade: websocket\r\n", "HTTP/1.1 101 Switching Protocols\r\n"
	const interim = "HTTP/1.1 103 Early Hints\r\n\r\n"
	for name, c := range map[string]struct{ request, start, line string }{
		"upgrade":  {upgrade, start, "X-More: and more\r\n"},
		"one line": {upgrade, start + "X: ", "and more"},
		"interim":  {upgrade, interim, interim},
		"request":  {"", "HTTP/1.1 200 OK\r\n", "X-More: and more\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan int, 1)
			target := tcpServer(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 4096))
				send(t, conn, c.start)
				n, piece := 0, []byte(strings.Repeat(c.line, 1000))
				for n < most {
					m, err := conn.Write(piece)
					if n += m; err != nil {
						break
					}
				}
				sent <- n
			})
			var d dials
			_, addr := startServer(t, Config{Dial: d.dial})
			res, _ := raw(t, addr, "GET http://"+target+"/ HTTP/1.1\r\nHost: x\r\n"+c.request+"\r\n")
			if n := <-sent; res.StatusCode != 502 || n >= most {
				t.Errorf("%s after %d bytes of header", res.Status, n)
			}
		})
	}
}

// TestUpgrade: a protocol change over plain HTTP is carried both ways, with bytes sent early on either side.
func TestUpgrade(t *testing.T) {
	target := tcpServer(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if r.URL.Path == "/no" {
			send(t, c, "HTTP/1.1 426 Upgrade Required\r\nUpgrade: other\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno")
			return
		}
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") != "k" || r.Header.Get("Via") != "1.1 linkproxy" {
			t.Errorf("the target saw %v", r.Header)
		}
		send(t, c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-A: 1\r\n\r\nhello")
		_, _ = io.Copy(c, br)
		_ = c.(*net.TCPConn).CloseWrite()
	})
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial})
	const head = " HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n"
	c := connect(t, addr)
	send(t, c, "GET http://"+target+"/"+head+"early")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "websocket" || res.Header.Get("X-A") != "1" {
		t.Fatalf("%+v %v", res, err)
	}
	expect(t, br, "helloearly")
	send(t, c, "more")
	expect(t, br, "more")
	_ = c.CloseWrite()
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	res, body := raw(t, addr, "GET http://"+target+"/no"+head)
	if res.StatusCode != 426 || body != "no" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// TestCurl: a real client by socks5h, CONNECT and a plain request, up and down.
func TestCurl(t *testing.T) {
	curl := need(t, "curl")
	big := noise(3 << 20)
	target := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			got, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, bytes.Equal(got, big))
			return
		}
		_, _ = w.Write(big)
	})
	var d dials
	_, addr := startServer(t, Config{Dial: d.dial, Users: map[string]string{"ann": "pw"}})
	for _, how := range [][]string{
		{"-x", "socks5h://ann:pw@" + addr},
		{"-x", "http://ann:pw@" + addr},
		{"-x", "http://ann:pw@" + addr, "--proxytunnel"},
	} {
		run := func(args ...string) []byte {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, curl, append(append([]string{"-sS", "--fail", "--noproxy", "", "http://devbox:" + portOf(target) + "/f"}, how...), args...)...)
			cmd.Stdin = bytes.NewReader(big)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("curl %v: %v\n%s", how, err, stderr.String())
			}
			return out
		}
		if got := run(); !bytes.Equal(got, big) {
			t.Errorf("%v: %d of %d bytes", how, len(got), len(big))
		}
		if got := run("-T", "-"); string(got) != "true" {
			t.Errorf("%v: upload: %q", how, got)
		}
	}
	for _, r := range d.all() {
		if r.Target != "devbox:"+portOf(target) || r.User != "ann" {
			t.Errorf("dialled %+v", r)
		}
	}
}

// TestCloseEndsAll: connections in every state are reset, and Close returns.
func TestCloseEndsAll(t *testing.T) {
	target := tcpServer(t, func(c net.Conn) { _, _ = c.Write([]byte("hi")); _, _ = io.Copy(io.Discard, c) })
	block := make(chan struct{})
	s := New(Config{Dial: func(ctx context.Context, r Request) (net.Conn, error) {
		if r.Target == "slow:80" {
			close(block)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var d dials
		return d.dial(ctx, r)
	}})
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	addr := l.Addr().String()
	var all []net.Conn
	for _, opening := range []string{
		"", "\x05", "GET", "\x05\x01\x00" + socksRequest("devbox", atoi(portOf(target))),
		"CONNECT devbox:" + portOf(target) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://slow/ HTTP/1.1\r\nHost: slow\r\nContent-Length: 5\r\n\r\n",
	} {
		c := connect(t, addr)
		send(t, c, opening)
		all = append(all, c)
	}
	expect(t, all[3], "\x05\x00"+socksOK+"hi")
	expect(t, all[4], "HTTP/1.1 200 Connection established\r\n\r\nhi")
	<-block
	// Closing only the listener keeps what lives.
	l.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	send(t, all[3], "still here")
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Close did not return")
	}
	for i, c := range all {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d saw %v, want a reset", i, err)
		}
	}
	if err := s.Serve(listen(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
	if s.Live() != 0 {
		t.Errorf("%d live", s.Live())
	}
}
