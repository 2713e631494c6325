package pipe

import (
	"errors"
	"io"
	"net"

	"linkproxy/internal/sock"
)

// nowaitOf is c as a writer that takes what the system takes at once and fails with errWouldWait for the rest; nil: c cannot
// be written to that way.
func nowaitOf(c net.Conn) io.Writer {
	if w := sock.NewWriter(c); w != nil {
		return nowait{w}
	}
	return nil
}

var errWouldWait = errors.New("pipe: the write would wait")

type nowait struct{ w *sock.Writer }

// Write implements io.Writer.
func (w nowait) Write(p []byte) (int, error) {
	n, err := w.w.TryWrite(p)
	if err == nil && n < len(p) {
		err = errWouldWait
	}
	return n, err
}
