package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// maxLinks bounds a chain of symbolic links, as the kernels do.
const maxLinks = 40

// followLinks returns the file that a path stands for, which need not exist,
// and every path on the way, the first being the path itself.
func followLinks(path string) (real string, steps []string, err error) {
	for range maxLinks {
		steps = append(steps, path)
		target, err := os.Readlink(path)
		if err != nil {
			return path, steps, nil // no link, or nothing there (yet)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", nil, fmt.Errorf("more than %d symbolic links", maxLinks)
}

// replaceFile gives a file new content in one step: readers see the old or the
// new one, also after a power cut. Symbolic links stay; an existing file keeps
// its mode, a new one gets 0600.
func replaceFile(path string, data []byte) (err error) {
	path, _, err = followLinks(path)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	switch info, err := os.Stat(path); {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".config-*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()           // closed already on some ways here
			_ = os.Remove(tmp.Name()) // err says what matters
		}
	}()
	if _, err = tmp.Write(data); err != nil {
		return err
	}
	if err = tmp.Chmod(mode); err != nil && runtime.GOOS != "windows" {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename last; Windows has no such call and needs none.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
