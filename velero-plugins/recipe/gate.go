package recipe

import (
	"context"

	"github.com/cockroachdb/errors"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
)

// gate decides on a prepared Recipe.
func (a *RestoreAction) gate(log logrus.FieldLogger, input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	edited := item.Edit(input.Item)
	recipe.Admit(edited)
	facts := a.restores.For(input.Restore)
	key := types.NamespacedName{Namespace: facts.TargetNamespace(edited.GetNamespace()), Name: edited.GetName()}
	known, err := gather(facts, key, input)
	if err != nil {
		return nil, errors.Wrapf(err, "decide on Recipe %s", key)
	}
	if known.CanTry() {
		known.Trial = facts.Try(context.Background(), edited, key.Namespace, known.Live)
	}
	decision := recipe.DecideRecipe(known)
	item.LogDecision(log, decision)
	output := velero.NewRestoreItemActionExecuteOutput(edited)
	switch decision.Verdict {
	case disconnect.Refused:
		return nil, errors.Newf("Recipe %s is not restored: %s", key, decision.Reason)
	case disconnect.Skipped:
		return output.WithoutRestore(), nil
	default:
		return output, nil
	}
}

func gather(facts *ramen.RestoreFacts, key types.NamespacedName, input *velero.RestoreItemActionExecuteInput) (recipe.Candidate, error) {
	known := recipe.Candidate{Update: input.Restore.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate}
	var err error
	if known.CRD, err = facts.CRD(context.Background(), contract.RecipeCRD); err != nil {
		return known, err
	}
	known.Live, err = facts.Recipe(context.Background(), key)
	return known, err
}
