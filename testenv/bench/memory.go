package main

import (
	"context"
	"fmt"
	"time"
)

// idleClients open the idle connections.
const idleClients = 20

// openLimit is how long opening them may take.
const openLimit = 2 * time.Minute

// memoryTime is what memory is expected to take, by experience: the connections of each tunnel, and the pauses.
func (b *bench) memoryTime() time.Duration {
	each := b.plan.settle + time.Duration(b.plan.idle)*time.Second/1000
	return time.Duration(len(b.kinds)+1)*each + b.plan.wakeUps
}

// memory measures what rests, on tunnels that have carried nothing yet, once: memory does not tremble as times do.
func (b *bench) memory(ctx context.Context) error {
	for _, k := range b.kinds {
		if err := b.rest(ctx, k, false); err != nil {
			return fmt.Errorf("%s: idle connections: %w", k.name, err)
		}
		if k.name == nameLinkproxy {
			if err := b.rest(ctx, k, true); err != nil {
				return fmt.Errorf("%s: idle connections through SOCKS5: %w", k.name, err)
			}
		}
	}
	return nil
}

// rest starts a tunnel and measures it without a connection, if it is linkproxy, and with many.
func (b *bench) rest(ctx context.Context, k *kind, socks bool) error {
	t, err := b.start(ctx, k)
	if err != nil {
		return err
	}
	defer func() { b.procs.stop(append(t.near, t.far...)...) }()
	if k.name == nameLinkproxy && !socks {
		if err := b.unused(ctx, t); err != nil {
			return err
		}
	}
	conns := b.plan.idle
	if most := k.idleMost; most > 0 && most < conns {
		b.note("%s: idle connections measured with %d instead of %d, which it takes too long to open.", k.name, most, conns)
		conns = most
	}
	j := job{Kind: "idle", Streams: idleClients, Max: conns, For: b.plan.settle + openLimit}
	nearRow, farRow := rowNear, rowFar
	if socks {
		j.Addr, j.SOCKS = t.socks, t.name
		nearRow, farRow = rowSOCKSNear, rowSOCKSFar
	}
	near, far, err := b.perConnection(ctx, t, j)
	if err != nil {
		return err
	}
	b.results.add(nearRow, k.name, near)
	b.results.add(farRow, k.name, far)
	b.say("%d idle connections, %s: %.1f KiB near, %.1f KiB far", j.Max, k.name, near, far)
	return nil
}

// perConnection is how much the resident memory of both ends grows with each connection, in KiB.
func (b *bench) perConnection(ctx context.Context, t *tunnel, j job) (near, far float64, err error) {
	look := func() (n, f float64) {
		if n, err = self.rss(t.nearIDs()); err == nil {
			f, err = self.rss(t.farIDs())
		}
		return n, f
	}
	near0, far0 := look()
	if err != nil {
		return 0, 0, err
	}
	p, err := b.startLoad(t, j)
	if err != nil {
		return 0, 0, err
	}
	defer b.procs.stop(p)
	opened := time.Now()
	if _, err := p.outcome(j, true); err != nil {
		return 0, 0, err
	}
	b.say("%s: %d connections are open after %.1f s", t.kind.name, j.Max, time.Since(opened).Seconds())
	if err := pause(ctx, b.plan.settle); err != nil {
		return 0, 0, err
	}
	near1, far1 := look()
	if err != nil {
		return 0, 0, err
	}
	if _, err := b.finish(p, j); err != nil {
		return 0, 0, err
	}
	n := float64(j.Max)
	return (near1 - near0) / n, (far1 - far0) / n, nil
}

// unused measures `up` with a link but without a stream.
func (b *bench) unused(ctx context.Context, t *tunnel) error {
	if err := pause(ctx, b.plan.settle); err != nil {
		return err
	}
	before, err := self.wakeUps(t.nearIDs())
	if err != nil {
		return err
	}
	if err := pause(ctx, b.plan.wakeUps); err != nil {
		return err
	}
	after, err := self.wakeUps(t.nearIDs())
	if err != nil {
		return err
	}
	rss, err := self.rss(t.nearIDs())
	if err != nil {
		return err
	}
	perMinute := (after - before) / b.plan.wakeUps.Minutes()
	b.results.add(rowUnusedWakeUps, t.kind.name, perMinute)
	b.results.add(rowUnusedRSS, t.kind.name, rss*1024/1e6)
	b.say("%s, no stream open: %.1f MB, %.0f wake-ups a minute", t.kind.name, rss*1024/1e6, perMinute)
	return nil
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
