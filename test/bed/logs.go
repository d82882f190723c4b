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
	var out strings.Builder
	for _, pattern := range []string{b.path("logs", "*.log"), b.path("node", "log", "pods", "*", "*", "*.log")} {
		paths, err := filepath.Glob(pattern)
		if err != nil { // only for a bad pattern
			return err.Error()
		}
		for _, path := range paths {
			name, err := filepath.Rel(b.dir, path)
			if err != nil { // not for what was found in it
				name = path
			}
			fmt.Fprintf(&out, "==== %s\n%s\n", name, tail(path))
		}
	}
	return out.String()
}

// VeleroLog is everything that the Velero server has logged so far, over all its starts; or why it cannot be read. On a real
// node it is what the node still has: the logs of deleted pods are gone, and lines have kubelet's time before them.
func (b *Bed) VeleroLog() string {
	paths := []string{b.path("logs", "velero.log")}
	if b.node != nil {
		var err error
		paths, err = filepath.Glob(b.path("node", "log", "pods", b.opts.VeleroNamespace+"_velero-*", "velero", "*.log"))
		if err != nil { // only for a bad pattern
			return err.Error()
		}
	}
	var all strings.Builder
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		all.Write(content)
	}
	return all.String()
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
