package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong in a config file, or, without File and Line, in
// one value that was given on the command line. It is an error whose text can
// be shown to the user as it is.
type Problem struct {
	File string // "" when the value came from elsewhere
	Line int    // first line is 1; 0 when the whole file is meant
	Key  string // dotted path without indexes, like "peer.routes"; may be ""
	Msg  string // what is wrong
	Fix  string // what would be right; may be ""
}

// Error returns "file:line: key: what is wrong; what would be right", without
// the parts that are not known.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Msg)
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// Errors is every problem of a file, in the order of its lines. Find it with
// errors.As.
type Errors []Problem

// Error returns one line for each problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As each Problem.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, p := range e {
		all[i] = p
	}
	return all
}

// sorted orders problems by line; problems of one line keep their order.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return e
}

// wrong is a problem that does not know its place yet.
func wrong(fix, msg string, args ...any) error {
	return Problem{Msg: fmt.Sprintf(msg, args...), Fix: fix}
}

// placed gives err the place where its value stands.
func placed(err error, file string, line int, key string) Problem {
	var p Problem
	if !errors.As(err, &p) {
		p.Msg = err.Error()
	}
	p.File, p.Line, p.Key = file, line, key
	return p
}

// nearest returns the word that was probably meant by the mistyped one: at
// most two edits away and less than half of it. Ties go to the first.
func nearest(typed string, words []string) string {
	best, limit := "", min(2, (len(typed)-1)/2)
	for _, w := range words {
		if d := distance(strings.ToLower(typed), w); d <= limit {
			best, limit = w, d-1
		}
	}
	return best
}

// distance counts the edits from a to b: insert, delete, replace, and swap of
// two neighbours (optimal string alignment).
func distance(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 {
		return 3 // farther than anybody asks, and bounds the work for long input
	}
	before, prev := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
