package link

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"linkproxy/link/core"
	"linkproxy/link/frame"
	"linkproxy/state/identity"
)

// ClientConfig is what the client side of a link is made of.
type ClientConfig struct {
	// Process is this process, as HELLO tells it.
	Process Process
	// Peer is the host's key.
	Peer identity.Fingerprint
	// Hold is how long streams survive without any carrier. Zero: 24 h.
	Hold time.Duration
	// Pool is the process's memory for stream bytes. Nil: one of its own.
	Pool *Pool
	// Streams bounds the streams at a time. Zero: 8192.
	Streams int
	// Log may be nil.
	Log *slog.Logger
}

// Client is the side of a link that decides: it attaches carriers and says which one is used.
type Client struct {
	*Link
	process Process
	peer    identity.Fingerprint
}

// NewClient returns a link that waits for its first carrier. Streams may be opened at once; they wait with it.
func NewClient(cfg ClientConfig) *Client {
	var id ID
	var seed [16]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	_, _ = rand.Read(seed[:])
	pool := cfg.Pool
	if pool == nil {
		pool = NewPool(0)
	}
	l := newLink(id, core.Config{Client: true, Account: pool.account(cfg.Streams), Hold: cfg.Hold}, cfg.Log,
		[2]uint64{binary.NativeEndian.Uint64(seed[:8]), binary.NativeEndian.Uint64(seed[8:])})
	return &Client{Link: l, process: cfg.Process, peer: cfg.Peer}
}

// AttachOptions say how a carrier joins.
type AttachOptions struct {
	// Role is frame.Active while the link has no carrier, frame.Standby otherwise.
	Standby bool
	// Bulk makes it a carrier for the bytes of bulk streams, beside the one in use and over the same route, so that those of
	// conversations wait behind them neither here nor in any socket. The link leaves it with the next switch.
	Bulk bool
	// Preference orders carriers for failover; lower is better.
	Preference int
	// Name is shown in statuses: the route.
	Name string
}

// Attach makes t a carrier of the link and waits for the host's word. It owns t: on failure t is closed. An *AttachError
// says that the right host would not attach it. ErrUnknown: the host has lost the session, and the link has ended.
func (c *Client) Attach(ctx context.Context, t *Transport, o AttachOptions) (gen uint64, err error) {
	role := frame.Active
	switch {
	case o.Bulk:
		role = frame.Bulk
	case o.Standby:
		role = frame.Standby
	}
	c.mu.Lock()
	now := c.now()
	if c.stopping || c.core.Err() != nil {
		err := c.core.Err()
		c.mu.Unlock()
		t.Close()
		return 0, fmt.Errorf("link: attaching to an ended link: %w", err)
	}
	asked, before := now, c.lastByte
	k, f := c.core.Begin(now, role, o.Preference, t.handshake)
	f.Link = c.id
	car := newCarrier(c.Link, k, t, o.Name, frame.Append(hello(c.process), &f))
	confirmed := c.core.Status().Confirmed
	c.wg.Add(2)
	c.unlock(now)
	car.start(nil)
	select {
	case a := <-car.answer:
		if a.err == nil {
			return k.Gen(), nil
		}
		return 0, c.judge(a.err, asked, before, confirmed)
	case <-ctx.Done():
		car.fail(context.Cause(ctx))
		return 0, context.Cause(ctx)
	}
}

// judge decides what a refused attach means for the link. "Unknown" ends it if it answers a NEW that no host has yet
// confirmed, or comes from the very process that confirmed the link (or its successor) while no carrier lives; otherwise
// another process with the peer's key may have answered, and it is the route's failure only.
func (c *Client) judge(err error, asked, before core.Time, confirmed bool) error {
	var no *AttachError
	if !errors.As(err, &no) || no.Code != CodeUnknown && no.Code != CodeSuperseded {
		return err
	}
	if no.Code == CodeSuperseded {
		c.end(ErrSuperseded, CodeSuperseded)
		return ErrSuperseded
	}
	c.mu.Lock()
	same := no.Instance == c.hostInst && no.Boot >= c.hostBoot
	quiet := c.lastByte <= asked || c.lastByte == before
	c.mu.Unlock()
	if !confirmed || same && quiet {
		c.end(ErrUnknown, CodeGivenUp)
		return ErrUnknown
	}
	return err
}

// GiveUp ends the link because every route that answered said it does not know it.
func (c *Client) GiveUp() { c.end(ErrUnknown, CodeGivenUp) }

// Revoke ends the link because its peer is no longer trusted or configured.
func (c *Client) Revoke(err error) { c.end(err, CodeGivenUp) }

// Switch proves that large segments pass over the carrier of a generation and moves the link there, make-before-break. It
// returns when the link has moved, or with an error and the link untouched.
func (c *Client) Switch(ctx context.Context, gen uint64) error {
	if err := c.prove(ctx, gen); err != nil {
		return err
	}
	return c.switchTo(gen, true, "planned")
}

