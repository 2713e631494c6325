package main_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// strict turns a skip for a missing program or right into a failure: where everything is installed, a skip hides a defect.
var strict = os.Getenv("LINKPROXY_STRICT") == "1"

// seedFlag repeats a run: the times and kinds of all cuts follow from it.
var seedFlag = flag.Uint64("seed", 0, "seed of the cuts; 0: a new one")

// logsFlag shows what the processes said though the test passed.
var logsFlag = flag.Bool("logs", false, "show the logs of all processes")

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("8") // nobody has chosen: these tests wait for outages more than they compute; 8 is a valid number
	}
	code := m.Run()
	if binary.dir != "" {
		os.RemoveAll(binary.dir)
	}
	os.Exit(code)
}

var binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// linkproxy builds the program under test once and returns its path.
func linkproxy(t testing.TB) string {
	t.Helper()
	b := &binary
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "linkproxy-bin-"); b.err != nil {
			return
		}
		b.path = filepath.Join(b.dir, "linkproxy")
		if runtime.GOOS == "windows" {
			b.path += ".exe"
		}
		cmd := exec.Command("go", "build", "-o", b.path, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if raced {
			cmd = exec.Command("go", "build", "-race", "-o", b.path, ".")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("building linkproxy: %w\n%s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

// lacks skips a test for something this machine does not have, unless strict.
func lacks(t testing.TB, format string, a ...any) {
	t.Helper()
	text := fmt.Sprintf(format, a...)
	if strict {
		t.Fatalf("LINKPROXY_STRICT is set, and %s", text)
	}
	t.Skip(text)
}

// program finds a program, or skips the test.
func program(t testing.TB, name string) string {
	t.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	places := []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}
	if pg, err := filepath.Glob("/usr/lib/postgresql/*/bin"); err == nil {
		places = append(places, pg...)
	}
	for _, dir := range places {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p
		}
	}
	lacks(t, "%s is not installed", name)
	return ""
}

// newSeed is the run's seed mixed with the test's name, so that no two tests cut at the same times.
func newSeed(t testing.TB) (uint64, *rand.Rand) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	mix := seed
	for _, c := range []byte(t.Name()) {
		mix = mix*1099511628211 ^ uint64(c)
	}
	t.Logf("seed %d (repeat with -seed %d -run '^%s$')", seed, seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
	return seed, rand.New(rand.NewPCG(seed, mix))
}

// freeAddr is a loopback address nobody listens on now, below the ports that systems give to outgoing connections.
func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := findAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// given are the ports that findAddr has named: whoever got one may not have listened yet, or not again.
var given sync.Map

func findAddr() (addr string, err error) {
	err = errors.New("every port that was tried is given away")
	for range 1000 {
		port := 12000 + rand.IntN(20000)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		var ln net.Listener
		if ln, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return ln.Addr().String(), ln.Close()
		}
	}
	return "", err
}

// portOf is the port of a host:port.
func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
