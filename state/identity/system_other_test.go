//go:build !linux

package identity

import (
	"os"
	"runtime"
	"testing"
)

// bound runs do as one whom file modes bind.
func bound(t *testing.T, do func()) {
	t.Helper()
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		lacks(t, "this user may read every file")
	}
	do()
}
