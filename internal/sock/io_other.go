//go:build !unix

package sock

import (
	"errors"
	"net"
	"syscall"
)

// Raw is the way to read and write c without waiting: there is none here.
func Raw(net.Conn) syscall.RawConn { return nil }

// Writer writes without waiting; there is none here.
type Writer struct{}

// NewWriter returns nil.
func NewWriter(net.Conn) *Writer { return nil }

// Write is never called here.
func (*Writer) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// TryWrite is never called here.
func (*Writer) TryWrite([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Reader reads without a buffer that waits; there is none here.
type Reader struct{}

// NewReader returns nil.
func NewReader(net.Conn, func() []byte, func()) *Reader { return nil }

// Read is never called here.
func (*Reader) Read() (int, error) { return 0, errors.ErrUnsupported }
