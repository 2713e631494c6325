package sock

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestBind(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	Bind(uintptr(fd), "no-such-interface", false)
	bound := func() string {
		t.Helper()
		name, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if got := bound(); got != "" {
		t.Errorf("bound to %q by a name that does not exist", got)
	}
	Bind(uintptr(fd), "lo", false)
	if got := bound(); got != "lo" {
		t.Errorf("bound to %q, want lo", got)
	}
}
