package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ParseError is a fault of a scenario file.
type ParseError struct {
	File string
	Line int
	Word string // what is wrong
	Want string // what would be right
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s:%d: %q: %s", e.File, e.Line, e.Word, e.Want)
}

// Bounds of a scenario, so that a slip of the pen does not become a day's run.
const (
	maxEnd    = 48 * time.Hour
	maxApps   = 5000
	maxEvents = 20000
)

// Parse reads a scenario as one runner plays it. The error is a *ParseError.
func Parse(name, text string, r Runner) (*Scenario, error) {
	p := &parser{
		file: "scenarios/" + name + ".txt", runner: r, lets: map[string]time.Duration{}, clock: false,
		sc: &Scenario{Name: name, Trace: true, Set: Settings{Standby: "never"}},
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		p.line = i + 1
		if err := p.parseLine(line); err != nil {
			return nil, err
		}
	}
	p.line = len(lines)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p.sc, nil
}

// parser reads one file for one runner.
type parser struct {
	file   string
	line   int
	runner Runner
	lets   map[string]time.Duration
	clock  bool   // an event or the end has been read: no more links, settings and apps
	want   string // what the verb being read wants behind it
	sc     *Scenario
}

func (p *parser) fail(word, want string, args ...any) error {
	return &ParseError{p.file, p.line, word, fmt.Sprintf(want, args...)}
}

// parseLine reads one line, if it is meant for this runner.
func (p *parser) parseLine(line string) error {
	line, _, _ = strings.Cut(line, "#")
	words := strings.Fields(strings.ReplaceAll(line, ";", " ; "))
	if len(words) == 0 {
		return nil
	}
	mine := true
	if list, ok := strings.CutSuffix(words[0], ":"); ok {
		var err error
		if mine, err = p.isFor(list); err != nil {
			return err
		}
		if words = words[1:]; len(words) == 0 {
			return p.fail(list+":", "want a line behind it, or skip WHY")
		}
		if words[0] == "skip" {
			return p.skip(words, mine)
		}
	}
	if !mine {
		return nil
	}
	read, ok := statements[words[0]]
	if !ok {
		return p.fail(words[0], "no such statement; want one of %s", keys(statements))
	}
	if p.clock && !slices.Contains([]string{"at", "end", "goal", "expect"}, words[0]) {
		return p.fail(words[0], "comes before the first event")
	}
	return read(p, words[1:])
}

func (p *parser) isFor(list string) (mine bool, err error) {
	for _, n := range strings.Split(list, ",") {
		if !slices.Contains(Runners, Runner(n)) {
			return false, p.fail(n, "no such runner; want one of %v", Runners)
		}
		mine = mine || Runner(n) == p.runner
	}
	return mine, nil
}

func (p *parser) skip(words []string, mine bool) error {
	if len(words) < 2 {
		return p.fail("skip", "want the reason behind it")
	}
	if mine {
		p.sc.Skip = strings.Join(words[1:], " ")
	}
	return nil
}

// statements are what a line may begin with.
var statements = map[string]func(p *parser, words []string) error{
	"title":   (*parser).title,
	"about":   (*parser).about,
	"let":     (*parser).let,
	"long":    (*parser).long,
	"compare": (*parser).compare,
	"heavy":   (*parser).heavy,
	"untold":  (*parser).untold,
	"link":    (*parser).link,
	"set":     (*parser).set,
	"app":     (*parser).app,
	"at":      (*parser).at,
	"end":     (*parser).end,
	"goal":    func(p *parser, words []string) error { return p.check(true, words) },
	"expect":  func(p *parser, words []string) error { return p.check(false, words) },
}

func (p *parser) title(words []string) error {
	if p.sc.Title != "" {
		return p.fail("title", "there is one already")
	}
	if len(words) == 0 {
		return p.fail("title", "want a text behind it")
	}
	p.sc.Title = text(words)
	return nil
}

func (p *parser) about(words []string) error {
	p.sc.About = append(p.sc.About, text(words))
	return nil
}

