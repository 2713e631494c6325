//go:build !unix && !windows

package pipe

// pollIn lets the runtime wait by itself.
func pollIn(uintptr) bool { return false }

func isReset(error) bool { return false }
