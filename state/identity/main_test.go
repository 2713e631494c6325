package identity

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// childEnv makes the test binary act as another process on a state folder: "TASK FOLDER [ARGUMENT]".
const childEnv = "LINKPROXY_IDENTITY_TEST_CHILD"

func TestMain(m *testing.M) {
	if task := os.Getenv(childEnv); task != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent closes it to let all children go at once
		if err := runChild(strings.Split(task, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(args []string) error {
	task, dir := args[0], args[1]
	switch task {
	case "key":
		key, err := LoadOrCreateKey(dir)
		if err != nil {
			return err
		}
		fmt.Print(key.Fingerprint())
	case "instance":
		inst, err := OpenInstance(dir, "up")
		if errors.Is(err, ErrInstanceInUse) {
			fmt.Print("in use")
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Printf("%x %d", inst.ID, inst.Boot) // ends without Close: the lock goes with the process
	case "trust":
		t, err := OpenTrust(dir)
		if err != nil {
			return err
		}
		for i := range 5 {
			if _, err := t.Add(testKey(args[2]+string(rune('a'+i))).Fingerprint(), "client", time.Now()); err != nil {
				return err
			}
		}
	case "invite":
		invite, err := OpenInvites(dir, testKey("host").Fingerprint()).Create(time.Now(), "devbox", nil)
		if err != nil {
			return err
		}
		fmt.Print(invite.Encode())
	case "attempt":
		secret, err := hex.DecodeString(args[2])
		if err != nil {
			return err
		}
		name, err := OpenInvites(dir, testKey("host").Fingerprint()).Attempt(time.Now(), func(s []byte) bool { return bytes.Equal(s, secret) })
		switch {
		case errors.Is(err, ErrNoInvite):
			fmt.Print("none")
		case errors.Is(err, ErrWrongSecret):
			fmt.Print("wrong")
		case err != nil:
			return err
		default:
			fmt.Print("paired " + name)
		}
	}
	return nil
}

// children runs one process per task, lets all go at once, and returns what each printed.
func children(t *testing.T, tasks ...[]string) []string {
	t.Helper()
	type child struct {
		cmd      *exec.Cmd
		start    io.Closer
		out, err bytes.Buffer
	}
	all := make([]*child, len(tasks))
	for i, task := range tasks {
		c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0])}
		c.cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(task, "\n"))
		c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
		var err error
		if c.start, err = c.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all[i] = c
	}
	for _, c := range all {
		_ = c.start.Close()
	}
	out := make([]string, len(all))
	for i, c := range all {
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("child %q: %v: %s", tasks[i], err, c.err.String())
		}
		out[i] = c.out.String()
	}
	return out
}

// lacks skips a test for something this machine does not have; with LINKPROXY_STRICT=1 that is a failure.
func lacks(t *testing.T, format string, a ...any) {
	t.Helper()
	if os.Getenv("LINKPROXY_STRICT") == "1" {
		t.Fatalf("LINKPROXY_STRICT is set, and "+format, a...)
	}
	t.Skipf(format, a...)
}

// testKey makes the same key for the same name.
func testKey(name string) *Key {
	key, err := NewKey(bytes.NewReader(checksum("test key", []byte(name), 32)))
	if err != nil {
		panic(err)
	}
	return key
}

// wantErr checks the class of an error and that its text says all of what.
func wantErr(t *testing.T, err, class error, what ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("error %v, want class %v", err, class)
	}
	for _, w := range what {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func put(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// jam makes every write of path fail, also for root: its temporary file's name is taken by a folder that is not empty.
// The returned function makes it work again.
func jam(t *testing.T, path string) (free func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path+".tmp", "jam"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(path + ".tmp"); err != nil {
			t.Fatal(err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// tempDir is t.TempDir, closed to others whatever the umask is: a state folder that others can write is refused.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
