package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// job is what a load process is told to do, as JSON in its argument.
type job struct {
	Kind    string        // a key of jobKinds
	Addr    string        // near end of the tunnel
	SOCKS   string        // if set, Addr is a SOCKS5 proxy and this the host:port to ask it for
	Streams int           // connections at a time
	Max     int           // most connections (connect) or connections to open (idle)
	For     time.Duration // how long; it ends earlier when standard input does
}

// outcome is what a load process prints, as one line of JSON.
type outcome struct {
	Ready    bool    // not the end yet: bytes are flowing, or all idle connections are open
	Error    string  // why it failed
	Bytes    int64   // received and checked by the end that received them
	Count    int     // connections or round trips
	Seconds  float64 // from the first to the last of them
	P50, P99 float64 // µs
}

// loader does a job.
type loader struct {
	job
	pattern pattern
	ready   func()
}

func jobKinds() map[string]func(*loader, context.Context) (outcome, error) {
	return map[string]func(*loader, context.Context) (outcome, error){
		"down":    func(l *loader, ctx context.Context) (outcome, error) { return l.bulk(ctx, l.down) },
		"up":      func(l *loader, ctx context.Context) (outcome, error) { return l.bulk(ctx, l.up) },
		"connect": (*loader).connect,
		"ping":    (*loader).ping,
		"idle":    (*loader).idle,
	}
}

