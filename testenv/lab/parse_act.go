package lab

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// verb reads what stands behind its word.
type verb struct {
	want string
	read func(p *parser, a *Act, words []string) error
}

// verbs are what can happen.
var verbs = map[string]verb{
	"use":       {"use LINK|next", (*parser).useWords},
	"blackhole": {"blackhole LINK... [up|down] [for DURATION]", (*parser).faultWords},
	"large":     {"large LINK... BYTES [up|down]", (*parser).faultWords},
	"heal":      {"heal LINK...", (*parser).faultWords},
	"reset":     {"reset LINK...", (*parser).faultWords},
	"fin":       {"fin LINK...", (*parser).faultWords},
	"refuse":    {"refuse LINK...", (*parser).faultWords},
	"accept":    {"accept LINK...", (*parser).faultWords},
	"down":      {"down LINK...", (*parser).faultWords},
	"up":        {"up LINK...", (*parser).faultWords},
	"rate":      {"rate LINK... RATE", (*parser).faultWords},
	"rtt":       {"rtt LINK... DURATION", (*parser).faultWords},
	"cut":       {"cut LINK behind BYTES[+BYTES] up|down", (*parser).cutWords},
	"restart":   {"restart host|client", (*parser).whoWords},
	"crash":     {"crash host|client", (*parser).whoWords},
	"sleep":     {"sleep client|host DURATION", (*parser).sleepWords},
	"clone":     {"clone client", (*parser).whoWords},
	"clock":     {"clock client|host +DURATION|-DURATION", (*parser).clockWords},
	"note":      {"note TEXT", (*parser).noteWords},
}

func (p *parser) act(words []string) (Act, error) {
	if len(words) == 0 {
		return Act{}, p.fail(";", "want something that happens")
	}
	v, ok := verbs[words[0]]
	if !ok {
		return Act{}, p.fail(words[0], "no such thing can happen; want one of %s", keys(verbs))
	}
	p.want = v.want
	a := Act{Verb: words[0], Text: strings.Join(words, " ")}
	if len(words) == 1 {
		return a, p.fail(words[0], "want: %s", v.want)
	}
	return a, v.read(p, &a, words[1:])
}

func (p *parser) wantVerb(word string) error {
	return p.fail(word, "want: %s; links are %s", p.want, strings.Join(p.linkNames(), ", "))
}

func (p *parser) useWords(a *Act, words []string) error {
	if len(words) != 1 || words[0] != "next" && !p.hasLink(words[0]) {
		return p.wantVerb(words[0])
	}
	a.Links = words
	return nil
}

// faultWords reads links, and what the verb wants behind them.
func (p *parser) faultWords(a *Act, words []string) (err error) {
	first := words[0]
	for len(words) > 0 && p.hasLink(words[0]) {
		a.Links, words = append(a.Links, words[0]), words[1:]
	}
	if len(a.Links) == 0 {
		return p.wantVerb(first)
	}
	switch a.Verb {
	case "rate", "rtt", "large":
		if len(words) == 0 {
			return p.wantVerb(a.Verb)
		}
		switch a.Verb {
		case "rate":
			a.Rate, err = p.rate(words[0])
		case "rtt":
			a.D, err = p.duration(words[0])
		default:
			a.N, err = p.size(words[0])
		}
		if err != nil {
			return err
		}
		words = words[1:]
	}
	if a.Verb == "blackhole" || a.Verb == "large" {
		a.Up, a.Down = true, true
		if len(words) > 0 && (words[0] == "up" || words[0] == "down") {
			a.Up, a.Down = words[0] == "up", words[0] == "down"
			words = words[1:]
		}
	}
	if a.Verb == "blackhole" && len(words) == 2 && words[0] == "for" {
		if a.D, err = p.duration(words[1]); err != nil {
			return err
		}
		words = nil
	}
	if len(words) > 0 {
		return p.wantVerb(words[0])
	}
	return nil
}

