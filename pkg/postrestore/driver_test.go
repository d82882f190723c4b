package postrestore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

const command = "kubectl -n openshift-adp exec deploy/velero -c velero -- /plugins/velero-plugin-for-openshift-dr post-restore r"

// newDriver is what one plugin process has: facts and passes of its own.
func (w *world) newDriver() *postrestore.Driver {
	return postrestore.NewDriver(w.client, w.runner, restore.NewCache(w.client), w.clock)
}

func (w *world) progress(d *postrestore.Driver, id string, r *velerov1.Restore) velero.OperationProgress {
	w.t.Helper()
	progress, err := d.Progress(testkit.Logger(w.t), id, r)
	require.NoError(w.t, err)
	return progress
}

func backup() client.Object { return builder.ForBackup(testkit.VeleroNamespace, "backup").Result() }

func TestProgress(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	hook := func(r *velerov1.Restore) {
		r.Spec.Hooks.Resources = []velerov1.RestoreResourceHookSpec{{Name: "warm", PostHooks: []velerov1.RestoreResourceHook{{Exec: &velerov1.ExecRestoreHook{Command: []string{"true"}}}}}}
	}
	byLabel := func(r *velerov1.Restore) { r.Spec.LabelSelector = &metav1.LabelSelector{} }
	annotate := func(value string) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) { r.Annotations = map[string]string{"oadp.openshift.io/dc-resume": value} }
	}
	config := func(data ...string) client.Object {
		return builder.ForConfigMap(testkit.VeleroNamespace, "dr-settings").Data(data...).
			ObjectMeta(builder.WithLabels("velero.io/plugin-config", "", "oadp.openshift.io/deploymentconfig-restore", "RestoreItemAction")).Result()
	}
	waiting := func() client.Object { return detached("a").InitializedFalse().Obj() }
	const dcID, podsID = "dc/v1/uid-of-r/shop/web", "pods/v1/uid-of-r"
	tests := map[string]struct {
		objects []client.Object
		restore func(*velerov1.Restore)
		fail    func(testkit.Request) error
		id      string

		completed bool
		done, of  int64
		// says are parts of the description, fails of the error; no parts: it has none.
		says, fails []string
		// writes are what was written, events apart; nil: whatever.
		untouched bool
	}{
		"data is on its way": {
			objects: []client.Object{heldWeb(2, false).Obj(), waiting(), readyPod("b").Obj()}, id: dcID,
			done: 1, of: 2, says: []string{"1 of 2 detached pods initialised"}, untouched: true,
		},
		"the data is in: it is back within one poll": {
			objects: []client.Object{heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj()}, id: dcID, completed: true, says: []string{"back at 2 replicas"},
		},
		"nothing is held": {id: dcID, completed: true, says: []string{"nothing is held"}, untouched: true},
		"I3: a volume restore failed": {
			objects: []client.Object{heldWeb(2, false).Obj(), detached("a").InitializedFalse().Obj(), podVolumeRestore("p", detached("a").Obj(), "data", velerov1.PodVolumeRestorePhaseFailed)},
			id:      dcID, completed: true, of: 1, says: []string{"PodVolumeRestore p"}, fails: []string{"DeploymentConfig shop/web", "PodVolumeRestore p of volume data in pod a failed", command}, untouched: true,
		},
		"I3: a pod cannot start, after the start timeout of the settings": {
			objects: []client.Object{heldWeb(2, false).Obj(), detached("a").Unschedulable("0/3 nodes").Obj(), config("startTimeout", "30s")},
			id:      dcID, completed: true, of: 1, says: []string{"0/3 nodes"}, fails: []string{"DeploymentConfig shop/web", "pod a cannot start", command}, untouched: true,
		},
		"a pod cannot start, before the default start timeout": {
			objects: []client.Object{heldWeb(2, false).Obj(), detached("a").Unschedulable("0/3 nodes").Obj()}, id: dcID, of: 1, says: []string{"0 of 1"}, untouched: true,
		},
		"an exec hook applies: the operation completes, and says what finishes it": {
			objects: []client.Object{heldWeb(2, false).Obj(), readyPod("a").Obj()}, restore: hook, id: dcID,
			completed: true, done: 1, of: 1, says: []string{"waits for the end of restore r", "(warm)", "then run: " + command}, untouched: true,
		},
		"resume: manual in the settings": {
			objects: []client.Object{heldWeb(2, false).Obj(), readyPod("a").Obj(), config("resume", "manual")}, id: dcID,
			completed: true, done: 1, of: 1, says: []string{"held for a person to resume (resume: manual)", command}, untouched: true,
		},
		"resume: manual by annotation": {
			objects: []client.Object{heldWeb(2, false).Obj(), waiting()}, restore: annotate("manual"), id: dcID,
			completed: true, of: 1, says: []string{command}, untouched: true,
		},
		"resume: manual and nothing is held": {restore: annotate("manual"), id: dcID, completed: true, says: []string{"nothing is held"}, untouched: true},
		"settings are wrong: nothing is done, and the ConfigMap is named": {
			objects: []client.Object{heldWeb(2, false).Obj(), readyPod("a").Obj(), config("resume", "later")}, id: dcID,
			completed: true, fails: []string{"phase two of restore r cannot run", "ConfigMap openshift-adp/dr-settings", `"later"`, command}, untouched: true,
		},
		"settings cannot be read now": {
			objects: []client.Object{heldWeb(2, false).Obj(), readyPod("a").Obj()}, fail: failing("list", "ConfigMap", apierrors.NewServiceUnavailable("x")), id: dcID,
			says: []string{"not yet: ", "ConfigMap"}, untouched: true,
		},
		"the cluster cannot be looked at now": {
			objects: []client.Object{heldWeb(2, false).Obj()}, fail: failing("list", "Pod", apierrors.NewServerTimeout(schemaPods, "list", 1)), id: dcID,
			says: []string{"not yet: list detached pods"}, untouched: true,
		},
		"the cluster may not be looked at": {
			objects: []client.Object{heldWeb(2, false).Obj()}, fail: failing("list", "Pod", forbidden("list", "pods")), id: dcID,
			completed: true, fails: []string{"phase two of restore r cannot run", "velero may not list pods", command}, untouched: true,
		},
		"the DeploymentConfig may not be patched": {
			objects: []client.Object{heldWeb(2, false).Obj(), heldRC("web").Obj()}, fail: failing("patch", "DeploymentConfig", forbidden("patch", "deploymentconfigs")), id: dcID,
			completed: true, says: []string{"scaling to 2 replicas"}, fails: []string{"DeploymentConfig shop/web", "velero may not patch deploymentconfigs", command},
		},
		"the DeploymentConfig cannot be patched now": {
			objects: []client.Object{heldWeb(2, false).Obj(), heldRC("web").Obj()}, fail: failing("patch", "DeploymentConfig", apierrors.NewServiceUnavailable("x")), id: dcID,
			says: []string{"scaling to 2 replicas: not yet: "},
		},
		"the backup is gone": {
			objects: []client.Object{heldWeb(2, false).Obj(), heldRC("web").Obj()}, fail: failing("get", "Backup", apierrors.NewNotFound(schemaPods, "backup")), id: dcID,
			completed: true, says: []string{"back at 2 replicas"},
		},
		"the backup cannot be read now": {
			objects: []client.Object{heldWeb(2, false).Obj(), heldRC("web").Obj()}, fail: failing("get", "Backup", apierrors.NewServiceUnavailable("x")), id: dcID,
			says: []string{"not yet: get Backup openshift-adp/backup"}, untouched: true,
		},
		"another DeploymentConfig of the restore failed: that is not this one's business": {
			objects: []client.Object{
				heldWeb(2, false).Obj(), heldRC("web").Obj(), testkit.MakeDC("shop", "db").Held(owner, 1, false).Obj(),
				testkit.MakePod("shop", "db", 1).Named("d").Detached(owner).Phase(corev1.PodFailed, "", "").Obj(),
			},
			id: dcID, completed: true, says: []string{"back at 2 replicas"},
		},
		"a DeploymentConfig that was at 0: its pods are seen off": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Replicas(0).Obj(), readyPod("a").Obj()}, id: dcID,
			completed: true, says: []string{"its detached pods are gone and nothing holds it"},
		},

		// The operation that looks after pods whose DeploymentConfig did not come.
		"pods: each has its DeploymentConfig": {
			objects: []client.Object{heldWeb(2, false).Obj(), waiting()}, restore: byLabel, id: podsID, completed: true, says: []string{"every detached pod has its DeploymentConfig"}, untouched: true,
		},
		"pods: none": {restore: byLabel, id: podsID, completed: true, says: []string{"every detached pod has its DeploymentConfig"}},
		"pods: theirs was not chosen": {
			objects: []client.Object{readyPod("a").Obj()}, restore: byLabel, id: podsID, completed: true, says: []string{"DeploymentConfig shop/web: its DeploymentConfig was not chosen"},
		},
		"pods: theirs was to come and did not": {
			objects: []client.Object{readyPod("a").Obj()}, id: podsID, completed: true,
			says: []string{"DeploymentConfig shop/web: "}, fails: []string{"DeploymentConfig shop/web", "only copy of the data", command}, untouched: true,
		},
		"pods: their data is on its way": {
			objects: []client.Object{waiting()}, id: podsID, says: []string{"DeploymentConfig shop/web: 0 of 1 detached pod initialised"}, untouched: true,
		},
		"pods: resume is manual": {
			objects: []client.Object{waiting()}, restore: annotate("manual"), id: podsID, completed: true, says: []string{"0 of 1"}, untouched: true,
		},
		"pods: some wait, the last one is done": {
			objects: []client.Object{testkit.MakePod("shop", "api", 1).Named("b").Detached(owner).InitializedFalse().Obj(), readyPod("a").Obj()}, id: podsID,
			fails: []string{"DeploymentConfig shop/web"}, says: []string{"shop/web"}, untouched: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append(tc.objects, backup())...)
			r := testkit.RestoreNamed("r").Result()
			if tc.restore != nil {
				tc.restore(r)
			}
			before := r.DeepCopy()
			w.requests.Fail(tc.fail)
			got := w.progress(w.newDriver(), tc.id, r)
			require.Equal(t, tc.completed, got.Completed, "%+v", got)
			require.Equal(t, tc.done, got.NCompleted)
			require.Equal(t, tc.of, got.NTotal)
			require.Equal(t, "pods", got.OperationUnits)
			require.Equal(t, testkit.Epoch.Time, got.Started)
			require.Equal(t, w.clock.Now(), got.Updated)
			for _, part := range tc.says {
				require.Contains(t, got.Description, part)
			}
			for _, part := range tc.fails {
				require.Contains(t, got.Err, part)
			}
			require.Equal(t, len(tc.fails) > 0, got.Err != "", got.Err)
			if tc.untouched {
				require.Empty(t, w.writes())
			}
			require.Equal(t, before, r, "the restore was changed")
		})
	}
}

