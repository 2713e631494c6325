package main

import (
	"bytes"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "../.."

// TestFaultsFitTheCode: a change of the code takes the faults in it along.
func TestFaultsFitTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, f := range allFaults() {
		if names[f.name] {
			t.Errorf("two faults are named %q", f.name)
		}
		names[f.name] = true
		src, err := os.ReadFile(filepath.Join(module, f.file))
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		broken, err := f.plant(src)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), f.file, broken, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		if f.first != "" && !hasTest(t, f.pkg(), f.first) {
			t.Errorf("%s: %s has no test %s", f.name, f.pkg(), f.first)
		}
	}
}

func hasTest(t *testing.T, pkg, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(module, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(src), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}

func TestPlantTakesOnlyWhatIsThereOnce(t *testing.T) {
	for _, c := range []struct{ src, text, by, want string }{
		{"a b c", "b", "x", "a x c"},
		{"a b b", "b", "x", ""},
		{"a c", "b", "x", ""},
		{"a b c", "b", "b", ""},
		{"a b c", "", "x", ""},
	} {
		got, err := fault{text: c.text, by: c.by}.plant([]byte(c.src))
		if string(got) != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, errStale) {
			t.Errorf("%q for %q in %q: %q, %v", c.by, c.text, c.src, got, err)
		}
	}
}

func TestFirstFailure(t *testing.T) {
	for _, c := range []struct{ out, want string }{
		{"PASS\n", ""},
		{"exit status 2\n", ""},
		{"--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b (0.01s)\n        a_test.go:1: no\n--- FAIL: TestC (0.00s)\nFAIL\n", "TestA"},
		{"--- FAIL: TestA (0.00s)\npanic: no [recovered]\n", "TestA"},
		{"panic: no\n\ngoroutine 7 [running]:\n", "panic: no"},
		{"panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestA/b (1m0s)\n", "TestA/b did not end"},
		{"fatal error: all goroutines are asleep - deadlock!\n", "fatal error: all goroutines are asleep - deadlock!"},
		{"PASS\ngoleak: Errors on successful test run: found unexpected goroutines\n", "the check that no goroutine is left"},
	} {
		if got := firstFailure(c.out); got != c.want {
			t.Errorf("%q: %q, want %q", c.out, got, c.want)
		}
	}
}

func TestSpread(t *testing.T) {
	list := []fault{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}, {name: "e"}}
	for n, want := range []string{"abcde", "a", "ac", "abd", "abcd", "abcde", "abcde"} {
		got := ""
		for _, f := range spread(list, n) {
			got += f.name
		}
		if got != want {
			t.Errorf("%d of 5: %s, want %s", n, got, want)
		}
	}
}

// TestJudge plants faults in a module of its own, whose tests look at sum and never at product.
func TestJudge(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module tiny\n\ngo 1.26\n",
		"sums/sums.go":     "package sums\n\nfunc sum(a, b int) int { return a + b }\n\nfunc product(a, b int) int { return a * b }\n",
		"sums/sum_test.go": "package sums\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(1, 2) != 3 {\n\t\tt.Fatal(product(1, 2))\n\t}\n}\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const file = "sums/sums.go"
	found := fault{name: "differs", file: file, text: "a + b", by: "a - b"}
	lives := fault{name: "divides", file: file, text: "a * b", by: "a / b"}
	stale := fault{name: "gone", file: file, text: "a % b", by: "a"}
	wrong := fault{name: "no Go", file: file, text: "a + b", by: "a +"}
	want := map[string]string{
		noFault: "sound", found.name: "found", lives.name: "SURVIVED", stale.name: "NOT JUDGED", wrong.name: "NOT JUDGED",
	}
	r := &runner{root: root, workers: 2}
	err := r.run(t.Context(), append(sound([]fault{found}), found, lives, stale, wrong), func(v verdict) {
		if line := v.String(); !strings.HasPrefix(line, want[v.name]+" ") || v.good() != (want[v.name] == "sound" || want[v.name] == "found") {
			t.Errorf("good %v: %s", v.good(), line)
		}
		if v.name == found.name && v.test != "TestSum" {
			t.Errorf("found by %q", v.test)
		}
		if v.name == stale.name && !errors.Is(v.err, errStale) {
			t.Errorf("stale: %v", v.err)
		}
		delete(want, v.name)
	})
	if err != nil || len(want) != 0 {
		t.Fatalf("%v; not judged: %v", err, want)
	}
	src, err := os.ReadFile(filepath.Join(root, file))
	if err != nil || !bytes.Contains(src, []byte("a + b")) {
		t.Fatalf("the module itself was changed: %s, %v", src, err)
	}
}

func TestArgumentsThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{{"-only", "("}, {"-only", "no such fault"}, {"-nonsense"}} {
		if err := play(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}
