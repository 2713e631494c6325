package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// InUseError is a listen address that somebody else holds.
type InUseError struct {
	Addr string // as the system knows it, e.g. 127.0.0.1:1080
	Err  error
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("proxy: listening on %s: the address is taken; stop its holder or choose another", e.Addr)
}
func (e *InUseError) Unwrap() error { return e.Err }

// socketMode lets only the user connect to a Unix socket.
const socketMode = 0o600

// staleTime is how long a Unix socket may take to answer before it counts as alive: one that is dead refuses at once.
const staleTime = 2 * time.Second

// Listen listens on addr: "host:port"; "localhost:port", which is both 127.0.0.1 and ::1 where the machine has IPv6, with
// the same port; or "unix:/path", for this user only, replacing a socket on which nobody answers. A taken address is an
// *InUseError.
func Listen(addr string) ([]net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		l, err := listenUnix(path)
		return oneOf(l, err)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("proxy: listening on %q: an address is host:port, localhost:port or unix:/path: %w", addr, err)
	}
	if !strings.EqualFold(host, "localhost") {
		l, err := listenTCP(addr)
		return oneOf(l, err)
	}
	return listenBoth(port)
}

func oneOf(l net.Listener, err error) ([]net.Listener, error) {
	if err != nil {
		return nil, err
	}
	return []net.Listener{l}, nil
}

// portTries is how often a free port is asked for until it is free on both loopback addresses.
const portTries = 20

func listenBoth(port string) ([]net.Listener, error) {
	for try := 1; ; try++ {
		four, err := listenTCP(net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return nil, err
		}
		same := strconv.Itoa(four.Addr().(*net.TCPAddr).Port)
		six, err := listenTCP(net.JoinHostPort("::1", same))
		var taken *InUseError
		switch {
		case err == nil:
			return []net.Listener{four, six}, nil
		case isErrno(err, errnoNoIPv6):
			return []net.Listener{four}, nil
		}
		_ = four.Close()
		if port != "0" || !errors.As(err, &taken) || try == portTries {
			return nil, err
		}
	}
}

func listenTCP(addr string) (net.Listener, error) {
	var lc net.ListenConfig
	// Go listens for MPTCP by default; its sockets refuse options that carriers and forwards need.
	lc.SetMultipathTCP(false)
	if a, err := netip.ParseAddrPort(addr); err == nil && a.Addr().IsLoopback() {
		lc.KeepAlive = -1 // an app on this machine cannot vanish without a word
	}
	l, err := lc.Listen(context.Background(), "tcp", addr)
	return l, listenError(addr, err)
}

func listenError(addr string, err error) error {
	switch {
	case err == nil:
		return nil
	case isErrno(err, errnoInUse):
		return &InUseError{Addr: addr, Err: err}
	}
	return fmt.Errorf("proxy: listening on %s: %w", addr, err)
}

func listenUnix(path string) (net.Listener, error) {
	if path == "" {
		return nil, errors.New(`proxy: listening on "unix:": the path is missing; write unix:/path/to/socket`)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return c.Control(presetMode) }}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, listenError("unix:"+path, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("proxy: listening on unix:%s: making it private: %w", path, err)
	}
	return l, nil
}

// removeStale removes a socket that a dead process left behind, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("proxy: listening on unix:%s: %w", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("proxy: listening on unix:%s: there is a file that is no socket; choose another path", path)
	}
	c, err := net.DialTimeout("unix", path, staleTime)
	if err == nil {
		_ = c.Close()
	}
	if err == nil || !isErrno(err, errnoRefused) {
		return &InUseError{Addr: "unix:" + path, Err: err}
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("proxy: listening on unix:%s: removing the socket a dead process left: %w", path, err)
	}
	return nil
}

// IsLoopback reports whether addr, as given to Listen, can be reached from this machine only.
func IsLoopback(addr string) bool {
	if strings.HasPrefix(addr, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	host, _, _ = strings.Cut(host, "%")
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
