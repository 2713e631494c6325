package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"linkproxy/internal/pipe"
)

const (
	// upstreamIdle is how long a connection to a target waits for the same client's next request.
	upstreamIdle = 30 * time.Second
	// upstreamIdleMax is per client connection: a browser spreads over several of its own.
	upstreamIdleMax = 4
	// continueWait is how long a request body waits for the target's 100, RFC 9110 section 10.1.1.
	continueWait = time.Second
	// upgradeBuf takes a response header read by chunks.
	upgradeBuf = 4 << 10
)

// forwardHTTP forwards an absolute-form request (RFC 9112 section 3.2.2). While a request's body is unread, that its client
// has left is noticed by its reader.
func (s *Server) forwardHTTP(w http.ResponseWriter, r *http.Request, c *appConn, user string) {
	target, err := splitTarget(r.URL.Host, 80)
	if err != nil {
		s.answer(w, r, c, http.StatusBadRequest, nil, sentence(err))
		return
	}
	r.URL.User = nil
	req := Request{Target: target, Via: "http", User: user}
	if r.Method == http.MethodGet && r.ContentLength == 0 && upgradeOf(r.Header) != "" {
		s.upgradeHTTP(w, r, c, req)
		return
	}
	defer func() {
		// An answer that breaks off panics with http.ErrAbortHandler: net/http then closes the connection, and what has
		// no length would look complete.
		if p := recover(); p != nil {
			c.broken = true
			panic(p)
		}
	}()
	// A fast target answers while the transport is about to read that the body is over; net/http would close it meanwhile,
	// the transport would take that for a failure and cut the answer.
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1 knows it
	ctx, cancel := whileThere(r.Context(), c.Conn)
	defer cancel()
	if !s.conns.onClose(c.Conn, cancel) {
		panic(http.ErrAbortHandler)
	}
	defer s.conns.onClose(c.Conn, nil)
	s.reverse(c, req).ServeHTTP(w, r.WithContext(ctx))
}

// whileThere is a request's context, except that a client that only half-closes behind its request, and waits for the answer,
// does not end it: one that has closed or is gone does, as soon as the system tells (a reset; a killed client's comes with the
// keep-alive). stop may be called more than once and must be called; it returns when nothing of it runs any more.
func whileThere(request context.Context, app net.Conn) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(request))
	done := make(chan struct{})
	unwatch := context.AfterFunc(request, func() {
		defer close(done)
		pipe.WaitGone(app)
		cancel()
	})
	return ctx, sync.OnceFunc(func() {
		if !unwatch() {
			_ = app.SetReadDeadline(time.Unix(1, 0))
			<-done
			_ = app.SetReadDeadline(time.Time{})
		}
		cancel()
	})
}

func (s *Server) reverse(c *appConn, req Request) *httputil.ReverseProxy {
	if c.upstream == nil {
		c.upstream = s.newUpstream(c)
	}
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      dialUser{c.upstream, req},
		FlushInterval:  -1,
		ErrorLog:       s.lib,
		ModifyResponse: func(res *http.Response) error { addVia(res.Header, res.ProtoMajor, res.ProtoMinor); return nil },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			s.failedForward(w, r, c, req, err)
		},
	}
}

// failedForward tells why there is no answer. What a dialer says is for users already; what net/http says is not.
func (s *Server) failedForward(w http.ResponseWriter, r *http.Request, c *appConn, req Request, err error) {
	s.refusedDial(req, err)
	var known interface{ Reason() string }
	if !errors.As(err, &known) {
		err = fmt.Errorf("proxy: forwarding the request to %s: %w", req.Target, err)
	}
	s.answerError(w, r, c, err)
}

// rewrite undoes what httputil does for a server's front end and a forward proxy must not do.
func rewrite(p *httputil.ProxyRequest) {
	for _, k := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := p.In.Header[k]; ok {
			p.Out.Header[k] = v
		}
	}
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Trailer = p.In.Trailer // the same map: filled when the body has been read
	p.Out.Host = p.In.Host
	p.Out.Header.Del("Connection")
	p.Out.Header.Del("Upgrade") // not one that is forwarded: see upgradeHTTP
	addVia(p.Out.Header, p.In.ProtoMajor, p.In.ProtoMinor)
}

func addVia(h http.Header, major, minor int) {
	entry := string(rune('0'+major)) + "." + string(rune('0'+minor)) + " " + viaName
	if old := h.Values("Via"); len(old) > 0 {
		entry = strings.Join(old, ", ") + ", " + entry
	}
	h.Set("Via", entry)
}

type userKey struct{}

// dialUser tells the dial behind a shared transport whom it is for.
type dialUser struct {
	t   *http.Transport
	req Request
}

func (d dialUser) RoundTrip(r *http.Request) (*http.Response, error) {
	return d.t.RoundTrip(r.WithContext(context.WithValue(r.Context(), userKey{}, d.req)))
}

// newUpstream keeps connections per client: two clients never share one, so what a target ties to a connection stays with
// the client it was for.
func (s *Server) newUpstream(c *appConn) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			req, _ := ctx.Value(userKey{}).(Request)
			target, err := splitTarget(addr, 80)
			if err != nil {
				return nil, err
			}
			req.Target, req.Via = target, "http"
			peer, err := s.cfg.Dial(ctx, req)
			if err == nil && ctx.Err() != nil {
				pipe.Reset(peer)
				return nil, errAppLeft
			}
			return peer, err
		},
		DisableCompression:     true,
		MaxIdleConns:           upstreamIdleMax,
		MaxIdleConnsPerHost:    upstreamIdleMax,
		IdleConnTimeout:        upstreamIdle,
		ExpectContinueTimeout:  continueWait,
		MaxResponseHeaderBytes: maxHeader * 4,
	}
}

