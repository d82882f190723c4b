package volumereplicationgroup_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/volumereplicationgroup"
)

func newBackup(t *testing.T, log logrus.FieldLogger, objs ...client.Object) (*volumereplicationgroup.BackupAction, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	return volumereplicationgroup.NewBackup(log, ramen.NewBackups(c, clocktesting.NewFakePassiveClock(testkit.Epoch.Add(time.Hour)), time.Time{})), requests
}

// cluster is one with everything that a VRG in Ramen's namespace needs for a Recipe of namespace app.
func cluster(more ...client.Object) []client.Object {
	return append(more, testkit.MakeRecipeCRD().Obj(), testkit.MakeVRGCRD().Obj(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeKubeSystem())
}

func crd(name string) velero.ResourceIdentifier {
	return velero.ResourceIdentifier{GroupResource: schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, Name: name}
}

func TestBackupAppliesTo(t *testing.T) {
	t.Parallel()
	action, requests := newBackup(t, testkit.Logger(t))
	got, err := action.AppliesTo()
	require.NoError(t, err)
	require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"volumereplicationgroups.ramendr.openshift.io"}}, got)
	require.Equal(t, "oadp.openshift.io/volumereplicationgroup-backup", action.Name())
	require.NoError(t, action.Cancel("x", nil))
	_, err = action.Progress("x", nil)
	require.ErrorContains(t, err, "operation ID x is invalid")
	require.Empty(t, requests.All())
}

func TestBackupExecute(t *testing.T) {
	t.Parallel()
	everything := []velero.ResourceIdentifier{
		crd("recipes.ramendr.openshift.io"), crd("volumereplicationgroups.ramendr.openshift.io"),
		{GroupResource: schema.GroupResource{Group: "ramendr.openshift.io", Resource: "recipes"}, Namespace: "app", Name: "r"},
	}
	settings := func(key, value string) client.Object {
		return builder.ForConfigMap(testkit.VeleroNamespace, "c").
			ObjectMeta(builder.WithLabels("velero.io/plugin-config", "", contract.VRGBackupAction, "BackupItemAction")).Data(key, value).Result()
	}
	vrg := func() *testkit.Ramen { return testkit.MakeVRG("ramen-ops", "v").RecipeRef("app", "r") }
	tests := map[string]struct {
		vrg     *testkit.Ramen
		backup  *builder.BackupBuilder
		objects []client.Object
		brings  []velero.ResourceIdentifier
		outcome recipe.Outcome // empty: the item is not touched
		levels  []logrus.Level
	}{
		"everything is there":            {vrg: vrg(), objects: cluster(), brings: everything, outcome: recipe.OutcomeBundled, levels: []logrus.Level{logrus.InfoLevel}},
		"T3: no such Recipe":             {vrg: vrg(), objects: []client.Object{testkit.MakeRecipeCRD().Obj(), testkit.MakeKubeSystem()}, outcome: recipe.OutcomeDangling, levels: []logrus.Level{logrus.ErrorLevel}},
		"no such Recipe, known to be so": {vrg: vrg(), objects: []client.Object{testkit.MakeRecipeCRD().Obj(), testkit.MakeKubeSystem(), settings("missingRecipe", "warn")}, outcome: recipe.OutcomeDangling, levels: []logrus.Level{logrus.WarnLevel}},
		"T12: no CRD":                    {vrg: vrg(), objects: []client.Object{testkit.MakeKubeSystem()}, outcome: recipe.OutcomeCRDAbsent, levels: []logrus.Level{logrus.ErrorLevel}},
		"no recipeRef":                   {vrg: testkit.MakeVRG("ramen-ops", "v"), objects: cluster()},
		"T15: a backup of Ramen's own":   {vrg: vrg(), backup: testkit.BackupNamed("b").ObjectMeta(builder.WithLabels("ramendr.openshift.io/created-by-ramen", "true"))},
		"a tenant's VRG":                 {vrg: testkit.MakeVRG("shop", "v").RecipeRef("app", "r"), backup: testkit.BackupNamed("b").IncludedNamespaces("shop"), objects: cluster(), outcome: recipe.OutcomeDenied, levels: []logrus.Level{logrus.ErrorLevel}},
		"a namespace of administrators": {
			vrg: testkit.MakeVRG("shop", "v").RecipeRef("app", "r"), backup: testkit.BackupNamed("b").IncludedNamespaces("shop"),
			objects: cluster(settings("adminNamespaces", "shop")), brings: everything, outcome: recipe.OutcomeBundled, levels: []logrus.Level{logrus.InfoLevel},
		},
		"settings that are wrong: the defaults": {
			vrg: vrg(), objects: cluster(settings("adminNamespaces", "*")), brings: everything, outcome: recipe.OutcomeBundled, levels: []logrus.Level{logrus.ErrorLevel, logrus.InfoLevel},
		},
		"what is wrong with the Recipe is a line each": {
			vrg: vrg().Generation(4).Captured(0, 3).Parameter("q", `"`), objects: cluster(), brings: everything, outcome: recipe.OutcomeBundled,
			levels: []logrus.Level{logrus.InfoLevel, logrus.WarnLevel, logrus.WarnLevel},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, entries := testkit.RecordingLogger(t)
			action, requests := newBackup(t, log, tc.objects...)
			if tc.backup == nil {
				tc.backup = testkit.BackupNamed("b").IncludedNamespaces("ramen-ops")
			}
			source, backup := tc.vrg.Obj(), tc.backup.Result()
			output, brings, operation, later, err := action.Execute(source, backup)
			require.NoError(t, err)
			require.Empty(t, operation)
			require.Empty(t, later)
			require.Equal(t, tc.brings, brings)
			require.Empty(t, cmp.Diff(tc.vrg.Obj(), source), "the item was changed")
			require.Empty(t, cmp.Diff(tc.backup.Result(), backup), "the Backup was changed")
			require.Empty(t, requests.Writes())

			var levels []logrus.Level
			for _, entry := range entries.AllEntries() {
				levels = append(levels, entry.Level)
				require.Equal(t, []any{"volumereplicationgroups.ramendr.openshift.io", tc.vrg.Obj().GetNamespace(), "v", "b", "oadp.openshift.io/volumereplicationgroup-backup"},
					[]any{entry.Data["resource"], entry.Data["namespace"], entry.Data["name"], entry.Data["backup"], entry.Data["action"]})
			}
			require.Equal(t, tc.levels, levels)
			if tc.outcome == "" {
				require.Same(t, source, output)
				require.Empty(t, requests.All(), "it costs nothing")
				return
			}
			item := &unstructured.Unstructured{Object: output.UnstructuredContent()}
			record, ok, err := recipe.RecordOf(item)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, tc.outcome, record.Outcome)
			annotations := map[string]string{contract.RecipeBundleAnnotation: item.GetAnnotations()[contract.RecipeBundleAnnotation]}
			if tc.brings != nil {
				annotations["backup.velero.io/must-include-additional-items"] = "true"
			}
			require.Empty(t, cmp.Diff(annotations, item.GetAnnotations()))
			item.SetAnnotations(nil)
			require.Empty(t, cmp.Diff(tc.vrg.Obj().Object, item.Object), "T4: all else is as it was, parameters too")
		})
	}
}

