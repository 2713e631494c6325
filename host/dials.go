package host

import (
	"context"
	"sync"

	"linkproxy/state/identity"
)

// Bounds of the target dials of one key.
const (
	// defaultDials is how many may be in flight: more would let one client use this machine to scan or flood others.
	defaultDials = 64
	// defaultWaiting is how many wait beyond them: a browser that comes back to hundreds of tabs does not see a refusal.
	defaultWaiting = 1024
)

// busyError is a dial beyond the bounds.
type busyError struct{}

func (busyError) Error() string  { return "host: too many target dials of this client" }
func (busyError) Reason() string { return reasonBusy }

// dials counts the target dials of each key.
type dials struct {
	most, waiting int // negative: no bound

	mu   sync.Mutex
	keys map[identity.Fingerprint]*keyDials
}

// keyDials lives while its key dials.
type keyDials struct {
	slots chan struct{} // one for each dial in flight; who waits is served in the order they came
	n     int           // in flight and waiting; dials.mu guards it
}

// enter waits for a place of key's; after a nil error the caller says leave. A busyError: too many wait already.
func (d *dials) enter(ctx context.Context, key identity.Fingerprint) error {
	if d.most < 0 {
		return nil
	}
	k := d.count(key)
	if k == nil {
		return busyError{}
	}
	select {
	case k.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		d.uncount(key)
		return context.Cause(ctx)
	}
}

func (d *dials) leave(key identity.Fingerprint) {
	if d.most < 0 {
		return
	}
	<-d.uncount(key).slots
}

func (d *dials) count(key identity.Fingerprint) *keyDials {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.keys[key]
	if k == nil {
		if d.keys == nil {
			d.keys = map[identity.Fingerprint]*keyDials{}
		}
		k = &keyDials{slots: make(chan struct{}, d.most)}
		d.keys[key] = k
	}
	if d.waiting >= 0 && k.n >= d.most+d.waiting {
		return nil
	}
	k.n++
	return k
}

func (d *dials) uncount(key identity.Fingerprint) *keyDials {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.keys[key]
	k.n--
	if k.n == 0 {
		delete(d.keys, key)
	}
	return k
}
