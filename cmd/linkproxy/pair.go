package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
)

func (w *world) cmdPair() *cli.Command {
	return &cli.Command{
		Name:      "pair",
		Usage:     "trust the host that an invite names, and save it as a peer",
		ArgsUsage: "INVITE",
		Description: "INVITE is what `linkproxy host invite` printed on the other machine. The peer is written into the config\n" +
			"file; what you wrote there stays as it is.\n\n" +
			"   linkproxy pair lp1…\n" +
			"   linkproxy pair --name devbox lp1…",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "name", Usage: "what to call the peer here; otherwise what it calls itself"}},
		Action: func(c *cli.Context) error { return w.pair(c) },
	}
}

// pairTime bounds pairing over one address.
const pairTime = 10 * time.Second

func (w *world) pair(c *cli.Context) error {
	a, err := args(c, 1, 64, "pair [--name NAME] INVITE")
	if err != nil {
		return err
	}
	inv, err := identity.ParseInvite(strings.Join(a, ""))
	if err != nil {
		return err
	}
	if inv.Expired(time.Now()) {
		w.note("note: by this machine's clock the invite is over; trying all the same")
	}
	name := c.String("name")
	if name == "" {
		name = peerName(inv.Name)
	}
	if err := config.CheckPeerName(name); err != nil {
		return fmt.Errorf("%w; choose one with --name", err)
	}
	if _, err := w.loadOrBegin(); err != nil {
		return err // before the invite is used up
	}
	key, err := identity.LoadOrCreateKey(w.state)
	if err != nil {
		return err
	}
	if key.Fingerprint() == inv.Fingerprint {
		return errors.New("this invite is this machine's own: run `linkproxy pair` with it on the other machine, the one that is to reach this one")
	}
	if err := w.pairAny(c.Context, key, inv); err != nil {
		return err
	}
	peer := config.Peer{Name: name, ID: inv.Fingerprint}
	for _, addr := range inv.Addresses {
		r, err := routeTo(addr)
		if err != nil {
			w.note("note: %s is left out: %v", addr, err)
			continue
		}
		if !slices.Contains(peer.Routes, r) {
			peer.Routes = append(peer.Routes, r)
		}
	}
	if err := config.AddPeer(w.config, peer); err != nil {
		return fmt.Errorf("paired, but the config could not be written: %w", err)
	}
	wanted := name
	name = cmp.Or(w.nameOf(inv.Fingerprint), wanted)
	w.print("paired with %s (%s)", name, inv.Fingerprint.Short())
	if name != wanted {
		w.note("it is the peer %q already, in %s: its pairing and routes are renewed, its name stays", name, w.config)
	} else {
		w.note("saved as peer %q in %s", name, w.config)
	}
	w.note("next: linkproxy up, then for example ssh -o ProxyCommand='linkproxy connect %%h:%%p' you@%s", name)
	return nil
}

// nameOf is what the config calls the peer with a key; empty: it has none.
func (w *world) nameOf(id identity.Fingerprint) string {
	cfg, err := w.loadOrBegin()
	if err != nil {
		return ""
	}
	for _, p := range cfg.Peers {
		if p.ID == id {
			return p.Name
		}
	}
	return ""
}

// peerName makes a host's own name fit for a peer.
func peerName(s string) string {
	s = strings.ToLower(s)
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, s)
	if s = strings.Trim(s, "-"); s == "" {
		return "peer"
	}
	return s
}

// pairAny tries the invite's addresses in turn until one answers with the right key; a refusal ends it.
func (w *world) pairAny(ctx context.Context, key *identity.Key, inv identity.Invite) error {
	var failed []string
	for _, addr := range inv.Addresses {
		w.log.Debug("pairing", "address", addr)
		err := pairAt(ctx, key, inv, addr)
		if err == nil {
			return nil
		}
		var refused *link.PairError
		if errors.As(err, &refused) {
			return err
		}
		failed = append(failed, fmt.Sprintf("%s: %v", addr, err))
	}
	return fmt.Errorf("the host was not reached:\n%s\nis `linkproxy host` running there, and is one of these addresses reachable from here? (`host invite --address` names others)",
		strings.Join(failed, "\n"))
}

func pairAt(ctx context.Context, key *identity.Key, inv identity.Invite, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, pairTime)
	defer cancel()
	var d net.Dialer
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_, err = link.Pair(ctx, conn, key, inv, hostName())
	return err
}

// routeTo makes a route of an address in an invite.
func routeTo(addr string) (config.Route, error) {
	h, _, err := net.SplitHostPort(addr)
	if err != nil {
		return config.Route{}, err
	}
	return config.ParseRoute(route.ClassOf(h, hasTailnet()).String() + ":" + addr)
}

// hasTailnet says whether this machine has an address of a tailnet.
func hasTailnet() bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && route.ClassOf(n.IP.String(), true) == route.Tailnet {
			return true
		}
	}
	return false
}

// listedPeer is a peer of the config, for programs.
type listedPeer struct {
	Name   string   `json:"name"`
	ID     string   `json:"id"`    // empty without an agent
	Agent  bool     `json:"agent"` // linkproxy runs there
	Routes []string `json:"routes"`
	Reach  []string `json:"reach,omitempty"`
}

func listedPeers(cfg *config.Config) []listedPeer {
	list := []listedPeer{}
	for _, p := range cfg.Peers {
		l := listedPeer{Name: p.Name, Agent: !p.NoAgent, Reach: p.Reach}
		if l.Agent {
			l.ID = p.ID.String()
		}
		for _, r := range p.Routes {
			l.Routes = append(l.Routes, r.String())
		}
		list = append(list, l)
	}
	return list
}

func (w *world) cmdPeers() *cli.Command {
	return &cli.Command{
		Name: "peers", Usage: "list the machines this one can reach, or forget one",
		Description: "   linkproxy peers\n   linkproxy peers --json\n   linkproxy peers remove devbox",
		Flags:       []cli.Flag{jsonFlag},
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "peers, or peers remove NAME"); err != nil {
				return err
			}
			cfg, err := w.loadConfig()
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return w.printJSON(listedPeers(cfg))
			}
			if len(cfg.Peers) == 0 {
				w.note("no peer yet: on the machine to reach run `linkproxy host invite`, here `linkproxy pair INVITE`")
			}
			for _, p := range cfg.Peers {
				var routes []string
				for _, r := range p.Routes {
					routes = append(routes, r.String())
				}
				w.print("%-20s %s  %s", p.Name, idOf(p), strings.Join(routes, " "))
			}
			return nil
		},
		Subcommands: []*cli.Command{{
			Name: "remove", Usage: "forget a peer; its live link ends", ArgsUsage: "NAME",
			Action: func(c *cli.Context) error {
				a, err := args(c, 1, 1, "peers remove NAME")
				if err != nil {
					return err
				}
				switch err := config.RemovePeer(w.config, a[0]); {
				case errors.Is(err, os.ErrNotExist): // not even its folder
					return fmt.Errorf("no peer is named %s: there is no config file %s yet", a[0], w.config)
				case errors.Is(err, config.ErrNoPeer):
					return fmt.Errorf("%w; see: linkproxy peers", err)
				case err != nil:
					return err
				}
				w.print("removed %s", a[0])
				w.note("the other machine still trusts this one: `linkproxy host clients revoke` there ends that too")
				return nil
			},
		}},
	}
}
