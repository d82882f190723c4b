package recipe

import (
	"context"

	"github.com/cockroachdb/errors"
	"github.com/sirupsen/logrus"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
)

var _ riav2.RestoreItemAction = (*RestoreAction)(nil)

// RestoreAction is registered under two names, and so Velero calls it twice for each Recipe. The first call returns the CRD
// that has to come before it, which Velero restores and waits for before the second; the second, the gate, finds the CRD
// there and can hold the Recipe against it.
type RestoreAction struct {
	name     string
	log      logrus.FieldLogger
	restores *ramen.Restores
}

// NewRestore returns the action. restores are shared with the other actions of the process.
func NewRestore(log logrus.FieldLogger, restores *ramen.Restores) *RestoreAction {
	return newRestore(contract.RecipeRestoreAction, log, restores)
}

// NewRestoreGate returns the action under the name of the gate.
func NewRestoreGate(log logrus.FieldLogger, restores *ramen.Restores) *RestoreAction {
	return newRestore(contract.RecipeRestoreGateAction, log, restores)
}

func newRestore(name string, log logrus.FieldLogger, restores *ramen.Restores) *RestoreAction {
	return &RestoreAction{name: name, log: log.WithField(contract.LogAction, name), restores: restores}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *RestoreAction) Name() string { return a.name }

// AppliesTo selects Ramen's Recipes by their full name: IBM Fusion has Recipes too, and Velero resolves names through
// discovery before it restores CRDs, and keeps one literally that it cannot resolve.
func (a *RestoreAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{contract.RecipeCRD}}, nil
}

// Execute prepares a Recipe, or is its gate. It returns an error, and thereby drops the item, where the API server would not
// store all of it, and where that cannot be told.
func (a *RestoreAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	if err := item.Check(input); err != nil {
		return nil, errors.Wrap(err, a.name)
	}
	if recipe.MadeByRamen(input.Restore) {
		return velero.NewRestoreItemActionExecuteOutput(input.Item), nil
	}
	fromBackup := item.View(input.ItemFromBackup)
	namespace, name := fromBackup.GetNamespace(), fromBackup.GetName()
	log := a.log.WithFields(logrus.Fields{
		contract.LogNamespace: namespace, contract.LogName: name, contract.LogRestore: input.Restore.Name,
		contract.LogTarget: a.restores.For(input.Restore).TargetNamespace(namespace),
	})
	if recipe.IsPrepared(item.View(input.Item), input.Restore) {
		return a.gate(log, input)
	}
	return a.prepare(log, input)
}

func (a *RestoreAction) prepare(log logrus.FieldLogger, input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	edited := item.Edit(input.Item)
	crd, err := a.restores.For(input.Restore).CRD(context.Background(), contract.RecipeCRD)
	if err != nil {
		return nil, errors.Wrapf(err, "decide on Recipe %s/%s", edited.GetNamespace(), edited.GetName())
	}
	bringCRD, decision := recipe.PrepareRecipe(edited, crd, input.Restore)
	item.LogDecision(log, decision)
	output := velero.NewRestoreItemActionExecuteOutput(edited)
	if bringCRD {
		output.AdditionalItems = []velero.ResourceIdentifier{ramen.CRDItem(contract.RecipeCRD)}
	}
	output.WaitForAdditionalItems, output.AdditionalItemsReadyTimeout = true, ramen.ReadyTimeout
	return output, nil
}

// AreAdditionalItemsReady tells whether the CRD that the Recipe needs is served.
func (a *RestoreAction) AreAdditionalItemsReady(items []velero.ResourceIdentifier, restore *velerov1.Restore) (bool, error) {
	ready, err := a.restores.For(restore).Ready(context.Background(), items)
	return ready, errors.Wrap(err, a.name)
}

// Progress is never asked: the action returns no operation.
func (a *RestoreAction) Progress(operationID string, _ *velerov1.Restore) (velero.OperationProgress, error) {
	return velero.OperationProgress{}, riav2.InvalidOperationIDError(operationID)
}

// Cancel is never asked: the action returns no operation.
func (a *RestoreAction) Cancel(operationID string, _ *velerov1.Restore) error {
	return riav2.InvalidOperationIDError(operationID)
}
