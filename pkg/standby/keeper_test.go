package standby_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/standby"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func newKeeper(t *testing.T, objects ...client.Object) (*standby.Keeper, client.Client, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objects...))
	return standby.NewKeeper(c, clocktesting.NewFakePassiveClock(testkit.Epoch.Time)), c, requests
}

// monday is the Job of the restore monday, as it stands in the cluster.
func monday(t *testing.T, change ...func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	job := standby.Build(deployment(t), testkit.RestoreNamed("monday").Result(), testkit.Epoch.Time, testkit.Epoch.Time)
	for _, c := range change {
		c(job)
	}
	return job
}

func condition(kind batchv1.JobConditionType) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{
			{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}, {Type: kind, Status: corev1.ConditionTrue},
		}
	}
}

func forbidden(verb, group, resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, "", errors.New(
		`User "system:serviceaccount:openshift-adp:velero" cannot `+verb+` resource "`+resource+`" in API group "`+group+`" in the namespace "openshift-adp"`))
}

func failing(verb, kind string, err error) func(testkit.Request) error {
	return func(r testkit.Request) error {
		if r.Verb == verb && r.Kind == kind {
			return err
		}
		return nil
	}
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	const name = "post-restore-monday-89b086"
	config := func(data ...string) client.Object {
		return builder.ForConfigMap(testkit.VeleroNamespace, "dr-settings").Data(data...).
			ObjectMeta(builder.WithLabels("velero.io/plugin-config", "", "oadp.openshift.io/deploymentconfig-restore", "RestoreItemAction")).Result()
	}
	another := func(name string, labels map[string]string) client.Object {
		d := deployment(t)
		d.Name, d.Labels = name, labels
		return d
	}
	none := func(*velerov1.Restore) {}
	tests := map[string]struct {
		objects []client.Object
		restore func(*velerov1.Restore)
		fail    func(testkit.Request) error

		stands, created bool
		reason          []string
		requests        map[string]int
	}{
		"a Job is made": {
			objects: []client.Object{deployment(t)}, stands: true, created: true,
			requests: map[string]int{"get Job": 1, "get Deployment": 1, "list ConfigMap": 1, "create Job": 1},
		},
		"a Job is there": {
			objects: []client.Object{deployment(t), monday(t)}, stands: true, requests: map[string]int{"get Job": 1},
		},
		"another process makes it at the same moment": {
			objects: []client.Object{deployment(t)}, fail: failing("create", "Job", apierrors.NewAlreadyExists(schema.GroupResource{Group: "batch", Resource: "jobs"}, name)), stands: true,
		},
		"it has failed": {
			objects: []client.Object{deployment(t), monday(t, condition(batchv1.JobFailed))}, reason: []string{"the Job openshift-adp/" + name + " has ended already, see its log"},
		},
		"it has succeeded": {
			objects: []client.Object{deployment(t), monday(t, condition(batchv1.JobComplete))}, reason: []string{"has ended already"},
		},
		"it is being deleted": {
			objects: []client.Object{deployment(t), monday(t, func(j *batchv1.Job) {
				j.Finalizers, j.DeletionTimestamp = []string{"orphan"}, new(testkit.Epoch)
			})},
			reason: []string{"is being deleted"},
		},
		"a Job of that name that is somebody else's": {
			objects: []client.Object{deployment(t), monday(t, func(j *batchv1.Job) { j.OwnerReferences = nil })}, reason: []string{"does not belong to this restore"},
		},
		"Velero's Deployment has another name": {
			objects: []client.Object{another("dr-velero", map[string]string{"component": "velero"})}, stands: true, created: true,
			requests: map[string]int{"get Job": 1, "get Deployment": 1, "list Deployment": 1, "list ConfigMap": 1, "create Job": 1},
		},
		"a Deployment of another name and label is not Velero's": {
			objects: []client.Object{another("operator", map[string]string{"control-plane": "controller-manager"})},
			reason:  []string{"namespace openshift-adp has no Deployment velero to copy the pod from"},
		},
		"resume: manual in the settings": {
			objects: []client.Object{deployment(t), config("resume", "manual")}, reason: []string{"the settings leave phase two to a person"},
		},
		"resume: manual by annotation": {
			objects: []client.Object{deployment(t)}, reason: []string{"to a person"},
			restore: func(r *velerov1.Restore) {
				r.Annotations = map[string]string{"oadp.openshift.io/dc-resume": "manual"}
			},
		},
		"settings are wrong: who may delete pods is not guessed at": {
			objects: []client.Object{deployment(t), config("resume", "later")}, reason: []string{"read the settings", "dr-settings", `"later"`},
		},
		"Jobs may not be created": {
			objects: []client.Object{deployment(t)}, fail: failing("create", "Job", forbidden("create", "batch", "jobs")),
			reason: []string{"create the Job openshift-adp/" + name, `cannot create resource "jobs" in API group "batch" in the namespace "openshift-adp"`},
		},
		"Jobs may not be read": {
			objects: []client.Object{deployment(t)}, fail: failing("get", "Job", forbidden("get", "batch", "jobs")), reason: []string{"look for the Job", `cannot get resource "jobs"`},
		},
		"Deployments may not be read": {
			objects: []client.Object{deployment(t)}, fail: failing("get", "Deployment", forbidden("get", "apps", "deployments")),
			reason: []string{"find Velero's Deployment in namespace openshift-adp", `cannot get resource "deployments"`},
		},
		"Deployments may not be listed": {
			fail: failing("list", "Deployment", forbidden("list", "apps", "deployments")), reason: []string{`cannot list resource "deployments"`},
		},
	}
	for what, tc := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			keeper, c, requests := newKeeper(t, tc.objects...)
			requests.Fail(tc.fail)
			r := testkit.RestoreNamed("monday").Result()
			if tc.restore == nil {
				tc.restore = none
			}
			tc.restore(r)
			before := r.DeepCopy()

			got, first := keeper.Ensure(t.Context(), r)
			require.True(t, first)
			require.Equal(t, tc.stands, got.Stands(), got.Reason)
			require.Equal(t, tc.created, got.Created)
			for _, part := range tc.reason {
				require.Contains(t, got.Reason, part)
			}
			if tc.requests != nil {
				require.Equal(t, tc.requests, requests.Count())
			}
			require.Equal(t, before, r, "the Restore was changed")
			if !tc.created {
				return
			}
			require.Equal(t, types.NamespacedName{Namespace: "openshift-adp", Name: name}, got.Job)
			require.NoError(t, c.Get(t.Context(), got.Job, &batchv1.Job{}))
		})
	}
}

