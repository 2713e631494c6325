package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// WriteReport writes the report of a run: Markdown at path, and a picture of each scenario in the folder of the same name.
// scenarios are all that could have been played, by name; results those that were.
func WriteReport(path string, scenarios map[string]map[Runner]*Scenario, results []*Result) error {
	pictures := strings.TrimSuffix(path, ".md")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	var names []string
	for name := range scenarios {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	head(&b, results)
	overview(&b, names, scenarios, results)
	misses(&b, names, results)
	beside(&b, names, results)
	for _, name := range names {
		own := resultsOf(results, name)
		section(&b, name, scenarios[name], own, filepath.Base(pictures))
		if len(own) == 0 {
			continue
		}
		if err := drawTo(filepath.Join(pictures, name+".svg"), own); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func drawTo(path string, list []*Result) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := writePicture(f, list); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func head(b *strings.Builder, results []*Result) {
	fmt.Fprintf(b, "# The lab\n\nWritten by `make lab`; do not edit. [testing.md](testing.md) says what a scenario is and what the runners are.\n\n")
	met, missed, lost, repeated, wrongly, failed := 0, 0, int64(0), int64(0), 0, 0
	world := ""
	for _, r := range results {
		if r.Baseline != "" {
			continue
		}
		lost, repeated, wrongly = lost+r.Lost, repeated+r.Repeated, wrongly+r.Wrongly
		if len(r.Problems()) > 0 {
			failed++
		}
		if r.World != "" {
			world = r.World
		}
		for _, f := range r.Figures {
			switch {
			case !f.Goal:
			case f.Met:
				met++
			default:
				missed++
			}
		}
	}
	fmt.Fprintf(b, "**%d runs: %d bytes lost, %d repeated, %d connections ended wrongly; %d goals met, %d missed; %d runs failed.**\n\n",
		count(results), lost, repeated, wrongly, met, missed, failed)
	fmt.Fprintf(b, "%s, %s, %d cores", runtime.GOOS, runtime.Version(), runtime.NumCPU())
	if world != "" {
		fmt.Fprintf(b, "; netns: %s", world)
	}
	fmt.Fprintf(b, ".\n\n✓ a goal is met; ✗ it is missed; ‼ the run failed: a byte lost or repeated, a connection ended wrongly, an expectation that does not "+
		"hold, or a stall over %d times its goal; ⧗ a run of that kind while the machine "+
		"itself stood still for more than 100 ms at a time, which is nobody's fault. A goal is about the median where an event is repeated; the worst is in brackets. A stall is the longest time in "+
		"which nothing came, and includes the time between two ticks.\n\n", failFactor)
}

func count(results []*Result) (n int) {
	for _, r := range results {
		if r.Baseline == "" {
			n++
		}
	}
	return n
}

// overview is one line for each scenario.
func overview(b *strings.Builder, names []string, scenarios map[string]map[Runner]*Scenario, results []*Result) {
	fmt.Fprintf(b, "| scenario | ")
	for _, r := range Runners {
		fmt.Fprintf(b, "%s | ", r)
	}
	fmt.Fprintf(b, "what |\n|---|%s---|\n", strings.Repeat("---|", len(Runners)))
	for _, name := range names {
		fmt.Fprintf(b, "| [%s](#%s) | ", name, name)
		for _, runner := range Runners {
			cell := "not played"
			if scenarios[name][runner].Skip != "" {
				cell = "–"
			}
			for _, r := range results {
				if r.Scenario.Name == name && r.Runner == runner && r.Baseline == "" {
					cell = r.verdict()
				}
			}
			fmt.Fprintf(b, "%s | ", cell)
		}
		fmt.Fprintf(b, "%s |\n", scenarios[name][Sim].Title)
	}
	fmt.Fprintln(b)
}

func resultsOf(results []*Result, name string) (own []*Result) {
	for _, r := range results {
		if r.Scenario.Name == name {
			own = append(own, r)
		}
	}
	return own
}

// misses lists the goals that a run has missed.
func misses(b *strings.Builder, names []string, results []*Result) {
	fmt.Fprintf(b, "## Missed goals\n\n| scenario | event | goal |")
	for _, r := range Runners {
		fmt.Fprintf(b, " %s |", r)
	}
	fmt.Fprintf(b, "\n|---|---|---|%s\n", strings.Repeat("---|", len(Runners)))
	for _, name := range names {
		own := slices.DeleteFunc(resultsOf(results, name), func(r *Result) bool { return r.Baseline != "" })
		for _, f := range rows(own) {
			if !f.Goal || !slices.ContainsFunc(own, func(r *Result) bool { return r.missed(f.Key) }) {
				continue
			}
			fmt.Fprintf(b, "| [%s](#%s) | %s | %s |", name, name, cell(f.event()), cell(f.goal()))
			for _, runner := range Runners {
				text := ""
				for _, r := range own {
					if r.Runner == runner {
						text = r.cell(f.Key)
					}
				}
				fmt.Fprintf(b, " %s |", text)
			}
			fmt.Fprintln(b)
		}
	}
	fmt.Fprintln(b)
}

func (r *Result) missed(key string) bool {
	return slices.ContainsFunc(r.Figures, func(f Figure) bool { return f.Key == key && !f.Met })
}

// beside shows what else was played to the same events.
func beside(b *strings.Builder, names []string, results []*Result) {
	if !slices.ContainsFunc(results, func(r *Result) bool { return r.Baseline != "" }) {
		return
	}
	fmt.Fprintf(b, "## Beside OpenSSH and plain TCP\n\nIn netns, the same apps in the same events. Neither of them knows a second route; "+
		"\"gone\" is a connection that did not survive.\n\n| scenario | event | goal | linkproxy |")
	for _, base := range Baselines {
		fmt.Fprintf(b, " %s |", base)
	}
	fmt.Fprintf(b, "\n|---|---|---|---|%s\n", strings.Repeat("---|", len(Baselines)))
	for _, name := range names {
		own := slices.DeleteFunc(resultsOf(results, name), func(r *Result) bool { return r.Runner != NetNS })
		if !slices.ContainsFunc(own, func(r *Result) bool { return r.Baseline != "" }) {
			continue
		}
		for _, f := range rows(own) {
			if f.Measure == Active || f.Measure == Switches || f.Measure == Dials || f.Measure == Streams {
				continue // they have none
			}
			fmt.Fprintf(b, "| [%s](#%s) | %s | %s |", name, name, cell(f.event()), cell(f.goal()))
			for _, base := range append([]string{""}, Baselines...) {
				text := ""
				for _, r := range own {
					if r.Baseline == base {
						text = r.cell(f.Key)
					}
				}
				fmt.Fprintf(b, " %s |", text)
			}
			fmt.Fprintln(b)
		}
	}
	fmt.Fprintln(b)
}

// event and goal are a figure's, as a table shows them.
func (f *Figure) event() string {
	if f.Event == "" {
		return "whole run"
	}
	return f.Event
}

func (f *Figure) goal() string {
	s := f.Check.String()
	if f.Goal {
		s = "goal: " + s
	}
	if f.Note != "" {
		s += " (" + f.Note + ")"
	}
	return s
}

// verdict is a run in a word or two.
func (r *Result) verdict() string {
	met, all := 0, 0
	for _, f := range r.Figures {
		if f.Goal {
			all++
			if f.Met {
				met++
			}
		}
	}
	mark := "✓"
	switch {
	case len(r.Problems()) > 0:
		mark = "‼"
	case r.Busy() && len(r.Late) > 0:
		mark = "⧗"
	case met < all:
		mark = "✗"
	}
	if all == 0 {
		return mark
	}
	return fmt.Sprintf("%s %d of %d", mark, met, all)
}

// who names a run.
func (r *Result) who() string {
	if r.Baseline != "" {
		return fmt.Sprintf("%s, %s", r.Runner, r.Baseline)
	}
	return string(r.Runner)
}

func section(b *strings.Builder, name string, by map[Runner]*Scenario, own []*Result, pictures string) {
	sc := by[Sim]
	fmt.Fprintf(b, "## %s\n\n**%s.** %s\n\n", name, sc.Title, strings.Join(sc.About, "\n"))
	for _, r := range Runners {
		if by[r].Skip != "" {
			fmt.Fprintf(b, "Not in %s: %s.\n", r, by[r].Skip)
		}
	}
	if len(own) == 0 {
		fmt.Fprintln(b)
		return
	}
	fmt.Fprintf(b, "\n| event | what |")
	for _, r := range own {
		fmt.Fprintf(b, " %s |", r.who())
	}
	fmt.Fprintf(b, "\n|---|---|%s\n", strings.Repeat("---|", len(own)))
	for _, f := range rows(own) {
		fmt.Fprintf(b, "| %s | %s |", cell(f.event()), cell(f.goal()))
		for _, r := range own {
			fmt.Fprintf(b, " %s |", r.cell(f.Key))
		}
		fmt.Fprintln(b)
	}
	totals(b, own)
	for _, r := range own {
		if r.Baseline != "" {
			continue
		}
		for _, p := range r.Problems() {
			fmt.Fprintf(b, "‼ %s: %s\n\n", r.who(), cell(strings.Split(p, "\n")[0]))
		}
	}
	fmt.Fprintf(b, "![throughput, links, events and stalls of %s](%s/%s.svg)\n\n", name, pictures, name)
}

// cell makes a text fit for a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// rows are the checks of all runs, each once, in the order of the file.
func rows(own []*Result) (list []Figure) {
	for _, r := range own {
		for _, f := range r.Figures {
			if !slices.ContainsFunc(list, func(o Figure) bool { return o.Key == f.Key }) {
				list = append(list, f)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Figure) int { return a.Line - b.Line })
	return list
}

// cell is what a run says to a check.
func (r *Result) cell(key string) string {
	for _, f := range r.Figures {
		if f.Key != key {
			continue
		}
		if r.Baseline != "" && (f.Measure == Switches || f.Measure == Dials || f.Measure == Streams || f.Measure == Active) {
			return "–"
		}
		text := f.value(f.Median)
		switch {
		case f.Said != "":
			text = cell(f.Said)
		case f.Base != "" && r.Baseline == "":
			text = f.ratio()
		case f.Base != "":
			return text // what it is compared with
		case len(f.Values) > 1:
			text += fmt.Sprintf(" (%s)", f.value(f.Worst))
		}
		switch {
		case f.Met:
			return "✓ " + text
		case f.Goal || r.Baseline != "":
			return "✗ " + text
		}
		return "‼ " + text
	}
	return ""
}

// totals are the lines that every run has.
func totals(b *strings.Builder, own []*Result) {
	line := func(what string, f func(r *Result) string) {
		fmt.Fprintf(b, "| whole run | %s |", what)
		for _, r := range own {
			fmt.Fprintf(b, " %s |", f(r))
		}
		fmt.Fprintln(b)
	}
	line("bytes lost / repeated", func(r *Result) string { return fmt.Sprintf("%d / %d", r.Lost, r.Repeated) })
	line("connections ended wrongly", func(r *Result) string { return fmt.Sprint(r.Wrongly) })
	line("longest stall", func(r *Result) string { return short(r.Longest) })
	line("the machine stood still: longest, in all", func(r *Result) string {
		if r.Runner == Sim {
			return "–"
		}
		return short(r.Frozen.Longest) + ", " + short(r.Frozen.Total)
	})
	line("switches / sockets opened", func(r *Result) string {
		if r.Baseline != "" {
			return "–"
		}
		return fmt.Sprintf("%d / %d", r.Switches, r.Dials)
	})
	fmt.Fprintln(b)
}
