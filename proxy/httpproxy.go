package proxy

import (
	"bufio"
	"container/list"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"linkproxy/internal/pipe"
)

const (
	// maxHeader is what one request's header may take; cookies of 16 KiB and a long URL fit.
	maxHeader = 64 << 10
	// httpIdle is how long a client may keep a connection between requests.
	httpIdle = 90 * time.Second
	// viaName is our pseudonym in Via, RFC 9110 section 7.6.3.
	viaName = "linkproxy"
)

// The guard against web pages. A page in the user's browser can make it connect to this listener: by a link, a form post,
// fetch in no-cors mode, or after DNS rebinding with any Host it likes. But whatever a page does, the browser believes to
// talk to an origin server, and so sends the request in origin-form ("GET /path"): absolute-form ("GET http://…") and
// CONNECT are sent only to what is configured as a proxy, and no page can choose the form, the method CONNECT or the first
// byte (a SOCKS greeting starts with 0x05; a page's bytes start with a method's letter, or with 0x16 over TLS). Every
// origin-form request is refused, whatever its Host; so the Host of a page decides nothing and no list of good ones is
// needed. A browser that is configured to use this proxy keeps pages apart by origin, as it does with any proxy; only
// requests for the proxy itself are refused, so that its address is no origin there either.
const guardText = `This is a linkproxy port: a SOCKS5 and HTTP proxy, not a web server.
Set it as the proxy of your program or browser instead of opening it, for example:
    curl -x socks5h://%[1]s http://devbox:8080/
    curl -x http://%[1]s http://devbox:8080/
Requests in the form that web pages send are refused on purpose.
`

// appConn is an app's connection as net/http sees it.
type appConn struct {
	net.Conn // the real one
	s        *Server
	slot     *list.Element
	first    []byte // read before the protocol was known
	close1   sync.Once
	hijacked bool // the handler has taken the connection
	broken   bool // an answer was cut short: the end must not look like one. Set by the handler, before net/http closes
	upstream *http.Transport
}

func (c *appConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite lets net/http end a refused request politely.
func (c *appConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *appConn) Close() error {
	c.close1.Do(func() {
		c.release()
		if c.broken {
			pipe.Reset(c.Conn)
		} else {
			_ = c.Conn.Close()
		}
		c.s.conns.remove(c.Conn)
	})
	return nil
}

// release lets go of what only the HTTP side needs.
func (c *appConn) release() {
	c.s.waiting.leave(c.slot)
	if c.upstream != nil {
		c.upstream.CloseIdleConnections()
	}
}

// chanListener hands connections to an http.Server.
type chanListener struct {
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

func newChanListener() *chanListener {
	return &chanListener{ch: make(chan net.Conn), done: make(chan struct{})}
}

func (l *chanListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *chanListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *chanListener) Addr() net.Addr { return &net.TCPAddr{} }

type appConnKey struct{}

func (s *Server) newHTTP() *http.Server {
	h := &http.Server{
		Handler:                      http.HandlerFunc(s.handleHTTP),
		MaxHeaderBytes:               maxHeader,
		IdleTimeout:                  httpIdle,
		ErrorLog:                     s.lib,
		DisableGeneralOptionsHandler: true,
		Protocols:                    new(http.Protocols),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, appConnKey{}, c)
		},
	}
	h.Protocols.SetHTTP1(true) // the HTTP/2 server of Go 1.26.8 has open advisories
	if s.timeout > 0 {
		h.ReadHeaderTimeout = s.timeout
	}
	return h
}

func (s *Server) serveHTTP(raw net.Conn, slot *list.Element, first []byte) {
	s.httpOnce.Do(func() { go s.runHTTP() })
	_ = raw.SetDeadline(time.Time{}) // net/http sets its own
	c := &appConn{Conn: raw, s: s, slot: slot, first: first}
	select {
	case s.httpConns.ch <- c:
	case <-s.httpConns.done:
		_ = c.Close()
	}
}

func (s *Server) runHTTP() {
	defer close(s.httpDone)
	_ = s.http.Serve(s.httpConns)
}

func (s *Server) handleHTTP(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(appConnKey{}).(*appConn)
	s.waiting.leave(c.slot)
	if problem := s.guard(c, r); problem != "" {
		s.tell("refused a web request to a proxy port", "app", c.RemoteAddr().String(), "method", r.Method,
			"host", r.Host, "origin", r.Header.Get("Origin"))
		s.answer(w, r, c, http.StatusBadRequest, nil, problem)
		return
	}
	user, ok := s.authorized(r)
	if !ok {
		h := http.Header{"Proxy-Authenticate": {`Basic realm="linkproxy", charset="UTF-8"`}}
		s.answer(w, r, c, http.StatusProxyAuthRequired, h, "This proxy needs a user name and password.\n")
		return
	}
	if r.Method == http.MethodConnect {
		s.connect(w, r, c, user)
		return
	}
	s.forwardHTTP(w, r, c, user)
}

