package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"linkproxy/internal/files"
)

const (
	// InviteLife is how long an invite can be used: a walk to the other machine.
	InviteLife = 10 * time.Minute
	// MaxGuesses is how many wrong secrets end an invite.
	MaxGuesses = 5
	// MaxOpenInvites bounds the invites open at once; a person needs one.
	MaxOpenInvites = 16
	// maxEnded is how many ended invites are remembered, so that somebody who tries an old code again is told so and is no
	// guesser: far more than a person makes in a day.
	maxEnded = 64

	invitesName = "invites.json"
	// clockSlack is by how much more than InviteLife an invite may have left: small corrections of the clock. One
	// with more was made before the clock was set back, and must not live the longer for it.
	clockSlack = time.Minute
)

// Invites are the invites that a host has open, kept in dir/invites.json: `host invite` writes them, the host
// process uses them up. It is safe for concurrent use, also between processes. Of a used, expired, cancelled or guessed-at
// invite only the secret stays in the file, which is good for nothing any more but to know it again.
type Invites struct {
	dir, path string
	host      Fingerprint
	view      atomic.Pointer[invitesView]
}

type invitesView struct {
	open []openInvite
	info fs.FileInfo // nil while there is no file
}

// inviteBook is the content of the file.
type inviteBook struct {
	open  []openInvite
	ended [][]byte // secrets of the newest maxEnded invites that can never be used again
}

type openInvite struct {
	Name    string    `json:"name"`
	Secret  []byte    `json:"secret"`
	Expires time.Time `json:"expires"`
	Guesses int       `json:"guesses"` // wrong ones so far
}

// open reports whether the invite can be used now.
func (o openInvite) open(now time.Time) bool {
	left := o.Expires.Sub(now)
	return left > 0 && left <= InviteLife+clockSlack && o.Guesses < MaxGuesses
}

// over reports whether the invite can never be used again.
func (o openInvite) over(now time.Time) bool {
	return !now.Before(o.Expires) || o.Guesses >= MaxGuesses
}

// OpenInvites returns the invites of the host with that key. It reads nothing yet.
func OpenInvites(dir string, host Fingerprint) *Invites {
	v := &Invites{dir: dir, path: filepath.Join(dir, invitesName), host: host}
	v.view.Store(&invitesView{})
	return v
}

// Create opens an invite for InviteLife from now (cut to a whole second), durably. Name is the host's, as the
// client will see it and as Attempt returns it. Classes: ErrFormat for addresses beyond an Invite's bounds,
// ErrTooManyInvites, ErrCorrupt, ErrPermissions.
func (v *Invites) Create(now time.Time, name string, addresses []string) (Invite, error) {
	invite := Invite{
		Name:        cleanName(name),
		Fingerprint: v.host,
		Addresses:   slices.Clone(addresses),
		Secret:      make([]byte, SecretSize),
		Expires:     now.UTC().Add(InviteLife).Truncate(time.Second),
	}
	rand.Read(invite.Secret) // never fails: it ends the program first
	if err := v.create(now, invite); err != nil {
		return Invite{}, fmt.Errorf("identity: creating invite: %w", err)
	}
	return invite, nil
}

func (v *Invites) create(now time.Time, invite Invite) error {
	if err := invite.check(); err != nil {
		return err
	}
	// Read back what the other side will read: nothing is handed out that it would refuse.
	if _, err := ParseInvite(invite.Encode()); err != nil {
		return fmt.Errorf("%w: its %d addresses are too long together; leave some out", ErrFormat, len(invite.Addresses))
	}
	return withLock(v.dir, func() error {
		book, err := v.read()
		if err != nil {
			return err
		}
		book.sweep(now)
		if n := len(book.open); n >= MaxOpenInvites {
			return fmt.Errorf("%w: %d; wait until one is used or %v old, or cancel them", ErrTooManyInvites, n, InviteLife)
		}
		book.open = append(book.open, openInvite{Name: invite.Name, Secret: invite.Secret, Expires: invite.Expires})
		return v.write(book)
	})
}

// Cancel ends all invites, durably, and returns how many could still have been used.
func (v *Invites) Cancel(now time.Time) (int, error) {
	n := 0
	err := withLock(v.dir, func() error {
		book, err := v.read()
		if err != nil || len(book.open) == 0 {
			return err
		}
		n = len(usable(book.open, now))
		book.end(func(openInvite) bool { return true })
		return v.write(book)
	})
	if err != nil {
		return 0, fmt.Errorf("identity: cancelling invites: %w", err)
	}
	return n, nil
}

// Open reports whether any invite can be used now; a file that cannot be read has none. It costs one stat unless
// the file changed, so that it can be asked at every handshake.
func (v *Invites) Open(now time.Time) bool {
	view := v.view.Load()
	info, err := os.Stat(v.path)
	if err != nil {
		return false
	}
	if view.info == nil || !sameFile(view.info, info) {
		if err := withLock(v.dir, func() error { _, err := v.read(); return err }); err != nil {
			return false
		}
		view = v.view.Load()
	}
	return len(usable(view.open, now)) > 0
}

