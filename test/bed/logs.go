package bed

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	tailLines = 40
	tailBytes = 64 << 10
)

// Logs is the last lines of the log of every component, for a test that failed.
func (b *Bed) Logs() string {
	paths, err := filepath.Glob(b.path("logs", "*.log"))
	if err != nil { // only for a bad pattern
		return err.Error()
	}
	var out strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&out, "==== %s\n%s\n", filepath.Base(path), tail(path))
	}
	return out.String()
}

// VeleroLog is everything that the Velero server has logged so far, over all its starts; or why it cannot be read.
func (b *Bed) VeleroLog() string {
	content, err := os.ReadFile(b.path("logs", "velero.log"))
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// tail is the last lines of a file; or why it cannot be read: it goes into reports of other failures.
func tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	content, err := io.ReadAll(io.NewSectionReader(file, max(0, size-tailBytes), tailBytes))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
