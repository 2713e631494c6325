package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst puts the flags of a command before its arguments, where urfave/cli looks for them: `linkproxy use devbox lan --only`
// is how people write it. Only for the commands named: with others what follows the arguments may be somebody's data.
func flagsFirst(args []string, commands []*cli.Command, names ...string) []string {
	at := 1
	for at < len(args) && strings.HasPrefix(args[at], "-") {
		at += 1 + valuesOf(globalFlags(nil), args[at])
	}
	if at >= len(args) || !slices.Contains(names, args[at]) {
		return args
	}
	i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == args[at] })
	first := slices.Clone(args[:at+1])
	var rest []string
	for at++; at < len(args); at++ {
		a := args[at]
		if a == "--" {
			rest = append(rest, args[at:]...)
			break
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			rest = append(rest, a)
			continue
		}
		last := min(at+valuesOf(commands[i].Flags, a), len(args)-1)
		first = append(first, args[at:last+1]...)
		at = last
	}
	return append(first, rest...)
}

// valuesOf is how many arguments after a flag belong to it.
func valuesOf(flags []cli.Flag, arg string) int {
	name := strings.TrimLeft(arg, "-")
	for _, f := range flags {
		if _, is := f.(*cli.BoolFlag); !is && slices.Contains(f.Names(), name) {
			return 1
		}
	}
	return 0
}
