package deploymentconfig_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/deploymentconfig"
)

func newAction(t *testing.T, log logrus.FieldLogger, objs ...client.Object) (*deploymentconfig.RestoreAction, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	clk := clocktesting.NewFakeClock(testkit.Epoch.Time)
	facts := restore.NewCache(c)
	return deploymentconfig.New(log, facts, postrestore.NewDriver(c, postrestore.NewRunner(c, clk, log), facts, clk)), requests
}

func web() *testkit.DC { return testkit.MakeDC("shop", "web").Replicas(3) }

// detachedPod is a pod that restore r has detached from <namespace>/web.
func detachedPod(namespace, name string) client.Object {
	return testkit.MakePod(namespace, "web", 1).Named(name).Detached(testkit.OwnerNamed("r")).Obj()
}

func TestAppliesTo(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	got, err := action.AppliesTo()
	require.NoError(t, err)
	require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"deploymentconfigs.apps.openshift.io"}}, got)
	require.Equal(t, "oadp.openshift.io/deploymentconfig-restore", action.Name())
	ready, err := action.AreAdditionalItemsReady(nil, nil)
	require.NoError(t, err)
	require.True(t, ready)
	require.Empty(t, requests.All())
}

func TestExecute(t *testing.T) {
	t.Parallel()
	const operation = "dc/v1/uid-of-r/shop/web"
	updating := func(r *velerov1.Restore) { r.Spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate }
	mapped := func(r *velerov1.Restore) {
		r.Spec.NamespaceMapping = map[string]string{"shop": "shop-dr", "images": "images-dr"}
	}
	// scaled is an item as it must come out: the edit of the item as it went in.
	scaled := func(replicas int64, edit ...func(*unstructured.Unstructured)) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(u.Object, replicas, "spec", "replicas"))
			for _, e := range edit {
				e(u)
			}
		}
	}
	held := func(replicas, paused string) func(*unstructured.Unstructured) {
		return scaled(0, func(u *unstructured.Unstructured) {
			labels := u.GetLabels()
			labels["oadp.openshift.io/replicas-modified"] = "r"
			u.SetLabels(labels)
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			maps.Copy(annotations, map[string]string{
				"oadp.openshift.io/original-replicas": replicas, "oadp.openshift.io/original-paused": paused,
				"oadp.openshift.io/restore": "openshift-adp/r", "oadp.openshift.io/restore-uid": "uid-of-r",
			})
			u.SetAnnotations(annotations)
			unstructured.RemoveNestedField(u.Object, "spec", "paused")
			if paused == "true" {
				require.NoError(t, unstructured.SetNestedField(u.Object, false, "spec", "paused"))
			}
		})
	}
	tests := map[string]struct {
		dc      *testkit.DC
		objects []client.Object
		restore func(*velerov1.Restore)
		// want changes the item to what must come out; nil: nothing changes.
		want      func(*unstructured.Unstructured)
		operation string
		decision  string
		level     logrus.Level
	}{
		"detached pods wait for it": {
			dc: web(), objects: []client.Object{detachedPod("shop", "a"), detachedPod("shop", "b")}, want: held("3", "false"), operation: operation, decision: "held", level: logrus.InfoLevel,
		},
		"detached pods wait for it, originally paused": {
			dc: web().Paused(), objects: []client.Object{detachedPod("shop", "a")}, want: held("3", "true"), operation: operation, decision: "held", level: logrus.InfoLevel,
		},
		"without triggers, written as null": {
			dc: web().NoTriggers(), objects: []client.Object{detachedPod("shop", "a")}, want: held("3", "false"), operation: operation, decision: "held", level: logrus.InfoLevel,
		},
		"pods of another DeploymentConfig wait": {
			dc: web(), objects: []client.Object{testkit.MakePod("shop", "db", 1).Detached(testkit.OwnerNamed("r")).Obj()}, decision: "untouched", level: logrus.DebugLevel,
		},
		"nothing waits": {dc: web(), decision: "untouched", level: logrus.DebugLevel},
		"D14: live with replicas, policy update": {
			dc: web(), objects: []client.Object{testkit.MakeDC("shop", "web").Replicas(2).Obj()}, restore: updating, decision: "untouched", level: logrus.DebugLevel,
		},
		"live at 0, pods detached from it, policy none": {
			dc: web(), objects: []client.Object{testkit.MakeDC("shop", "web").Replicas(0).Obj(), detachedPod("shop", "a")}, operation: operation, decision: "untouched", level: logrus.DebugLevel,
		},
		"live at 0, pods detached from it, policy update": {
			dc: web(), objects: []client.Object{testkit.MakeDC("shop", "web").Replicas(0).Obj(), detachedPod("shop", "a")}, restore: updating,
			want: held("3", "false"), operation: operation, decision: "held", level: logrus.InfoLevel,
		},
		"D16: backed up while held, nothing waits": {
			dc: web().Held(testkit.OwnerNamed("earlier"), 5, false), decision: "released", level: logrus.InfoLevel,
			want: scaled(5, func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"app": "web"})
				u.SetAnnotations(map[string]string{})
			}),
		},
		"backed up while held, half a record": {
			dc: web().Held(testkit.OwnerNamed("earlier"), 5, false).Annotation("oadp.openshift.io/original-paused", "x"), operation: operation, decision: "untouched", level: logrus.WarnLevel,
		},
		"a namespace mapping: what waits in the target counts": {
			dc: web(), objects: []client.Object{detachedPod("shop-dr", "a")}, restore: mapped, want: held("3", "false"), operation: "dc/v1/uid-of-r/shop-dr/web", decision: "held", level: logrus.InfoLevel,
		},
		"a namespace mapping: what waits in the source does not": {
			dc: web(), objects: []client.Object{detachedPod("shop", "a")}, restore: mapped, decision: "untouched", level: logrus.DebugLevel,
		},
		"a namespace mapping: what is live in the source does not matter": {
			dc: web(), objects: []client.Object{testkit.MakeDC("shop", "web").Obj(), detachedPod("shop-dr", "a")}, restore: mapped,
			want: held("3", "false"), operation: "dc/v1/uid-of-r/shop-dr/web", decision: "held", level: logrus.InfoLevel,
		},
		"D13: image triggers follow the mapping of their own namespace": {
			dc: web().NoTriggers().ImageTrigger("images", "web:1", "").ImageTrigger("openshift", "php:8", ""), restore: mapped, decision: "untouched", level: logrus.DebugLevel,
			want: func(u *unstructured.Unstructured) {
				triggers, _, _ := unstructured.NestedSlice(u.Object, "spec", "triggers")
				require.NoError(t, unstructured.SetNestedField(triggers[0].(map[string]any), "images-dr", "imageChangeParams", "from", "namespace"))
				require.NoError(t, unstructured.SetNestedSlice(u.Object, triggers, "spec", "triggers"))
			},
		},
		"backed up by the stock plugin": {
			dc: web().Annotation("oadp.openshift.io/includes-dm-dc-fix", "true"), operation: operation, decision: "untouched", level: logrus.DebugLevel,
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
			input := testkit.Input(r, tc.dc.Obj())
			addUnknown(input)
			before, want := copyOf(input), copyOf(input).Item.(*unstructured.Unstructured)
			if tc.want != nil {
				tc.want(want)
			}
			output, err := action.Execute(input)
			require.NoError(t, err)
			require.Equal(t, tc.operation, output.OperationID)
			require.False(t, output.SkipRestore)
			if diff := cmp.Diff(want.Object, output.UpdatedItem.UnstructuredContent()); diff != "" {
				t.Errorf("item (-want +got):\n%s", diff)
			}
			require.Empty(t, cmp.Diff(before, input), "the input was changed")
			decisions := slices.DeleteFunc(entries.AllEntries(), func(e *logrus.Entry) bool { return e.Data["decision"] == nil })
			require.Len(t, decisions, 1, "one line an item")
			require.Equal(t, tc.decision, decisions[0].Data["decision"])
			require.Equal(t, tc.level, decisions[0].Level)
			require.Empty(t, requests.Writes())
		})
	}
}

