package netns

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Main()
	helper(os.Args[0])
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// newWorld makes a world that ends with the test, or skips where there can be none; with LINKPROXY_STRICT=1 that is a
// failure.
func newWorld(t *testing.T) *World {
	t.Helper()
	if err := Supported(); err != nil {
		if os.Getenv("LINKPROXY_STRICT") == "1" {
			t.Fatalf("LINKPROXY_STRICT is set, and %v", err)
		}
		t.Skip(err)
	}
	w, err := New()
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func host(t *testing.T, w *World, name string) *Host {
	t.Helper()
	h, err := w.Host(name)
	must(t, err)
	return h
}

func join(t *testing.T, w *World, a, b End) *Link {
	t.Helper()
	l, err := w.Link(a, b)
	must(t, err)
	return l
}

// pair is a laptop and a server on one link.
func pair(t *testing.T) (laptop, server *Host, l *Link) {
	t.Helper()
	w := newWorld(t)
	laptop, server = host(t, w, "laptop"), host(t, w, "server")
	return laptop, server, join(t, w, laptop.If("wlan0", "192.168.1.10/24", "fd00::10/64"), server.If("eth0", "192.168.1.20/24", "fd00::20/64"))
}
