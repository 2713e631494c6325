package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"linkproxy/internal/files"
)

const (
	trustName = "clients.json"
	// minPrefix is 20 bits: shorter ones are more likely a slip than a choice.
	minPrefix = 4
)

// Client is one trusted client of a host.
type Client struct {
	Fingerprint Fingerprint
	Name        string    // printable, ≤ 64 bytes, no two alike
	Added       time.Time // when it was paired last, UTC, whole seconds
}

// Trust is the list of clients that may use this host, kept in dir/clients.json. It is safe for concurrent use, and
// several processes may change one list. Trusted answers from memory: the list as this process last read or wrote it.
type Trust struct {
	dir, path string
	current   atomic.Pointer[trustView] // stored with identity.lock held, so that views follow each other as the files do
	told      atomic.Pointer[trustView] // what OpenTrust or the last Reload handed out
}

// trustView is one state of the list. It is never changed.
type trustView struct {
	clients []Client
	keys    map[Fingerprint]struct{}
	info    fs.FileInfo // nil while there is no file
}

// OpenTrust reads the list in dir; before the first Add there is none, and nobody is trusted. A list that cannot be
// understood, or is gone though its backup is there, is an error (ErrCorrupt, ErrVersion, ErrPermissions) that
// names the file and the way out: trust never becomes empty by accident.
func OpenTrust(dir string) (*Trust, error) {
	t := &Trust{dir: dir, path: filepath.Join(dir, trustName)}
	err := withLock(dir, func() error {
		_, view, err := t.read()
		t.current.Store(view)
		t.told.Store(view)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("identity: opening trust list: %w", err)
	}
	return t, nil
}

// Trusted reports whether fp is on the list. It takes no lock and reads no file.
func (t *Trust) Trusted(fp Fingerprint) bool {
	_, ok := t.current.Load().keys[fp]
	return ok
}

// List returns the clients in the order in which they were first added.
func (t *Trust) List() []Client { return slices.Clone(t.current.Load().clients) }

// Changed reports, by a look at the file's time and size, whether it differs from what OpenTrust or the last Reload
// read. Add and Remove count as changes too, in this process and in others.
func (t *Trust) Changed() bool {
	was := t.told.Load().info
	now, err := os.Stat(t.path)
	if err != nil || was == nil {
		return was != nil || !errors.Is(err, fs.ErrNotExist)
	}
	return !sameFile(was, now)
}

func sameFile(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// Reload reads the file again and returns which clients came and went since OpenTrust or the last Reload, this
// process's own Add and Remove included, so that whoever closes the links of removed clients misses none. On an
// error the list in memory stays in force.
func (t *Trust) Reload() (added, removed []Fingerprint, err error) {
	err = withLock(t.dir, func() error {
		_, view, err := t.read()
		if err != nil {
			return err
		}
		added, removed = missing(view, t.told.Load()), missing(t.told.Load(), view)
		t.current.Store(view)
		t.told.Store(view)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("identity: reloading trust list: %w", err)
	}
	return added, removed, nil
}

// missing returns which clients of a are not in b.
func missing(a, b *trustView) []Fingerprint {
	var out []Fingerprint
	for _, c := range a.clients {
		if _, ok := b.keys[c.Fingerprint]; !ok {
			out = append(out, c.Fingerprint)
		}
	}
	return out
}

// Add trusts fp, durably, and returns the entry as stored: the name is made printable, short and unlike all others
// ("laptop-2"), and an empty one becomes the short fingerprint. A client that is on the list already gets the new
// name and time.
func (t *Trust) Add(fp Fingerprint, name string, at time.Time) (Client, error) {
	c := Client{Fingerprint: fp, Added: at.UTC().Truncate(time.Second)}
	err := t.change(false, func(f *trustFile) error {
		if fp.IsZero() {
			return fmt.Errorf("%w: a zero fingerprint", ErrFormat)
		}
		c.Name = f.freeName(fp, name)
		f.put(c)
		return nil
	})
	if err != nil {
		return Client{}, fmt.Errorf("identity: trusting client %s: %w", fp.Short(), err)
	}
	return c, nil
}

// Remove ends the trust in one client, durably, and returns who it was. The query is a name (in any case), a
// fingerprint, or the first characters of one (≥ 4). A full disk does not stop it: the backup makes room. Classes:
// ErrNoClient, ErrAmbiguous, ErrMistyped; ErrStillTrusted, if it could not be written.
func (t *Trust) Remove(query string) (Client, error) {
	var c Client
	found := false
	err := t.change(true, func(f *trustFile) error {
		i, err := f.find(query)
		if err != nil {
			return err
		}
		c, found = f.entries[i].Client, true
		f.entries = slices.Delete(f.entries, i, i+1)
		return nil
	})
	if err != nil && found {
		err = fmt.Errorf("%w: %w", ErrStillTrusted, err)
	}
	if err != nil {
		return Client{}, fmt.Errorf("identity: removing client %q: %w", cleanName(query), err)
	}
	return c, nil
}

// change edits the list on disk, then in memory. The backup is written first: it never holds a client whose removal
// was reported as done. Where it cannot be written and the list only shrinks, it gives way: its room is enough for the list.
func (t *Trust) change(shrinks bool, edit func(*trustFile) error) error {
	return withLock(t.dir, func() error {
		f, _, err := t.read()
		if err != nil {
			return err
		}
		if err := edit(f); err != nil {
			return err
		}
		data, err := f.encode()
		if err != nil {
			return err
		}
		if err := files.Write(t.backup(), data); err != nil {
			if !shrinks || os.Remove(t.backup()) != nil {
				return err
			}
		}
		if err := files.Write(t.path, data); err != nil {
			return err
		}
		_, view, err := t.read()
		if err != nil {
			return err
		}
		t.current.Store(view)
		return nil
	})
}

func (t *Trust) backup() string { return t.path + ".bak" }

// read reads the file. The caller holds identity.lock.
func (t *Trust) read() (*trustFile, *trustView, error) {
	f := &trustFile{}
	data, info, err := readFile(t.path, othersWrite)
	if err == nil {
		f, err = parseTrust(data)
	} else if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Lstat(t.backup()); errors.Is(e, fs.ErrNotExist) {
			err = nil // never written
		} else {
			err = fmt.Errorf("%w: it is missing", ErrCorrupt)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w%s", t.path, err, t.remedy(err))
	}
	view := &trustView{keys: make(map[Fingerprint]struct{}, len(f.entries)), info: info}
	for _, e := range f.entries {
		view.clients = append(view.clients, e.Client)
		view.keys[e.Fingerprint] = struct{}{}
	}
	return f, view, nil
}

// remedy says how to get a usable list back.
func (t *Trust) remedy(err error) string {
	switch {
	case errors.Is(err, ErrVersion):
		return "; update linkproxy on this machine"
	case !errors.Is(err, ErrCorrupt):
		return ""
	}
	if _, e := os.Lstat(t.backup()); e != nil {
		return "; mend it, or delete it to trust nobody and pair again"
	}
	return fmt.Sprintf("; look through %[1]s and restore it with: cp %[1]q %[2]q, or delete both to trust nobody and pair again", t.backup(), t.path)
}

// find returns the index of the one entry that query means.
func (f *trustFile) find(query string) (int, error) {
	exact, parseErr := ParseFingerprint(query)
	prefix := normalise(query)
	var hits []int
	for i, e := range f.entries {
		if parseErr == nil {
			if e.Fingerprint == exact {
				return i, nil
			}
			continue
		}
		if strings.EqualFold(e.Name, strings.TrimSpace(query)) ||
			(len(prefix) >= minPrefix && strings.HasPrefix(e.Fingerprint.text(), prefix)) {
			hits = append(hits, i)
		}
	}
	switch {
	case len(hits) == 1:
		return hits[0], nil
	case len(hits) > 1:
		names := make([]string, len(hits))
		for i, h := range hits {
			names[i] = fmt.Sprintf("%s (%s)", f.entries[h].Fingerprint, f.entries[h].Name)
		}
		return 0, fmt.Errorf("%w: %s; give the whole fingerprint", ErrAmbiguous, strings.Join(names, ", "))
	case parseErr != nil && len(prefix) == fingerprintChars:
		return 0, parseErr // a whole fingerprint with a typo
	}
	return 0, fmt.Errorf("%w: give a name, a fingerprint or its first %d or more characters, as listed by: linkproxy host clients", ErrNoClient, minPrefix)
}

// freeName returns the name under which fp is stored: no other client has it, in any case.
func (f *trustFile) freeName(fp Fingerprint, name string) string {
	if name = cleanName(name); name == "" {
		name = fp.Short()
	}
	taken := func(n string) bool {
		return slices.ContainsFunc(f.entries, func(e trustEntry) bool { return e.Fingerprint != fp && strings.EqualFold(e.Name, n) })
	}
	free := name
	for n := 2; taken(free); n++ {
		suffix := fmt.Sprintf("-%d", n)
		free = cutName(name, maxName-len(suffix)) + suffix
	}
	return free
}

func (f *trustFile) put(c Client) {
	for i := range f.entries {
		if f.entries[i].Fingerprint == c.Fingerprint {
			f.entries[i].Client = c
			return
		}
	}
	f.entries = append(f.entries, trustEntry{Client: c})
}