// addUnknown adds a field that the pinned type does not know to both items.
func addUnknown(input *velero.RestoreItemActionExecuteInput) {
	for _, i := range []any{input.Item, input.ItemFromBackup} {
		i.(*unstructured.Unstructured).Object["spec"].(map[string]any)["tomorrowsField"] = map[string]any{"kept": true}
	}
}

// The other plugin has run before: the item differs from what stands in the backup.
func TestExecuteAfterTheStockPlugin(t *testing.T) {
	t.Parallel()
	action, _ := newAction(t, testkit.Logger(t), detachedPod("shop", "a"))
	r := testkit.RestoreNamed("r").Result()
	input := testkit.Input(r, web().Annotation("oadp.openshift.io/includes-dm-dc-fix", "true").Obj())
	input.Item = testkit.Reset(testkit.Unstructured(web().Annotation("oadp.openshift.io/includes-dm-dc-fix", "true").HeldByStock(testkit.OwnerNamed("r"), 3, true).Obj()))
	output, err := action.Execute(input)
	require.NoError(t, err)
	got := output.UpdatedItem.(*unstructured.Unstructured).GetAnnotations()
	require.Equal(t, "3", got["oadp.openshift.io/original-replicas"], "I2: a recorded original is never overwritten")
	require.Equal(t, "true", got["oadp.openshift.io/original-paused"])
	require.Equal(t, "uid-of-r", got["oadp.openshift.io/restore-uid"])
}

