package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
)

// noAgent is what is said wherever somebody might wait for a connection to move.
const noAgent = "without agent: a connection ends with its route"

// dialerRoute is a peer's route as the dialer knows it.
func dialerRoute(p config.Peer, r config.Route) (route.Route, error) {
	if p.NoAgent {
		return route.ParsePlain(r.String())
	}
	return route.ParseRoute(r.String(), config.DefaultPort)
}

// idOf is a peer's key for people; one without an agent has none.
func idOf(p config.Peer) string {
	if p.NoAgent {
		return "without agent"
	}
	return p.ID.String()
}

// dialing is a connection that is there once it is open: what it yields is whether it is.
type dialing chan error

// WaitOpened returns when the connection is open or has failed.
func (d dialing) WaitOpened(context.Context) error { return <-d }

// plainConns are the open connections to a peer without an agent.
func plainConns(p dialer.PeerStatus) (list []control.Conn) {
	for _, c := range p.Conns {
		list = append(list, control.Conn{Target: c.Target, Route: c.Route.ID(), Since: c.Since})
	}
	return list
}

// connsText tells of them.
func connsText(b *strings.Builder, p control.Peer, now time.Time) {
	fmt.Fprintf(b, "  %s\n", noAgent)
	const most = 20
	for i, c := range p.Conns {
		if i == most {
			fmt.Fprintf(b, "    … and %s more\n", count(len(p.Conns)-most, "connection"))
			break
		}
		fmt.Fprintf(b, "    connection %-24s %s, over %s\n", c.Target, ago(now.Sub(c.Since)), c.Route)
	}
}

// standingPlain says where a peer without an agent is reached.
func standingPlain(st dialer.PeerStatus) string {
	var over []string
	for _, c := range st.Conns {
		if id := c.Route.ID(); !slices.Contains(over, id) {
			over = append(over, id)
		}
	}
	return fmt.Sprintf("%s has %s open, over %s; none can move (%s).", st.Name, count(len(st.Conns), "connection"), strings.Join(over, " and "), noAgent)
}