// Fact: an error of a backup action drops the item from the backup.
func TestBackupNeverLosesTheVRG(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"nothing is allowed":  apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "x", errors.New("no")),
		"the token is old":    apierrors.NewUnauthorized("expired"),
		"the request is odd":  apierrors.NewBadRequest("what"),
		"nothing is there":    apierrors.NewNotFound(schema.GroupResource{Resource: "x"}, "x"),
		"the kind is unknown": apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "x"}, "get"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, entries := testkit.RecordingLogger(t)
			action, requests := newBackup(t, log)
			requests.Fail(func(testkit.Request) error { return failure })
			vrg := testkit.MakeVRG("ramen-ops", "v").RecipeRef("app", "r").Obj()
			output, brings, _, _, err := action.Execute(vrg, testkit.BackupNamed("b").Result())
			require.NoError(t, err)
			require.Equal(t, "v", (&unstructured.Unstructured{Object: output.UnstructuredContent()}).GetName())
			require.Empty(t, brings)
			last := entries.LastEntry()
			require.Equal(t, logrus.ErrorLevel, last.Level)
			require.Contains(t, last.Message, "Recipe app/r of VRG ramen-ops/v is not in this backup")
			require.Len(t, entries.AllEntries(), 2, "one line for the settings, which could not be read, and one for the Recipe")
			require.Equal(t, logrus.WarnLevel, entries.AllEntries()[0].Level)
		})
	}
	for _, garbage := range []string{`{}`, `{"spec":7}`, `{"metadata":[],"spec":{"kubeObjectProtection":{"recipeRef":{"name":"r","namespace":"app"}}}}`, `{"spec":{"kubeObjectProtection":{"recipe":[]}}}`} {
		object := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(garbage), &object))
		action, _ := newBackup(t, testkit.Logger(t), cluster()...)
		output, _, _, _, err := action.Execute(&unstructured.Unstructured{Object: object}, testkit.BackupNamed("b").Result())
		require.NoError(t, err, garbage)
		require.NotNil(t, output, garbage)
	}
}

func TestBackupOfAnIncompleteCall(t *testing.T) {
	t.Parallel()
	action, _ := newBackup(t, testkit.Logger(t))
	for name, call := range map[string]struct {
		item   runtime.Unstructured
		backup *velerov1.Backup
	}{
		"no item":   {nil, testkit.BackupNamed("b").Result()},
		"a nil":     {(*unstructured.Unstructured)(nil), testkit.BackupNamed("b").Result()},
		"no backup": {testkit.MakeVRG("ramen-ops", "v").Obj(), nil},
	} {
		_, _, _, _, err := action.Execute(call.item, call.backup)
		require.ErrorIs(t, err, item.ErrIncompleteBackup, name)
	}
}

func TestBackupAsksOnceForManyVRGs(t *testing.T) {
	t.Parallel()
	action, requests := newBackup(t, testkit.Logger(t), cluster()...)
	for i := range 50 {
		vrg := testkit.MakeVRG("ramen-ops", fmt.Sprintf("v%d", i)).RecipeRef("app", "r").Parameter("ns", fmt.Sprintf("app-%d", i))
		_, brings, _, _, err := action.Execute(vrg.Obj(), testkit.BackupNamed("b").Result())
		require.NoError(t, err)
		require.Len(t, brings, 3)
	}
	require.Equal(t, map[string]int{"list ConfigMap": 1, "get CustomResourceDefinition": 2, "get Recipe": 1, "get Namespace": 1}, requests.Count())
}
