// Package proxy is the app's side: local endpoints (SOCKS5, HTTP proxy, fixed ports, stdio) that unmodified apps talk to.
// It parses what the app wants, asks a DialFunc for a connection, answers in the app's own protocol, and hands the pair to
// internal/pipe. It knows nothing of peers and routes.
package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"linkproxy/internal/pipe"
)

// Request is what an app asked for.
type Request struct {
	// Target is host:port; the host is the name as the app sent it, not resolved, or an IP address.
	Target string
	// Via is "socks", "http", "forward" or "stdio".
	Via string
	// User is the user name given by SOCKS or HTTP, "" if none.
	User string
	// Early asks for a connection at once: the first bytes may ride with the opening, and a refusal comes as its failure.
	Early bool
	// Peer is the peer's name, set for forwards and stdio: Target is then as the peer sees it.
	Peer string
	// Hold is how long the stream may live without any route; 0 leaves it to the dialer.
	Hold time.Duration
}

// DialFunc opens what r asks for. ctx ends when the app leaves. An error that offers Reason() string (see Outcome) decides
// what the app is told; its text is shown to the user. The connection must know CloseWrite() error, and its LocalAddr and
// RemoteAddr may be of any kind.
type DialFunc func(ctx context.Context, r Request) (net.Conn, error)

const (
	// DefaultHandshakeTimeout is for a local app to say what it wants: it needs a millisecond, a person by hand some seconds.
	DefaultHandshakeTimeout = 10 * time.Second
	// DefaultMaxHandshakes bounds apps that have connected and not said what they want. A browser opens some tens at once.
	DefaultMaxHandshakes = 256
)

// Config of a Server. Zero values mean the documented default.
type Config struct {
	// Dial opens targets. Required.
	Dial DialFunc
	// Users maps user names to passwords, for SOCKS5 (RFC 1929) and HTTP (Basic, RFC 7617). Empty: nobody has to
	// authenticate, and a user name that is given is passed on as Request.User.
	Users map[string]string
	// HandshakeTimeout ends connections that have not said what they want. 0: DefaultHandshakeTimeout; negative: never.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds connections that have not said what they want; the oldest one yields to a new one.
	// 0: DefaultMaxHandshakes; negative: unbounded.
	MaxHandshakes int
	// OwnHosts are names of this listener besides its address and localhost: an HTTP request for one of them, at the
	// listener's port, is a request for the proxy itself, and refused with a helpful text.
	OwnHosts []string
	// Logger gets refusals and failures. nil: none.
	Logger *slog.Logger
}

func orDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// errAppLeft is why a dial was given up that nobody waits for any more.
var errAppLeft = errors.New("proxy: the app left before its target was reached")

// dial asks for r's connection while watching that app is still there. app's deadlines must be clear. talked: bytes behind
// the request have been read already.
func (c *conns) dial(ctx context.Context, dial DialFunc, app net.Conn, talked bool, r Request) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !c.onClose(app, func() { cancel(net.ErrClosed) }) {
		return nil, net.ErrClosed
	}
	defer c.onClose(app, nil)
	stop := watchLeft(app, talked, func() { cancel(errAppLeft) })
	peer, err := dial(ctx, r)
	stop()
	if cause := context.Cause(ctx); cause != nil {
		if err == nil {
			pipe.Reset(peer)
		}
		return nil, cause
	}
	return peer, err
}

// politeClose ends a connection whose last words must arrive: closing with unread bytes would be a reset, and destroy them.
func politeClose(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok && h.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(politeTime))
		discard(c, politeBytes)
	}
	_ = c.Close()
}

const (
	// politeTime is plenty for a local app to read an error and hang up.
	politeTime = time.Second
	// politeBytes is what a browser may have in flight behind a refused request.
	politeBytes = 256 << 10
)

func discard(c net.Conn, limit int) {
	var buf [2048]byte
	for limit > 0 {
		n, err := c.Read(buf[:])
		limit -= n
		if err != nil {
			return
		}
	}
}
