//go:build unix

package host

import (
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestOutOfFilesForReal: the system's own errors, of a dial and of a look-up, are told as what they are.
func TestOutOfFilesForReal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := Policy{Allow: rules(t, "127.0.0.1:*", "*.invalid:*")}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	none := old
	none.Cur = 1 // no new file: standard input has the only number
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, _, dialled := p.Dial(t.Context(), ln.Addr().String())
	_, _, lookedUp := p.Dial(t.Context(), "devbox.invalid:22")
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"dial": dialled, "look-up": lookedUp} {
		if reasonOf(err) != "busy" || !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	conn, _, err := p.Dial(t.Context(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
