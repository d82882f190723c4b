package recipes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// clusters are those that the tests of this package share. Each starts with the first test that asks for it.
var clusters struct {
	sync.Mutex
	east, west *site
}

// binary is the plugin under test, built with the race detector.
var binary struct {
	once sync.Once
	path string
	err  error
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // controller-runtime asks for one
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		// A test waits most of its time: more of them than there are cores keep those busy.
		if err := given.Value.Set("8"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	dir, err := os.MkdirTemp("", "dr-recipes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary.path = filepath.Join(dir, "velero-plugin-for-openshift-dr")
	code := m.Run()
	for _, s := range []*site{clusters.west, clusters.east} { // west uses the store of east
		if s == nil {
			continue
		}
		if code != 0 {
			fmt.Fprintf(os.Stderr, "######## %s\n%s\n", s.name, s.Logs())
		}
		s.Stop()
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// plugin returns the path of the plugin under test.
func plugin(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		out, err := exec.CommandContext(context.Background(), "go", "build", "-race", "-o", binary.path, "../..").CombinedOutput()
		if err != nil {
			binary.err = fmt.Errorf("build the plugin: %w\n%s", err, out)
		}
	})
	require.NoError(t, binary.err)
	return binary.path
}

// site is a cluster.
type site struct {
	*bed.Bed
	name string
	// uid is that of the namespace kube-system, by which clusters are told apart.
	uid string
	// crds are Ramen's CRDs in it, as far as the tests know.
	crds crdState
}

// startSite starts a cluster with Ramen's CRDs in a state.
func startSite(t *testing.T, name string, crds crdState, options bed.Options) *site {
	t.Helper()
	fusion, err := ramen.StandInFusionCRD()
	require.NoError(t, err)
	options.CRDs = append(crds.load(t), fusion)
	options.ItemOperationSyncFrequency = time.Second
	options.VeleroArgs = append(options.VeleroArgs,
		// Velero's queue of backups looks again only every minute for one that it passed over.
		"--concurrent-backups=10",
		"--client-qps=500", "--client-burst=500")
	b, err := bed.Start(context.WithoutCancel(t.Context()), options) // it outlives this test
	require.NoError(t, err)
	s := &site{Bed: b, name: name, crds: crds}
	var system corev1.Namespace
	require.NoError(t, b.Client().Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &system))
	s.uid = string(system.UID)
	return s
}

// eastern returns the cluster that is backed up: with the plugin and Ramen's present CRDs.
func eastern(t *testing.T) *site {
	t.Helper()
	path := plugin(t)
	clusters.Lock()
	defer clusters.Unlock()
	if clusters.east == nil {
		clusters.east = startSite(t, "east", present, bed.Options{Plugins: []string{path}})
	}
	return clusters.east
}

// western returns the cluster that is restored to, with the plugin and with Ramen's CRDs in the given state. Tests that call it
// run one after another; their subtests may run side by side. Without CRDs it is the cluster of a single restore, since
// that brings them: a test calls this again for the next.
func western(t *testing.T, crds crdState) *site {
	t.Helper()
	path, east := plugin(t), eastern(t)
	clusters.Lock()
	defer clusters.Unlock()
	switch {
	case clusters.west == nil:
		clusters.west = startSite(t, "west", crds, bed.Options{Plugins: []string{path}, Storage: east.Bed})
	case clusters.west.crds != crds:
		clusters.west.reset(t, crds)
	}
	if crds == absent {
		clusters.west.crds = unknown
	}
	return clusters.west
}
