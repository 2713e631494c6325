package state

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"linkproxy/dialer/route"
	"linkproxy/internal/files"
)

const (
	memoryFile = "memory.json"
	lockFile   = "memory.lock"
	secretFile = "install.secret"
	// saveEvery is the least time between two writes: a race in an outage teaches something each few seconds, and none of it is
	// worth a write of its own.
	saveEvery = 5 * time.Second
	// lockWait is how long another process may hold the file; then this write is skipped, and the next one has it all.
	lockWait  = 2 * time.Second
	lockRetry = 5 * time.Millisecond
	// secretSize is that of the install secret, in bytes.
	secretSize = 32
)

// Config says where a Store is.
type Config struct {
	Dir string       // the state folder; made when something is written
	Log *slog.Logger // may be nil
}

// Store is what was learned, by peer. Safe for concurrent use. Its methods do not wait for the disk, but for Close.
type Store struct {
	dir string
	log *slog.Logger

	dirty chan struct{} // one slot
	stop  chan struct{}
	done  chan struct{}

	mu      sync.Mutex
	known   map[string]route.Memory // by peer
	changed map[string]bool         // since the last write
	closed  bool

	// The loop's own.
	base   map[string]route.Memory // as it was last read or written
	frozen bool                    // the file is not to be touched
	told   string                  // the last complaint: not repeated
}

// Open reads what is there. It never fails: what cannot be read is told, and nothing is known.
func Open(cfg Config) *Store {
	s := &Store{
		dir: cfg.Dir, log: cfg.Log, known: map[string]route.Memory{}, changed: map[string]bool{}, base: map[string]route.Memory{},
		dirty: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	f, err := s.first()
	if err != nil {
		s.complain(fmt.Sprintf("what works on which network is learned anew: %v", err))
	}
	if f != nil {
		for key, p := range f.peers {
			s.known[key], s.base[key] = p.mem, p.mem
		}
	}
	go s.loop()
	return s
}

// first reads what is there. What is broken is looked at again while no other process writes: one may have put a good file there
// meanwhile. If that cannot be had, the file is left as it is, for a later write to set aside.
func (s *Store) first() (*file, error) {
	f, err := s.read(false)
	if !errors.Is(err, errCorrupt) {
		return f, err
	}
	if lock := locked(s.dir, func() error { f, err = s.read(true); return nil }); lock != nil {
		err = errors.Join(err, lock)
	}
	return f, err
}

// Load is what is known of a peer. What it holds is not to be changed.
func (s *Store) Load(peer string) route.Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[peer]
}

// Save keeps what is known of a peer from now on; it is written within some seconds.
func (s *Store) Save(peer string, m route.Memory) {
	s.mu.Lock()
	s.known[peer] = m
	s.changed[peer] = true
	s.mu.Unlock()
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// Forget drops what is known of a peer.
func (s *Store) Forget(peer string) { s.Save(peer, route.Memory{}) }

// Close writes what is not written yet and ends the loop. It may be called again.
func (s *Store) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	<-s.done
}

// loop writes, at most once per saveEvery.
func (s *Store) loop() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		select {
		case <-s.stop:
			s.write()
			return
		case <-s.dirty:
		}
		timer.Reset(saveEvery)
		select {
		case <-s.stop:
			s.write()
			return
		case <-timer.C:
			s.write()
		}
	}
}

// write joins what has changed with what is on disk.
func (s *Store) write() {
	s.mu.Lock()
	changed, ours := s.changed, map[string]route.Memory{}
	s.changed = map[string]bool{} // what is saved from now on is for the next write
	for key := range changed {
		ours[key] = s.known[key]
	}
	s.mu.Unlock()
	if len(ours) == 0 || s.frozen {
		return
	}
	if err := locked(s.dir, func() error { return s.store(ours) }); err != nil {
		s.complain(fmt.Sprintf("what was learned about routes is kept in memory only: %v", err))
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.changed, changed)
		return
	}
	s.told = ""
	maps.Copy(s.base, ours)
}

// store does the work of write while no other process does. To ours it adds what else it has written.
func (s *Store) store(ours map[string]route.Memory) error {
	f, err := s.read(true)
	if err != nil || s.frozen {
		return err
	}
	if f == nil { // it was never there, or was removed or set aside: all that is known goes there
		f = &file{peers: map[string]*peer{}}
		s.mu.Lock()
		maps.Copy(ours, s.known)
		s.mu.Unlock()
	}
	for key, m := range ours {
		p := f.peers[key]
		switch {
		case isZero(m):
			delete(f.peers, key)
			continue
		case p == nil:
			f.peers[key] = &peer{mem: m}
		default:
			p.mem = merge(s.base[key], m, p.mem)
		}
	}
	data, err := f.bounded()
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(s.dir, memoryFile), data)
}

