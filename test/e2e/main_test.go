package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

const (
	pluginImage   = "test-bed.invalid/velero-plugin-for-openshift-dr:e2e"
	deployerImage = "test-bed.invalid/deployer:e2e"
	pluginBinary  = "velero-plugin-for-openshift-dr"

	// atATime is how many scenarios run side by side. They wait most of their time, but each runs containers on the two cores
	// that CI has.
	atATime = "4"
	// startTimeout is the plugin's setting of that name: a scenario waits until it is over.
	startTimeout = 40 * time.Second
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // controller-runtime asks for one
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		if err := given.Value.Set(atATime); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	outcomes.print(os.Stdout)
	os.Exit(code)
}

// cluster is a bed with a real node, the plugin in Velero, and OpenShift's controllers.
type cluster struct {
	*bed.Bed
	// watching is the bed's client, which can watch as well.
	watching client.WithWatch
}

// newCluster starts a cluster for a test and installs the plugin as users do.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if err := bed.NodeSupported(); err != nil {
		t.Skip(err)
	}
	crds, err := openshift.CRDs()
	require.NoError(t, err)
	c := &cluster{Bed: bed.ForTest(t, bed.Options{
		CRDs: crds,
		// Velero's queue of backups looks again only every minute for one that it passed over.
		VeleroArgs: []string{"--concurrent-backups=10"},
		Node:       &bed.NodeOptions{},
	})}
	c.watching, err = client.NewWithWatch(c.RESTConfig(), client.Options{Scheme: c.Client().Scheme(), Mapper: c.Client().RESTMapper()})
	require.NoError(t, err)
	c.bringImages(t)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- openshift.Run(ctx, c.RESTConfig(), openshift.Options{DeployerImage: deployerImage, DeployersInPods: true})
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended, "the stand-in for OpenShift's controllers")
	})
	c.addPlugin(t)
	return c
}

// bringImages makes the images of the plugin and of the deployer, in the bed's folder, and brings them to the node.
func (c *cluster) bringImages(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	deployer := filepath.Join(c.Dir(), "deployer")
	require.NoError(t, run(ctx, "go", "build", "-o", deployer, "./test/standin/openshift/cmd/deployer"))
	require.NoError(t, c.ImportImage(ctx, bed.Image{
		Reference: deployerImage, Files: map[string]string{"/deployer": deployer}, Entrypoint: []string{"/deployer"},
	}))
	require.NoError(t, run(ctx, "make", "dist", "ARCHES="+runtime.GOARCH))
	plugin := bed.Image{Reference: pluginImage, Archive: filepath.Join(c.Dir(), "plugin.tar")}
	if err := run(ctx, "scripts/image.sh", "--save", plugin.Archive, pluginImage, runtime.GOARCH); err != nil {
		require.NoError(t, ctx.Err())
		t.Log("no engine has built the image of Dockerfile, so one with the same content is used:", err)
		plugin = bed.Image{
			Reference:  pluginImage,
			Files:      map[string]string{"/" + pluginBinary: filepath.Join("..", "..", "dist", "linux-"+runtime.GOARCH, pluginBinary)},
			Entrypoint: []string{"/" + pluginBinary, "install", "/target"},
			User:       "65532:65532",
		}
	}
	require.NoError(t, c.ImportImage(ctx, plugin))
}

// run runs a command at the top of the repository.
func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", program, args, err, out)
	}
	return nil
}

// addPlugin installs the plugin with its settings. Velero then has exactly the actions of the golden list.
func (c *cluster) addPlugin(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Client().Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.VeleroNamespace(), Name: "openshift-dr",
			Labels: map[string]string{contract.PluginConfigLabel: "", contract.DeploymentConfigRestoreAction: "RestoreItemAction"},
		},
		Data: map[string]string{contract.StartTimeoutSetting: startTimeout.String()},
	}))
	_, err := c.Velero(t.Context(), "plugin", "add", pluginImage, "--confirm")
	require.NoError(t, err)
	require.NoError(t, c.AwaitVelero(t.Context()))

	golden, err := os.ReadFile(filepath.Join("..", "..", "testdata", "actions.golden"))
	require.NoError(t, err)
	var want []string
	for line := range strings.Lines(string(golden)) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		want = append(want, name+" "+kind)
	}
	require.NotEmpty(t, want)
	require.ElementsMatch(t, want, c.actions(t))
}

// removePlugin removes the plugin as users do.
func (c *cluster) removePlugin(t *testing.T) {
	t.Helper()
	_, err := c.Velero(t.Context(), "plugin", "remove", pluginImage)
	require.NoError(t, err)
	require.NoError(t, c.AwaitVelero(t.Context()))
	require.Empty(t, c.actions(t))
}

// actions are those of ours that Velero has, each as its name and kind.
func (c *cluster) actions(t *testing.T) []string {
	t.Helper()
	plugins, err := c.Velero(t.Context(), "plugin", "get")
	require.NoError(t, err)
	var ours []string
	for line := range strings.Lines(plugins) {
		if strings.HasPrefix(line, "oadp.openshift.io/") {
			ours = append(ours, strings.Join(strings.Fields(line), " "))
		}
	}
	return ours
}

// TestScenarios is all that this package does. One scenario alone: -run 'TestScenarios/side_by_side/opt-in'.
func TestScenarios(t *testing.T) {
	c := newCluster(t)
	t.Run("side by side", func(t *testing.T) {
		for _, scenario := range sideBySide {
			t.Run(scenario.name, func(t *testing.T) {
				t.Parallel()
				scenario.run(newScene(t, c, scenario.name))
			})
		}
	})
	t.Run("alone", func(t *testing.T) {
		for _, scenario := range alone {
			t.Run(scenario.name, func(t *testing.T) { scenario.run(newScene(t, c, scenario.name)) })
		}
	})
	c.removePlugin(t)
}

// A scenario is one application, or a few, in a namespace of their own.
type scenario struct {
	name string
	run  func(*scene)
}

// sideBySide leave other scenarios alone. The longest comes first.
var sideBySide = []scenario{
	{"an image that cannot be pulled", imageMissing},
	{"three pods on one claim", sharedClaim},
	{"the Job's pod killed", jobPodKilled},
	{"a hook that waits for readiness", jobAfterReadiness},
	{"exec hooks", jobAfterHooks},
	{"an exec hook that fails", jobAfterFailedHook},
	{"the Job of a good restore", jobAfterGoodRestore},
	{"init hooks", initHooks},
	{"into another namespace", otherNamespace},
	{"paused", paused},
	{"one pod, its claim ReadWriteOnce", oneClaim},
	{"opt-in", optIn},
}

// alone take away what others stand on.
var alone = []scenario{
	{"node-agent lost while it fills a volume", nodeAgentLost},
	{"Velero's pod deleted while it waits for operations", veleroLostWhileWaiting},
	{"Velero's pod deleted in the middle of the restore", veleroLostInProgress},
	{"Velero's pod deleted while it finalizes", veleroLostFinalizing},
}