func loadMain(args []string) error {
	var l loader
	if len(args) != 1 {
		return errors.New("want one argument, a job in JSON")
	}
	if err := json.Unmarshal([]byte(args[0]), &l.job); err != nil {
		return err
	}
	do, ok := jobKinds()[l.Kind]
	if !ok {
		return fmt.Errorf("no such job: %q", l.Kind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.For)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	out := json.NewEncoder(os.Stdout)
	l.pattern = newPattern()
	l.ready = sync.OnceFunc(func() { out.Encode(outcome{Ready: true}) })
	o, err := do(&l, ctx)
	l.ready()
	if err != nil {
		o.Error = err.Error()
	}
	return out.Encode(o)
}

// dial opens a connection through the tunnel, with a deadline on everything.
func (l *loader) dial() (net.Conn, error) {
	const wait = 20 * time.Second
	c, err := net.DialTimeout("tcp", l.Addr, wait)
	if err != nil {
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(l.For + wait))
	if err == nil && l.SOCKS != "" {
		err = socks5(c, l.SOCKS)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// socks5 asks the proxy at c for a connection to address, by name (RFC 1928).
func socks5(c io.ReadWriter, address string) error {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || len(host) > 255 {
		return fmt.Errorf("socks5: bad address %q", address)
	}
	if _, err := c.Write([]byte{5, 1, 0}); err != nil {
		return err
	}
	var method [2]byte
	if _, err := io.ReadFull(c, method[:]); err != nil || method != [2]byte{5, 0} {
		return fmt.Errorf("socks5: greeting answered by % x: %w", method, err)
	}
	request := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	if _, err := c.Write(binary.BigEndian.AppendUint16(request, uint16(port))); err != nil {
		return err
	}
	var reply [10]byte // with an IPv4 address, as the reply has when there is none to tell
	if _, err := io.ReadFull(c, reply[:]); err != nil || reply[1] != 0 || reply[3] != 1 {
		return fmt.Errorf("socks5: request answered by % x: %w", reply, err)
	}
	return nil
}

// bulk runs one on every stream and sums up.
func (l *loader) bulk(ctx context.Context, one func(ctx context.Context, chunk, place int64) (int64, error)) (outcome, error) {
	// Small enough that the streams end together and a slow tunnel ends soon, large enough that the wait for a chunk is
	// never felt: with two ahead, it is some 50 ms of what a fast tunnel carries.
	chunk := int64(8 << 20)
	if l.Streams > 1 {
		chunk = 1 << 20
	}
	began := time.Now()
	total := make([]int64, l.Streams)
	errs := make([]error, l.Streams)
	var wg sync.WaitGroup
	for i := range l.Streams {
		wg.Go(func() { total[i], errs[i] = one(ctx, chunk, int64(i)*7919) }) // streams must not look alike
	}
	wg.Wait()
	o := outcome{Seconds: time.Since(began).Seconds(), Count: l.Streams}
	for _, n := range total {
		o.Bytes += n
	}
	return o, errors.Join(errs...)
}

// ahead is how many chunks are asked for, or sent, before the first has arrived.
const ahead = 2

// down receives chunks until ctx ends, and then those still asked for.
func (l *loader) down(ctx context.Context, chunk, place int64) (int64, error) {
	c, err := l.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write(append(header(serviceSource, chunk, place), make([]byte, ahead)...)); err != nil {
		return 0, err
	}
	buf := make([]byte, blockSize)
	var got int64
	for open := ahead; open > 0; open-- {
		if err := l.pattern.receive(c, buf, place+got, chunk); err != nil {
			return got, fmt.Errorf("after %d bytes: %w", got, err)
		}
		got += chunk
		l.ready()
		if ctx.Err() == nil {
			open++
			if _, err := c.Write([]byte{1}); err != nil {
				return got, err
			}
		}
	}
	return got, nil
}

// up sends chunks until ctx ends, and then waits until all have arrived.
func (l *loader) up(ctx context.Context, chunk, place int64) (int64, error) {
	c, err := l.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write(header(serviceSink, chunk, place)); err != nil {
		return 0, err
	}
	var sent, arrived int64
	for ctx.Err() == nil || sent > arrived || sent == 0 {
		if ctx.Err() == nil || sent == 0 {
			if err := l.pattern.send(c, place+sent, chunk); err != nil {
				return arrived, fmt.Errorf("after %d bytes: %w", sent, err)
			}
			sent += chunk
			if sent-arrived < ahead*chunk {
				continue
			}
		}
		var answer [1]byte
		if _, err := io.ReadFull(c, answer[:]); err != nil {
			return arrived, fmt.Errorf("after %d bytes: %w", arrived, err)
		}
		if answer[0] != chunkRight {
			return arrived, fmt.Errorf("%w, seen by the target after %d", errWrongBytes, arrived)
		}
		arrived += chunk
		l.ready()
	}
	return arrived, nil
}

// greet is the beginning of an echo connection: header and first bytes in one write.
func (l *loader) greet(c net.Conn, n int) error {
	message := l.pattern.at(int64(n), smallSize)
	if _, err := c.Write(append(header(serviceEcho, 0, 0), message...)); err != nil {
		return err
	}
	return l.expect(c, message)
}

func (l *loader) expect(c net.Conn, message []byte) error {
	var got [smallSize]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return err
	}
	if !bytes.Equal(got[:], message) {
		return errWrongBytes
	}
	return nil
}

// connect opens a connection, gets one echo and closes it, again and again, on Streams of them at a time.
func (l *loader) connect(ctx context.Context) (outcome, error) {
	began := time.Now()
	samples := make([][]float64, l.Streams)
	errs := make([]error, l.Streams)
	var wg sync.WaitGroup
	for i := range l.Streams {
		wg.Go(func() {
			for n := 0; (n == 0 || ctx.Err() == nil) && n < l.Max/l.Streams && errs[i] == nil; n++ {
				start := time.Now()
				c, err := l.dial()
				if err == nil {
					err = l.greet(c, n)
					samples[i] = append(samples[i], float64(time.Since(start).Microseconds()))
					c.Close()
				}
				errs[i] = err
			}
		})
	}
	wg.Wait()
	o := outcome{Seconds: time.Since(began).Seconds()}
	var all []float64
	for _, s := range samples {
		all = append(all, s...)
	}
	o.Count, o.P50, o.P99 = len(all), percentile(all, 50), percentile(all, 99)
	return o, errors.Join(errs...)
}

// ping sends 64 bytes and waits for them, again and again.
func (l *loader) ping(ctx context.Context) (outcome, error) {
	const warmUp = 20
	c, err := l.dial()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	if err := l.greet(c, 0); err != nil {
		return outcome{}, err
	}
	began := time.Now()
	var all []float64
	for n := 1; ctx.Err() == nil || n <= 2*warmUp; n++ {
		message := l.pattern.at(int64(n), smallSize)
		start := time.Now()
		if _, err := c.Write(message); err != nil {
			return outcome{}, err
		}
		if err := l.expect(c, message); err != nil {
			return outcome{}, err
		}
		if n > warmUp {
			all = append(all, float64(time.Since(start).Nanoseconds())/1e3)
		}
	}
	return outcome{
		Seconds: time.Since(began).Seconds(), Count: len(all), P50: percentile(all, 50), P99: percentile(all, 99),
	}, nil
}

// idle opens Max connections, each with one echo, says so, waits for ctx, and makes sure that they are still alive,
// by trying one in ten.
func (l *loader) idle(ctx context.Context) (outcome, error) {
	began := time.Now()
	conns := make([]net.Conn, l.Max)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	errs := make([]error, l.Streams)
	var wg sync.WaitGroup
	for i := range l.Streams {
		wg.Go(func() {
			for n := i; n < l.Max && errs[i] == nil && ctx.Err() == nil; n += l.Streams {
				if conns[n], errs[i] = l.dial(); errs[i] == nil {
					errs[i] = l.greet(conns[n], n)
				}
			}
		})
	}
	wg.Wait()
	o := outcome{Seconds: time.Since(began).Seconds(), Count: l.Max}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	if ctx.Err() != nil {
		return o, fmt.Errorf("%d connections were not open after %v", l.Max, l.For)
	}
	l.ready()
	<-ctx.Done()
	for n := 0; n < len(conns); n += 10 {
		c := conns[n]
		message := l.pattern.at(int64(n)+1, smallSize)
		if _, err := c.Write(message); err != nil {
			return o, fmt.Errorf("idle connection %d: %w", n, err)
		}
		if err := l.expect(c, message); err != nil {
			return o, fmt.Errorf("idle connection %d: %w", n, err)
		}
	}
	return o, nil
}
