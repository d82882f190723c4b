package pod_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/pod"
)

// newAction is the action as the plugin process makes it, over a client that counts.
func newAction(t *testing.T, log logrus.FieldLogger, objs ...client.Object) (*pod.RestoreAction, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	clk := clocktesting.NewFakeClock(testkit.Epoch.Time)
	facts := restore.NewCache(c)
	return pod.New(log, facts, postrestore.NewDriver(c, postrestore.NewRunner(c, clk, log), facts, clk)), requests
}

func backup(edit ...func(*velerov1.Backup)) client.Object {
	b := builder.ForBackup(testkit.VeleroNamespace, "backup").Result()
	for _, e := range edit {
		e(b)
	}
	return b
}

// dataOf is a PodVolumeBackup of volume data of the pod.
func dataOf(namespace, name string) client.Object {
	return builder.ForPodVolumeBackup(testkit.VeleroNamespace, "pvb-"+name).Labels(map[string]string{velerov1.BackupNameLabel: "backup"}).
		PodNamespace(namespace).PodName(name).Volume("data").SnapshotID("s").Result()
}

func claimPod() *testkit.Pod {
	return testkit.MakePod("shop", "web", 3).Named("a").Claim("data", "web-data")
}

func TestAppliesTo(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	got, err := action.AppliesTo()
	require.NoError(t, err)
	require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"pods"}}, got, "all pods: a detached one has no label to select on")
	require.Equal(t, "oadp.openshift.io/pod-restore", action.Name())
	ready, err := action.AreAdditionalItemsReady(nil, nil)
	require.NoError(t, err)
	require.True(t, ready)
	require.Empty(t, requests.All())
}

