package link

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"linkproxy/link/core"
	"linkproxy/link/frame"
)

// carrier runs one transport connection of a link: a goroutine that reads, one that writes.
type carrier struct {
	l    *Link
	k    *core.Carrier
	t    *Transport
	name string
	// local is this machine's end of the connection; invalid: it has no such address.
	local netip.Addr

	wake chan struct{} // one slot: it is the writer's turn to write
	done chan struct{} // closed by stop
	once sync.Once
	turn atomic.Int32 // whether somebody writes: see signal

	// Owned by whoever has the turn to write.
	opening  []byte  // written before anything the core says
	lent     *[]byte // the buffer that records are sealed into
	sealed   bool    // it holds records that are not all written
	finished bool    // CLOSE is written
	failed   error   // writing has failed

	answer     chan answer   // client: one slot, how the host answered
	proven     chan struct{} // client: closed once a large segment has passed both ways
	greeted    bool          // client, reader only: HELLO has come
	host       Process       // client, reader only
	provenTold bool          // reader only
	err        error         // guarded by l.mu: why the connection ended
}

// answer is the host's word on NEW or ATTACH.
type answer struct {
	err  error
	host Process
}

func newCarrier(l *Link, k *core.Carrier, t *Transport, name string, opening []byte) *carrier {
	c := &carrier{
		l: l, k: k, t: t, name: name, opening: opening,
		wake: make(chan struct{}, 1), done: make(chan struct{}), answer: make(chan answer, 1),
		proven: make(chan struct{}),
	}
	if a, err := netip.ParseAddrPort(t.LocalAddr().String()); err == nil {
		c.local = a.Addr().Unmap()
	}
	k.Ctx = c
	return c
}

// The turn to write: at most one goroutine seals and writes records at a time.
const (
	idle  int32 = iota
	busy        // somebody writes
	again       // somebody writes, and has to look once more before it stops
)

// signal sees that what the core has to say gets written: by who writes at present, else by the caller if it offers its
// own time, which spares a change of goroutines, else by the writer.
func (c *carrier) signal(own bool) {
	for {
		switch c.turn.Load() {
		case idle:
			if !c.turn.CompareAndSwap(idle, busy) {
				continue
			}
			if own && c.t.out.raw != nil {
				c.writeNow()
			} else {
				signal(c.wake)
			}
			return
		case busy:
			if c.turn.CompareAndSwap(busy, again) {
				return
			}
		default:
			return
		}
	}
}

// rest ends a turn; false: there is more to look at.
func (c *carrier) rest() bool {
	if c.turn.CompareAndSwap(busy, idle) {
		return true
	}
	c.turn.Store(busy)
	return false
}

// start runs c; the caller has counted its two goroutines in l.wg. rest is what was read behind the opening already.
func (c *carrier) start(rest []byte) {
	c.signal(false)
	go c.write()
	go c.read(rest)
}

// stop cuts the connection; its goroutines end by themselves.
func (c *carrier) stop() {
	c.once.Do(func() {
		close(c.done)
		c.t.raw.Close()
	})
}

// fail tells the core that the connection has ended.
func (c *carrier) fail(err error) {
	c.l.mu.Lock()
	now := c.l.now()
	if c.err == nil {
		c.err = err
	}
	first := c.err // the other goroutine's, whose consequence err then is
	c.l.core.Dead(now, c.k)
	c.l.unlock(now)
	c.stop()
	select {
	case c.answer <- answer{err: first}:
	default:
	}
}

// records lends the buffers that one record is put together in, gathers those that several are sealed into.
var (
	records = sync.Pool{New: func() any { return new([frame.Max]byte) }}
	gathers = sync.Pool{New: func() any { b := make([]byte, 0, 5*frame.Max); return &b }}
)

// write sends what the core has to say, whole records at a time, until the carrier ends. It waits for the connection, as
// nobody else does.
func (c *carrier) write() {
	defer c.l.wg.Done()
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		for {
			if c.failed == nil && !c.finished {
				c.flush(true)
			}
			if c.failed != nil {
				c.awaitReason()
				c.fail(c.failed)
				return
			}
			if c.finished {
				_ = c.t.closeWrite() // the reader waits for the other side's end, or the core cuts it
				return
			}
			if c.rest() {
				break
			}
		}
	}
}

