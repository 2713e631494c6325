package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// buildLinkproxy builds the binary as it is released: static, without symbols.
func buildLinkproxy(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "linkproxy")
	_, err := output(ctx, []string{"CGO_ENABLED=0"},
		"go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "linkproxy/cmd/linkproxy")
	return path, err
}

// linkproxyEnd is one machine of the pair: a config file and folders of its own.
type linkproxyEnd struct {
	binary string
	config string
	state  string
	env    []string
}

func newLinkproxyEnd(s *setup, name, conf string) (*linkproxyEnd, error) {
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	e := &linkproxyEnd{
		binary: s.linkproxy, config: filepath.Join(dir, "config.toml"), state: filepath.Join(dir, "state"),
		env: []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "XDG_CONFIG_HOME=" + dir, "XDG_STATE_HOME=" + dir},
	}
	return e, os.WriteFile(e.config, []byte(conf), 0o600)
}

func (e *linkproxyEnd) args(args ...string) []string {
	return append([]string{e.binary, "--state", e.state, "--config", e.config}, args...)
}

// startLinkproxy pairs two ends as a user would and starts `host` and `up`, with a fixed port and a SOCKS5 endpoint.
func startLinkproxy(ctx context.Context, s *setup) (*tunnel, error) {
	_, targetPort, err := net.SplitHostPort(s.target)
	if err != nil {
		return nil, err
	}
	socks, err := freePort()
	if err != nil {
		return nil, err
	}
	listen := fmt.Sprintf("[listen]\nsocks = %q\nhttp = \"off\"\n", address(socks))
	far, err := newLinkproxyEnd(s, "far", fmt.Sprintf("[host]\nlisten = %q\n", address(s.far)))
	if err != nil {
		return nil, err
	}
	near, err := newLinkproxyEnd(s, "near", listen)
	if err != nil {
		return nil, err
	}
	host, err := s.procs.start("linkproxy-host", far.env, far.args("host")...)
	if err != nil {
		return nil, err
	}
	if err := waitListening(address(s.far), host); err != nil {
		return nil, err
	}
	if err := pairLinkproxy(ctx, s, near, far); err != nil {
		return nil, host.failed(err)
	}
	forward := fmt.Sprintf("\n[[forward]]\nlisten = %q\nto = \"devbox:%s\"\n", address(s.near), targetPort)
	if err := appendFile(near.config, forward); err != nil {
		return nil, err
	}
	up, err := s.procs.start("linkproxy-up", near.env, near.args("up")...)
	if err != nil {
		return nil, err
	}
	return &tunnel{
		addr: address(s.near), socks: address(socks), name: "devbox:" + targetPort,
		near: []*proc{up}, far: []*proc{host},
	}, nil
}

// pairLinkproxy makes near trust far, by an invite, and far near.
func pairLinkproxy(ctx context.Context, s *setup, near, far *linkproxyEnd) error {
	ctx, cancel := context.WithTimeout(ctx, startWait+time.Minute) // in which a pairing that fails says why
	defer cancel()
	out, err := output(ctx, far.env, far.args("host", "invite", "--print")...)
	if err != nil {
		return err
	}
	invite := ""
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "lp1") {
			invite = strings.TrimSpace(line)
		}
	}
	if invite == "" {
		return fmt.Errorf("no invite in the output of host invite --print: %q", out)
	}
	_, err = output(ctx, near.env, near.args("pair", "--name", "devbox", invite)...)
	return err
}

func appendFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
