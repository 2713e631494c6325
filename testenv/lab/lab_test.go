package lab

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"linkproxy/testenv/netns"
)

// together is how many scenarios run at a time where time is the clock's: most of it they wait.
const (
	together     = 8
	togetherLong = 4 // with full loads among them, and figures that are published
)

func TestMain(m *testing.M) {
	netns.Main()
	flag.Parse()
	n := together
	if *all {
		n = togetherLong
	}
	_ = flag.Set("test.parallel", strconv.Itoa(n)) // the flag is there, and takes numbers
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if *out != "" {
		if err := writeReport(*out); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// results are those of all runs so far.
var results struct {
	sync.Mutex
	list []*Result
}

func writeReport(path string) error {
	all := map[string]map[Runner]*Scenario{}
	files, err := filepath.Glob("scenarios/*.txt")
	if err != nil {
		return err
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		if *only != "" && !isChosen(name) {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		all[name] = map[Runner]*Scenario{}
		for _, r := range Runners {
			if all[name][r], err = Parse(name, string(text), r); err != nil {
				return err
			}
		}
	}
	results.Lock()
	defer results.Unlock()
	slices.SortStableFunc(results.list, func(a, b *Result) int {
		if d := slices.Index(Runners, a.Runner) - slices.Index(Runners, b.Runner); d != 0 {
			return d
		}
		return slices.Index(Baselines, a.Baseline) - slices.Index(Baselines, b.Baseline)
	})
	return WriteReport(path, all, results.list)
}

var (
	update = flag.Bool("update", false, "rewrite testdata/*.trace from what the client decides")
	tell   = flag.Bool("tell", false, "tell what the client decided")
	all    = flag.Bool("lab.all", false, "play the long scenarios, too")
	only   = flag.String("lab.scenario", "", "play these only, long or not; names with commas between")
	out    = flag.String("lab.report", "", "write a report to this file")
)

// isChosen says whether a scenario is among those named.
func isChosen(name string) bool { return slices.Contains(strings.Split(*only, ","), name) }

// names lists the scenarios.
func names(t testing.TB) (list []string) {
	t.Helper()
	files, err := filepath.Glob("scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		list = append(list, strings.TrimSuffix(filepath.Base(f), ".txt"))
	}
	return list
}

// load reads a scenario as a runner plays it.
func load(t testing.TB, name string, r Runner) *Scenario {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("scenarios", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	sc, err := Parse(name, string(text), r)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// each runs play for each scenario that is to be played. One that is not meant for this world, or is long and left to make lab,
// is no test that was skipped.
func each(t *testing.T, r Runner, play func(t *testing.T, sc *Scenario)) {
	for _, name := range names(t) {
		sc := load(t, name, r)
		switch {
		case *only != "" && !isChosen(name), sc.Skip != "", sc.Long && !*all && *only == "", testing.Short() && !brief(sc, r):
			continue
		}
		t.Run(name, func(t *testing.T) { play(t, sc) })
	}
}

// brief says whether a scenario is played under the race detector, too.
func brief(sc *Scenario, r Runner) bool {
	if r == Sim {
		return !slices.ContainsFunc(sc.Apps, App.isBlast)
	}
	return r == Loopback && sc.Name == "cuts"
}

func TestSim(t *testing.T) {
	each(t, Sim, func(t *testing.T, sc *Scenario) {
		r := playSim(t, sc)
		if sc.Trace {
			golden(t, r)
		}
		report(t, r)
	})
}

// goldenLines is how much of a long story is kept.
const goldenLines = 100

var housekeeping = regexp.MustCompile(` decided what=(prove|drop|release|keep) `)

// golden compares what the client decided, and when, with testdata: a change there is a change of behaviour.
func golden(t *testing.T, r *Result) {
	t.Helper()
	path := filepath.Join("testdata", r.Scenario.Name+".trace")
	// Housekeeping among carriers follows from what was decided, at times that rest on a round trip measured in mid-fault.
	lines := slices.DeleteFunc(slices.Clone(r.Trace), func(line string) bool { return housekeeping.MatchString(line) })
	if n := len(lines); n > goldenLines {
		lines = append(slices.Clone(lines[:goldenLines]), "and so on")
	}
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the client decided otherwise than in %s (-update, if it may):\n%s", path, diff)
	}
}

func playSim(t *testing.T, sc *Scenario) (r *Result) {
	dir, began := t.TempDir(), time.Now()
	synctest.Test(t, func(t *testing.T) {
		w, err := newPackages(sc, newMemory(sc), dir)
		if err != nil {
			t.Fatal(err)
		}
		r = Play(t.Context(), sc, Sim, w)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	r.Took = time.Since(began)
	return r
}

func TestLoopback(t *testing.T) {
	each(t, Loopback, func(t *testing.T, sc *Scenario) {
		if !sc.Heavy {
			t.Parallel()
		}
		report(t, again(t, sc, func() *Result {
			w, err := newPackages(sc, &loopback{}, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return playReal(t, sc, Loopback, w)
		}))
	})
}

// tries is how often a scenario is played that only time speaks against: a machine that is busy otherwise stalls everything.
const tries = 3

// patient is the longest scenario that is played again.
const patient = 90 * time.Second

// again plays until nothing is late.
func again(t *testing.T, sc *Scenario, play func() *Result) (r *Result) {
	for n := 1; ; n++ {
		r = play()
		r.Tries = n
		if len(r.Faults) > 0 || len(r.Late) == 0 || n == tries || sc.End > patient {
			return r
		}
		t.Logf("once more, as it was late:\n%s", r.Summary())
	}
}

func playReal(t *testing.T, sc *Scenario, r Runner, w World) *Result {
	began := time.Now()
	res := Play(t.Context(), sc, r, w)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	res.Took = time.Since(began)
	return res
}

func TestNetNS(t *testing.T) {
	if err := netns.Supported(); err != nil {
		cannot(t, err)
	}
	exe := program(t)
	each(t, NetNS, func(t *testing.T, sc *Scenario) {
		if !sc.Heavy {
			t.Parallel()
		}
		r := again(t, sc, func() *Result {
			w, err := newProduct(t.Context(), sc, exe, shortDir(t))
			if err != nil {
				t.Fatal(err)
			}
			world := ""
			if c, ok := w.(interface{ congestion() string }); ok {
				world = c.congestion()
			}
			r := playReal(t, sc, NetNS, w)
			r.World = world
			return r
		})
		err := compare(t, sc, r)
		report(t, r)
		if errors.Is(err, ErrCannot) {
			cannot(t, err)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// compare plays the same events to what r is compared with.
func compare(t *testing.T, sc *Scenario, r *Result) error {
	if !*all && *only == "" {
		return nil
	}
	for _, name := range sc.Compare {
		w, err := newBaseline(t.Context(), sc, name, shortDir(t))
		if err != nil {
			return err
		}
		b := playReal(t, sc, NetNS, w)
		b.Baseline = name
		r.relate(b)
		keep(b)
		t.Log(b.Summary())
	}
	return nil
}

// cannot skips, or fails where everything must run.
func cannot(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("LINKPROXY_STRICT") == "1" {
		t.Fatalf("LINKPROXY_STRICT is set, and %v", err)
	}
	t.Skip(err)
}

// program builds linkproxy.
func program(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "linkproxy")
	out, err := exec.Command("go", "build", "-o", exe, "linkproxy/cmd/linkproxy").CombinedOutput()
	if err != nil {
		t.Fatalf("building linkproxy: %v\n%s", err, out)
	}
	return exe
}

// shortDir is a folder whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what a test leaves in the folder for temporary files is no fault of the product
	return dir
}

func keep(r *Result) {
	results.Lock()
	defer results.Unlock()
	results.list = append(results.list, r)
}

func report(t *testing.T, r *Result) {
	keep(r)
	t.Log(r.Summary())
	if *tell {
		t.Log(strings.Join(r.Trace, "\n"))
	}
	for _, f := range r.Problems() {
		t.Error(f)
	}
}
