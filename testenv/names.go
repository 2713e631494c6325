package testenv

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"
)

// DNS is how a host's resolver errs; the zero value answers rightly and at once.
type DNS struct {
	Late  time.Duration // each answer comes so much later
	Never bool          // no answer comes
	Wrong []netip.Addr  // the answer to every name; none = the right one
	Fail  string        // every answer is a failure with this text, as of a server that is broken
}

// SetDNS changes how the host's resolver errs; look-ups that wait for an answer get it by the new rules.
func (h *Host) SetDNS(d DNS) {
	h.change(func(time.Time) { h.dns = d },
		"dns: late %s, never %v, wrong %v, fail %q", d.Late, d.Never, d.Wrong, d.Fail)
}

// Resolve finds the addresses of a name ([World.SetName]); an address is its own. A failure is a *net.DNSError: at once
// when no interface is up.
func (h *Host) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}, nil
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	asked := time.Now()
	addrs, err := h.ask(ctx, name, asked)
	if err != nil {
		h.w.note("%s: asked for %s: %v", h.name, name, err)
		return nil, err
	}
	h.w.note("%s: asked for %s: %v after %s", h.name, name, addrs, time.Since(asked))
	return addrs, nil
}

func (h *Host) ask(ctx context.Context, name string, asked time.Time) ([]netip.Addr, error) {
	for {
		now := time.Now()
		if err := ctx.Err(); err != nil {
			return nil, &net.DNSError{
				UnwrapErr: err, Err: err.Error(), Name: name, IsTimeout: errors.Is(err, context.DeadlineExceeded),
			}
		}
		due := asked.Add(h.dns.Late)
		switch {
		case h.asleep, h.dns.Never:
			due = time.Time{}
		case !slices.ContainsFunc(h.ifaces, func(i *Interface) bool { return i.up }):
			return nil, &net.DNSError{Err: "network is unreachable", Name: name, IsTemporary: true}
		case !now.Before(due):
			return h.answer(name)
		}
		waitFor(&h.w.mu, &h.w.sig, ctx.Done(), due)
	}
}

func (h *Host) answer(name string) ([]netip.Addr, error) {
	switch addrs := h.w.names[name]; {
	case h.dns.Fail != "":
		return nil, &net.DNSError{Err: h.dns.Fail, Name: name, IsTemporary: true}
	case len(h.dns.Wrong) > 0:
		return slices.Clone(h.dns.Wrong), nil
	case len(addrs) == 0:
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	default:
		return slices.Clone(addrs), nil
	}
}
