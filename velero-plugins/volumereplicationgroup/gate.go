package volumereplicationgroup

import (
	"context"

	"github.com/cockroachdb/errors"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
)

// gate decides on a prepared VRG, once what it needs has been restored as far as it could be.
func (a *RestoreAction) gate(
	log logrus.FieldLogger, key types.NamespacedName, input *velero.RestoreItemActionExecuteInput,
) (*velero.RestoreItemActionExecuteOutput, error) {
	known, err := a.gather(key, input)
	if err != nil {
		return nil, err
	}
	decision := recipe.DecideVRG(known)
	edited := item.Edit(input.Item)
	if err := decision.Apply(edited); err != nil {
		return nil, err
	}
	if decision.Verdict == recipe.Admitted {
		decision = decision.Tried(a.restores.For(input.Restore).Try(context.Background(), edited, key.Namespace, nil))
	}
	item.LogDecision(log, decision.Decision)
	output := velero.NewRestoreItemActionExecuteOutput(edited)
	switch decision.Verdict {
	case disconnect.Refused:
		return nil, errors.New(decision.Reason)
	case disconnect.Skipped:
		return output.WithoutRestore(), nil
	default:
		return output, nil
	}
}

// gather reads what the gate's decision rests on.
func (a *RestoreAction) gather(key types.NamespacedName, input *velero.RestoreItemActionExecuteInput) (recipe.VRGFacts, error) {
	ctx, facts := context.Background(), a.restores.For(input.Restore)
	known := recipe.VRGFacts{Backup: item.View(input.ItemFromBackup), Mapping: input.Restore.Spec.NamespaceMapping}
	settings, err := facts.Settings(ctx)
	if err != nil {
		return known, err
	}
	known.Mode, known.AdminNamespaces = settings.Mode, settings.AdminNamespaces
	if known.Live, err = facts.VRG(ctx, key); err != nil {
		return known, err
	}
	if known.VRGCRD, err = facts.CRD(ctx, contract.VRGCRD); err != nil {
		return known, err
	}
	if known.RecipeCRD, err = facts.CRD(ctx, contract.RecipeCRD); err != nil {
		return known, err
	}
	if known.Mode == recipe.Guard {
		known.Cluster, known.ClusterErr = facts.Cluster(ctx)
	}
	known.Recipe, err = recipeOf(ctx, facts, known.Backup, known.AdminNamespaces)
	return known, err
}

// recipeOf returns the Recipe that the restored VRG refers to, nil when the cluster has none, or the VRG needs none. A
// reference that cannot be read is for the decision to tell of.
func recipeOf(ctx context.Context, facts *ramen.RestoreFacts, vrg *unstructured.Unstructured, adminNamespaces []string) (*unstructured.Unstructured, error) {
	reference, ok, err := recipe.NeededRecipe(vrg, adminNamespaces)
	if err != nil || !ok || reference.Key.Name == "" {
		return nil, nil //nolint:nilnil,nilerr // see above
	}
	return facts.Recipe(ctx, types.NamespacedName{Namespace: facts.TargetNamespace(reference.Key.Namespace), Name: reference.Key.Name})
}
