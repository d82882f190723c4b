// Command deployer is the process in the deployer pods of the stand-in for OpenShift, where those run on a real node. Which rollout it
// works for, it is told as OpenShift's is: in the environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

func main() {
	log.SetLogger(logr.Discard()) // controller-runtime asks for one
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	pod, err := os.Hostname()
	if err != nil {
		return err
	}
	return openshift.Deploy(ctx, config, os.Getenv("OPENSHIFT_DEPLOYMENT_NAMESPACE"), os.Getenv("OPENSHIFT_DEPLOYMENT_NAME"), pod)
}
