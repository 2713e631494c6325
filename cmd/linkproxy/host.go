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
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/host"
	"linkproxy/link"
	"linkproxy/state/identity"
)

func (w *world) cmdHost() *cli.Command {
	return &cli.Command{
		Name:  "host",
		Usage: "serve this machine to paired clients",
		Description: "Accepts links from paired machines and dials for them what the config's [host] allow says (by default any\n" +
			"port of this machine's own loopback), until interrupted.\n\n" +
			"   linkproxy host\n" +
			"   linkproxy host invite        a one-time code for `linkproxy pair CODE` on the other machine\n" +
			"   linkproxy host clients       who is paired\n" +
			"   linkproxy host status        who is connected, with which streams\n" +
			"   linkproxy host drop ID       end such a link",
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "host, or host invite|clients|status|drop"); err != nil {
				return err
			}
			fault, err := plantedFault(c.String("break"))
			if err != nil {
				return err
			}
			return w.runHost(c.Context, fault)
		},
		Flags: []cli.Flag{&cli.StringFlag{Name: "break", Hidden: true}}, // for `linkproxy demo` only
		Subcommands: []*cli.Command{
			w.cmdInvite(), w.cmdClients(),
			{
				Name: "status", Usage: "the links of paired machines, with their streams",
				Flags: []cli.Flag{jsonFlag},
				Action: func(c *cli.Context) error {
					if _, err := args(c, 0, 0, "host status [--json]"); err != nil {
						return err
					}
					return w.showStatus(c.Context, "host", c.Bool("json"))
				},
			},
			{
				Name: "drop", Usage: "end a link; its apps are reset", ArgsUsage: "ID",
				Action: func(c *cli.Context) error {
					a, err := args(c, 1, 1, "host drop ID, with an ID of `linkproxy host status`")
					if err != nil {
						return err
					}
					if err := control.NewClient(w.state, "host").Drop(c.Context, a[0]); err != nil {
						return w.notRunning(err, "host")
					}
					w.print("dropped %s", a[0])
					return nil
				},
			},
		},
	}
}

func (w *world) runHost(ctx context.Context, fault string) error {
	cfg, err := w.loadConfig()
	if err != nil {
		return err
	}
	key, err := identity.LoadOrCreateKey(w.state)
	if err != nil {
		return err
	}
	trust, err := identity.OpenTrust(w.state)
	if err != nil {
		return err
	}
	inst, err := w.instance("host")
	if err != nil {
		return err
	}
	defer inst.Close()
	policy, err := hostPolicy(cfg)
	if err != nil {
		return err
	}
	h := host.New(host.Config{
		Key: key, Process: link.Process{Instance: inst.ID, Boot: inst.Boot}, Trust: trust,
		Invites: identity.OpenInvites(w.state, key.Fingerprint()), Policy: policy, StateDir: w.state, Log: w.log,
		BreakReplay: fault == faultReplay,
	})
	r := &hostRun{w: w, h: h, cfg: cfg, since: time.Now()}
	r.follow = &follower{w: w, log: w.log, apply: r.apply}
	defer r.close()
	if err := r.listen(ctx, cfg.Host.Listen); err != nil {
		return err
	}
	ln, err := control.Listen(w.state, "host")
	if err != nil {
		return err
	}
	defer ln.Close()
	w.note("serving this machine (%s) on %s", key.Fingerprint().Short(), r.ln.Addr())
	if len(trust.List()) == 0 {
		w.note("nobody is paired yet: run `linkproxy host invite` beside this")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { r.follow.run(ctx) })
	err = (&control.Server{Status: r.status, Drop: h.Drop}).Serve(ctx, ln)
	cancel()
	wg.Wait()
	return err
}

