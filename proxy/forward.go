package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"linkproxy/internal/pipe"
)

// ForwardConfig of a fixed local port.
type ForwardConfig struct {
	// Dial opens the target. Required. It is asked with Early set: it answers at once, or waits for a route.
	Dial DialFunc
	// Peer and Target say where connections go; Target is host:port as the peer sees it.
	Peer, Target string
	// Hold is how long a stream may live without any route; 0 leaves it to the dialer.
	Hold time.Duration
	// RefuseHTTP resets connections whose first bytes look like an HTTP request: a raw port cannot tell a web page that
	// attacks it from an app. For targets that speak no HTTP.
	RefuseHTTP bool
	// Logger gets refusals and failures. nil: none.
	Logger *slog.Logger
}

// Forward serves one fixed target on any number of listeners.
type Forward struct {
	cfg   ForwardConfig
	log   *slog.Logger
	conns *conns
	once  sync.Once // tells of refused HTTP
}

// NewForward makes a Forward; Serve starts it.
func NewForward(cfg ForwardConfig) *Forward {
	return &Forward{cfg: cfg, log: orDiscard(cfg.Logger), conns: newConns()}
}

// Serve accepts on l until l or the Forward is closed, then returns nil; connections that live go on until Close.
func (f *Forward) Serve(l net.Listener) error { return f.conns.serve(l, f.log, f.serveConn) }

// Live is how many app connections are open.
func (f *Forward) Live() int { return f.conns.count() }

// Close closes all listeners given to Serve, resets all connections, and returns when all goroutines are gone.
func (f *Forward) Close() error {
	f.conns.close()
	return nil
}

// serveConn dials at once, so that protocols in which the server speaks first lose no time.
func (f *Forward) serveConn(app net.Conn) {
	req := Request{Target: f.cfg.Target, Via: "forward", Early: true, Peer: f.cfg.Peer, Hold: f.cfg.Hold}
	peer, err := f.conns.dial(context.Background(), f.cfg.Dial, app, false, req)
	if err != nil {
		if !isAppGone(err) {
			f.log.Info("target not reached", "peer", req.Peer, "target", req.Target, "via", req.Via,
				"app", app.RemoteAddr().String(), "reason", Reason(err), "error", err)
		}
		pipe.Reset(app) // all that a raw port can say: a clean end would be an empty answer
		f.conns.remove(app)
		return
	}
	var head func() ([]byte, error)
	if f.cfg.RefuseHTTP {
		head = func() ([]byte, error) { return f.firstBytes(app) }
	}
	go carry(f.conns, f.log, app, peer, head, f.cfg.Target)
}

// errWebRequest is why a connection was reset that spoke HTTP to a port that must not.
var errWebRequest = errors.New("proxy: the app's first bytes are an HTTP request, which this port refuses (refuse_http)")

// httpWait is how long a first piece like "G" waits for the rest of "GET ". A browser sends a request in one piece; an app
// that sends such a letter alone is a person's terminal, who notices no quarter of a second.
const httpWait = 250 * time.Millisecond

// firstBytes returns the app's first bytes once they are seen not to start an HTTP request.
func (f *Forward) firstBytes(app net.Conn) ([]byte, error) {
	if err := pipe.WaitReadable(app); err != nil {
		return nil, err
	}
	first := make([]byte, 0, 512)
	for {
		n, err := app.Read(first[len(first):cap(first)])
		first = first[:len(first)+n]
		verdict := looksLikeHTTP(first)
		if verdict == isHTTP {
			f.once.Do(func() {
				f.log.Warn("reset an app that speaks HTTP to a fixed port; further ones are not logged",
					"peer", f.cfg.Peer, "target", f.cfg.Target, "app", app.RemoteAddr().String(),
					"remedy", "set refuse_http = false if the target is a web server")
			})
			return nil, errWebRequest
		}
		timedOut := errors.Is(err, os.ErrDeadlineExceeded)
		if timedOut || verdict == noHTTP || err != nil {
			_ = app.SetReadDeadline(time.Time{})
		}
		switch {
		case err != nil && !timedOut:
			return first, err
		case timedOut || verdict == noHTTP:
			return first, nil
		}
		_ = app.SetReadDeadline(time.Now().Add(httpWait))
	}
}

type verdict int

const (
	noHTTP verdict = iota
	maybeHTTP
	isHTTP
)

// httpStarts is what a browser, or any HTTP client, can begin a connection with.
var httpStarts = [][]byte{
	[]byte("GET "), []byte("POST "), []byte("HEAD "), []byte("PUT "), []byte("OPTIONS "), []byte("DELETE "),
	[]byte("PATCH "), []byte("CONNECT "), []byte("TRACE "), []byte("PRI * HTTP/2"),
}

func looksLikeHTTP(first []byte) verdict {
	v := noHTTP
	for _, s := range httpStarts {
		if bytes.HasPrefix(first, s) {
			return isHTTP
		}
		if bytes.HasPrefix(s, first) {
			v = maybeHTTP
		}
	}
	return v
}

var _ io.Closer = (*Forward)(nil)
