package dialer

import (
	"linkproxy/dialer/route"
	"linkproxy/discovery/netwatch"
)

// Follow tells the dialer what the watcher sees, until the watcher's Run ends, and has the watcher be watchful while any stream is open.
func (d *Dialer) Follow(w *netwatch.Watcher) {
	for {
		select {
		case e, ok := <-w.Events():
			if !ok {
				return
			}
			if !e.Delta.IsZero() {
				d.SetPath(PathOf(e.Snapshot))
			}
			if e.Woke {
				d.cfg.Log.Info("this machine slept", "for", e.Slept)
				d.Woke()
			}
		case <-d.busyChanged:
			w.SetWatchful(d.busy.Load() > 0)
		}
	}
}

// PathOf is a snapshot as route knows it. One that could not be read is an unknown path.
func PathOf(s netwatch.Snapshot) route.Path {
	path := route.Path{Tailnet: s.Tailnet}
	for _, i := range s.Interfaces {
		path.Interfaces = append(path.Interfaces, route.Interface{
			Name: i.Name, Kind: kindOf(i.Kind), Addrs: i.Addrs, Metered: i.Metered, Default: i.Default,
			Network: route.Network{Kind: kindOf(i.Network.Kind), Prefix: i.Network.Prefix, Router: i.Network.Router},
		})
	}
	return path
}

func kindOf(k netwatch.Kind) route.Kind {
	switch k {
	case netwatch.Wired:
		return route.Wired
	case netwatch.WiFi:
		return route.WiFi
	case netwatch.Cell:
		return route.Cell
	case netwatch.Tunnel:
		return route.Tunnel
	case netwatch.Loopback:
		return route.Loopback
	case netwatch.Other:
		return route.OtherKind
	default:
		return 0
	}
}

// tellBusy follows whether the peer has open streams, for Follow.
func (p *peer) tellBusy(streams int) {
	busy := streams > 0
	if busy == p.busy {
		return
	}
	p.busy = busy
	if busy {
		p.d.busy.Add(1)
	} else {
		p.d.busy.Add(-1)
	}
	select {
	case p.d.busyChanged <- struct{}{}:
	default:
	}
}
