package pipe

import (
	"errors"
	"io"
	"net"
	"sync"

	"linkproxy/internal/sock"
)

const (
	// bufSize holds two TLS records; borrowed only while bytes move.
	bufSize = 32 << 10
	// probeSize is kept by a source that cannot be waited for, in place of a whole buffer.
	probeSize = 512
)

var buffers = sync.Pool{New: func() any { return new([bufSize]byte) }}

// move copies src to dst until src ends (nil, nil), reading fails or writing fails.
func (d *direction) move() (rerr, werr error) {
	w := newWaiter(d.src)
	if tcp, ok := d.dst.(*net.TCPConn); ok && w != nil {
		if s, ok := newSplicer(tcp, d.src); ok {
			return d.moveSpliced(w, s)
		}
	} else if rf, ok := readerFrom(d.dst); ok {
		return d.moveInto(w, rf)
	}
	if w == nil {
		return d.moveProbing()
	}
	return d.moveBuffered(w)
}

// readerFrom leaves out *net.TCPConn, whose ReadFrom allocates a buffer of its own and keeps it while it waits.
func readerFrom(c net.Conn) (io.ReaderFrom, bool) {
	if _, ok := c.(*net.TCPConn); ok {
		return nil, false
	}
	rf, ok := c.(io.ReaderFrom)
	return rf, ok
}

// source is what a ReadFrom reads; it remembers whether reading was what failed.
type source struct {
	conn net.Conn
	rd   *sock.Reader // nil: read by conn
	p    []byte       // where rd reads to
	err  error
}

func newSource(c net.Conn) *source {
	s := &source{conn: c}
	s.rd = sock.NewReader(c, s.lend, s.back)
	return s
}

func (s *source) lend() []byte { return s.p }
func (s *source) back()        {}

func (s *source) Read(p []byte) (n int, err error) {
	if s.rd != nil {
		s.p = p
		n, err = s.rd.Read()
		s.p = nil
	} else {
		n, err = s.conn.Read(p)
	}
	if err != nil {
		s.err = err
	}
	return n, err
}

type waitingSource struct {
	*source
	wait waiter
}

// WaitReadable lets the receiver borrow a buffer only when there is something to put in.
func (s *waitingSource) WaitReadable() error {
	err := s.wait.WaitReadable()
	if err != nil {
		s.err = err
	}
	return err
}

// Readable says whether a read would not wait.
func (s *waitingSource) Readable() bool {
	w, ok := s.wait.(*socketWaiter)
	return ok && w.readable()
}

func (d *direction) moveInto(w waiter, rf io.ReaderFrom) (rerr, werr error) {
	var n int64
	var err, readErr error
	if w != nil {
		s := &waitingSource{source: newSource(d.src), wait: w}
		n, err = rf.ReadFrom(s)
		readErr = s.err
	} else {
		s := newSource(d.src)
		n, err = rf.ReadFrom(s)
		readErr = s.err
	}
	d.n += n
	switch {
	case readErr != nil && !errors.Is(readErr, io.EOF):
		return readErr, nil
	case err != nil:
		return nil, err
	}
	return nil, nil
}

// moveBuffered borrows a buffer for as long as reads fill it.
func (d *direction) moveBuffered(w waiter) (rerr, werr error) {
	for {
		if err := w.WaitReadable(); err != nil {
			return err, nil
		}
		rerr, werr := d.burst()
		if werr != nil {
			return nil, werr
		}
		if rerr != nil {
			return noEOF(rerr), nil
		}
	}
}

// burst reads and writes until a read leaves room in the buffer.
func (d *direction) burst() (rerr, werr error) {
	buf := buffers.Get().(*[bufSize]byte)
	defer buffers.Put(buf)
	for {
		n, rerr := d.src.Read(buf[:])
		if n > 0 {
			if werr := d.write(buf[:n]); werr != nil {
				return nil, werr
			}
		}
		if rerr != nil || n < len(buf) {
			return rerr, nil
		}
	}
}

// moveProbing serves sources that cannot be waited for (TLS, in-memory): a small buffer waits, a full one is borrowed
// when the small one was filled.
func (d *direction) moveProbing() (rerr, werr error) {
	probe := make([]byte, probeSize)
	for {
		n, rerr := d.src.Read(probe)
		if n > 0 {
			if werr := d.write(probe[:n]); werr != nil {
				return nil, werr
			}
		}
		if rerr == nil && n == len(probe) {
			rerr, werr = d.burst()
			if werr != nil {
				return nil, werr
			}
		}
		if rerr != nil {
			return noEOF(rerr), nil
		}
	}
}

func (d *direction) write(p []byte) error {
	n, err := d.dst.Write(p)
	d.n += int64(n)
	return err
}

// maxDrop is how much of what a stream does not take is fetched only to be dropped once the other direction has ended and was
// delivered: enough for the rest of an answer, little for the processors. A target that sends more is told by a reset, as it
// would be by TCP; where the system does not tell what was delivered, the linger time ends it.
const maxDrop = 1 << 20

var errDropped = errors.New("nobody takes what it sends")

// drop reads d.src to its end.
func (c *copier) drop(d *direction) error {
	buf := buffers.Get().(*[bufSize]byte)
	defer buffers.Put(buf)
	for n := 0; ; {
		m, err := d.src.Read(buf[:])
		if err != nil {
			return noEOF(err)
		}
		if n += m; n > maxDrop && c.drain.used && c.hasEnded(d.back) && tellsUnsent && unsent(d.back.dst) == 0 {
			return errDropped
		}
	}
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