// ownRounds bounds how long somebody who only came by writes for all.
const ownRounds = 4

// writeNow writes as far as that needs no waiting; the writer does the rest.
func (c *carrier) writeNow() {
	for range ownRounds {
		if !c.flush(false) {
			break
		}
		if c.rest() {
			return
		}
	}
	signal(c.wake)
}

// awaitReason lets the reader of a carrier that is not yet accepted find out why, after a write has failed: the host says
// why it refuses and then stops reading.
func (c *carrier) awaitReason() {
	c.l.mu.Lock()
	attached := c.k.Attached()
	c.l.mu.Unlock()
	if attached {
		return
	}
	timer := time.NewTimer(refuseTime)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	}
}

// flush writes until the core has nothing more to say and reports whether it came to that; buffers are held only
// meanwhile. Without wait it stops as soon as the connection takes no more, or after some rounds.
func (c *carrier) flush(wait bool) bool {
	rec := records.Get().(*[frame.Max]byte)
	defer records.Put(rec)
	if c.lent == nil {
		c.lent = gathers.Get().(*[]byte)
		c.t.out.begin(*c.lent)
	}
	for round := 0; wait || round < ownRounds; round++ {
		if !c.sealed {
			n, err := c.gather(rec)
			if err != nil {
				c.failed = err
				return false
			}
			if n == 0 {
				*c.lent = c.t.out.end()
				gathers.Put(c.lent)
				c.lent = nil
				return true
			}
			c.sealed = true
		}
		done, err := c.t.out.flush(wait)
		if err != nil {
			c.failed = err
		}
		if !done {
			return false
		}
		c.sealed = false
		c.l.mu.Lock()
		now := c.l.now()
		c.l.core.Wrote(now, c.k)
		c.finished = c.k.Finished()
		c.l.unlock(now)
		if c.finished {
			return false
		}
	}
	return false
}

// gather seals records until a write's worth is there or the core has no more.
func (c *carrier) gather(rec *[frame.Max]byte) (n int, err error) {
	limit := frame.Max
	for n < limit {
		if len(c.opening) > 0 {
			if _, err := c.t.tls.Write(c.opening); err != nil {
				return n, err
			}
			n += len(c.opening)
			c.opening = nil
		}
		c.l.mu.Lock()
		now := c.l.now()
		b := c.l.core.Pull(now, c.k, rec[:])
		limit = c.k.FlushBytes()
		c.l.unlock(now)
		if len(b) == 0 {
			return n, nil
		}
		if _, err := c.t.tls.Write(b); err != nil {
			return n, err
		}
		n += len(b)
	}
	return n, nil
}

// smallRead is the buffer of a reader that waits; largeRead the one it borrows while much comes.
const (
	smallRead = 1 << 10
	largeRead = 5 * frame.Max
)

var largeReads = sync.Pool{New: func() any { return new([largeRead]byte) }}

// read hands what comes to the core until the connection ends.
func (c *carrier) read(rest []byte) {
	defer c.l.wg.Done()
	r := &reader{small: make([]byte, smallRead)}
	defer r.release()
	if len(rest) > 0 {
		r.fill(rest)
	}
	for {
		if err := c.take(r); err != nil {
			c.fail(err)
			return
		}
		n, err := c.t.tls.Read(r.free())
		r.filled(n)
		for err == nil && c.t.out.more() && r.takesRecord() {
			n, err = c.t.tls.Read(r.free())
			r.filled(n)
		}
		if err != nil {
			_ = c.take(r)
			c.fail(err)
			return
		}
	}
}

// reader is the buffer that a carrier's bytes are parsed from: a small one while little comes, else a borrowed large one.
type reader struct {
	small []byte
	large *[largeRead]byte
	n     int // bytes in use
	last  int // bytes of the last read
	full  bool
}

func (r *reader) buf() []byte {
	if r.large != nil {
		return r.large[:]
	}
	return r.small
}

// free is room to read into; a large buffer is borrowed once the last read filled the small one.
func (r *reader) free() []byte {
	if r.large == nil && (r.full || r.n > len(r.small)/2) {
		r.large = largeReads.Get().(*[largeRead]byte)
		copy(r.large[:], r.small[:r.n])
	}
	return r.buf()[r.n:]
}

