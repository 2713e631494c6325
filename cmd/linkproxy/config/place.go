package config

import (
	"bytes"
	"errors"
	"sort"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// place says where a value stands in the file, and the values inside it.
type place struct {
	line  int
	kids  map[string]*place // of a table
	items []*place          // of an array
}

// kid returns the place of a key of this table; a key that is not there gets
// the table's own line.
func (p *place) kid(key string) *place {
	if k := p.kids[key]; k != nil {
		return k
	}
	return &place{line: p.line}
}

// item is kid for arrays.
func (p *place) item(i int) *place {
	if i < len(p.items) {
		return p.items[i]
	}
	return &place{line: p.line}
}

// open returns the kid of that key, made at line if it is new.
func (p *place) open(key string, line int) *place {
	if p.kids == nil {
		p.kids = map[string]*place{}
	}
	if p.kids[key] == nil {
		p.kids[key] = &place{line: line}
	}
	return p.kids[key]
}

// byteOrderMark is what some Windows editors put before UTF-8; TOML has none.
const byteOrderMark = "\xef\xbb\xbf"

// readTOML returns the values of a document and where they stand. The library
// checks the whole grammar (also keys and tables given twice); a document that
// breaks it yields the first breach only, since what follows is guesswork.
func readTOML(file string, data []byte) (map[string]any, *place, error) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	vals := map[string]any{}
	if err := toml.Unmarshal(data, &vals); err != nil {
		p := Problem{File: file, Msg: err.Error()}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			p.Line, _ = at.Position()
			p.Msg = "not valid TOML: " + at.Error()[len("toml: "):]
			p.Fix = syntaxFix(data, p.Line)
		}
		return nil, nil, Errors{p}
	}
	return vals, findPlaces(data), nil
}

// syntaxFix shows the offending line, as the library's message does not.
func syntaxFix(data []byte, line int) string {
	lines := bytes.Split(data, []byte("\n"))
	if line < 1 || line > len(lines) {
		return ""
	}
	text := bytes.TrimSpace(lines[line-1])
	const shown = 60 // enough to recognise a line, short enough for one
	if len(text) == 0 || len(text) > shown {
		return ""
	}
	return "the line reads: " + string(text)
}

// placer walks the expressions of a valid document.
type placer struct {
	parser  unstable.Parser
	newline []int // offsets
}

func findPlaces(data []byte) *place {
	f := &placer{}
	for i, c := range data {
		if c == '\n' {
			f.newline = append(f.newline, i)
		}
	}
	root := &place{line: 1}
	at := root
	f.parser.Reset(data)
	for f.parser.NextExpression() {
		switch e := f.parser.Expression(); e.Kind {
		case unstable.Table:
			at = f.descend(root, e.Key(), false)
		case unstable.ArrayTable:
			at = f.descend(root, e.Key(), true)
		case unstable.KeyValue:
			f.keyValue(at, e)
		}
	}
	return root
}

// line returns the line of a node, or that of its nearest neighbour above
// when the node carries no position.
func (f *placer) line(n *unstable.Node, above int) int {
	if n.Raw.Length == 0 {
		return above
	}
	return sort.SearchInts(f.newline, int(n.Raw.Offset)) + 1
}

// descend follows a table header's key from the root; append adds an element
// to the array of tables it names.
func (f *placer) descend(root *place, key unstable.Iterator, add bool) *place {
	at := root
	for key.Next() {
		n := key.Node()
		line := f.line(n, at.line)
		at = at.open(string(n.Data), line)
		switch {
		case add && key.IsLast():
			at.items = append(at.items, &place{line: line})
			at = at.items[len(at.items)-1]
		case len(at.items) > 0: // a table inside the newest element
			at = at.items[len(at.items)-1]
		}
		if !add && key.IsLast() {
			at.line = line // a header wins over a table that a deeper one implied
		}
	}
	return at
}

func (f *placer) keyValue(at *place, e *unstable.Node) {
	for key := e.Key(); key.Next(); {
		n := key.Node()
		at = at.open(string(n.Data), f.line(n, at.line))
	}
	f.value(at, e.Value())
}

func (f *placer) value(at *place, v *unstable.Node) {
	switch v.Kind {
	case unstable.Array:
		for it := v.Children(); it.Next(); {
			item := &place{line: f.line(it.Node(), at.line)}
			at.items = append(at.items, item)
			f.value(item, it.Node())
		}
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			f.keyValue(at, it.Node())
		}
	}
}