func TestExecute(t *testing.T) {
	t.Parallel()
	const (
		untouched = "untouched"
		skipped   = "skipped"
		detached  = "detached"
	)
	execHook := func(namespace, label string) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) {
			r.Spec.Hooks.Resources = []velerov1.RestoreResourceHookSpec{{
				Name: "warm", IncludedNamespaces: []string{namespace}, PostHooks: []velerov1.RestoreResourceHook{{Exec: &velerov1.ExecRestoreHook{Command: []string{"true"}}}},
			}}
			if label != "" {
				r.Spec.Hooks.Resources[0].LabelSelector = selector(label, "web")
			}
		}
	}
	tests := map[string]struct {
		pod     *testkit.Pod
		objects []client.Object
		restore func(*velerov1.Restore)
		fail    func(testkit.Request) error

		want      string
		operation string
		level     logrus.Level
		says      string
	}{
		"a standalone pod": {
			pod: testkit.MakePlainPod("shop", "p").NodeSelector("a", "b"), want: untouched, level: logrus.DebugLevel, says: "not a DeploymentConfig's pod",
		},
		"a Deployment's pod": {
			pod: testkit.MakePlainPod("shop", "p").Owner("apps/v1", "ReplicaSet", "web-5d").Claim("data", "c"), objects: []client.Object{dataOf("shop", "p")}, want: untouched, level: logrus.DebugLevel,
		},
		"D20: a deployer pod":       {pod: testkit.MakeDeployerPod("shop", "web", 3), want: skipped, level: logrus.InfoLevel},
		"D20: a lifecycle-hook pod": {pod: testkit.MakeHookPod("shop", "web", 3, "post"), want: skipped, level: logrus.InfoLevel},
		"B34: a build pod": {
			pod: testkit.MakePlainPod("shop", "p").Annotation("openshift.io/build.name", "web-1"), want: skipped, level: logrus.InfoLevel,
		},
		"B4: data of a claim": {pod: claimPod(), objects: []client.Object{dataOf("shop", "a")}, want: detached, level: logrus.InfoLevel, says: "PodVolumeBackup fills claim web-data"},
		"D16: a pod backed up while detached": {
			pod: claimPod().Detached(testkit.OwnerNamed("earlier")), objects: []client.Object{dataOf("shop", "a")}, want: detached, level: logrus.InfoLevel,
		},
		"D1: an annotation hook without any in the spec": {
			pod: testkit.MakePod("shop", "web", 3).Annotation("post.hook.restore.velero.io/command", "true"), want: detached, level: logrus.InfoLevel, says: "exec hook <from-annotation>",
		},
		"D2: an empty annotation hook":                    {pod: claimPod().Annotation("post.hook.restore.velero.io/command", ""), want: skipped, level: logrus.InfoLevel},
		"D3: a hook that selects on deploymentconfig":     {pod: claimPod(), restore: execHook("shop", "deploymentconfig"), want: detached, level: logrus.InfoLevel},
		"a hook that selects on a label of Velero's":      {pod: claimPod(), restore: execHook("shop", "velero.io/backup-name"), want: skipped, level: logrus.InfoLevel},
		"D4: a hook in the target namespace of a mapping": {pod: claimPod(), restore: mapped(execHook("shop-dr", "")), want: detached, level: logrus.InfoLevel},
		"D4: a hook in the source namespace of a mapping": {pod: claimPod(), restore: mapped(execHook("shop", "")), want: skipped, level: logrus.InfoLevel},
		"nothing waits":                                                {pod: claimPod(), want: skipped, level: logrus.InfoLevel, says: "web makes its own pods"},
		"D19: DeploymentConfigs are left out":                          {pod: claimPod(), objects: []client.Object{dataOf("shop", "a")}, restore: func(r *velerov1.Restore) { r.Spec.IncludedResources = []string{"pods"} }, want: untouched, level: logrus.DebugLevel},
		"D14: its DeploymentConfig is live":                            {pod: claimPod(), objects: []client.Object{dataOf("shop", "a"), testkit.MakeDC("shop", "web").Obj()}, want: skipped, level: logrus.WarnLevel, says: "was live before"},
		"its DeploymentConfig is live in the source of a mapping":      {pod: claimPod(), objects: []client.Object{dataOf("shop", "a"), testkit.MakeDC("shop", "web").Obj()}, restore: mapped(nil), want: detached, level: logrus.InfoLevel},
		"D14: its DeploymentConfig is live in the target of a mapping": {pod: claimPod(), objects: []client.Object{dataOf("shop", "a"), testkit.MakeDC("shop-dr", "web").Obj()}, restore: mapped(nil), want: skipped, level: logrus.WarnLevel},
		"in place: DeploymentConfigs are left out, it is at 0 in the cluster": {
			pod: claimPod(), objects: []client.Object{dataOf("shop", "a"), testkit.MakeDC("shop", "web").Replicas(0).Obj()}, restore: func(r *velerov1.Restore) { r.Spec.IncludedResources = []string{"pods"} },
			want: detached, operation: "dc/v1/uid-of-r/shop/web", level: logrus.InfoLevel,
		},
		"by label: an operation looks after pods whose DeploymentConfig does not come": {
			pod: claimPod(), objects: []client.Object{dataOf("shop", "a")}, restore: func(r *velerov1.Restore) { r.Spec.LabelSelector = selector("app", "web") },
			want: detached, operation: "pods/v1/uid-of-r", level: logrus.InfoLevel,
		},
		"the cluster does not serve DeploymentConfigs": {
			pod: claimPod(), objects: []client.Object{dataOf("shop", "a")}, fail: failing("DeploymentConfig", errNotServed), want: untouched, level: logrus.DebugLevel, says: "does not serve DeploymentConfigs",
		},
		"D21: PodVolumeBackups cannot be listed: detached, with one warning": {
			pod: claimPod(), fail: failing("PodVolumeBackup", apierrors.NewServiceUnavailable("etcd is away")), want: detached, level: logrus.WarnLevel, says: "etcd is away",
		},
		"D21: DataDownloads cannot be listed: detached, with one warning": {
			pod: claimPod(), fail: failing("DataDownload", apierrors.NewServiceUnavailable("etcd is away")), want: detached, level: logrus.WarnLevel, says: "etcd is away",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, entries := testkit.RecordingLogger(t)
			action, requests := newAction(t, log, append(tc.objects, backup())...)
			requests.Fail(tc.fail)
			r := testkit.RestoreNamed("r").Result()
			if tc.restore != nil {
				tc.restore(r)
			}
			input := testkit.Input(r, tc.pod.Obj())
			before := copyOf(input)
			output, err := action.Execute(input)
			require.NoError(t, err)
			require.Equal(t, tc.want == skipped, output.SkipRestore)
			require.Equal(t, tc.operation, output.OperationID)
			require.Empty(t, output.AdditionalItems)
			switch tc.want {
			case untouched:
				require.Empty(t, cmp.Diff(before.Item, output.UpdatedItem), "I5: the item passes as it is")
			case detached:
				got := output.UpdatedItem.(*unstructured.Unstructured)
				require.NotContains(t, got.GetLabels(), "deployment")
				require.Equal(t, "web", got.GetLabels()["deploymentconfig"])
				require.Equal(t, "r", got.GetLabels()["oadp.openshift.io/disconnected-from-dc"])
				require.Equal(t, "openshift-adp/r", got.GetAnnotations()["oadp.openshift.io/restore"])
				require.Equal(t, "web", got.GetAnnotations()["oadp.openshift.io/deploymentconfig"])
				require.Equal(t, "shop", got.GetNamespace(), "Velero maps the namespace afterwards")
			}
			require.Empty(t, cmp.Diff(before, input), "the input was changed")
			decisions := slices.DeleteFunc(entries.AllEntries(), func(e *logrus.Entry) bool { return e.Data["decision"] == nil })
			require.Len(t, decisions, 1, "one line an item")
			entry := decisions[0]
			require.Equal(t, tc.level, entry.Level)
			require.Equal(t, tc.want, entry.Data["decision"])
			require.Contains(t, entry.Data["reason"], tc.says)
			require.Equal(t, "oadp.openshift.io/pod-restore", entry.Data["action"])
			for _, field := range []string{"name", "namespace"} {
				require.IsType(t, "", entry.Data[field], "a Velero server panics on others")
			}
			require.Empty(t, requests.Writes())
		})
	}
}

