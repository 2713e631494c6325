//go:build unix

package pipe

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// leave ends c's connection as the system does for a process that was killed: a Unix socket is closed; what TCP says only
// later, by keep-alive, is a reset.
func leave(t *testing.T, c net.Conn) {
	t.Helper()
	if tcp, ok := c.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGoneAfterItsEnd: an app that has said all and then dies while the other side is silent ends the copy, whichever kind
// of connection either has; what it said has arrived.
func TestGoneAfterItsEnd(t *testing.T) {
	const linger = 50 * time.Millisecond // the system resets nobody here: a copy between two sockets ends by it
	for _, app := range []string{"unix", "tcp"} {
		t.Run(app+"-stream", func(t *testing.T) {
			far, near := pairOf(t, app)
			s := newFakeStream()
			w := &world{app: far, result: make(chan Result, 1)}
			go func() { w.result <- copyAfter(near, s, nil, deadline) }()
			if _, err := io.WriteString(far, "my last words"); err != nil {
				t.Fatal(err)
			}
			closeWriteOf(t, far)
			s.await(t, "the app's end", func() bool { return s.ended })
			leave(t, far)
			r := w.wait(t)
			if r.Up != 13 || r.Err == nil || !s.closed || s.resets != 0 || s.up.String() != "my last words" {
				t.Errorf("%+v; closed %v, %d resets, got %q", r, s.closed, s.resets, s.up.String())
			}
		})
		t.Run(app+"-tcp", func(t *testing.T) {
			far, near := pairOf(t, app)
			target, peer := pairOf(t, "tcp")
			w := &world{app: far, target: target, result: make(chan Result, 1)}
			go func() { w.result <- copyAfter(near, peer, nil, linger) }()
			closeWriteOf(t, far)
			if _, err := target.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("the target: %v", err)
			}
			leave(t, far)
			w.wait(t)
		})
		t.Run("tcp-"+app+", the far side", func(t *testing.T) {
			far, near := pairOf(t, "tcp")
			target, peer := pairOf(t, app)
			w := &world{app: far, target: target, result: make(chan Result, 1)}
			go func() { w.result <- copyAfter(near, peer, nil, linger) }()
			closeWriteOf(t, target)
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("the app: %v", err)
			}
			leave(t, target)
			w.wait(t)
		})
	}
}

// TestEndedIsNotGone: one that has said all and lives gets the late answer.
func TestEndedIsNotGone(t *testing.T) {
	for _, kind := range []string{"unix", "tcp"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, kind, "tcp")
			closeWriteOf(t, w.app)
			if _, err := w.target.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := io.WriteString(w.target, "late"); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(w.app, make([]byte, 4)); err != nil {
					t.Fatal(err)
				}
			}
			closeWriteOf(t, w.target)
			if rest, err := io.ReadAll(w.app); len(rest) != 0 || err != nil {
				t.Errorf("the app got %q, %v", rest, err)
			}
			if r := w.wait(t); r.Err != nil || r.Down != 12 {
				t.Errorf("%+v", r)
			}
		})
	}
}
