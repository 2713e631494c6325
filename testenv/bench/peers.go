package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"
)

// Names of the columns that others are compared with.
const (
	nameLinkproxy = "linkproxy"
	nameTLSRelay  = "tls-relay"
	nameOpenSSH   = "OpenSSH -L (gcm)"
)

// kind is a way to build a tunnel.
type kind struct {
	key      string // on the command line
	name     string // in the table
	programs []string
	packages string // what to install when a program is missing
	version  []string
	idleMost int // most idle connections to measure memory with; 0: as planned
	start    func(ctx context.Context, s *setup) (*tunnel, error)
}

// setup is what a tunnel is built from.
type setup struct {
	procs     *procs
	dir       string // for its files; exists
	target    string // host:port it shall lead to
	linkproxy string // path of the binary
	near, far int    // free ports, for those that cannot pick their own
}

// tunnel is one that runs.
type tunnel struct {
	kind  *kind
	addr  string  // where its near end listens
	socks string  // where its SOCKS5 endpoint listens, if it has one …
	name  string  // … and the host:port to ask for there
	near  []*proc // with everything below them
	far   []*proc
}

func (t *tunnel) nearIDs() []int { return ids(t.near) }
func (t *tunnel) farIDs() []int  { return ids(t.far) }
func (t *tunnel) allIDs() []int  { return append(ids(t.near), ids(t.far)...) }

func ids(list []*proc) []int {
	var all []int
	for _, p := range list {
		all = append(all, p.pid())
	}
	return all
}

// kinds are the tunnels there are, in the order of the table.
func kinds() []*kind {
	return []*kind{
		{key: "linkproxy", name: nameLinkproxy, start: startLinkproxy},
		{key: "tls-relay", name: nameTLSRelay, start: startTLSRelay},
		{
			key: "openssh", name: nameOpenSSH, start: startOpenSSH, version: []string{"ssh", "-V"},
			programs: []string{"ssh", "sshd", "ssh-keygen"}, packages: "openssh-client and openssh-server",
			idleMost: sshIdleMost,
		},
		{
			key: "stunnel", name: "stunnel", start: startStunnel, version: []string{"stunnel4", "-version"},
			programs: []string{"stunnel4"}, packages: "stunnel4", idleMost: stunnelIdleMost,
		},
		{
			key: "shadowsocks", name: "shadowsocks", start: startShadowsocks, version: []string{"ss-server", "-h"},
			programs: []string{"ss-server", "ss-tunnel"}, packages: "shadowsocks-libev",
		},
	}
}

func kindNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.key)
	}
	return names
}

// find looks for a program in PATH and where servers are kept, which an ordinary user's PATH leaves out.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, program))
		}
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(path) // sshd insists
}

// missing are the programs of the kind that are not installed.
func (k *kind) missing() []string {
	var list []string
	for _, p := range k.programs {
		if _, err := find(p); err != nil {
			list = append(list, p)
		}
	}
	return list
}

