package sock

import "golang.org/x/sys/unix"

// bind: since Linux 5.7 that needs no right; where it does, the system's own choice stays.
func bind(fd uintptr, name string, _ int, _ bool) {
	_ = unix.BindToDevice(int(fd), name)
}