func TestExecuteReturnsAnErrorWhereARolloutCouldDeletePods(t *testing.T) {
	t.Parallel()
	away := apierrors.NewServiceUnavailable("etcd is away")
	for kind, says := range map[string]string{
		"DeploymentConfig": "decide on DeploymentConfig shop/web: list DeploymentConfigs in shop",
		"Pod":              "decide on DeploymentConfig shop/web: list detached pods in shop",
	} {
		action, requests := newAction(t, testkit.Logger(t))
		requests.Fail(func(r testkit.Request) error {
			if r.Kind == kind {
				return away
			}
			return nil
		})
		_, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), web().Obj()))
		require.ErrorContains(t, err, says)
		require.ErrorIs(t, err, away)
		require.Contains(t, fmt.Sprintf("%+v", err), "restore.go", "the outermost error carries the stack that Velero logs")
	}
}

// Velero lists items of a resource that is not served as well: the create fails then, and says so better than we could.
func TestExecuteWhereDeploymentConfigsAreNotServed(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	requests.Fail(func(r testkit.Request) error {
		if r.Kind == "DeploymentConfig" {
			return apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Resource: "deploymentconfigs"}, "", "", 0, true)
		}
		return nil
	})
	input := testkit.Input(testkit.RestoreNamed("r").Result(), web().Obj())
	output, err := action.Execute(input)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(input.Item, output.UpdatedItem))
}

func TestExecuteOnWhatIsIncompleteOrGarbage(t *testing.T) {
	t.Parallel()
	action, _ := newAction(t, testkit.Logger(t), detachedPod("shop", "a"))
	whole := func() *velero.RestoreItemActionExecuteInput {
		return testkit.Input(testkit.RestoreNamed("r").Result(), web().Obj())
	}
	for name, input := range map[string]*velero.RestoreItemActionExecuteInput{
		"no input":      nil,
		"nothing in it": {},
		"no item":       {ItemFromBackup: whole().ItemFromBackup, Restore: whole().Restore},
		"no original":   {Item: whole().Item, Restore: whole().Restore},
		"no restore":    {Item: whole().Item, ItemFromBackup: whole().ItemFromBackup},
		"a typed nil":   {Item: (*unstructured.Unstructured)(nil), ItemFromBackup: whole().ItemFromBackup, Restore: whole().Restore},
	} {
		output, err := action.Execute(input)
		require.ErrorIs(t, err, item.ErrIncomplete, name)
		require.ErrorContains(t, err, "oadp.openshift.io/deploymentconfig-restore", name)
		require.Nil(t, output, name)
	}
	for name, garbage := range map[string]map[string]any{
		"replicas in words":     {"metadata": map[string]any{"name": "web", "namespace": "shop"}, "spec": map[string]any{"replicas": "three"}},
		"a spec that is text":   {"metadata": map[string]any{"name": "web", "namespace": "shop"}, "spec": "x"},
		"metadata that is text": {"metadata": "x"},
		"triggers that are text": {
			"metadata": map[string]any{"name": "web", "namespace": "shop"}, "spec": map[string]any{"triggers": "x"},
		},
	} {
		for side, put := range map[string]func(*velero.RestoreItemActionExecuteInput, *unstructured.Unstructured){
			"backup": func(in *velero.RestoreItemActionExecuteInput, u *unstructured.Unstructured) { in.ItemFromBackup = u },
			"item":   func(in *velero.RestoreItemActionExecuteInput, u *unstructured.Unstructured) { in.Item = u },
		} {
			input := whole()
			put(input, &unstructured.Unstructured{Object: garbage})
			before := copyOf(input)
			output, err := action.Execute(input)
			require.NoError(t, err, "I5: %s in the %s", name, side)
			require.Empty(t, cmp.Diff(before.Item, output.UpdatedItem), "%s in the %s", name, side)
		}
	}
}

func TestExecuteListsOnceForManyDeploymentConfigs(t *testing.T) {
	t.Parallel()
	action, requests := newAction(t, testkit.Logger(t))
	for i := range 50 {
		_, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), testkit.MakeDC(fmt.Sprintf("shop-%d", i%5), strconv.Itoa(i)).Obj()))
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int{"list DeploymentConfig": 5, "list Pod": 5}, requests.Count())
}

