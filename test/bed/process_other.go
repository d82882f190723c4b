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