// A restore of many DeploymentConfigs costs what one costs, whoever asks.
func TestEnsureAsksOnceAProcess(t *testing.T) {
	t.Parallel()
	keeper, c, requests := newKeeper(t, deployment(t))
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			got, _ := keeper.Ensure(t.Context(), testkit.RestoreNamed("monday").Result())
			assert.True(t, got.Stands())
		})
	}
	group.Wait()
	require.Equal(t, map[string]int{"get Job": 1, "get Deployment": 1, "list ConfigMap": 1, "create Job": 1}, requests.Count())
	var jobs batchv1.JobList
	require.NoError(t, c.List(t.Context(), &jobs))
	require.Len(t, jobs.Items, 1)

	got, first := keeper.Ensure(t.Context(), testkit.RestoreNamed("tuesday").Result())
	require.True(t, first)
	require.True(t, got.Created, "each restore has its own")
}

func TestEnsureTriesAgainWhatMayPass(t *testing.T) {
	t.Parallel()
	r := testkit.RestoreNamed("monday").Result()
	t.Run("until it has", func(t *testing.T) {
		t.Parallel()
		keeper, _, requests := newKeeper(t, deployment(t))
		requests.Fail(failing("create", "Job", apierrors.NewServiceUnavailable("etcd is away")))
		got, _ := keeper.Ensure(t.Context(), r)
		require.False(t, got.Stands())
		require.ErrorContains(t, got.Err, "etcd is away")
		requests.Fail(nil)
		got, first := keeper.Ensure(t.Context(), r)
		require.True(t, first)
		require.True(t, got.Created)
	})
	t.Run("but three times at most", func(t *testing.T) {
		t.Parallel()
		keeper, _, requests := newKeeper(t, deployment(t))
		requests.Fail(failing("get", "Job", apierrors.NewServiceUnavailable("etcd is away")))
		for range 10 {
			keeper.Ensure(t.Context(), r)
		}
		require.Equal(t, map[string]int{"get Job": 3}, requests.Count())
	})
	t.Run("not what does not", func(t *testing.T) {
		t.Parallel()
		keeper, _, requests := newKeeper(t, deployment(t))
		requests.Fail(failing("get", "Job", forbidden("get", "batch", "jobs")))
		for range 10 {
			keeper.Ensure(t.Context(), r)
		}
		require.Equal(t, map[string]int{"get Job": 1}, requests.Count())
	})
}

func TestKeepForAnHour(t *testing.T) {
	t.Parallel()
	job := monday(t)
	c, requests := testkit.Record(testkit.FakeClient(t, job))
	require.NoError(t, standby.KeepForAnHour(t.Context(), c, client.ObjectKeyFromObject(job)))
	got := &batchv1.Job{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), got))
	require.Equal(t, ptr.To[int32](3600), got.Spec.TTLSecondsAfterFinished)
	require.Len(t, requests.Writes(), 1)

	err := standby.KeepForAnHour(t.Context(), c, types.NamespacedName{Namespace: "openshift-adp", Name: "gone"})
	require.ErrorContains(t, err, "have the Job openshift-adp/gone deleted in 1h0m0s")
}
