package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// dialLimit bounds the dial to the target of a Path, which is on this machine or beside it.
const dialLimit = 10 * time.Second

// acceptPause is how long a Path waits after an accept that failed.
const acceptPause = 50 * time.Millisecond

// rateBuffer is the kernel's receive buffer while a rate is set, in bytes: a larger one would be a second queue.
const rateBuffer = 64 << 10

// Path is a route over real TCP: it listens on 127.0.0.1 and forwards each connection to a target, with the faults of
// a [Route]. Loopback sets two limits: a connect succeeds at once, so that a new connection's first byte pays the round
// trip of the handshake instead; and kernels acknowledge on both sides, so that a black hole shows as silence, not as
// retransmission. A delay is kept to about a millisecond. A connection holds at most 32 MiB each way.
type Path struct {
	target string
	addr   string

	// mu guards what follows and all about the connections. Nobody waits while holding it.
	mu       sync.Mutex
	ln       net.Listener // nil while refusing
	up, down lane
	hang     bool
	closed   bool
	pairs    []*pair
	sig      signal // for connections not yet forwarded

	wg sync.WaitGroup
}

// pair is one forwarded connection.
type pair struct {
	p        *Path
	app, far net.Conn // far is nil until the target answered
	cancel   context.CancelFunc
	over     bool
	up, down *flow
}

// NewPath starts forwarding to target, a host:port. The caller closes it.
func NewPath(target string) (*Path, error) {
	p := &Path{target: target, addr: "127.0.0.1:0"}
	if err := p.listen(p.addr); err != nil {
		return nil, err
	}
	return p, nil
}

// listen opens the listener at addr.
func (p *Path) listen(addr string) error {
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return fmt.Errorf("testenv: listening for a path to %s: %w", p.target, err)
	}
	if !p.serve(ln) {
		return ln.Close()
	}
	return nil
}

// serve starts accepting from ln; false when the path is closed or has a listener.
func (p *Path) serve(ln net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ln != nil {
		return false
	}
	p.ln, p.addr = ln, ln.Addr().String()
	p.wg.Add(1)
	go p.acceptLoop(ln)
	return true
}

func (p *Path) acceptLoop(ln net.Listener) {
	defer p.wg.Done()
	for {
		app, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.pause()
			continue
		}
		if !p.start(app) {
			closeBoth(app, nil, true)
		}
	}
}

// pause lets descriptors come back when accepting has run out of them.
func (p *Path) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait(&p.sig, time.Now().Add(acceptPause))
}

// start forwards app; false when the path takes no more connections.
func (p *Path) start(app net.Conn) bool {
	tune(app, p.rated())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ln == nil {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &pair{p: p, app: app, cancel: cancel}
	c.up, c.down = newFlow(p, c, &p.up), newFlow(p, c, &p.down)
	p.pairs = append(p.pairs, c)
	p.wg.Add(1)
	go c.forward(ctx)
	return true
}

// forward waits for what a handshake takes, dials the target and starts the flows.
func (c *pair) forward(ctx context.Context) {
	defer c.p.wg.Done()
	defer c.cancel()
	if !c.handshake() {
		return
	}
	d := net.Dialer{Timeout: dialLimit}
	far, err := d.DialContext(ctx, "tcp", c.p.target)
	if err != nil {
		c.end(true)
		return
	}
	tune(far, c.p.rated())
	if !c.flow(far) {
		closeBoth(nil, far, true)
	}
}

// flow starts moving bytes; false when the connection is over.
func (c *pair) flow(far net.Conn) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.over {
		return false
	}
	c.far = far
	c.down.last = time.Now().Add(c.p.up.delay + c.p.down.delay) // a server that speaks first: its SYN-ACK was faster
	c.p.wg.Add(4)
	go c.up.read(c.app)
	go c.up.write(far, c.down)
	go c.down.read(far)
	go c.down.write(c.app, c.up)
	return true
}

func (p *Path) rated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up.rate > 0
}

// tune keeps the kernel from queueing what the rate is to queue.
func tune(c net.Conn, rated bool) {
	if t, ok := c.(*net.TCPConn); ok && rated {
		_ = t.SetReadBuffer(rateBuffer) // a kernel that declines queues more
	}
}

// handshake waits until a SYN and its answer would have passed; false when the connection is over before that.
func (c *pair) handshake() bool {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	var sent time.Time
	for !c.over {
		now := time.Now()
		if p.hang || p.up.hole || p.down.hole {
			sent = time.Time{}
			p.wait(&p.sig, sent)
			continue
		}
		if sent.IsZero() {
			sent = now
		}
		answered := sent.Add(p.up.delay + p.down.delay)
		if !now.Before(answered) {
			return true
		}
		p.wait(&p.sig, answered)
	}
	return false
}

// end closes both sides, with a reset or after both had their FIN.
func (c *pair) end(reset bool) {
	c.p.mu.Lock()
	app, far := c.endLocked()
	c.p.mu.Unlock()
	closeBoth(app, far, reset)
}

// endLocked marks the pair as over and returns what is left to close.
func (c *pair) endLocked() (app, far net.Conn) {
	if c.over {
		return nil, nil
	}
	c.over = true
	c.p.pairs = slices.DeleteFunc(c.p.pairs, func(o *pair) bool { return o == c })
	c.up.sig.broadcast()
	c.down.sig.broadcast()
	c.p.sig.broadcast()
	c.cancel()
	return c.app, c.far
}

