package host

import (
	"context"
	"errors"
	"net"

	"linkproxy/internal/pipe"
	"linkproxy/link"
	"linkproxy/state/identity"
)

// codes are the reasons of a target that was not reached, as the client is told.
var codes = map[string]link.Code{
	reasonRefused:        link.CodeRefused,
	reasonUnreachable:    link.CodeUnreachable,
	reasonNotFound:       link.CodeNotFound,
	reasonNotAllowed:     link.CodeNotAllowed,
	reasonTimeout:        link.CodeTimeout,
	busyError{}.Reason(): link.CodeBusy,
}

func codeOf(err error) link.Code {
	var r interface{ Reason() string }
	if !errors.As(err, &r) {
		return link.CodeCancelled // nobody waits for the answer
	}
	if c, ok := codes[r.Reason()]; ok {
		return c
	}
	return link.CodeUnreachable
}

// serveStream connects one stream to its target and copies until both directions ended.
func (s *Server) serveStream(client identity.Fingerprint, st *link.Stream) {
	conn, err := s.reach(client, st)
	if err != nil {
		code := codeOf(err)
		st.Refuse(code)
		s.log.Info("target not reached", "client", s.nameOf(client), "reason", code.String(), "err", err)
		return
	}
	st.Accept()
	r := pipe.Copy(conn, st)
	s.log.Debug("stream ended", "client", client.Short(), "target", st.Target(), "to_client", r.Up, "to_target", r.Down, "err", r.Err)
}

// reach dials what the stream asks for, as the rules in force allow it. A client that resets the stream, or a link that
// ends, cancels it.
func (s *Server) reach(client identity.Fingerprint, st *link.Stream) (net.Conn, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	st.OnAbort(cancel)
	defer st.OnAbort(nil)
	if err := s.dials.enter(ctx, client); err != nil {
		return nil, err
	}
	defer s.dials.leave(client)
	conn, rule, err := s.policy.Load().Dial(ctx, st.Target())
	if err != nil {
		return nil, err
	}
	if rule.Hold > 0 {
		st.LimitHold(rule.Hold)
	}
	return conn, nil
}
