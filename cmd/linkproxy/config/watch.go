package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a file must be left alone before it is read: editors
	// write in several steps (truncate, write; or write another file, rename).
	settle = 200 * time.Millisecond

	// retry is how often a folder that is not there is looked for. It is rare
	// and nobody waits, so a wake-up every 10 s is enough.
	retry = 10 * time.Second
)

// Watch calls onChange each time the content of a file has become another and
// 200 ms passed without a further write, until ctx ends (it returns nil then)
// or the system cannot watch (an error; a reload by signal still works). The
// first call comes as soon as the watch stands, whether or not anything
// changed: so nothing is missed between the caller's first reading and then.
//
// It watches folders, not the file, so that a file replaced by rename is seen,
// and the folders of what symbolic links point to. A file or folder that is
// missing is no change, nor is an empty file; one that comes back is.
//
// The password file is not watched; a reload by signal reads it anew.
//
// onChange is called from Watch's own goroutine, never twice at once, and
// should not block for long.
func Watch(ctx context.Context, path string, onChange func()) error {
	w := &watcher{path: path, settle: settle, retry: retry}
	if err := w.run(ctx, onChange); err != nil {
		return fmt.Errorf("config: watching %s: %w", path, err)
	}
	return nil
}

type watcher struct {
	path          string
	settle, retry time.Duration

	fs      *fsnotify.Watcher
	names   []string // paths whose events matter
	missing bool     // a folder on the way is not there
	last    [sha256.Size]byte
}

func (w *watcher) run(ctx context.Context, onChange func()) (err error) {
	if w.path, err = filepath.Abs(w.path); err != nil {
		return err
	}
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.fs.Close()) }()
	if err := w.follow(); err != nil {
		return err
	}
	w.changed()
	onChange()
	timer := time.NewTimer(w.retry)
	defer timer.Stop()
	w.rearm(timer)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.fs.Events:
			if !ok {
				return fsnotify.ErrClosed
			}
			if slices.Contains(w.names, filepath.Clean(e.Name)) {
				timer.Reset(w.settle)
			}
		case _, ok := <-w.fs.Errors:
			if !ok {
				return fsnotify.ErrClosed
			}
			timer.Reset(w.settle) // events may be lost: look
		case <-timer.C:
			if err := w.follow(); err != nil {
				return err
			}
			if w.changed() {
				onChange()
			}
			w.rearm(timer)
		}
	}
}

// rearm sets the timer for a folder that is missing; nothing else needs time.
func (w *watcher) rearm(timer *time.Timer) {
	if w.missing {
		timer.Reset(w.retry)
	} else {
		timer.Stop()
	}
}

// changed reads the file and tells whether it is another than last time. One
// that cannot be read now is not: it comes back, or it is gone for good and
// what it said stays in force. Nor is an empty one, which is what some editors
// leave for a moment: it would be a valid config and close everything.
func (w *watcher) changed() bool {
	data, err := readFile(w.path)
	if err != nil || len(data) == 0 {
		w.last = [sha256.Size]byte{} // who has met it so has to look again
		return false
	}
	sum := sha256.Sum256(data)
	if sum == w.last {
		return false
	}
	w.last = sum
	return true
}

// follow watches the folders of the path and of every link it leads through as
// they are now.
func (w *watcher) follow() error {
	_, steps, err := followLinks(w.path)
	if err != nil {
		return nil // a ring of links is a moment's mistake: the next event tells
	}
	w.names, w.missing = nil, false
	var dirs []string
	for i, step := range steps {
		w.names = append(w.names, step)
		dir := filepath.Dir(step)
		dirs = append(dirs, dir)
		// A folder may itself be a link that is swapped, beside the link that
		// leads through it (as container volumes do: config.toml ->
		// ..data/config.toml).
		if i > 0 && filepath.Dir(dir) == filepath.Dir(steps[i-1]) {
			w.names = append(w.names, dir)
		}
	}
	w.names = append(w.names, dirs...) // one that goes away is looked for again
	return w.watchOnly(dirs)
}

// watchOnly makes these the watched folders. All are entered anew: a folder
// may have been replaced by another of its name.
func (w *watcher) watchOnly(dirs []string) error {
	for _, old := range w.fs.WatchList() {
		_ = w.fs.Remove(old) // fails where the folder, and with it the watch, has just gone
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		switch err := w.fs.Add(dir); {
		case errors.Is(err, fs.ErrNotExist):
			w.missing = true
		case err != nil:
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}
