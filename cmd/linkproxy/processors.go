package main

import (
	"os"
	"runtime"
)

// leaveProcessors lets this process use half of the processors (docs/decisions/0011): the other half is for the apps or the
// targets, which need one for every byte as well. Whoever sets GOMAXPROCS decides.
func leaveProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(halfOf(runtime.GOMAXPROCS(0)))
	}
}

func halfOf(processors int) int { return max(1, processors/2) }