func upgradeOf(h http.Header) string {
	for _, v := range h.Values("Connection") {
		for _, t := range strings.Split(v, ",") {
			if strings.EqualFold(textproto.TrimString(t), "upgrade") {
				return h.Get("Upgrade")
			}
		}
	}
	return ""
}

// hopByHop are the header fields that end here, besides those named by Connection (RFC 9110 section 7.6.1).
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

func removeHopByHop(h http.Header) {
	for _, v := range h.Values("Connection") {
		for _, t := range strings.Split(v, ",") {
			h.Del(textproto.TrimString(t))
		}
	}
	for _, k := range hopByHop {
		h.Del(k)
	}
}

// upgradeHTTP forwards a request to change the protocol (RFC 9110 section 7.8), a WebSocket's opening as a rule. After
// the 101 the pair is like any other: internal/pipe carries it, and idle it costs as little.
func (s *Server) upgradeHTTP(w http.ResponseWriter, r *http.Request, c *appConn, req Request) {
	ctx, watched := whileThere(r.Context(), c.Conn)
	defer watched()
	peer, err := s.dialHTTP(ctx, c, req)
	if err != nil {
		s.refusedDial(req, err)
		s.answerError(w, r, c, err)
		return
	}
	stop := context.AfterFunc(ctx, func() { pipe.Reset(peer) })
	if !s.conns.onClose(c.Conn, func() { pipe.Reset(peer) }) {
		pipe.Reset(peer)
	}
	head := &headLimit{r: peer, left: maxAnswerHead}
	br := bufio.NewReaderSize(head, upgradeBuf)
	res, err := askUpgrade(r, peer, br)
	head.left = math.MaxInt
	if !stop() && err == nil {
		err = errAppLeft
	}
	watched() // from here on who carries the bytes watches
	switch {
	case err != nil:
		pipe.Reset(peer)
		s.failedForward(w, r, c, req, err)
	case res.StatusCode == http.StatusSwitchingProtocols:
		s.switchProtocols(w, c, peer, br, res, req)
		return // closing the server resets peer as before
	default:
		defer peer.Close()
		defer res.Body.Close()
		relayResponse(w, c, res)
	}
	s.conns.onClose(c.Conn, nil)
}

// maxAnswerHead bounds the header of an answer, interim ones included, as net/http's transport does: a target must not be
// able to fill this process.
const maxAnswerHead = 256 << 10

var errAnswerHead = errors.New("proxy: the target's answer has a header of more than 256 KiB")

// headLimit reads at most left bytes of r.
type headLimit struct {
	r    io.Reader
	left int
}

func (h *headLimit) Read(p []byte) (int, error) {
	if h.left <= 0 {
		return 0, errAnswerHead
	}
	n, err := h.r.Read(p[:min(len(p), h.left)])
	h.left -= n
	return n, err
}

// askUpgrade sends r and reads the response header, skipping interim ones.
func askUpgrade(r *http.Request, peer io.Writer, br *bufio.Reader) (*http.Response, error) {
	out := r.Clone(r.Context())
	protocol := upgradeOf(r.Header)
	removeHopByHop(out.Header)
	out.Header.Set("Connection", "Upgrade")
	out.Header.Set("Upgrade", protocol)
	if _, ok := r.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // none, instead of Go's own
	}
	addVia(out.Header, r.ProtoMajor, r.ProtoMinor)
	out.Body = nil
	if err := out.Write(peer); err != nil {
		return nil, err
	}
	for {
		res, err := http.ReadResponse(br, out)
		if err != nil {
			return nil, err
		}
		if res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			return res, nil
		}
	}
}

func (s *Server) switchProtocols(w http.ResponseWriter, c *appConn, peer net.Conn, br *bufio.Reader, res *http.Response, req Request) {
	protocol := res.Header.Get("Upgrade")
	removeHopByHop(res.Header)
	res.Header.Set("Connection", "Upgrade")
	res.Header.Set("Upgrade", protocol)
	addVia(res.Header, res.ProtoMajor, res.ProtoMinor)
	var head strings.Builder
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = res.Header.Write(&head)
	head.WriteString("\r\n")
	head.Write(buffered(br)) // what the target said behind its header
	early, err := c.hijack(w)
	if err == nil {
		_, err = io.WriteString(c.Conn, head.String())
	}
	if err != nil {
		pipe.Reset(peer)
		pipe.Reset(c.Conn)
		s.conns.remove(c.Conn)
		return
	}
	s.carry(c.Conn, peer, early, req)
}

// relayResponse passes on an answer that refuses the upgrade.
func relayResponse(w http.ResponseWriter, c *appConn, res *http.Response) {
	removeHopByHop(res.Header)
	addVia(res.Header, res.ProtoMajor, res.ProtoMinor)
	for k, v := range res.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(flusher{w, http.NewResponseController(w)}, res.Body); err != nil {
		c.broken = true
		panic(http.ErrAbortHandler)
	}
}

type flusher struct {
	io.Writer
	rc *http.ResponseController
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if ferr := f.rc.Flush(); err == nil && ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
		err = ferr
	}
	return n, err
}
