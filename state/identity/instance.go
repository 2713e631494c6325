package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"linkproxy/internal/files"
)

// Instance tells one run of a role from its earlier runs: ID stays, Boot grows. See the package comment for what a
// cloned state folder does to it.
type Instance struct {
	// ID is random: per state folder and role from OpenInstance, per process from Ephemeral.
	ID [16]byte
	// Boot is 1 for the first run with this ID, and higher for each later one.
	Boot uint64
	// Warning is nil, or says that the instance file was broken and set aside (ErrCorrupt or ErrVersion). The
	// instance is good; older links of this machine just end by time instead of at once.
	Warning error

	lock *flock.Flock // nil for an ephemeral one
}

// OpenInstance counts a new boot of the role name (lower-case letters, such as "up" or "host") in dir and holds the
// role's lock until Close or the end of the process. The new boot is on disk before it is returned. Classes:
// ErrInstanceInUse, ErrPermissions, and those of the file system, such as a full disk: then Ephemeral lets a role
// start all the same.
func OpenInstance(dir, name string) (*Instance, error) {
	inst, err := openInstance(dir, name)
	if err != nil {
		return nil, fmt.Errorf("identity: opening instance %q in %s: %w", name, dir, err)
	}
	return inst, nil
}

func openInstance(dir, name string) (*Instance, error) {
	for _, r := range name {
		if r < 'a' || r > 'z' {
			return nil, fmt.Errorf("%w: a role's name is lower-case letters", ErrFormat)
		}
	}
	if name == "" {
		return nil, fmt.Errorf("%w: a role needs a name", ErrFormat)
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name+".instance")
	lock := flock.New(filepath.Join(dir, name+".lock"), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", lock.Path(), err)
	}
	if !locked {
		return nil, inUse(path, name)
	}
	inst, err := bootInstance(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	inst.lock = lock
	return inst, nil
}

// inUse names the process that holds the role, as it wrote itself into the file when it started.
func inUse(path, name string) error {
	holder := "another process"
	if data, _, err := readFile(path, othersWrite); err == nil {
		if record, err := parseInstance(data); err == nil && record.PID > 0 {
			holder = fmt.Sprintf("process %d", record.PID)
		}
	}
	return fmt.Errorf("%w by %s: stop it to start %q here, or give this one a state folder of its own", ErrInstanceInUse, holder, name)
}

// bootInstance reads, counts and writes; the caller holds the role's lock.
func bootInstance(path string) (*Instance, error) {
	inst := &Instance{}
	data, _, err := readFile(path, othersWrite)
	if err == nil {
		var record instanceRecord
		if record, err = parseInstance(data); err == nil {
			inst.ID, inst.Boot = record.id, record.Boot
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		inst.ID = newInstanceID()
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		aside, asideErr := files.SetAside(path, time.Now())
		if asideErr != nil {
			return nil, errors.Join(err, asideErr)
		}
		inst.Warning = fmt.Errorf("identity: reading instance: %w; set aside as %s, and a new one made", err, aside)
		inst.ID = newInstanceID()
	default:
		return nil, err
	}
	inst.Boot++
	record := instanceRecord{Version: 1, ID: hex.EncodeToString(inst.ID[:]), Boot: inst.Boot, PID: os.Getpid()}
	data, err = json.MarshalIndent(record, "", "  ")
	if err != nil {
		return nil, err
	}
	return inst, files.Write(path, append(data, '\n'))
}

// Ephemeral returns an instance that lives as long as its process, from 16 bytes of source. With nil, or a source
// that fails, the bytes are the system's.
func Ephemeral(source io.Reader) *Instance {
	inst := &Instance{ID: newInstanceID(), Boot: 1}
	var id [16]byte
	if source != nil {
		if _, err := io.ReadFull(source, id[:]); err == nil {
			inst.ID = id
		}
	}
	return inst
}

// Close lets another process open the role. It may be called again; an ephemeral instance holds nothing.
func (i *Instance) Close() error {
	if i.lock == nil {
		return nil
	}
	if err := i.lock.Close(); err != nil {
		return fmt.Errorf("identity: closing instance: %w", err)
	}
	return nil
}

type instanceRecord struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // 32 hexadecimal digits
	Boot    uint64 `json:"boot"`
	PID     int    `json:"pid"` // who holds it, for the message to a second one

	id [16]byte
}

func parseInstance(data []byte) (instanceRecord, error) {
	var r instanceRecord
	if err := json.Unmarshal(bytes.TrimSpace(data), &r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if r.Version > 1 {
		return r, fmt.Errorf("%w: version %d", ErrVersion, r.Version)
	}
	id, err := hex.DecodeString(r.ID)
	if err != nil || len(id) != len(r.id) || r.Version != 1 || r.Boot == 0 || r.Boot == math.MaxUint64 {
		return r, fmt.Errorf("%w: version, id or boot make no sense", ErrCorrupt)
	}
	copy(r.id[:], id)
	if r.id == [16]byte{} {
		return r, fmt.Errorf("%w: the id is zero", ErrCorrupt)
	}
	return r, nil
}

func newInstanceID() (id [16]byte) {
	rand.Read(id[:]) // never fails: it ends the program first
	return id
}
