package testenv

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPortal(t *testing.T) {
	inWorld(t, func(t *testing.T, p *places) {
		old := p.dial(t, devboxAddr)
		p.w.Link("home", "home").SetDelay(2 * ms)
		portal := p.w.Portal("home")
		wantTrip(t, old, 20*ms) // a firewall that knows the connection
		for _, address := range []string{devboxAddr, nobodysAddr, "192.0.2.1:443"} {
			c := p.dial(t, address)
			roots := x509.NewCertPool()
			roots.AddCert(portal.Certificate())
			client := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "portal.example"})
			start := time.Now()
			if err := client.Handshake(); err != nil || time.Since(start) != 4*ms {
				t.Errorf("%s: handshake: %v after %v", address, err, time.Since(start))
			}
			write(t, client, "GET / HTTP/1.1\r\n\r\n")
			if answer, _ := io.ReadAll(client); !strings.HasPrefix(string(answer), "HTTP/1.1 302") {
				t.Errorf("%s: answered %q", address, answer)
			}
		}
		wrong := tls.Client(p.dial(t, devboxAddr), &tls.Config{ServerName: "devbox.example", RootCAs: x509.NewCertPool()})
		if err := wrong.Handshake(); err == nil {
			t.Error("the portal passed for the peer")
		}
		plain := p.dial(t, devboxAddr)
		write(t, plain, "GET / HTTP/1.1\r\n\r\n")
		if answer, err := io.ReadAll(plain); !strings.HasPrefix(string(answer), "HTTP/1.1 302") || err != nil {
			t.Errorf("by HTTP: %q, %v", answer, err)
		}
		waiting := p.dial(t, devboxAddr)
		bound, err := p.wwan.Dial(t.Context(), "tcp", devboxAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer bound.Close()
		wantTrip(t, bound, 60*ms) // another network has no portal
		time.Sleep(sec)
		if err := portal.Close(); err != nil {
			t.Error(err)
		}
		if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after the login: %v", err)
		}
		if err := portal.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		wantTrip(t, p.dial(t, devboxAddr), 20*ms)
	})
}
