package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/pelletier/go-toml/v2/unstable"
)

var (
	// ErrNameTaken is AddPeer's: another machine has this name.
	ErrNameTaken = errors.New("the name is taken")
	// ErrNoPeer is RemovePeer's: no peer has this name.
	ErrNoPeer = errors.New("no such peer")
	// ErrInUse is RemovePeer's: a [[forward]] leads to the peer.
	ErrInUse = errors.New("the peer is in use")
	// ErrByHand means that a file is written in a way this package cannot edit
	// safely; the error's text says what to change by hand. The file is as it
	// was.
	ErrByHand = errors.New("edit it by hand")
)

const (
	// An edit takes milliseconds; whoever holds the lock for longer is stuck.
	lockWait  = 5 * time.Second
	lockRetry = 10 * time.Millisecond
)

const header = `# linkproxy's configuration. What can stand here: linkproxy config --help
# Is it right? linkproxy config check
`

// AddPeer writes a peer into a config file and leaves every other byte as it
// is. The file and its folder are made if they are missing (0600 and 0700: it
// may hold passwords). A peer whose id the file has already keeps its block and
// name; routes it lacks are put in front of those it has, as nobody can tell a
// stale route from one the user added.
//
// Errors: Errors when the file as it stands, or p, is not valid; ErrNameTaken;
// ErrByHand; and from the file system. The file is then unchanged.
func AddPeer(file string, p Peer) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("config: making the folder of %s: %w", file, err)
	}
	return edit(file, "adding peer "+p.Name+" to", func(old []byte) ([]byte, error) {
		return addPeer(file, old, p)
	})
}

// RemovePeer takes the peer of that name out of a config file: its [[peer]]
// header up to its last key. Comments before and after are kept.
//
// Errors: Errors when the file is not valid; ErrNoPeer; ErrInUse; ErrByHand; and
// from the file system. The file is then unchanged.
func RemovePeer(file, name string) error {
	return edit(file, "removing peer "+name+" from", func(old []byte) ([]byte, error) {
		return removePeer(file, old, name)
	})
}

// edit replaces a file by what change makes of it, one editor at a time.
func edit(file, doing string, change func([]byte) ([]byte, error)) error {
	fail := func(err error) error { return fmt.Errorf("config: %s %s: %w", doing, file, err) }
	// Two `linkproxy pair` at once would lose one of the peers. The lock's file
	// stays: removing it would let two hold it.
	lock := flock.New(file + ".lock")
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	switch _, err := lock.TryLockContext(ctx, lockRetry); {
	case errors.Is(err, context.DeadlineExceeded):
		return fail(fmt.Errorf("another linkproxy has been editing it for %v and holds %s: %w", lockWait, lock.Path(), err))
	case err != nil:
		return fail(err)
	}
	defer func() { _ = lock.Close() }() // the process's end would release it as well
	old, err := readFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	changed, err := change(old)
	if err != nil {
		return fail(err)
	}
	if bytes.Equal(old, changed) {
		return nil
	}
	if err := replaceFile(file, changed); err != nil {
		return fail(err)
	}
	return nil
}

