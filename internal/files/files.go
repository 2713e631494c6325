// Package files replaces files so that a crash leaves the old one or the new one whole, and sets broken ones aside.
package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Write replaces path by data, durably, readable by the owner only: afterwards, and after a crash at any point,
// path holds the old or the new content whole. The caller holds a lock, hence the fixed temporary name, which
// leaves at most one stray file behind.
func Write(path string, data []byte) error {
	temp := path + ".tmp"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(filepath.Dir(path))
}

// rename replaces to by from. On Windows a virus scanner or backup that has just opened either file makes this fail
// for a moment, hence the second tries there.
func rename(from, to string) error {
	err := os.Rename(from, to)
	for try := 0; err != nil && runtime.GOOS == "windows" && try < 10; try++ {
		time.Sleep(20 * time.Millisecond)
		err = os.Rename(from, to)
	}
	return err
}

// syncDir makes a rename durable. Windows cannot sync a folder, some file systems neither: there the rename is as
// durable as the system makes it.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = file.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

// SetAside renames a broken file so that it can be looked at, and returns its new name.
func SetAside(path string, now time.Time) (string, error) {
	aside := path + ".corrupt-" + now.UTC().Format("20060102T150405.000")
	return aside, rename(path, aside)
}
