package lab

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"linkproxy/host"
	"linkproxy/internal/sock"
	"linkproxy/testenv"
)

// loopback is the edges of real TCP on 127.0.0.1.
type loopback struct {
	mu    sync.Mutex
	hosts []net.Listener // of the first host process, until it takes them
	ports []string       // where host processes listen, one for each link
	paths []*testenv.Path
}

func listenTCP(address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), "tcp", address)
}

func (l *loopback) link(Link) (way, string, error) {
	ln, err := listenTCP("127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts = append(l.hosts, ln)
	l.ports = append(l.ports, ln.Addr().String())
	p, err := testenv.NewPath(ln.Addr().String())
	if err != nil {
		return nil, "", err
	}
	l.paths = append(l.paths, p)
	return p, p.Addr(), nil
}

func (l *loopback) hostListeners() (lns []net.Listener, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lns, l.hosts = l.hosts, nil; lns != nil {
		return lns, nil
	}
	for _, at := range l.ports {
		ln, err := listenTCP(at)
		if err != nil {
			return lns, err
		}
		lns = append(lns, ln)
	}
	return lns, nil
}

func (l *loopback) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	sock.Tune(c)
	return c, nil
}

func (l *loopback) doors() (net.Listener, error) { return listenTCP("127.0.0.1:0") }

func (l *loopback) door(ctx context.Context, at net.Addr) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, "tcp", at.String())
}

// pipe is a pair of sockets: they can be half-closed and reset.
func (l *loopback) pipe() (app, process net.Conn, err error) {
	ln, err := listenTCP("127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if app, err = l.door(context.Background(), ln.Addr()); err != nil {
		return nil, nil, err
	}
	if process, err = ln.Accept(); err != nil {
		_ = app.Close()
	}
	return app, process, err
}

func (l *loopback) target() (net.Listener, error) { return listenTCP("127.0.0.1:0") }

func (l *loopback) policy() host.Policy { return host.Policy{} }

func (l *loopback) down(way, bool) error { return errors.New("127.0.0.1 has no interface to lose") }

func (l *loopback) sleep(string, bool) error {
	return errors.New("a process of this machine cannot sleep alone")
}

func (l *loopback) jump(string, time.Duration) error {
	return errors.New("the clock is the machine's")
}

func (l *loopback) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, ln := range l.hosts {
		errs = append(errs, ln.Close())
	}
	for _, p := range l.paths {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
