package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"unicode"
)

// maxError bounds the text of a failure that is read from the socket.
const maxError = 4 << 10

func failed(resp *http.Response) error {
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	return &Error{Text: strings.TrimSpace(string(b)), Why: resp.Header.Get(headerReason)}
}

// After the answer the stream's bytes go to the client in pieces, as a local socket cannot tell a reset from an end: two
// bytes of length, then as many bytes. A piece of no bytes is the end; what follows it, a class and a text on two lines, says
// why if it was no clean one. A connection that ends without it belongs to a process that died.
const (
	pieceHeader = 2
	maxPiece    = 32 << 10
)

// answering is a stream whose reading side begins with the HTTP answer to CONNECT, once it is known, and goes on in pieces.
type answering struct {
	net.Conn
	ctx  context.Context
	once sync.Once
	out  bytes.Reader // what is ready for the client
	over bool         // nothing comes after it
	buf  []byte
}

func (a *answering) Read(p []byte) (int, error) {
	a.once.Do(a.answer)
	for a.out.Len() == 0 {
		if a.over {
			return 0, io.EOF
		}
		a.piece()
	}
	return a.out.Read(p)
}

// piece makes the next piece of the stream ready.
func (a *answering) piece() {
	if a.buf == nil {
		a.buf = make([]byte, pieceHeader+maxPiece)
	}
	n, err := a.Conn.Read(a.buf[pieceHeader:])
	binary.BigEndian.PutUint16(a.buf, uint16(n))
	b := a.buf[:pieceHeader+n]
	if n == 0 && err == nil {
		return
	}
	if err != nil {
		a.over = true
		if n > 0 {
			b = append(b[:len(b):len(b)], 0, 0)
		}
		if !errors.Is(err, io.EOF) {
			b = fmt.Appendf(b[:len(b):len(b)], "%s\n%s", reason(err), err)
		}
	}
	a.out.Reset(b)
}

// reason is the class of a failure as a word.
func reason(err error) string {
	var classed interface{ Reason() string }
	if errors.As(err, &classed) {
		return classed.Reason()
	}
	return "lost"
}

func (a *answering) answer() {
	var err error
	if w, ok := a.Conn.(interface{ WaitOpened(context.Context) error }); ok {
		err = w.WaitOpened(a.ctx)
	}
	if err == nil {
		a.out.Reset([]byte("HTTP/1.1 200 Connected\r\n\r\n"))
		return
	}
	a.over = true
	text := err.Error()
	a.out.Reset(fmt.Appendf(nil, "HTTP/1.1 502 Bad Gateway\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s",
		headerReason, reason(err), len(text), text))
}

// CloseWrite ends the writing direction.
func (a *answering) CloseWrite() error { return closeWrite(a.Conn) }

// Reset aborts the stream.
func (a *answering) Reset(code uint32) {
	if r, ok := a.Conn.(interface{ Reset(uint32) }); ok {
		r.Reset(code)
		return
	}
	a.Conn.Close()
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// Connect asks for a stream to a target through the running process and returns the connection that will carry it: bytes
// may be written at once, and the first Read tells with an *Error if there is no stream.
func (c *Client) Connect(ctx context.Context, target string) (net.Conn, error) {
	if strings.ContainsFunc(target, unicode.IsControl) {
		return nil, fmt.Errorf("control: connecting to %q: a target has no control characters", target)
	}
	conn, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	const ask = "CONNECT linkproxy:0 HTTP/1.1\r\nHost: linkproxy\r\n" + headerTarget + ": %s\r\n\r\n"
	if _, err := fmt.Fprintf(conn, ask, target); err != nil {
		conn.Close()
		return nil, fmt.Errorf("control: connecting to %s: %w", target, err)
	}
	return &asked{Conn: conn, r: bufio.NewReader(conn)}, nil
}

// asked is a connection on which the answer to CONNECT comes first, then the stream's bytes in pieces.
type asked struct {
	net.Conn
	r       *bufio.Reader
	once    sync.Once
	refusal error // set once
	left    int   // bytes of the running piece
	err     error
}

// WaitOpened returns when the target has answered: nil, or why there is no stream. It may be called beside Read; the end of the
// connection ends it.
func (a *asked) WaitOpened(context.Context) error {
	a.once.Do(a.answered)
	return a.refusal
}

func (a *asked) Read(p []byte) (int, error) {
	if err := a.WaitOpened(context.Background()); err != nil {
		return 0, err
	}
	for a.err == nil && a.left == 0 {
		a.next()
	}
	if a.err != nil {
		return 0, a.err
	}
	n, err := a.r.Read(p[:min(len(p), a.left)])
	a.left -= n
	if err != nil {
		a.err = errDied
		if n == 0 {
			return 0, a.err
		}
	}
	return n, nil
}

// errDied tells that the process that held the stream is gone.
var errDied = &Error{Text: "control: the running linkproxy has ended", Why: "lost"}

func (a *asked) answered() {
	resp, err := http.ReadResponse(a.r, &http.Request{Method: http.MethodConnect})
	switch {
	case err != nil:
		a.refusal = errDied
	case resp.StatusCode != http.StatusOK:
		resp.Body = io.NopCloser(io.LimitReader(a.r, max(resp.ContentLength, 0)))
		a.refusal = failed(resp)
	}
}

// next reads the header of a piece, and why the stream has ended where it has.
func (a *asked) next() {
	var h [pieceHeader]byte
	if _, err := io.ReadFull(a.r, h[:]); err != nil {
		a.err = errDied
		return
	}
	if a.left = int(binary.BigEndian.Uint16(h[:])); a.left > 0 {
		return
	}
	b, _ := io.ReadAll(io.LimitReader(a.r, maxError))
	if why, text, broken := strings.Cut(string(b), "\n"); broken {
		a.err = &Error{Text: text, Why: why}
	} else {
		a.err = io.EOF
	}
}

// CloseWrite ends the writing direction.
func (a *asked) CloseWrite() error { return closeWrite(a.Conn) }
