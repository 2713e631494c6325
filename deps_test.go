// Package linkproxy holds no code: this test states who may import whom in the tree, and why each module is there.
package linkproxy

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ours is a statement of policy: the packages of this module and what of this module each may import. docs/ARCHITECTURE.md
// says the same in words. Who adds an edge here gives a reason in the commit.
var ours = map[string][]string{
	"dialer/route":            {},
	"state/identity":          {"internal/files"},
	"internal/files":          {},
	"state":                   {"dialer/route", "internal/files"},
	"internal/pipe":           {"internal/sock"},
	"internal/sock":           {},
	"discovery/netwatch":      {}, // dialer translates what it reports for route
	"testenv":                 {},
	"testenv/streamcheck":     {},
	"testenv/streamcheck/cmd": {"testenv/streamcheck"},
	"testenv/bench":           {},
	"testenv/mutate":          {}, // plants faults in copies of other packages, and knows none
	"testenv/netns":           {},
	"testenv/lab": { // the whole product in a world
		"control", "dialer", "dialer/route", "host", "internal/sock", "link", "proxy", "state/identity", "testenv",
		"testenv/netns", "testenv/streamcheck",
	},
	"control":              {},
	"link/frame":           {},
	"link/core":            {"link/frame"},
	"link":                 {"internal/sock", "link/core", "link/frame", "state/identity"},
	"proxy":                {"internal/pipe"},
	"dialer":               {"dialer/route", "discovery/netwatch", "internal/sock", "link", "state/identity"},
	"host":                 {"internal/pipe", "internal/sock", "link", "state/identity"},
	"cmd/linkproxy/config": {"host", "state/identity"},
	"cmd/linkproxy": {
		"cmd/linkproxy/config", "control", "dialer", "dialer/route", "discovery/netwatch", "host", "internal/pipe", "link", "proxy",
		"state", "state/identity", "testenv",
	},
}

// theirs is every module outside the standard library that product code links, and the reason it is there.
var theirs = map[string]string{
	"github.com/armon/go-socks5":      "fixed by the owner; the SOCKS5 handshake, behind wrappers",
	"github.com/urfave/cli/v2":        "fixed by the owner; the command line",
	"github.com/pelletier/go-toml/v2": "the config: strict mode lists every unknown key with its position",
	"github.com/fsnotify/fsnotify":    "notices a changed config or trust file on every system",
	"github.com/gofrs/flock":          "locks between processes that work on Windows too",
	"rsc.io/qr":                       "the QR code of an invite; one small module",
	"github.com/Microsoft/go-winio":   "named pipes: the control socket on Windows",
	"golang.org/x/net":                "route: the routing and neighbour tables of macOS",
	"golang.org/x/sys":                "socket options and readiness that package net does not offer",
	"golang.org/x/term":               "is it a terminal, how wide is it",
	"github.com/lmittmann/tint":       "readable logs on a terminal; one module without others",
}

// pure are the packages that decide; what they may import shows that they read no clock, start nothing and do no I/O.
var pure = map[string][]string{
	"link/core":    {"cmp", "errors", "fmt", "slices", "sort", "math/rand/v2", "time", "linkproxy/link/frame"},
	"link/frame":   {"encoding/binary", "errors", "fmt", "time"},
	"dialer/route": {"cmp", "errors", "fmt", "net/netip", "slices", "strings", "time", "strconv"},
}

// impure are words that no pure package may say, though it imports time.
var impure = []string{"time.Now(", "time.Since(", "time.Until(", "time.After(", "time.NewTimer(", "time.Sleep(", "go func"}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(dir, path string, src string, imports []string) {
		seen[dir] = true
		allowed, known := ours[dir]
		if !known {
			t.Errorf("%s: package %s is not in the policy: add it to deps_test.go with what it may import", path, dir)
			return
		}
		for _, imp := range imports {
			if inner, ok := strings.CutPrefix(imp, "linkproxy/"); ok {
				if !slices.Contains(allowed, inner) {
					t.Errorf("%s: %s must not import %s", path, dir, imp)
				}
				continue
			}
			if strings.Contains(strings.Split(imp, "/")[0], ".") && moduleOf(imp) == "" {
				t.Errorf("%s: %s is a new dependency: add a line with its reason to deps_test.go", path, imp)
			}
		}
		if list, ok := pure[dir]; ok {
			checkPure(t, path, src, imports, list)
		}
	})
	for dir := range ours {
		if !seen[dir] {
			t.Errorf("deps_test.go names package %s, which does not exist", dir)
		}
	}
}

func checkPure(t *testing.T, path, src string, imports, allowed []string) {
	for _, imp := range imports {
		if !slices.Contains(allowed, imp) {
			t.Errorf("%s: a package that decides must not import %s", path, imp)
		}
	}
	for _, word := range impure {
		if strings.Contains(src, word) {
			t.Errorf("%s: a package that decides must not say %s…", path, word)
		}
	}
}

func moduleOf(imp string) string {
	for m := range theirs {
		if imp == m || strings.HasPrefix(imp, m+"/") {
			return m
		}
	}
	return ""
}

func TestEveryDependencyIsUsed(t *testing.T) {
	used := map[string]bool{}
	eachFile(t, func(_, _, _ string, imports []string) {
		for _, imp := range imports {
			used[moduleOf(imp)] = true
		}
	})
	for m := range theirs {
		if !used[m] {
			t.Errorf("deps_test.go gives a reason for %s, which nothing imports", m)
		}
	}
}

// eachFile calls f for every product file on every system, whatever its build tags.
func eachFile(t *testing.T, f func(dir, path, src string, imports []string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(d.Name()) > 1 && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, i := range file.Imports {
			imp, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, imp)
		}
		f(filepath.ToSlash(filepath.Dir(path)), path, string(src), imports)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
