package netwatch

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var fixed = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func deltaText(d Delta) string {
	return fmt.Sprintf("added %v removed %v new %v gone %v default %v moved %v learned %v kind %v metered %v tailnet %v",
		d.Added, d.Removed, d.New, d.Gone, d.Default, d.Moved, d.Learned, d.Kind, d.Metered, d.Tailnet)
}

// What decides and what reads bytes starts nothing, waits for nothing and asks nobody: its imports show it.
func TestPureFiles(t *testing.T) {
	allowed := []string{
		"bytes", "crypto/hmac", "crypto/sha256", "encoding/binary", "encoding/hex", "errors", "fmt", "golang.org/x/sys/unix", "net/netip",
		"slices", "strings",
	}
	for _, name := range []string{"kind.go", "snapshot.go", "fingerprint.go", "delta.go", "bsdroute.go", "winrows.go", "netlink_linux.go"} {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		for _, word := range []string{"unix.Socket", "unix.Read", "unix.Clock", "go func"} {
			if strings.Contains(string(src), word) {
				t.Errorf("%s says %s", name, word)
			}
		}
	}
}