func TestProgressRefusesAnIDThatIsNotOfThisRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, false).Obj(), backup())
	for _, id := range []string{"", "dc/v1/uid-of-s/shop/web", "du-1234", "pods/v1/"} {
		_, err := w.newDriver().Progress(testkit.Logger(t), id, testkit.RestoreNamed("r").Result())
		require.ErrorContains(t, err, "is invalid", id)
		require.Error(t, w.newDriver().Cancel(testkit.Logger(t), id, testkit.RestoreNamed("r").Result()), id)
	}
	require.Empty(t, w.requests.All())
}

// One pass answers for all operations of a poll: 500 cost no more lists than one.
func TestOnePassAnswersForAllOperationsOfAPoll(t *testing.T) {
	t.Parallel()
	objects := []client.Object{backup()}
	for i := range 500 {
		name := fmt.Sprintf("web-%d", i)
		objects = append(objects, testkit.MakeDC("shop", name).Held(testkit.OwnerNamed("r"), 1, false).Obj(),
			testkit.MakePod("shop", name, 1).Named(name).Detached(testkit.OwnerNamed("r")).InitializedFalse().Obj())
	}
	w := newWorld(t, objects...)
	driver := w.newDriver()
	var asked sync.WaitGroup
	for i := range 500 {
		asked.Go(func() {
			got, err := driver.Progress(testkit.Logger(t), fmt.Sprintf("dc/v1/uid-of-r/shop/web-%d", i), testkit.RestoreNamed("r").Result())
			if err != nil || got.Completed || got.NTotal != 1 {
				t.Errorf("operation %d: %+v, %v", i, got, err)
			}
		})
	}
	asked.Wait()
	counts := w.requests.Count()
	delete(counts, "create Event") // one a DeploymentConfig, once
	require.Equal(t, map[string]int{
		"list ConfigMap": 1, "get Backup": 1, "list Event": 1, "list DeploymentConfig": 1, "list Pod": 1, "list ReplicationController": 1,
		"list PodVolumeRestore": 1, "list DataDownload": 1,
	}, counts)
}

func TestAnOldPassIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, false).Obj(), detached("a").InitializedFalse().Obj(), backup())
	driver, r := w.newDriver(), testkit.RestoreNamed("r").Result()
	ask := func() int {
		w.progress(driver, "dc/v1/uid-of-r/shop/web", r)
		return len(w.requests.Of("list", "Pod"))
	}
	require.Equal(t, 1, ask())
	w.clock.Step(3 * time.Second)
	require.Equal(t, 1, ask(), "3 seconds old: the same poll")
	w.clock.Step(time.Millisecond)
	require.Equal(t, 2, ask(), "older than 3 seconds")

	s := testkit.RestoreNamed("s").Result()
	w.progress(driver, "dc/v1/uid-of-s/shop/web", s)
	require.Len(t, w.requests.Of("list", "Pod"), 3, "another restore has a pass of its own")
	require.Equal(t, 3, ask(), "and does not take the place of the first")
}

// Velero rewrites the operation's status whenever Started moves.
func TestStartedIsTheSameAtEveryPoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, false).Obj(), detached("a").InitializedFalse().Obj(), backup())
	r := testkit.RestoreNamed("r").Result()
	for range 3 {
		require.Equal(t, testkit.Epoch.Time, w.progress(w.newDriver(), "dc/v1/uid-of-r/shop/web", r).Started)
		w.clock.Step(10 * time.Second)
	}
	r.Status.StartTimestamp = nil
	require.Zero(t, w.progress(w.newDriver(), "dc/v1/uid-of-r/shop/web", r).Started)
}

