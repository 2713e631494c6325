package lab

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestSim(t *testing.T) {
	for _, name := range names(t) {
		sc := load(t, name, Sim)
		t.Run(name, func(t *testing.T) {
			if sc.Skip != "" {
				t.Skip(sc.Skip)
			}
			report(t, playSim(t, sc))
		})
	}
}

func playSim(t *testing.T, sc *Scenario) (r *Result) {
	dir, began := t.TempDir(), time.Now()
	synctest.Test(t, func(t *testing.T) {
		w, err := newPackages(sc, &memory{}, dir)
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

var tell = flag.Bool("tell", false, "tell what the client decided")

func report(t *testing.T, r *Result) {
	t.Log(r.Summary())
	if *tell {
		t.Log(strings.Join(r.Trace, "\n"))
	}
	for _, f := range r.Faults {
		t.Error(f)
	}
}
