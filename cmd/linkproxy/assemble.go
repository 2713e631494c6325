package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/link"
	"linkproxy/proxy"
	"linkproxy/state/identity"
)

// up is everything `linkproxy up` runs: the dialer with its peers, and one server for each endpoint.
type up struct {
	w      *world
	log    *slog.Logger
	since  time.Time
	way    *reach
	dialer *dialer.Dialer // its
	follow *follower

	mu        sync.Mutex // guards the following
	cfg       *config.Config
	names     *config.Names
	endpoints map[string]*endpoint      // by the address as configured
	bound     map[string][]net.Listener // new addresses of a config that is being put in force
	retired   []*endpoint               // closed to new apps, with streams that live on
}

// endpoint is one listening address and who serves it.
type endpoint struct {
	addr      string
	listeners []net.Listener
	server    interface {
		Serve(net.Listener) error
		Close() error
		Live() int
	}
	wg sync.WaitGroup
}

func (w *world) assembleUp(cfg *config.Config, key *identity.Key, p link.Process) (*up, error) {
	u := &up{w: w, log: w.log, since: time.Now(), cfg: cfg, names: cfg.Names(), endpoints: map[string]*endpoint{}}
	r, err := newReach(w, cfg, key, p)
	if err != nil {
		return nil, err
	}
	u.way, u.dialer = r, r.dialer
	u.follow = &follower{w: w, log: w.log, apply: u.apply}
	for _, l := range cfg.Listeners() {
		if err := u.open(l.Address, u.proxyServer(cfg)); err != nil {
			u.close()
			return nil, err
		}
	}
	for _, f := range cfg.Forwards {
		if err := u.open(f.Listen, u.forwardServer(f)); err != nil {
			u.close()
			return nil, err
		}
	}
	return u, nil
}

func dialerPeers(cfg *config.Config) ([]dialer.Peer, error) {
	var peers []dialer.Peer
	for _, p := range cfg.Peers {
		dp := dialer.Peer{Name: p.Name, ID: p.ID, Standby: dialer.Standby(p.Standby)}
		for _, r := range p.Routes {
			rt, err := dialerRoute(p, r)
			if err != nil {
				return nil, fmt.Errorf("peer %s: %w", p.Name, err)
			}
			dp.Routes = append(dp.Routes, rt)
		}
		peers = append(peers, dp)
	}
	return peers, nil
}

func (u *up) proxyServer(cfg *config.Config) *proxy.Server {
	return proxy.New(proxy.Config{Dial: u.dial, Users: cfg.Listen.Users, Logger: u.log})
}

func (u *up) forwardServer(f config.Forward) *proxy.Forward {
	return proxy.NewForward(proxy.ForwardConfig{
		Dial: u.dial, Peer: f.Peer, Target: f.Target, Hold: f.Hold, RefuseHTTP: f.RefuseHTTP, Logger: u.log,
	})
}

// open listens on addr and serves it; the caller holds u.mu or is alone.
func (u *up) open(addr string, server interface {
	Serve(net.Listener) error
	Close() error
	Live() int
},
) error {
	lns := u.bound[addr]
	delete(u.bound, addr)
	if lns == nil {
		var err error
		if lns, err = proxy.Listen(addr); err != nil {
			return taken(addr, err)
		}
	}
	e := &endpoint{addr: addr, listeners: lns, server: server}
	for _, ln := range lns {
		e.wg.Go(func() {
			if err := server.Serve(ln); err != nil {
				u.log.Error("an endpoint has ended", "listen", addr, "cause", err)
			}
		})
	}
	u.endpoints[addr] = e
	return nil
}

// retire stops listening and keeps the streams; the caller holds u.mu.
func (u *up) retire(addr string) {
	e := u.endpoints[addr]
	if e == nil {
		return
	}
	delete(u.endpoints, addr)
	for _, ln := range e.listeners {
		ln.Close()
	}
	var still []*endpoint
	for _, r := range append(u.retired, e) {
		if r == e || r.server.Live() > 0 {
			still = append(still, r)
			continue
		}
		r.server.Close()
	}
	u.retired = still
}

