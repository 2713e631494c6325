package dialer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"linkproxy/dialer/route"
	"linkproxy/internal/sock"
)

// systemDial dials plain TCP: Multipath TCP's sockets refuse options that carriers need, and the link does its work. The
// link's own signs of life keep a carrier from being idle for long, so the system's keep-alives are set by sock alone. What is on a
// cable of this machine is dialled there, though a VPN has taken its prefix over.
func systemDial(path func() route.Path) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := &net.Dialer{KeepAlive: -1}
		d.SetMultipathTCP(false)
		if to, err := netip.ParseAddrPort(address); err == nil {
			if over := path().OnLink(to.Addr()); over != "" {
				d.Control = func(_, _ string, c syscall.RawConn) error {
					return c.Control(func(fd uintptr) { sock.Bind(fd, over, to.Addr().Unmap().Is6()) })
				}
			}
		}
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		sock.Tune(conn)
		return conn, nil
	}
}

func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// isLocal says whether this machine's own stack refused to dial: nothing was sent, nobody was bothered.
func isLocal(err error) bool {
	for _, e := range errnosLocal {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
