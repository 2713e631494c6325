package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"linkproxy/cmd/linkproxy/config"
)

// follower applies the config file each time it changes, and on SIGHUP.
type follower struct {
	w     *world
	log   *slog.Logger
	apply func(context.Context, *config.Config) error // an error: nothing was changed

	had bool // a file is in force

	mu  sync.Mutex
	err error // why the newest file is not in force
}

// run follows the file until ctx ends.
func (f *follower) run(ctx context.Context) {
	if info, err := os.Stat(f.w.config); err == nil && info.Size() > 0 {
		f.had = true
	}
	changed := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		err := config.Watch(ctx, f.w.config, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if err != nil && ctx.Err() == nil {
			f.log.Warn("the config file is not watched: send SIGHUP after a change", "cause", err)
		}
	})
	hup := hangups()
	defer stopHangups(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-changed:
		}
		f.reload(ctx)
	}
}

// reload puts a changed config in force; an invalid one is told once, and the old one stays.
func (f *follower) reload(ctx context.Context) {
	cfg, err := config.Reload(ctx, f.w.config)
	if ctx.Err() != nil || errors.Is(err, config.ErrGone) && !f.had {
		return // there was none, and there is none
	}
	if err == nil {
		f.had = true
		err = f.apply(ctx, cfg)
	}
	f.mu.Lock()
	told := f.err != nil && err != nil && f.err.Error() == err.Error()
	f.err = err
	f.mu.Unlock()
	if err != nil && !told {
		f.w.notInForce(err)
	}
}

// problem is why the newest file is not in force; empty: it is.
func (f *follower) problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return ""
	}
	return said(f.err)
}
