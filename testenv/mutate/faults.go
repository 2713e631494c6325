package main

import "slices"

// allFaults is the whole list. Each is a rule that somebody might think needless, or a slip of the pen.
func allFaults() []fault { return slices.Concat(coreFaults, bulkFaults, dialerFaults, routeFaults) }

// extraArgs are for packages whose tests do more after a failure than to tell it.
var extraArgs = map[string][]string{
	"link/core":    {"-shrink=false"},
	"dialer/route": {"-rapid.nofailfile"},
}
