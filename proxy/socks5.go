package proxy

import (
	"container/list"
	"context"
	"io"
	"net"
	"time"

	socks "github.com/armon/go-socks5"

	"linkproxy/internal/pipe"
)

// serveSOCKS lets armon/go-socks5 do the handshake, with one server per connection, and takes the connection away from
// it: the success reply is the end of its job. From there on it sees two connections that are at their end, so it returns
// at once, without touching the real ones, and internal/pipe carries the bytes. Nothing of it is left while they flow.
func (s *Server) serveSOCKS(raw net.Conn, slot *list.Element, first []byte) {
	h := &socksConn{Conn: raw, s: s, slot: slot, buf: first}
	err := h.serve()
	s.waiting.leave(slot)
	if h.peer != nil && err == nil {
		s.carry(raw, h.peer, h.rest(), h.req)
		return
	}
	if h.peer != nil {
		pipe.Reset(h.peer)
	}
	if h.failed != nil {
		s.refusedDial(h.req, h.failed)
	} else if err != nil {
		s.log.Debug("SOCKS handshake failed", "app", raw.RemoteAddr().String(), "error", err)
	}
	politeClose(raw)
	s.conns.remove(raw)
}

// socksConn is the app's connection as go-socks5 sees it, and the hooks of that one connection.
type socksConn struct {
	net.Conn
	s    *Server
	slot *list.Element

	// buf holds what was read from the app and not given out. go-socks5's bufio gets one byte at a time, so it never
	// holds a byte that belongs to the target.
	buf  []byte
	room [socksRoom]byte

	req     Request
	command uint8
	failed  error // why there is no peer
	peer    net.Conn
	over    bool // the success reply is written
}

// socksRoom takes any usual handshake message in one read.
const socksRoom = 512

func (h *socksConn) serve() error {
	conf := &socks.Config{Credentials: h.s.users, Resolver: h, Rules: h, Dial: h.dial, Logger: h.s.lib}
	conf.AuthMethods = []socks.Authenticator{socks.UserPassAuthenticator{Credentials: h.s.users}}
	if h.s.users == nil {
		conf.AuthMethods = append(conf.AuthMethods, socks.NoAuthAuthenticator{})
	}
	server, err := socks.New(conf)
	if err != nil {
		return err
	}
	err = server.ServeConn(h)
	if h.over {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF // BIND and UDP ASSOCIATE: answered "command not supported"
	}
	return err
}

func (h *socksConn) rest() []byte {
	if len(h.buf) == 0 {
		return nil
	}
	return append([]byte(nil), h.buf...)
}

// Resolve leaves names alone: they are the peer's to resolve.
func (h *socksConn) Resolve(ctx context.Context, _ string) (context.Context, net.IP, error) {
	return ctx, nil, nil
}

// Allow is asked once the request is read: the app has said what it wants.
func (h *socksConn) Allow(ctx context.Context, r *socks.Request) (context.Context, bool) {
	h.s.waiting.leave(h.slot)
	_ = h.SetDeadline(time.Time{})
	h.command = r.Command
	if r.Command != socks.ConnectCommand {
		return ctx, true // go-socks5 answers 7
	}
	host := r.DestAddr.FQDN
	if host == "" && len(r.DestAddr.IP) > 0 {
		host = r.DestAddr.IP.String()
	}
	h.req = Request{Via: "socks"}
	if r.AuthContext != nil {
		h.req.User = r.AuthContext.Payload["Username"]
	}
	h.req.Target, h.failed = checkTarget(host, r.DestAddr.Port)
	return ctx, h.failed == nil
}

func (h *socksConn) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	h.peer, h.failed = h.s.conns.dial(ctx, h.s.cfg.Dial, h.Conn, len(h.buf) > 0, h.req)
	if h.failed != nil {
		return nil, h.failed
	}
	return handedOver{}, nil
}

// Read gives go-socks5 one byte.
func (h *socksConn) Read(p []byte) (int, error) {
	if h.over || len(p) == 0 {
		return 0, io.EOF
	}
	if len(h.buf) == 0 {
		n, err := h.Conn.Read(h.room[:])
		if n == 0 {
			return 0, err
		}
		h.buf = h.room[:n]
	}
	p[0] = h.buf[0]
	h.buf = h.buf[1:]
	return 1, nil
}

// Write passes messages on. A failure reply gets the code of the real reason, which go-socks5 guesses from the text.
func (h *socksConn) Write(p []byte) (int, error) {
	if h.failed != nil && len(p) > 2 && p[1] != 0 {
		q := append([]byte(nil), p...)
		q[1] = OutcomeOf(h.failed).SOCKS
		return h.Conn.Write(q)
	}
	n, err := h.Conn.Write(p)
	if h.peer != nil && err == nil {
		h.over = true
	}
	return n, err
}

// WriteTo is what io.Copy asks when go-socks5 starts to proxy: there is nothing more for it.
func (h *socksConn) WriteTo(io.Writer) (int64, error) { return 0, nil }

// CloseWrite and Close leave the connection to serveSOCKS.
func (h *socksConn) CloseWrite() error { return nil }

// Close does nothing, see CloseWrite.
func (h *socksConn) Close() error { return nil }

// handedOver is the target's connection as go-socks5 sees it: at its end, and local to 0.0.0.0:0, which the reply names.
// (go-socks5 panics on a LocalAddr that is no *net.TCPAddr.)
type handedOver struct{ net.Conn }

func (handedOver) LocalAddr() net.Addr               { return &net.TCPAddr{IP: net.IPv4zero} }
func (handedOver) Read([]byte) (int, error)          { return 0, io.EOF }
func (handedOver) Write(p []byte) (int, error)       { return len(p), nil }
func (handedOver) WriteTo(io.Writer) (int64, error)  { return 0, nil }
func (handedOver) ReadFrom(io.Reader) (int64, error) { return 0, nil }
func (handedOver) CloseWrite() error                 { return nil }
func (handedOver) Close() error                      { return nil }
