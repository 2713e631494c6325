//go:build !linux

package netns

import (
	"errors"
	"os"
	"runtime"
)

var errSystem = errors.New("netns: network namespaces are Linux's; this is " + runtime.GOOS)

func supported() error { return errSystem }

func emulatorMain(string) (code int, mine bool) { return 0, false }

type emulator struct{}

func startEmulator() (*emulator, error) { return nil, errSystem }

func (*emulator) call(order, []int) (reply, error) { return reply{}, errSystem }

func (*emulator) stop() error { return errSystem }

type namespace struct{ file *os.File }

func newNamespace() (*namespace, error) { return nil, errSystem }

func (*namespace) do(func() error) error { return errSystem }

func (*namespace) tap(string) (int, error) { return -1, errSystem }

func (*namespace) close() {}

func allowCongestion(string, func() error) error { return errSystem }

func closeFD(int) {}
