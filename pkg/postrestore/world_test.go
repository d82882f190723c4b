package postrestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// skippingClock is a fake clock for code that waits: a timer jumps to its end at once.
type skippingClock struct{ *clocktesting.FakeClock }

func newClock() skippingClock {
	return skippingClock{clocktesting.NewFakeClock(testkit.Epoch.Add(time.Minute))}
}

func (c skippingClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// world is a cluster with objects in it, as phase two meets it.
type world struct {
	t        *testing.T
	base     client.WithWatch
	client   client.WithWatch
	requests *testkit.Requests
	clock    skippingClock
	runner   *postrestore.Runner
}

// newWorld has OpenShift's DeploymentConfig controller in it, which acts whenever a DeploymentConfig is patched.
func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	w := &world{t: t, base: testkit.FakeClient(t, objs...), clock: newClock()}
	openshift := interceptor.NewClient(w.base, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			return rollOut(ctx, c, obj)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := c.SubResource(sub).Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			return rollOut(ctx, c, obj)
		},
	})
	w.client, w.requests = testkit.Record(openshift)
	w.runner = postrestore.NewRunner(w.client, w.clock, testkit.Logger(t))
	return w
}

// rollOut does in one go what the controller does in many: nothing while paused; a first version where a trigger asks for
// one; a completed ReplicationController of the newest version with the replicas.
func rollOut(ctx context.Context, c client.Client, obj client.Object) error {
	dc, ok := obj.(*ocpappsv1.DeploymentConfig)
	if !ok || dc.Spec.Paused {
		return nil
	}
	dc = dc.DeepCopy()
	if err := c.Get(ctx, client.ObjectKeyFromObject(dc), dc); err != nil {
		return err
	}
	if dc.Status.LatestVersion == 0 && len(dc.Spec.Triggers) > 0 {
		dc.Status.LatestVersion = 1
		if err := c.Status().Update(ctx, dc); err != nil {
			return err
		}
	}
	if dc.Status.LatestVersion == 0 {
		return nil
	}
	rc := testkit.MakeRC(dc.Namespace, dc.Name, dc.Status.LatestVersion).Replicas(dc.Spec.Replicas).Obj()
	if err := c.Create(ctx, rc); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	found := &corev1.ReplicationController{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(rc), found); err != nil {
		return err
	}
	found.Spec.Replicas = rc.Spec.Replicas
	if err := c.Update(ctx, found); err != nil {
		return err
	}
	found.Status.Replicas = *rc.Spec.Replicas
	return c.Status().Update(ctx, found)
}

// scope is that of restore r, which has not ended.
func scope(edit ...func(*postrestore.Scope)) postrestore.Scope {
	s := postrestore.ScopeOf(testkit.RestoreNamed("r").Result(), false, false, postrestore.Options{StartTimeout: 5 * time.Minute})
	for _, e := range edit {
		e(&s)
	}
	return s
}

func (w *world) look(s postrestore.Scope) []postrestore.State {
	w.t.Helper()
	states, err := w.runner.Look(w.t.Context(), s)
	require.NoError(w.t, err)
	return states
}

func (w *world) pass(s postrestore.Scope) postrestore.Report {
	w.t.Helper()
	report, err := w.runner.Pass(w.t.Context(), s, 5*time.Second)
	require.NoError(w.t, err)
	return report
}

// result returns what a report says of a DeploymentConfig in namespace shop.
func (w *world) result(report postrestore.Report, name string) postrestore.Result {
	w.t.Helper()
	result, ok := report.Find(types.NamespacedName{Namespace: "shop", Name: name})
	require.True(w.t, ok, "the report says nothing of %s: %+v", name, report)
	return result
}

func (w *world) dc(name string) *ocpappsv1.DeploymentConfig {
	w.t.Helper()
	dc := &ocpappsv1.DeploymentConfig{}
	require.NoError(w.t, w.base.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, dc))
	return dc
}

func (w *world) pods() []string {
	w.t.Helper()
	var list corev1.PodList
	require.NoError(w.t, w.base.List(w.t.Context(), &list))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// events returns "<reason> <DeploymentConfig>" of each event.
func (w *world) events() []string {
	w.t.Helper()
	var list corev1.EventList
	require.NoError(w.t, w.base.List(w.t.Context(), &list))
	var reasons []string
	for i := range list.Items {
		reasons = append(reasons, list.Items[i].Reason+" "+list.Items[i].InvolvedObject.Name)
	}
	return reasons
}

// writes returns the requests so far that changed something, events left out.
func (w *world) writes() []string {
	var writes []string
	for _, request := range w.requests.Writes() {
		if request.Kind != "Event" {
			writes = append(writes, request.String())
		}
	}
	return writes
}

// requireUnmarked asserts that no object of the cluster carries a name of ours (I3).
func (w *world) requireUnmarked() {
	w.t.Helper()
	var dcs ocpappsv1.DeploymentConfigList
	require.NoError(w.t, w.base.List(w.t.Context(), &dcs))
	var pods corev1.PodList
	require.NoError(w.t, w.base.List(w.t.Context(), &pods))
	objs := []metav1.Object{}
	for i := range dcs.Items {
		objs = append(objs, &dcs.Items[i])
	}
	for i := range pods.Items {
		objs = append(objs, &pods.Items[i])
	}
	for _, obj := range objs {
		for _, keys := range []map[string]string{obj.GetLabels(), obj.GetAnnotations()} {
			for key := range keys {
				require.NotContains(w.t, key, "oadp.openshift.io/", "%s/%s is still marked", obj.GetNamespace(), obj.GetName())
			}
		}
	}
}

// podVolumeRestore is one of restore r for a pod of testkit.
func podVolumeRestore(name string, pod *corev1.Pod, volume string, phase velerov1.PodVolumeRestorePhase) *velerov1.PodVolumeRestore {
	pvr := builder.ForPodVolumeRestore(testkit.VeleroNamespace, name).
		Labels(map[string]string{velerov1.RestoreNameLabel: "r"}).
		PodNamespace(pod.Namespace).PodName(pod.Name).Volume(volume).Phase(phase).Result()
	pvr.Spec.Pod.UID = pod.UID
	return pvr
}

func forbidden(verb, resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("velero may not %s %s", verb, resource))
}

// notServed is what a list of a resource that the API server does not know answers.
func notServed(group, resource string) error {
	return apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Group: group, Resource: resource}, "", "", 0, true)
}

func failing(verb, kind string, err error) func(testkit.Request) error {
	return func(r testkit.Request) error {
		if r.Verb == verb && r.Kind == kind {
			return err
		}
		return nil
	}
}

var schemaPods = schema.GroupResource{Resource: "pods"}
