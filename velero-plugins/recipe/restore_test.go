package recipe_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/recipe"
)

// restores are the two actions on Recipes over one cluster.
type restores struct {
	first, gate *recipe.RestoreAction
	requests    *testkit.Requests
	client      client.Client
}

func newRestores(t *testing.T, log logrus.FieldLogger, objs ...client.Object) restores {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	facts := ramen.NewRestores(c)
	return restores{recipe.NewRestore(log, facts), recipe.NewRestoreGate(log, facts), requests, c}
}

// backedUp is a Recipe as it stands in a backup.
func backedUp() *testkit.Ramen {
	return testkit.MakeRecipe("app", "r").Annotation("backup.velero.io/must-include-additional-items", "true").Annotation("note", "kept").
		Field(map[string]any{"kept": true}, "spec", "tomorrowsField")
}

var crdItem = velero.ResourceIdentifier{
	GroupResource: schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, Name: "recipes.ramendr.openshift.io",
}

func TestRestoreAppliesTo(t *testing.T) {
	t.Parallel()
	actions := newRestores(t, testkit.Logger(t))
	for name, action := range map[string]*recipe.RestoreAction{
		"oadp.openshift.io/recipe-restore": actions.first, "oadp.openshift.io/recipe-restore-gate": actions.gate,
	} {
		got, err := action.AppliesTo()
		require.NoError(t, err)
		require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"recipes.ramendr.openshift.io"}}, got, "T36: never IBM Fusion's")
		require.Equal(t, name, action.Name())
		_, err = action.Progress("x", nil)
		require.ErrorContains(t, err, "is invalid")
		require.ErrorContains(t, action.Cancel("x", nil), "is invalid")
	}
	require.Empty(t, actions.requests.All())
}

// both calls the two actions as Velero does, with what it does in between.
func both(first, second *recipe.RestoreAction, input *velero.RestoreItemActionExecuteInput, between func([]velero.ResourceIdentifier)) (bring []velero.ResourceIdentifier, output *velero.RestoreItemActionExecuteOutput, err error) {
	output, err = first.Execute(input)
	if err != nil {
		return nil, output, err
	}
	bring = output.AdditionalItems
	between(bring)
	output, err = second.Execute(&velero.RestoreItemActionExecuteInput{Item: output.UpdatedItem, ItemFromBackup: input.ItemFromBackup, Restore: input.Restore})
	return bring, output, err
}

