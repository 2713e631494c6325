package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"linkproxy/cmd/linkproxy/config"
)

// Rules of output: results go to standard output, everything else to standard error. Errors begin with "linkproxy: ", in
// lower case, without a full stop after the last sentence unless there are several, and name the next step. Colours and
// moving lines appear only on a terminal, and colours not where NO_COLOR is set (https://no-color.org).

// inner are the marks of packages and of carrying bytes in an error's text; a user needs what stands behind them.
var inner = regexp.MustCompile(`(^|: |\()(?:(?:carrying standard input and output|pipe: (?:read|write) (?:peer|app)|config|link|dialer|host|identity|proxy|control|route): )+`)

// said is an error's text for people. Mistakes in the config stay as they are: they name keys.
func said(err error) string {
	text := strings.TrimSpace(err.Error())
	if _, ok := errors.AsType[config.Errors](err); ok {
		return strings.TrimPrefix(text, "config: ")
	}
	return inner.ReplaceAllString(text, "$1")
}

// fail tells an error.
func (w *world) fail(err error) {
	fmt.Fprintf(w.err, "linkproxy: %s\n", strings.ReplaceAll(plainly(said(err)), "\n", "\n  "))
}

// notInForce tells what is wrong with a config file that was changed under a running process: as `config check` does, each
// mistake on its line, which a log would run together.
func (w *world) notInForce(err error) {
	w.log.Error("the changed config is not in force, the old one stays")
	w.fail(err)
}

// note tells something that is no result and no failure.
func (w *world) note(format string, a ...any) { fmt.Fprintf(w.err, format+"\n", a...) }

// print writes a result.
func (w *world) print(format string, a ...any) { fmt.Fprintf(w.out, format+"\n", a...) }

// printJSON writes a result for programs.
func (w *world) printJSON(v any) error {
	e := json.NewEncoder(w.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printLine writes a result for programs that read line by line.
func (w *world) printLine(v any) error { return json.NewEncoder(w.out).Encode(v) }

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func coloured(f *os.File) bool {
	return isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// newLog logs to f, from a level on.
func newLog(f *os.File, level slog.Level) *slog.Logger {
	return slog.New(tint.NewTextHandler(f, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !coloured(f)}))
}

// count is a number of things.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ago says how long something has been, as people do.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// bytesOf says how much something is.
func bytesOf(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	div, exp := uint64(unit), 0
	for m := n / unit; m >= unit; m /= unit {
		div *= unit
		exp++
	}
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(div), "KMGTP"[exp])
}
