// Package replicationcontroller is the shell of phase one for ReplicationControllers.
package replicationcontroller

import (
	"context"

	"github.com/cockroachdb/errors"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

var _ riav2.RestoreItemAction = (*RestoreAction)(nil)

// RestoreAction leaves out ReplicationControllers that their DeploymentConfig makes anew.
type RestoreAction struct {
	log   logrus.FieldLogger
	facts *restore.Cache
}

// New returns the action. facts are shared with the other actions of the process.
func New(log logrus.FieldLogger, facts *restore.Cache) *RestoreAction {
	return &RestoreAction{log: log.WithField(contract.LogAction, contract.ReplicationControllerRestoreAction), facts: facts}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *RestoreAction) Name() string { return contract.ReplicationControllerRestoreAction }

// AppliesTo selects ReplicationControllers.
func (a *RestoreAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"replicationcontrollers"}}, nil
}

// Execute decides on one ReplicationController. It returns an error, and thereby drops the item, only for one of a
// DeploymentConfig that cannot be read: its pods could start on volumes that are still being filled.
func (a *RestoreAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	if err := item.Check(input); err != nil {
		return nil, errors.Wrap(err, contract.ReplicationControllerRestoreAction)
	}
	output := velero.NewRestoreItemActionExecuteOutput(input.Item)
	rc, err := item.Read[corev1.ReplicationController](input.ItemFromBackup)
	if err != nil {
		a.log.WithError(err).Warn("ReplicationController cannot be read and is passed to Velero as it is")
		return output, nil
	}
	facts := a.facts.For(input.Restore)
	target := facts.TargetNamespace(rc.Namespace)
	known, err := gather(facts, target, rc)
	if err != nil {
		return nil, errors.Wrapf(err, "decide on ReplicationController %s/%s", rc.Namespace, rc.Name)
	}
	decision := disconnect.DecideRC(known)
	item.LogDecision(a.log.WithFields(logrus.Fields{
		contract.LogNamespace: rc.Namespace, contract.LogName: rc.Name, contract.LogTarget: target, contract.LogRestore: input.Restore.Name,
	}), decision)
	if decision.Verdict == disconnect.Skipped {
		return output.WithoutRestore(), nil
	}
	return output, nil
}

// gather reads what the decision rests on. For one that no DeploymentConfig has made, that is nothing.
func gather(facts *restore.Facts, target string, rc *corev1.ReplicationController) (disconnect.RCFacts, error) {
	known := disconnect.RCFacts{RC: rc}
	name := disconnect.DeploymentConfigOfRC(rc)
	if name == "" {
		return known, nil
	}
	ctx := context.Background()
	dcs, err := facts.DCsAfter(ctx, target)
	if err != nil {
		return known, err
	}
	if dc := dcs.Get(name); dc != nil {
		known.DCExists, known.DCPaused = true, dc.Spec.Paused
		known.DCHeld = dc.Labels[contract.ReplicasModifiedLabel] != ""
	}
	detached, err := facts.DetachedPods(ctx, target)
	known.DetachedPods = detached[name]
	return known, err
}

// Progress is never asked: the action returns no operation.
func (a *RestoreAction) Progress(operationID string, _ *velerov1.Restore) (velero.OperationProgress, error) {
	return velero.OperationProgress{}, riav2.InvalidOperationIDError(operationID)
}

// Cancel has nothing to cancel.
func (a *RestoreAction) Cancel(string, *velerov1.Restore) error { return nil }

// AreAdditionalItemsReady is never asked: the action returns no additional items.
func (a *RestoreAction) AreAdditionalItemsReady([]velero.ResourceIdentifier, *velerov1.Restore) (bool, error) {
	return true, nil
}