func TestRestore(t *testing.T) {
	t.Parallel()
	update := func(r *velerov1.Restore) { r.Spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate }
	unknown := apierrors.NewBadRequest(`Recipe in version "v1alpha1" cannot be handled as a Recipe: strict decoding error: unknown field "spec.jobs"`)
	tests := map[string]struct {
		objects []client.Object
		restore func(*velerov1.Restore)
		// brought is created between the two actions, when the first asks for something.
		brought client.Object
		// dryRun is what the API server says of the dry run.
		dryRun  error
		bring   []velero.ResourceIdentifier
		skipped bool
		fails   string
		// says is the decision of the gate and a part of its reason.
		decision, says string
		tried          []string
	}{
		"T1, T11: an empty cluster: the CRD comes first, and the Recipe is tried then": {
			brought: testkit.MakeRecipeCRD().Obj(), bring: []velero.ResourceIdentifier{crdItem}, decision: "admitted", says: "the cluster has none", tried: []string{"create Recipe app/r"},
		},
		"T11: the CRD has not come": {
			bring: []velero.ResourceIdentifier{crdItem}, decision: "refused", says: "this restore has not brought it",
			fails: "Recipe app/r is not restored: the cluster has no CustomResourceDefinition recipes.ramendr.openshift.io",
		},
		"T18: the CRD is there and never becomes ready": {
			objects: []client.Object{testkit.MakeRecipeCRD().Condition("Established", false).Obj()}, decision: "refused", says: "it is not established",
			fails: "Recipe app/r is not restored: the CustomResourceDefinition recipes.ramendr.openshift.io of the cluster cannot be used: it is not established",
		},
		"the CRD is there": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj()}, decision: "admitted", says: "its CRD knows all fields", tried: []string{"create Recipe app/r"},
		},
		"a namespace mapping: it is tried where it will be": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj(), backedUp().Obj()},
			restore: func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"app": "app-dr"} }, decision: "admitted", tried: []string{"create Recipe app-dr/r"},
		},
		"T13: version skew": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj()}, dryRun: unknown, decision: "refused", says: `unknown field "spec.jobs"`, tried: []string{"create Recipe app/r"},
			fails: `Recipe app/r is not restored: the CustomResourceDefinition recipes.ramendr.openshift.io of the cluster does not know or not allow what the backup has: unknown field "spec.jobs".`,
		},
		"T6: it is there, the same": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj(), backedUp().Obj()}, skipped: true, decision: "skipped", says: "the same spec", tried: []string{"update Recipe app/r"},
		},
		"T2, T31: it is there and differs: Velero warns": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj(), backedUp().Field("other", "spec", "appType").Obj()}, decision: "admitted", says: "differs from that of the backup in spec.appType",
			tried: []string{"update Recipe app/r"},
		},
		"T2, T31: it is there and differs, policy update": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj(), backedUp().Field("other", "spec", "appType").Obj()}, restore: update, decision: "admitted", says: "is made that of the backup",
			tried: []string{"update Recipe app/r"},
		},
		"policy update, version skew": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj(), backedUp().Obj()}, restore: update, dryRun: unknown, decision: "refused", says: `unknown field "spec.jobs"`,
			tried: []string{"update Recipe app/r"}, fails: "Recipe app/r is not restored",
		},
	}
	for name, tc := range tests {
		for order, swapped := range map[string]bool{"": false, ", the gate is called first": true} {
			t.Run(name+order, func(t *testing.T) {
				t.Parallel()
				log, entries := testkit.RecordingLogger(t)
				actions := newRestores(t, log, tc.objects...)
				actions.requests.Fail(func(r testkit.Request) error {
					if r.DryRun {
						return tc.dryRun
					}
					return nil
				})
				r := testkit.RestoreNamed("r").Result()
				if tc.restore != nil {
					tc.restore(r)
				}
				input := testkit.Input(r, backedUp().Obj())
				before := input.Item.(*unstructured.Unstructured).DeepCopy()
				first, second := actions.first, actions.gate
				if swapped {
					first, second = second, first
				}
				bring, output, err := both(first, second, input, func(bring []velero.ResourceIdentifier) {
					if tc.brought != nil && len(bring) > 0 {
						brought := tc.brought.DeepCopyObject().(client.Object)
						brought.SetResourceVersion("")
						require.NoError(t, actions.client.Create(t.Context(), brought))
						actions.requests.Reset()
					}
				})
				require.Equal(t, tc.bring, bring)
				require.Empty(t, cmp.Diff(before, input.Item), "the input was changed")
				var tried []string
				for _, request := range actions.requests.All() {
					if request.DryRun && request.Strict {
						tried = append(tried, request.String())
					}
				}
				require.Equal(t, tc.tried, tried)
				require.Empty(t, actions.requests.Writes())
				require.Len(t, entries.AllEntries(), 2, "one line an action")
				require.Equal(t, "prepared", entries.AllEntries()[0].Data["decision"])
				require.Equal(t, tc.decision, entries.LastEntry().Data["decision"])
				require.Contains(t, entries.LastEntry().Data["reason"], tc.says)
				if tc.fails != "" {
					require.ErrorContains(t, err, tc.fails)
					require.Contains(t, fmt.Sprintf("%+v", err), "gate.go", "the outermost error carries the stack that Velero logs")
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.skipped, output.SkipRestore)
				require.Empty(t, output.AdditionalItems)
				want := before.DeepCopy()
				want.SetAnnotations(map[string]string{"note": "kept"})
				require.Empty(t, cmp.Diff(want.Object, output.UpdatedItem.UnstructuredContent()), "T20: no annotation of Velero's or ours reaches the cluster")
			})
		}
	}
}

