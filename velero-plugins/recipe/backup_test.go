package recipe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	corerecipe "github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/recipe"
)

func newBackup(t *testing.T, log logrus.FieldLogger, objs ...client.Object) (*recipe.BackupAction, *ramen.Backups, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	backups := ramen.NewBackups(c, clocktesting.NewFakePassiveClock(testkit.Epoch.Add(time.Hour)), time.Time{})
	return recipe.NewBackup(log, backups), backups, requests
}

func TestBackupAppliesTo(t *testing.T) {
	t.Parallel()
	action, _, requests := newBackup(t, testkit.Logger(t))
	got, err := action.AppliesTo()
	require.NoError(t, err)
	require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"recipes.ramendr.openshift.io"}}, got)
	require.Equal(t, "oadp.openshift.io/recipe-backup", action.Name())
	require.NoError(t, action.Cancel("x", nil))
	_, err = action.Progress("x", nil)
	require.ErrorContains(t, err, "operation ID x is invalid")
	require.Empty(t, requests.All())
}

func TestBackupExecute(t *testing.T) {
	t.Parallel()
	ofRamen := testkit.BackupNamed("b").ObjectMeta(builder.WithLabels(contract.CreatedByRamenLabel, "true"))
	tests := map[string]struct {
		backup  *builder.BackupBuilder
		objects []client.Object
		brings  bool
		level   logrus.Level // 0, which is Panic: no line
	}{
		"its CRD comes with it":        {backup: testkit.BackupNamed("b"), objects: []client.Object{testkit.MakeRecipeCRD().Obj()}, brings: true, level: logrus.DebugLevel},
		"there is no CRD":              {backup: testkit.BackupNamed("b"), level: logrus.WarnLevel},
		"T15: a backup of Ramen's own": {backup: ofRamen, objects: []client.Object{testkit.MakeRecipeCRD().Obj()}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, entries := testkit.RecordingLogger(t)
			action, _, requests := newBackup(t, log, tc.objects...)
			source, backup := testkit.MakeRecipe("app", "r").Obj(), tc.backup.Result()
			output, brings, operation, later, err := action.Execute(source, backup)
			require.NoError(t, err)
			require.Empty(t, operation)
			require.Empty(t, later)
			require.Empty(t, cmp.Diff(testkit.MakeRecipe("app", "r").Obj(), source), "the item was changed")
			require.Empty(t, requests.Writes())
			want := testkit.MakeRecipe("app", "r")
			if tc.brings {
				require.Equal(t, []velero.ResourceIdentifier{{
					GroupResource: schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, Name: "recipes.ramendr.openshift.io",
				}}, brings)
				want.Annotation("backup.velero.io/must-include-additional-items", "true")
			} else {
				require.Empty(t, brings)
			}
			require.Empty(t, cmp.Diff(want.Obj().Object, output.UnstructuredContent()))
			if tc.level == 0 {
				require.Empty(t, entries.AllEntries())
				require.Empty(t, requests.All())
				return
			}
			require.Len(t, entries.AllEntries(), 1)
			require.Equal(t, tc.level, entries.LastEntry().Level)
			require.Equal(t, []any{"recipes.ramendr.openshift.io", "app", "r"}, []any{entries.LastEntry().Data["resource"], entries.LastEntry().Data["namespace"], entries.LastEntry().Data["name"]})
		})
	}
}

func TestBackupSaysThatVRGsHaveRecordedAnotherState(t *testing.T) {
	t.Parallel()
	log, entries := testkit.RecordingLogger(t)
	action, backups, _ := newBackup(t, log, testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeKubeSystem())
	backup := testkit.BackupNamed("b").Result()
	known := corerecipe.BackupFacts{Backup: backup}
	backups.Look(t.Context(), &known, corerecipe.Record{Recipe: corerecipe.Identity{Namespace: "app", Name: "r"}}.Key())
	changed := known.Recipe.Object.DeepCopy()
	changed.SetResourceVersion("later")
	_, brings, _, _, err := action.Execute(changed, backup)
	require.NoError(t, err)
	require.Len(t, brings, 1)
	require.Equal(t, logrus.WarnLevel, entries.AllEntries()[0].Level)
	require.Contains(t, entries.AllEntries()[0].Message, "Recipe app/r changed while the backup was made")
}

func TestBackupNeverLosesTheRecipe(t *testing.T) {
	t.Parallel()
	action, _, requests := newBackup(t, testkit.Logger(t))
	requests.Fail(func(testkit.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "x", errors.New("no"))
	})
	for _, object := range []map[string]any{{}, {"metadata": []any{}}, testkit.MakeRecipe("app", "r").Obj().Object} {
		output, brings, _, _, err := action.Execute(&unstructured.Unstructured{Object: object}, testkit.BackupNamed("b").Result())
		require.NoError(t, err)
		require.Empty(t, brings)
		require.Empty(t, cmp.Diff(object, output.UnstructuredContent()))
	}
	_, _, _, _, err := action.Execute(nil, testkit.BackupNamed("b").Result())
	require.ErrorIs(t, err, item.ErrIncompleteBackup)
}
