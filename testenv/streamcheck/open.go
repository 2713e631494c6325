package streamcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Dial connects to address, host:port, by plain TCP.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, "tcp", address)
}

// DialSOCKS5 connects to target through the SOCKS5 proxy at address; the proxy resolves the name. See [SOCKS5].
func DialSOCKS5(ctx context.Context, address, target, user string) (net.Conn, error) {
	return through(ctx, address, func(c net.Conn) error { return SOCKS5(c, target, user) })
}

// DialHTTP connects to target through the HTTP proxy at address. See [Connect].
func DialHTTP(ctx context.Context, address, target string) (net.Conn, error) {
	return through(ctx, address, func(c net.Conn) error { return Connect(c, target) })
}

func through(ctx context.Context, address string, handshake func(net.Conn) error) (net.Conn, error) {
	c, err := Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = handshake(c)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// ProxyError is the refusal of a proxy.
type ProxyError struct {
	Code int    // of SOCKS5 (RFC 1928 section 6) or HTTP
	Text string // what the proxy said; empty from SOCKS5
}

func (e *ProxyError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("streamcheck: opening through a proxy: it answered %d %s", e.Code, e.Text))
}

// SOCKS5 asks the proxy at the other end of c for target, host:port, as RFC 1928 says; with a user it offers RFC 1929,
// with an empty password. The error may be a [*ProxyError].
func SOCKS5(c net.Conn, target, user string) error {
	host, portText, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || len(host) > 255 || len(user) > 255 {
		return fmt.Errorf("streamcheck: opening through a proxy: %q is no target", target)
	}
	hello := []byte{5, 1, 0}
	if user != "" {
		hello = []byte{5, 1, 2}
	}
	chosen, err := ask(c, hello, 2)
	if err != nil {
		return err
	}
	if chosen[0] != 5 || chosen[1] != hello[2] {
		return &ProxyError{Code: int(chosen[1]), Text: "to the choice of method"}
	}
	if user != "" {
		answer, err := ask(c, append(append([]byte{1, byte(len(user))}, user...), 0), 2)
		if err != nil {
			return err
		}
		if answer[1] != 0 {
			return &ProxyError{Code: int(answer[1]), Text: "to the user's name"}
		}
	}
	request := append(append([]byte{5, 1, 0, 3, byte(len(host))}, host...), byte(port>>8), byte(port))
	answer, err := ask(c, request, 4)
	if err != nil {
		return err
	}
	if answer[1] != 0 {
		return &ProxyError{Code: int(answer[1])}
	}
	return skipAddress(c, answer[3])
}

// skipAddress reads the bound address and port of a reply.
func skipAddress(c net.Conn, kind byte) error {
	size := map[byte]int{1: net.IPv4len, 4: net.IPv6len}[kind]
	if kind == 3 {
		n, err := ask(c, nil, 1)
		if err != nil {
			return err
		}
		size = int(n[0])
	}
	_, err := ask(c, nil, size+2)
	return err
}

// ask writes msg and reads an answer of n bytes.
func ask(c net.Conn, msg []byte, n int) ([]byte, error) {
	if len(msg) > 0 {
		if _, err := c.Write(msg); err != nil {
			return nil, err
		}
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(c, answer)
	return answer, err
}

// Connect asks the HTTP proxy at the other end of c for target by CONNECT (RFC 9110 section 9.3.6). The error may be a
// [*ProxyError].
func Connect(c net.Conn, target string) error {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return err
	}
	// Byte by byte: what follows the header is the stream's.
	head, b := "", make([]byte, 1)
	for !strings.HasSuffix(head, "\r\n\r\n") {
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		if head += string(b); len(head) > mostLine {
			return errors.New("streamcheck: opening through a proxy: its answer has no end")
		}
	}
	major, minor, ok := 0, 0, false
	version, status, _ := strings.Cut(head[:strings.Index(head, "\r\n")], " ")
	if major, minor, ok = http.ParseHTTPVersion(version); !ok || major != 1 || minor > 1 || len(status) < 3 {
		return errors.New("streamcheck: opening through a proxy: its answer is not HTTP")
	}
	code, err := strconv.Atoi(status[:3])
	if err != nil || code != http.StatusOK {
		return &ProxyError{Code: code, Text: strings.TrimSpace(status[3:])}
	}
	return nil
}