func hostPolicy(cfg *config.Config) (p host.Policy, err error) {
	for _, a := range cfg.Host.Allow {
		rule, err := host.ParseRule(a.To)
		if err != nil {
			return p, fmt.Errorf("host: allow %q: %w", a.To, err)
		}
		rule.Hold = a.Hold
		p.Allow = append(p.Allow, rule)
	}
	return p, nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// hostRun is a running host with the sockets it accepts links on.
type hostRun struct {
	w     *world
	h     *host.Server
	since time.Time

	follow *follower

	mu  sync.Mutex // guards the following
	cfg *config.Config
	ln  net.Listener
	wg  sync.WaitGroup
}

// listen accepts links on addr; the caller holds r.mu or is alone.
func (r *hostRun) listen(ctx context.Context, addr string) error {
	ln, err := host.Listen(ctx, addr)
	if err != nil {
		return taken(addr, err)
	}
	r.wg.Go(func() {
		if err := r.h.Serve(ln); err != nil && !errors.Is(err, net.ErrClosed) {
			r.w.log.Error("no longer accepting links", "listen", ln.Addr(), "cause", err)
		}
	})
	r.ln = ln
	return nil
}

func (r *hostRun) close() {
	if r.ln != nil { // none: it was taken
		r.ln.Close()
	}
	r.h.Close()
	r.wg.Wait()
}

// apply puts a changed config in force; on an error the old one stays, whole.
func (r *hostRun) apply(ctx context.Context, cfg *config.Config) error {
	policy, err := hostPolicy(cfg)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := config.Diff(r.cfg, cfg)
	if ch.HostListen {
		r.ln.Close() // links that came in there live on; the new address may cover the old one
		if err := r.listen(ctx, cfg.Host.Listen); err != nil {
			return errors.Join(err, r.listen(ctx, r.cfg.Host.Listen))
		}
		r.w.log.Info("serving", "listen", r.ln.Addr())
	}
	if ch.HostAllow {
		r.h.SetPolicy(policy)
		r.w.log.Info("new allow rules are in force")
	}
	r.cfg = cfg
	return nil
}

// --- invites and clients

func (w *world) cmdInvite() *cli.Command {
	return &cli.Command{
		Name:  "invite",
		Usage: "print a one-time code that lets one machine pair with this one",
		Description: "The code is good for one machine and ten minutes. It names this machine's key and addresses, so the other\n" +
			"side needs nothing else. `linkproxy host` has to be running when it is used.\n\n" +
			"   linkproxy host invite\n" +
			"   linkproxy host invite --address vpn.example.com:8639",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "print", Usage: "print nothing but the code"},
			&cli.StringSliceFlag{Name: "address", Usage: "a `HOST:PORT` to reach this machine at, before those found"},
		},
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "host invite [--print] [--address HOST:PORT]"); err != nil {
				return err
			}
			return w.invite(c.Context, c.Bool("print"), c.StringSlice("address"))
		},
	}
}

func (w *world) invite(ctx context.Context, bare bool, extra []string) error {
	cfg, err := w.loadConfig()
	if err != nil {
		return err
	}
	key, err := identity.LoadOrCreateKey(w.state)
	if err != nil {
		return err
	}
	addresses, err := inviteAddresses(cfg, extra)
	if err != nil {
		return err
	}
	inv, err := identity.OpenInvites(w.state, key.Fingerprint()).Create(time.Now(), hostName(), addresses)
	if err != nil {
		return err
	}
	if _, err := control.NewClient(w.state, "host").Status(ctx); errors.Is(err, control.ErrNotRunning) {
		w.note("note: `linkproxy host` is not running with this state folder; start it before the code is used")
	}
	w.print("%s", inv.Encode())
	if bare {
		return nil
	}
	w.note("\nas a link:    %s", inv.URL())
	w.note("this machine: %s", inv.Fingerprint)
	w.note("reached at:   %s", strings.Join(inv.Addresses, ", "))
	w.note("good for:     one machine, %s (till %s)", ago(time.Until(inv.Expires).Round(time.Minute)), inv.Expires.Local().Format("15:04"))
	if isTerminal(w.err) {
		w.note("\n%s", inv.QR())
	}
	w.note("on the other machine: linkproxy pair %s", "CODE")
	return nil
}