// versionLine is what the program says of itself in its first line.
func (k *kind) versionLine(ctx context.Context) string {
	if k.version == nil {
		return ""
	}
	path, err := find(k.version[0])
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, k.version[1:]...).CombinedOutput() // some exit with a failure, having said it
	for line := range strings.Lines(string(out)) {
		if strings.ContainsAny(line, "0123456789") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// address is port on the loopback address.
func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// startListener runs a role of ours that prints where it listens.
func startListener(ps *procs, role string, args ...string) (*proc, string, error) {
	p, err := ps.startSelf(role, args...)
	if err != nil {
		return nil, "", err
	}
	addr, err := p.line(startWait)
	return p, addr, err
}

func startTLSRelay(_ context.Context, s *setup) (*tunnel, error) {
	file := func(name string) string { return filepath.Join(s.dir, name) }
	for _, end := range []string{"near", "far"} {
		if err := writeCert(file(end+".key"), file(end+".crt")); err != nil {
			return nil, err
		}
	}
	far, farAddr, err := startListener(s.procs, "relay-far", s.target, file("far.key"), file("near.crt"))
	if err != nil {
		return nil, err
	}
	near, addr, err := startListener(s.procs, "relay-near", farAddr, file("near.key"), file("far.crt"))
	if err != nil {
		return nil, err
	}
	return &tunnel{addr: addr, near: []*proc{near}, far: []*proc{far}}, nil
}

// pair starts both ends of a tunnel that is told its ports.
func (s *setup) pair(nearArgs, farArgs []string) (*tunnel, error) {
	t := &tunnel{addr: address(s.near)}
	for _, end := range []struct {
		list *[]*proc
		args []string
	}{{&t.far, farArgs}, {&t.near, nearArgs}} {
		path, err := find(end.args[0])
		if err != nil {
			return nil, err
		}
		p, err := s.procs.start(end.args[0], nil, append([]string{path}, end.args[1:]...)...)
		if err != nil {
			return nil, err
		}
		*end.list = append(*end.list, p)
		if end.list == &t.far {
			if err := waitListening(address(s.far), p); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

const (
	startWait = 15 * time.Second      // until a program that was started answers
	pollPause = 20 * time.Millisecond // between two looks whether it does
)

// waitListening returns when something accepts connections at addr.
func waitListening(addr string, p *proc) error {
	for end := time.Now().Add(startWait); ; time.Sleep(pollPause) {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return c.Close()
		}
		if p.ended() {
			return p.failed(fmt.Errorf("ended at once: %w", p.err))
		}
		if time.Now().After(end) {
			return p.failed(fmt.Errorf("not listening on %s: %w", addr, err))
		}
	}
}

// sshIdleMost is fewer than the others get, because ssh looks at all its channels each time one has something to do:
// the first 1000 open in a few seconds, 5000 in more than a minute.
const sshIdleMost = 1000

// stunnelIdleMost is fewer, because a handshake of stunnel's takes ten times as long as another's.
const stunnelIdleMost = 1000

const sshCipher = "aes128-gcm@openssh.com"

// privSepDir is an empty folder that sshd, run by root, wants to exist; the package's service makes it on start. It
// stays, because another sshd may have come to need it.
const privSepDir = "/run/sshd"

func startOpenSSH(ctx context.Context, s *setup) (*tunnel, error) {
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	keygen, err := find("ssh-keygen")
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(s.dir, name) }
	for _, name := range []string{"hostkey", "userkey"} {
		if _, err := output(ctx, nil, keygen, "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", file(name)); err != nil {
			return nil, err
		}
	}
	hostKey, err := os.ReadFile(file("hostkey.pub"))
	if err != nil {
		return nil, err
	}
	known := fmt.Sprintf("[127.0.0.1]:%d %s", s.far, hostKey)
	err = errors.Join(
		os.WriteFile(file("known_hosts"), []byte(known), 0o600),
		os.WriteFile(file("sshd_config"), []byte(strings.Join([]string{
			"ListenAddress " + address(s.far), "HostKey " + file("hostkey"), "AuthorizedKeysFile " + file("userkey.pub"),
			"Ciphers " + sshCipher, "PermitRootLogin prohibit-password", "PasswordAuthentication no",
			"KbdInteractiveAuthentication no", "UsePAM no", "UseDNS no", "StrictModes no", "PidFile none",
			"AllowTcpForwarding local", "PermitOpen " + s.target, "LogLevel ERROR", "",
		}, "\n")), 0o600),
	)
	if err != nil {
		return nil, err
	}
	if me.Uid == "0" {
		if err := os.MkdirAll(privSepDir, 0o755); err != nil {
			return nil, err
		}
	}
	return s.pair(
		[]string{
			"ssh", "-F", "/dev/null", "-N", "-T", "-L", address(s.near) + ":" + s.target, "-p", fmt.Sprint(s.far),
			"-i", file("userkey"), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes",
			"-o", "UserKnownHostsFile=" + file("known_hosts"), "-o", "GlobalKnownHostsFile=/dev/null",
			"-o", "StrictHostKeyChecking=yes", "-o", "ExitOnForwardFailure=yes", "-o", "Ciphers=" + sshCipher,
			me.Username + "@127.0.0.1",
		},
		[]string{"sshd", "-D", "-e", "-f", file("sshd_config")},
	)
}

// startStunnel leaves resuming of TLS sessions as it is by default, on.
func startStunnel(_ context.Context, s *setup) (*tunnel, error) {
	file := func(name string) string { return filepath.Join(s.dir, name) }
	ends := []struct {
		name, peer, accept, connect, client string
	}{
		{"near", "far", address(s.near), address(s.far), "yes"},
		{"far", "near", address(s.far), s.target, "no"},
	}
	for _, e := range ends {
		if err := writeCert(file(e.name+".key"), file(e.name+".crt")); err != nil {
			return nil, err
		}
		conf := strings.Join([]string{
			"foreground = yes", "pid =", "debug = err", "socket = l:TCP_NODELAY=1", "socket = r:TCP_NODELAY=1",
			"[bench]", "client = " + e.client, "accept = " + e.accept, "connect = " + e.connect,
			"cert = " + file(e.name+".key"), "CAfile = " + file(e.peer+".crt"), "verifyPeer = yes",
			"sslVersionMin = TLSv1.3", "ciphersuites = TLS_AES_128_GCM_SHA256", "libwrap = no", "",
		}, "\n")
		if err := os.WriteFile(file(e.name+".conf"), []byte(conf), 0o600); err != nil {
			return nil, err
		}
	}
	return s.pair([]string{"stunnel4", file("near.conf")}, []string{"stunnel4", file("far.conf")})
}

func startShadowsocks(_ context.Context, s *setup) (*tunnel, error) {
	// A time-out beyond any idle phase of a run.
	common := []string{
		"-s", "127.0.0.1", "-p", fmt.Sprint(s.far), "-k", rand.Text(), "-m", "aes-128-gcm",
		"-t", fmt.Sprint(int(connLimit.Seconds())), "--no-delay",
	}
	return s.pair(
		append([]string{"ss-tunnel", "-b", "127.0.0.1", "-l", fmt.Sprint(s.near), "-L", s.target}, common...),
		append([]string{"ss-server"}, common...),
	)
}
