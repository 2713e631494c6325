package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stream is a connection that knows whether its target answered.
type stream struct {
	net.Conn
	opened chan error
}

func (s *stream) WaitOpened(ctx context.Context) error {
	select {
	case err := <-s.opened:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

type classed struct{ text, why string }

func (e *classed) Error() string  { return e.text }
func (e *classed) Reason() string { return e.why }

// start serves s on a socket in a short folder: a Unix socket's path has little room.
func start(t *testing.T, s *Server) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := Listen(dir, "up")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return NewClient(dir, "up")
}

func TestStatusUseDrop(t *testing.T) {
	want := Status{Role: "up", PID: 7, Peers: []Peer{{Name: "devbox", State: "connected", Links: []Link{{ID: "ab"}}}}}
	var used, dropped string
	c := start(t, &Server{
		Status: func() Status { return want },
		Use: func(_ context.Context, peer, route string, only bool) error {
			used = fmt.Sprint(peer, " ", route, " ", only)
			return nil
		},
		Drop: func(link string) error {
			dropped = link
			return &classed{"no such link", "not_found"}
		},
	})
	got, err := c.Status(t.Context())
	if err != nil || got.PID != 7 || len(got.Peers) != 1 || got.Peers[0].Links[0].ID != "ab" {
		t.Fatalf("status: %+v, %v", got, err)
	}
	if err := c.Use(t.Context(), "devbox", "lan:1.2.3.4:5&x=1", true); err != nil || used != "devbox lan:1.2.3.4:5&x=1 true" {
		t.Fatalf("use: %v, the server got %q", err, used)
	}
	err = c.Drop(t.Context(), "ab")
	var e *Error
	if !errors.As(err, &e) || e.Why != "not_found" || e.Text != "no such link" || dropped != "ab" {
		t.Fatalf("drop: %v, the server got %q", err, dropped)
	}
}

func TestNobodyRuns(t *testing.T) {
	if _, err := NewClient(t.TempDir(), "up").Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("got %v", err)
	}
}

func TestUnknownRequest(t *testing.T) {
	c := start(t, &Server{})
	var e *Error
	if _, err := c.Status(t.Context()); !errors.As(err, &e) || !strings.Contains(e.Text, "no such request") {
		t.Fatalf("got %v", err)
	}
}

// connectTo serves CONNECT with one end of a pipe and hands out the other.
func connectTo(t *testing.T, opened chan error) (*Client, net.Conn) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	c := start(t, &Server{
		Connect: func(_ context.Context, target string) (net.Conn, error) {
			if target != "devbox/db.internal:5432" {
				return nil, &classed{"no peer " + target, "unknown_peer"}
			}
			return &stream{near, opened}, nil
		},
		Copy: func(client, s net.Conn) {
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = io.Copy(s, client); s.Close() })
			_, _ = io.Copy(client, s)
			client.Close()
			wg.Wait()
		},
	})
	return c, far
}

// TestConnectCarriesBytesBeforeTheAnswer: what the client sends reaches the stream before its target has answered.
func TestConnectCarriesBytesBeforeTheAnswer(t *testing.T) {
	opened := make(chan error)
	c, far := connectTo(t, opened)
	conn, err := c.Connect(t.Context(), "devbox/db.internal:5432")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	_ = far.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(far, b); err != nil || string(b) != "hello" {
		t.Fatalf("the stream got %q, %v", b, err)
	}
	opened <- nil
	go func() { _, _ = far.Write([]byte("world")); far.Close() }()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "world" {
		t.Fatalf("the client got %q, %v", got, err)
	}
}

// TestConnectOfAClientThatSaysNothing: one that half-closes at once, as with its standard input at its end, still gets its
// stream, and hears what the target says.
func TestConnectOfAClientThatSaysNothing(t *testing.T) {
	const noticed = 100 * time.Millisecond // by then package http would have cancelled the request
	near, far := net.Pipe()
	defer far.Close()
	opened := make(chan error, 1)
	opened <- nil
	c := start(t, &Server{
		Connect: func(ctx context.Context, _ string) (net.Conn, error) {
			timer := time.NewTimer(noticed)
			defer timer.Stop()
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-timer.C:
				return &stream{near, opened}, nil
			}
		},
		Copy: func(client, s net.Conn) {
			_, _ = io.Copy(client, s) // what came is judged below
			client.Close()
			s.Close()
		},
	})
	conn, err := c.Connect(t.Context(), "devbox:22")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := closeWrite(conn); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = far.Write([]byte("hello")); far.Close() }()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("the client got %q, %v", got, err)
	}
}

// broken is a stream whose reading fails after some bytes.
type broken struct{ net.Conn }

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = &classed{"the peer was restarted", "lost"}
	}
	return n, err
}

