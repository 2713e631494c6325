package host

import (
	"context"
	"time"

	"linkproxy/link"
)

// pairing says whether an invite is open, so that somebody may pair.
func (s *Server) pairing() bool { return s.cfg.Invites.Open(time.Now()) }

// pair serves a connection that wants to pair; link bounds how long it may take.
func (s *Server) pair(_ context.Context, p *link.PairConn) {
	client, err := p.Serve(s.cfg.Invites, s.cfg.Trust)
	if err != nil {
		s.log.Warn("pairing refused", "from", p.RemoteAddr().String(), "key", p.Peer().Short(), "err", err)
		return
	}
	s.log.Info("client paired", "client", client.Name, "key", client.Fingerprint.String(), "from", p.RemoteAddr().String())
}