func (r *reader) filled(n int) {
	r.last, r.full = n, n == len(r.buf())-r.n
	r.n += n
}

// takesRecord says whether a whole record fits in still, in a large buffer.
func (r *reader) takesRecord() bool { return len(r.free()) >= frame.Max }

func (r *reader) fill(p []byte) {
	for len(p) > 0 {
		n := copy(r.free(), p)
		r.filled(n)
		p = p[n:]
	}
}

// consume drops n parsed bytes; an empty reader that saw little gives its large buffer back.
func (r *reader) consume(n int) {
	b := r.buf()
	copy(b, b[n:r.n])
	r.n -= n
	if r.large != nil && r.n == 0 && r.last < smallRead {
		r.release()
	}
}

func (r *reader) release() {
	if r.large != nil {
		largeReads.Put(r.large)
		r.large = nil
	}
}

// take parses the whole frames in r and gives them to the core in one step.
func (c *carrier) take(r *reader) error {
	b := r.buf()[:r.n]
	if !frame.Whole(b) {
		return nil
	}
	l := c.l
	l.mu.Lock()
	now := l.now()
	if c.k.Attached() {
		l.lastByte = now
	}
	l.core.Arrived(now, c.k, len(b))
	used, ended, err := c.frames(now, b)
	l.core.Advance(now)
	if c.k.Proven() && !c.provenTold {
		c.provenTold = true
		close(c.proven)
	}
	l.unlockOwn(now)
	r.consume(used)
	if ended != nil {
		code := CodeGivenUp
		if errors.Is(ended, ErrProtocol) {
			code = CodeProtocol
		}
		l.end(ended, code)
	}
	return err
}

// frames takes the frames of b, within a step. ended: the link is over; err: the carrier is.
func (c *carrier) frames(now core.Time, b []byte) (used int, ended, err error) {
	var f frame.Frame
	for {
		n, err := frame.Parse(b[used:], &f)
		if err != nil {
			if c.l.client && !c.k.Attached() {
				return used, nil, err // the host has not accepted it: the carrier's failure only
			}
			return used, fmt.Errorf("%w: %w", ErrProtocol, err), err
		}
		if n == 0 {
			return used, nil, nil
		}
		used += n
		if c.l.client && !c.k.Attached() {
			if err := c.opened(now, &f); err != nil {
				return used, nil, err
			}
			continue
		}
		if c.l.isLinkClose(&f) {
			return used, closeError(Code(f.Code)), nil
		}
		if err := c.l.core.Recv(now, c.k, &f); err != nil {
			return used, err, err
		}
	}
}

func closeError(code Code) error {
	if code == CodeSuperseded {
		return ErrSuperseded
	}
	return &EndError{code}
}

var errGivenUp = errors.New("link: the attempt to attach was given up")

var errOpening = errors.New("link: unexpected frame in the opening")

// opened takes the host's HELLO and its answer to NEW or ATTACH, within a step.
func (c *carrier) opened(now core.Time, f *frame.Frame) error {
	switch {
	case f.Kind == frame.Bye:
		return &AttachError{Code: Code(f.Code)}
	case f.Kind == frame.Hello && !c.greeted:
		if f.Version != frame.Version {
			return &AttachError{Code: CodeVersion}
		}
		c.greeted, c.host = true, Process{f.Instance, f.Boot}
		return nil
	case !c.greeted || f.Kind < frame.NewOK || f.Kind > frame.AttachNo || f.Kind == frame.Attach:
		return fmt.Errorf("%w: 0x%02x", errOpening, byte(f.Kind))
	case f.Link != [16]byte(c.l.id) || f.Gen != c.k.Gen():
		return fmt.Errorf("%w: an answer for another link", errOpening)
	case f.Kind == frame.AttachNo:
		return &AttachError{Code: Code(f.Code), Instance: c.host.Instance, Boot: c.host.Boot}
	}
	c.l.hostInst, c.l.hostBoot = c.host.Instance, c.host.Boot
	c.l.core.Accepted(now, c.k)
	select {
	case c.answer <- answer{host: c.host}:
		return nil
	default:
		// The attempt was given up a moment ago. Nobody takes that answer, and to wait here would hold up the whole link.
		return errGivenUp
	}
}
