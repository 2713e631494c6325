package proxy

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenLocalhost(t *testing.T) {
	ls, err := Listen("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, l := range ls {
		defer l.Close()
		ports = append(ports, portOf(l.Addr().String()))
		if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("listens on %v", l.Addr())
		}
	}
	six, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		six.Close()
		if len(ls) != 2 || ports[0] != ports[1] {
			t.Fatalf("listens on %v, want one port on both addresses", ls)
		}
	} else if len(ls) != 1 {
		t.Fatalf("without IPv6 listens on %v", ls)
	}
	_, err = Listen("localhost:" + ports[0])
	var taken *InUseError
	if !errors.As(err, &taken) || taken.Addr != "127.0.0.1:"+ports[0] {
		t.Errorf("a taken port: %v", err)
	}
}

// TestListenLocalhostSixTaken: half a listener is none.
func TestListenLocalhostSixTaken(t *testing.T) {
	six, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		ls, err := Listen("localhost:0") // no IPv6 here: then IPv4 alone must do
		if err != nil || len(ls) != 1 {
			t.Fatalf("%v %v", ls, err)
		}
		ls[0].Close()
		return
	}
	defer six.Close()
	_, err = Listen("localhost:" + portOf(six.Addr().String()))
	var taken *InUseError
	if !errors.As(err, &taken) || !strings.HasPrefix(taken.Addr, "[::1]:") {
		t.Fatalf("%v", err)
	}
	four, err := net.Listen("tcp", "127.0.0.1:"+portOf(six.Addr().String()))
	if err != nil {
		t.Fatalf("the IPv4 half was left open: %v", err)
	}
	four.Close()
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ls, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	var taken *InUseError
	if _, err := Listen("unix:" + path); !errors.As(err, &taken) || taken.Addr != "unix:"+path {
		t.Errorf("a live socket: %v", err)
	}
	ls[0].(*net.UnixListener).SetUnlinkOnClose(false) // as a killed process leaves it
	ls[0].Close()
	again, err := Listen("unix:" + path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	again[0].Close()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stays after Close: %v", err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a plain file: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Error("the file was touched")
	}
}

func TestListenBad(t *testing.T) {
	for _, addr := range []string{"", "1080", "unix:", "127.0.0.1:http-no", "256.0.0.1:1"} {
		if ls, err := Listen(addr); err == nil {
			ls[0].Close()
			t.Errorf("%q was accepted", addr)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "LOCALHOST:1": true, "unix:/x": true,
		"[::ffff:127.0.0.1]:1": true, ":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "x:1": false, "1": false,
	} {
		if IsLoopback(addr) != want {
			t.Errorf("%s: %v", addr, !want)
		}
	}
}
