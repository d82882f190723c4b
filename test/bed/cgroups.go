package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroupRoots are the roots of the cgroup hierarchies: one of version 2, or one a controller of version 1.
func cgroupRoots() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}, nil
	}
	var roots []string
	procs, err := filepath.Glob(filepath.Join(cgroupMount, "*", "cgroup.procs"))
	for _, path := range procs {
		roots = append(roots, filepath.Dir(path))
	}
	if err == nil && len(roots) == 0 {
		err = fmt.Errorf("a real node needs cgroups, and none are mounted at %s", cgroupMount)
	}
	return roots, err
}

// makeCgroups makes a cgroup of that name in every hierarchy. The node's pods are put into it, so that they are neither mixed up
// with another bed's nor with a kubelet's of the machine itself.
func makeCgroups(name string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			return fmt.Errorf("make a cgroup for the node's pods: %w", err)
		}
	}
	return nil
}

// removeCgroups removes the cgroups that makeCgroups made and all that was made in them. A cgroup can be removed once its
// last process has gone, which may take a moment.
func removeCgroups(name string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return poll(ctx, "remove the cgroups "+name, func(context.Context) error {
		var errs []error
		for _, root := range roots {
			errs = append(errs, removeCgroup(filepath.Join(root, name)))
		}
		return errors.Join(errs...)
	})
}

func removeCgroup(top string) error {
	var dirs []string
	if err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return ignoreNotExist(err)
	}); err != nil {
		return err
	}
	var errs []error
	for _, dir := range slices.Backward(dirs) { // children first
		errs = append(errs, ignoreNotExist(os.Remove(dir)))
	}
	return errors.Join(errs...)
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
