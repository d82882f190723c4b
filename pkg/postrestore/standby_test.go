package postrestore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func withHooks(names ...string) *velerov1.Restore {
	r := testkit.RestoreNamed("r").Result()
	for _, name := range names {
		r.Spec.Hooks.Resources = append(r.Spec.Hooks.Resources, velerov1.RestoreResourceHookSpec{
			Name: name, PostHooks: []velerov1.RestoreResourceHook{{Exec: &velerov1.ExecRestoreHook{Command: []string{"true"}}}},
		})
	}
	return r
}

func TestTheOperationNamesTheJobThatGoesOn(t *testing.T) {
	t.Parallel()
	const id = "dc/v1/uid-of-r/shop/web"
	const because = "phase two waits for the end of restore r, because Velero runs an exec hook (warm) in a detached pod until then; "
	tests := map[string]struct {
		objects []client.Object
		fail    func(testkit.Request) error
		want    string
	}{
		"a Job": {
			objects: []client.Object{testkit.VeleroDeployment()}, want: because + "then the Job openshift-adp/post-restore-r-b684e1 goes on",
		},
		"no Deployment to copy": {
			want: because + "no Job stands by to go on (namespace openshift-adp has no Deployment velero to copy the pod from); then run: " + command,
		},
		"no right to make one": {
			objects: []client.Object{testkit.VeleroDeployment()}, fail: failing("create", "Job", forbidden("create", "jobs")),
			want: because + `no Job stands by to go on (create the Job openshift-adp/post-restore-r-b684e1: jobs is forbidden: velero may not create jobs); then run: ` + command,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append(tc.objects, backup(), heldWeb(2, false).Obj(), readyPod("a").Obj())...)
			w.requests.Fail(tc.fail)
			progress := w.progress(w.newDriver(), id, withHooks("warm"))
			require.True(t, progress.Completed)
			require.Empty(t, progress.Err)
			require.Equal(t, tc.want, progress.Description)
			require.Equal(t, []string{"a"}, w.pods())
		})
	}
}

// What has no exec hook is the operation's own business: a poll makes no Job, and does not ask for one.
func TestAPollWithoutHooksAsksForNoJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.VeleroDeployment(), backup(), heldWeb(2, false).Obj(), detached("a").InitializedFalse().Obj())
	w.progress(w.newDriver(), "dc/v1/uid-of-r/shop/web", testkit.RestoreNamed("r").Result())
	for _, kind := range []string{"Job", "Deployment"} {
		require.NotContains(t, w.requests.Count(), "get "+kind)
	}
	require.NotContains(t, w.requests.Count(), "create Job")
}

func TestAFailedHookIsTold(t *testing.T) {
	t.Parallel()
	failed := &velerov1.HookStatus{HooksAttempted: 3, HooksFailed: 1}
	const back = "back at 2 replicas"
	tests := map[string]struct {
		restore *velerov1.Restore
		status  *velerov1.HookStatus
		want    string
	}{
		"a hook of the restore failed": {
			restore: withHooks("warm"), status: failed, want: back + "; 1 of 3 exec hooks of the restore failed: see `velero restore logs r -n openshift-adp`",
		},
		"the only hook failed": {
			restore: withHooks("warm"), status: &velerov1.HookStatus{HooksAttempted: 1, HooksFailed: 1},
			want: back + "; 1 of 1 exec hook of the restore failed: see `velero restore logs r -n openshift-adp`",
		},
		"all hooks ran well": {restore: withHooks("warm"), status: &velerov1.HookStatus{HooksAttempted: 3}, want: back},
		"Velero was restarted before it wrote anything": {
			restore: withHooks("warm", "load"), want: back + "; whether its exec hook (warm, load) has run to its end is not known: see `velero restore logs r -n openshift-adp`",
		},
		"Velero was restarted and knows of no hook any more": {
			restore: withHooks("warm"), status: &velerov1.HookStatus{}, want: back + "; whether its exec hook (warm) has run to its end is not known: see `velero restore logs r -n openshift-adp`",
		},
		"a hook failed in a pod of another application": {restore: withHooks(), status: failed, want: back},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj())
			tc.restore.Status.HookStatus = tc.status
			report := w.pass(postrestore.ScopeOf(tc.restore, false, true, postrestore.Options{StartTimeout: 5 * time.Minute}))
			require.Equal(t, tc.want, w.result(report, "web").Sentence(), "the table, though the pods are gone when it is back")
			require.False(t, w.result(report, "web").Failed(), "the hook's outcome does not decide")

			var events corev1.EventList
			require.NoError(t, w.base.List(t.Context(), &events))
			i := slices.IndexFunc(events.Items, func(e corev1.Event) bool { return e.Reason == postrestore.ResumedReason })
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, "Resumed after restore r: "+tc.want, events.Items[i].Message)
			w.requireUnmarked()
		})
	}
}

func TestGiveUpWritesAnEventOnAllThatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, false).Obj(), detached("a").InitializedFalse().Obj(),
		testkit.MakeDC("shop", "db").Held(testkit.OwnerNamed("r"), 1, false).Obj())
	require.NoError(t, w.runner.GiveUp(t.Context(), scope()))
	require.ElementsMatch(t, []string{"ResumeFailed web", "ResumeFailed db"}, w.events())
	require.NoError(t, w.runner.GiveUp(t.Context(), scope(), types.NamespacedName{Namespace: "shop", Name: "web"}))
	require.Len(t, w.events(), 2, "said once")
	require.Empty(t, w.writes())
}
