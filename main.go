// Command velero-plugin-for-openshift-dr is a Velero plugin that brings OpenShift applications back after a disaster.
// Started by Velero it serves its item actions; started by hand it runs a sub-command.
package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/vmware-tanzu/velero/pkg/plugin/framework"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/cli"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/customresourcedefinition"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/deploymentconfig"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/pod"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/replicationcontroller"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/volumereplicationgroup"
)

func main() {
	if !startedByVelero() {
		os.Exit(cli.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	serve()
}

// startedByVelero tells whether this process is a plugin: Velero's server passes the cookie of its plugin protocol, and
// otherwise only its own flags, among which no sub-command can be told.
func startedByVelero() bool {
	handshake := framework.Handshake()
	return os.Getenv(handshake.MagicCookieKey) == handshake.MagicCookieValue
}

// serve registers the actions, one line each, and answers Velero until it ends the process.
func serve() {
	shared := &parts{}
	framework.NewServer().
		BindFlags(pflag.CommandLine).
		RegisterBackupItemActionV2(contract.VRGBackupAction, shared.make(newVRGBackup)).
		RegisterBackupItemActionV2(contract.RecipeBackupAction, shared.make(newRecipeBackup)).
		RegisterRestoreItemActionV2(contract.PodRestoreAction, shared.make(newPodRestore)).
		RegisterRestoreItemActionV2(contract.DeploymentConfigRestoreAction, shared.make(newDeploymentConfigRestore)).
		RegisterRestoreItemActionV2(contract.ReplicationControllerRestoreAction, shared.make(newReplicationControllerRestore)).
		RegisterRestoreItemActionV2(contract.CRDRestoreAction, shared.make(newCRDRestore)).
		RegisterRestoreItemActionV2(contract.RecipeRestoreAction, shared.make(newRecipeRestore)).
		RegisterRestoreItemActionV2(contract.RecipeRestoreGateAction, shared.make(newRecipeRestoreGate)).
		RegisterRestoreItemActionV2(contract.VRGRestoreAction, shared.make(newVRGRestore)).
		RegisterRestoreItemActionV2(contract.VRGRestoreGateAction, shared.make(newVRGRestoreGate)).
		Serve()
}

func newPodRestore(log logrus.FieldLogger, p *parts) any { return pod.New(log, p.facts, p.driver) }

func newDeploymentConfigRestore(log logrus.FieldLogger, p *parts) any {
	return deploymentconfig.New(log, p.facts, p.driver)
}

func newReplicationControllerRestore(log logrus.FieldLogger, p *parts) any {
	return replicationcontroller.New(log, p.facts)
}

func newVRGBackup(log logrus.FieldLogger, p *parts) any {
	return volumereplicationgroup.NewBackup(log, p.backups)
}

func newRecipeBackup(log logrus.FieldLogger, p *parts) any { return recipe.NewBackup(log, p.backups) }

func newCRDRestore(log logrus.FieldLogger, p *parts) any {
	return customresourcedefinition.New(log, p.restores)
}

func newRecipeRestore(log logrus.FieldLogger, p *parts) any {
	return recipe.NewRestore(log, p.restores)
}

func newRecipeRestoreGate(log logrus.FieldLogger, p *parts) any {
	return recipe.NewRestoreGate(log, p.restores)
}

func newVRGRestore(log logrus.FieldLogger, p *parts) any {
	return volumereplicationgroup.NewRestore(log, p.restores)
}

func newVRGRestoreGate(log logrus.FieldLogger, p *parts) any {
	return volumereplicationgroup.NewRestoreGate(log, p.restores)
}

// parts are what the actions of one process share: the facts of a backup or restore are then read once for all of them, and
// one pass of phase two answers for all operations. They are made when Velero first asks for an action, so that listing the
// actions needs no cluster.
type parts struct {
	mu       sync.Mutex
	backups  *ramen.Backups
	restores *ramen.Restores
	facts    *restore.Cache
	driver   *postrestore.Driver
}

// make returns an initializer in Velero's form.
func (p *parts) make(action func(logrus.FieldLogger, *parts) any) func(logrus.FieldLogger) (any, error) {
	return func(log logrus.FieldLogger) (any, error) {
		if err := p.connect(log); err != nil {
			return nil, err
		}
		return action(log, p), nil
	}
}

func (p *parts) connect(log logrus.FieldLogger) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.driver != nil {
		return nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("find the cluster that this plugin runs in: %w", err)
	}
	c, err := restore.NewClient(config)
	if err != nil {
		return err
	}
	started, err := ramen.ServerStart()
	if err != nil {
		// It spares a wait after a CRD was installed, no more.
		log.WithError(err).Debug("The start of Velero's server is not known")
	}
	p.backups, p.restores = ramen.NewBackups(c, clock.RealClock{}, started), ramen.NewRestores(c)
	p.facts = restore.NewCache(c)
	p.driver = postrestore.NewDriver(c, postrestore.NewRunner(c, clock.RealClock{}, log), p.facts, clock.RealClock{})
	return nil
}