func (u *up) close() {
	u.mu.Lock()
	all := u.retired
	for _, e := range u.endpoints {
		all = append(all, e)
	}
	u.endpoints, u.retired = map[string]*endpoint{}, nil
	u.mu.Unlock()
	for _, e := range all {
		for _, ln := range e.listeners {
			ln.Close()
		}
		e.server.Close()
		e.wg.Wait()
	}
	u.way.close()
}

func (u *up) listening() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []string
	for _, l := range u.cfg.Listeners() {
		if e := u.endpoints[l.Address]; e != nil {
			for _, ln := range e.listeners {
				list = append(list, ln.Addr().String()+" (SOCKS5 and HTTP proxy)")
			}
		}
	}
	for _, f := range u.cfg.Forwards {
		if e := u.endpoints[f.Listen]; e != nil {
			for _, ln := range e.listeners {
				list = append(list, fmt.Sprintf("%s for %s %s", ln.Addr(), f.Peer, f.Target))
			}
		}
	}
	return list
}

// dial is what proxy asks for every app.
func (u *up) dial(ctx context.Context, r proxy.Request) (net.Conn, error) {
	conn, err := u.reach(ctx, r)
	if err != nil {
		return nil, &plain{err}
	}
	return conn, nil
}

// plain is an error whose text is fit for people; its class stays.
type plain struct{ error }

func (e *plain) Error() string { return said(e.error) }
func (e *plain) Unwrap() error { return e.error }

func (u *up) reach(ctx context.Context, r proxy.Request) (net.Conn, error) {
	if r.Peer != "" {
		return u.early(ctx, r.Peer, r.Target, r.Hold)
	}
	u.mu.Lock()
	names := u.names
	u.mu.Unlock()
	peer, target, direct, err := names.Resolve(r.Target)
	if err != nil {
		return nil, unmistyped(err, r.Target, u.peerNames())
	}
	if direct {
		d := net.Dialer{Timeout: directTimeout}
		d.SetMultipathTCP(false)
		conn, err := d.DialContext(ctx, "tcp", target)
		return conn, unmistyped(err, target, u.peerNames())
	}
	return u.dialer.DialContext(ctx, peer, target)
}

// directTimeout bounds a connection that this machine dials itself.
const directTimeout = 30 * time.Second

func (u *up) early(ctx context.Context, peer, target string, hold time.Duration) (net.Conn, error) {
	return u.dialer.OpenContext(ctx, peer, target, dialer.OpenOptions{Hold: hold})
}

// connect serves `linkproxy connect` through the control socket.
func (u *up) connect(ctx context.Context, target string) (net.Conn, error) {
	u.mu.Lock()
	cfg := u.cfg
	u.mu.Unlock()
	peer, at, err := connectTarget(cfg, target)
	if err != nil {
		return nil, err
	}
	return u.early(ctx, peer, at, 0)
}

// connectTarget is what PEER:PORT, PEER/HOST:PORT or a name that reach covers means.
func connectTarget(cfg *config.Config, target string) (peer, at string, err error) {
	to, perr := config.ParseTo(target)
	name, _, _ := strings.Cut(strings.ReplaceAll(target, "/", ":"), ":")
	if _, ok := cfg.Peer(name); ok && perr != nil {
		return "", "", perr // meant for that peer, and wrong
	}
	if perr == nil && to.Count() == 1 {
		if _, ok := cfg.Peer(to.Peer); ok {
			return to.Peer, to.Target(0), nil
		}
	}
	peer, at, direct, err := cfg.Names().Resolve(target)
	switch {
	case err != nil:
		return "", "", err
	case direct:
		var known []string
		for _, p := range cfg.Peers {
			known = append(known, p.Name)
		}
		return "", "", &unknownPeer{target, known}
	}
	return peer, at, nil
}

// unknownPeer tells that a name is no peer's.
type unknownPeer struct {
	target string
	known  []string
}

