package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/testenv"
)

const (
	demoPeer = "devbox"
	// maxSocket is the longest path of a Unix socket that every system takes.
	maxSocket = 103
	// demoSize is the download, in bytes: at demoRate it lasts longer than all events together.
	demoSize = 256_000_000
	// demoRate is what each route carries, in bytes a second, so that there are always bytes on their way.
	demoRate = 16 << 20
	// demoSeed and echoSeed make what is downloaded and what is typed.
	demoSeed = demoBytes(0x6c696e6b70726f78)
	echoSeed = demoBytes(0x6563686f6563686f)
)

// demoRoute is one of the two emulated routes.
type demoRoute struct {
	*testenv.Path
	id    string // as the config names it
	label string // as the demo names it: its round trip
}

// String is the route as the demo names it.
func (r *demoRoute) String() string {
	if r == nil {
		return "another"
	}
	return r.label
}

// demo is a running demo: two machines, two routes between them, the targets on the one and the apps on the other.
type demo struct {
	dir      string
	exe      string
	fault    string // planted, or empty
	progress *progress
	start    time.Time

	host, up   *demoSide
	fast, slow *demoRoute
	web        *http.Server
	echo       net.Listener
	socksAddr  string
	fixedAddr  string
	webAddr    string

	fail context.CancelCauseFunc // ends the demo from anywhere
	wg   sync.WaitGroup          // servers, apps, watchers
	hash chan string             // the SHA-256 that the download must have
	ends []func()                // what setting up has to undo, in order of making

	download *downloadApp
	typing   *echoApp

	mu     sync.Mutex        // guards the following
	routes map[uint64]string // of the carriers seen, by generation
	using  string            // the route in use, as last seen
}

// cleanup undoes all of set-up, last first, and waits for every goroutine and process.
func (d *demo) cleanup() {
	if d.web != nil {
		_ = d.web.Close() // first: a host that ends gives a target that goes on sending some time
	}
	for i := len(d.ends) - 1; i >= 0; i-- {
		d.ends[i]()
	}
	d.wg.Wait()
}

func (d *demo) later(f func()) { d.ends = append(d.ends, f) }

// setUp makes the world up to two paired machines with both apps running.
func (d *demo) setUp(ctx context.Context) error {
	steps := []struct {
		doing string
		do    func(context.Context) error
	}{
		{"making a folder", d.makeSides},
		{"starting the targets", d.startTargets},
		{"starting `linkproxy host`", d.startHost},
		{"pairing", d.pair},
		{"writing the client's config", d.writeRoutes},
		{"starting `linkproxy up`", d.startUp},
		{"starting the apps", d.startApps},
	}
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("demo: %s: %w", s.doing, err)
		}
	}
	return nil
}

func (d *demo) makeSides(context.Context) error {
	dir, err := os.MkdirTemp("", "linkproxy-demo-")
	if err != nil {
		return err
	}
	d.dir = dir
	d.later(func() { _ = os.RemoveAll(dir) }) // a folder for temporary files is where left-overs belong
	if sock := control.Path(filepath.Join(dir, "host"), "host"); runtime.GOOS != "windows" && len(sock) > maxSocket {
		return fmt.Errorf("%s is too long a path for a Unix socket: set TMPDIR to a shorter folder", sock)
	}
	if d.host, err = newDemoSide(d.exe, dir, "host"); err != nil {
		return err
	}
	d.up, err = newDemoSide(d.exe, dir, "up")
	return err
}

// startTargets starts what the apps want to reach: a web server and an echo server beside the host.
func (d *demo) startTargets(context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.webAddr = ln.Addr().String()
	d.web = &http.Server{Handler: http.HandlerFunc(serveDemoBody), ReadHeaderTimeout: demoStart}
	d.wg.Go(func() { _ = d.web.Serve(ln) }) // ends by Close
	if d.echo, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	d.wg.Go(d.serveEcho)
	d.later(func() { _ = d.echo.Close() })
	d.hash = make(chan string, 1)
	d.wg.Go(func() { d.hash <- demoHash() })
	return nil
}

// serveDemoBody answers with demoSize bytes of demoSeed.
func serveDemoBody(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(demoSize))
	_, _ = io.Copy(w, demoBody()) // the client sees for itself that something is missing
}

func demoBody() io.Reader { return io.LimitReader(&demoReader{bytes: demoSeed}, demoSize) }

// demoReader reads a stream of demoBytes from its beginning.
type demoReader struct {
	bytes demoBytes
	off   uint64
}

func (r *demoReader) Read(p []byte) (int, error) {
	r.bytes.fill(p, r.off)
	r.off += uint64(len(p))
	return len(p), nil
}

// demoHash is the SHA-256 of the download, in hex: made apart from any server or client.
func demoHash() string {
	h := sha256.New()
	_, _ = io.Copy(h, demoBody()) // neither can fail
	return fmt.Sprintf("%x", h.Sum(nil))
}

// serveEcho sends back what each connection brings.
func (d *demo) serveEcho() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := d.echo.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer c.Close()
			_, _ = io.Copy(c, c)              // the app at the other end judges what comes back
			_ = c.(*net.TCPConn).CloseWrite() // likewise
		})
	}
}

