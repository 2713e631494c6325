package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// tls-relay, the yardstick: what encryption and two more hops cost when nothing else is done. plain TCP → TLS 1.3 →
// plain TCP, one TLS connection for each of the app's, no multiplexing, no resuming.

// relayNear takes plain connections and passes each on over TLS: relay-near FAR OWN.pem PEER.pem
func relayNear(args []string) error {
	return relay(args, func(ln net.Listener, to string, conf *tls.Config) error {
		return serve(ln, func(c net.Conn) {
			out, err := tls.Dial("tcp", to, conf)
			if err != nil {
				fmt.Fprintln(os.Stderr, "relay-near:", err)
				c.Close()
				return
			}
			join(c.(*net.TCPConn), out)
		})
	})
}

// relayFar takes TLS connections and passes each on in the plain: relay-far TARGET OWN.pem PEER.pem
func relayFar(args []string) error {
	return relay(args, func(ln net.Listener, to string, conf *tls.Config) error {
		return serve(tls.NewListener(ln, conf), func(c net.Conn) {
			out, err := net.Dial("tcp", to)
			if err != nil {
				fmt.Fprintln(os.Stderr, "relay-far:", err)
				c.Close()
				return
			}
			join(c.(*tls.Conn), out.(*net.TCPConn))
		})
	})
}

func relay(args []string, body func(ln net.Listener, to string, conf *tls.Config) error) error {
	if len(args) != 3 {
		return errors.New("want three arguments: address, own certificate and key, peer's certificate")
	}
	own, err := tls.LoadX509KeyPair(args[1], args[1])
	if err != nil {
		return err
	}
	peer, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(peer)
	ln, err := listenAndTell()
	if err != nil {
		return err
	}
	return body(ln, args[0], &tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		ServerName: certName, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// join copies both ways until both ends have ended.
func join(a, b halfCloser) {
	var wg sync.WaitGroup
	one := func(dst, src halfCloser) {
		// The wrappers hide ReadFrom and WriteTo: it is this buffer that is copied through.
		io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 32<<10))
		dst.CloseWrite()
	}
	wg.Go(func() { one(a, b) })
	one(b, a)
	wg.Wait()
	a.Close()
	b.Close()
}
