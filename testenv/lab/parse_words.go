package lab

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// duration reads a sum of durations and names, as 2s+outage.
func (p *parser) duration(w string) (sum time.Duration, err error) {
	for part := range strings.SplitSeq(w, "+") {
		d, ok := p.lets[part]
		if !ok {
			if d, err = time.ParseDuration(part); err != nil || strings.HasPrefix(part, "-") {
				return 0, p.fail(part, "want a duration, as 250ms or 8h, or a name that let has given one")
			}
		}
		if sum += d; sum > maxEnd {
			return 0, p.fail(w, "want at most %s", short(maxEnd))
		}
	}
	return sum, nil
}

// units in order of reading.
var rateUnits = []unit{{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}}

var sizeUnits = []unit{{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"kB", 1e3}, {"", 1}}

type unit struct {
	name string
	is   float64
}

func (p *parser) rate(w string) (int64, error) {
	return p.amount(w, rateUnits, "a rate, as 256kbit or 100Mbit")
}

func (p *parser) size(w string) (int64, error) {
	return p.amount(w, sizeUnits, "a number of bytes, as 1400 or 64KiB")
}

func (p *parser) amount(w string, units []unit, want string) (int64, error) {
	for _, u := range units {
		num, ok := strings.CutSuffix(w, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(num, 64)
		if err != nil || !(v > 0) || v*u.is > 1e12 { // also not a number
			break
		}
		return int64(v * u.is), nil
	}
	return 0, p.fail(w, "want %s", want)
}

func (p *parser) hasLink(name string) bool {
	return slices.ContainsFunc(p.sc.Links, func(l Link) bool { return l.Name == name })
}

func (p *parser) linkNames() (list []string) {
	for _, l := range p.sc.Links {
		list = append(list, l.Name)
	}
	return list
}

func (p *parser) appNames() (list []string) {
	for _, a := range p.sc.Apps {
		list = append(list, a.Name)
	}
	return list
}

func keys[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
