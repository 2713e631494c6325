package link

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"linkproxy/link/core"
)

// Stream is one app connection carried over a link. It is a net.Conn with half-close (CloseWrite), abort (Reset), and
// doors for a copy that holds neither a buffer nor a second goroutine while idle (ReadFrom, OnReadable, WriteAvailable).
// One goroutine may read while another writes.
type Stream struct {
	l     *Link
	s     *core.Stream
	since time.Time

	// Guarded by l.mu.
	onGone     func(failed bool)
	onReadable func()
	onAbort    func()
	readWait   chan struct{} // one slot; made by the first Read that waits
	writeWait  chan struct{}
	opened     chan struct{} // client: closed when OPENED or an end has come; made by the first who waits
	readDue    deadline
	writeDue   deadline
	closed     bool
	failure    error // why Fail ended it; nil: it did not
}

// deadline is a net.Conn deadline: past once its timer has fired.
type deadline struct {
	timer *time.Timer
	past  bool
	seq   int // a timer of an older deadline does not count
}

func newStream(l *Link, s *core.Stream) *Stream {
	st := &Stream{l: l, s: s, since: time.Now()}
	s.Ctx = st
	return st
}

// wakeReader is called within a step of the core when s has become readable or has ended.
func (st *Stream) wakeReader(calls []func()) []func() {
	if st.readWait != nil {
		signal(st.readWait)
	}
	if st.opened != nil && st.settled() {
		close(st.opened)
		st.opened = nil
	}
	if st.onAbort != nil && st.aborted() {
		calls = append(calls, st.onAbort)
		st.onAbort = nil
	}
	if st.onReadable != nil && st.isReadable() {
		calls = append(calls, st.onReadable)
		st.onReadable = nil
	}
	return st.tellGone(calls)
}

func (st *Stream) wakeWriter(calls []func()) []func() {
	if st.writeWait != nil {
		signal(st.writeWait)
	}
	return st.tellGone(calls)
}

func (st *Stream) isReadable() bool {
	if len(st.s.Peek()) > 0 || st.closed {
		return true
	}
	eof, err := st.s.ReadEnd()
	return eof || err != nil
}

// settled says whether it is known if the target answered.
func (st *Stream) settled() bool {
	if st.s.Accepted() {
		return true
	}
	_, refused := st.s.Refusal()
	_, err := st.s.ReadEnd()
	return refused || err != nil
}

// Target is what the client asked for, as it said it.
func (st *Stream) Target() string { return st.s.Target }

// Hold is how long the stream survives without a carrier, as far as this side knows.
func (st *Stream) Hold() time.Duration { return st.s.Hold }

// LimitHold bounds, on the host, how long the stream survives without a carrier; the shorter of all bounds counts.
func (st *Stream) LimitHold(d time.Duration) {
	st.step(func(core.Time) { st.s.Hold = min(st.s.Hold, d) })
}

// aborted says whether the other side has reset the stream, or it has failed: what it was to do is of no use any more.
func (st *Stream) aborted() bool {
	if err := st.s.WriteErr(); err != nil && !errors.Is(err, core.ErrReset) {
		return true // failed, though there may be bytes left to read
	}
	_, err := st.s.ReadEnd()
	return err != nil
}

// OnAbort has f called once, from any goroutine, when the other side resets the stream or it fails; at once if that has
// happened. f must not wait; nil: nothing is called any more.
func (st *Stream) OnAbort(f func()) {
	st.l.mu.Lock()
	if f == nil || !st.aborted() {
		st.onAbort = f
		st.l.mu.Unlock()
		return
	}
	st.l.mu.Unlock()
	f()
}

// OnGone has f called once, from any goroutine, when the stream takes nothing more: failed says that it was reset or has
// failed, otherwise the other side has said STOP; at once if that has happened. f must not wait; nil: nothing is called any
// more.
func (st *Stream) OnGone(f func(failed bool)) {
	st.l.mu.Lock()
	failed, gone := st.gone()
	if f == nil || !gone {
		st.onGone = f
		st.l.mu.Unlock()
		return
	}
	st.l.mu.Unlock()
	f(failed)
}

func (st *Stream) gone() (failed, gone bool) {
	failed = st.aborted()
	return failed, failed || st.s.Stopped()
}

// tellGone appends the call of OnGone's f, within a step of the core.
func (st *Stream) tellGone(calls []func()) []func() {
	if st.onGone == nil {
		return calls
	}
	failed, gone := st.gone()
	if !gone {
		return calls
	}
	f := st.onGone
	st.onGone = nil
	return append(calls, func() { f(failed) })
}

