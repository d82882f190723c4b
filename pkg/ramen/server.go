package ramen

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// ServerStart returns when Velero's server started, to a second: it is the parent of a plugin's process (hashicorp/go-plugin
// starts it). The error says that /proc could not be read.
func ServerStart() (time.Time, error) {
	server, err := procfs.NewProc(os.Getppid())
	if err != nil {
		return time.Time{}, fmt.Errorf("find Velero's server, the parent of this process: %w", err)
	}
	stat, err := server.Stat()
	if err != nil {
		return time.Time{}, fmt.Errorf("read when Velero's server started: %w", err)
	}
	seconds, err := stat.StartTime()
	if err != nil {
		return time.Time{}, fmt.Errorf("read when Velero's server started: %w", err)
	}
	return time.UnixMilli(int64(seconds * 1000)), nil
}