func (p *parser) long(words []string) error {
	p.sc.Long = true
	return p.none("long", words)
}

// compare reads the baselines; none named: OpenSSH and plain TCP.
func (p *parser) compare(words []string) error {
	if len(words) == 0 {
		words = []string{"ssh", "tcp"}
	}
	for _, w := range words {
		b, ok := baselineOf(w)
		if !ok || slices.Contains(p.sc.Compare, b) {
			return p.fail(w, "want some of ssh, tcp, bbr, cubic, each once")
		}
		p.sc.Compare = append(p.sc.Compare, b)
	}
	return nil
}

func (p *parser) heavy(words []string) error {
	p.sc.Heavy = true
	return p.none("heavy", words)
}

// untold is for scenarios whose decisions depend on how goroutines take turns.
func (p *parser) untold(words []string) error {
	p.sc.Trace = false
	return p.none("untold", words)
}

func (p *parser) none(after string, words []string) error {
	if len(words) > 0 {
		return p.fail(words[0], "nothing may stand behind %s", after)
	}
	return nil
}

// let reads NAME = DURATION.
func (p *parser) let(words []string) error {
	if len(words) != 3 || words[1] != "=" {
		return p.fail("let", "want: let NAME = DURATION")
	}
	if !isName(words[0]) {
		return p.fail(words[0], "a name is lower-case letters")
	}
	d, err := p.duration(words[2])
	if err != nil {
		return err
	}
	p.lets[words[0]] = d
	return nil
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

// classes are those that a link may have.
var classes = []string{"lan", "tailnet", "direct"}

// link reads NAME rtt DURATION [rate RATE] [loss PERCENT].
func (p *parser) link(words []string) error {
	if len(words) == 0 {
		return p.fail("link", "want: link NAME rtt DURATION [rate RATE] [loss PERCENT]")
	}
	l := Link{Name: words[0]}
	if !slices.Contains(classes, l.Class()) || len(l.Name) > len(l.Class())+1 {
		return p.fail(l.Name, "a link is named by its class, of %v, and perhaps a digit", classes)
	}
	if p.hasLink(l.Name) {
		return p.fail(l.Name, "there is such a link already")
	}
	err := p.pairs(words[1:], map[string]func(string) error{
		"rtt": func(w string) (err error) {
			l.Delay, err = p.duration(w)
			l.Delay /= 2
			return err
		},
		"rate": func(w string) (err error) {
			l.Rate, err = p.rate(w)
			return err
		},
		"loss": func(w string) error {
			v, err := p.limitPercent(w)
			l.Loss = v / 100
			return err
		},
	})
	if err != nil {
		return err
	}
	p.sc.Links = append(p.sc.Links, l)
	return nil
}

// pairs reads words as keys with a value each.
func (p *parser) pairs(words []string, known map[string]func(string) error) error {
	for ; len(words) > 0; words = words[2:] {
		f, ok := known[words[0]]
		if !ok {
			return p.fail(words[0], "want one of %s", keys(known))
		}
		if len(words) == 1 {
			return p.fail(words[0], "want a value behind it")
		}
		if err := f(words[1]); err != nil {
			return err
		}
	}
	return nil
}

// set reads KEY VALUE.
func (p *parser) set(words []string) error {
	return p.pairs(words, map[string]func(string) error{
		"standby": func(w string) error {
			if !slices.Contains([]string{"auto", "always", "never"}, w) {
				return p.fail(w, "standby is auto, always or never")
			}
			p.sc.Set.Standby = w
			return nil
		},
		"hold": func(w string) (err error) {
			p.sc.Set.Hold, err = p.duration(w)
			return err
		},
		"pool": func(w string) (err error) {
			p.sc.Set.Pool, err = p.size(w)
			return err
		},
		"buffers": func(w string) (err error) {
			p.sc.Set.Buffers, err = p.size(w)
			return err
		},
	})
}

// at reads TIME [every DURATION[..DURATION] until TIME] ACT [; ACT]...
func (p *parser) at(words []string) error {
	p.clock = true
	if p.sc.End > 0 {
		return p.fail("at", "comes before end")
	}
	if len(words) < 2 {
		return p.fail("at", "want: at TIME [every DURATION until TIME] ACT [; ACT]")
	}
	e := Event{}
	var err error
	if e.At, err = p.duration(words[0]); err != nil {
		return err
	}
	words = words[1:]
	if words[0] == "every" {
		if len(words) < 5 || words[2] != "until" {
			return p.fail("every", "want: every DURATION[..DURATION] until TIME ACT")
		}
		if err := p.repeat(&e, words[1], words[3]); err != nil {
			return err
		}
		words = words[4:]
	}
	e.Text = strings.ReplaceAll(strings.Join(words, " "), " ;", ";")
	for len(words) > 0 {
		i := slices.Index(words, ";")
		if i < 0 {
			i = len(words)
		}
		a, err := p.act(words[:i])
		if err != nil {
			return err
		}
		e.Acts = append(e.Acts, a)
		words = words[min(i+1, len(words)):]
	}
	p.sc.Events = append(p.sc.Events, e)
	return nil
}

func (p *parser) repeat(e *Event, every, until string) (err error) {
	low, high, isRange := strings.Cut(every, "..")
	if e.Low, err = p.duration(low); err != nil {
		return err
	}
	e.High = e.Low
	if isRange {
		if e.High, err = p.duration(high); err != nil {
			return err
		}
	}
	if e.Until, err = p.duration(until); err != nil {
		return err
	}
	switch {
	case e.Low < 10*time.Millisecond || e.High < e.Low:
		return p.fail(every, "want at least 10ms, the shorter one first")
	case e.Until <= e.At:
		return p.fail(until, "want a time behind the first one")
	case (e.Until-e.At)/e.Low > maxEvents:
		return p.fail(every, "that is more than %d times", maxEvents)
	}
	return nil
}

func (p *parser) end(words []string) error {
	p.clock = true
	if p.sc.End > 0 {
		return p.fail("end", "there is one already")
	}
	if len(words) != 1 {
		return p.fail("end", "want one time behind it")
	}
	d, err := p.duration(words[0])
	if err == nil && (d <= 0 || d > maxEnd) {
		return p.fail(words[0], "want a time up to %s", short(maxEnd))
	}
	p.sc.End = d
	return err
}

// finish judges what only the whole file shows.
func (p *parser) finish() error {
	s := p.sc
	switch {
	case s.Title == "":
		return p.fail("", "the file has no title")
	case len(s.Links) == 0:
		return p.fail("", "the file has no link")
	case len(s.Apps) == 0:
		return p.fail("", "the file has no app")
	case s.End == 0:
		return p.fail("", "the file has no end")
	}
	if i := slices.IndexFunc(s.Links, func(l Link) bool { return l.Loss > 0 }); i >= 0 && p.runner != NetNS && s.Skip == "" {
		return p.fail(s.Links[i].Name, "%s has no packets to lose: skip it there", p.runner)
	}
	for _, e := range s.Events {
		if e.At >= s.End || e.Until > s.End {
			return p.fail(e.Text, "comes after the end at %s", short(s.End))
		}
	}
	apps := 0
	for _, a := range s.Apps {
		apps += a.Count
		if a.From >= s.End || a.Until > s.End || a.Until > 0 && a.Until <= a.From {
			return p.fail(a.Name, "must begin before it ends, and both before the end at %s", short(s.End))
		}
	}
	if i := slices.IndexFunc(s.Apps, App.isBlast); i >= 0 {
		for _, l := range s.Links {
			if l.Rate == 0 {
				return p.fail(l.Name, "wants a rate, as %s takes all there is", s.Apps[i].Name)
			}
		}
	}
	if apps > maxApps {
		return p.fail("", "the file has more than %d apps", maxApps)
	}
	return nil
}

// text joins words for a reader; parseLine has set semicolons apart.
func text(words []string) string { return strings.ReplaceAll(strings.Join(words, " "), " ;", ";") }
