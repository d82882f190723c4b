// Command tools builds the programs of the test bed, if they are not built yet, and prints their paths; with -node, those of a
// real node too. The first run takes about ten minutes; run before `go test`, it keeps that time out of the tests' timeouts.
package main

import (
	"context"
	"flag"
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
	node := flag.Bool("node", false, "build the programs of a real node too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries, err := bed.Tools(ctx)
	if err != nil {
		return err
	}
	paths := []string{
		binaries.Etcd, binaries.KubeAPIServer, binaries.KubeControllerManager,
		binaries.Velero, binaries.VeleroPluginForAWS, binaries.VersityGW,
	}
	if *node {
		binaries, err := bed.NodeTools(ctx)
		if err != nil {
			return err
		}
		paths = append(paths, binaries.Kubelet, binaries.KubeScheduler, binaries.KubeProxy,
			binaries.VeleroHelper, binaries.VeleroRestoreHelper, binaries.LocalPathProvisioner)
	}
	for _, path := range paths {
		fmt.Println(path)
	}
	return nil
}
