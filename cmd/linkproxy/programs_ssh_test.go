//go:build unix

package main_test

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// sshServer is an OpenSSH server of the test's own, and the config of a client that reaches it as "devbox".
type sshServer struct {
	world  *world
	config string // for ssh -F
}

// needSSH skips where OpenSSH, or the right to run its server, is missing.
func needSSH(t testing.TB) {
	t.Helper()
	for _, p := range []string{"ssh", "sshd", "ssh-keygen", "scp"} {
		program(t, p)
	}
	const privsep = "/run/sshd" // where sshd of Debian runs its unprivileged part when it is started by root
	if _, err := os.Stat(privsep); err != nil && os.Geteuid() == 0 {
		if err := os.MkdirAll(privsep, 0o755); err != nil {
			lacks(t, "%s, which sshd needs, cannot be made: %v", privsep, err)
		}
	}
}

// newSSH starts sshd on loopback and a world through which ssh reaches it by ProxyCommand.
func newSSH(t *testing.T, alone bool) *sshServer {
	t.Helper()
	needSSH(t)
	w := newWorld(t, "", alone)
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(w.dir, name) }
	for _, k := range []string{"hostkey", "userkey"} {
		w.run("", program(t, "ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", at(k))
	}
	public, err := os.ReadFile(at("hostkey.pub"))
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	write := func(name, text string) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sshd_config", fmt.Sprintf("ListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nUsePAM no\nStrictModes no\n"+
		"PasswordAuthentication no\nPermitRootLogin prohibit-password\nUseDNS no\nPrintMotd no\nSubsystem sftp internal-sftp\n",
		addr, at("hostkey"), at("userkey.pub")))
	write("known_hosts", "devbox "+string(public))
	connect := append([]string{linkproxy(t)}, w.upFlags...)
	connect = append(connect, "connect")
	if alone {
		connect = append(connect, "--alone")
	}
	write("ssh_config", fmt.Sprintf("Host devbox\n HostKeyAlias devbox\n User %s\n Port %s\n IdentityFile %s\n IdentitiesOnly yes\n"+
		" UserKnownHostsFile %s\n StrictHostKeyChecking yes\n BatchMode yes\n ControlPath none\n ProxyCommand %s %%h:%%p\n",
		who.Username, portOf(addr), at("userkey"), at("known_hosts"), strings.Join(connect, " ")))
	w.start("sshd", program(t, "sshd"), "-D", "-e", "-f", at("sshd_config"))
	w.listens(addr)
	return &sshServer{w, at("ssh_config")}
}

// command is `ssh` as other programs want to be told it.
func (s *sshServer) command() string { return "ssh -F " + s.config }

func TestProgramSSH(t *testing.T) {
	t.Parallel()
	s := newSSH(t, false)
	s.typing(t)
}

func TestProgramSSHAlone(t *testing.T) {
	t.Parallel()
	s := newSSH(t, true)
	s.typing(t)
}

// typing runs `ssh devbox cat` and sends numbered lines, the next when one has come back, until all cuts are made. No line
// may be lost, repeated, changed or late, and ssh itself must end well.
func (s *sshServer) typing(t *testing.T) {
	k := s.world.talkTo(program(t, "ssh"), "-F", s.config, "devbox", "cat")
	from := bufio.NewReader(k.out)
	say := func(i int) { fmt.Fprintf(k.in, "%s", line(i)) }
	hear := func(i int) error {
		got, err := from.ReadString('\n')
		if err != nil {
			return fmt.Errorf("reading line %d: %w; ssh said:\n%s", i, err, k.said.tail(20))
		}
		if got != line(i) {
			return fmt.Errorf("line %d is %q, want %q", i, got, line(i))
		}
		return nil
	}
	say(0)
	if err := hear(0); err != nil { // logged in
		t.Fatal(err)
	}
	c := s.world.cut(cutsWanted)
	n := 1
	for done := false; !done; n++ {
		say(n)
		if err := hear(n); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.enough:
			done = true
		default:
		}
	}
	if err := k.end(); err != nil {
		t.Error(err)
	}
	t.Logf("%d lines came back in order", n)
	s.world.finish(c)
}

// line is a numbered line of 20 to about 300 bytes.
func line(i int) string { return fmt.Sprintf("line %010d %s\n", i, strings.Repeat("abcdefg", i%40)) }

func TestProgramSCP(t *testing.T) {
	t.Parallel()
	s := newSSH(t, false)
	w := s.world
	const size = 100 << 20 // each way
	here, there, back := filepath.Join(w.dir, "here"), filepath.Join(w.dir, "there"), filepath.Join(w.dir, "back")
	want := randomFile(t, w.rand, here, size)
	copyOver := func(n int, from, to string) *cutter {
		w.setRate(2 << 20)
		ended := w.background(func() error {
			_, err := w.try("", program(t, "scp"), "-q", "-F", s.config, from, to)
			return err
		})
		c := w.cut(n)
		<-c.enough
		w.setRate(0)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return c
	}
	up := copyOver(8, here, "devbox:"+there)
	down := copyOver(8, "devbox:"+there, back)
	for _, f := range []string{there, back} {
		if got := hashFile(t, f); got != want {
			t.Errorf("%s has SHA-256 %s, want %s", f, got, want)
		}
	}
	w.finish(up, down)
}