func TestExecuteRefusesAPodWhoseDeploymentConfigThisRestoreBroughtBeforeIt(t *testing.T) {
	t.Parallel()
	action, _ := newAction(t, testkit.Logger(t), backup(), dataOf("shop", "a"), testkit.MakeDC("shop", "web").Label("velero.io/restore-name", "r").Obj())
	_, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), claimPod().Obj()))
	require.ErrorContains(t, err, "pod shop/a is not restored")
	require.ErrorContains(t, err, "--restore-resource-priorities")
}

// Restoring the pod could destroy data when it cannot be known whether its DeploymentConfig is live.
func TestExecuteReturnsAnErrorOnlyWhereThePodCouldDoHarm(t *testing.T) {
	t.Parallel()
	away := apierrors.NewServiceUnavailable("etcd is away")
	action, requests := newAction(t, testkit.Logger(t), backup())
	requests.Fail(failing("DeploymentConfig", away))
	_, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), claimPod().Obj()))
	require.ErrorContains(t, err, "decide on pod shop/a: list DeploymentConfigs in shop")
	require.ErrorIs(t, err, away)
	require.Contains(t, fmt.Sprintf("%+v", err), "restore.go", "the outermost error carries the stack that Velero logs")

	_, err = action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), testkit.MakePlainPod("shop", "p").Obj()))
	require.NoError(t, err, "a pod that is no DeploymentConfig's is not asked for")
}

func TestExecuteTakesABackupThatCannotBeReadToHoldDeploymentConfigs(t *testing.T) {
	t.Parallel()
	log, entries := testkit.RecordingLogger(t)
	action, _ := newAction(t, log, dataOf("shop", "a"))
	output, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), claimPod().Obj()))
	require.NoError(t, err)
	require.Contains(t, output.UpdatedItem.(*unstructured.Unstructured).GetLabels(), "oadp.openshift.io/disconnected-from-dc")
	require.Equal(t, "the backup cannot be read: it is taken to hold DeploymentConfigs", entries.AllEntries()[0].Message)
}

