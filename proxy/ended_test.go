package proxy

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// silentTarget accepts one connection, reads it to its end and says nothing.
func silentTarget(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() { close(over); ln.Close() })
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(io.Discard, conn)
		<-over
	}()
	return ln.Addr().String()
}

func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s does not return", what)
	}
}

// TestCloseEndsAnAppThatHasSaidAll: an app that half-closed, in front of a silent target, holds up nothing.
func TestCloseEndsAnAppThatHasSaidAll(t *testing.T) {
	addr := silentTarget(t)
	dialled := make(chan net.Conn, 1)
	f := NewForward(ForwardConfig{Dial: func(ctx context.Context, _ Request) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		dialled <- c
		return c, err
	}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = f.Serve(ln) }()
	app, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	_, _ = app.Write([]byte("hi"))
	_ = app.(*net.TCPConn).CloseWrite()
	<-dialled
	within(t, "Close", func() { f.Close() })
}

// TestStdioHeedsItsContextAfterTheInputEnded: `connect </dev/null` can be stopped.
func TestStdioHeedsItsContextAfterTheInputEnded(t *testing.T) {
	addr := silentTarget(t)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	within(t, "Stdio", func() {
		if err := Stdio(ctx, null, io.Discard, c); err == nil {
			t.Error("a cancelled Stdio told a clean end")
		}
	})
}