// Whatever its operations cannot finish, a Job does: one for the restore, made with the first DeploymentConfig that has an
// operation, at a cost that does not grow.
func TestExecuteMakesSureOfOneJobARestore(t *testing.T) {
	t.Parallel()
	execute := func(t *testing.T, action *deploymentconfig.RestoreAction, r *velerov1.Restore, n int) {
		t.Helper()
		for i := range n {
			output, err := action.Execute(testkit.Input(r, testkit.MakeDC("shop", strconv.Itoa(i)).Annotation("oadp.openshift.io/includes-dm-dc-fix", "true").Obj()))
			require.NoError(t, err)
			require.NotEmpty(t, output.OperationID)
		}
	}
	t.Run("made once", func(t *testing.T) {
		t.Parallel()
		log, entries := testkit.RecordingLogger(t)
		action, requests := newAction(t, log, testkit.VeleroDeployment())
		execute(t, action, testkit.RestoreNamed("r").Result(), 50)
		require.Equal(t, []string{"create Job openshift-adp/post-restore-r-b684e1"}, written(requests))
		require.Equal(t, map[string]int{
			"list DeploymentConfig": 1, "list Pod": 1, "get Job": 1, "get Deployment": 1, "list ConfigMap": 1, "create Job": 1,
		}, requests.Count())
		said := slices.DeleteFunc(entries.AllEntries(), func(e *logrus.Entry) bool { return e.Data["job"] == nil })
		require.Len(t, said, 1, "one line a restore")
		require.Equal(t, "openshift-adp/post-restore-r-b684e1", said[0].Data["job"])
	})
	t.Run("not where nothing has an operation", func(t *testing.T) {
		t.Parallel()
		action, requests := newAction(t, testkit.Logger(t), testkit.VeleroDeployment())
		output, err := action.Execute(testkit.Input(testkit.RestoreNamed("r").Result(), web().Obj()))
		require.NoError(t, err)
		require.Empty(t, output.OperationID)
		require.Empty(t, requests.Writes())
	})
	t.Run("not with resume: manual", func(t *testing.T) {
		t.Parallel()
		action, requests := newAction(t, testkit.Logger(t), testkit.VeleroDeployment())
		r := testkit.RestoreNamed("r").Result()
		r.Annotations = map[string]string{"oadp.openshift.io/dc-resume": "manual"}
		execute(t, action, r, 1)
		require.Empty(t, requests.Writes())
	})
	t.Run("no item is lost where none can be made", func(t *testing.T) {
		t.Parallel()
		log, entries := testkit.RecordingLogger(t)
		action, requests := newAction(t, log, testkit.VeleroDeployment())
		requests.Fail(func(r testkit.Request) error {
			if r.Kind == "Job" {
				return apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "", nil)
			}
			return nil
		})
		execute(t, action, testkit.RestoreNamed("r").Result(), 5)
		warnings := slices.DeleteFunc(entries.AllEntries(), func(e *logrus.Entry) bool { return e.Level != logrus.WarnLevel })
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0].Message, "/plugins/velero-plugin-for-openshift-dr post-restore r")
		require.ErrorContains(t, warnings[0].Data["error"].(error), "jobs.batch")
	})
}

func written(requests *testkit.Requests) []string {
	var writes []string
	for _, request := range requests.Writes() {
		writes = append(writes, request.String())
	}
	return writes
}

func TestProgressAndCancelAreTheDrivers(t *testing.T) {
	t.Parallel()
	action, _ := newAction(t, testkit.Logger(t))
	r := testkit.RestoreNamed("r").Result()
	progress, err := action.Progress("dc/v1/uid-of-r/shop/web", r)
	require.NoError(t, err)
	require.True(t, progress.Completed)
	require.Equal(t, "nothing is held", progress.Description)
	require.NoError(t, action.Cancel("dc/v1/uid-of-r/shop/web", r))
	_, err = action.Progress("x", r)
	require.ErrorContains(t, err, "is invalid")
	require.ErrorContains(t, action.Cancel("x", r), "is invalid")
}

func copyOf(input *velero.RestoreItemActionExecuteInput) *velero.RestoreItemActionExecuteInput {
	return &velero.RestoreItemActionExecuteInput{
		Item:           input.Item.(*unstructured.Unstructured).DeepCopy(),
		ItemFromBackup: input.ItemFromBackup.(*unstructured.Unstructured).DeepCopy(),
		Restore:        input.Restore.DeepCopy(),
	}
}
