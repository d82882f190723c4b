// Command tools builds the programs of the test bed, if they are not built yet, and prints their paths; with -node, those of a
// real node too, where one can run. The first run takes about ten minutes; run before `go test`, it keeps that time out of the
// tests' timeouts.
//
// With -why-no-node it builds nothing and prints why a real node cannot run on this machine, in one line; nothing if it can.
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
	node := flag.Bool("node", false, "build the programs of a real node too, where one can run")
	why := flag.Bool("why-no-node", false, "only print why a real node cannot run here, or nothing")
	flag.Parse()
	unsupported := bed.NodeSupported()
	if *why {
		if unsupported != nil {
			fmt.Println(unsupported)
		}
		return nil
	}
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
	if *node && unsupported == nil {
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
