package customresourcedefinition_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/customresourcedefinition"
)

func newAction(t *testing.T, log logrus.FieldLogger, objs ...client.Object) (*customresourcedefinition.RestoreAction, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	return customresourcedefinition.New(log, ramen.NewRestores(c)), requests
}

func TestAppliesTo(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	got, err := action.AppliesTo()
	require.NoError(t, err)
	require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"customresourcedefinitions.apiextensions.k8s.io"}}, got)
	require.Equal(t, "oadp.openshift.io/customresourcedefinition-restore", action.Name())
	ready, err := action.AreAdditionalItemsReady(nil, nil)
	require.NoError(t, err)
	require.True(t, ready)
	_, err = action.Progress("x", nil)
	require.ErrorContains(t, err, "is invalid")
	require.ErrorContains(t, action.Cancel("x", nil), "is invalid")
	require.Empty(t, requests.All())
}

func TestExecute(t *testing.T) {
	t.Parallel()
	update := func(r *velerov1.Restore) { r.Spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate }
	tests := map[string]struct {
		crd      *unstructured.Unstructured
		objects  []client.Object
		restore  func(*velerov1.Restore)
		skipped  bool
		fails    string
		decision string
		requests map[string]int
	}{
		"the cluster has none": {
			crd: testkit.MakeRecipeCRD().Obj(), decision: "untouched", requests: map[string]int{"get CustomResourceDefinition": 1},
		},
		"T29: the cluster has a newer one, policy update": {
			crd: testkit.MakeRecipeCRD().Obj(), objects: []client.Object{testkit.MakeRecipeCRD().Field("newer", "spec", "conversion", "strategy").Obj()}, restore: update,
			skipped: true, decision: "skipped", requests: map[string]int{"get CustomResourceDefinition": 1},
		},
		"the cluster has one, of VRGs": {
			crd: testkit.MakeVRGCRD().Obj(), objects: []client.Object{testkit.MakeVRGCRD().Obj()}, skipped: true, decision: "skipped", requests: map[string]int{"get CustomResourceDefinition": 1},
		},
		"the cluster's is being deleted": {
			crd: testkit.MakeRecipeCRD().Obj(), objects: []client.Object{testkit.MakeRecipeCRD().Terminating().Obj()}, decision: "refused",
			fails:    "CustomResourceDefinition recipes.ramendr.openshift.io is not restored: the one in the cluster is being deleted",
			requests: map[string]int{"get CustomResourceDefinition": 1},
		},
		"T36: IBM Fusion's CRD of Recipes is none of ours": {crd: foreign("recipes.spp-data-protection.isf.ibm.com"), objects: []client.Object{testkit.MakeRecipeCRD().Obj()}},
		"T15: a restore that Ramen makes": {
			crd: testkit.MakeRecipeCRD().Obj(), objects: []client.Object{testkit.MakeRecipeCRD().Obj()},
			restore: func(r *velerov1.Restore) {
				r.Labels = map[string]string{"ramendr.openshift.io/created-by-ramen": "true"}
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, entries := testkit.RecordingLogger(t)
			action, requests := newAction(t, log, tc.objects...)
			r := testkit.RestoreNamed("r").Result()
			if tc.restore != nil {
				tc.restore(r)
			}
			input := testkit.Input(r, tc.crd)
			before := input.Item.(*unstructured.Unstructured).DeepCopy()
			output, err := action.Execute(input)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				require.Contains(t, fmt.Sprintf("%+v", err), "restore.go", "the outermost error carries the stack that Velero logs")
			} else {
				require.NoError(t, err)
				require.Equal(t, tc.skipped, output.SkipRestore)
				require.Empty(t, cmp.Diff(before.Object, output.UpdatedItem.UnstructuredContent()))
				require.Empty(t, output.AdditionalItems)
			}
			require.Empty(t, cmp.Diff(before, input.Item))
			if tc.requests == nil {
				tc.requests = map[string]int{}
			}
			require.Equal(t, tc.requests, requests.Count())
			if tc.decision == "" {
				require.Empty(t, entries.AllEntries())
				return
			}
			require.Len(t, entries.AllEntries(), 1, "one line an item")
			require.Equal(t, tc.decision, entries.LastEntry().Data["decision"])
		})
	}
}

func foreign(name string) *unstructured.Unstructured {
	crd := testkit.MakeRecipeCRD().Obj()
	crd.SetName(name)
	return crd
}

func TestExecuteReturnsAnErrorWhereItCouldOverwrite(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "", errors.New("no"))
	requests.Fail(func(testkit.Request) error { return forbidden })
	_, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), testkit.MakeRecipeCRD().Obj()))
	require.ErrorIs(t, err, forbidden)
	require.ErrorContains(t, err, "decide on CustomResourceDefinition recipes.ramendr.openshift.io")
	_, err = action.Execute(nil)
	require.ErrorIs(t, err, item.ErrIncomplete)
}

func TestManyForeignCRDsCostNoRequest(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	r := testkit.RestoreNamed("r").ObjectMeta(builder.WithLabels("a", "b")).Result()
	for i := range 200 {
		_, err := action.Execute(testkit.Input(r, foreign(fmt.Sprintf("things-%d.example.com", i))))
		require.NoError(t, err)
	}
	require.Empty(t, requests.All())
}
