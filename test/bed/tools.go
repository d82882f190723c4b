package bed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Binaries are paths of the programs a bed is made of.
type Binaries struct {
	Etcd, KubeAPIServer, KubeControllerManager string
	Velero, VeleroPluginForAWS                 string
	VersityGW                                  string

	// Built counts the tools modules that this call had to build: 0 when all were there.
	Built int
}

// NodeBinaries are paths of the programs that a real node takes besides those of Binaries and what the operating system
// brings.
type NodeBinaries struct {
	Kubelet, KubeScheduler, KubeProxy string
	VeleroHelper, VeleroRestoreHelper string
	LocalPathProvisioner              string

	// Built counts the sets of programs that this call had to build: 0 when all were there.
	Built int
}

// A toolsModule is a folder of test/tools: a module of its own, so that the versions which the tools need do not mix
// with those of the product, nor with one another.
type toolsModule struct {
	folder string
	// set is what this set of the module's programs is called in the cache; empty: folder.
	set      string
	packages map[string]string // file name of the program: its package
	// ldflags are the flags for a given version of the module versionOf, which is looked up in go.mod.
	versionOf string
	ldflags   func(version string) string
}

var toolsModules = []toolsModule{
	{
		folder: "kubernetes",
		packages: map[string]string{
			"etcd":                    "go.etcd.io/etcd/server/v3",
			"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
			"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
		},
		versionOf: "k8s.io/kubernetes",
		ldflags:   kubernetesFlags,
	},
	{
		folder: "velero",
		packages: map[string]string{
			"velero":                "github.com/vmware-tanzu/velero/cmd/velero",
			"velero-plugin-for-aws": "github.com/vmware-tanzu/velero-plugin-for-aws/velero-plugin-for-aws",
		},
		versionOf: "github.com/vmware-tanzu/velero",
		ldflags:   veleroFlags,
	},
	{
		folder:    "s3",
		packages:  map[string]string{"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
		versionOf: "github.com/versity/versitygw",
		ldflags:   func(string) string { return "-s -w" },
	},
}

// nodeModules are further programs of the same modules, built only for whoever wants a real node, and the provisioner.
var nodeModules = []toolsModule{
	{
		folder: "kubernetes",
		set:    "kubernetes-node",
		packages: map[string]string{
			"kubelet":        "k8s.io/kubernetes/cmd/kubelet",
			"kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
			"kube-proxy":     "k8s.io/kubernetes/cmd/kube-proxy",
		},
		versionOf: "k8s.io/kubernetes",
		ldflags:   kubernetesFlags,
	},
	{
		folder: "velero",
		set:    "velero-node",
		packages: map[string]string{
			"velero-helper":         "github.com/vmware-tanzu/velero/cmd/velero-helper",
			"velero-restore-helper": "github.com/vmware-tanzu/velero/cmd/velero-restore-helper",
		},
		versionOf: "github.com/vmware-tanzu/velero",
		ldflags:   veleroFlags,
	},
	{
		folder:    "lpp",
		packages:  map[string]string{"local-path-provisioner": "github.com/rancher/local-path-provisioner"},
		versionOf: "github.com/rancher/local-path-provisioner",
		ldflags:   func(version string) string { return "-s -w -X main.VERSION=" + version },
	},
}

// kubernetesFlags stamp the version as Kubernetes' own build does (hack/lib/version.sh); without them the server says
// v0.0.0 and clients that look at its version misbehave.
func kubernetesFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{
			"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean",
			"gitCommit=0000000000000000000000000000000000000000", "buildDate=1970-01-01T00:00:00Z",
		} {
			flags = append(flags, "-X", pkg+"."+v)
		}
	}
	return strings.Join(flags, " ")
}

// veleroFlags stamp the version, and turn off the metrics listener of controller-runtime: Velero leaves it at its default,
// which is port 8080 on all interfaces, so a second server on the machine would not start (Velero's own metrics have a
// flag for their address and stay).
func veleroFlags(version string) string {
	return strings.Join([]string{
		"-s", "-w",
		"-X", "github.com/vmware-tanzu/velero/pkg/buildinfo.Version=" + version,
		"-X", "github.com/vmware-tanzu/velero/pkg/buildinfo.GitSHA=unknown",
		"-X", "github.com/vmware-tanzu/velero/pkg/buildinfo.GitTreeState=clean",
		"-X", "sigs.k8s.io/controller-runtime/pkg/metrics/server.DefaultBindAddress=0",
	}, " ")
}

// buildFlags are those that all programs share.
var buildFlags = []string{"-trimpath", "-buildvcs=false", "-mod=readonly"}

// toolsTimeout bounds one call of Tools. A cold build of everything takes about ten minutes on two idle cores.
const toolsTimeout = time.Hour

// Tools builds the programs from the tools modules in test/tools, unless they are built already, and says where they are.
// The first build takes about ten minutes on two cores; after that a call takes milliseconds. Safe to call from
// several processes at once: one builds and the others wait.
//
// Each tools module is built into .cache/tools/<folder>-<key> at the top of the repository, where key is a hash of all that
// decides the result: go.mod, go.sum, the flags, the Go version and the platform.
func Tools(ctx context.Context) (Binaries, error) {
	paths, built, err := buildAll(ctx, toolsModules)
	if err != nil {
		return Binaries{}, err
	}
	return Binaries{
		Etcd:                  paths["etcd"],
		KubeAPIServer:         paths["kube-apiserver"],
		KubeControllerManager: paths["kube-controller-manager"],
		Velero:                paths["velero"],
		VeleroPluginForAWS:    paths["velero-plugin-for-aws"],
		VersityGW:             paths["versitygw"],
		Built:                 built,
	}, nil
}