// A poll is a new process each time: nothing may be remembered in one.
func TestPhaseTwoGoesOnInANewProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Finalizer("example.com/keep").Obj(), backup())
	const id = "dc/v1/uid-of-r/shop/web"
	r := testkit.RestoreNamed("r").Result()
	first := w.progress(w.newDriver(), id, r)
	require.False(t, first.Completed)
	require.Contains(t, first.Description, "to be gone")

	pod := &corev1.Pod{}
	require.NoError(t, w.base.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "a"}, pod))
	pod.Finalizers = nil
	require.NoError(t, w.base.Update(t.Context(), pod))
	second := w.progress(w.newDriver(), id, r)
	require.True(t, second.Completed)
	require.Empty(t, second.Err)
	w.requireUnmarked()

	third := w.progress(w.newDriver(), id, r)
	require.True(t, third.Completed, "I4: asked again, it says so again")
	require.Equal(t, "nothing is held", third.Description)
	require.Len(t, w.events(), 2)
}

func TestCancelWritesNothingButAnEvent(t *testing.T) {
	t.Parallel()
	log, entries := testkit.RecordingLogger(t)
	w := newWorld(t, heldWeb(2, false).Obj(), readyPod("a").Obj(), testkit.MakeDC("shop", "db").Held(testkit.OwnerNamed("r"), 1, false).Obj(), backup())
	r := testkit.RestoreNamed("r").Result()
	driver := w.newDriver()
	require.NoError(t, driver.Cancel(log, "dc/v1/uid-of-r/shop/web", r))
	require.Empty(t, w.writes())
	require.Equal(t, []string{"ResumeFailed web"}, w.events())
	var list corev1.EventList
	require.NoError(t, w.base.List(t.Context(), &list))
	require.Contains(t, list.Items[0].Message, "its time is up: deleting 1 detached pod")
	require.Contains(t, list.Items[0].Message, command)
	require.Len(t, entries.AllEntries(), 1)
	require.Contains(t, entries.LastEntry().Message, command)
	require.Equal(t, "dc/v1/uid-of-r/shop/web", entries.LastEntry().Data["operationID"])

	require.NoError(t, driver.Cancel(log, "dc/v1/uid-of-r/shop/web", r), "cancelled twice")
	require.Len(t, w.events(), 1)
	require.NoError(t, driver.Cancel(log, "dc/v1/uid-of-r/shop/gone", r), "nothing is held")
	require.NoError(t, driver.Cancel(log, "pods/v1/uid-of-r", r))
	require.Len(t, w.events(), 1)

	w.requests.Fail(failing("list", "Pod", forbidden("list", "pods")))
	require.ErrorContains(t, driver.Cancel(log, "dc/v1/uid-of-r/shop/web", r), "list detached pods", "its own failure is logged, Velero drops it")
	require.Equal(t, "error", entries.LastEntry().Level.String())
}
