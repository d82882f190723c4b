// Command tools builds the programs of the test bed, if they are not built yet, and prints their paths. The first run takes
// about ten minutes; run before `go test`, it keeps that time out of the tests' timeouts.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries, err := bed.Tools(ctx)
	if err != nil {
		return err
	}
	for _, path := range []string{
		binaries.Etcd, binaries.KubeAPIServer, binaries.KubeControllerManager,
		binaries.Velero, binaries.VeleroPluginForAWS, binaries.VersityGW,
	} {
		fmt.Println(path)
	}
	return nil
}
