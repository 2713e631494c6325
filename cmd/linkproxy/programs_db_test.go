//go:build unix

package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// postgresUser is who may run a database server: PostgreSQL refuses root.
func postgresUser(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if errors.Join(err1, err2) == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
		}
	}
	lacks(t, "PostgreSQL does not run as root, and there is no user postgres or nobody")
	return nil
}

// newPostgres starts a cluster of the test's own and returns its address. The server is started by start, so that it ends
// after the link that its client comes over.
func newPostgres(t *testing.T) (addr string, start func(*world)) {
	t.Helper()
	initdb, postgres := program(t, "initdb"), program(t, "postgres")
	who := postgresUser(t)
	dir, err := os.MkdirTemp("", "lppg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if who != nil {
		if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
			lacks(t, "a folder cannot be given to the user who runs PostgreSQL: %v", err)
		}
	}
	as := func(argv0 string, args ...string) *exec.Cmd {
		cmd := exec.Command(argv0, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		return cmd
	}
	data := filepath.Join(dir, "data")
	mk := as(initdb, "--pgdata", data, "--username", "app", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	if _, err := runCmd(mk, ""); err != nil {
		t.Fatal(err)
	}
	addr = freeAddr(t)
	return addr, func(w *world) {
		w.startCmd("postgres", as(postgres, "-D", data, "-p", portOf(addr), "-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "log_min_messages=warning"))
		w.await(startTime, "PostgreSQL does not answer", func() bool {
			_, err := w.try("", program(w.t, "psql"), psqlArgs(addr, "-c", "select 1")...)
			return err == nil
		})
	}
}

// psqlArgs are the arguments for psql to talk to addr, bare and without the user's settings.
func psqlArgs(addr string, more ...string) []string {
	host := addr[:strings.LastIndexByte(addr, ':')]
	return append([]string{
		"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
		fmt.Sprintf("host=%s port=%s user=app dbname=postgres sslmode=disable connect_timeout=30", host, portOf(addr)),
	}, more...)
}

// TestProgramPsql is one transaction: small statements, a big COPY in, a big COPY out and COMMIT, each under cuts.
func TestProgramPsql(t *testing.T) {
	t.Parallel()
	psql := program(t, "psql")
	addr, start := newPostgres(t)
	w := newWorld(t, addr, false)
	start(w)
	const rows, rowSize = 20_000, 1000 // 20 MB each way
	in, out := filepath.Join(w.dir, "in"), filepath.Join(w.dir, "out")
	writeRows(t, w, in, rows, rowSize)

	k := w.talkTo(psql, psqlArgs(w.fixed)...)
	answers := bufio.NewReader(k.out)
	ask := func(statement string) string {
		t.Helper()
		fmt.Fprintln(k.in, statement)
		got, err := answers.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v; psql said:\n%s", statement, err, k.said.tail(20))
		}
		return strings.TrimSpace(got)
	}
	backend := ask("begin; create table small (n int); create table big (n int, s text); select pg_backend_pid();")

	c1 := w.cut(8)
	n := 0
	for done := false; !done; n++ {
		if got := ask(fmt.Sprintf("insert into small values (%d) returning n;", n)); got != strconv.Itoa(n) {
			t.Fatalf("statement %d answered %q", n, got)
		}
		done = closed(c1.enough)
	}
	// One statement each, which psql answers when it is through; what is in flight meanwhile is the COPY.
	slowly := func(statement string) *cutter {
		t.Helper()
		w.setRate(1 << 20)
		answered := w.background(func() error {
			fmt.Fprintf(k.in, "%s\n\\echo done\n", statement)
			got, err := answers.ReadString('\n')
			if err != nil || got != "done\n" {
				return fmt.Errorf("%s: %q, %w; psql said:\n%s", statement, got, err, k.said.tail(20))
			}
			return nil
		})
		c := w.cut(4)
		<-c.enough
		w.setRate(0)
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
		return c
	}
	c2 := slowly(fmt.Sprintf(`\copy big from '%s'`, in))
	c3 := slowly(fmt.Sprintf(`\copy (select n, s from big order by n) to '%s'`, out))
	if got := ask("select pg_backend_pid();"); got != backend {
		t.Errorf("the session is served by process %s, it began with %s", got, backend)
	}
	if got := ask(`commit; select 'committed';`); got != "committed" {
		t.Errorf("COMMIT answered %q", got)
	}
	if err := k.end(); err != nil {
		t.Error(err)
	}

	if a, b := hashFile(t, in), hashFile(t, out); a != b {
		t.Errorf("what was copied out has SHA-256 %s, what was copied in %s", b, a)
	}
	direct := w.run("", psql, psqlArgs(addr, "-c",
		"select count(*), min(n), max(n), count(distinct n), (select count(*) from big), (select sum(length(s)) from big) from small")...)
	if want := fmt.Sprintf("%d|0|%d|%d|%d|%d\n", n, n-1, n, rows, rows*rowSize); direct != want {
		t.Errorf("the database holds %q, want %q", direct, want)
	}
	t.Logf("%d statements and 2 × %d rows in one transaction", n, rows)
	w.finish(c1, c2, c3)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// writeRows makes a file for COPY: n, a tab and size characters on each line.
func writeRows(t testing.TB, w *world, name string, rows, size int) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	b := bufio.NewWriter(f)
	text := make([]byte, size)
	for n := range rows {
		for i := range text {
			text[i] = byte('a' + w.rand.IntN(26))
		}
		fmt.Fprintf(b, "%d\t%s\n", n, text)
	}
	if err := errors.Join(b.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestProgramRedis has redis-cli subscribed through a fixed port while another, beside the server, publishes numbered
// messages: each must come, once and in order.
func TestProgramRedis(t *testing.T) {
	t.Parallel()
	server, cli := program(t, "redis-server"), program(t, "redis-cli")
	addr := freeAddr(t)
	w := newWorld(t, addr, false)
	w.start("redis", server, "--bind", "127.0.0.1", "--port", portOf(addr), "--save", "", "--appendonly", "no", "--dir", w.dir,
		"--client-output-buffer-limit", "pubsub 0 0 0")
	w.listens(addr)
	sub := w.talkTo(cli, "-h", "127.0.0.1", "-p", portOf(w.fixed), "SUBSCRIBE", "news")
	heard := bufio.NewReader(sub.out)
	hear := func() []string {
		var lines []string
		for range 3 {
			l, err := heard.ReadString('\n')
			if err != nil {
				t.Errorf("subscribed redis-cli: %v; it said:\n%s", err, sub.said.tail(20))
				return nil
			}
			lines = append(lines, strings.TrimSpace(l))
		}
		return lines
	}
	if got := hear(); len(got) != 3 || got[0] != "subscribe" {
		t.Fatalf("SUBSCRIBE answered %q", got)
	}

	pub := w.talkTo(cli, "-h", "127.0.0.1", "-p", portOf(addr))
	replies := bufio.NewReader(pub.out)
	c := w.cut(cutsWanted)
	published := 0
	publish := func() {
		t.Helper()
		fmt.Fprintf(pub.in, "PUBLISH news %s\n", message(published))
		if got, err := replies.ReadString('\n'); err != nil || strings.TrimSpace(got) != "1" {
			t.Fatalf("message %d reached %q subscribers, %v", published, got, err)
		}
		published++
	}
	total := make(chan int, 1) // how many there are, once it is known
	received := w.background(func() error {
		most := -1
		for n := 0; n != most; n++ {
			got := hear()
			if len(got) != 3 || got[0] != "message" || got[1] != "news" || got[2] != message(n) {
				return fmt.Errorf("message %d is %q", n, got)
			}
			select {
			case most = <-total:
				if most <= n {
					return fmt.Errorf("message %d came, only %d were sent", n, most)
				}
			default:
			}
		}
		return nil
	})
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !closed(c.enough) {
		<-tick.C
		publish()
	}
	total <- published + 1
	publish() // the last one: whoever counts knows by then that it is
	if err := <-received; err != nil {
		t.Error(err)
	}
	if err := pub.end(); err != nil {
		t.Error(err)
	}
	_ = sub.cmd.Process.Signal(os.Interrupt) // it would go on for ever; an error means that it has ended
	_ = sub.end()                            // interrupted: its exit code says nothing
	t.Logf("%d messages came in order", published)
	w.finish(c)
}

// message is a numbered message of 20 to about 800 bytes.
func message(i int) string {
	return fmt.Sprintf("message-%010d-%s", i, strings.Repeat("0123456789", i%80))
}
