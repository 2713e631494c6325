package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/term"

	"linkproxy/dialer/route"
)

// when is a time of this machine's own clock: of today by the clock alone, else with the day.
func when(now, t time.Time) string { return onDay(now, t, "15:04") }

// moment is when to the second.
func moment(now, t time.Time) string { return onDay(now, t, time.TimeOnly) }

func onDay(now, t time.Time, clock string) string {
	t = t.In(now.Location())
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format(clock)
	}
	return t.Format("2 Jan " + clock)
}

// short is a duration with the digits that mean something to people.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	case d < time.Second:
		d = d.Round(time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return d.String()
}

// precise are durations as package time writes them, to the nanosecond.
var precise = regexp.MustCompile(`\b(?:\d+h)?(?:\d+m)?\d+\.\d+(?:ns|µs|ms|s)\b`)

// dialled is what package net puts before the cause of a failed dial: the address, which stands beside it already.
var dialled = regexp.MustCompile(`dial (?:tcp|udp)[46]? \S+: (?:connect(?:ex)?: )?`)

// plainly is a text of a package for people: without marks of packages, and with durations they can read.
func plainly(text string) string {
	text = dialled.ReplaceAllString(text, "")
	return precise.ReplaceAllStringFunc(inner.ReplaceAllString(text, "$1"), func(s string) string {
		d, err := time.ParseDuration(s)
		if err != nil {
			return s
		}
		return short(d)
	})
}

// outcomes are what became of a route in a race, for people.
var outcomes = map[route.Outcome]string{
	route.NotTried:   "its turn did not come",
	route.Running:    "being tried",
	route.Won:        "reached",
	route.Kept:       "reached, and kept in reserve",
	route.Failed:     "it failed",
	route.Silent:     "no answer",
	route.WrongPeer:  "another key answered there",
	route.Foreign:    "somebody else's certificate was shown there",
	route.Blocked:    "it does not let this machine in",
	route.NoToken:    "the relay wants a token",
	route.Busy:       "it is busy",
	route.Superseded: "a newer linkproxy of this machine is served",
	route.NoRoute:    "this machine has no way there",
	route.Unfinished: "not ready when the time was over",
	route.Lost:       "another was faster",
	route.Cancelled:  "given up, as nobody waited any more",
}

// triggers are what races are run for, for people.
var triggers = map[string]string{
	route.ForConnect.String(): "an app wants the peer",
	route.ForLoss.String():    "the last carrier was gone",
	route.ForDoubt.String():   "no carrier could be trusted",
	route.ForWakeUp.String():  "this machine slept",
	route.ForPath.String():    "this machine's network changed",
	route.ForUpgrade.String(): "a better class answered",
	route.ForDrain.String():   "the relay in use goes",
	route.ForRemoval.String(): "the route in use may not be used any more",
	route.ForUser.String():    "the user wants it",
}

// reason is why something was decided, for people: what a race is run for says less than the reason behind it, if there is one.
func reason(why string) string {
	trigger, more, _ := strings.Cut(why, ": ")
	words, known := triggers[trigger]
	switch {
	case !known:
		return plainly(why)
	case more == "":
		return words
	default:
		return plainly(more)
	}
}

// place is why a route is in its place, for people. What is pinned is tried first, whatever else is known of it.
func place(text string) string {
	text = plainly(text)
	if before, after, pinned := strings.Cut(text, "pinned by the user"); pinned {
		return before + "pinned by the user" + strings.ReplaceAll(after, "tried last: ", "otherwise tried last: ")
	}
	return text
}

// cause is why an attempt did not bring a connection.
func cause(a route.Attempt) string {
	switch {
	case a.Outcome == route.WrongPeer || a.Outcome == route.Foreign || a.Err == nil:
		return outcomes[a.Outcome]
	default:
		return plainly(said(a.Err))
	}
}

// wide is how wide a text may be, in columns: as the terminal, within reason, so that lines can still be read.
func (w *world) wide() int {
	const least, most = 60, 120
	if columns, _, err := term.GetSize(int(w.out.Fd())); err == nil {
		return min(max(columns, least), most)
	}
	return most
}

// wrap breaks a text between words so that lines are at most width columns; those after the first begin with indent.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > width && column > len(indent):
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// ordinal is a place among others.
func ordinal(n int) string {
	end := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		end = "st"
	case n%10 == 2:
		end = "nd"
	case n%10 == 3:
		end = "rd"
	}
	return fmt.Sprintf("%d%s", n, end)
}
