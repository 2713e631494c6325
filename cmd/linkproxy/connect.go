package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/link"
	"linkproxy/proxy"
	"linkproxy/state/identity"
)

func (w *world) cmdConnect() *cli.Command {
	return &cli.Command{
		Name:      "connect",
		Usage:     "carry standard input and output to a target: an ssh ProxyCommand",
		ArgsUsage: "PEER:PORT",
		Description: "Rides on the link of a running `linkproxy up` where there is one with this state folder, else makes its own.\n\n" +
			"   ssh -o ProxyCommand='linkproxy connect %h:%p' you@devbox\n\n" +
			"Exit codes: 0 the far side closed, 1 other, 2 wrong usage, 10 refused, 11 unreachable, 12 name not found,\n" +
			"13 not allowed, 14 timed out, 15 busy, 16 unknown peer, 17 no route works, 18 connection lost, 19 superseded.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "alone", Usage: "make its own link, even while an up runs that it could ride on"}},
		Action: func(c *cli.Context) error {
			a, err := args(c, 1, 1, "connect PEER:PORT, or PEER/HOST:PORT for a host behind the peer")
			if err != nil {
				return err
			}
			if err := config.CheckTarget(a[0]); err != nil {
				return &usage{err.Error()}
			}
			return w.connect(c.Context, a[0], c.Bool("alone"))
		},
	}
}

func (w *world) connect(ctx context.Context, target string, alone bool) error {
	if !w.verbose {
		w.log = newLog(w.err, slog.LevelWarn) // its standard error is somebody's ssh session
	}
	signal.Ignore(syscall.SIGPIPE) // a standard output that nobody reads is an error like any other, told to the peer
	// ssh ends its ProxyCommand with SIGHUP: a link of its own must still be given up in words, or the host would hold it.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	err := w.carry(ctx, target, alone)
	if ctx.Err() != nil {
		return &exitCode{proxy.ExitOther, nil} // told to stop: nothing to tell
	}
	return connectExit(err)
}

// carry is connect without its exit code.
func (w *world) carry(ctx context.Context, target string, alone bool) error {
	if !alone {
		conn, err := control.NewClient(w.state, "up").Connect(ctx, target)
		if err == nil {
			return w.stdio(ctx, target, conn)
		}
		if !errors.Is(err, control.ErrNotRunning) {
			return err
		}
	}
	conn, closeAll, err := w.connectAlone(ctx, target)
	if err != nil {
		return err
	}
	defer closeAll()
	return w.stdio(ctx, target, conn)
}

// stdio carries standard input and output, and tells if that has to wait.
func (w *world) stdio(ctx context.Context, target string, conn net.Conn) error {
	if o, ok := conn.(opening); ok {
		told := w.tellWaiting(target, o)
		defer told() // the end of conn ends it
	}
	return proxy.Stdio(ctx, w.in, w.out, conn)
}

// configFor is the config as far as a connection to target needs it: a mistake elsewhere must not keep anybody from a peer whose
// own entry is right.
func (w *world) configFor(target string) (*config.Config, error) {
	cfg, wrong, err := config.LoadPeers(w.config)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return w.loadConfig()
	case err != nil:
		return nil, err
	case len(wrong) == 0:
		return cfg, nil
	}
	to, err := config.ParseTo(target)
	if err != nil {
		return nil, wrong // a reach rule would have to cover it: which one does, a whole config says only
	}
	if _, ok := cfg.Peer(to.Peer); !ok {
		return nil, wrong
	}
	w.note("linkproxy: the config has %s, see `linkproxy config check`; going on, as what it says of %s is right",
		count(len(wrong), "mistake"), to.Peer)
	return cfg, nil
}

// connectAlone opens a stream over a link of this process.
func (w *world) connectAlone(ctx context.Context, target string) (conn net.Conn, closeAll func(), err error) {
	cfg, err := w.configFor(target)
	if err != nil {
		return nil, nil, err
	}
	peer, at, err := connectTarget(cfg, target)
	if err != nil {
		return nil, nil, err
	}
	key, err := identity.LoadOrCreateKey(w.state)
	if err != nil {
		return nil, nil, err
	}
	inst := identity.Ephemeral(nil)
	r, err := newReach(w, cfg, key, link.Process{Instance: inst.ID, Boot: inst.Boot})
	if err != nil {
		return nil, nil, err
	}
	if p, _ := cfg.Peer(peer); p.NoAgent {
		opened := make(dialing, 1)
		told := w.tellWaiting(target, opened)
		defer told()
		defer func() { opened <- err }()
	}
	conn, err = r.dialer.OpenContext(ctx, peer, at, dialer.OpenOptions{})
	if err != nil {
		r.close()
		return nil, nil, err
	}
	return conn, r.close, nil
}