// addPeer returns the text with p in it. What it returns has been parsed and
// compared with what was meant, so that no oddity of a file can spoil it.
func addPeer(file string, text []byte, p Peer) ([]byte, error) {
	p, err := p.checked()
	if err != nil {
		return nil, err
	}
	c, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	block := p.block()
	var out []byte
	switch i := slices.IndexFunc(c.Peers, func(o Peer) bool { return o.identity() == p.identity() }); {
	case i >= 0:
		var fresh []Route
		for _, r := range p.Routes {
			if !slices.Contains(c.Peers[i].Routes, r) {
				fresh = append(fresh, r)
			}
		}
		if len(fresh) == 0 {
			return text, nil
		}
		out = insertRoutes(text, i, fresh)
		c.Peers[i].Routes = append(fresh, c.Peers[i].Routes...)
	default:
		if o, taken := c.Peer(p.Name); taken && o.NoAgent {
			return nil, fmt.Errorf("%w: %q is there with agent = false; choose another name for the new peer, or remove that one first", ErrNameTaken, p.Name)
		} else if taken {
			return nil, fmt.Errorf("%w: %q has another key there; choose another name for the new peer, or, if that machine has a new key, remove the old peer first",
				ErrNameTaken, p.Name)
		}
		out = appendBlock(text, block)
		c.Peers = append(c.Peers, p)
	}
	if got, err := Parse(file, out); err != nil || !reflect.DeepEqual(got, c) {
		return nil, fmt.Errorf("%w: put this at its end (a [[peer]] cannot follow peer = […]), or merge its routes:\n%s", ErrByHand, block)
	}
	return out, nil
}

func removePeer(file string, text []byte, name string) ([]byte, error) {
	c, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoPeer, name)
	}
	var used []string
	for _, f := range c.Forwards {
		if f.Peer == name {
			used = append(used, f.Listen)
		}
	}
	switch {
	case len(used) == 1:
		return nil, fmt.Errorf("%w: the [[forward]] that listens on %s leads to %q; remove that first", ErrInUse, used[0], name)
	case len(used) > 1:
		return nil, fmt.Errorf("%w: fixed ports lead to %q, those that listen on %s; remove their [[forward]]s first", ErrInUse, name, strings.Join(used, ", "))
	}
	byHand := fmt.Errorf("%w: take the peer %q out of it", ErrByHand, name)
	blocks := findBlocks(text)
	if i >= len(blocks) {
		return nil, byHand
	}
	out := cut(text, blocks[i])
	c.Peers = slices.Delete(c.Peers, i, i+1)
	if len(c.Peers) == 0 {
		c.Peers = nil
	}
	if got, err := Parse(file, out); err != nil || !reflect.DeepEqual(got, c) {
		return nil, byHand
	}
	return out, nil
}

// checked returns the peer as Parse would read it from its own block. Its
// values are checked one by one first: a name out of an invite must not be able
// to write further keys.
func (p Peer) checked() (Peer, error) {
	if err := CheckPeerName(p.Name); err != nil {
		return p, err
	}
	for _, r := range p.Routes {
		if again, err := ParseRoute(r.String()); err != nil {
			return p, err
		} else if again != r {
			return p, wrong(fmt.Sprintf("use %+v", again), "the route %+v is not in its usual form", r)
		}
	}
	for _, rule := range p.Reach {
		if _, err := parseReach(rule); err != nil {
			return p, err
		}
	}
	switch p.Standby {
	case "", StandbyAuto, StandbyAlways, StandbyNever:
	default:
		return p, wrong(`use "auto", "always" or "never"`, "%q is no value of standby", p.Standby)
	}
	c, err := Parse("the new peer", []byte(p.block()))
	if err != nil {
		return p, err
	}
	return c.Peers[0], nil
}

// block is the peer as TOML. The values of a checked peer hold no character
// that needs an escape.
func (p Peer) block() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[[peer]]\nname = \"%s\"\n", p.Name)
	if p.NoAgent {
		b.WriteString("agent = false\n")
	} else {
		fmt.Fprintf(&b, "id = \"%s\"\n", p.ID)
	}
	fmt.Fprintf(&b, "routes = [%s]\n", quoteRoutes(p.Routes, ", "))
	if p.Standby != "" && p.Standby != StandbyAuto {
		fmt.Fprintf(&b, "standby = \"%s\"\n", p.Standby)
	}
	if len(p.Reach) > 0 {
		fmt.Fprintf(&b, "reach = [\"%s\"]\n", strings.Join(p.Reach, `", "`))
	}
	return b.String()
}

