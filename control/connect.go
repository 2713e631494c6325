package control

import (
	"bufio"
	"bytes"
	"context"
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

// answering is a stream whose reading side begins with the HTTP answer to CONNECT, once it is known.
type answering struct {
	net.Conn
	ctx  context.Context
	once sync.Once
	head bytes.Reader
	err  error
}

func (a *answering) Read(p []byte) (int, error) {
	a.once.Do(a.answer)
	if a.head.Len() > 0 {
		return a.head.Read(p)
	}
	if a.err != nil {
		return 0, io.EOF // the answer said it all
	}
	return a.Conn.Read(p)
}

func (a *answering) answer() {
	if w, ok := a.Conn.(interface{ WaitOpened(context.Context) error }); ok {
		a.err = w.WaitOpened(a.ctx)
	}
	if a.err == nil {
		a.head.Reset([]byte("HTTP/1.1 200 Connected\r\n\r\n"))
		return
	}
	why := "lost"
	var classed interface{ Reason() string }
	if errors.As(a.err, &classed) {
		why = classed.Reason()
	}
	text := a.err.Error()
	a.head.Reset(fmt.Appendf(nil, "HTTP/1.1 502 Bad Gateway\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s", headerReason, why, len(text), text))
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

// asked is a connection on which the answer to CONNECT comes before the stream's bytes.
type asked struct {
	net.Conn
	r    *bufio.Reader
	once sync.Once
	err  error
}

func (a *asked) Read(p []byte) (int, error) {
	a.once.Do(func() {
		resp, err := http.ReadResponse(a.r, &http.Request{Method: http.MethodConnect})
		switch {
		case err != nil:
			a.err = &Error{Text: "control: linkproxy ended before it answered", Why: "lost"}
		case resp.StatusCode != http.StatusOK:
			resp.Body = io.NopCloser(io.LimitReader(a.r, max(resp.ContentLength, 0)))
			a.err = failed(resp)
		}
	})
	if a.err != nil {
		return 0, a.err
	}
	return a.r.Read(p)
}

// CloseWrite ends the writing direction.
func (a *asked) CloseWrite() error { return closeWrite(a.Conn) }
