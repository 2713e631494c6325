package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// tickEvery is how often the echo app says something, and tickBytes how much.
	tickEvery = 20 * time.Millisecond
	tickBytes = 32
	// endedWait is how much later than its connections the end of a process may be noticed.
	endedWait = 500 * time.Millisecond
)

// downloadApp is a web client as any other: one GET through SOCKS5, with the peer's name left to the proxy.
type downloadApp struct {
	stream *demoStream
	done   chan struct{} // closed when it has ended
	err    error         // how, once done is closed
	sum    hash.Hash     // of what came, once done is closed
	took   time.Duration // likewise
}

func (d *demo) startDownload(ctx context.Context) error {
	_, port, err := net.SplitHostPort(d.webAddr)
	if err != nil {
		return err
	}
	a := &downloadApp{stream: newDemoStream(demoSeed), done: make(chan struct{}), sum: sha256.New()}
	tr := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "socks5h", Host: d.socksAddr}),
		DisableCompression: true, // the bytes as they are
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(demoPeer, port)+"/", nil)
	if err != nil {
		return err
	}
	answered := make(chan error, 1)
	d.download = a
	d.wg.Go(func() {
		defer tr.CloseIdleConnections()
		defer close(a.done)
		a.run(tr, req, answered)
		if a.err != nil {
			d.appEnded(fmt.Errorf("the download has ended: %w", a.err))
		}
	})
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run downloads; answered is told when the body begins, or why it does not.
func (a *downloadApp) run(tr *http.Transport, req *http.Request, answered chan<- error) {
	start := time.Now()
	resp, err := tr.RoundTrip(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("the web server answered %s", resp.Status)
	}
	if err != nil {
		a.err = err
		answered <- err
		return
	}
	defer resp.Body.Close()
	answered <- nil
	buf := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			a.stream.add(time.Now(), buf[:n])
			_, _ = a.sum.Write(buf[:n]) // never fails
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			a.err = err
			return
		}
	}
	a.stream.finish(demoSize)
	a.took = time.Since(start)
}

// echoApp is somebody who types: it says something every tickEvery over one connection to a fixed port, and hears it back.
type echoApp struct {
	stream *demoStream
	conn   net.Conn
	stop   chan struct{} // closed when there is nothing more to say
	done   chan struct{} // closed when both directions have ended
	err    error         // how, once done is closed

	mu     sync.Mutex  // guards the following
	said   []time.Time // when each tick was sent
	late   stallMeter  // of the app's own ticks: what the machine itself adds
	trips  time.Duration
	echoes int
}

func (d *demo) startEcho(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", d.fixedAddr)
	if err != nil {
		return err
	}
	e := &echoApp{stream: newDemoStream(echoSeed), conn: conn, stop: make(chan struct{}), done: make(chan struct{})}
	d.typing = e
	d.later(func() { conn.Close() })
	d.wg.Go(func() {
		defer close(e.done)
		talked := make(chan error, 1)
		go func() { talked <- e.talk(ctx) }()
		err := e.hear()
		conn.Close()
		e.err = errors.Join(err, <-talked)
		if e.err != nil {
			d.appEnded(fmt.Errorf("the echo has ended: %w", e.err))
		}
	})
	return nil
}

// appEnded ends the demo because an app's connection failed; if that is because a process has ended, watch tells so.
func (d *demo) appEnded(err error) {
	t := time.NewTimer(endedWait)
	defer t.Stop()
	select {
	case <-d.host.gone:
	case <-d.up.gone:
	case <-t.C:
		d.fail(fmt.Errorf("%w%s", err, d.up.stderr))
	}
}

// talk says a tick every tickEvery until it is told to stop, then ends its direction.
func (e *echoApp) talk(ctx context.Context) error {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	var b [tickBytes]byte
	for n := uint64(0); ; n++ {
		select {
		case <-t.C:
		case <-e.stop:
			return e.conn.(*net.TCPConn).CloseWrite()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		echoSeed.fill(b[:], n*tickBytes)
		now := time.Now()
		e.mu.Lock()
		e.said = append(e.said, now)
		e.late.tick(now)
		e.mu.Unlock()
		if _, err := e.conn.Write(b[:]); err != nil {
			return fmt.Errorf("typing: %w", err)
		}
	}
}

// hear takes what comes back until the other side ends.
func (e *echoApp) hear() error {
	buf := make([]byte, 4<<10)
	for {
		n, err := e.conn.Read(buf)
		now := time.Now()
		if n > 0 {
			e.heard(now, e.stream.add(now, buf[:n]))
		}
		if errors.Is(err, io.EOF) {
			return e.finish()
		}
		if err != nil {
			return fmt.Errorf("hearing: %w", err)
		}
	}
}

// heard counts the ticks that are back, now that the stream is at a place.
func (e *echoApp) heard(now time.Time, at uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uint64(e.echoes+1)*tickBytes <= at && e.echoes < len(e.said) {
		e.trips = now.Sub(e.said[e.echoes])
		e.echoes++
	}
}

// finish judges the end: nothing may end before it was told to, and all that was said must have come back.
func (e *echoApp) finish() error {
	select {
	case <-e.stop:
	default:
		return errors.New("hearing: the other side closed")
	}
	e.mu.Lock()
	said := uint64(len(e.said)) * tickBytes
	e.mu.Unlock()
	e.stream.finish(said)
	return nil
}

// begin opens a window of the app's own lateness.
func (e *echoApp) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.late.begin()
}

// counts are the ticks sent and back, the round trip of the last one, and how late this machine was at worst in the window.
func (e *echoApp) counts(now time.Time) (said, echoes int, trip, late time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.said), e.echoes, e.trips, max(e.late.worst(now)-2*tickEvery, 0)
}

// startApps starts both; it returns once the download has begun.
func (d *demo) startApps(ctx context.Context) error {
	if err := d.startEcho(ctx); err != nil {
		return fmt.Errorf("the echo: %w", err)
	}
	if err := d.startDownload(ctx); err != nil {
		return fmt.Errorf("the download: %w", err)
	}
	return nil
}

// finishApps lets the download have the rest at full speed and ends the echo; then it waits for both.
func (d *demo) finishApps(ctx context.Context) error {
	d.fast.SetRate(0)
	d.slow.SetRate(0)
	select {
	case <-d.download.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	close(d.typing.stop)
	select {
	case <-d.typing.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return context.Cause(ctx) // an app that failed has said so
}