// cutWords reads LINK behind N[+STEP] up|down: the n-th time the connection ends behind N + n STEP bytes.
func (p *parser) cutWords(a *Act, words []string) (err error) {
	if len(words) != 4 || !p.hasLink(words[0]) || words[1] != "behind" {
		return p.wantVerb(words[0])
	}
	a.Links = words[:1]
	n, step, more := strings.Cut(words[2], "+")
	if a.N, err = p.size(n); err != nil {
		return err
	}
	if more {
		if a.Step, err = p.size(step); err != nil {
			return err
		}
	}
	a.Up, a.Down = words[3] == "up", words[3] == "down"
	if !a.Up && !a.Down {
		return p.wantVerb(words[3])
	}
	return nil
}

func (p *parser) whoWords(a *Act, words []string) error {
	a.Who = words[0]
	if len(words) != 1 || a.Who != "client" && (a.Who != "host" || a.Verb == "clone") {
		return p.wantVerb(words[0])
	}
	return nil
}

func (p *parser) sleepWords(a *Act, words []string) (err error) {
	if len(words) != 2 || words[0] != "client" && words[0] != "host" {
		return p.wantVerb(words[0])
	}
	a.Who = words[0]
	a.D, err = p.duration(words[1])
	return err
}

func (p *parser) clockWords(a *Act, words []string) (err error) {
	if len(words) != 2 || words[0] != "client" && words[0] != "host" {
		return p.wantVerb(words[0])
	}
	a.Who = words[0]
	d, ok := strings.CutPrefix(words[1], "+")
	if !ok {
		if d, ok = strings.CutPrefix(words[1], "-"); !ok {
			return p.wantVerb(words[1])
		}
	}
	if a.D, err = p.duration(d); err == nil && words[1][0] == '-' {
		a.D = -a.D
	}
	return err
}

func (p *parser) noteWords(*Act, []string) error { return nil }

// measures are the figures, with the kind of their limit.
var measures = map[string]struct {
	ofApp bool
	read  func(p *parser, w string) (float64, error)
}{
	"stall":    {true, (*parser).limitTime},
	"trip":     {true, (*parser).limitTime},
	"dip":      {true, (*parser).limitPercent},
	"goodput":  {true, (*parser).limitRate},
	"first":    {true, (*parser).limitTime},
	"traffic":  {false, (*parser).limitSize},
	"switches": {false, (*parser).limitNumber},
	"dials":    {false, (*parser).limitNumber},
	"streams":  {false, (*parser).limitNumber},
}

func (p *parser) limitTime(w string) (float64, error) {
	d, err := p.duration(w)
	return d.Seconds(), err
}

func (p *parser) limitRate(w string) (float64, error) {
	r, err := p.rate(w)
	return float64(r), err
}

func (p *parser) limitSize(w string) (float64, error) {
	n, err := p.size(w)
	return float64(n), err
}

func (p *parser) limitPercent(w string) (float64, error) {
	num, ok := strings.CutSuffix(w, "%")
	if v, err := strconv.ParseFloat(num, 64); ok && err == nil && v >= 0 && v <= 100 {
		return v, nil
	}
	return 0, p.fail(w, "want a percentage, as 10%%")
}

func (p *parser) limitNumber(w string) (float64, error) {
	if v, err := strconv.Atoi(w); err == nil && v >= 0 {
		return float64(v), nil
	}
	return 0, p.fail(w, "want a number")
}

