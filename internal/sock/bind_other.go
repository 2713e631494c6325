//go:build !linux && !darwin && !windows

package sock

// bind has no way here that these systems have in common.
func bind(uintptr, string, int, bool) {}
