package lab

import (
	"context"
	"errors"
	"net"
	"sync"

	"linkproxy/dialer"
	"linkproxy/link"
	"linkproxy/proxy"
)

// client is one `linkproxy up`.
type client struct {
	w       *packages
	dialer  *dialer.Dialer
	server  *proxy.Server
	forward *proxy.Forward
	lns     []net.Listener // of server and forward
	wg      sync.WaitGroup

	mu   sync.Mutex
	dead bool // crashed: it dials nothing any more
}

func (w *packages) newClient(boot uint64) (*client, error) {
	c := &client{w: w}
	c.dialer = w.newDialer(c, link.Process{Instance: clientInstance, Boot: boot})
	c.server = proxy.New(proxy.Config{Dial: c.dial})
	c.forward = proxy.NewForward(proxy.ForwardConfig{Dial: c.dial, Peer: peerName, Target: w.targetAddr()})
	for _, s := range []interface{ Serve(net.Listener) error }{c.server, c.forward} {
		ln, err := w.edges.doors()
		if err != nil {
			c.close()
			return nil, err
		}
		c.lns = append(c.lns, ln)
		c.wg.Go(func() { _ = s.Serve(ln) }) // ends with the server
	}
	return c, nil
}

func (w *packages) newDialer(c *client, p link.Process) *dialer.Dialer {
	return dialer.New(dialer.Config{
		Key: w.key, Process: p, Pool: link.NewPool(w.sc.Set.Pool), Hold: w.sc.Set.Hold, Seed: seedOf(w.sc.Name), Log: w.log.logger(),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if c != nil && c.isDead() {
				return nil, errors.New("lab: this client has crashed")
			}
			w.dialled(address)
			return w.edges.dial(ctx, network, address)
		},
		Peers: []dialer.Peer{{
			Name: peerName, ID: w.hostKey.Fingerprint(), Routes: w.routes, Standby: dialer.Standby(w.sc.Set.Standby),
		}},
	})
}

func (w *packages) dialled(address string) {
	w.log.say("dial " + address)
	w.mu.Lock()
	w.dials++
	w.mu.Unlock()
}

// dial is what proxy asks: as cmd/linkproxy does it, with one peer.
func (c *client) dial(ctx context.Context, r proxy.Request) (net.Conn, error) {
	if r.Peer != "" {
		return open(ctx, c.dialer, r.Target)
	}
	_, port, err := net.SplitHostPort(r.Target)
	if err != nil {
		return nil, err
	}
	return c.dialer.DialContext(ctx, peerName, net.JoinHostPort("127.0.0.1", port))
}

// open is the early form, without a nil stream in a net.Conn.
func open(ctx context.Context, d *dialer.Dialer, target string) (net.Conn, error) {
	s, err := d.Open(ctx, peerName, target, dialer.OpenOptions{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *client) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *client) die() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
}

func (c *client) close() {
	for _, ln := range c.lns {
		_ = ln.Close()
	}
	_ = c.server.Close()
	_ = c.forward.Close()
	_ = c.dialer.Close()
	c.wg.Wait()
}
