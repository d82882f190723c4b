package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

// A ground is where the story takes place: on a real node, or on the stand-in for one. It knows how the application's orders get
// in and out, and how the plugin gets into Velero. Its methods are called in the order below.
type ground interface {
	// scene says what is seen.
	scene() scene
	// build builds what is not built yet. It may take long the first time.
	build(ctx context.Context) error
	// open starts the cluster, without the plugin. The caller stops it.
	open(ctx context.Context) (*cluster, error)
	// place gives an order to the application; it is on the disk on return.
	place(ctx context.Context, order string) error
	// orders returns the orders that the application has.
	orders(ctx context.Context) ([]string, error)
	// addPlugin installs the plugin and returns when Velero has it.
	addPlugin(ctx context.Context) error
}

// A scene is what a ground consists of, in phrases.
type scene struct {
	real, standIns string
	// way is how orders get in and out.
	way string
	// added is how the plugin gets in: the command of a user, or empty where it is done in another way.
	added []string
	// serves says that the application can be asked at any time, as its users do.
	serves bool
}

// everywhere is real on either ground.
const everywhere = "etcd, kube-apiserver, kube-controller-manager, an S3 server, and Velero: server and CLI, at its default settings"

// built are the programs of this repository that a ground takes, by their names in bin/.
type built struct{ dir string }

// buildTimeout bounds the build of what is of this repository: minutes on a cold cache.
const buildTimeout = 15 * time.Minute

const pluginBinary = "velero-plugin-for-openshift-dr"

// plugin is the path of the plugin.
func (b built) plugin() string { return filepath.Join(b.dir, pluginBinary) }

// buildHere builds the plugin into bin/ as `make build` does, and further programs beside it, from their packages.
func buildHere(ctx context.Context, programs map[string]string) (built, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return built{}, fmt.Errorf("find the top of the repository, run this from within it: %w", err)
	}
	top := strings.TrimSpace(string(out))
	lines := [][]string{{"make", "build"}}
	for name, pkg := range programs {
		lines = append(lines, []string{"go", "build", "-trimpath", "-o", filepath.Join("bin", name), pkg})
	}
	for _, line := range lines {
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Dir = top
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // static, for images that hold nothing else
		cmd.WaitDelay = 5 * time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return built{}, fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
		}
	}
	return built{dir: filepath.Join(top, "bin")}, nil
}

// cluster is a test bed and what runs beside it.
type cluster struct {
	*bed.Bed
	watching client.WithWatch
	// stop ends all of it. It may be called once.
	stop func()
}

// openCluster starts a bed with OpenShift's controllers, and then, with beside, what more is to run. beside returns what ends
// that, or nothing with an error.
func openCluster(
	ctx context.Context, options bed.Options, controllers openshift.Options, beside func(context.Context, *bed.Bed) (func(), error),
) (_ *cluster, err error) {
	crds, err := openshift.CRDs()
	if err != nil {
		return nil, err
	}
	options.CRDs = crds
	b, err := bed.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	end := func() {}
	c := &cluster{Bed: b, stop: func() {
		cancel()
		end()
		running.Wait()
		b.Stop()
	}}
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
		if err := openshift.Run(ctx, b.RESTConfig(), controllers); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "the stand-in for OpenShift's controllers ended:", err)
		}
	})
	if beside != nil {
		stop, err := beside(ctx, b)
		if err != nil {
			return nil, err
		}
		end = stop
	}
	return c, nil
}
