// Package customresourcedefinition is the shell of the restore of Ramen's CustomResourceDefinitions: those of the cluster are
// never overwritten.
package customresourcedefinition

import (
	"context"

	"github.com/cockroachdb/errors"
	"github.com/sirupsen/logrus"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
)

var _ riav2.RestoreItemAction = (*RestoreAction)(nil)

// RestoreAction leaves out the CRDs of Recipes and VRGs that the cluster has. It passes all other CRDs on without a request.
type RestoreAction struct {
	log      logrus.FieldLogger
	restores *ramen.Restores
}

// New returns the action. restores are shared with the other actions of the process.
func New(log logrus.FieldLogger, restores *ramen.Restores) *RestoreAction {
	return &RestoreAction{log: log.WithField(contract.LogAction, contract.CRDRestoreAction), restores: restores}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *RestoreAction) Name() string { return contract.CRDRestoreAction }

// AppliesTo selects all CRDs: Velero selects by resource and label, not by name.
func (a *RestoreAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{contract.CRDResource + "." + contract.CRDGroup}}, nil
}

// Execute decides on one CRD. It returns an error, and thereby drops the item, for one that is being deleted in the cluster,
// and when the cluster cannot be asked: Velero might write over a newer one.
func (a *RestoreAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	if err := item.Check(input); err != nil {
		return nil, errors.Wrap(err, contract.CRDRestoreAction)
	}
	output := velero.NewRestoreItemActionExecuteOutput(input.Item)
	name := item.View(input.Item).GetName()
	if !recipe.IsRamenCRD(name) || recipe.MadeByRamen(input.Restore) {
		return output, nil
	}
	live, err := a.restores.For(input.Restore).CRD(context.Background(), name)
	if err != nil {
		return nil, errors.Wrapf(err, "decide on CustomResourceDefinition %s", name)
	}
	decision := recipe.DecideCRD(live)
	item.LogDecision(a.log.WithFields(logrus.Fields{contract.LogName: name, contract.LogRestore: input.Restore.Name}), decision)
	switch decision.Verdict {
	case disconnect.Refused:
		return nil, errors.Newf("CustomResourceDefinition %s is not restored: %s", name, decision.Reason)
	case disconnect.Skipped:
		return output.WithoutRestore(), nil
	default:
		return output, nil
	}
}

// Progress is never asked: the action returns no operation.
func (a *RestoreAction) Progress(operationID string, _ *velerov1.Restore) (velero.OperationProgress, error) {
	return velero.OperationProgress{}, riav2.InvalidOperationIDError(operationID)
}

// Cancel is never asked: the action returns no operation.
func (a *RestoreAction) Cancel(operationID string, _ *velerov1.Restore) error {
	return riav2.InvalidOperationIDError(operationID)
}

// AreAdditionalItemsReady is never asked: the action returns no additional items.
func (a *RestoreAction) AreAdditionalItemsReady([]velero.ResourceIdentifier, *velerov1.Restore) (bool, error) {
	return true, nil
}