// Attempt tries one guess: verify says whether it fits an invite's secret. It is asked for every open invite until it
// says yes, then for those that have ended; it only computes, waits for nothing, keeps no secret and calls nothing here, as
// the state folder is locked meanwhile. A fit uses that invite up and returns its name; an ended invite's is no guess; no fit
// counts against every open invite, and the MaxGuesses-th ends it. Either is on disk before Attempt returns, and on any error
// nobody may be paired. Classes: ErrNoInvite, ErrWrongSecret, and those of a file that cannot be read or written.
func (v *Invites) Attempt(now time.Time, verify func(secret []byte) bool) (name string, err error) {
	err = withLock(v.dir, func() error {
		book, err := v.read()
		if err != nil {
			return err
		}
		open := usable(book.open, now)
		if len(open) == 0 {
			return fmt.Errorf("%w: make one with: linkproxy host invite", ErrNoInvite)
		}
		fits := func(secret []byte) bool { return verify(slices.Clone(secret)) }
		for _, i := range open {
			if used := book.open[i]; fits(used.Secret) {
				name = used.Name
				book.end(func(o openInvite) bool { return bytes.Equal(o.Secret, used.Secret) })
				book.sweep(now)
				return v.write(book)
			}
		}
		if slices.ContainsFunc(book.open, func(o openInvite) bool { return !o.open(now) && fits(o.Secret) }) ||
			slices.ContainsFunc(book.ended, fits) {
			return fmt.Errorf("%w: this one was used, is too old, or was ended; make another with: linkproxy host invite", ErrNoInvite)
		}
		for _, i := range open {
			book.open[i].Guesses++
		}
		book.sweep(now)
		if err := v.write(book); err != nil {
			return err
		}
		return fmt.Errorf("%w: it counts against %d open invites, each ends at %d", ErrWrongSecret, len(open), MaxGuesses)
	})
	if err != nil {
		return "", fmt.Errorf("identity: using invite: %w", err)
	}
	return name, nil
}

// usable returns the indices of the invites that can be used now.
func usable(list []openInvite, now time.Time) []int {
	var out []int
	for i, o := range list {
		if o.open(now) {
			out = append(out, i)
		}
	}
	return out
}

// sweep ends the invites that are over.
func (b *inviteBook) sweep(now time.Time) { b.end(func(o openInvite) bool { return o.over(now) }) }

// end ends the invites that which names.
func (b *inviteBook) end(which func(openInvite) bool) {
	b.open = slices.DeleteFunc(b.open, func(o openInvite) bool {
		if which(o) {
			b.ended = append(b.ended, o.Secret)
			return true
		}
		return false
	})
	b.ended = b.ended[max(0, len(b.ended)-maxEnded):]
}

// read returns what the file holds, the caller's to change. The caller holds identity.lock.
func (v *Invites) read() (*inviteBook, error) {
	data, info, err := readFile(v.path, othersAny)
	if errors.Is(err, fs.ErrNotExist) {
		v.view.Store(&invitesView{})
		return &inviteBook{}, nil
	}
	book := &inviteBook{}
	if err == nil {
		book, err = parseInvites(data)
	}
	switch {
	case errors.Is(err, ErrVersion):
		return nil, fmt.Errorf("reading %s: %w; update linkproxy on this machine", v.path, err)
	case errors.Is(err, ErrCorrupt):
		return nil, fmt.Errorf("reading %s: %w; delete it (that ends the open invites, nothing else) and make a new invite", v.path, err)
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", v.path, err)
	}
	v.view.Store(&invitesView{open: slices.Clone(book.open), info: info})
	return book, nil
}

// write replaces the file. The caller holds identity.lock.
func (v *Invites) write(book *inviteBook) error {
	data, err := book.encode()
	if err != nil {
		return err
	}
	if err := files.Write(v.path, data); err != nil {
		return err
	}
	_, err = v.read()
	return err
}

type invitesFile struct {
	Version int          `json:"version"`
	Invites []openInvite `json:"invites"`
	Ended   [][]byte     `json:"ended,omitempty"`
}

func parseInvites(data []byte) (*inviteBook, error) {
	var f invitesFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if f.Version > 1 {
		return nil, fmt.Errorf("%w: version %d", ErrVersion, f.Version)
	}
	if f.Version != 1 {
		return nil, fmt.Errorf("%w: it has no version", ErrCorrupt)
	}
	for i := range f.Invites {
		o := &f.Invites[i]
		o.Name, o.Expires = cleanName(o.Name), o.Expires.UTC()
		if y := o.Expires.Year(); len(o.Secret) < SecretSize || len(o.Secret) > maxSecret || o.Guesses < 0 || y < 0 || y > 9999 {
			return nil, fmt.Errorf("%w: invite %d makes no sense", ErrCorrupt, i+1)
		}
	}
	for _, secret := range f.Ended {
		if len(secret) < SecretSize || len(secret) > maxSecret {
			return nil, fmt.Errorf("%w: an ended invite makes no sense", ErrCorrupt)
		}
	}
	return &inviteBook{open: f.Invites, ended: f.Ended}, nil
}

func (b *inviteBook) encode() ([]byte, error) {
	data, err := json.MarshalIndent(invitesFile{Version: 1, Invites: b.open, Ended: b.ended}, "", "  ")
	return append(data, '\n'), err
}
