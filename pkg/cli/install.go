package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newInstall(s surroundings) *cobra.Command {
	return &cobra.Command{
		Use:   "install TARGET",
		Short: "Copy this program into a folder, as Velero's init container does",
		Long: "Copy this program into the folder TARGET, where Velero looks for plugins. The image of the plugin does so: Velero\n" +
			"starts it as an init container and mounts the folder at /target.\n\n" +
			"The copy appears at once and whole, also over an older one that is running.",
		Example: "  " + binary + " install /target",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			source, err := s.executable()
			if err != nil {
				return failed(fmt.Errorf("find this program: %w", err))
			}
			path, err := install(source, args[0])
			if err != nil {
				return failed(err)
			}
			if _, err := fmt.Fprintf(s.out, "installed %s\n", path); err != nil {
				return failed(fmt.Errorf("write what was done: %w", err))
			}
			return nil
		},
	}
}

// install copies the program at source to the folder target, under the name that it has in Velero's pod, and returns its path there.
//
// It is written under another name and then renamed. So nobody sees half of it, and an older one may be running, which
// could not be written to ("text file busy"). The other name is always the same: a copy that an interrupted run left is
// replaced by the next run. Velero would start it as one more plugin with the same actions, and then not start itself.
func install(source, target string) (path string, err error) {
	switch info, err := os.Stat(target); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("install into %s: there is no such folder: mount the volume of Velero's plugins there", target)
	case err != nil:
		return "", fmt.Errorf("install into %s: %w", target, err)
	case !info.IsDir():
		return "", fmt.Errorf("install into %s: it is no folder", target)
	}
	path = filepath.Join(target, binary)
	unfinished := filepath.Join(target, "."+binary+".unfinished")
	if err := removeLeft(unfinished); err != nil {
		return "", fmt.Errorf("remove what an earlier run left: %w", err)
	}
	if err := copyProgram(source, unfinished); err != nil {
		return "", errors.Join(fmt.Errorf("copy this program to %s: %w", target, err), removeLeft(unfinished))
	}
	if err := os.Rename(unfinished, path); err != nil {
		return "", errors.Join(fmt.Errorf("put the program in place: %w", err), removeLeft(unfinished))
	}
	return path, nil
}

// copyProgram copies a program to a new file that everybody may run, whatever the umask, and has it on disk when it returns.
func copyProgram(source, target string) (err error) {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = errors.Join(out.Chmod(0o755), out.Sync())
	}
	return errors.Join(err, out.Close())
}

func removeLeft(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
