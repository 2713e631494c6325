package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"linkproxy/testenv/netns"
)

// baseline is a world of netns without the product.
type baseline struct {
	*spaces
	ssh bool
}

// newBaseline makes the world, and an OpenSSH tunnel over the first link if it is to be one.
func newBaseline(ctx context.Context, sc *Scenario, name, dir string) (World, error) {
	w, err := newSpaces(sc, "", dir)
	if err != nil {
		return nil, err
	}
	b := &baseline{w, name == Baselines[0]}
	if name == "BBR" || name == "CUBIC" {
		for _, h := range []*netns.Host{w.laptop, w.box} {
			if err := h.SetCongestion(strings.ToLower(name)); err != nil {
				return nil, errors.Join(fmt.Errorf("%w: %w", ErrCannot, err), w.Close())
			}
		}
	}
	if b.ssh {
		if err := b.tunnel(ctx); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return b, nil
}

// Door opens a connection to the target, whatever the scenario says of ways.
func (b *baseline) Door(ctx context.Context, _ string) (Door, error) {
	at := net.JoinHostPort(b.links[b.sc.Links[0].Name].far, "9000")
	if b.ssh {
		at = nsForward
	}
	c, err := b.laptop.Dial(ctx, "tcp", at)
	return Door{Conn: c, Via: "tcp"}, err
}

// tunnel starts sshd on the host and ssh -L on the client, with OpenSSH's defaults.
func (b *baseline) tunnel(ctx context.Context) error {
	for _, name := range []string{"hostkey", "key"} {
		out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(b.dir, name)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: ssh-keygen: %w: %s", ErrCannot, err, out)
		}
	}
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		if sshd = "/usr/sbin/sshd"; !exists(sshd) {
			return fmt.Errorf("%w: %w", ErrCannot, err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // Debian's sshd wants it
		return err
	}
	server := &process{w: b.spaces, on: b.box, name: "sshd"}
	server.cmd = b.box.Command(sshd, "-D", "-e", "-f", "/dev/null", "-p", "2222", "-h", filepath.Join(b.dir, "hostkey"),
		"-o", "AuthorizedKeysFile="+filepath.Join(b.dir, "key.pub"), "-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PidFile=none")
	client := &process{w: b.spaces, on: b.laptop, name: "ssh"}
	client.cmd = b.laptop.Command("ssh", "-N", "-F", "none", "-p", "2222", "-i", filepath.Join(b.dir, "key"),
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ExitOnForwardFailure=yes",
		"-L", nsForward+":"+nsTarget, "root@"+b.links[b.sc.Links[0].Name].far)
	for _, p := range []*process{server, client} {
		if err := p.run(); err != nil {
			return err
		}
		b.conns = append(b.conns, p)
		at, on := ":2222", b.box
		if p == client {
			at, on = nsForward, b.laptop
		}
		late := time.Now().Add(startTime)
		for {
			c, err := on.Dial(ctx, "tcp", loopbackOf(at))
			if err == nil {
				_ = c.Close()
				break
			}
			if time.Now().After(late) || wait(ctx, time.Now().Add(20*time.Millisecond)) != nil {
				return fmt.Errorf("lab: %s does not answer: %w:\n%s", p.name, err, p.said.text())
			}
		}
	}
	return nil
}

func loopbackOf(at string) string {
	if at[0] == ':' {
		return "127.0.0.1" + at
	}
	return at
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
