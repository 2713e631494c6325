package pipe

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

// TestLingerWaitsForSlowApp: an app that goes on sending to a stopped stream and reads the answer slowly gets all of it,
// though that takes several linger times: it is seen to take bytes.
func TestLingerWaitsForSlowApp(t *testing.T) {
	const linger = 400 * time.Millisecond
	app, near := pairOf(t, "tcp")
	s := newFakeStream()
	s.refuse = errors.New("stopped")
	result := make(chan Result, 1)
	go func() { result <- copyAfter(near, s, nil, linger) }()
	answer := noise(8 << 20)
	s.push(answer, io.EOF)
	start := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	got := make([]byte, 0, len(answer))
	for len(got) < len(answer) {
		<-tick.C
		if _, err := app.Write([]byte("still sending")); err != nil {
			t.Fatalf("after %d bytes of the answer: %v", len(got), err)
		}
		n, err := io.ReadFull(app, got[len(got):min(len(got)+64<<10, len(answer))])
		got = got[:len(got)+n]
		if err != nil {
			t.Fatalf("answer: %d of %d bytes, %v", len(got), len(answer), err)
		}
	}
	if d := time.Since(start); d < 2*linger {
		t.Fatalf("took only %v: nothing was tested", d)
	}
	if _, err := app.Read(make([]byte, 1)); !bytes.Equal(got, answer) || !errors.Is(err, io.EOF) {
		t.Errorf("the answer differs, or its end: %v", err)
	}
	app.Close()
	select {
	case r := <-result:
		if r.Down != int64(len(answer)) {
			t.Errorf("%+v", r)
		}
	case <-time.After(deadline):
		t.Fatal("Copy did not return")
	}
}

// TestEndlessTalkerIsReset: a target that goes on sending after the other side has said all and takes nothing more is not
// read for the whole linger time; it is reset.
func TestEndlessTalkerIsReset(t *testing.T) {
	app, near := pairOf(t, "tcp")
	s := newFakeStream()
	s.refuse = errors.New("stopped")
	result := make(chan Result, 1)
	go func() { result <- copyAfter(near, s, nil, deadline) }()
	s.push([]byte("all I have to say"), io.EOF)
	sent := 0
	for {
		n, err := app.Write(make([]byte, 64<<10))
		sent += n
		if err != nil {
			break
		}
		if sent > 64<<20 {
			t.Fatal("64 MiB were taken from a talker nobody listens to")
		}
	}
	select {
	case r := <-result:
		if r.Err == nil {
			t.Errorf("%+v", r)
		}
	case <-time.After(deadline):
		t.Fatal("Copy did not return")
	}
}