func TestExecuteFailsOnAHookSelectorThatVeleroCannotReadEither(t *testing.T) {
	t.Parallel()
	action, _ := newAction(t, testkit.Logger(t), backup())
	r := testkit.RestoreNamed("r").Result()
	bad := selector("app", "web")
	bad.MatchExpressions = append(bad.MatchExpressions, requirement("app", "Contains"))
	r.Spec.Hooks.Resources = []velerov1.RestoreResourceHookSpec{{Name: "warm", LabelSelector: bad}}
	_, err := action.Execute(testkit.Input(r, claimPod().Obj()))
	require.ErrorContains(t, err, `decide on pod shop/a: label selector of restore hook "warm"`)
}

func TestExecuteOnWhatIsIncompleteOrGarbage(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t), backup())
	whole := func() *velero.RestoreItemActionExecuteInput {
		return testkit.Input(testkit.RestoreNamed("r").Result(), claimPod().Obj())
	}
	for name, input := range map[string]*velero.RestoreItemActionExecuteInput{
		"no input":       nil,
		"nothing in it":  {},
		"no item":        {ItemFromBackup: whole().ItemFromBackup, Restore: whole().Restore},
		"no original":    {Item: whole().Item, Restore: whole().Restore},
		"no restore":     {Item: whole().Item, ItemFromBackup: whole().ItemFromBackup},
		"a typed nil":    {Item: (*unstructured.Unstructured)(nil), ItemFromBackup: whole().ItemFromBackup, Restore: whole().Restore},
		"another one":    {Item: whole().Item, ItemFromBackup: (*unstructured.Unstructured)(nil), Restore: whole().Restore},
		"no content":     {Item: &unstructured.Unstructured{}, ItemFromBackup: whole().ItemFromBackup, Restore: whole().Restore},
		"no content too": {Item: whole().Item, ItemFromBackup: &unstructured.Unstructured{}, Restore: whole().Restore},
	} {
		output, err := action.Execute(input)
		if name == "no content" || name == "no content too" {
			continue // either way will do, as long as it does not panic
		}
		require.ErrorIs(t, err, item.ErrIncomplete, name)
		require.Nil(t, output, name)
	}
	for name, garbage := range map[string]map[string]any{
		"labels that are a list": {"metadata": map[string]any{"name": "a", "labels": []any{"x"}}},
		"a spec that is text":    {"metadata": map[string]any{"name": "a"}, "spec": "x"},
		"metadata that is text":  {"metadata": "x"},
	} {
		input := whole()
		input.ItemFromBackup = &unstructured.Unstructured{Object: garbage}
		output, err := action.Execute(input)
		require.NoError(t, err, name)
		require.False(t, output.SkipRestore, name)
		require.Empty(t, cmp.Diff(whole().Item, output.UpdatedItem), "I5: %s", name)

		input = whole()
		input.Item = &unstructured.Unstructured{Object: garbage}
		_, err = action.Execute(input)
		require.NoError(t, err, name)
	}
	require.Empty(t, requests.Writes())
}

