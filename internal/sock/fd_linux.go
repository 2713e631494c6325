//go:build !race

package sock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are the system's own read, write and poll, of which the runtime is not told. It need not be: none of them waits. Told of it, it
// would take the processor away from who writes more than some 20 µs and give it to another thread, and wake up each 20 µs to
// see to that; with small machines and large writes that cost a fifth of all.

// ReadFD reads from a socket that does not block.
func ReadFD(fd uintptr, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(n, e)
}

// WriteFD writes to a socket that does not block.
func WriteFD(fd uintptr, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(n, e)
}

// PollFD says which of events there are on fd now, and whether it failed or hung up.
func PollFD(fd uintptr, events int16) (int16, error) {
	p := unix.PollFd{Fd: int32(fd), Events: events}
	zero := unix.Timespec{}
	for {
		_, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 {
			return 0, e
		}
		return p.Revents, nil
	}
}

func result(n uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
