// Command demo shows on a terminal what the plugin does: a DeploymentConfig application with data goes through backup, loss
// and restore, first without the plugin and then with it, in a real Velero against a real Kubernetes API. What is a
// stand-in is said at the start. It ends with checks, and with exit code 1 if one of them fails.
//
// Run it from within the repository: `make demo`, or `go run ./test/demo`. It takes a minute and a half at most once the
// programs of the test bed are built, and leaves nothing behind, also when it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

// How long things take on the stand-in for a node: long enough to be seen, and what the closing figure is to be read with.
const (
	volumeRestoreTakes = 4 * time.Second
	podEndsIn          = time.Second
	podStartsIn        = 2 * time.Second
)

// atMost bounds the whole demo, programs already built.
const atMost = 5 * time.Minute

func main() {
	// The libraries' own logs would talk into the story.
	log.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := newStage(os.Stdout)
	err := run(ctx, out)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		out.print("")
		out.say("Interrupted. The cluster is stopped and nothing is left behind.")
		os.Exit(130) //nolint:gocritic // what is deferred is done with
	default:
		out.failed(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out *stage) error {
	out.opening()
	plugin, err := buildPlugin(ctx)
	if err != nil {
		return err
	}
	if _, err := bed.Tools(ctx); err != nil {
		return fmt.Errorf("build the programs of the test bed: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	done := out.during("Starting the cluster and Velero")
	c, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	done()
	return (&story{cluster: c, stage: out, plugin: plugin}).tell(ctx)
}

// buildPlugin builds the plugin into bin/ as `make build` does, and returns its path.
func buildPlugin(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the top of the repository, run this from within it: %w", err)
	}
	top := strings.TrimSpace(string(out))
	build := exec.CommandContext(ctx, "make", "build")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the plugin: %w\n%s", err, out)
	}
	return filepath.Join(top, "bin", "velero-plugin-for-openshift-dr"), nil
}

// cluster is a test bed without the plugin, and the two stand-ins.
type cluster struct {
	*bed.Bed
	watching client.WithWatch
	node     *node.Node
	stop     func()
}

func startCluster(ctx context.Context) (_ *cluster, err error) {
	crds, err := openshift.CRDs()
	if err != nil {
		return nil, err
	}
	b, err := bed.Start(ctx, bed.Options{CRDs: crds}) // with Velero's default poll interval
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	c := &cluster{Bed: b}
	c.stop = func() {
		cancel()
		if c.node != nil {
			_ = c.node.Stop() // it ends because it is told to
		}
		running.Wait()
		b.Stop()
	}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	c.watching, err = client.NewWithWatch(b.RESTConfig(), client.Options{Scheme: b.Client().Scheme(), Mapper: b.Client().RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client that watches: %w", err)
	}
	running.Go(func() {
		if err := openshift.Run(ctx, b.RESTConfig(), openshift.Options{}); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "the stand-in for OpenShift's controllers ended:", err)
		}
	})
	c.node, err = node.Run(ctx, b.RESTConfig(), node.Options{
		VeleroNamespace: b.VeleroNamespace(),
		Restore:         volumeRestoreTakes, Terminate: podEndsIn, Start: podStartsIn,
	})
	if err != nil {
		return nil, err
	}
	err = c.awaitNodeAgent(ctx)
	return c, err
}
