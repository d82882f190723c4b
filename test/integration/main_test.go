package integration

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
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
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

// cluster is a test bed with the plugin under test and the two stand-ins.
type cluster struct {
	*bed.Bed
	node *node.Node
	// watching is the bed's client, which can watch as well.
	watching client.WithWatch
	stop     func()
}

// shared is the cluster that all scenarios share which do not disturb others. It starts with the first of them.
var shared struct {
	once    sync.Once
	cluster *cluster
	err     error
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
		// A scenario waits most of its time: more of them than there are cores keep those busy.
		if err := given.Value.Set("8"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	dir, err := os.MkdirTemp("", "dr-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary.path = filepath.Join(dir, "velero-plugin-for-openshift-dr")
	code := m.Run()
	if shared.cluster != nil {
		if code != 0 {
			fmt.Fprintln(os.Stderr, shared.cluster.Logs())
		}
		shared.cluster.stop()
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

// sharedCluster returns the cluster that scenarios share.
func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	path := plugin(t)
	shared.once.Do(func() {
		shared.cluster, shared.err = startCluster(path, bed.Options{ItemOperationSyncFrequency: 2 * time.Second})
	})
	require.NoError(t, shared.err)
	return shared.cluster
}

// ownCluster returns a cluster that belongs to one test.
func ownCluster(t *testing.T, options bed.Options) *cluster {
	t.Helper()
	c, err := startCluster(plugin(t), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
		c.stop()
	})
	return c
}

// startCluster starts a bed with the plugin, OpenShift's API for DeploymentConfigs unless the options bring other CRDs,
// and the stand-ins.
func startCluster(plugin string, options bed.Options) (*cluster, error) {
	withoutOpenShift := options.CRDs != nil
	if !withoutOpenShift {
		crds, err := openshift.CRDs()
		if err != nil {
			return nil, err
		}
		options.CRDs = crds
	}
	options.Plugins = append(options.Plugins, plugin)
	options.VeleroArgs = append(options.VeleroArgs,
		// Scenarios run side by side, and Velero's queue of backups looks again only every minute for one that it passed over.
		"--concurrent-backups=10",
		// Client-side throttling makes a volume restore that ends quickly fail: Velero then cancels its own look at the node-agent
		// (pkg/podvolume/restorer.go).
		"--client-qps=500", "--client-burst=500")
	ctx, cancel := context.WithCancel(context.Background())
	b, err := bed.Start(ctx, options)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &cluster{Bed: b}
	var running sync.WaitGroup
	c.stop = func() {
		if c.node != nil {
			_ = c.node.Stop()
		}
		cancel()
		running.Wait()
		b.Stop()
	}
	if c.watching, err = client.NewWithWatch(b.RESTConfig(), client.Options{Scheme: b.Client().Scheme(), Mapper: b.Client().RESTMapper()}); err != nil {
		c.stop()
		return nil, err
	}
	if !withoutOpenShift {
		running.Go(func() {
			if err := openshift.Run(ctx, b.RESTConfig(), openshift.Options{DeployerPoll: 100 * time.Millisecond, Log: standinLog()}); err != nil {
				fmt.Fprintln(os.Stderr, "the stand-in for OpenShift's controllers ended:", err)
			}
		})
	}
	if c.node, err = node.Run(ctx, b.RESTConfig(), node.Options{VeleroNamespace: b.VeleroNamespace()}); err != nil {
		c.stop()
		return nil, err
	}
	if err := c.awaitNodeAgent(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// standinLog is where the stand-ins log: nowhere, unless the environment asks for it to look into a failure.
func standinLog() *slog.Logger {
	if os.Getenv("STANDIN_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// awaitNodeAgent waits until Velero takes the node for one that can back up volumes.
func (c *cluster) awaitNodeAgent(ctx context.Context) error {
	return eventually(ctx, time.Minute, func(ctx context.Context) error {
		var agent appsv1.DaemonSet
		if err := c.Client().Get(ctx, client.ObjectKey{Namespace: c.VeleroNamespace(), Name: "node-agent"}, &agent); err != nil {
			return err
		}
		if agent.Status.NumberReady < 1 {
			return fmt.Errorf("node-agent is not ready")
		}
		return nil
	})
}

// eventually calls check until it returns nil or the time is up, and then returns its last error.
func eventually(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", timeout, last)
		case <-ticker.C:
		}
	}
}