// guard returns what to tell the client if r is no request for a proxy.
func (s *Server) guard(c *appConn, r *http.Request) string {
	own := c.LocalAddr().String()
	switch {
	case r.Method == http.MethodConnect && r.URL.Path != "":
		return "CONNECT needs host:port.\n"
	case r.Method == http.MethodConnect:
		return ""
	case r.URL.Host == "":
		return fmt.Sprintf(guardText, own)
	case s.isSelf(c, r.URL.Host):
		return fmt.Sprintf(guardText, own)
	case r.URL.Scheme != "http":
		return "This proxy forwards http:// requests and, by CONNECT, everything else; not " + r.URL.Scheme + ":// in a request line.\n"
	}
	return ""
}

func ownHosts(names []string) map[string]bool {
	own := map[string]bool{"localhost": true}
	for _, n := range names {
		own[strings.ToLower(strings.TrimSuffix(n, "."))] = true
	}
	return own
}

// isSelf reports whether authority names the listener that c came in by.
func (s *Server) isSelf(c *appConn, authority string) bool {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return false
	}
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = strings.Trim(authority, "[]"), "80"
	}
	if port != fmt.Sprint(local.Port) {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.Equal(local.IP) || (ip.IsLoopback() && local.IP.IsLoopback()) || ip.IsUnspecified()
	}
	return s.own[strings.ToLower(strings.TrimSuffix(host, "."))]
}

// authorized checks Proxy-Authorization (RFC 9110 section 11.7.2). Without configured users any name passes.
func (s *Server) authorized(r *http.Request) (user string, ok bool) {
	scheme, credentials, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", s.users == nil
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(credentials))
	user, password, found := strings.Cut(string(plain), ":")
	if err != nil || !found {
		return "", s.users == nil
	}
	return user, s.users.Valid(user, password)
}

// connect serves CONNECT (RFC 9110 section 9.3.6). The connection is taken from net/http whatever comes of it: its server
// would go on reading requests from what became a tunnel, and takes a half-close for the app's leaving.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, c *appConn, user string) {
	req := Request{Via: "http", User: user}
	target, err := splitTarget(r.Host, 0)
	if err != nil {
		s.answer(w, r, c, http.StatusBadRequest, nil, sentence(err))
		return
	}
	req.Target = target
	early, err := c.hijack(w)
	if err != nil {
		return // net/http closes it
	}
	peer, err := s.conns.dial(context.Background(), s.cfg.Dial, c.Conn, len(early) > 0, req)
	if err != nil {
		s.refusedDial(req, err)
		s.answerError(w, r, c, err)
		return
	}
	if _, err := io.WriteString(c.Conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		pipe.Reset(peer)
		pipe.Reset(c.Conn)
		s.conns.remove(c.Conn)
		return
	}
	s.carry(c.Conn, peer, early, req)
}

// dialHTTP leaves the watching to whom ctx comes from: it ends when the app leaves.
func (s *Server) dialHTTP(ctx context.Context, c *appConn, r Request) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.conns.onClose(c.Conn, cancel) {
		return nil, net.ErrClosed
	}
	defer s.conns.onClose(c.Conn, nil)
	peer, err := s.cfg.Dial(ctx, r)
	if ctx.Err() == nil {
		return peer, err
	}
	if err == nil {
		pipe.Reset(peer)
	}
	return nil, errAppLeft
}

// hijack takes the connection from net/http and returns what its reader holds.
func (c *appConn) hijack(w http.ResponseWriter) (early []byte, err error) {
	_, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	c.hijacked = true
	c.release()
	_ = c.Conn.SetDeadline(time.Time{})
	return buffered(rw.Reader), nil
}

func buffered(r *bufio.Reader) []byte {
	b, _ := r.Peek(r.Buffered())
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

// answerError tells the client why its target was not reached.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, c *appConn, err error) {
	o := OutcomeOf(err)
	h := http.Header{"Proxy-Status": {viaName + "; error=" + o.Proxy}} // RFC 9209
	s.answer(w, r, c, o.Status, h, sentence(err))
}

// sentence is err for a user, in one line.
func sentence(err error) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, err.Error())
	return text + "\n"
}

// answer writes a whole response of ours and ends the connection.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, c *appConn, status int, h http.Header, text string) {
	if r.Method != http.MethodConnect {
		for k, v := range h {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = w.Write([]byte(text))
		}
		return
	}
	if !c.hijacked {
		if _, err := c.hijack(w); err != nil {
			return
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = h.Write(&b)
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	_ = c.Conn.SetWriteDeadline(time.Now().Add(politeTime))
	if _, err := c.Conn.Write([]byte(b.String())); err != nil {
		s.log.Log(context.Background(), slog.LevelDebug, "answering a refused request", "error", err)
	}
	politeClose(c.Conn)
	s.conns.remove(c.Conn)
}