func closeBoth(app, far net.Conn, reset bool) {
	for _, c := range []net.Conn{app, far} {
		if c == nil {
			continue
		}
		if reset {
			abort(c)
		}
		c.Close()
	}
}

// abort makes the next Close send RST.
func abort(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0) // a socket the kernel has already given up needs no RST
	}
}

// Addr is where apps dial: 127.0.0.1 and a port that stays the same.
func (p *Path) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// SetDelay makes each direction take d; the round trip is 2 d.
func (p *Path) SetDelay(d time.Duration) {
	p.change(func(time.Time) { p.up.delay, p.down.delay = d, d })
}

// SetRate lets each direction carry so many bytes a second, shared by its connections, with a queue of 100 ms;
// 0 = no limit. What the kernels at both ends buffer comes on top.
func (p *Path) SetRate(bytesPerSecond int64) {
	p.change(func(time.Time) {
		for _, l := range []*lane{&p.up, &p.down} {
			l.setRate(bytesPerSecond)
		}
	})
}

// BlackHole makes the directions named silent: nothing is delivered, nothing closed, writes succeed until the kernels'
// buffers are full. New connections are accepted and wait. A direction not named is healed.
func (p *Path) BlackHole(up, down bool) {
	p.change(func(now time.Time) {
		p.setHole(now, &p.up, up)
		p.setHole(now, &p.down, down)
	})
}

func (p *Path) setHole(now time.Time, l *lane, hole bool) {
	was := l.hole
	l.hole = hole
	switch {
	case hole && !was:
		p.each(l, func(f *flow) { f.swallow(now) })
	case !hole && was:
		p.each(l, func(f *flow) { f.heal(now) })
	}
}

// LoseLarge is [Route.LoseLarge]; a write is taken to be what one read finds.
func (p *Path) LoseLarge(up, down int) {
	p.change(func(now time.Time) {
		p.up.large, p.down.large = up, down
		p.each(&p.up, func(f *flow) { f.heal(now) })
		p.each(&p.down, func(f *flow) { f.heal(now) })
	})
}

// Heal ends BlackHole and LoseLarge. What they held arrives one delay from now, in order.
func (p *Path) Heal() {
	p.BlackHole(false, false)
	p.LoseLarge(0, 0)
}

// CutAfter resets the connection that carries the n-th byte read from now on in that direction, at both ends, behind
// that byte; n ≤ 0 disarms. A receiver that does not read may lose some of the n, as with any reset.
func (p *Path) CutAfter(up bool, n int64) {
	p.change(func(time.Time) {
		c := countdown{armed: n > 0, left: n}
		if up {
			p.up.cut = c
		} else {
			p.down.cut = c
		}
	})
}

// Reset resets all connections at once, at both ends.
func (p *Path) Reset() {
	p.mu.Lock()
	var conns []net.Conn
	for _, c := range slices.Clone(p.pairs) {
		app, far := c.endLocked()
		conns = append(conns, app, far)
	}
	p.up.free, p.down.free = time.Time{}, time.Time{}
	p.mu.Unlock()
	for i := 0; i < len(conns); i += 2 {
		closeBoth(conns[i], conns[i+1], true)
	}
}

// Fin ends all connections as a machine in the way does that closes its sockets: both ends get a FIN behind the bytes
// that are on their way, and what is sent from now on is lost.
func (p *Path) Fin() {
	p.change(func(now time.Time) {
		for _, c := range p.pairs {
			for _, f := range []*flow{c.up, c.down} {
				f.mute = true
				f.send(now, &f.fin)
			}
		}
	})
}

// Refuse closes the listener, so that dials get ECONNREFUSED, or opens it again at the same address, which fails if
// somebody took the port meanwhile.
func (p *Path) Refuse(on bool) error {
	p.mu.Lock()
	ln, addr := p.ln, p.addr
	if on {
		p.ln = nil
	}
	p.mu.Unlock()
	switch {
	case on && ln != nil:
		return ln.Close()
	case !on && ln == nil:
		return p.listen(addr)
	}
	return nil
}

// Hang makes new connections be accepted and then left alone; those that still wait go on when it is switched off.
func (p *Path) Hang(on bool) { p.change(func(time.Time) { p.hang = on }) }

// Live is the number of connections that live.
func (p *Path) Live() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Bytes counts what was delivered to the target (up) and to apps (down).
func (p *Path) Bytes() (up, down int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up.bytes, p.down.bytes
}

// Close resets all connections and returns when everything the Path started is gone.
func (p *Path) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.Refuse(true)
	p.Reset()
	p.wg.Wait()
	return err
}

// change applies f and wakes all who may be concerned.
func (p *Path) change(f func(now time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(time.Now())
	for _, c := range p.pairs {
		c.up.sig.broadcast()
		c.down.sig.broadcast()
	}
	p.sig.broadcast()
}

// each calls f for the flow that l carries of every connection.
func (p *Path) each(l *lane, f func(*flow)) {
	for _, c := range p.pairs {
		if l == &p.up {
			f(c.up)
		} else {
			f(c.down)
		}
	}
}

// wait gives up mu until s is broadcast or until has come (zero = never).
func (p *Path) wait(s *signal, until time.Time) { waitFor(&p.mu, s, nil, until) }