// WaitOpened waits until the peer has reached the target; a *RefusedError says that it did not.
func (st *Stream) WaitOpened(ctx context.Context) error {
	st.l.mu.Lock()
	if st.settled() {
		err := st.openErr()
		st.l.mu.Unlock()
		return err
	}
	if st.opened == nil {
		st.opened = make(chan struct{})
	}
	opened := st.opened
	st.l.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	st.l.mu.Lock()
	defer st.l.mu.Unlock()
	return st.openErr()
}

func (st *Stream) openErr() error {
	if st.s.Accepted() {
		return nil
	}
	if code, refused := st.s.Refusal(); refused {
		return &RefusedError{st.s.Target, Code(code)}
	}
	return st.readErr()
}

// readErr is how reading has ended: io.EOF, a *ResetError, or why the link ended.
func (st *Stream) readErr() error {
	eof, err := st.s.ReadEnd()
	switch {
	case st.failure != nil:
		return st.failure
	case eof:
		return io.EOF
	case errors.Is(err, core.ErrReset):
		if code, refused := st.s.Refusal(); refused {
			return &RefusedError{st.s.Target, Code(code)}
		}
		return &ResetError{Code(st.s.PeerCode())}
	case errors.Is(err, core.ErrHoldOver):
		return ErrHoldOver
	case err == nil && st.closed:
		return net.ErrClosed
	}
	return err
}

func (st *Stream) writeErr() error {
	if st.failure != nil {
		return st.failure
	}
	if st.closed {
		return net.ErrClosed
	}
	err := st.s.WriteErr()
	switch {
	case errors.Is(err, core.ErrReset):
		return &ResetError{Code(st.s.PeerCode())}
	case errors.Is(err, core.ErrHoldOver):
		return ErrHoldOver
	}
	return err
}

// Accept tells the client, from the host, that the target answered.
func (st *Stream) Accept() { st.step(func(now core.Time) { st.s.Accept(now) }) }

// Refuse tells the client, from the host, that the target could not be reached. The stream is over then.
func (st *Stream) Refuse(code Code) { st.step(func(core.Time) { st.s.Refuse(uint32(code)) }) }

// Reset aborts both directions: what was not delivered is dropped, and the other side's app sees a reset.
func (st *Stream) Reset(code uint32) {
	st.step(func(core.Time) {
		st.closed = true
		st.s.Reset(code)
		st.s.Wake()
	})
}

// Fail is Reset for a reason that the app's side is told: reading, writing and WaitOpened end with err. A stream that has
// ended already keeps its own reason.
func (st *Stream) Fail(code uint32, err error) {
	st.step(func(core.Time) {
		if st.closed || st.settled() && !st.s.Accepted() {
			return
		}
		st.failure = err
		st.s.Reset(code)
		st.s.Wake()
	})
}

// CloseWrite ends the writing direction; the other goes on.
func (st *Stream) CloseWrite() error {
	st.step(func(core.Time) { st.s.CloseWrite() })
	return nil
}

// Close ends both directions: what was written still arrives; what was not read is dropped, and the peer is told to stop.
func (st *Stream) Close() error {
	st.step(func(core.Time) {
		st.closed = true
		st.s.CloseWrite()
		st.s.Stop(uint32(CodeAborted))
		st.s.Wake()
		st.readDue.stop()
		st.writeDue.stop()
	})
	return nil
}

// step runs f as one step of the core.
func (st *Stream) step(f func(now core.Time)) {
	st.l.mu.Lock()
	now := st.l.now()
	f(now)
	st.l.unlockOwn(now)
}

