package postrestore_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// estate returns the objects of a restore in the middle: so many held DeploymentConfigs in 5 namespaces, each with its
// ReplicationController and 2 detached pods, each pod with a PodVolumeRestore.
func estate(owner disconnect.Owner, dcs int, dataIsIn bool) []client.Object {
	var objects []client.Object
	for i := range dcs {
		namespace, name := fmt.Sprintf("shop-%d", i%5), fmt.Sprintf("web-%03d", i)
		objects = append(objects,
			testkit.MakeDC(namespace, name).Held(owner, 2, false).LatestVersion(1).Obj(),
			testkit.MakeRC(namespace, name, 1).Desired(0).Replicas(0).Obj())
		for j := range 2 {
			pod := testkit.MakePod(namespace, name, 1).Named(fmt.Sprintf("%s-1-%d", name, j)).Claim("data", name).Detached(owner)
			phase := velerov1.PodVolumeRestorePhaseInProgress
			if dataIsIn {
				pod, phase = pod.InitializedTrue(), velerov1.PodVolumeRestorePhaseCompleted
			} else {
				pod = pod.InitializedFalse()
			}
			objects = append(objects, pod.Obj(), volumeRestoreOf(pod.Obj(), owner, phase))
		}
	}
	return objects
}

func volumeRestoreOf(pod *corev1.Pod, owner disconnect.Owner, phase velerov1.PodVolumeRestorePhase) *velerov1.PodVolumeRestore {
	return &velerov1.PodVolumeRestore{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.Restore.Namespace, Name: pod.Namespace + "-" + pod.Name,
			Labels: map[string]string{velerov1.RestoreNameLabel: owner.Label()},
		},
		Spec: velerov1.PodVolumeRestoreSpec{
			Pod:    corev1.ObjectReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Volume: "data",
		},
		Status: velerov1.PodVolumeRestoreStatus{Phase: phase},
	}
}

// BenchmarkPass is the work of one poll of Velero beside the requests themselves: the client is a fake one, whose own
// share is most of it.
func BenchmarkPass(b *testing.B) {
	owner := testkit.OwnerNamed("nightly")
	scope := postrestore.Scope{
		Owner:   owner,
		Restore: postrestore.Restore{NamespacedName: owner.Restore},
		Options: postrestore.Options{StartTimeout: 5 * time.Minute},
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	pass := func(b *testing.B, c client.Client, want postrestore.Action) {
		b.Helper()
		runner := postrestore.NewRunner(c, clocktesting.NewFakeClock(testkit.Epoch.Time), log)
		report, err := runner.Pass(b.Context(), scope, 0) // a budget of 0 is one look and one step of each
		if err != nil {
			b.Fatal(err)
		}
		if n := len(report.Results); n != 500 || report.Results[0].Step.Action != want {
			b.Fatalf("%d results, the first is %+v", n, report.Results[0])
		}
	}
	b.Run("500 wait", func(b *testing.B) {
		c := testkit.FakeClient(b, estate(owner, 500, false)...)
		pass(b, c, postrestore.Wait) // writes the events that each is held
		for b.Loop() {
			pass(b, c, postrestore.Wait)
		}
	})
	b.Run("500 delete their pods", func(b *testing.B) {
		objects := estate(owner, 500, true)
		for b.Loop() {
			b.StopTimer()
			c := testkit.FakeClient(b, objects...)
			b.StartTimer()
			pass(b, c, postrestore.DeletePods)
		}
	})
}

// BenchmarkNext is the decision on one DeploymentConfig.
func BenchmarkNext(b *testing.B) {
	owner := testkit.OwnerNamed("nightly")
	base := postrestore.State{
		Name:    types.NamespacedName{Namespace: "shop", Name: "web"},
		Restore: postrestore.Restore{NamespacedName: owner.Restore},
		Now:     testkit.Epoch.Time,
		Options: postrestore.Options{StartTimeout: 5 * time.Minute},
	}
	held := testkit.MakeDC("shop", "web").Held(owner, 3, false).LatestVersion(1)
	rc := testkit.MakeRC("shop", "web", 1).Desired(0)
	pods := func(of *testkit.Pod) []postrestore.Pod {
		pod := postrestore.Pod{Pod: of.Detached(owner).Obj(), Volumes: []postrestore.VolumeRestore{{Object: "PodVolumeRestore a", Volume: "data", Phase: postrestore.VolumeCompleted}}}
		return []postrestore.Pod{pod, pod, pod}
	}
	for _, tc := range []struct {
		want postrestore.Action
		dc   *ocpappsv1.DeploymentConfig
		pods []postrestore.Pod
		rc   corev1.ReplicationController
	}{
		{want: postrestore.Wait, dc: held.Obj(), pods: pods(testkit.MakePod("shop", "web", 1).InitializedFalse()), rc: *rc.Replicas(0).Obj()},
		{want: postrestore.DeletePods, dc: held.Obj(), pods: pods(testkit.MakePod("shop", "web", 1).InitializedTrue()), rc: *rc.Replicas(0).Obj()},
		{want: postrestore.Scale, dc: held.Obj(), rc: *rc.Replicas(0).Obj()},
		{want: postrestore.Finish, dc: held.Replicas(3).Obj(), rc: *rc.Replicas(3).Obj()},
	} {
		b.Run(string(tc.want), func(b *testing.B) {
			state := base
			state.DC, state.Pods, state.Controllers = tc.dc, tc.pods, []corev1.ReplicationController{tc.rc}
			b.ReportAllocs()
			for b.Loop() {
				if step := postrestore.Next(state); step.Action != tc.want {
					b.Fatalf("the step is %+v", step)
				}
			}
		})
	}
}
