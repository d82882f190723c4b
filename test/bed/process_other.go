//go:build !linux

package bed

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

func supported() error {
	return fmt.Errorf("the test bed runs on Linux, this is %s: use a Linux machine, virtual machine or container", runtime.GOOS)
}

func ownProcessGroup(*exec.Cmd) {}

func signalGroup(int, syscall.Signal) error { return supported() }

func freeBytes(string) (uint64, error) { return 0, supported() }

func killIn(string) error { return supported() }