func isZero(m route.Memory) bool {
	return len(m.Networks) == 0 && m.Last == "" && len(m.ReadyV2) == 0
}

// bounded is the file as it is written: with as many peers as it may have, or as few of them as can be read again.
func (f *file) bounded() ([]byte, error) {
	for peers := maxPeers; ; peers /= 2 {
		f.bound(peers)
		data, err := f.encode()
		if err != nil || len(data) <= maxFile {
			return data, err
		}
		if peers == 0 {
			return nil, fmt.Errorf("it would be larger than %d bytes", maxFile)
		}
	}
}

// bound drops the peers that were not used for longest.
func (f *file) bound(peers int) {
	if len(f.peers) <= peers {
		return
	}
	keys := slices.SortedFunc(maps.Keys(f.peers), func(a, b string) int {
		if c := f.peers[b].used().Compare(f.peers[a].used()); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	for _, key := range keys[peers:] {
		delete(f.peers, key)
	}
}

func (p *peer) used() time.Time {
	t := p.mem.LastAt
	if len(p.mem.Networks) > 0 && p.mem.Networks[0].Used.After(t) {
		t = p.mem.Networks[0].Used
	}
	return t
}

// locked runs do while no other process changes a file in dir. Its error is not that of do if do was not run.
func locked(dir string, do func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Path(), err)
	}
	return errors.Join(do(), lock.Close())
}

// read returns nil if there is nothing to be read, and an error if it cannot be told whether there is. A broken file is set aside if it
// may be, by who holds the lock.
func (s *Store) read(aside bool) (*file, error) {
	path := filepath.Join(s.dir, memoryFile)
	data, err := readSome(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f *file
	if err == nil {
		f, err = parse(data)
	}
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, errNewer):
		s.frozen = true
		s.complain(fmt.Sprintf("%s is left alone, and nothing in it is used: %v; update linkproxy, or remove it", path, err))
	case errors.Is(err, errCorrupt) && aside:
		name, moved := files.SetAside(path, time.Now())
		if moved != nil {
			s.frozen = true
			s.complain(fmt.Sprintf("%s cannot be understood: %v; nor be set aside: %v; what is learned is kept in memory only; remove it, and start again",
				path, err, moved))
			break
		}
		s.complain(fmt.Sprintf("%s cannot be understood and was set aside as %s: %v; what works on which network is learned anew", path, name, err))
	default:
		return nil, fmt.Errorf("reading %s: %w", path, err) // it may be whole
	}
	return nil, nil
}

// readSome reads a regular file of at most maxFile bytes.
func readSome(path string) ([]byte, error) {
	info, err := os.Stat(path) // before opening: opening a named pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is no regular file", errCorrupt)
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%w: it is larger than %d bytes", errCorrupt, maxFile)
	}
	return data, err
}

func (s *Store) complain(text string) {
	if text != s.told {
		s.told = text
		s.log.Warn(text)
	}
}

// InstallSecret is a secret of this installation, made on first use: with it the hardware addresses of routers become names that
// say nothing to others. Where it cannot be kept, an error tells why, and routers are not told apart.
func InstallSecret(dir string) ([]byte, error) {
	path := filepath.Join(dir, secretFile)
	for range 2 {
		text, err := os.ReadFile(path)
		if err == nil {
			secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
			if err != nil || len(secret) != secretSize {
				return nil, fmt.Errorf("state: reading %s: it is not %d bytes in hex; remove it, and a new one is made", path, secretSize)
			}
			return secret, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("state: reading the install secret: %w", err)
		}
		if err := makeSecret(dir, path); err != nil {
			return nil, fmt.Errorf("state: making the install secret: %w", err)
		}
	}
	return nil, fmt.Errorf("state: reading %s: it comes and goes", path)
}

// makeSecret writes a secret where there is none. It renames a whole file into place under the lock, so that the first of several
// processes wins and nobody reads half of one; a hard link would do without a lock, but not every file system has them.
func makeSecret(dir, path string) error {
	return locked(dir, func() error {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		secret := make([]byte, secretSize)
		_, _ = rand.Read(secret) // never fails
		return files.Write(path, []byte(hex.EncodeToString(secret)+"\n"))
	})
}