// One operation for each DeploymentConfig, or for each restore, is enough: Velero asks for every one at every poll.
func TestExecuteReturnsEachOperationOnce(t *testing.T) {
	t.Parallel()
	inPlace := func(r *velerov1.Restore) { r.Spec.IncludedResources = []string{"pods"} }
	byLabel := func(r *velerov1.Restore) { r.Spec.LabelSelector = selector("app", "web") }
	for name, tc := range map[string]struct {
		restore func(*velerov1.Restore)
		want    []string
	}{
		"in place": {inPlace, []string{"dc/v1/uid-of-r/shop/web", "", "dc/v1/uid-of-r/shop/db"}},
		"by label": {byLabel, []string{"pods/v1/uid-of-r", "", ""}},
		"whole":    {nil, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			action, _ := newAction(t, testkit.Logger(t), backup(), dataOf("shop", "a"), dataOf("shop", "b"), dataOf("shop", "c"),
				testkit.MakeDC("shop", "web").Replicas(0).Obj(), testkit.MakeDC("shop", "db").Replicas(0).Obj())
			r := testkit.RestoreNamed("r").Result()
			if tc.restore != nil {
				tc.restore(r)
			}
			var got []string
			for _, p := range []*testkit.Pod{claimPod(), claimPod().Named("b"), testkit.MakePod("shop", "db", 1).Named("c").Claim("data", "c")} {
				output, err := action.Execute(testkit.Input(r, p.Obj()))
				require.NoError(t, err)
				got = append(got, output.OperationID)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestExecuteListsOnceForManyPods(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t), backup())
	for i := range 200 {
		namespace := fmt.Sprintf("shop-%d", i%5)
		_, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), testkit.MakePod(namespace, "web", 1).Named(strconv.Itoa(i)).Claim("data", "c").Obj()))
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int{"list DeploymentConfig": 5, "get Backup": 1, "list PodVolumeBackup": 1, "list DataDownload": 1}, requests.Count())
}

func TestProgressAndCancelAreTheDrivers(t *testing.T) {
	t.Parallel()
	action, _ := newAction(t, testkit.Logger(t), backup())
	r := testkit.RestoreNamed("r").Result()
	progress, err := action.Progress("pods/v1/uid-of-r", r)
	require.NoError(t, err)
	require.True(t, progress.Completed)
	require.NoError(t, action.Cancel("pods/v1/uid-of-r", r))
	_, err = action.Progress("x", r)
	require.ErrorContains(t, err, "is invalid")
	require.ErrorContains(t, action.Cancel("x", r), "is invalid")
}

// Where no DeploymentConfig's own operation looks after a pod, its Job is made with the pod's.
func TestExecuteMakesSureOfAJobWithAnOperation(t *testing.T) {
	t.Parallel()
	execute := func(t *testing.T, edit func(*velerov1.Restore)) *testkit.Requests {
		t.Helper()
		action, requests := newAction(t, testkit.Logger(t), backup(), testkit.VeleroDeployment(), dataOf("shop", "a"), testkit.MakeDC("shop", "web").Replicas(0).Obj())
		r := testkit.RestoreNamed("r").Result()
		edit(r)
		for range 2 {
			_, err := action.Execute(testkit.Input(r, claimPod().Obj()))
			require.NoError(t, err)
		}
		return requests
	}
	without := execute(t, func(r *velerov1.Restore) { r.Spec.ExcludedResources = []string{"deploymentconfigs.apps.openshift.io"} })
	require.Len(t, without.Of("create", "Job"), 1)
	with := execute(t, func(*velerov1.Restore) {})
	require.Empty(t, with.Writes(), "the DeploymentConfig action makes it")
}

func copyOf(input *velero.RestoreItemActionExecuteInput) *velero.RestoreItemActionExecuteInput {
	return &velero.RestoreItemActionExecuteInput{
		Item:           input.Item.(*unstructured.Unstructured).DeepCopy(),
		ItemFromBackup: input.ItemFromBackup.(*unstructured.Unstructured).DeepCopy(),
		Restore:        input.Restore.DeepCopy(),
	}
}

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func requirement(key string, operator metav1.LabelSelectorOperator) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{"x"}}
}

func mapped(edit func(*velerov1.Restore)) func(*velerov1.Restore) {
	return func(r *velerov1.Restore) {
		r.Spec.NamespaceMapping = map[string]string{"shop": "shop-dr"}
		if edit != nil {
			edit(r)
		}
	}
}

var errNotServed = apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Group: "apps.openshift.io", Resource: "deploymentconfigs"}, "", "", 0, true)

func failing(kind string, err error) func(testkit.Request) error {
	return func(r testkit.Request) error {
		if r.Verb == "list" && r.Kind == kind {
			return err
		}
		return nil
	}
}
