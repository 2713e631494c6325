package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
)

const (
	lockFile = "identity.lock"
	// lockWait is far more than one change takes (a few fsyncs): longer means a stopped or hung process.
	lockWait = 10 * time.Second
	// lockRetry is below the cost of an fsync, so that waiting adds little to it.
	lockRetry = 2 * time.Millisecond
	// maxFile bounds what is read of any file here: a trust list of thousands of clients is below 1 MiB.
	maxFile = 4 << 20

	// Mode bits that a file or folder must not have. Others may read what is no secret; nobody else may write.
	othersAny   fs.FileMode = 0o077
	othersWrite fs.FileMode = 0o022
)

// makeDir makes the state folder, or checks that nobody else can put files into it.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making state folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("looking at state folder: %w", err)
	}
	return checkMode(runtime.GOOS, dir, info.Mode(), othersWrite)
}

// checkMode refuses what other users of the machine could change or read. Windows has no such modes.
func checkMode(goos, path string, mode, forbidden fs.FileMode) error {
	if goos == "windows" || mode.Perm()&forbidden == 0 {
		return nil
	}
	want := "600"
	if mode.IsDir() {
		want = "700"
	}
	return fmt.Errorf("%w: %s has mode %04o, run: chmod %s %q", ErrPermissions, path, mode.Perm(), want, path)
}

// withLock runs do while no other process or goroutine changes the files of dir. It must not be nested.
func withLock(dir string, do func() error) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, lockFile)
	lock := flock.New(path, flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	_, err := lock.TryLockContext(ctx, lockRetry)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: another linkproxy has held %s for %v; end it if it hangs", ErrLocked, path, lockWait)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	return errors.Join(do(), lock.Close())
}

// readFile reads a regular file whose mode has none of the forbidden bits. A missing file is fs.ErrNotExist. The
// FileInfo is of the file that was read, taken before reading.
func readFile(path string, forbidden fs.FileMode) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path) // before opening: opening a named pipe would wait for its writer
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%w: %s is no regular file", ErrCorrupt, path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, nil, err
	}
	if err := checkMode(runtime.GOOS, path, info.Mode(), forbidden); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > maxFile {
		return nil, nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrCorrupt, path, maxFile)
	}
	return data, info, nil
}
