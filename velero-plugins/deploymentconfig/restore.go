// Package deploymentconfig is the shell of phase one for DeploymentConfigs, and where Velero asks for phase two: a held
// DeploymentConfig is an asynchronous operation of the restore.
package deploymentconfig

import (
	"context"

	"github.com/cockroachdb/errors"
	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/sirupsen/logrus"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

var _ riav2.RestoreItemAction = (*RestoreAction)(nil)

// RestoreAction holds, releases or passes DeploymentConfigs.
type RestoreAction struct {
	log    logrus.FieldLogger
	facts  *restore.Cache
	driver *postrestore.Driver
}

// New returns the action. facts are shared with the other actions of the process; driver answers for its operations.
func New(log logrus.FieldLogger, facts *restore.Cache, driver *postrestore.Driver) *RestoreAction {
	return &RestoreAction{log: log.WithField(contract.LogAction, contract.DeploymentConfigRestoreAction), facts: facts, driver: driver}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *RestoreAction) Name() string { return contract.DeploymentConfigRestoreAction }

// AppliesTo selects DeploymentConfigs by their full name: Velero resolves names through discovery before it restores
// CRDs, and keeps one literally that it cannot resolve.
func (a *RestoreAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"deploymentconfigs.apps.openshift.io"}}, nil
}

// Execute decides on one DeploymentConfig. It returns an error, and thereby drops the item, only where restoring it could
// destroy data: when it cannot be known whether detached pods wait for it, a rollout could delete them.
func (a *RestoreAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	if err := item.Check(input); err != nil {
		return nil, errors.Wrap(err, contract.DeploymentConfigRestoreAction)
	}
	known, err := read(input)
	if err != nil {
		a.log.WithError(err).Warn("DeploymentConfig cannot be read and is passed to Velero as it is")
		return velero.NewRestoreItemActionExecuteOutput(input.Item), nil
	}
	namespace, name := known.Backup.Namespace, known.Backup.Name
	facts := a.facts.For(input.Restore)
	target := facts.TargetNamespace(namespace)
	if err := gather(facts, target, name, &known); err != nil {
		return nil, errors.Wrapf(err, "decide on DeploymentConfig %s/%s", namespace, name)
	}
	decision := disconnect.DecideDC(known)
	item.LogDecision(a.log.WithFields(logrus.Fields{
		contract.LogNamespace: namespace, contract.LogName: name, contract.LogTarget: target, contract.LogRestore: input.Restore.Name,
	}), decision.Decision)
	edited := item.Edit(input.Item)
	if err := decision.Apply(edited, known.Owner); err != nil {
		return nil, errors.Wrapf(err, "hold DeploymentConfig %s/%s", namespace, name)
	}
	if _, err := disconnect.MapTriggers(edited, item.View(input.ItemFromBackup), input.Restore.Spec.NamespaceMapping); err != nil {
		return nil, errors.Wrapf(err, "map the image triggers of DeploymentConfig %s/%s", namespace, name)
	}
	output := velero.NewRestoreItemActionExecuteOutput(edited)
	if decision.Operation {
		a.driver.StandBy(a.log, input.Restore)
		output = output.WithOperationID(postrestore.OperationFor(input.Restore, target, name))
	}
	return output, nil
}

func read(input *velero.RestoreItemActionExecuteInput) (disconnect.DCFacts, error) {
	known := disconnect.DCFacts{
		Update: input.Restore.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate,
		Owner:  disconnect.OwnerOf(input.Restore),
	}
	var err error
	if known.Backup, err = item.Read[ocpappsv1.DeploymentConfig](input.ItemFromBackup); err != nil {
		return known, err
	}
	known.Item, err = item.Read[ocpappsv1.DeploymentConfig](input.Item)
	return known, err
}

func gather(facts *restore.Facts, target, name string, known *disconnect.DCFacts) error {
	ctx := context.Background()
	before, err := facts.DCsBefore(ctx, target)
	if err != nil {
		return err
	}
	known.Live = facts.Live(before.Get(name))
	detached, err := facts.DetachedPods(ctx, target)
	known.DetachedPods = detached[name]
	return err
}

// Progress tells how far phase two is. See postrestore.Driver.
func (a *RestoreAction) Progress(operationID string, r *velerov1.Restore) (velero.OperationProgress, error) {
	return a.driver.Progress(a.log, operationID, r)
}

// Cancel leaves the DeploymentConfig held and says what to run.
func (a *RestoreAction) Cancel(operationID string, r *velerov1.Restore) error {
	return a.driver.Cancel(a.log, operationID, r)
}

// AreAdditionalItemsReady is never asked: the action returns no additional items.
func (a *RestoreAction) AreAdditionalItemsReady([]velero.ResourceIdentifier, *velerov1.Restore) (bool, error) {
	return true, nil
}
