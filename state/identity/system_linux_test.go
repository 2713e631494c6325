package identity

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A full disk: a client can be removed all the same, and nobody else is lost by it.
func TestTrustOnFullDisk(t *testing.T) {
	dir := tempDir(t)
	if err := unix.Mount("linkproxy-test", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		lacks(t, "a file system of 64 KiB cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	trust := must(OpenTrust(dir))
	must(trust.Add(key("a"), "a", noon))
	must(trust.Add(key("b"), "b", noon))
	fill := must(os.Create(filepath.Join(dir, "fill")))
	for {
		if _, err := fill.Write(make([]byte, 512)); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := trust.Add(key("c"), "c", noon)
	wantErr(t, err, unix.ENOSPC)
	if c, err := trust.Remove("a"); c.Name != "a" || err != nil {
		t.Fatalf("removing on a full disk: %+v, %v", c, err)
	}
	if again := must(OpenTrust(dir)); again.Trusted(key("a")) || !again.Trusted(key("b")) || again.Trusted(key("c")) {
		t.Errorf("the list is %v", again.List())
	}
}

// bound runs do as one whom file modes bind, also for root: on a thread that is given up afterwards.
func bound(t *testing.T, do func()) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			failed <- err
			return
		}
		caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err := unix.Capset(&header, &caps[0]); err != nil {
			failed <- err
			return
		}
		do()
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}
