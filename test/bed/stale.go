package bed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// A bed that dies leaves nothing: its watchdog sees to that. Should the watchdog be killed too, the next bed on the machine cleans up:
// a bed holds a file in its folder as long as its process lives, and what nobody holds is stale.

const (
	// dirPrefix is what the name of a bed's folder begins with.
	dirPrefix = "dr-test-bed-"
	// holdFile is the file that is held. A folder without it is being made, or kept on purpose.
	holdFile = "hold"
)

// A hold says that a bed's folder is in use. The kernel gives it up when this process dies.
type hold struct{ lock *flock.Flock }

// holdDir holds a folder. The file gets its name when it is held, so nobody ever sees it free.
func holdDir(dir string) (*hold, error) {
	path := filepath.Join(dir, holdFile)
	lock := flock.New(path + ".new")
	if err := lock.Lock(); err != nil { // nobody else knows it
		return nil, fmt.Errorf("hold the folder of the test bed: %w", err)
	}
	if err := os.Rename(lock.Path(), path); err != nil {
		return nil, errors.Join(fmt.Errorf("hold the folder of the test bed: %w", err), lock.Close())
	}
	return &hold{lock}, nil
}

// release gives the folder up for good. If it is still there it is kept on purpose, so sweep is to leave it alone.
func (h *hold) release() error {
	path := filepath.Join(filepath.Dir(h.lock.Path()), holdFile)
	return errors.Join(ignoreNotExist(os.Remove(path)), h.lock.Close())
}

// sweep ends what is left in parent of beds whose process and watchdog were killed: processes, cgroups and folders. It tells what it
// removed and what it could not; neither keeps anybody from starting a bed, whose names and ports are its own.
func sweep(parent string, log func(string, ...any)) {
	dirs, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil { // only for a bad pattern
		log("test bed: look for what killed runs have left: %v", err)
	}
	for _, dir := range dirs {
		switch swept, err := sweepDir(dir); {
		case err != nil:
			log("test bed: remove what a killed run has left in %s: %v", dir, err)
		case swept:
			log("test bed: removed what a killed run had left in %s", dir)
		}
	}
}

// sweepDir sweeps one folder, unless it is in use.
func sweepDir(dir string) (swept bool, err error) {
	path := filepath.Join(dir, holdFile)
	if _, err := os.Stat(path); err != nil {
		return false, ignoreNotExist(err)
	}
	lock := flock.New(path, flock.SetFlag(os.O_RDONLY)) // makes no file where one has just gone
	free, err := lock.TryLock()
	if errors.Is(err, fs.ErrNotExist) || err == nil && !free {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := killIn(dir); err != nil {
		return false, err
	}
	if _, err := cgroupRoots(); err == nil {
		if err := removeCgroups(filepath.Base(dir)); err != nil {
			return false, err
		}
	}
	return true, os.RemoveAll(dir)
}
