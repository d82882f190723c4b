// Command demo shows on a terminal what the plugin does: a DeploymentConfig application with data goes through backup, loss
// and restore, first with Velero alone and then with the plugin, in a real Velero on a real node. Where no real node can
// run, a stand-in takes its place; what is real is said at the start. It ends with checks, and with exit code 1 if one of them
// fails.
//
// Run it from within the repository: `make demo`, or `go run ./test/demo`. It takes less than three minutes once the programs
// of the test bed are built, and leaves nothing behind, also when it is interrupted; if it fails, a file with logs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// atMost bounds the whole demo, programs already built.
const atMost = 5 * time.Minute

func main() {
	standIn := flag.Bool("stand-in", false, "play on the stand-in for a node, even where a real one can run")
	flag.Parse()
	// The libraries' own logs would talk into the story.
	log.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := newStage(os.Stdout)
	err := run(ctx, out, *standIn)
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

func run(ctx context.Context, out *stage, standIn bool) error {
	began := time.Now()
	ground, why := chooseGround(standIn)
	out.opening(ground.scene(), why)
	if err := ground.build(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	done := out.during("Starting the cluster and Velero")
	c, err := ground.open(ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	done()
	if err := (&story{cluster: c, ground: ground, stage: out}).tell(ctx); err != nil {
		return errors.Join(err, keepLogs(ctx, c, out))
	}
	out.say("It took %.0f s in all.", time.Since(began).Seconds())
	return nil
}

// keepLogs writes what the components have logged to a file, unless the demo was interrupted, and says where.
func keepLogs(ctx context.Context, c *cluster, out *stage) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	path := filepath.Join(os.TempDir(), "dr-demo-failed.log")
	if err := os.WriteFile(path, []byte(c.Logs()+"\n==== all of Velero's log\n"+c.VeleroLog()), 0o600); err != nil {
		return fmt.Errorf("keep the logs: %w", err)
	}
	out.print("")
	out.say("What the components have logged is in %s.", path)
	return nil
}

// chooseGround takes a real node where one can run, unless the stand-in is asked for. why says in a sentence why it is the stand-in.
func chooseGround(standIn bool) (_ ground, why string) {
	if standIn {
		return &standInGround{}, "The stand-in for a node was asked for."
	}
	if err := bed.NodeSupported(); err != nil {
		return &standInGround{}, fmt.Sprintf("No real node runs on this machine, so this is played on the stand-in for one: %v.", err)
	}
	return &nodeGround{}, ""
}
