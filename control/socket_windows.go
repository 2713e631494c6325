package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/Microsoft/go-winio"
)

// Path is the name of the pipe of a role (up, host) that belongs to a state folder: pipes have one name space for all.
func Path(stateDir, role string) string {
	abs, err := filepath.Abs(stateDir)
	if err != nil {
		abs = stateDir
	}
	sum := sha256.Sum256([]byte(strings.ToLower(abs)))
	return `\\.\pipe\linkproxy-` + role + "-" + hex.EncodeToString(sum[:8])
}

// ownerOnly lets the owner and the system in, nobody else.
const ownerOnly = "D:P(A;;GA;;;OW)(A;;GA;;;SY)"

// Listen opens the pipe for this user only. Only in message mode can a side end its way and go on listening.
func Listen(stateDir, role string) (net.Listener, error) {
	ln, err := winio.ListenPipe(Path(stateDir, role), &winio.PipeConfig{SecurityDescriptor: ownerOnly, MessageMode: true})
	if err != nil {
		return nil, fmt.Errorf("control: listening: %w", err)
	}
	return ln, nil
}

// NewClient returns a client of the role's pipe.
func NewClient(stateDir, role string) *Client {
	return &Client{Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := winio.DialPipeContext(ctx, Path(stateDir, role))
		if errors.Is(err, os.ErrNotExist) {
			return nil, ErrNotRunning
		}
		return conn, err
	}}
}
