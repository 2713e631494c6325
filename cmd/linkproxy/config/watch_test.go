package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// patience bounds the wait for an event of the file system.
const patience = 20 * time.Second

// watching runs a watcher until the test ends; each change sends what the file
// says then.
func watching(t *testing.T, w *watcher) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan string, 64), make(chan error, 1)
	go func() {
		ended <- w.run(ctx, func() {
			data, _ := os.ReadFile(w.path) // missing at first in some tests: ""
			seen <- string(data)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		select {
		case s := <-seen:
			t.Errorf("one call too many, the file said %q", s)
		default:
		}
	})
	return seen
}

// expect waits for the next call and compares what the file said.
func expect(t *testing.T, seen <-chan string, want string) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("the file said %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no call for %q", want)
	}
}

func quick(path string) *watcher {
	return &watcher{path: path, settle: 50 * time.Millisecond, retry: 50 * time.Millisecond}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestWatchInPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	writeFile(t, file, "1")
	seen := watching(t, quick(file))
	expect(t, seen, "1")
	writeFile(t, file, "22")
	expect(t, seen, "22")
	writeFile(t, file, "33")
	expect(t, seen, "33")
}

func TestWatchRename(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "config.toml"), filepath.Join(dir, "x.tmp")
	writeFile(t, file, "1")
	seen := watching(t, quick(file))
	expect(t, seen, "1")
	for _, text := range []string{"2", "3"} { // the second time the file is another inode than first watched
		writeFile(t, other, text)
		rename(t, other, file)
		expect(t, seen, text)
	}
	// As vi does: the old one away, a new one in its place.
	rename(t, file, filepath.Join(dir, "config.toml~"))
	writeFile(t, file, "4")
	expect(t, seen, "4")
}

// TestWatchIgnores has events that are no change; the last write shows that
// they were all handled before (one watcher sees them in order).
func TestWatchIgnores(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	writeFile(t, file, "1")
	seen := watching(t, quick(file))
	expect(t, seen, "1")
	writeFile(t, filepath.Join(dir, "other.toml"), "x")
	writeFile(t, file, "")  // cut short by an editor
	writeFile(t, file, "1") // the same again
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, "2")
	expect(t, seen, "2")
}

func TestWatchMissingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	file := filepath.Join(dir, "config.toml")
	seen := watching(t, quick(file))
	expect(t, seen, "")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, "1")
	expect(t, seen, "1")
	// The whole folder is replaced.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, "2")
	expect(t, seen, "2")
	writeFile(t, file, "3")
	expect(t, seen, "3")
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
}

func TestWatchLinkedFile(t *testing.T) {
	dir, dotfiles := t.TempDir(), t.TempDir()
	file, real := filepath.Join(dir, "config.toml"), filepath.Join(dotfiles, "lp.toml")
	writeFile(t, real, "1")
	symlink(t, real, file)
	seen := watching(t, quick(file))
	expect(t, seen, "1")
	writeFile(t, real, "2")
	expect(t, seen, "2")
	// The link is turned to another file, which is then watched.
	elsewhere := filepath.Join(t.TempDir(), "new.toml")
	writeFile(t, elsewhere, "3")
	symlink(t, elsewhere, filepath.Join(dir, "next"))
	rename(t, filepath.Join(dir, "next"), file)
	expect(t, seen, "3")
	writeFile(t, elsewhere, "4")
	expect(t, seen, "4")
}

// TestWatchVolume swaps a linked folder, as container volumes do.
func TestWatchVolume(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	for _, v := range []string{"1", "2", "3"} {
		if err := os.Mkdir(filepath.Join(dir, v), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, v, "config.toml"), v)
	}
	symlink(t, "1", filepath.Join(dir, "..data"))
	symlink(t, filepath.Join("..data", "config.toml"), file)
	seen := watching(t, quick(file))
	expect(t, seen, "1")
	for _, v := range []string{"2", "3"} {
		symlink(t, v, filepath.Join(dir, "..tmp"))
		rename(t, filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))
		expect(t, seen, v)
	}
	writeFile(t, filepath.Join(dir, "3", "config.toml"), "4")
	expect(t, seen, "4")
}

func TestWatchSeesAddPeer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	writeFile(t, file, "# mine\n")
	seen, ended := make(chan struct{}, 64), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- Watch(ctx, file, func() { seen <- struct{}{} }) }()
	<-seen
	if err := AddPeer(file, newPeer()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-seen:
	case <-time.After(patience):
		t.Error("no call")
	}
	cancel()
	if err := <-ended; err != nil || len(seen) > 0 {
		t.Errorf("ended with %v, %d calls too many", err, len(seen))
	}
}
