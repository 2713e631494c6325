package pipe

import (
	"encoding/binary"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// spliceMin is below what moving pages through a kernel pipe costs more than copying.
const spliceMin = 16 << 10

// splicer moves bytes that have already arrived at src, so a failure is always one of writing.
type splicer struct {
	dst *net.TCPConn
	src net.Conn
	raw syscall.RawConn
	fn  func(fd uintptr) // s.ask, bound once
	n   int
}

func newSplicer(dst *net.TCPConn, src net.Conn) (*splicer, bool) {
	switch src.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil, false
	}
	raw, err := src.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, false
	}
	s := &splicer{dst: dst, src: src, raw: raw}
	s.fn = s.ask
	return s, true
}

func (s *splicer) ask(fd uintptr) { s.n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }

// available is how many bytes have arrived at src.
func (s *splicer) available() int64 {
	s.n = 0
	_ = s.raw.Control(s.fn)
	return int64(s.n)
}

func (d *direction) moveSpliced(w waiter, s *splicer) (rerr, werr error) {
	for {
		if err := w.WaitReadable(); err != nil {
			return err, nil
		}
		if n := s.available(); n >= spliceMin {
			// Limited to what is there: the kernel pipe goes back to the pool when the burst is over.
			m, err := s.dst.ReadFrom(&io.LimitedReader{R: s.src, N: n})
			d.n += m
			if err != nil {
				return nil, err
			}
			continue
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

// tellsUnsent says that unsent knows.
const tellsUnsent = true

// unsent is how many bytes written to c its far end has not acknowledged, 0 if unknown.
func unsent(c net.Conn) int {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
	return n
}

// isRealEnd reports whether the end just read from c was said by its far end. Asked for the bytes left to read, Linux
// answers 1 after a FIN and 0 after a reset whose error somebody else was told.
func isRealEnd(c net.Conn) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return true
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	real := true
	_ = raw.Control(func(fd uintptr) {
		if _, err := unix.Getpeername(int(fd)); err == nil {
			return // still connected, so not reset
		}
		real = finReceived(int(fd))
	})
	return real
}

func finReceived(fd int) bool {
	if unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_INQ, 1) != nil {
		return true // older than Linux 4.18
	}
	var p [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fd, p[:], oob, unix.MSG_DONTWAIT)
	if err != nil {
		return false
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 || len(msgs[0].Data) < 4 {
		return true
	}
	return binary.NativeEndian.Uint32(msgs[0].Data) != 0
}