// check reads MEASURE [of APP] <=|>= LIMIT [per hour] [(NOTE)], goodput of APP >= PERCENT of BASELINE, active LINK, or reset of APP [after D] within D. It
// concerns the event before it, or, before the first event and behind the end, the whole run.
func (p *parser) check(goal bool, words []string) error {
	c := Check{Goal: goal, Line: p.line}
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "(") }); i >= 0 {
		note := strings.Join(words[i:], " ")
		if !strings.HasSuffix(note, ")") {
			return p.fail(words[i], "want a ) at the end of the line")
		}
		c.Note, words = note[1:len(note)-1], words[:i]
	}
	if len(words) == 0 {
		return p.fail("", "want a measure: active, reset, %s", keys(measures))
	}
	var err error
	switch c.Measure = Measure(words[0]); c.Measure {
	case Active:
		err = p.activeCheck(&c, words[1:])
	case Reset:
		err = p.resetCheck(&c, words[1:])
	case Trip, First:
		if len(p.sc.Events) > 0 && p.sc.End == 0 {
			return p.fail(words[0], "concerns the whole run, so behind end")
		}
		err = p.figureCheck(&c, words)
	default:
		err = p.figureCheck(&c, words)
	}
	if err != nil {
		return err
	}
	if n := len(p.sc.Events); n > 0 && p.sc.End == 0 {
		p.sc.Events[n-1].Checks = append(p.sc.Events[n-1].Checks, c)
	} else {
		p.sc.Checks = append(p.sc.Checks, c)
	}
	return nil
}

func (p *parser) activeCheck(c *Check, words []string) error {
	if len(words) != 1 || !p.hasLink(words[0]) && words[0] != "none" {
		return p.fail("active", "want: active LINK; links are %s", strings.Join(p.linkNames(), ", "))
	}
	c.Link = words[0]
	return nil
}

func (p *parser) ofApp(c *Check, words []string) ([]string, error) {
	if len(words) < 2 || words[0] != "of" {
		return nil, p.fail(string(c.Measure), "want of APP behind it; apps are %s", strings.Join(p.appNames(), ", "))
	}
	if _, ok := p.sc.findApp(words[1]); !ok {
		return nil, p.fail(words[1], "no such app; want one of %s", strings.Join(p.appNames(), ", "))
	}
	c.App = words[1]
	return words[2:], nil
}

func (p *parser) resetCheck(c *Check, words []string) error {
	if len(p.sc.Events) == 0 || p.sc.End > 0 {
		return p.fail("reset", "belongs to the event that is the cause, so below its line")
	}
	words, err := p.ofApp(c, words)
	if err != nil {
		return err
	}
	var within time.Duration
	err = p.pairs(words, map[string]func(string) error{
		"after":  func(w string) (err error) { c.After, err = p.duration(w); return err },
		"within": func(w string) (err error) { within, err = p.duration(w); return err },
	})
	if err == nil && within == 0 {
		err = p.fail("reset", "want: reset of APP [after DURATION] within DURATION")
	}
	c.Limit = within.Seconds()
	return err
}

func (p *parser) figureCheck(c *Check, words []string) error {
	m, ok := measures[words[0]]
	if !ok {
		return p.fail(words[0], "no such measure; want one of active, reset, %s", keys(measures))
	}
	words = words[1:]
	if m.ofApp {
		var err error
		if words, err = p.ofApp(c, words); err != nil {
			return err
		}
	}
	if len(words) >= 2 && words[len(words)-2] == "per" && words[len(words)-1] == "hour" {
		c.PerHour, words = true, words[:len(words)-2]
	}
	if c.Measure == Goodput && len(words) == 4 && words[2] == "of" {
		return p.ratioCheck(c, words)
	}
	if len(words) != 2 || words[0] != "<=" && words[0] != ">=" {
		return p.fail(string(c.Measure), "want <= or >= and a limit behind it")
	}
	c.AtLeast = words[0] == ">="
	var err error
	c.Limit, err = m.read(p, words[1])
	return err
}

// ratioCheck reads >= PERCENT of BASELINE.
func (p *parser) ratioCheck(c *Check, words []string) error {
	b, ok := baselineOf(words[3])
	if !ok || !slices.Contains(p.sc.Compare, b) || !c.Goal || words[0] != ">=" {
		return p.fail(words[3], "want: goal goodput of APP >= PERCENT of what compare names")
	}
	v, err := p.limitPercent(words[1])
	c.AtLeast, c.Base, c.Limit = true, b, v/100
	return err
}
