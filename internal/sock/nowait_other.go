//go:build !unix

package sock

import (
	"errors"
	"net"
	"syscall"
)

// Raw is the way to read and write c without waiting: there is none here.
func Raw(net.Conn) syscall.RawConn { return nil }

// TryWrite is never called here.
func TryWrite(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }
