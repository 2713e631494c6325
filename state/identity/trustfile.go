package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// trustFile is the content of clients.json, version 1. Fields that this version does not know are kept as they are:
// a newer linkproxy may have written them, and an older one run once must not lose them.
type trustFile struct {
	entries []trustEntry
	extra   fields
}

type trustEntry struct {
	Client
	extra fields
}

type fields map[string]json.RawMessage

// take moves a known field out of f; a missing one leaves into as it is.
func (f fields) take(name string, into any) error {
	raw, ok := f[name]
	if !ok {
		return nil
	}
	delete(f, name)
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrCorrupt, name, err)
	}
	return nil
}

// with returns f with known fields put in.
func (f fields) with(known map[string]any) map[string]any {
	out := make(map[string]any, len(f)+len(known))
	for k, v := range f {
		out[k] = v
	}
	maps.Copy(out, known)
	return out
}

// parseTrust is strict where a slip would drop somebody or let somebody in: the list must be there, every key whole
// and once.
func parseTrust(data []byte) (*trustFile, error) {
	f := &trustFile{}
	// A byte order mark is what some Windows editors leave after a change by hand.
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &f.extra); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	version := 0
	if err := f.extra.take("version", &version); err != nil {
		return nil, err
	}
	if version > 1 {
		return nil, fmt.Errorf("%w: version %d", ErrVersion, version)
	}
	var list []fields
	if err := f.extra.take("clients", &list); err != nil {
		return nil, err
	}
	if version != 1 || list == nil {
		return nil, fmt.Errorf("%w: it has no version or no list of clients", ErrCorrupt)
	}
	seen := make(map[Fingerprint]bool, len(list))
	for i, raw := range list {
		e, err := parseClient(raw)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", i+1, err)
		}
		if seen[e.Fingerprint] {
			return nil, fmt.Errorf("%w: client %d: %s is listed twice", ErrCorrupt, i+1, e.Fingerprint)
		}
		seen[e.Fingerprint] = true
		f.entries = append(f.entries, e)
	}
	return f, nil
}

func parseClient(raw fields) (trustEntry, error) {
	e := trustEntry{extra: raw}
	if err := raw.take("key", &e.Fingerprint); err != nil {
		return e, err
	}
	if e.Fingerprint.IsZero() {
		return e, fmt.Errorf("%w: it has no key", ErrCorrupt)
	}
	if err := raw.take("name", &e.Name); err != nil {
		return e, err
	}
	if e.Name = cleanName(e.Name); e.Name == "" {
		e.Name = e.Fingerprint.Short()
	}
	if err := raw.take("added", &e.Added); err != nil {
		return e, err
	}
	e.Added = e.Added.UTC()
	if y := e.Added.Year(); y < 0 || y > 9999 { // JSON cannot hold it again (RFC 3339 has four digits)
		return e, fmt.Errorf("%w: \"added\" is in the year %d", ErrCorrupt, y)
	}
	return e, nil
}

func (f *trustFile) encode() ([]byte, error) {
	list := make([]map[string]any, len(f.entries))
	for i, e := range f.entries {
		list[i] = e.extra.with(map[string]any{"key": e.Fingerprint, "name": e.Name, "added": e.Added})
	}
	data, err := json.MarshalIndent(f.extra.with(map[string]any{"version": 1, "clients": list}), "", "  ")
	return append(data, '\n'), err
}
