package bed

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// supported says whether a bed can run on this operating system.
func supported() error { return nil }

// ownProcessGroup puts the child into a process group of its own, whose number is the child's.
func ownProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup signals every process of a group. That there is none left is no error.
func signalGroup(group int, signal syscall.Signal) error {
	if err := syscall.Kill(-group, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to process group %d: %w", signal, group, err)
	}
	return nil
}