func (e *unknownPeer) Error() string {
	if len(e.known) == 0 {
		return fmt.Sprintf("%s: no peer is paired yet: run `linkproxy pair INVITE` first", e.target)
	}
	name, _, _ := strings.Cut(strings.ReplaceAll(e.target, "/", ":"), ":")
	if meant := nearest(strings.ToLower(name), e.known); meant != "" {
		return fmt.Sprintf("no peer %s; did you mean %s? (no reach rule covers %s either)", name, meant, e.target)
	}
	return fmt.Sprintf("%s: no peer of that name, and no reach rule covers it; the peers are: %s", e.target, strings.Join(e.known, ", "))
}

// Reason is the class of the failure as a word.
func (e *unknownPeer) Reason() string { return "unknown_peer" }

// --- reload

// apply touches only what differs between the config in force and cfg.
func (u *up) apply(_ context.Context, cfg *config.Config) error {
	peers, err := dialerPeers(cfg)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	ch := config.Diff(u.cfg, cfg)
	if ch.Empty() {
		return nil
	}
	if err := u.bind(ch); err != nil {
		return err
	}
	u.dialer.SetPeers(peers)
	u.dialer.SetWait(cfg.Listen.Wait)
	u.cfg, u.names = cfg, cfg.Names()
	u.retireOld(ch)
	return errors.Join(u.applyProxies(ch, cfg), u.applyForwards(ch))
}

// retireOld stops listening wherever somebody else will, or nobody, before anything new is opened: an address may pass from
// one endpoint to another.
func (u *up) retireOld(ch config.Change) {
	var addrs []string
	for _, l := range ch.Listeners.Removed {
		addrs = append(addrs, l.Address)
	}
	if ch.Users { // who may log in is fixed for a server: a new one takes over the address, streams stay with the old
		for _, l := range ch.Listeners.Unchanged {
			addrs = append(addrs, l.Address)
		}
	}
	for _, f := range ch.Forwards.Removed {
		addrs = append(addrs, f.Listen)
	}
	for _, p := range ch.Forwards.Changed {
		addrs = append(addrs, p.Old.Listen)
	}
	for _, addr := range addrs {
		if u.endpoints[addr] != nil {
			u.retire(addr)
			u.log.Info("no longer listening", "listen", addr)
		}
	}
}

// bind listens on the new addresses of a config before anything is changed: if one is taken, none is.
func (u *up) bind(ch config.Change) error {
	var addrs []string
	for _, l := range ch.Listeners.Added {
		addrs = append(addrs, l.Address)
	}
	for _, f := range ch.Forwards.Added {
		addrs = append(addrs, f.Listen)
	}
	u.bound = map[string][]net.Listener{}
	for _, addr := range addrs {
		if u.endpoints[addr] != nil {
			continue // it passes from one of ours to another
		}
		lns, err := proxy.Listen(addr)
		if err != nil {
			for _, bound := range u.bound {
				for _, ln := range bound {
					ln.Close()
				}
			}
			u.bound = nil
			return taken(addr, err)
		}
		u.bound[addr] = lns
	}
	return nil
}

func (u *up) applyProxies(ch config.Change, cfg *config.Config) error {
	add := ch.Listeners.Added
	if ch.Users {
		add = append(add, ch.Listeners.Unchanged...)
	}
	var errs []error
	for _, l := range add {
		if err := u.open(l.Address, u.proxyServer(cfg)); err != nil {
			errs = append(errs, err)
			continue
		}
		u.log.Info("listening", "listen", l.Address)
	}
	return errors.Join(errs...)
}

func (u *up) applyForwards(ch config.Change) error {
	add := ch.Forwards.Added
	for _, p := range ch.Forwards.Changed {
		add = append(add, p.New)
	}
	var errs []error
	for _, f := range add {
		if err := u.open(f.Listen, u.forwardServer(f)); err != nil {
			errs = append(errs, err)
			continue
		}
		u.log.Info("listening", "listen", f.Listen, "for", f.Peer+" "+f.Target)
	}
	return errors.Join(errs...)
}

// --- status

func (u *up) status() control.Status {
	st := control.Status{Role: "up", Version: version, PID: os.Getpid(), Since: u.since, Listens: u.listening(), Config: u.follow.problem()}
	st.Networks, st.Tailnet = networks(u.dialer.Path())
	for _, p := range u.dialer.Status() {
		st.Peers = append(st.Peers, peerStatus(p, time.Now()))
	}
	return st
}
