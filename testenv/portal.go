package testenv

import (
	"bufio"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"
)

// tlsHandshake is the first byte of a connection by TLS: RFC 8446 section 5.1.
const tlsHandshake = 22

// moved is what a captive portal answers.
const moved = "HTTP/1.1 302 Found\r\nLocation: https://portal.example/\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// Portal is a captive portal: it answers every port of every address that is dialled from its network, TLS with a
// certificate of its own, and then says where to log in.
type Portal struct {
	w    *World
	net  string
	cert tls.Certificate
	l    *listener
	wg   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	over  bool
}

// Portal starts a captive portal in a network. It takes over new connections only. The caller closes it.
func (w *World) Portal(network string) *Portal {
	p := &Portal{w: w, net: network, cert: portalCertificate(w.seed), conns: make(map[net.Conn]bool)}
	p.l = &listener{mu: &w.mu, sig: &w.sig, addr: Addr("portal of " + network), leave: func() { delete(w.portals, network) }}
	w.change(func(time.Time) {
		w.note("%s: a captive portal answers", network)
		w.portals[network] = p.l
	})
	p.wg.Add(1)
	go p.acceptLoop()
	return p
}

// Certificate is what the portal shows to all.
func (p *Portal) Certificate() *x509.Certificate { return p.cert.Leaf }

// Close lets traffic pass again, as after a login; connections to the portal are reset. It returns when all is gone.
func (p *Portal) Close() error {
	p.w.Note("%s: the captive portal lets pass", p.net)
	err := p.l.Close()
	p.mu.Lock()
	p.over = true
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range conns {
		c.(*Conn).Reset(0)
	}
	p.wg.Wait()
	return err
}

func (p *Portal) acceptLoop() {
	defer p.wg.Done()
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		if !p.enlist(c) {
			c.(*Conn).Reset(0)
			return
		}
		p.wg.Go(func() {
			defer p.dismiss(c)
			p.answer(c)
		})
	}
}

func (p *Portal) enlist(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.conns[c] = true
	}
	return !p.over
}

func (p *Portal) dismiss(c net.Conn) {
	_ = c.Close() // reset already, when the portal closes
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// answer serves one connection: whatever is asked, it tells where to log in.
func (p *Portal) answer(c net.Conn) {
	first := peeked{Conn: c, r: bufio.NewReader(c)}
	b, err := first.r.Peek(1)
	if err != nil {
		return
	}
	var conn net.Conn = first
	if b[0] == tlsHandshake {
		t := tls.Server(first, &tls.Config{Certificates: []tls.Certificate{p.cert}, MinVersion: tls.VersionTLS12})
		if t.Handshake() != nil {
			return
		}
		defer t.Close()
		conn = t
	}
	if _, err := conn.Read(make([]byte, 4096)); err == nil {
		_, _ = conn.Write([]byte(moved)) // a client that has left does not care
	}
}

// peeked is a connection that some bytes were looked at of.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (c peeked) Read(p []byte) (int, error) { return c.r.Read(p) }

func portalCertificate(seed uint64) tls.Certificate {
	sum := sha256.Sum256(fmt.Appendf(nil, "captive portal %d", seed))
	key := ed25519.NewKeyFromSeed(sum[:])
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "portal.example"}, DNSNames: []string{"portal.example"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		panic(fmt.Sprintf("testenv: making the portal's certificate: %v", err)) // the input is ours and right
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(fmt.Sprintf("testenv: making the portal's certificate: %v", err))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
