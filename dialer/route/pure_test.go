package route

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What decides must not act: the imports prove it.
func TestPackageIsPure(t *testing.T) {
	allowed := []string{"cmp", "errors", "fmt", "net/netip", "slices", "strings", "time"}
	clock := []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After(", "time.AfterFunc", "time.NewTimer", "time.Tick", "time.NewTicker"}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		name := f.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		seen++
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil || !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			}
		}
		for _, word := range clock {
			if strings.Contains(string(src), word) {
				t.Errorf("%s reads the clock: %s", name, word)
			}
		}
		for _, word := range []string{"\tgo ", "make(chan", "fmt.Print"} {
			if strings.Contains(string(src), word) {
				t.Errorf("%s acts: %q", name, word)
			}
		}
	}
	if seen < 5 {
		t.Fatalf("only %d source files were read", seen)
	}
}
