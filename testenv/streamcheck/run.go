package streamcheck

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// greeting begins the first line, which the plan follows as JSON.
	greeting = "streamcheck/1 "
	// mostLine bounds the first line, in bytes.
	mostLine = 4 << 10
	// mostReport bounds the server's half of the report, in bytes.
	mostReport = 16 << 20
)

// Run carries out p as the client on conn and closes it. It returns when both directions have ended or ctx is done; the
// report tells how it went, so that there is no error beside it.
func Run(ctx context.Context, conn net.Conn, p Plan) Report {
	r := &Report{Plan: p, Start: time.Now()}
	stopped := context.AfterFunc(ctx, func() { conn.Close() })
	c := client{conn: conn, r: r, ctx: ctx}
	err := c.run()
	stopped()
	conn.Close()
	r.Took = time.Since(r.Start)
	r.settle()
	switch {
	case ctx.Err() != nil && !r.Whole():
		r.Err = context.Cause(ctx).Error()
	case err != nil:
		r.Err = err.Error()
	}
	return *r
}

type client struct {
	conn net.Conn
	r    *Report
	ctx  context.Context // of the call
	wg   sync.WaitGroup

	mu    sync.Mutex
	trips []trip // messages not yet answered
}

// trip is a message under way.
type trip struct {
	end  int64
	sent time.Time
}

func (c *client) run() error {
	p := &c.r.Plan
	if err := p.check(); err != nil {
		return err
	}
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if _, err := c.conn.Write(append([]byte(greeting), append(line, '\n')...)); err != nil {
		return err
	}
	up, down := keys(p.Seed)
	quit, giveUp := context.WithCancel(c.ctx)
	s := &sender{conn: c.conn, flow: p.Up, key: up, stop: p.Stop, quit: quit.Done()}
	rec := newReceiver(c.conn, p.Down, down, &c.r.Down, c.r.Start, p.Arrivals)
	rec.quit = c.ctx.Done()
	s.hold = !p.Answer && p.Down.Size > 0 && p.Down.endless()
	if p.Answer {
		s.sent, rec.moved = c.sent, c.answered
	}
	c.wg.Go(func() {
		if s.run() == nil {
			closeWrite(c.conn)
		}
	})
	err = rec.run(func(tail []byte) bool { return !c.half(tail) })
	if err == nil {
		err = c.eof()
	}
	giveUp()
	if !rec.v.ended || err != nil {
		c.conn.Close() // ends the sender
	}
	c.wg.Wait()
	c.r.Up.Sent = s.pos
	return err
}

// eof reads the end of the stream, behind the server's half of the report.
func (c *client) eof() error {
	n, err := c.conn.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errors.New("streamcheck: reading the end: bytes came after it")
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("streamcheck: reading the end: %w", err)
	}
	return nil
}

// half takes over the server's half of the report; false when not all of it is there.
func (c *client) half(tail []byte) bool {
	if len(tail) < 4 {
		return false
	}
	size := binary.BigEndian.Uint32(tail)
	if size > mostReport || len(tail) < 4+int(size) {
		return size > mostReport
	}
	var server Report
	if json.Unmarshal(tail[4:4+size], &server) == nil {
		c.r.Up = server.Up
		c.r.Down.Sent = server.Down.Sent
	}
	return true
}

func (c *client) sent(end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips = append(c.trips, trip{end, time.Now()})
}

func (c *client) answered(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for len(c.trips) > 0 && c.trips[0].end <= n {
		if len(c.r.Trips) < mostTrips {
			t := c.trips[0].sent
			c.r.Trips = append(c.r.Trips, Span{t.Sub(c.r.Start), now.Sub(t)})
		}
		c.trips = c.trips[1:]
	}
}

// Serve carries out the plan of the client on conn as the server and closes it. Who closes conn meanwhile ends it. The
// error is for what is no client at all.
func Serve(conn net.Conn) (Report, error) { return serveUntil(nil, conn) }

// serveUntil is Serve whose pauses end with quit, too.
func serveUntil(quit <-chan struct{}, conn net.Conn) (Report, error) {
	defer conn.Close()
	src := bufio.NewReaderSize(conn, mostLine)
	r := &Report{}
	if err := readPlan(src, &r.Plan); err != nil {
		return *r, err
	}
	r.Start = time.Now()
	if err := serve(quit, conn, src, r); err != nil {
		r.Err = err.Error()
	}
	r.Took = time.Since(r.Start)
	return *r, nil
}

func readPlan(src *bufio.Reader, p *Plan) error {
	line, err := src.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("streamcheck: reading the plan: %w", err)
	}
	if len(line) < len(greeting) || string(line[:len(greeting)]) != greeting {
		return errors.New("streamcheck: reading the plan: this is no client of streamcheck")
	}
	if err := json.Unmarshal(line[len(greeting):], p); err != nil {
		return fmt.Errorf("streamcheck: reading the plan: %w", err)
	}
	return p.check()
}

func serve(given <-chan struct{}, conn net.Conn, src io.Reader, r *Report) error {
	p := &r.Plan
	up, down := keys(p.Seed)
	upEnded, quit := make(chan struct{}), make(chan struct{})
	s := &sender{conn: conn, flow: p.Down, key: down, stop: upEnded, quit: quit}
	rec := newReceiver(src, p.Up, up, &r.Up, r.Start, p.Arrivals)
	rec.quit = given
	if p.Answer {
		s.answer = new(progress)
		rec.moved = func(n int64) { s.answer.set(n, false) }
	}
	if !p.Down.endless() {
		s.stop = nil
	}
	var wg sync.WaitGroup
	var sendErr error
	wg.Go(func() { sendErr = s.run() })
	err := rec.run(func([]byte) bool { return false })
	close(upEnded)
	if s.answer != nil {
		s.answer.set(r.Up.Verified, true)
	}
	if err != nil {
		close(quit)
		conn.Close()
	}
	wg.Wait()
	r.Down.Sent = s.pos
	if err = errors.Join(err, sendErr); err != nil {
		return err
	}
	return finish(conn, src, r)
}

// finish sends this half of the report, and waits for the client to leave.
func finish(conn net.Conn, src io.Reader, r *Report) error {
	half, err := json.Marshal(r)
	if err != nil {
		return err
	}
	msg := binary.BigEndian.AppendUint32(nil, uint32(len(half)))
	if _, err := conn.Write(append(msg, half...)); err != nil {
		return err
	}
	if !closeWrite(conn) {
		return nil
	}
	n, err := io.Copy(io.Discard, src)
	if n > 0 {
		r.Up.Repeated += n
		r.Up.fault(Fault{Kind: Foreign, Offset: r.Up.Verified, Bytes: n, At: time.Since(r.Start)})
	}
	if errors.Is(err, syscall.ECONNRESET) {
		err = nil // the client has all and left
	}
	return err
}

// closeWrite ends the writing direction of c; false when c cannot.
func closeWrite(c net.Conn) bool {
	w, ok := c.(interface{ CloseWrite() error })
	return ok && w.CloseWrite() == nil
}

// ServeAll serves each connection of ln until ctx is done, and returns when all have ended; done (nil = nobody) gets each
// report, from any goroutine.
func ServeAll(ctx context.Context, ln net.Listener, done func(Report)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		wg.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			if r, err := serveUntil(ctx.Done(), c); err == nil && done != nil {
				done(r)
			}
		})
	}
}
