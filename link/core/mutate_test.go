package core

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutate = flag.Bool("mutate", false, "plant faults in copies of the package and see that its tests find each")

// faults are planted one at a time: in file, the text is replaced. Each is a rule of the link that somebody might think
// needless.
var faults = []struct{ name, file, text, by string }{
	{"a planned switch loses the last byte of a copy", "carrier.go", "k.carry(span{s, e.off, e.off + uint64(e.n), hedge})", "k.carry(span{s, e.off, e.off + uint64(e.n) - 1, hedge})"},
	{"what an ended carrier held is not said again", "carrier.go", "		if !e.moved && !e.hedge {\n			to.again(e, false)", "		if !e.moved && !e.hedge {\n			_ = to"},
	{"FIN is not said again", "stream.go", "	case frame.Fin:\n		return sayFin", "	case frame.Fin:\n		return 0"},
	{"STATE is not said again", "stream.go", "	case frame.State:\n		return sayState", "	case frame.State:\n		return 0"},
	{"RESET is not said again", "stream.go", "	case frame.Reset, frame.Refused:\n		return sayReset", "	case frame.Reset, frame.Refused:\n		return 0"},
	{"OPENED is not said again", "stream.go", "	case frame.Opened:\n		return sayOpened", "	case frame.Opened:\n		return 0"},
	{"OPEN is not repeated on another carrier", "send.go", "	if slices.Contains(s.openOn, k.gen) {", "	if len(s.openOn) > 0 {"},
	{"OPEN counts as SEEN once it is sent", "send.go", "	s.openOn = append(slices.DeleteFunc", "	s.openSeen = true\n	s.openOn = append(slices.DeleteFunc"},
	{"GONE is taken for RESET", "recv.go", "	s.endAcked = true\n	s.retire()", "	s.peerEnd = reset\n	s.in.drop(s.peerFinal)\n	s.endAcked = true\n	s.retire()"},
	{"a frame of a retired stream is not answered", "recv.go", "	k.tell(f.Stream, sayGone)\n	k.urge()\n	return nil\n}\n\n// wrongWay", "	return nil\n}\n\n// wrongWay"},
	{"retired once the own end is acknowledged", "stream.go", "	if s.endAcked && s.peerEnd != open && (s.peerEnd == reset || s.in.next == s.peerFinal) {", "	if s.endAcked {"},
	{"retired once both ends came, whole or not", "stream.go", "(s.peerEnd == reset || s.in.next == s.peerFinal) {\n		s.retire()", "true {\n		s.retire()"},
	{"copies for a doubtful carrier count as owned elsewhere", "carrier.go", "		to.again(e, true)\n	}", "		to.again(e, true)\n		e.moved = true\n	}"},
	{"spans already owned are dropped by a switch", "carrier.go", "	to.fast, to.slow = owned(to.fast), owned(to.slow)", "	to.fast, to.slow = nil, nil"},
	{"credit is said once and never renewed", "stream.go", "	s.granted = limit\n", "	s.granted = limit\n	if limit > 64<<10 {\n		return\n	}\n"},
	{"a window that the pool refuses grows all the same", "stream.go", "s.window < maxWindow && s.c.cfg.Account.Charge(s.window) {\n		s.recvHeld += s.window", "s.window < maxWindow {\n		if s.c.cfg.Account.Charge(s.window) {\n			s.recvHeld += s.window\n		}"},
	{"the client says nothing of a carrier it lets go", "core.go", "		if c.cfg.Client && !next.switchDue {", "		if false {"},
	{"an older decision is obeyed", "core.go", "	if f.Epoch <= c.epoch {", "	if f.Epoch < c.epoch-1 {"},
	{"an id is seen only while its stream lives", "recv.go", "		known = c.seen.has(f.Stream)", "		known = c.streams[f.Stream] != nil"},
	{"duplicate bytes are taken again", "buffer.go", "		off, p = s.next, p[skip:]", "		off = s.next"},
	{"bytes that wait behind a gap are forgotten", "buffer.go", "			s.queue = append(s.queue, recvChunk{b: b, w: len(b)})\n", ""},
	{"a switch leaves what was not begun where it is", "carrier.go", "func (k *Carrier) handOver(to *Carrier) {", "func (k *Carrier) handOver(to *Carrier) {\n	return"},
	{"the charge of bytes kept for a reset stream stays", "stream.go", "	s.out.drop()\n	s.release(&s.sendHeld, 0)", "	s.out.drop()"},
	{"SEEN tells one frame too many", "send.go", "Count: k.recvN, Delay", "Count: k.recvN + 1, Delay"},
	{"from one carrier in doubt to another", "life.go", "proof && !o.doubtful() &&", "proof &&"},
	{"bytes dropped after an error end in EOF", "stream.go", "s.in.next == s.peerFinal && !s.in.lossy:", "s.in.next == s.peerFinal:"},
	{"STOP is never answered", "recv.go", "	s.stopCame = true\n	s.endReset(code)", "	s.stopCame = true"},
	{"RESET has another final than FIN", "stream.go", "	if s.ended == open || s.sent < s.out.end {", "	if true {\n		s.sent += 0\n	}\n	if s.ended == open {"},
}

// TestMutants proves the tests by faults: run with -mutate (go test ./link/core -run TestMutants -mutate).
func TestMutants(t *testing.T) {
	if !*mutate {
		t.Skip("run with -mutate")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("none", func(t *testing.T) {
		if noticed, out := noticedBy(t, copied(t, root), "."); noticed != "" {
			t.Fatalf("the tests fail without a fault: %s", out)
		}
	})
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			dir := copied(t, root)
			plant(t, filepath.Join(dir, "link/core", fault.file), fault.text, fault.by)
			for _, tests := range []string{"TestSchedules", "."} { // best if random schedules notice it
				if noticed, _ := noticedBy(t, dir, tests); noticed != "" {
					t.Logf("noticed by %s", noticed)
					return
				}
			}
			t.Error("no test notices")
		})
	}
}

// copied returns a directory with a copy of the packages to test.
func copied(t *testing.T, root string) string {
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		copyFile(t, filepath.Join(root, name), filepath.Join(dir, name))
	}
	for _, pkg := range []string{"link/core", "link/frame"} {
		copyPackage(t, filepath.Join(root, pkg), filepath.Join(dir, pkg))
	}
	return dir
}

// noticedBy runs tests of the copy and names the first that fails; empty: none.
func noticedBy(t *testing.T, dir, tests string) (noticed, out string) {
	cmd := exec.Command("go", "test", "./link/core", "-run", tests, "-schedules", "2000", "-shrink=false", "-failfast", "-timeout", "200s")
	cmd.Dir = dir
	b, err := cmd.CombinedOutput()
	if err == nil {
		return "", ""
	}
	noticed = firstFailure(string(b))
	if noticed == "" {
		t.Fatalf("the tests do not run: %s", b)
	}
	return noticed, string(b)
}

func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "--- FAIL:") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func copyPackage(t *testing.T, from, to string) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(to, "testdata"), os.DirFS(filepath.Join(from, "testdata"))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Base(f) != "mutate_test.go" {
			copyFile(t, f, filepath.Join(to, filepath.Base(f)))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func plant(t *testing.T, file, text, by string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), text); n != 1 {
		t.Fatalf("%s holds %d times %q", filepath.Base(file), n, text)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), text, by, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