func TestRestoreWaitsForTheCRD(t *testing.T) {
	t.Parallel()
	actions := newRestores(t, testkit.Logger(t))
	r := testkit.RestoreNamed("r").Result()
	output, err := actions.first.Execute(testkit.Input(r, backedUp().Obj()))
	require.NoError(t, err)
	require.True(t, output.WaitForAdditionalItems)
	require.Equal(t, 2*time.Minute, output.AdditionalItemsReadyTimeout)
	require.Equal(t, "true", output.UpdatedItem.(*unstructured.Unstructured).GetAnnotations()["restore.velero.io/must-include-additional-items"])

	ready, err := actions.first.AreAdditionalItemsReady(output.AdditionalItems, r)
	require.NoError(t, err)
	require.False(t, ready, "it was created and does not show yet")
	crd := testkit.MakeRecipeCRD().NoField("status").NoField("metadata", "resourceVersion").Obj()
	require.NoError(t, actions.client.Create(t.Context(), crd))
	ready, err = actions.first.AreAdditionalItemsReady(output.AdditionalItems, r)
	require.NoError(t, err)
	require.False(t, ready, "it is not established")
	crd.Object["status"] = testkit.MakeRecipeCRD().Obj().Object["status"]
	require.NoError(t, actions.client.Status().Update(t.Context(), crd))
	ready, err = actions.first.AreAdditionalItemsReady(output.AdditionalItems, r)
	require.NoError(t, err)
	require.True(t, ready)

	forbidden := apierrors.NewForbidden(crdItem.GroupResource, crdItem.Name, errors.New("no"))
	actions.requests.Fail(func(testkit.Request) error { return forbidden })
	_, err = newRestores(t, testkit.Logger(t)).first.AreAdditionalItemsReady(nil, r)
	require.NoError(t, err)
	other := testkit.RestoreNamed("other").Result()
	_, err = actions.first.AreAdditionalItemsReady(nil, other)
	require.ErrorIs(t, err, forbidden)
}

func TestRestoreThatRamenMakesIsLeftAlone(t *testing.T) {
	t.Parallel()
	log, entries := testkit.RecordingLogger(t)
	actions := newRestores(t, log)
	r := testkit.RestoreNamed("r").Result()
	r.Labels = map[string]string{"ramendr.openshift.io/created-by-ramen": "true"}
	input := testkit.Input(r, backedUp().Obj())
	for _, action := range []*recipe.RestoreAction{actions.first, actions.gate} {
		output, err := action.Execute(input)
		require.NoError(t, err)
		require.Equal(t, velero.NewRestoreItemActionExecuteOutput(input.Item), output)
	}
	require.Empty(t, actions.requests.All())
	require.Empty(t, entries.AllEntries())
}

func TestRestoreReturnsAnErrorWhereItCannotTell(t *testing.T) {
	t.Parallel()
	for kind, names := range map[string]string{
		"CustomResourceDefinition": "decide on Recipe app/r: get CustomResourceDefinition recipes.ramendr.openshift.io",
		"Recipe":                   "decide on Recipe app/r: get Recipe app/r",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			actions := newRestores(t, testkit.Logger(t), testkit.MakeRecipeCRD().Obj())
			forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no"))
			actions.requests.Fail(func(r testkit.Request) error {
				if r.Kind == kind {
					return forbidden
				}
				return nil
			})
			_, _, err := both(actions.first, actions.gate, testkit.Input(testkit.RestoreNamed("r").Result(), backedUp().Obj()), func([]velero.ResourceIdentifier) {})
			require.ErrorIs(t, err, forbidden)
			require.ErrorContains(t, err, names)
		})
	}
	for _, action := range []*recipe.RestoreAction{newRestores(t, testkit.Logger(t)).first, newRestores(t, testkit.Logger(t)).gate} {
		_, err := action.Execute(nil)
		require.ErrorIs(t, err, item.ErrIncomplete)
		require.ErrorContains(t, err, action.Name())
	}
}

func TestRestoreReadsTheCRDOnce(t *testing.T) {
	t.Parallel()
	actions := newRestores(t, testkit.Logger(t), testkit.MakeRecipeCRD().Obj())
	r := testkit.RestoreNamed("r").Result()
	for i := range 20 {
		_, _, err := both(actions.first, actions.gate, testkit.Input(r, testkit.MakeRecipe("app", fmt.Sprintf("r%d", i)).Obj()), func([]velero.ResourceIdentifier) {})
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int{"get CustomResourceDefinition": 1, "get Recipe": 20, "create Recipe": 20}, actions.requests.Count())
}
