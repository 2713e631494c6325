//go:build !windows

package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is the longest path a Unix socket may have everywhere (macOS: 104 bytes with the final zero).
const maxSocketPath = 103

// Path is where the socket of a role (up, host) lies in a state folder.
func Path(stateDir, role string) string { return filepath.Join(stateDir, role+".sock") }

// Listen opens the socket for this user only. The caller holds the role's instance lock, so a socket that is there already
// is left over from a process that ended without cleaning up.
func Listen(stateDir, role string) (net.Listener, error) {
	path := Path(stateDir, role)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control: socket path %s is longer than %d bytes: choose a shorter state folder with --state", path, maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control: removing an old socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control: listening: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("control: protecting the socket: %w", err)
	}
	return ln, nil
}

// dialTime bounds connecting to a local socket: it succeeds at once or not at all.
const dialTime = 2 * time.Second

// NewClient returns a client of the role's socket in a state folder.
func NewClient(stateDir, role string) *Client {
	return &Client{Dial: func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: dialTime}
		conn, err := d.DialContext(ctx, "unix", Path(stateDir, role))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, ErrNotRunning
		}
		return conn, err
	}}
}
