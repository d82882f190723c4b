package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

const (
	pluginImage   = "test-bed.invalid/velero-plugin-for-openshift-dr:e2e"
	deployerImage = "test-bed.invalid/deployer:e2e"
	pluginBinary  = "velero-plugin-for-openshift-dr"
)

// artefacts are what is built once for all clusters of this package.
var artefacts struct {
	once             sync.Once
	dir              string
	plugin, deployer bed.Image
	err              error
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // controller-runtime asks for one
	code := m.Run()
	if artefacts.dir != "" {
		if err := os.RemoveAll(artefacts.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// build makes the images of the plugin and of the deployer.
func build(ctx context.Context, logf func(string, ...any)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if artefacts.dir, err = os.MkdirTemp("", "dr-e2e-"); err != nil {
		return err
	}
	deployer := filepath.Join(artefacts.dir, "deployer")
	if err := run(ctx, "go", "build", "-o", deployer, "./test/standin/openshift/cmd/deployer"); err != nil {
		return err
	}
	artefacts.deployer = bed.Image{
		Reference: deployerImage, Files: map[string]string{"/deployer": deployer}, Entrypoint: []string{"/deployer"},
	}
	if err := run(ctx, "make", "dist", "ARCHES="+runtime.GOARCH); err != nil {
		return err
	}
	archive := filepath.Join(artefacts.dir, "plugin.tar")
	if err := run(ctx, "scripts/image.sh", "--save", archive, pluginImage, runtime.GOARCH); err == nil {
		artefacts.plugin = bed.Image{Reference: pluginImage, Archive: archive}
		return nil
	} else if logf("no engine has built the image of Dockerfile, so one with the same content is used: %v", err); ctx.Err() != nil {
		return err
	}
	artefacts.plugin = bed.Image{
		Reference:  pluginImage,
		Files:      map[string]string{"/" + pluginBinary: filepath.Join("..", "..", "dist", "linux-"+runtime.GOARCH, pluginBinary)},
		Entrypoint: []string{"/" + pluginBinary, "install", "/target"},
		User:       "65532:65532",
	}
	return nil
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

// A cluster is a bed with a real node and OpenShift's controllers.
type cluster struct {
	*bed.Bed
}

// newCluster starts a cluster for one test, without the plugin.
func newCluster(t *testing.T, options bed.Options) *cluster {
	t.Helper()
	if err := bed.NodeSupported(); err != nil {
		t.Skip(err)
	}
	artefacts.once.Do(func() { artefacts.err = build(t.Context(), t.Logf) })
	require.NoError(t, artefacts.err)
	crds, err := openshift.CRDs()
	require.NoError(t, err)
	options.CRDs = append(options.CRDs, crds...)
	options.Node = &bed.NodeOptions{Images: []bed.Image{artefacts.plugin, artefacts.deployer}}
	b := bed.ForTest(t, options)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- openshift.Run(ctx, b.RESTConfig(), openshift.Options{DeployerImage: deployerImage, DeployersInPods: true})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error("the stand-in for OpenShift's controllers ended:", err)
		}
	})
	return &cluster{Bed: b}
}

// eventually calls check until it returns nil or the time is up, and then returns its last error.
func eventually(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", timeout, last)
		case <-ticker.C:
		}
	}
}
