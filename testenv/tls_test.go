package testenv

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// TestTLSFirstByteAfterFiveDelays: the world has the physics that links count on. TCP takes one round trip, TLS 1.3
// one more, and the first byte half of one: 2.5 R = 5 one-way delays.
func TestTLSFirstByteAfterFiveDelays(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	world(t, 10*ms, func(t *testing.T, n *Net, _ *Route, ln net.Listener) {
		start := time.Now()
		arrived := make(chan time.Duration, 1)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			server := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true})
			if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
				t.Error(err)
			}
			arrived <- time.Since(start)
			server.Close()
		}()
		c, err := n.Dial(t.Context(), "192.0.2.7:443")
		if err != nil {
			t.Fatal(err)
		}
		client := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		write(t, client, "x")
		if at := <-arrived; at != 50*ms {
			t.Errorf("the first byte arrived at %v, want 50 ms", at)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF || time.Since(start) != 60*ms {
			t.Errorf("Read: %v at %v, want EOF at 60 ms", err, time.Since(start))
		}
		client.Close()
	})
}
