package pipe

import (
	"errors"

	"golang.org/x/sys/windows"
)

// pollIn lets the runtime wait by itself: on Windows that is a read of zero bytes, which returns once there is something.
func pollIn(uintptr) bool { return false }

func isReset(err error) bool {
	return errors.Is(err, windows.WSAECONNRESET) || errors.Is(err, windows.WSAECONNABORTED)
}
