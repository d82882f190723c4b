package replicationcontroller_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/replicationcontroller"
)

func newAction(t *testing.T, log logrus.FieldLogger, objs ...client.Object) (*replicationcontroller.RestoreAction, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	return replicationcontroller.New(log, restore.NewCache(c)), requests
}

func TestAppliesTo(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	got, err := action.AppliesTo()
	require.NoError(t, err)
	require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"replicationcontrollers"}}, got)
	require.Equal(t, "oadp.openshift.io/replicationcontroller-restore", action.Name())
	ready, err := action.AreAdditionalItemsReady(nil, nil)
	require.NoError(t, err)
	require.True(t, ready)
	require.NoError(t, action.Cancel("x", nil))
	_, err = action.Progress("x", nil)
	require.ErrorContains(t, err, "operation ID x is invalid")
	require.Empty(t, requests.All())
}

func TestExecute(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	tests := map[string]struct {
		rc      *testkit.RC
		objects []client.Object
		mapped  bool
		skipped bool
	}{
		"D12: a standalone one passes byte by byte":       {rc: testkit.MakePlainRC("shop", "rc")},
		"B19: its DeploymentConfig makes its own":         {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakeDC("shop", "web").Obj()}, skipped: true},
		"its DeploymentConfig is not there":               {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakeDC("shop", "db").Obj()}},
		"its DeploymentConfig is paused":                  {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakeDC("shop", "web").Paused().Obj()}},
		"D11: its DeploymentConfig is held paused":        {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakeDC("shop", "web").PreHook().Held(owner, 2, false).Paused().Obj()}, skipped: true},
		"D11: its DeploymentConfig is held":               {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakeDC("shop", "web").Held(owner, 2, false).Obj()}, skipped: true},
		"D35: detached pods wait, the rest did not come":  {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakePod("shop", "web", 3).Detached(owner).Obj()}, skipped: true},
		"a mapping: the one in the target counts":         {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakeDC("shop-dr", "web").Obj()}, mapped: true, skipped: true},
		"a mapping: the one in the source does not count": {rc: testkit.MakeRC("shop", "web", 3), objects: []client.Object{testkit.MakeDC("shop", "web").Obj()}, mapped: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, entries := testkit.RecordingLogger(t)
			action, requests := newAction(t, log, tc.objects...)
			r := testkit.RestoreNamed("r").Result()
			if tc.mapped {
				r.Spec.NamespaceMapping = map[string]string{"shop": "shop-dr"}
			}
			input := testkit.Input(r, tc.rc.Obj())
			before := copyOf(input)
			output, err := action.Execute(input)
			require.NoError(t, err)
			require.Equal(t, tc.skipped, output.SkipRestore)
			require.Empty(t, output.OperationID)
			require.Empty(t, cmp.Diff(before.Item, output.UpdatedItem), "I5")
			require.Empty(t, cmp.Diff(before, input), "the input was changed")
			require.Len(t, entries.AllEntries(), 1, "one line an item")
			require.NotEmpty(t, entries.LastEntry().Data["reason"])
			require.Empty(t, requests.Writes())
		})
	}
}

func TestExecuteReturnsAnErrorWherePodsCouldStartTooEarly(t *testing.T) {
	t.Parallel()
	away := apierrors.NewServiceUnavailable("etcd is away")
	action, requests := newAction(t, testkit.Logger(t))
	requests.Fail(func(testkit.Request) error { return away })
	r := testkit.RestoreNamed("r").Result()
	_, err := action.Execute(testkit.Input(r, testkit.MakeRC("shop", "web", 3).Obj()))
	require.ErrorContains(t, err, "decide on ReplicationController shop/web-3")
	require.ErrorIs(t, err, away)
	_, err = action.Execute(testkit.Input(r, testkit.MakePlainRC("shop", "rc").Obj()))
	require.NoError(t, err, "a standalone one is not asked for")
}

func TestExecuteOnWhatIsIncompleteOrGarbage(t *testing.T) {
	t.Parallel()
	action, _ := newAction(t, testkit.Logger(t))
	whole := testkit.Input(testkit.RestoreNamed("r").Result(), testkit.MakeRC("shop", "web", 3).Obj())
	for name, input := range map[string]*velero.RestoreItemActionExecuteInput{
		"no input":    nil,
		"no item":     {ItemFromBackup: whole.ItemFromBackup, Restore: whole.Restore},
		"no original": {Item: whole.Item, Restore: whole.Restore},
		"no restore":  {Item: whole.Item, ItemFromBackup: whole.ItemFromBackup},
		"a typed nil": {Item: whole.Item, ItemFromBackup: (*unstructured.Unstructured)(nil), Restore: &velerov1.Restore{}},
	} {
		_, err := action.Execute(input)
		require.ErrorIs(t, err, item.ErrIncomplete, name)
	}
	whole.ItemFromBackup = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"ownerReferences": "x"}}}
	output, err := action.Execute(whole)
	require.NoError(t, err)
	require.False(t, output.SkipRestore)
	require.Same(t, whole.Item, output.UpdatedItem)
}

func TestExecuteListsOnceForManyReplicationControllers(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	for i := range 50 {
		_, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), testkit.MakeRC(fmt.Sprintf("shop-%d", i%5), strconv.Itoa(i), 1).Obj()))
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int{"list DeploymentConfig": 5, "list Pod": 5}, requests.Count())
}

func copyOf(input *velero.RestoreItemActionExecuteInput) *velero.RestoreItemActionExecuteInput {
	return &velero.RestoreItemActionExecuteInput{
		Item:           input.Item.(*unstructured.Unstructured).DeepCopy(),
		ItemFromBackup: input.ItemFromBackup.(*unstructured.Unstructured).DeepCopy(),
		Restore:        input.Restore.DeepCopy(),
	}
}
