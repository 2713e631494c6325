package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// decoder turns a document into a Config and collects what is wrong with it.
type decoder struct {
	file     string
	problems Errors
	flawed   map[int]bool // the peers with a mistake, by their place in the file
}

func (d *decoder) bad(line int, key, msg, fix string) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Key: key, Msg: msg, Fix: fix})
}

func (d *decoder) badValue(line int, key string, err error) {
	d.problems = append(d.problems, placed(err, d.file, line, key))
}

// table is one table of the document being read. Asking for a key makes it a
// known one; what was never asked for is unknown (rest).
type table struct {
	d     *decoder
	path  string // dotted, "" for the root
	vals  map[string]any
	at    *place
	known []string
	told  []string // keys of later versions: known, but not to be suggested
}

// text is a string of the document and its line.
type text struct {
	s    string
	line int
}

func (t *table) key(k string) string {
	if t.path == "" {
		return k
	}
	return t.path + "." + k
}

func (t *table) line(k string) int { return t.at.kid(k).line }

// take marks a key as known and returns its value, nil if it is not there.
func (t *table) take(k string) any {
	t.known = append(t.known, k)
	return t.vals[k]
}

// kind names a TOML value's type as a user would.
func kind(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}

// mistyped reports a value of the wrong type.
func (t *table) mistyped(line int, k string, v any, want, example string) {
	t.d.bad(line, t.key(k), "this is "+kind(v)+", not "+want, "write "+example)
}

// str returns a string key. Absent or of another type: ok is false.
func (t *table) str(k, example string) (v text, ok bool) {
	raw := t.take(k)
	if raw == nil {
		return text{line: t.at.line}, false
	}
	v.line = t.line(k)
	if v.s, ok = raw.(string); !ok {
		t.mistyped(v.line, k, raw, "a string", fmt.Sprintf("%s = %q", k, example))
	}
	return v, ok
}

// oneOf returns a string key that has a closed set of values; the first one is
// what absence means.
func (t *table) oneOf(k string, allowed ...string) string {
	v, ok := t.str(k, allowed[0])
	if !ok || slices.Contains(allowed, v.s) {
		return v.s
	}
	quoted := `"` + strings.Join(allowed, `", "`) + `"`
	t.d.bad(v.line, t.key(k), fmt.Sprintf("%q is none of its values", v.s), "it takes "+quoted)
	return ""
}

// yes returns a boolean key; absent is false.
func (t *table) yes(k string) bool {
	raw := t.take(k)
	if raw == nil {
		return false
	}
	v, ok := raw.(bool)
	if !ok {
		t.mistyped(t.line(k), k, raw, "true or false", k+" = true")
	}
	return v
}

// duration returns a duration key as Config holds it: zero when absent,
// negative for a written zero (the house's "off").
func (t *table) duration(k, example string) time.Duration {
	v, ok := t.str(k, example)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(v.s)
	if err != nil || d < 0 {
		t.d.bad(v.line, t.key(k), fmt.Sprintf("%q is not a duration", v.s),
			fmt.Sprintf(`write a number with its unit, such as %q; units are "s", "m" and "h"`, example))
		return 0
	}
	if d == 0 {
		return -1
	}
	return d
}

// list returns an array key's elements with their lines; other says what to do
// with an element that is no string (nil: it is reported).
func (t *table) list(k, example string, other func(v any, at *place)) []text {
	raw := t.take(k)
	if raw == nil {
		return nil
	}
	all, ok := raw.([]any)
	if !ok {
		t.mistyped(t.line(k), k, raw, "a list", fmt.Sprintf("%s = [%q]", k, example))
		return nil
	}
	var out []text
	for i, v := range all {
		at := t.at.kid(k).item(i)
		s, ok := v.(string)
		switch {
		case ok:
			out = append(out, text{s: s, line: at.line})
		case other != nil:
			other(v, at)
		default:
			t.mistyped(at.line, k, v, "a string", fmt.Sprintf("%s = [%q]", k, example))
		}
	}
	return out
}

// table returns a sub-table, nil when absent.
func (t *table) table(k string) *table {
	raw := t.take(k)
	if raw == nil {
		return nil
	}
	vals, ok := raw.(map[string]any)
	if !ok {
		fix := "write [" + t.key(k) + "] and its keys below it"
		if _, list := raw.([]any); list {
			fix = "write [" + t.key(k) + "] once, in single brackets"
		}
		t.d.bad(t.line(k), t.key(k), "this is "+kind(raw)+", not a table", fix)
		return nil
	}
	return &table{d: t.d, path: t.key(k), vals: vals, at: t.at.kid(k)}
}

// tables returns the elements of an array of tables.
func (t *table) tables(k string) []*table {
	raw := t.take(k)
	if raw == nil {
		return nil
	}
	all, ok := raw.([]any)
	if !ok {
		t.d.bad(t.line(k), t.key(k), "this is "+kind(raw)+", not a list of tables", "write [["+k+"]] in double brackets")
		return nil
	}
	var out []*table
	for i, v := range all {
		at := t.at.kid(k).item(i)
		vals, ok := v.(map[string]any)
		if !ok {
			t.d.bad(at.line, t.key(k), "this is "+kind(v)+", not a table", "write [["+k+"]] in double brackets")
			continue
		}
		out = append(out, &table{d: t.d, path: t.key(k), vals: vals, at: at})
	}
	return out
}

// later reports a key whose feature this version does not have: accepting it
// silently would let the user count on it.
func (t *table) later(k, msg string) {
	t.told = append(t.told, k)
	if t.vals[k] != nil {
		t.d.bad(t.line(k), t.key(k), msg, "remove it")
	}
}

// rest reports every key that was never asked for.
func (t *table) rest() {
	for _, k := range slices.Sorted(maps.Keys(t.vals)) {
		if slices.Contains(t.known, k) || slices.Contains(t.told, k) {
			continue
		}
		t.d.bad(t.line(k), t.key(k), "unknown key", t.meant(k))
	}
}

// meant says which key an unknown one probably stands for.
func (t *table) meant(k string) string {
	if homes := homesOf(k); len(homes) > 0 {
		return "it belongs " + strings.Join(homes, " or ")
	}
	if w := nearest(k, t.known); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	known := slices.Sorted(slices.Values(t.known))
	return "known here: " + strings.Join(known, ", ")
}

// homesOf says in which sections a key is known: keys written under the wrong
// header are the commonest slip, as a TOML header rules until the next one.
func homesOf(k string) []string {
	switch k {
	case "default":
		return []string{"at the top of the file, before the first [section]"}
	case "socks", "http", "users", "password_file", "wait":
		return []string{"in [listen]"}
	case "allow_remote":
		return []string{"in [listen]", "in [[forward]]"}
	case "to", "refuse_http":
		return []string{"in [[forward]]"}
	case "hold":
		return []string{"in [[forward]]", `in an entry of [host] allow: { to = "…", hold = "1h" }`}
	case "allow":
		return []string{"in [host]"}
	case "name", "id", "routes", "standby", "reach":
		return []string{"in [[peer]]"}
	}
	return nil
}