// inviteAddresses are where this machine can be reached: what the user says, then its own addresses, private ones first.
func inviteAddresses(cfg *config.Config, extra []string) ([]string, error) {
	_, listen := config.SplitListen(cfg.Host.Listen)
	hostPart, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("host.listen %q: %w", cfg.Host.Listen, err)
	}
	list := slices.Clone(extra)
	for i, a := range list {
		if _, _, err := net.SplitHostPort(a); err != nil {
			list[i] = net.JoinHostPort(strings.Trim(a, "[]"), port)
		}
		if _, err := routeTo(list[i]); err != nil {
			return nil, &usage{fmt.Sprintf("--address %s: %v", a, err)}
		}
	}
	if ip := net.ParseIP(hostPart); hostPart == "localhost" || ip != nil && !ip.IsUnspecified() {
		return unique(append(list, net.JoinHostPort(cmp.Or(map[string]string{"localhost": "127.0.0.1"}[hostPart], hostPart), port))), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading this machine's addresses: %w; name one with --address", err)
	}
	var own []net.IP
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() && !n.IP.IsMulticast() {
			own = append(own, n.IP)
		}
	}
	slices.SortStableFunc(own, func(a, b net.IP) int { return rankOwn(a) - rankOwn(b) })
	for _, ip := range own {
		list = append(list, net.JoinHostPort(ip.String(), port))
	}
	if len(list) == 0 {
		return nil, errors.New("this machine has no address but its loopback: name one with --address HOST:PORT")
	}
	return unique(list), nil
}

// unique drops addresses that are there already, and what an invite has no room for.
func unique(list []string) []string {
	var out []string
	for _, a := range list {
		if !slices.Contains(out, a) && len(out) < identity.MaxAddresses {
			out = append(out, a)
		}
	}
	return out
}

// rankOwn puts private IPv4 first, then other IPv4, then IPv6: the likeliest to work, and to be typed, first.
func rankOwn(ip net.IP) int {
	switch {
	case ip.To4() != nil && ip.IsPrivate():
		return 0
	case ip.To4() != nil:
		return 1
	}
	return 2
}

func (w *world) cmdClients() *cli.Command {
	return &cli.Command{
		Name: "clients", Usage: "list who is paired with this machine, or revoke one",
		Description: "   linkproxy host clients\n   linkproxy host clients --json\n   linkproxy host clients revoke laptop",
		Flags:       []cli.Flag{jsonFlag},
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "host clients, or host clients revoke NAME"); err != nil {
				return err
			}
			return w.listClients(c.Bool("json"))
		},
		Subcommands: []*cli.Command{{
			Name: "revoke", Usage: "end a pairing; its live links end at once", ArgsUsage: "NAME|FINGERPRINT",
			Action: func(c *cli.Context) error {
				a, err := args(c, 1, 1, "host clients revoke NAME, or the first characters of a fingerprint")
				if err != nil {
					return err
				}
				trust, err := identity.OpenTrust(w.state)
				if err != nil {
					return err
				}
				gone, err := trust.Remove(a[0])
				switch {
				case errors.Is(err, identity.ErrStillTrusted):
					return fmt.Errorf("%s is not revoked and is still let in: %w; mend that and try again, or stop `linkproxy host` to keep it out meanwhile",
						a[0], err)
				case err != nil:
					return err
				}
				w.print("revoked %s (%s)", gone.Name, gone.Fingerprint.Short())
				return nil
			},
		}},
	}
}

// listedClient is a paired client, for programs.
type listedClient struct {
	Name   string    `json:"name"`
	ID     string    `json:"id"`
	Paired time.Time `json:"paired"`
}

func (w *world) listClients(asJSON bool) error {
	trust, err := identity.OpenTrust(w.state)
	if err != nil {
		return err
	}
	list := trust.List()
	if asJSON {
		listed := []listedClient{}
		for _, c := range list {
			listed = append(listed, listedClient{c.Name, c.Fingerprint.String(), c.Added})
		}
		return w.printJSON(listed)
	}
	if len(list) == 0 {
		w.note("nobody is paired with this machine: run `linkproxy host invite`")
	}
	for _, c := range list {
		w.print("%-20s %s  paired %s", c.Name, c.Fingerprint, c.Added.Local().Format("2006-01-02 15:04"))
	}
	return nil
}
