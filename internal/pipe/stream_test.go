package pipe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeStream offers every optional interface, as a stream over a link does.
type fakeStream struct {
	mu     sync.Mutex
	cond   *sync.Cond
	in     []byte // to be read by the copy
	inErr  error  // after in
	wake   func()
	arms   int
	up     bytes.Buffer // written by the copy
	ended  bool         // CloseWrite was called
	resets int
	closed bool
	refuse error // what a write returns
	waited int   // ReadFrom calls that asked WaitReadable first
}

func newFakeStream() *fakeStream {
	s := &fakeStream{}
	s.cond = sync.NewCond(&s.mu)
	return s
}

type writeFailure struct{ err error }

func (e *writeFailure) Error() string     { return "stream: " + e.err.Error() }
func (e *writeFailure) Unwrap() error     { return e.err }
func (e *writeFailure) WriteFailed() bool { return true }

func (s *fakeStream) push(b []byte, err error) {
	s.mu.Lock()
	s.in = append(s.in, b...)
	if err != nil {
		s.inErr = err
	}
	f := s.wake
	s.wake = nil
	s.mu.Unlock()
	s.cond.Broadcast()
	if f != nil {
		f()
	}
}

func (s *fakeStream) OnReadable(f func()) {
	s.mu.Lock()
	s.arms++
	now := len(s.in) > 0 || s.inErr != nil || s.closed
	if !now {
		s.wake = f
	}
	s.mu.Unlock()
	s.cond.Broadcast()
	if now {
		f()
	}
}

func (s *fakeStream) WriteAvailable(w io.Writer) (int64, error) {
	s.mu.Lock()
	b, err := s.in, s.inErr
	s.in = nil
	if s.closed && err == nil {
		err = net.ErrClosed
	}
	s.mu.Unlock()
	if len(b) > 0 {
		if n, werr := w.Write(b); werr != nil {
			s.mu.Lock()
			s.in = append(b[n:len(b):len(b)], s.in...) // what w did not take is still there
			s.mu.Unlock()
			return int64(n), &writeFailure{werr}
		}
	}
	return int64(len(b)), err
}

func (s *fakeStream) ReadFrom(r io.Reader) (int64, error) {
	var n int64
	buf := make([]byte, 1000)
	for {
		if w, ok := r.(interface{ WaitReadable() error }); ok {
			s.mu.Lock()
			s.waited++
			s.mu.Unlock()
			if err := w.WaitReadable(); err != nil {
				return n, err
			}
		}
		k, err := r.Read(buf)
		if k > 0 {
			if _, err := s.Write(buf[:k]); err != nil {
				return n, err
			}
			n += int64(k)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func (s *fakeStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.cond.Broadcast()
	if s.closed {
		return 0, net.ErrClosed
	}
	if s.refuse != nil {
		return 0, s.refuse
	}
	return s.up.Write(b)
}

func (s *fakeStream) Read([]byte) (int, error) { panic("pipe must not read a stream that calls back") }

func (s *fakeStream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.cond.Broadcast()
	return nil
}

func (s *fakeStream) Reset(uint32) {
	s.mu.Lock()
	s.resets++
	s.mu.Unlock()
	_ = s.Close()
}

func (s *fakeStream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cond.Broadcast()
	return nil // like the worst stream allowed: the callback never comes
}

func (s *fakeStream) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *fakeStream) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *fakeStream) SetDeadline(time.Time) error      { return nil }
func (s *fakeStream) SetReadDeadline(time.Time) error  { return nil }
func (s *fakeStream) SetWriteDeadline(time.Time) error { return nil }

// await waits until cond, which is asked with mu held, or fails.
func (s *fakeStream) await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(deadline, func() { s.mu.Lock(); late = true; s.mu.Unlock(); s.cond.Broadcast() })
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !cond() {
		if late {
			t.Fatalf("%s did not come", what)
		}
		s.cond.Wait()
	}
}

func (s *fakeStream) awaitUp(t testing.TB, want string) {
	t.Helper()
	s.await(t, want, func() bool { return s.up.String() == want })
}

func (s *fakeStream) awaitArmed(t testing.TB) {
	t.Helper()
	s.await(t, "the next arming", func() bool { return s.wake != nil && len(s.in) == 0 })
}

func streamWorld(t testing.TB) (*world, *fakeStream) {
	t.Helper()
	app, near := pairOf(t, "tcp")
	s := newFakeStream()
	return startWorld(t, app, near, nil, s), s
}

func TestStreamHalfClose(t *testing.T) {
	w, s := streamWorld(t)
	if _, err := w.app.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	closeWriteOf(t, w.app)
	s.await(t, "the end", func() bool { return s.ended })
	s.awaitUp(t, "request")
	s.push([]byte("answer, "), nil)
	s.push([]byte("second part"), io.EOF)
	got, err := io.ReadAll(w.app)
	if err != nil || string(got) != "answer, second part" {
		t.Fatalf("%q %v", got, err)
	}
	if r := w.wait(t); r.Err != nil || r.Up != 7 || r.Down != 19 || s.resets != 0 || !s.closed || s.waited == 0 {
		t.Fatalf("%+v resets %d closed %v waited %d", r, s.resets, s.closed, s.waited)
	}
}