func (d *demo) startHost(ctx context.Context) error {
	free, err := freeAddrs(1)
	if err != nil {
		return err
	}
	addr := free[0]
	text := fmt.Sprintf("[host]\nlisten = %q\n", addr)
	if err := os.WriteFile(d.host.config, []byte(text), 0o600); err != nil {
		return err
	}
	var args []string
	if d.fault != "" {
		args = append(args, "--break", d.fault)
	}
	d.later(d.host.stop)
	if err := d.host.start(ctx, args...); err != nil {
		return err
	}
	d.wg.Go(func() { d.watch(ctx, d.host) })
	for _, r := range []struct {
		at    **demoRoute
		class string
		delay time.Duration
	}{{&d.fast, "lan", 10 * time.Millisecond}, {&d.slow, "tailnet", 40 * time.Millisecond}} {
		p, err := testenv.NewPath(addr)
		if err != nil {
			return err
		}
		d.later(func() { _ = p.Close() })
		p.SetDelay(r.delay)
		p.SetRate(demoRate)
		*r.at = &demoRoute{p, r.class + ":" + p.Addr(), fmt.Sprintf("%d ms", 2*r.delay.Milliseconds())}
	}
	return nil
}

// watch ends the demo when a process ends before it is told to.
func (d *demo) watch(ctx context.Context, s *demoSide) {
	select {
	case <-s.gone:
		if ctx.Err() == nil {
			d.fail(s.endError())
		}
	case <-ctx.Done():
	}
}

// pair pairs the two as a user does.
func (d *demo) pair(ctx context.Context) error {
	invite, err := d.host.run(ctx, "host", "invite", "--print")
	if err != nil {
		return err
	}
	free, err := freeAddrs(2)
	if err != nil {
		return err
	}
	d.socksAddr, d.fixedAddr = free[0], free[1]
	text := fmt.Sprintf("[listen]\nsocks = %q\nhttp = \"off\"\n", d.socksAddr)
	if err := os.WriteFile(d.up.config, []byte(text), 0o600); err != nil {
		return err
	}
	_, err = d.up.run(ctx, "pair", "--name", demoPeer, invite)
	return err
}

// writeRoutes leads the peer over the two emulated routes and adds a fixed port for the echo.
func (d *demo) writeRoutes(context.Context) error {
	cfg, err := config.Load(d.up.config)
	if err != nil {
		return err
	}
	p, ok := cfg.Peer(demoPeer)
	if !ok {
		return fmt.Errorf("`linkproxy pair` has not written the peer %s into %s", demoPeer, d.up.config)
	}
	p.Routes = nil
	for _, r := range []*demoRoute{d.fast, d.slow} {
		route, err := config.ParseRoute(r.id)
		if err != nil {
			return err
		}
		p.Routes = append(p.Routes, route)
	}
	if err := config.RemovePeer(d.up.config, demoPeer); err != nil {
		return err
	}
	if err := config.AddPeer(d.up.config, p); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(d.echo.Addr().String())
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.up.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\n[[forward]]\nlisten = %q\nto = %q\n", d.fixedAddr, net.JoinHostPort(demoPeer, port))
	return errors.Join(err, f.Close())
}

func (d *demo) startUp(ctx context.Context) error {
	d.later(d.up.stop)
	if err := d.up.start(ctx); err != nil {
		return err
	}
	d.wg.Go(func() { d.watch(ctx, d.up) })
	return nil
}

// freeAddrs finds n free ports of 127.0.0.1. Somebody may take one before it is used; then the process that wanted it says so.
func freeAddrs(n int) ([]string, error) {
	var list []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer ln.Close() // not before all are found: they are to differ
		list = append(list, ln.Addr().String())
	}
	return list, nil
}

// --- what both sides show

// demoView is the link as both sides show it at a time.
type demoView struct {
	up, host control.Link
	peer     control.Peer
}

// linkOf is the link in a status that still serves; false: none.
func linkOf(st control.Status) (control.Peer, control.Link, bool) {
	for _, p := range st.Peers {
		for _, l := range p.Links {
			if l.State != "ended" {
				return p, l, true
			}
		}
	}
	return control.Peer{}, control.Link{}, false
}

// view asks both sides; false: one of them has no link.
func (d *demo) view(ctx context.Context) (v demoView, ok bool, err error) {
	up, err := d.up.control.Status(ctx)
	if err != nil {
		return v, false, fmt.Errorf("asking `linkproxy up` for its status: %w", err)
	}
	host, err := d.host.control.Status(ctx)
	if err != nil {
		return v, false, fmt.Errorf("asking `linkproxy host` for its status: %w", err)
	}
	var okUp, okHost bool
	v.peer, v.up, okUp = linkOf(up)
	_, v.host, okHost = linkOf(host)
	d.noteRoutes(v.up)
	return v, okUp && okHost, nil
}

// noteRoutes remembers which route each carrier runs over: a switch is told by generations, also of carriers gone by then.
func (d *demo) noteRoutes(l control.Link) {
	using := "no route"
	if c, ok := inUse(l); ok {
		using = d.routeNamed(c.Route).String()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.using = using
	for _, c := range l.Carriers {
		d.routes[c.Generation] = c.Route
	}
}

// inUse is the carrier in use, with what is on its way on the one for bulk beside it; false: none.
func inUse(l control.Link) (control.Carrier, bool) {
	bulk := 0
	for _, c := range l.Carriers {
		if c.State == "bulk" {
			bulk += c.Unseen
		}
	}
	for _, c := range l.Carriers {
		if c.State == "active" {
			c.Unseen += bulk
			return c, true
		}
	}
	return control.Carrier{}, false
}

// routeOf is the route that a carrier of a generation runs over; nil: not known.
func (d *demo) routeOf(gen uint64) *demoRoute {
	d.mu.Lock()
	id := d.routes[gen]
	d.mu.Unlock()
	return d.routeNamed(id)
}

func (d *demo) routeNamed(id string) *demoRoute {
	for _, r := range []*demoRoute{d.fast, d.slow} {
		if r != nil && r.id == id {
			return r
		}
	}
	return nil
}
