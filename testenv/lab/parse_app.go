package lab

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// apart is how far apart apps that are alike open, unless they say it: at once they would be an attack, which is bounded.
const apart = 4 * time.Millisecond

// app reads NAME[*COUNT] KIND through VIA [at RATE] [from TIME] [apart DURATION] [until TIME] [pause TIME for DURATION].
func (p *parser) app(words []string) error {
	if len(words) < 2 {
		return p.fail("app", "want: app NAME KIND through VIA")
	}
	a := App{Count: 1, Kind: Kind(words[1]), Apart: apart}
	name, count, many := strings.Cut(words[0], "*")
	a.Name = name
	if !isName(name) || name == "next" {
		return p.fail(words[0], "a name is lower-case letters; NAME*50 makes fifty")
	}
	if _, ok := p.sc.findApp(name); ok {
		return p.fail(name, "there is such an app already")
	}
	if many {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || n > maxApps {
			return p.fail(count, "want a number up to %d", maxApps)
		}
		a.Count = n
	}
	words = words[2:]
	switch a.Kind {
	case Tick, Keys:
		if len(words) == 0 {
			return p.fail(string(a.Kind), "want how often behind it, as 20ms")
		}
		d, err := p.duration(words[0])
		if err != nil {
			return err
		}
		if d < time.Millisecond {
			return p.fail(words[0], "want at least 1ms")
		}
		a.Every, words = d, words[1:]
	case BlastUp, BlastDown, BlastBoth, Idle:
	default:
		return p.fail(string(a.Kind), "an app is one of tick EVERY, keys EVERY, up, down, both, idle")
	}
	return p.appOptions(a, words)
}

func (p *parser) appOptions(a App, words []string) error {
	err := p.pairs(words, map[string]func(string) error{
		"through": func(w string) error {
			if a.Via = w; !slices.Contains(Vias, w) {
				return p.fail(w, "want one of %v", Vias)
			}
			return nil
		},
		"at": func(w string) (err error) {
			a.Rate, err = p.rate(w)
			return err
		},
		"from": func(w string) (err error) {
			a.From, err = p.duration(w)
			return err
		},
		"apart": func(w string) (err error) {
			a.Apart, err = p.duration(w)
			return err
		},
		"until": func(w string) (err error) {
			a.Until, err = p.duration(w)
			return err
		},
		"pause": func(w string) (err error) {
			a.Pause, err = p.duration(w)
			return err
		},
		"for": func(w string) (err error) {
			a.PauseFor, err = p.duration(w)
			return err
		},
	})
	switch {
	case err != nil:
		return err
	case a.Via == "":
		return p.fail(a.Name, "want a way: through one of %v", Vias)
	case (a.Rate > 0 || a.PauseFor > 0) && !a.isBlast():
		return p.fail(string(a.Kind), "only up, down and both have a rate or a pause")
	case (a.Pause > 0) != (a.PauseFor > 0):
		return p.fail(a.Name, "want: pause TIME for DURATION")
	}
	p.sc.Apps = append(p.sc.Apps, a)
	return nil
}

func (a App) isBlast() bool {
	return a.Kind == BlastUp || a.Kind == BlastDown || a.Kind == BlastBoth
}

func (s *Scenario) findApp(name string) (App, bool) {
	for _, a := range s.Apps {
		if a.Name == name {
			return a, true
		}
	}
	return App{}, false
}
