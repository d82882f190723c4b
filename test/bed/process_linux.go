package bed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// freeBytes is how much anybody can write in the file system of dir.
func freeBytes(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

// killIn kills the processes whose working folder is dir or in it: those that a bed has started, and their children.
func killIn(dir string) error {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil { // only for a bad pattern
		return err
	}
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || !within(cwd, dir) { // an error: it has ended, or is somebody else's
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}
