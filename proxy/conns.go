package proxy

import (
	"container/list"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"linkproxy/internal/pipe"
)

// conns are the live connections of a server or forward, and the goroutines that serve them.
type conns struct {
	mu     sync.Mutex
	live   map[net.Conn]func() // what else to do on closing; may be nil
	lis    map[net.Listener]struct{}
	closed bool
	quit   chan struct{}  // closed with closed
	wg     sync.WaitGroup // Serve loops and live connections
}

func newConns() *conns {
	return &conns{live: make(map[net.Conn]func()), lis: make(map[net.Listener]struct{}), quit: make(chan struct{})}
}

// add takes c in; false if all is closed. Each added connection must be removed once.
func (c *conns) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.live[conn] = nil
	c.wg.Add(1)
	return true
}

func (c *conns) remove(conn net.Conn) {
	c.mu.Lock()
	delete(c.live, conn)
	c.mu.Unlock()
	c.wg.Done()
}

// onClose sets what closing does besides closing conn; false if that has happened already. Once conn is removed it does
// nothing.
func (c *conns) onClose(conn net.Conn, f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if _, ok := c.live[conn]; ok {
		c.live[conn] = f
	}
	return true
}

// count is how many connections live.
func (c *conns) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

func (c *conns) enter(l net.Listener) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.lis[l] = struct{}{}
	c.wg.Add(1)
	return true
}

func (c *conns) exit(l net.Listener) {
	c.mu.Lock()
	delete(c.lis, l)
	c.mu.Unlock()
	c.wg.Done()
}

// close ends all: listeners are closed, connections reset (cut short, they must not look complete), goroutines awaited.
func (c *conns) close() {
	c.mu.Lock()
	if !c.closed {
		close(c.quit)
	}
	c.closed = true
	live, lis := c.live, c.lis
	fs := make([]func(), 0, len(live))
	all := make([]net.Conn, 0, len(live))
	for conn, f := range live {
		all = append(all, conn)
		if f != nil {
			fs = append(fs, f)
		}
	}
	ls := make([]net.Listener, 0, len(lis))
	for l := range lis {
		ls = append(ls, l)
	}
	c.mu.Unlock()
	for _, l := range ls {
		_ = l.Close()
	}
	for _, f := range fs {
		f()
	}
	for _, conn := range all {
		pipe.Reset(conn)
	}
	c.wg.Wait()
}

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// serve accepts until l is closed, and gives each connection its goroutine. It returns nil when l was closed; live
// connections go on. Running out of files or memory is waited out.
func (c *conns) serve(l net.Listener, log *slog.Logger, handle func(net.Conn)) error {
	if !c.enter(l) {
		_ = l.Close()
		return net.ErrClosed
	}
	defer c.exit(l)
	var pause time.Duration
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
		case errors.Is(err, net.ErrClosed):
			return nil
		case !isPassing(err):
			return err
		default:
			pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
			log.Warn("accepting apps: trying again; is the limit of open files too low (ulimit -n)?",
				"listener", l.Addr().String(), "error", err, "in", pause)
			if !c.pause(pause) {
				return nil
			}
			continue
		}
		if !c.add(conn) {
			pipe.Reset(conn)
			return nil
		}
		go handle(conn)
	}
}

// pause waits; false if all was closed meanwhile.
func (c *conns) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.quit:
		return false
	case <-t.C:
		return true
	}
}

// isPassing reports whether accepting may work again later.
func isPassing(err error) bool {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return true
	}
	return isErrno(err, errnoPassing)
}

// handshakes holds the connections that have not said what they want, oldest first.
type handshakes struct {
	mu    sync.Mutex
	order list.List // of net.Conn
	max   int       // 0: unbounded
}

// enter takes conn in; the oldest one is closed if there are too many.
func (h *handshakes) enter(conn net.Conn) *list.Element {
	h.mu.Lock()
	e := h.order.PushBack(conn)
	var oldest net.Conn
	if h.max > 0 && h.order.Len() > h.max {
		oldest = h.order.Remove(h.order.Front()).(net.Conn)
	}
	h.mu.Unlock()
	if oldest != nil {
		pipe.Reset(oldest)
	}
	return e
}

// leave may be called more than once.
func (h *handshakes) leave(e *list.Element) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order.Remove(e) // does nothing if e has been removed
}
