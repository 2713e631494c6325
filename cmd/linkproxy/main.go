// Command linkproxy makes a machine's moving network invisible to the apps on it: see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/proxy"
)

// version is set by the build.
var version = "dev"

// Exit codes beside those of proxy.ExitCode, which `connect` uses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	leaveProcessors()
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// world is what a command knows of the outside.
type world struct {
	in       *os.File
	out, err *os.File
	config   string // the config file
	named    bool   // by the user, who expects it to be there
	state    string // the state folder
	log      *slog.Logger
	verbose  bool
}

// run is main without the process: it returns the exit code.
func run(args []string, in, out, errw *os.File) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	w := &world{in: in, out: out, err: errw}
	app := &cli.App{
		Name:  "linkproxy",
		Usage: "keep the connections of your apps alive while this machine's network moves",
		Description: "On the machine to reach:    linkproxy host      and once: linkproxy host invite\n" +
			"On the machine that moves:  linkproxy pair INVITE, then linkproxy up\n" +
			"To see it work at once:     linkproxy demo",
		Writer: errw, ErrWriter: errw,
		HideHelpCommand: true, HideVersion: true,
		DisableSliceFlagSeparator: true,
		Suggest:                   true,
		Flags:                     append(globalFlags(w), &cli.BoolFlag{Name: "version", Usage: "print the version"}),
		Before:                    w.settle,
		OnUsageError:              usageError,
		ExitErrHandler:            func(*cli.Context, error) {},
		CommandNotFound:           func(*cli.Context, string) {},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return &usage{fmt.Sprintf("there is no command %q; see linkproxy --help", c.Args().First())}
			}
			if c.Bool("version") {
				w.print("linkproxy %s", version)
				return nil
			}
			return cli.ShowAppHelp(c)
		},
		Commands: []*cli.Command{
			w.cmdDemo(), w.cmdHost(), w.cmdPair(), w.cmdUp(), w.cmdConnect(), w.cmdPeers(), w.cmdStatus(),
			w.cmdWhy(), w.cmdCheck(), w.cmdUse(), w.cmdEvents(), w.cmdConfig(), w.cmdVersion(),
		},
	}
	for _, c := range app.Commands {
		prepare(w, c)
	}
	return w.exit(app.RunContext(ctx, flagsFirst(args, app.Commands, "why", "check", "use")))
}

// usage is an error of how a command was called.
type usage struct{ text string }

func (u *usage) Error() string { return u.text }

func usageError(c *cli.Context, err error, _ bool) error {
	return &usage{fmt.Sprintf("%v; see %s --help", err, c.Command.HelpName)}
}

// prepare gives every command what urfave/cli does not inherit: the global flags after the command as well, and its
// manner of failing. Its own help command would swallow a first argument "h".
func prepare(w *world, c *cli.Command) {
	c.HideHelpCommand = true
	c.OnUsageError = usageError
	c.Flags = append(c.Flags, globalFlags(w)...)
	action := c.Action
	c.Action = func(ctx *cli.Context) error {
		if err := w.settle(ctx); err != nil {
			return err
		}
		for _, a := range ctx.Args().Slice() {
			if a == "--" {
				break
			}
			if strings.HasPrefix(a, "-") && a != "-" {
				return &usage{fmt.Sprintf("%s: flags come before arguments: linkproxy %s %s …", a, c.Name, a)}
			}
		}
		if action == nil {
			return cli.ShowSubcommandHelp(ctx)
		}
		return action(ctx)
	}
	for _, sub := range c.Subcommands {
		prepare(w, sub)
	}
}

func globalFlags(_ *world) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "the config `FILE`", EnvVars: []string{"LINKPROXY_CONFIG"}},
		&cli.StringFlag{Name: "state", Usage: "the `FOLDER` of keys, pairings and sockets", EnvVars: []string{"LINKPROXY_STATE"}},
		&cli.BoolFlag{Name: "verbose", Usage: "say more about what happens"},
	}
}

// settle reads the global flags, wherever they stood, and finds the folders.
func (w *world) settle(c *cli.Context) error {
	str := func(name string) string {
		for _, l := range c.Lineage() {
			if l.IsSet(name) && l.String(name) != "" {
				return l.String(name)
			}
		}
		return ""
	}
	for _, l := range c.Lineage() {
		w.verbose = w.verbose || l.Bool("verbose")
	}
	level := slog.LevelInfo
	if w.verbose {
		level = slog.LevelDebug
	}
	w.log = newLog(w.err, level)
	w.config, w.state = str("config"), str("state")
	w.named = w.config != ""
	if w.config == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return fmt.Errorf("no config folder: %w; name a file with --config", err)
		}
		w.config = config.Path(dir)
	}
	if w.state == "" {
		dir, err := stateDir()
		if err != nil {
			return fmt.Errorf("no state folder: %w; name one with --state", err)
		}
		w.state = dir
	}
	return nil
}

// stateDir is the platform's folder for what a program keeps to itself.
func stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		dir, err := os.UserCacheDir() // %LocalAppData%: does not roam between machines
		return filepath.Join(dir, "linkproxy"), err
	case "darwin":
		dir, err := os.UserConfigDir()
		return filepath.Join(dir, "linkproxy", "state"), err
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "linkproxy"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "linkproxy"), err
}

// exit tells an error and chooses the exit code.
func (w *world) exit(err error) int {
	var u *usage
	var e *exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		if e.err != nil {
			w.fail(e.err)
		}
		return e.code
	case errors.As(err, &u):
		w.fail(err)
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitOK // told to stop
	}
	w.fail(err)
	return exitError
}

// exitCode ends a command with a code of its own.
type exitCode struct {
	code int
	err  error // told, unless nil
}

func (e *exitCode) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// connectExit is the end of `connect`.
func connectExit(err error) error {
	if err == nil {
		return nil
	}
	if out, ok := errors.AsType[*proxy.OutputError](err); ok && out.NobodyReads() {
		return &exitCode{proxy.ExitOther, nil} // who could be told has left
	}
	// What has a class says it all; on which pipe it was read is nobody's business.
	var classed interface {
		error
		Reason() string
	}
	if errors.As(err, &classed) {
		err = classed
	}
	return &exitCode{proxy.ExitCode(err), err}
}

// args insists on a number of arguments; "--" in front of them is dropped.
func args(c *cli.Context, least, most int, form string) ([]string, error) {
	a := c.Args().Slice()
	if len(a) > 0 && a[0] == "--" {
		a = a[1:]
	}
	if len(a) < least || len(a) > most {
		return nil, &usage{fmt.Sprintf("usage: linkproxy %s", form)}
	}
	return a, nil
}