// TestConnectTellsABreakFromAnEnd: a stream that breaks after it was open must not look like one that has ended.
func TestConnectTellsABreakFromAnEnd(t *testing.T) {
	near, far := net.Pipe()
	c := start(t, &Server{
		Connect: func(context.Context, string) (net.Conn, error) { return &broken{near}, nil },
		Copy: func(client, s net.Conn) {
			_, _ = io.Copy(client, s)
			client.Close()
		},
	})
	conn, err := c.Connect(t.Context(), "devbox:22")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = far.Write([]byte("half")); far.Close() }()
	got, err := io.ReadAll(conn)
	var e *Error
	if string(got) != "half" || !errors.As(err, &e) || e.Why != "lost" || e.Text != "the peer was restarted" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestConnectRefused(t *testing.T) {
	opened := make(chan error, 1)
	c, far := connectTo(t, opened)
	opened <- &classed{"nothing listens there", "refused"}
	for target, want := range map[string]Error{
		"devbox/db.internal:5432": {"nothing listens there", "refused"},
		"nobody:22":               {"no peer nobody:22", "unknown_peer"},
	} {
		conn, err := c.Connect(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
		var e *Error
		if !errors.As(err, &e) || *e != want {
			t.Errorf("%s: %v, want %v", target, err, want)
		}
		conn.Close()
	}
	far.Close()
	if _, err := c.Connect(t.Context(), "devbox:22\r\nX: y"); err == nil {
		t.Error("a target with a line break was accepted")
	}
}

func TestWhyAndCheck(t *testing.T) {
	c := start(t, &Server{
		Why: func(_ context.Context, peer string) (Why, error) {
			if peer != "devbox" {
				return Why{}, &classed{"no peer is named " + peer, "unknown_peer"}
			}
			return Why{Peer: peer, Now: "on lan", Decisions: []Decision{{What: "race", Facts: []Fact{{"tailnet", "no"}}}}}, nil
		},
		Check: func(_ context.Context, peer string) ([]Checked, error) {
			return []Checked{{Route: peer, Works: true, RoundTripMicros: 4000}}, nil
		},
	})
	why, err := c.Why(t.Context(), "devbox")
	if err != nil || why.Now != "on lan" || len(why.Decisions) != 1 || why.Decisions[0].Facts[0].Value != "no" {
		t.Errorf("why: %+v, %v", why, err)
	}
	var e *Error
	if _, err := c.Why(t.Context(), "devbx"); !errors.As(err, &e) || e.Why != "unknown_peer" {
		t.Errorf("why of nobody: %v", err)
	}
	list, err := c.Check(t.Context(), "a&b")
	if err != nil || len(list) != 1 || list[0].Route != "a&b" || list[0].RoundTripMicros != 4000 {
		t.Errorf("check: %+v, %v", list, err)
	}
}

// following serves events, and hands out where they come from.
func following(t *testing.T, ctx context.Context) (c *Client, source chan Event, left chan struct{}, ended chan error) {
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := Listen(dir, "up")
	if err != nil {
		t.Fatal(err)
	}
	source, left, ended = make(chan Event), make(chan struct{}), make(chan error, 1)
	s := &Server{Events: func(ctx context.Context, follow bool, send func(Event) error) error {
		defer close(left)
		err := send(Event{Peer: "devbox", Decision: Decision{What: "kept"}})
		for follow && err == nil {
			select {
			case e := <-source:
				err = send(e)
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return err
	}}
	go func() { ended <- s.Serve(ctx, ln) }()
	return NewClient(dir, "up"), source, left, ended
}

func TestEventsThatAreKept(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _, _, ended := following(t, ctx)
	var got []Event
	if err := c.Events(t.Context(), false, func(e Event) error { got = append(got, e); return nil }); err != nil {
		t.Error(err)
	}
	if len(got) != 1 || got[0].Peer != "devbox" || got[0].What != "kept" {
		t.Errorf("got %+v", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEventsEndWithTheServer: who follows hears each event at once, and a clean end.
func TestEventsEndWithTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, source, left, ended := following(t, ctx)
	heard, done := make(chan Event), make(chan error, 1)
	go func() { done <- c.Events(t.Context(), true, func(e Event) error { heard <- e; return nil }) }()
	if e := <-heard; e.What != "kept" {
		t.Errorf("first came %+v", e)
	}
	for i := range 3 {
		source <- Event{Peer: "devbox", Missed: i}
		if e := <-heard; e.Missed != i {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	cancel()
	<-left
	if err := <-done; err != nil {
		t.Errorf("the reader ends with %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ends with %v", err)
	}
}

// TestEventsEndWithTheReader: one that leaves is noticed though nothing happens.
func TestEventsEndWithTheReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _, left, ended := following(t, ctx)
	enough := errors.New("enough")
	if err := c.Events(t.Context(), true, func(Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	<-left
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEventsOfAReaderThatDoesNotRead: it does not keep the server from ending.
func TestEventsOfAReaderThatDoesNotRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, source, left, ended := following(t, ctx)
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/events?follow HTTP/1.1\r\nHost: linkproxy\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	big := Event{Decision: Decision{What: strings.Repeat("x", 1<<20)}}
	source <- big // is taken, and stays half written
	cancel()
	<-left
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