func quoteRoutes(routes []Route, sep string) string {
	all := make([]string, len(routes))
	for i, r := range routes {
		all[i] = `"` + r.String() + `"`
	}
	return strings.Join(all, sep)
}

// appendBlock puts a block at the end, after an empty line.
func appendBlock(text []byte, block string) []byte {
	nl := newlineOf(text)
	var b bytes.Buffer
	b.Write(text)
	switch body := bytes.TrimPrefix(text, []byte(byteOrderMark)); {
	case len(body) == 0:
		b.WriteString(header + nl)
	case !bytes.HasSuffix(body, []byte("\n")):
		b.WriteString(nl + nl)
	case !bytes.HasSuffix(body, []byte("\n\n")) && !bytes.HasSuffix(body, []byte("\n\r\n")):
		b.WriteString(nl)
	}
	b.WriteString(strings.ReplaceAll(block, "\n", nl))
	return b.Bytes()
}

// newlineOf is how the file ends its lines.
func newlineOf(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// insertRoutes puts routes in front of the first one of the i-th peer: there
// no comment that follows a route changes its neighbour.
func insertRoutes(text []byte, i int, routes []Route) []byte {
	blocks := findBlocks(text)
	if i >= len(blocks) || blocks[i].route < 0 {
		return text // the caller sees that nothing changed
	}
	at := blocks[i].route
	start := bytes.LastIndexByte(text[:at], '\n') + 1
	sep := ", "
	if indent := string(text[start:at]); strings.Trim(indent, " \t") == "" {
		sep = "," + newlineOf(text) + indent // one route a line
	}
	return slices.Concat(text[:at], []byte(quoteRoutes(routes, sep)+sep), text[at:])
}

// peerBlock says where a [[peer]] stands, in bytes.
type peerBlock struct {
	start, end int // from its header's line to the end of its last key's line
	route      int // of the first route, -1 if there is none
}

// findBlocks returns the [[peer]] blocks of a valid document.
func findBlocks(text []byte) []peerBlock {
	body := bytes.TrimPrefix(text, []byte(byteOrderMark))
	skipped := len(text) - len(body)
	var parser unstable.Parser
	parser.Reset(body)
	var blocks []peerBlock
	var in *peerBlock
	for parser.NextExpression() {
		e := parser.Expression()
		if e.Kind != unstable.KeyValue {
			if in = nil; e.Kind != unstable.ArrayTable || !soleKey(e, "peer") {
				continue
			}
			name := int(e.Child().Raw.Offset) + skipped
			start := bytes.LastIndexByte(text[:name], '\n') + 1
			blocks = append(blocks, peerBlock{start: max(start, skipped), end: lineEnd(text, name), route: -1})
			in = &blocks[len(blocks)-1]
			continue
		}
		if in == nil {
			continue
		}
		last := int(e.Raw.Offset+e.Raw.Length) - 1 + skipped
		in.end = lineEnd(text, last)
		if v := e.Value(); soleKey(e, "routes") && v.Kind == unstable.Array && v.Child().Valid() {
			in.route = int(v.Child().Raw.Offset) + skipped
		}
	}
	return blocks
}

// soleKey tells whether an expression's key is this one word, however quoted.
func soleKey(e *unstable.Node, want string) bool {
	key := e.Key()
	return key.Next() && string(key.Node().Data) == want && key.IsLast()
}

// lineEnd is where the line after that of the byte at i begins.
func lineEnd(text []byte, i int) int {
	if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
		return i + n + 1
	}
	return len(text)
}

// cut takes a block out, with the empty line before it if one follows too or
// the file ends.
func cut(text []byte, b peerBlock) []byte {
	before, after := text[:b.start], text[b.end:]
	blank := func(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }
	if prev := bytes.LastIndexByte(bytes.TrimSuffix(before, []byte("\n")), '\n') + 1; blank(before[prev:]) && blank(after[:lineEnd(after, 0)]) {
		before = before[:prev]
	}
	return slices.Concat(before, after)
}
