package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// The target offers three services on one port, because a tunnel is set up for one port. A client begins with a
// header: the service, then the size of a chunk and the place in the pattern where to begin, both as 8 bytes.
const (
	serviceEcho   = 'E' // sends back what it gets
	serviceSource = 'D' // sends one chunk for each byte it gets
	serviceSink   = 'U' // takes chunks, answers each with chunkRight or chunkWrong
	headerSize    = 1 + 8 + 8

	chunkRight = 'k'
	chunkWrong = 'x'

	blockSize = 256 << 10 // per read and write of bulk data: large, to spend the machine's time in the tunnel
	sample    = 64        // bytes checked at both ends of each block read
	smallSize = 64        // bytes in an echo

	connLimit = 5 * time.Minute // no connection of a run lasts longer
)

// header is the first thing a client sends.
func header(service byte, chunk, place int64) []byte {
	h := binary.BigEndian.AppendUint64([]byte{service}, uint64(chunk))
	return binary.BigEndian.AppendUint64(h, uint64(place))
}

// patternLen is prime, so that a block that was lost, repeated or moved shows at once.
const patternLen = 65537

// pattern is an endless sequence of bytes that repeats after patternLen.
type pattern []byte

func newPattern() pattern {
	p := make(pattern, patternLen+blockSize)
	r := rand.NewChaCha8([32]byte([]byte("linkproxy bench, pattern of bulk")))
	r.Read(p[:patternLen])
	for filled := patternLen; filled < len(p); {
		filled += copy(p[filled:], p[:filled])
	}
	return p
}

// at returns n ≤ blockSize bytes of the sequence from place on.
func (p pattern) at(place int64, n int) []byte { return p[place%patternLen:][:n] }

var errWrongBytes = errors.New("bytes are not those that were sent")

// check compares both ends of block with the sequence from place on.
func (p pattern) check(block []byte, place int64) error {
	n := min(sample, len(block))
	tail := len(block) - n
	if !bytes.Equal(block[:n], p.at(place, n)) || !bytes.Equal(block[tail:], p.at(place+int64(tail), n)) {
		return fmt.Errorf("%w, at %d", errWrongBytes, place)
	}
	return nil
}

// send writes n bytes of the sequence from place on.
func (p pattern) send(w io.Writer, place, n int64) error {
	for n > 0 {
		block := p.at(place, int(min(n, blockSize)))
		if _, err := w.Write(block); err != nil {
			return err
		}
		place, n = place+int64(len(block)), n-int64(len(block))
	}
	return nil
}

// receive reads n bytes and checks them against the sequence from place on; buf is room for a block.
func (p pattern) receive(r io.Reader, buf []byte, place, n int64) error {
	for n > 0 {
		got, err := r.Read(buf[:min(n, int64(len(buf)))])
		if err := p.check(buf[:got], place); err != nil {
			return err
		}
		place, n = place+int64(got), n-int64(got)
		if err != nil && n > 0 {
			return err
		}
	}
	return nil
}

// targetMain serves until standard input ends.
func targetMain([]string) error {
	ln, err := listenAndTell()
	if err != nil {
		return err
	}
	t := &target{pattern: newPattern()}
	return serve(ln, t.serve)
}

type target struct{ pattern pattern }

// serve is the goroutine of one connection.
func (t *target) serve(c net.Conn) {
	defer c.Close()
	h := make([]byte, headerSize)
	if err := c.SetDeadline(time.Now().Add(connLimit)); err != nil {
		return
	}
	if _, err := io.ReadFull(c, h); err != nil {
		return
	}
	chunk := int64(binary.BigEndian.Uint64(h[1:]))
	place := int64(binary.BigEndian.Uint64(h[9:]))
	switch h[0] {
	case serviceEcho:
		echo(c)
	case serviceSource:
		t.source(c, chunk, place)
	case serviceSink:
		t.sink(c, chunk, place)
	}
}

func echo(c net.Conn) {
	buf := make([]byte, 4<<10)
	for {
		n, err := c.Read(buf)
		if _, werr := c.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (t *target) source(c net.Conn, chunk, place int64) {
	for want := make([]byte, 1); ; place += chunk {
		if _, err := c.Read(want); err != nil {
			return
		}
		if err := t.pattern.send(c, place, chunk); err != nil {
			return
		}
	}
}

func (t *target) sink(c net.Conn, chunk, place int64) {
	buf := make([]byte, blockSize)
	for ; ; place += chunk {
		err := t.pattern.receive(c, buf, place, chunk)
		if errors.Is(err, errWrongBytes) {
			c.Write([]byte{chunkWrong})
			io.Copy(io.Discard, c) // a close with bytes unread would overtake the answer
		}
		if err != nil {
			return
		}
		if _, err := c.Write([]byte{chunkRight}); err != nil {
			return
		}
	}
}