func TestProgramRsync(t *testing.T) {
	t.Parallel()
	rsync := program(t, "rsync")
	s := newSSH(t, false)
	w := s.world
	src, dst := filepath.Join(w.dir, "src")+"/", filepath.Join(w.dir, "dst")+"/"
	for i := range 200 {
		randomFile(t, w.rand, filepath.Join(src, fmt.Sprintf("d%d", i%7), fmt.Sprintf("f%d", i)), 1+w.rand.IntN(40_000))
	}
	for i := range 3 {
		randomFile(t, w.rand, filepath.Join(src, fmt.Sprintf("big%d", i)), 14<<20)
	}
	sync := func(args ...string) (string, error) {
		return w.try("", rsync, append(args, "-e", s.command(), src, "devbox:"+dst)...)
	}
	w.setRate(3 << 20 / 2)
	ended := w.background(func() error { _, err := sync("-a"); return err })
	c := w.cut(cutsWanted)
	<-c.enough
	w.setRate(0)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	switch differs, err := sync("-a", "--checksum", "--dry-run", "--itemize-changes"); {
	case err != nil:
		t.Error(err)
	case differs != "":
		t.Errorf("rsync --checksum finds differences:\n%s", differs)
	}
	if a, b := hashTree(t, src), hashTree(t, dst); a != b {
		t.Errorf("the copy differs:\n%s\nwant\n%s", b, a)
	}
	w.finish(c)
}

func TestProgramGit(t *testing.T) {
	t.Parallel()
	git := program(t, "git")
	daemon := filepath.Join(strings.TrimSpace(runOnce(t, git, "--exec-path")), "git-daemon")
	if _, err := os.Stat(daemon); err != nil {
		lacks(t, "git daemon is not installed: %v", err)
	}
	daemonAddr := freeAddr(t)
	s := newSSHFixed(t, daemonAddr)
	w := s.world
	origin, clone := filepath.Join(w.dir, "origin"), filepath.Join(w.dir, "clone")
	run := func(dir string, args ...string) string {
		t.Helper()
		out, err := runCmd(w.git(git, s, dir, args...), "")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	commit := func(dir, name string) {
		for i := range 20 {
			randomFile(t, w.rand, filepath.Join(dir, name, fmt.Sprint(i)), 1<<20)
		}
		run(dir, "add", ".")
		run(dir, "commit", "-q", "-m", name)
	}
	run(w.dir, "init", "-q", "-b", "main", origin)
	commit(origin, "one")
	w.start("git daemon", git, "daemon", "--reuseaddr", "--export-all", "--base-path="+w.dir,
		"--listen=127.0.0.1", "--port="+portOf(daemonAddr), w.dir)
	w.listens(daemonAddr)

	slowly := func(n int, dir string, args ...string) *cutter {
		w.setRate(3 << 20 / 2)
		ended := w.background(func() error { _, err := runCmd(w.git(git, s, dir, args...), ""); return err })
		c := w.cut(n)
		<-c.enough
		w.setRate(0)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return c
	}
	cloned := slowly(8, w.dir, "clone", "-q", "git://"+w.fixed+"/origin", clone)
	if a, b := run(origin, "rev-parse", "HEAD"), run(clone, "rev-parse", "HEAD"); a != b {
		t.Errorf("the clone is at %s, want %s", b, a)
	}
	commit(clone, "two")
	pushed := slowly(8, clone, "push", "-q", "devbox:"+origin, "main:pushed")
	run(clone, "fsck", "--strict", "--full")
	run(origin, "fsck", "--strict", "--full")
	if a, b := run(clone, "rev-parse", "main"), run(origin, "rev-parse", "pushed"); a != b {
		t.Errorf("what was pushed is at %s, want %s", b, a)
	}
	w.finish(cloned, pushed)
}

// newSSHFixed is newSSH with a fixed port for target.
func newSSHFixed(t *testing.T, target string) *sshServer {
	t.Helper()
	s := newSSH(t, false)
	s.world.addForward(target)
	s.world.listens(s.world.fixed)
	return s
}

// git is a git command that reads no config of the user's.
func (w *world) git(git string, s *sshServer, dir string, args ...string) *exec.Cmd {
	cmd := w.command(git, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_SSH_COMMAND="+s.command(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_TERMINAL_PROMPT=0")
	return cmd
}

func runOnce(t testing.TB, argv0 string, args ...string) string {
	t.Helper()
	out, err := exec.Command(argv0, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", argv0, args, err)
	}
	return string(out)
}

// background runs f and hands over its error; the test waits for it.
func (w *world) background(f func() error) <-chan error {
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- f()
	}()
	w.t.Cleanup(func() { <-done }) // runs after t.Context has ended, which ends the program
	return ended
}

// randomFile writes size random bytes and returns their SHA-256.
func randomFile(t testing.TB, r *rand.Rand, name string, size int) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(randomBytes(r.Uint64()), int64(size)))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// randomBytes is an endless stream that follows from seed.
func randomBytes(seed uint64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return rand.NewChaCha8(key)
}

func hashFile(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// hashTree lists the files below dir with their hashes.
func hashTree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, p) // p is below dir
			fmt.Fprintf(&b, "%s %s\n", rel, hashFile(t, p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