// NodeTools is Tools for the programs that a real node takes: another three minutes the first time. They are sets of their own in
// the cache, so that nobody waits for them who needs no node.
func NodeTools(ctx context.Context) (NodeBinaries, error) {
	paths, built, err := buildAll(ctx, nodeModules)
	if err != nil {
		return NodeBinaries{}, err
	}
	return NodeBinaries{
		Kubelet:              paths["kubelet"],
		KubeScheduler:        paths["kube-scheduler"],
		KubeProxy:            paths["kube-proxy"],
		VeleroHelper:         paths["velero-helper"],
		VeleroRestoreHelper:  paths["velero-restore-helper"],
		LocalPathProvisioner: paths["local-path-provisioner"],
		Built:                built,
	}, nil
}

// buildAll builds what of the modules is not built yet and returns the path of each program by its file name.
func buildAll(ctx context.Context, modules []toolsModule) (paths map[string]string, built int, err error) {
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	top, err := repositoryTop()
	if err != nil {
		return nil, 0, err
	}
	paths = map[string]string{}
	for _, module := range modules {
		dir, isNew, err := module.build(ctx, top)
		if err != nil {
			return nil, 0, fmt.Errorf("build the tools of test/tools/%s: %w", module.folder, err)
		}
		if isNew {
			built++
		}
		for program := range module.packages {
			paths[program] = filepath.Join(dir, program)
		}
	}
	return paths, built, nil
}

// repositoryTop is the nearest folder upwards from the working directory that has the tools modules: `go test` runs a test
// in its package's folder.
func repositoryTop() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "test", "tools", toolsModules[0].folder, "go.mod"))
		switch {
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("no test/tools at or above %s: run from within the repository", start)
		}
	}
}

// name is what the module's programs are called in the cache. That one set's name is the beginning of another's does not
// mislead prune: what follows is a key, and no name looks like one.
func (m toolsModule) name() string {
	if m.set != "" {
		return m.set
	}
	return m.folder
}

// build returns the folder with the module's programs, and whether it had to build them.
func (m toolsModule) build(ctx context.Context, top string) (dir string, built bool, err error) {
	source := filepath.Join(top, "test", "tools", m.folder)
	key, ldflags, err := m.key(ctx, source)
	if err != nil {
		return "", false, err
	}
	cache := filepath.Join(top, ".cache", "tools")
	dir = filepath.Join(cache, m.name()+"-"+key)
	if _, err := os.Stat(dir); err == nil {
		// Tells prune that it is in use. Whoever may not write there may use it all the same.
		now := time.Now()
		_ = os.Chtimes(dir, now, now)
		return dir, false, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", false, err
	}
	lock := flock.New(filepath.Join(cache, m.name()+".lock"))
	if _, err := lock.TryLockContext(ctx, 200*time.Millisecond); err != nil {
		return "", false, fmt.Errorf("wait for %s, which another process holds while it builds: %w", lock.Path(), err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := os.Stat(dir); err == nil { // built while this process waited
		return dir, false, nil
	}

	if err := m.prune(cache); err != nil {
		return "", false, err
	}
	// The folder gets its name only when it is complete, so whoever sees it can use it.
	unfinished, err := os.MkdirTemp(cache, m.name()+"-unfinished-")
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return "", false, err
	}
	for program, pkg := range m.packages {
		start := time.Now()
		fmt.Fprintf(os.Stderr, "building %s from %s\n", program, pkg)
		args := append([]string{"build"}, buildFlags...)
		args = append(args, "-ldflags", ldflags, "-o", filepath.Join(unfinished, program), pkg)
		if _, err := runGo(ctx, source, args...); err != nil {
			return "", false, err
		}
		fmt.Fprintf(os.Stderr, "built %s in %s\n", program, time.Since(start).Round(100*time.Millisecond))
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", false, err
	}
	return dir, true, nil
}

// pruneAfter is how long programs are kept that nobody uses: a set takes half a gigabyte.
const pruneAfter = 7 * 24 * time.Hour

// prune removes what builds of this module left unfinished, and programs that nobody has used for a while. The caller
// holds the module's lock.
func (m toolsModule) prune(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), m.name()+"-")
		info, err := entry.Info()
		switch {
		case !ok:
			continue
		case err != nil:
			return err
		case strings.HasPrefix(rest, "unfinished-"):
		case len(rest) == keyLength && time.Since(info.ModTime()) > pruneAfter:
		default:
			continue
		}
		if err := os.RemoveAll(filepath.Join(cache, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// keyLength is in hexadecimal digits.
const keyLength = 16

// key hashes what decides the programs' content, and returns the linker flags too, which are part of it.
func (m toolsModule) key(ctx context.Context, source string) (key, ldflags string, err error) {
	goMod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", "", err
	}
	goSum, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return "", "", err
	}
	version := requiredVersion(string(goMod), m.versionOf)
	if version == "" {
		return "", "", fmt.Errorf("%s/go.mod does not require %s", source, m.versionOf)
	}
	platform, err := runGo(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64")
	if err != nil {
		return "", "", err
	}
	ldflags = m.ldflags(version)
	hash := sha256.New()
	for _, part := range []string{string(goMod), string(goSum), ldflags, strings.Join(buildFlags, " "), platform} {
		fmt.Fprintf(hash, "%d\n%s", len(part), part) // a hash.Hash never fails
	}
	return hex.EncodeToString(hash.Sum(nil))[:keyLength], ldflags, nil
}

// requiredVersion finds the version of module in the text of a go.mod, or "".
func requiredVersion(goMod, module string) string {
	for line := range strings.Lines(goMod) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1]
		}
	}
	return ""
}

// runGo runs the go command in a folder, free of settings that would change what it builds.
func runGo(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=")
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
