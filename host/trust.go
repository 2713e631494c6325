package host

import (
	"time"

	"github.com/fsnotify/fsnotify"
)

// trustPoll is how often the trust list is looked at where the system tells nothing (network file systems do not): one
// stat, and how long a revoked client may go on there.
const trustPoll = 2 * time.Second

// watchTrust reloads the trust list when it changes and ends the links of clients that are gone from it. A list that
// cannot be read leaves the old one in force.
func (s *Server) watchTrust() {
	defer s.wg.Done()
	events, errs, stop := s.watchFolder()
	defer stop()
	tick := time.NewTicker(trustPoll)
	defer tick.Stop()
	said := ""
	for {
		if s.cfg.Trust.Changed() {
			said = s.reloadTrust(said)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-events:
		case <-errs: // an overflow, say: look
		case <-tick.C:
		}
	}
}

// watchFolder has the system tell of changes in the state folder; whatever changes there, one look at the list is cheap.
func (s *Server) watchFolder() (<-chan fsnotify.Event, <-chan error, func()) {
	none := func() {}
	if s.cfg.StateDir == "" {
		return nil, nil, none
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.log.Debug("watching the state folder", "err", err)
		return nil, nil, none
	}
	if err := w.Add(s.cfg.StateDir); err != nil {
		s.log.Debug("watching the state folder", "err", err)
		_ = w.Close()
		return nil, nil, none
	}
	return w.Events, w.Errors, func() { _ = w.Close() }
}

// reloadTrust returns what it complained of; said is what it complained of last.
func (s *Server) reloadTrust(said string) string {
	_, removed, err := s.cfg.Trust.Reload()
	if err != nil {
		if err.Error() != said {
			s.log.Warn("the trust list cannot be read; the one read before stays in force", "err", err)
		}
		return err.Error()
	}
	if said != "" {
		s.log.Info("the trust list can be read again")
	}
	for _, fp := range removed {
		s.log.Info("client revoked", "client", fp.Short())
	}
	s.links.RevokeUntrusted() // also who came and went since the last look
	return ""
}