// Leave moves the link to the carrier of a generation at once, because the one in use is not to be trusted: nothing is proved, and
// what the old one has not delivered is sent again.
func (c *Client) Leave(gen uint64, why string) error { return c.switchTo(gen, false, why) }

func (c *Client) switchTo(gen uint64, planned bool, why string) error {
	c.mu.Lock()
	now := c.now()
	k := c.carrierOf(gen)
	ok := k != nil && c.core.SwitchTo(now, k, planned, why)
	c.unlock(now)
	if !ok {
		return fmt.Errorf("link: switching to carrier %d: it has ended", gen)
	}
	return nil
}

// prove waits until a padded PING was answered on the carrier.
func (c *Client) prove(ctx context.Context, gen uint64) error {
	c.mu.Lock()
	now := c.now()
	k := c.carrierOf(gen)
	if k != nil && !k.Proven() {
		c.core.Prove(k)
	}
	c.unlock(now)
	if k == nil {
		return fmt.Errorf("link: switching to carrier %d: it has ended", gen)
	}
	car := k.Ctx.(*carrier)
	select {
	case <-car.proven:
		return nil
	case <-car.done:
		return fmt.Errorf("link: switching to carrier %d: it has ended", gen)
	case <-ctx.Done():
		return fmt.Errorf("link: switching to carrier %d: large segments do not pass: %w", gen, context.Cause(ctx))
	}
}

// Keep marks the carrier of a generation as a standby, or as one that may be closed once the link has left it.
func (c *Client) Keep(gen uint64, standby bool) {
	c.mu.Lock()
	now := c.now()
	if k := c.carrierOf(gen); k != nil {
		k.SetStandby(standby)
	}
	c.unlock(now)
}

// OpenOptions say how a stream is carried.
type OpenOptions struct {
	// Bulk tells that the stream is no conversation: it always yields to others.
	Bulk bool
	// Hold is how long it survives without a carrier. Zero: the link's.
	Hold time.Duration
	// Early tells that the app most likely has bytes already. The OPEN goes with them: when ReadFrom finds none, or a moment
	// later.
	Early bool
}

// Open starts a stream to a target as the peer sees it, host:port. It does not wait: bytes written ride along with the
// OPEN, and WaitOpened tells whether the target answered.
func (c *Client) Open(target string, o OpenOptions) (*Stream, error) {
	if len(target) > frame.MaxTarget {
		return nil, fmt.Errorf("link: opening a target of %d bytes: the longest is %d", len(target), frame.MaxTarget)
	}
	var priority uint8
	if o.Bulk {
		priority = 1
	}
	c.mu.Lock()
	now := c.now()
	open := c.core.Open
	if o.Early {
		open = c.core.OpenEarly
	}
	s, ok := open(now, target, priority, o.Hold)
	if !ok {
		err := c.core.Err()
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return nil, ErrTooMany
	}
	st := newStream(c.Link, s)
	c.unlock(now)
	return st, nil
}

// CheckResult is what a check learned.
type CheckResult struct {
	Host      Process
	RoundTrip time.Duration // of the question alone, without the handshake
}

// Check asks the host behind t for a sign of life, with its identity proved, and attaches nothing. It closes t.
func Check(ctx context.Context, t *Transport, p Process) (CheckResult, error) {
	defer t.Close()
	stop := context.AfterFunc(ctx, func() { t.Close() })
	defer stop()
	start := time.Now()
	if _, err := t.tls.Write(frame.Append(hello(p), &frame.Frame{Kind: frame.Check})); err != nil {
		return CheckResult{}, fmt.Errorf("link: checking: %w", err)
	}
	buf := make([]byte, frame.Max)
	for n := 0; ; {
		m, err := t.tls.Read(buf[n:])
		n += m
		for used := 0; ; {
			var f frame.Frame
			k, perr := frame.Parse(buf[used:n], &f)
			if perr != nil {
				return CheckResult{}, fmt.Errorf("link: checking: %w", perr)
			}
			if k == 0 {
				n = copy(buf, buf[used:n])
				break
			}
			used += k
			switch f.Kind {
			case frame.CheckOK:
				return CheckResult{Process{f.Instance, f.Boot}, time.Since(start)}, nil
			case frame.Bye:
				return CheckResult{}, &AttachError{Code: Code(f.Code)}
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return CheckResult{}, fmt.Errorf("link: checking: %w", err)
		}
	}
}

// Forget tells the host behind t that the link of an id was given up while no carrier lived, so that it holds its streams
// no longer. It closes t.
func Forget(ctx context.Context, t *Transport, p Process, id ID) error {
	defer t.Close()
	stop := context.AfterFunc(ctx, func() { t.Close() })
	defer stop()
	f := frame.Frame{Kind: frame.Close, Link: id, Code: uint32(CodeGivenUp)}
	_, err := t.tls.Write(frame.Append(hello(p), &f))
	if err == nil {
		_, err = io.Copy(io.Discard, t.tls) // the host answers and ends once it has done so
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("link: forgetting link %s: %w", id, err)
	}
	return nil
}
