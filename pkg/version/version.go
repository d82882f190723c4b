// Package version says what this binary is.
package version

import (
	"runtime"
	"runtime/debug"
)

// Set through -ldflags by the Makefile. A binary built without them says so.
var (
	version = "devel"
	commit  = "unknown"
)

// veleroModule is the library whose interfaces the plugin is built against.
const veleroModule = "github.com/vmware-tanzu/velero"

// Info is what the version command prints.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	Velero  string `json:"velero"`
}

// Get returns the version, commit, Go release and Velero library of this binary.
func Get() Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version(), Velero: "unknown"}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, dependency := range build.Deps {
		if dependency.Path == veleroModule {
			info.Velero = dependency.Version
		}
	}
	return info
}