// Read implements net.Conn.
func (st *Stream) Read(p []byte) (int, error) {
	for {
		st.l.mu.Lock()
		if st.readDue.past {
			st.l.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		if b := st.s.Peek(); len(b) > 0 && !st.closed {
			now := st.l.now()
			n := copy(p, b)
			st.s.Discard(now, n)
			st.l.unlock(now)
			return n, nil
		}
		if err := st.readErr(); err != nil {
			st.l.mu.Unlock()
			return 0, err
		}
		if len(p) == 0 {
			st.l.mu.Unlock()
			return 0, nil
		}
		if st.readWait == nil {
			st.readWait = make(chan struct{}, 1)
		}
		wait := st.readWait
		st.l.mu.Unlock()
		<-wait
	}
}

// OnReadable has f called once, from any goroutine, when there is a byte, the end or an error to read; at once if there
// is already. f must not wait.
func (st *Stream) OnReadable(f func()) {
	st.l.mu.Lock()
	if !st.isReadable() {
		st.onReadable = f
		st.l.mu.Unlock()
		return
	}
	st.l.mu.Unlock()
	f()
}

// WriteAvailable writes to w what can be read now without waiting. A nil error: nothing more now; io.EOF: the end; an error
// with a WriteFailed method: w's; else the stream's.
func (st *Stream) WriteAvailable(w io.Writer) (int64, error) {
	var done int64
	st.l.mu.Lock()
	for {
		b := st.s.Peek()
		if len(b) == 0 || st.closed {
			err := st.readErr()
			st.l.mu.Unlock()
			return done, err
		}
		st.l.mu.Unlock()
		n, err := w.Write(b)
		done += int64(n)
		st.l.mu.Lock()
		now := st.l.now()
		st.s.Discard(now, n)
		if err != nil {
			st.l.unlockOwn(now)
			return done, &writeFailed{err}
		}
		st.l.unlockOwn(now)
		st.l.mu.Lock()
	}
}

// writeFailed marks an error as one of the writer that WriteAvailable was given.
type writeFailed struct{ error }

func (e *writeFailed) Unwrap() error     { return e.error }
func (e *writeFailed) WriteFailed() bool { return true }

// Write implements net.Conn. It returns once all is taken; the link delivers it whatever happens to carriers.
func (st *Stream) Write(p []byte) (int, error) {
	done := 0
	for {
		st.l.mu.Lock()
		if st.writeDue.past {
			st.l.mu.Unlock()
			return done, os.ErrDeadlineExceeded
		}
		if err := st.writeErr(); err != nil {
			st.l.mu.Unlock()
			return done, err
		}
		now := st.l.now()
		n := st.s.Write(now, p[done:])
		done += n
		if done == len(p) {
			st.l.unlockOwn(now)
			return done, nil
		}
		wait := st.waitRoom()
		st.l.unlock(now)
		<-wait
	}
}

func (st *Stream) waitRoom() chan struct{} {
	if st.writeWait == nil {
		st.writeWait = make(chan struct{}, 1)
	}
	return st.writeWait
}

// ReadFrom implements io.ReaderFrom: it reads r straight into the stream until r ends. If r has a WaitReadable method, no
// buffer is held while r is idle.
func (st *Stream) ReadFrom(r io.Reader) (int64, error) {
	waiter, _ := r.(interface{ WaitReadable() error })
	var done int64
	want := smallBuffer
	flowing := st.announce(r) // the last read filled its buffer: most likely there is more
	for {
		if waiter != nil && !flowing {
			if err := waiter.WaitReadable(); err != nil {
				return done, err
			}
		}
		b, err := st.tail(want)
		if err != nil {
			return done, &writeFailed{err}
		}
		n, err := r.Read(b)
		st.step(func(now core.Time) { st.s.Grow(now, n) })
		done += int64(n)
		flowing = n == len(b)
		switch {
		case flowing && want < largeBuffer:
			want = largeBuffer
		case flowing:
			want = hugeBuffer
		case n < smallBuffer/2:
			want = smallBuffer
		}
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

// announce sends an early stream on its way if r has nothing yet that could go with it, and says whether it has.
func (st *Stream) announce(r io.Reader) (readable bool) {
	if s, ok := r.(interface{ Readable() bool }); ok && s.Readable() {
		return true
	}
	st.step(func(core.Time) { st.s.Announce() })
	return false
}

// tail borrows room for bytes of the app, waiting until there is some.
func (st *Stream) tail(want int) ([]byte, error) {
	for {
		st.l.mu.Lock()
		if err := st.writeErr(); err != nil {
			st.l.mu.Unlock()
			return nil, err
		}
		b := st.s.Tail(want)
		if len(b) > 0 {
			st.l.mu.Unlock()
			return b, nil
		}
		wait := st.waitRoom()
		st.l.mu.Unlock()
		<-wait
	}
}

// --- net.Conn's rest

// Addr is a stream's end: a link has no addresses, only a target and a peer.
type Addr string

// Network is "linkproxy".
func (Addr) Network() string  { return "linkproxy" }
func (a Addr) String() string { return string(a) }

// LocalAddr names the link.
func (st *Stream) LocalAddr() net.Addr { return Addr("link/" + st.l.id.String()) }

// RemoteAddr names the target.
func (st *Stream) RemoteAddr() net.Addr { return Addr(st.s.Target) }

// SetDeadline implements net.Conn.
func (st *Stream) SetDeadline(t time.Time) error {
	_ = st.SetReadDeadline(t)
	return st.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (st *Stream) SetReadDeadline(t time.Time) error {
	st.setDeadline(&st.readDue, t, func() { st.wakeReader(nil) })
	return nil
}

// SetWriteDeadline implements net.Conn.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	st.setDeadline(&st.writeDue, t, func() { st.wakeWriter(nil) })
	return nil
}

func (st *Stream) setDeadline(d *deadline, t time.Time, wake func()) {
	st.l.mu.Lock()
	defer st.l.mu.Unlock()
	d.stop()
	d.past = false
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.past = true
		wake()
		return
	}
	seq := d.seq
	d.timer = time.AfterFunc(wait, func() {
		st.l.mu.Lock()
		defer st.l.mu.Unlock()
		if d.seq == seq {
			d.past = true
			wake()
		}
	})
}

func (d *deadline) stop() {
	d.seq++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
