package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"linkproxy/internal/pipe"
)

// Stdio carries in to conn and conn to out until the far end has ended: then it returns, whether in has ended or not, as a
// ProxyCommand must. in's end is passed on as a half-close. nil means that the far end closed cleanly and out has it all;
// a reset, a broken out (an *OutputError) or a cancelled ctx is an error (see ExitCode). conn is closed.
//
// A read of in that hangs cannot be cancelled (standard input is a blocking file as a rule): its goroutine stays until
// that read returns, which for a command is its exit.
func Stdio(ctx context.Context, in io.Reader, out io.Writer, conn net.Conn) error {
	s := &stdio{in: in, out: out, chunks: make(chan chunk), done: make(chan struct{})}
	go s.pump()
	stop := context.AfterFunc(ctx, func() {
		s.end(context.Cause(ctx))
		pipe.Reset(conn) // nobody reads in any more once that has ended
	})
	res := pipe.Copy(s, conn)
	if !stop() && ctx.Err() != nil {
		return fmt.Errorf("proxy: carrying standard input and output: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.clean:
		return nil // what in still had to say when the far end had finished is nobody's business any more
	case s.err != nil:
		return fmt.Errorf("proxy: carrying standard input and output: %w", s.err)
	case res.Err != nil:
		return fmt.Errorf("proxy: carrying standard input and output: %w", res.Err)
	}
	return nil
}

// OutputError tells that what the far end said could not be written out: that is no failure of the connection.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "writing standard output: " + e.Err.Error() }
func (e *OutputError) Unwrap() error { return e.Err }

// Reason is none of the connection's.
func (e *OutputError) Reason() string { return reasonOther }

// NobodyReads reports whether whoever read the output has closed it, as `head` does when it has enough.
func (e *OutputError) NobodyReads() bool { return isErrno(e.Err, errnoPipe) }

const stdioBuf = 32 << 10

type chunk struct {
	b   []byte
	err error
}

// stdio makes one connection of two files. It is read by one goroutine and written by one.
type stdio struct {
	in     io.Reader
	out    io.Writer
	chunks chan chunk // from pump, which waits until a chunk is used up
	cur    chunk

	once sync.Once
	done chan struct{} // nothing more is read

	mu    sync.Mutex
	err   error // why it ended, if not cleanly
	clean bool  // the far end ended cleanly
}

func (s *stdio) pump() {
	bufs := [2][]byte{make([]byte, stdioBuf), nil}
	for i := 0; ; i ^= 1 {
		if bufs[i] == nil {
			bufs[i] = make([]byte, stdioBuf)
		}
		n, err := s.in.Read(bufs[i])
		select {
		case s.chunks <- chunk{bufs[i][:n], err}:
		case <-s.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// WaitReadable waits for bytes of in without a buffer.
func (s *stdio) WaitReadable() error {
	if len(s.cur.b) > 0 || s.cur.err != nil {
		return nil
	}
	select {
	case s.cur = <-s.chunks:
	case <-s.done:
	}
	return nil
}

func (s *stdio) Read(p []byte) (int, error) {
	for {
		select {
		case <-s.done:
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.err != nil {
				return 0, s.err
			}
			return 0, io.EOF
		default:
		}
		if len(s.cur.b) > 0 {
			n := copy(p, s.cur.b)
			s.cur.b = s.cur.b[n:]
			return n, nil
		}
		if s.cur.err != nil {
			return 0, s.cur.err
		}
		_ = s.WaitReadable()
	}
}

func (s *stdio) Write(p []byte) (int, error) {
	n, err := s.out.Write(p)
	if err != nil {
		// Nobody reads the answer any more: the far end must see that as a reset.
		err = &OutputError{err}
		s.end(err)
	}
	return n, err
}

// CloseWrite is called when the far end has ended cleanly.
func (s *stdio) CloseWrite() error {
	s.mu.Lock()
	s.clean = s.err == nil
	s.mu.Unlock()
	s.end(nil)
	return nil
}

// Reset is called when the far end was reset.
func (s *stdio) Reset(uint32) { s.end(nil) }

func (s *stdio) Close() error {
	s.end(nil)
	return nil
}

// end wakes the reader, which then sees err, or an end.
func (s *stdio) end(err error) {
	s.mu.Lock()
	if s.err == nil && !s.clean {
		s.err = err
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.done) })
}

func (s *stdio) LocalAddr() net.Addr              { return stdioAddr{} }
func (s *stdio) RemoteAddr() net.Addr             { return stdioAddr{} }
func (s *stdio) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (s *stdio) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (s *stdio) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

type stdioAddr struct{}

func (stdioAddr) Network() string { return "stdio" }
func (stdioAddr) String() string  { return "stdio" }
