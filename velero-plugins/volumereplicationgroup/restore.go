package volumereplicationgroup

import (
	"context"

	"github.com/cockroachdb/errors"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
)

var _ riav2.RestoreItemAction = (*RestoreAction)(nil)

// RestoreAction is registered under two names, and so Velero calls it twice for each VRG. The first call returns what has to
// come before it: its Recipe and the CRDs, which Velero restores and waits for before the second. The second, the gate,
// decides whether the VRG is created: "not ready" alone does not keep Velero from that.
type RestoreAction struct {
	name     string
	log      logrus.FieldLogger
	restores *ramen.Restores
}

// NewRestore returns the action. restores are shared with the other actions of the process.
func NewRestore(log logrus.FieldLogger, restores *ramen.Restores) *RestoreAction {
	return newRestore(contract.VRGRestoreAction, log, restores)
}

// NewRestoreGate returns the action under the name of the gate.
func NewRestoreGate(log logrus.FieldLogger, restores *ramen.Restores) *RestoreAction {
	return newRestore(contract.VRGRestoreGateAction, log, restores)
}

func newRestore(name string, log logrus.FieldLogger, restores *ramen.Restores) *RestoreAction {
	return &RestoreAction{name: name, log: log.WithField(contract.LogAction, name), restores: restores}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *RestoreAction) Name() string { return a.name }

// AppliesTo selects VRGs by their full name: Velero resolves names through discovery before it restores CRDs, and keeps one
// literally that it cannot resolve.
func (a *RestoreAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{contract.VRGCRD}}, nil
}

// Execute prepares a VRG, or is its gate. It returns an error, and thereby drops the item, where restoring it could destroy
// what Ramen has stored, or would leave a VRG that can neither recover nor be deleted, and where that cannot be told.
func (a *RestoreAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	if err := item.Check(input); err != nil {
		return nil, errors.Wrap(err, a.name)
	}
	if recipe.MadeByRamen(input.Restore) {
		return velero.NewRestoreItemActionExecuteOutput(input.Item), nil
	}
	fromBackup := item.View(input.ItemFromBackup)
	source := types.NamespacedName{Namespace: fromBackup.GetNamespace(), Name: fromBackup.GetName()}
	key := types.NamespacedName{Namespace: a.restores.For(input.Restore).TargetNamespace(source.Namespace), Name: source.Name}
	log := a.log.WithFields(logrus.Fields{
		contract.LogNamespace: source.Namespace, contract.LogName: source.Name, contract.LogTarget: key.Namespace, contract.LogRestore: input.Restore.Name,
	})
	decide := a.prepare
	if recipe.IsPrepared(item.View(input.Item), input.Restore) {
		decide = a.gate
	}
	output, err := decide(log, key, input)
	return output, errors.Wrapf(err, "VolumeReplicationGroup %s is not restored", key)
}

// prepare edits the VRG for its gate and returns what has to come before it.
func (a *RestoreAction) prepare(
	log logrus.FieldLogger, _ types.NamespacedName, input *velero.RestoreItemActionExecuteInput,
) (*velero.RestoreItemActionExecuteOutput, error) {
	needs, err := a.needs(input)
	if err != nil {
		return nil, err
	}
	preparation := recipe.PrepareVRG(needs)
	item.LogDecision(log, preparation.Decision)
	edited := item.Edit(input.Item)
	if err := preparation.Apply(edited, input.Restore); err != nil {
		return nil, err
	}
	output := velero.NewRestoreItemActionExecuteOutput(edited)
	output.AdditionalItems = ramen.Items(preparation.CRDs, preparation.Recipes)
	output.WaitForAdditionalItems, output.AdditionalItemsReadyTimeout = true, ramen.ReadyTimeout
	return output, nil
}

// needs reads what the preparation rests on.
func (a *RestoreAction) needs(input *velero.RestoreItemActionExecuteInput) (recipe.VRGNeeds, error) {
	ctx, facts := context.Background(), a.restores.For(input.Restore)
	needs := recipe.VRGNeeds{Backup: item.View(input.ItemFromBackup)}
	settings, err := facts.Settings(ctx)
	if err != nil {
		return needs, err
	}
	needs.AdminNamespaces = settings.AdminNamespaces
	vrgs, err := facts.CRD(ctx, contract.VRGCRD)
	if err != nil {
		return needs, err
	}
	recipes, err := facts.CRD(ctx, contract.RecipeCRD)
	if err != nil {
		return needs, err
	}
	needs.VRGCRD, needs.RecipeCRD = vrgs != nil, recipes != nil
	live, err := recipeOf(ctx, facts, needs.Backup, needs.AdminNamespaces)
	needs.Recipe = live != nil
	return needs, err
}

// AreAdditionalItemsReady tells whether what the VRG needs is there and served.
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
