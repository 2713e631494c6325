package main

import (
	"context"
	"sync"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/dialer"
	"linkproxy/discovery/netwatch"
	"linkproxy/link"
	"linkproxy/state"
	"linkproxy/state/identity"
)

// reach is a dialer with what it needs to know of this machine.
type reach struct {
	dialer *dialer.Dialer
	watch  *netwatch.Watcher
	store  *state.Store
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func newReach(w *world, cfg *config.Config, key *identity.Key, p link.Process) (*reach, error) {
	peers, err := dialerPeers(cfg)
	if err != nil {
		return nil, err
	}
	secret, err := state.InstallSecret(w.state)
	if err != nil {
		w.log.Warn("networks with the same addresses are not told apart", "cause", err)
	}
	r := &reach{watch: netwatch.New(netwatch.Config{Secret: secret}), store: state.Open(state.Config{Dir: w.state, Log: w.log})}
	if err := r.watch.Problem(); err != nil {
		w.log.Warn("changes of this machine's network are noticed late", "cause", err)
	}
	r.dialer = dialer.New(dialer.Config{
		Key: key, Process: p, Peers: peers, Wait: cfg.Listen.Wait, Path: dialer.PathOf(r.watch.Snapshot()), Log: w.log,
		Recall: r.store.Load, Remember: r.store.Save,
	})
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.wg.Go(func() { r.watch.Run(ctx) })
	r.wg.Go(func() { r.dialer.Follow(r.watch) })
	return r, nil
}

// close ends all links and returns when nothing of it runs.
func (r *reach) close() {
	r.stop()
	r.wg.Wait()
	r.watch.Close()
	r.dialer.Close()
	r.store.Close()
}
