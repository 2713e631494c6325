//go:build unix

package sock

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Raw is the way to read and write c without waiting; nil: there is none. A connection that wraps another is left alone, as
// its own Write would be passed by.
func Raw(c net.Conn) syscall.RawConn {
	var s syscall.Conn
	switch c := c.(type) {
	case *net.TCPConn:
		s = c
	case *net.UnixConn:
		s = c
	default:
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// Writer writes to a connection, waiting or not. One goroutine writes at a time.
type Writer struct {
	raw  syscall.RawConn
	fn   func(fd uintptr) bool // w.write, bound once: writing allocates nothing
	b    []byte                // what is to be written; held only while somebody writes
	n    int
	wait bool
	err  error
}

// NewWriter returns nil if c is no socket that can be written to without waiting.
func NewWriter(c net.Conn) *Writer {
	raw := Raw(c)
	if raw == nil {
		return nil
	}
	w := &Writer{raw: raw}
	w.fn = w.write
	return w
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) { return w.do(b, true) }

// TryWrite writes what the connection takes at once: fewer bytes than b has, without an error, where more would wait.
func (w *Writer) TryWrite(b []byte) (int, error) { return w.do(b, false) }

func (w *Writer) do(b []byte, wait bool) (int, error) {
	w.b, w.n, w.wait, w.err = b, 0, wait, nil
	err := w.raw.Write(w.fn)
	if w.err != nil {
		err = os.NewSyscallError("write", w.err)
	}
	w.b = nil
	return w.n, err
}

// write is asked by the runtime until it says true; meanwhile it waits for the connection to take more.
func (w *Writer) write(fd uintptr) bool {
	for w.n < len(w.b) {
		n, err := WriteFD(fd, w.b[w.n:])
		w.n += n
		switch {
		case err == nil, errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return !w.wait
		default:
			w.err = err
			return true
		}
	}
	return true
}

// Reader reads from a connection. One goroutine reads at a time.
type Reader struct {
	raw  syscall.RawConn
	fn   func(fd uintptr) bool // r.read, bound once: reading allocates nothing
	lend func() []byte
	back func()
	n    int
	err  error
}

// NewReader returns nil if c is no socket that can be read without waiting. lend gives the buffer of a read once it is due, back takes it
// again if there is nothing to read, so that none is held while the reader waits; it is not called after a read.
func NewReader(c net.Conn, lend func() []byte, back func()) *Reader {
	raw := Raw(c)
	if raw == nil {
		return nil
	}
	r := &Reader{raw: raw, lend: lend, back: back}
	r.fn = r.read
	return r
}

// Read waits until there is something to read and reads it into the buffer that is lent. At the end it returns io.EOF.
func (r *Reader) Read() (int, error) {
	r.n, r.err = 0, nil
	err := r.raw.Read(r.fn)
	switch {
	case errors.Is(r.err, io.EOF):
		err = io.EOF
	case r.err != nil:
		err = os.NewSyscallError("read", r.err)
	}
	return r.n, err
}

// read is asked by the runtime until it says true; meanwhile it waits for something to read.
func (r *Reader) read(fd uintptr) bool {
	b := r.lend()
	for {
		n, err := ReadFD(fd, b)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			r.back()
			return false
		case err == nil && n == 0 && len(b) > 0:
			err = io.EOF
		}
		r.n, r.err = n, err
		return true
	}
}
