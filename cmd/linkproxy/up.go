package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/urfave/cli/v2"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/internal/pipe"
	"linkproxy/link"
	"linkproxy/state/identity"
)

func (w *world) cmdUp() *cli.Command {
	return &cli.Command{
		Name:  "up",
		Usage: "run the local endpoints that apps connect to",
		Description: "Serves SOCKS5 and the HTTP proxy on 127.0.0.1:1080 and the fixed ports of the config file, until\n" +
			"interrupted. Restarting it ends its streams; it follows changes of the config file by itself (or on\n" +
			"SIGHUP), and what did not change keeps its sockets and streams.\n\n" +
			"   linkproxy up\n" +
			"   curl --proxy socks5h://127.0.0.1:1080 http://devbox:8000/",
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "up"); err != nil {
				return err
			}
			return w.runUp(c.Context)
		},
	}
}

// loadConfig reads the config; a missing file is an empty config, unless the user has named it.
func (w *world) loadConfig() (*config.Config, error) {
	cfg, err := config.Load(w.config)
	if errors.Is(err, os.ErrNotExist) {
		if w.named {
			return nil, w.noSuchConfig()
		}
		return config.Parse(w.config, nil)
	}
	return cfg, err
}

// loadOrBegin is loadConfig for who is about to write the file.
func (w *world) loadOrBegin() (*config.Config, error) {
	cfg, err := config.Load(w.config)
	if errors.Is(err, os.ErrNotExist) {
		return config.Parse(w.config, nil)
	}
	return cfg, err
}

// noSuchConfig tells that the file that was named is not there: to go on without it would be to serve something else.
func (w *world) noSuchConfig() error {
	return fmt.Errorf("there is no config file %s; write one (linkproxy config --help has an example), or leave out --config", w.config)
}

func (w *world) runUp(ctx context.Context) error {
	cfg, err := w.loadConfig()
	if err != nil {
		return err
	}
	key, err := identity.LoadOrCreateKey(w.state)
	if err != nil {
		return err
	}
	inst, err := w.instance("up")
	if err != nil {
		return err
	}
	defer inst.Close()
	u, err := w.assembleUp(cfg, key, link.Process{Instance: inst.ID, Boot: inst.Boot})
	if err != nil {
		return err
	}
	defer u.close()
	ln, err := control.Listen(w.state, "up")
	if err != nil {
		return err
	}
	defer ln.Close()
	for _, l := range u.listening() {
		w.note("listening on %s", l)
	}
	if len(u.listening()) == 0 {
		w.note("listening nowhere: [listen] in %s has both proxies off, and there is no [[forward]]; only `linkproxy connect` can ride on this", w.config)
	}
	if len(cfg.Peers) == 0 {
		w.note("no peer yet: on the machine to reach run `linkproxy host invite`, here `linkproxy pair INVITE`")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.follow.run(ctx)
	}()
	srv := &control.Server{
		Status:  u.status,
		Use:     u.use,
		Why:     u.why,
		Check:   u.check,
		Events:  u.events,
		Connect: u.connect,
		Copy:    func(client, stream net.Conn) { pipe.Copy(client, stream) },
	}
	err = srv.Serve(ctx, ln)
	cancel()
	<-done
	return err
}

// instance opens the role's instance; where the state folder cannot be written, one without memory serves.
func (w *world) instance(role string) (*identity.Instance, error) {
	inst, err := identity.OpenInstance(w.state, role)
	switch {
	case err == nil:
		if inst.Warning != nil {
			w.log.Warn("the instance file was set aside", "cause", inst.Warning)
		}
		return inst, nil
	case errors.Is(err, identity.ErrInstanceInUse):
		return nil, fmt.Errorf("`linkproxy %s` runs already with the state folder %s: stop it first, or name another with --state", role, w.state)
	case errors.Is(err, identity.ErrPermissions):
		return nil, err
	}
	w.log.Warn("the state folder cannot be written: what an earlier run left open elsewhere ends only by time", "cause", err)
	return identity.Ephemeral(nil), nil
}

func (w *world) cmdVersion() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Action: func(*cli.Context) error {
			w.print("linkproxy %s", version)
			return nil
		},
	}
}

func (w *world) cmdConfig() *cli.Command {
	return &cli.Command{
		Name:        "config",
		Usage:       "where the config is, and is it right",
		Description: "An example of a complete config file:\n\n" + config.Example,
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "config path|check"); err != nil {
				return err
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			{
				Name: "path", Usage: "print where the config file is",
				Action: func(*cli.Context) error { w.print("%s", w.config); return nil },
			},
			{
				Name: "check", Usage: "read the config file and name every mistake",
				Action: func(*cli.Context) error {
					cfg, err := config.Load(w.config)
					if errors.Is(err, os.ErrNotExist) && w.named {
						return w.noSuchConfig()
					}
					if errors.Is(err, os.ErrNotExist) {
						w.print("%s: no config file yet: the defaults are in force", w.config)
						return nil
					}
					if err != nil {
						return err
					}
					w.print("%s: %s, %s: all right", w.config, count(len(cfg.Peers), "peer"), count(len(cfg.Forwards), "fixed port"))
					return nil
				},
			},
		},
	}
}
