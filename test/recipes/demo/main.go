// Command demo shows on a terminal how a Recipe travels with its VolumeReplicationGroup: two clusters share a backup location,
// one is backed up with `velero backup create`, the other, which has nothing of Ramen's, is restored to with `velero restore
// create`. Velero and the Kubernetes APIs are real; Ramen does not run. It ends with checks, and with exit code 1 if one
// of them fails.
//
// Run it from within the repository: `make demo-recipe`, or `go run ./test/recipes/demo`. It takes less than a minute once
// the programs of the test bed are built, and leaves nothing behind, also when it is interrupted.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// atMost bounds the whole demo, programs already built.
const atMost = 5 * time.Minute

func main() {
	// The libraries' own logs would talk into the story.
	log.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := newPrinter(os.Stdout)
	err := run(ctx, out)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		out.line("\nInterrupted. The clusters are stopped and nothing is left behind.")
		os.Exit(130) //nolint:gocritic // what is deferred is done with
	default:
		out.line("\n" + out.paint(red, "error: ") + err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, out *printer) error {
	out.line("\n" + out.paint(bold, "A Recipe travels with its VolumeReplicationGroup") + "\n")
	out.say("Two clusters, A and B, share one S3 store. Real: etcd, kube-apiserver, kube-controller-manager, S3, Velero and the Recipe " +
		"CRD that Ramen uses. Ramen itself does not run: what it would find is what counts here.")
	plugin, err := buildPlugin(ctx)
	if err != nil {
		return err
	}
	if _, err := bed.Tools(ctx); err != nil {
		return fmt.Errorf("build the programs of the test bed: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	out.restart()
	story := &story{printer: out}
	defer story.stop()
	if err := story.start(ctx, plugin); err != nil {
		return err
	}
	return story.tell(ctx)
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

// start starts both clusters side by side. B needs the S3 server of A, so it waits for that.
func (s *story) start(ctx context.Context, plugin string) error {
	recipes, err := ramen.RecipeCRD(ctx)
	if err != nil {
		return err
	}
	vrgs, published, err := ramen.VRGCRD(ctx)
	if err != nil {
		return err
	}
	if !published {
		s.say("A stand-in for the VolumeReplicationGroup CRD, with the fields that are needed here.")
	}
	if s.a, err = bed.Start(ctx, bed.Options{
		Plugins: []string{plugin},
		CRDs:    []*apiextensionsv1.CustomResourceDefinition{recipes, vrgs},
	}); err != nil {
		return fmt.Errorf("cluster A: %w", err)
	}
	if s.b, err = bed.Start(ctx, bed.Options{Plugins: []string{plugin}, Storage: s.a}); err != nil {
		return fmt.Errorf("cluster B: %w", err)
	}
	s.happened("Both clusters run, each with Velero and the plugin. A has Ramen's CRDs, B has none of them.")
	return nil
}

// stop stops what has been started.
func (s *story) stop() {
	for _, cluster := range []*bed.Bed{s.b, s.a} { // B uses the store of A
		if cluster != nil {
			cluster.Stop()
		}
	}
}
