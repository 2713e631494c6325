package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"linkproxy/link/frame"
	"linkproxy/state/identity"
)

const (
	// openingBytes is the most that is read before a carrier is accepted.
	openingBytes = 4 << 10
	// perSecond is the pace of one key's attaches, which wait, and of its checks, which are refused; as many may come at
	// once. attachWait is the longest that an attach is made to wait.
	perSecond  = 10
	attachWait = time.Second
)

// ServeConn proves who is on conn and attaches it, or refuses with a reason and closes it. It returns when that is done;
// an attached carrier lives on by itself. The error is for a log.
func (h *Host) ServeConn(ctx context.Context, conn net.Conn) error {
	return h.ServeStranger(ctx, conn, func() {})
}

// ServeStranger is ServeConn for a server that bounds strangers: accepted is called once the client has proved a paired
// key and said what it wants. From then on the connection is a stranger's no more, though it may wait its turn.
func (h *Host) ServeStranger(ctx context.Context, conn net.Conn, accepted func()) error {
	came := time.Now()
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	pairing := h.cfg.Pairing != nil && h.cfg.Pairing()
	t, err := accept(ctx, conn, h.cfg.Key, pairing)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	if t.protocol == ALPNPair {
		defer stop()
		h.cfg.Pair(ctx, &PairConn{t, h.cfg.Key.Fingerprint()})
		return nil
	}
	if !h.cfg.Trusted(t.peer) {
		stop()
		t.refuse(append(hello(h.cfg.Process), bye(CodeUnpaired)...))
		return fmt.Errorf("link: %s: key %s is not paired", addr(conn), t.peer.Short())
	}
	op, err := readOpening(t)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		code := CodeProtocol
		if errors.Is(err, errVersion) {
			code = CodeVersion
		}
		t.refuse(append(hello(h.cfg.Process), bye(code)...))
		return fmt.Errorf("link: %s: %w", addr(conn), err)
	}
	accepted()
	return h.serve(t, op, came)
}

// opening is what a client says first.
type opening struct {
	hello, ask frame.Frame
	rest       []byte // what came behind it
}

var errVersion = errors.New("no common version")

func readOpening(t *Transport) (*opening, error) {
	buf := make([]byte, openingBytes)
	op := &opening{}
	n, used := 0, 0
	for have := 0; have < 2; {
		f := &op.hello
		if have == 1 {
			f = &op.ask
		}
		k, err := frame.Parse(buf[used:n], f)
		if err != nil {
			return nil, err
		}
		if k > 0 {
			used += k
			have++
			if have == 1 && f.Kind != frame.Hello {
				return nil, errOpening
			}
			if have == 1 && f.Version != frame.Version {
				return nil, fmt.Errorf("%w: the client speaks %d, this host %d", errVersion, f.Version, frame.Version)
			}
			continue
		}
		if n == len(buf) {
			return nil, fmt.Errorf("%w: more than %d bytes", errOpening, openingBytes)
		}
		m, err := t.tls.Read(buf[n:])
		if m == 0 && err != nil {
			return nil, fmt.Errorf("reading the opening: %w", err)
		}
		n += m
	}
	op.rest = buf[used:n]
	return op, nil
}

// serve answers what an opening asks for.
func (h *Host) serve(t *Transport, op *opening, came time.Time) error {
	p := Process{op.hello.Instance, op.hello.Boot}
	switch op.ask.Kind {
	case frame.Check:
		return h.serveCheck(t)
	case frame.Close:
		h.serveClose(t.peer, p, ID(op.ask.Link))
		t.refuse(hello(h.cfg.Process))
		return nil
	case frame.New, frame.Attach:
	default:
		t.refuse(append(hello(h.cfg.Process), bye(CodeProtocol)...))
		return errOpening
	}
	if wait := h.pace(t.peer, time.Now()); wait > 0 {
		h.sleep(wait)
	}
	if code := h.attach(t, op, p, came); code != CodeNone {
		no := frame.Frame{Kind: frame.AttachNo, Link: op.ask.Link, Gen: op.ask.Gen, Code: uint32(code)}
		t.refuse(frame.Append(hello(h.cfg.Process), &no))
		return fmt.Errorf("link: %s: attach refused: %s", addr(t.raw), code)
	}
	return nil
}

func (h *Host) serveCheck(t *Transport) error {
	h.mu.Lock()
	ok := h.keyOf(t.peer).check.allow(time.Now())
	h.mu.Unlock()
	answer := bye(CodeBusy)
	if ok {
		f := frame.Frame{Kind: frame.CheckOK, Instance: h.cfg.Process.Instance, Boot: h.cfg.Process.Boot}
		answer = frame.Append(nil, &f)
	}
	t.refuse(append(hello(h.cfg.Process), answer...))
	return nil
}

// serveClose ends a link that the same instance of its client has given up.
func (h *Host) serveClose(key identity.Fingerprint, p Process, id ID) {
	h.mu.Lock()
	l := h.keyOf(key).links[id]
	h.mu.Unlock()
	if l != nil && l.instance == p.Instance {
		l.end(&EndError{CodeGivenUp}, CodeGivenUp)
	}
}

func (h *Host) pace(key identity.Fingerprint, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keyOf(key).attach.delay(now)
}

// sleep waits, unless the host closes.
func (h *Host) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// pace counts events of which perSecond may come in a second. The zero pace has counted none.
type pace struct {
	level float64
	at    time.Time
}

func (p *pace) leak(now time.Time) {
	p.level = max(0, p.level-now.Sub(p.at).Seconds()*perSecond)
	p.at = now
}

// delay counts an event and says how long it has to wait: attachWait at most, however many there are.
func (p *pace) delay(now time.Time) time.Duration {
	p.leak(now)
	p.level = min(p.level+1, perSecond+perSecond*attachWait.Seconds())
	return time.Duration(max(0, p.level-perSecond) / perSecond * float64(time.Second))
}

// allow counts an event if there is room for it; those that are refused do not count.
func (p *pace) allow(now time.Time) bool {
	p.leak(now)
	if p.level+1 > perSecond {
		return false
	}
	p.level++
	return true
}