func TestStreamResetBecomesReset(t *testing.T) {
	w, s := streamWorld(t)
	s.push([]byte("part"), nil)
	if _, err := io.ReadFull(w.app, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("stream reset")
	s.push(nil, lost)
	if _, err := w.app.Read(make([]byte, 1)); !isReset(err) {
		t.Fatalf("app read %v, want a reset", err)
	}
	if r := w.wait(t); !errors.Is(r.Err, lost) {
		t.Fatalf("%+v", r)
	}
}

func TestAppResetResetsStream(t *testing.T) {
	w, s := streamWorld(t)
	s.awaitArmed(t)
	reset(w.app)
	r := w.wait(t)
	var pe *Error
	if !errors.As(r.Err, &pe) || pe.Side != "app" || pe.Op != "read" || s.resets != 1 {
		t.Fatalf("%+v resets %d", r, s.resets)
	}
}

// TestStreamStopped: the stream takes no more bytes, but its answer still comes and is delivered whole.
func TestStreamStopped(t *testing.T) {
	w, s := streamWorld(t)
	stopped := errors.New("stopped by the far side")
	s.mu.Lock()
	s.refuse = stopped
	s.mu.Unlock()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = w.app.Write(noise(8 << 20)) // more than all buffers: passes only because it is read and dropped
	}()
	<-sent
	answer := noise(1 << 20)
	s.push(answer, io.EOF)
	got, err := io.ReadAll(w.app)
	if err != nil || !bytes.Equal(got, answer) {
		t.Fatalf("answer: %d of %d, %v", len(got), len(answer), err)
	}
	w.app.Close()
	if r := w.wait(t); !errors.Is(r.Err, stopped) || s.resets != 0 {
		t.Fatalf("%+v, resets %d", r, s.resets)
	}
}

// TestLinger: exact time until an app that goes on sending to an ended peer is let go; a stream that goes on after the app
// has ended and stopped reading is closed at once.
func TestLinger(t *testing.T) {
	t.Run("app", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			app, near := halfPipe()
			s := newFakeStream()
			s.refuse = errors.New("stopped")
			w := startWorld(t, app, near, nil, s)
			start := time.Now()
			s.push([]byte("a"), io.EOF)
			if _, err := io.ReadFull(app, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				for {
					if _, err := app.Write([]byte("more")); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}()
			w.wait(t)
			if d := time.Since(start); d != Linger {
				t.Fatalf("let go after %v, want %v", d, Linger)
			}
			<-gone
		})
	})
	t.Run("peer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			app, near := halfPipe()
			near.refuse = errors.New("app takes nothing")
			s := newFakeStream()
			w := startWorld(t, app, near, nil, s)
			s.push([]byte("x"), nil)
			synctest.Wait()
			start := time.Now()
			app.CloseWrite()
			r := w.wait(t)
			if d := time.Since(start); d != 0 || r.Err == nil || !s.ended { // a stream keeps what was said: nothing to wait for
				t.Fatalf("ended after %v: %+v, end passed on: %v", d, r, s.ended)
			}
		})
	})
}

// halfPiped is an in-memory connection with half-close.
type halfPiped struct {
	net.Conn // addresses and deadlines only
	r        *io.PipeReader
	w        *io.PipeWriter
	refuse   error
}

func halfPipe() (a, b *halfPiped) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	return &halfPiped{r: ar, w: aw}, &halfPiped{r: br, w: bw}
}

func (c *halfPiped) Read(p []byte) (int, error) { return c.r.Read(p) }
func (c *halfPiped) Write(p []byte) (int, error) {
	if c.refuse != nil {
		return 0, c.refuse
	}
	return c.w.Write(p)
}
func (c *halfPiped) CloseWrite() error { return c.w.Close() }
func (c *halfPiped) Close() error      { c.r.Close(); return c.w.Close() }

// TestAppTakesNoMore: the app's side refuses bytes, as the far end of its socket is gone; what it had sent before still
// reaches the stream, and the stream is not reset.
func TestAppTakesNoMore(t *testing.T) {
	app, near := halfPipe()
	near.refuse = errors.New("app takes nothing")
	s := newFakeStream()
	w := startWorld(t, app, near, nil, s)
	s.awaitArmed(t)
	s.push([]byte("answer"), nil)
	s.awaitArmed(t)
	if _, err := app.Write([]byte("upload")); err != nil {
		t.Fatal(err)
	}
	app.CloseWrite()
	s.await(t, "the end", func() bool { return s.ended })
	s.awaitUp(t, "upload")
	s.push(nil, io.EOF)
	r := w.wait(t)
	var pe *Error
	if !errors.As(r.Err, &pe) || pe.Side != "app" || pe.Op != "write" || !errors.Is(r.Err, near.refuse) || s.resets != 0 || r.Up != 6 {
		t.Errorf("%+v, resets %d", r, s.resets)
	}
}
