//go:build !linux && !darwin && !windows

package sock

// tune has nothing to set here that these systems have in common.
func tune(uintptr) {}
