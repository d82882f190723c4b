package postrestore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// state is what phase two knows one minute after the restore's start, with a start timeout of five.
func state(dc *testkit.DC, edit ...func(*postrestore.State)) postrestore.State {
	s := postrestore.State{
		Name:    types.NamespacedName{Namespace: "shop", Name: "web"},
		Restore: postrestore.Restore{NamespacedName: testkit.OwnerNamed("r").Restore},
		Now:     testkit.Epoch.Add(time.Minute),
		Options: postrestore.Options{StartTimeout: 5 * time.Minute},
	}
	if dc != nil {
		s.DC = dc.Obj()
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func withPods(pods ...postrestore.Pod) func(*postrestore.State) {
	return func(s *postrestore.State) { s.Pods = pods }
}

func withControllers(controllers ...*testkit.RC) func(*postrestore.State) {
	return func(s *postrestore.State) {
		for _, rc := range controllers {
			s.Controllers = append(s.Controllers, *rc.Obj())
		}
	}
}

func after(d time.Duration) func(*postrestore.State) {
	return func(s *postrestore.State) { s.Now = testkit.Epoch.Add(d) }
}

func restoreEnded(s *postrestore.State)   { s.Restore.Ended = true }
func chosenByLabel(s *postrestore.State)  { s.Restore.ByLabel = true }
func acceptDataLoss(s *postrestore.State) { s.AcceptDataLoss = true }
func undriven(s *postrestore.State)       { s.Undriven = "resume: manual" }

// detached is a pod that restore r has detached from shop/web.
func detached(name string) *testkit.Pod {
	return testkit.MakePod("shop", "web", 1).Named(name).Claim("data", "web-data").Detached(testkit.OwnerNamed("r"))
}

func podOf(pod *testkit.Pod, volumes ...postrestore.VolumeRestore) postrestore.Pod {
	return postrestore.Pod{Pod: pod.Obj(), Volumes: volumes}
}

func hooked(pod postrestore.Pod, hooks ...string) postrestore.Pod {
	pod.ExecHooks = hooks
	return pod
}

func inPod(phase postrestore.VolumePhase) postrestore.VolumeRestore {
	return postrestore.VolumeRestore{Object: "PodVolumeRestore r-1", Volume: "data", Phase: phase}
}

func intoClaim(phase postrestore.VolumePhase) postrestore.VolumeRestore {
	return postrestore.VolumeRestore{Object: "DataDownload r-2", Volume: "web-data", Phase: phase, BeforeStart: true}
}

func broken(volume postrestore.VolumeRestore, message string) postrestore.VolumeRestore {
	volume.Phase, volume.Message = postrestore.VolumeFailed, message
	return volume
}

func TestNext(t *testing.T) {
	t.Parallel()
	owner, earlier := testkit.OwnerNamed("r"), testkit.OwnerNamed("earlier")
	held := func(replicas int32) *testkit.DC {
		return testkit.MakeDC("shop", "web").Held(owner, replicas, false).LatestVersion(1)
	}
	scaled := func(replicas int32) *testkit.DC { return held(replicas).Replicas(replicas) }
	// heldRC is the ReplicationController of the rollout that OpenShift makes while the DeploymentConfig is at 0.
	heldRC := func() *testkit.RC { return testkit.MakeRC("shop", "web", 1).Replicas(0).Desired(0) }
	fullRC := func(n int32) *testkit.RC { return testkit.MakeRC("shop", "web", 1).Replicas(n) }
	ready := func(name string) postrestore.Pod {
		return podOf(detached(name).InitializedTrue(), inPod(postrestore.VolumeCompleted))
	}
	originals := func(replicas int32, paused bool) disconnect.Originals {
		return disconnect.Originals{Replicas: replicas, Paused: paused}
	}

	tests := map[string]struct {
		state postrestore.State
		want  postrestore.Step
		// says are parts of the sentence.
		says []string
	}{
		// Row 1: a detached pod's data is on its way.
		"row 1: a PodVolumeRestore is on its way": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), inPod(postrestore.VolumePending)), ready("b"))),
			want:  postrestore.Step{Action: postrestore.Wait, Initialized: 1, Total: 2}, says: []string{"1 of 2 detached pods initialised"},
		},
		"row 1, B29: a PodVolumeRestore is on its way though the pod is Initialized": {
			state: state(held(2), withPods(podOf(detached("a").InitializedTrue(), inPod(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.Wait, Initialized: 1, Total: 1},
		},
		"row 1: all volumes are in but the pod is not Initialized": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), inPod(postrestore.VolumeCompleted)))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1}, says: []string{"0 of 1 detached pod initialised"},
		},
		"row 1: a pod that says nothing yet": {
			state: state(held(2), withPods(podOf(detached("a")))), want: postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 1: an init hook still runs, and no volume is restored": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse()))), want: postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 1: a DataDownload is on its way, and its pod waits for the claim": {
			state: state(held(2), withPods(podOf(detached("a").Unschedulable("unbound claim"), intoClaim(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 1: a DataDownload takes longer than the start timeout": {
			state: state(held(2), withPods(podOf(detached("a").Unschedulable("unbound claim"), intoClaim(postrestore.VolumePending))), after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 1: one volume failed while another is on its way": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), broken(inPod(""), "no"), inPod(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 1 before row 3: one pod failed while the data of another is on its way": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), broken(inPod(""), "no")), podOf(detached("b").InitializedFalse(), inPod(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 2},
		},
		"row 1, I2: data on its way is waited for with --accept-data-loss too": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), inPod(postrestore.VolumePending))), acceptDataLoss),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 1: the data takes longer than the start timeout, and the pod runs": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), inPod(postrestore.VolumePending))), after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 1: no DeploymentConfig, and data is on its way": {
			state: state(nil, withPods(podOf(detached("a").InitializedFalse(), inPod(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},

		// Row 2: an exec hook.
		"row 2: an exec hook applies and the restore has not ended": {
			state: state(held(2), withPods(hooked(ready("a"), "warm"), hooked(ready("b"), "warm", "cool"))),
			want:  postrestore.Step{Action: postrestore.WaitForRestore, Initialized: 2, Total: 2}, says: []string{"end of restore r", "(warm, cool)"},
		},
		"row 2, B31: the restore has ended": {
			state: state(held(2), withPods(hooked(ready("a"), "warm")), restoreEnded),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 1, Total: 1},
		},
		"row 2 after row 1: data is waited for first": {
			state: state(held(2), withPods(hooked(podOf(detached("a").InitializedFalse(), inPod(postrestore.VolumePending)), "warm"))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 2 after row 3: a failure is told at once": {
			state: state(held(2), withPods(hooked(podOf(detached("a").InitializedTrue(), broken(inPod(""), "no")), "warm"))),
			want:  postrestore.Step{Action: postrestore.Stop, Initialized: 1, Total: 1},
		},

		// Row 3: failures.
		"row 3: a PodVolumeRestore failed": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), broken(inPod(""), "repository is locked")))),
			want:  postrestore.Step{Action: postrestore.Stop, Total: 1},
			says:  []string{"PodVolumeRestore r-1 of volume data in pod a failed: repository is locked", "stay as they are", "--accept-data-loss"},
		},
		"row 3: a failure without a message": {
			state: state(held(2), withPods(podOf(detached("a").InitializedTrue(), broken(intoClaim(""), "")))),
			want:  postrestore.Step{Action: postrestore.Stop, Initialized: 1, Total: 1}, says: []string{"DataDownload r-2 of volume web-data in pod a failed; pods"},
		},
		"row 3: every failure is named": {
			state: state(held(2), withPods(
				podOf(detached("a").InitializedFalse(), broken(inPod(""), "x")), podOf(detached("b").InitializedFalse(), broken(inPod(""), "y")),
				podOf(detached("c").Phase(corev1.PodFailed, "Evicted", "disk full"), inPod(postrestore.VolumeCompleted)),
			)),
			want: postrestore.Step{Action: postrestore.Stop, Total: 3}, says: []string{"in pod a failed: x", "in pod b failed: y", "pod c cannot start: it has failed: Evicted disk full"},
		},
		"row 3: a pod that has failed cannot start, at once": {
			state: state(held(2), withPods(podOf(detached("a").Phase(corev1.PodFailed, "", ""), inPod(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.Stop, Total: 1}, says: []string{"pod a cannot start: it has failed"},
		},
		"row 3: a pod that fails after it was Initialized has its data": {
			state: state(held(2), withPods(podOf(detached("a").InitializedTrue().Phase(corev1.PodFailed, "Error", ""), inPod(postrestore.VolumeCompleted)))),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 1, Total: 1},
		},
		"row 3: an unschedulable pod before the start timeout": {
			state: state(held(2), withPods(podOf(detached("a").Unschedulable("0/3 nodes"), inPod(postrestore.VolumePending))), after(5*time.Minute-time.Second)),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 3: an unschedulable pod at the start timeout": {
			state: state(held(2), withPods(podOf(detached("a").Unschedulable("0/3 nodes"), inPod(postrestore.VolumePending))), after(5*time.Minute)),
			want:  postrestore.Step{Action: postrestore.Stop, Total: 1}, says: []string{"pod a cannot start: it is not scheduled: Unschedulable: 0/3 nodes"},
		},
		"row 3: an unschedulable pod whose DataDownload has completed": {
			state: state(held(2), withPods(podOf(detached("a").Unschedulable("0/3 nodes"), intoClaim(postrestore.VolumeCompleted))), after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.Stop, Total: 1}, says: []string{"it is not scheduled"},
		},
		"row 3: the image of an init container cannot be pulled, before the start timeout": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse().InitWaiting("restore-wait", "ImagePullBackOff", "no such image"), inPod(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 3: the image of an init container cannot be pulled, after the start timeout": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse().InitWaiting("restore-wait", "ImagePullBackOff", "no such image"), inPod(postrestore.VolumePending))), after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.Stop, Total: 1}, says: []string{"its init container restore-wait waits: ImagePullBackOff: no such image"},
		},
		"row 3: an init container crashes": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse().InitWaiting("fill", "CrashLoopBackOff", "back-off"))), after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.Stop, Total: 1}, says: []string{"init container fill waits: CrashLoopBackOff"},
		},
		"row 3: an init container waits for a reason that goes away": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse().InitWaiting("fill", "PodInitializing", "")))),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 3: the same after the start timeout": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse().InitWaiting("fill", "PodInitializing", ""))), after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1},
		},
		"row 3: the application crashes until its neighbours are back: the data is in": {
			state: state(held(2), withPods(podOf(detached("a").InitializedTrue().ContainerWaiting("web", "CrashLoopBackOff", ""), inPod(postrestore.VolumeCompleted))), after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 1, Total: 1},
		},
		"row 3: --accept-data-loss gives a failed volume up, and names it": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), broken(inPod(""), "no")), ready("b")), acceptDataLoss),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 1, Total: 2, LostVolumes: []string{"a/data"}},
		},
		"row 3: --accept-data-loss gives up the volumes of a pod that cannot start, and names them": {
			state: state(held(2), withPods(podOf(detached("a").Unschedulable("0/3 nodes"), inPod(postrestore.VolumePending)), ready("b")), acceptDataLoss, after(time.Hour)),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 1, Total: 2, LostVolumes: []string{"a/data"}},
		},
		"row 3: --accept-data-loss does not run ahead of an exec hook": {
			state: state(held(2), withPods(hooked(podOf(detached("a").InitializedTrue(), broken(inPod(""), "no")), "warm")), acceptDataLoss),
			want:  postrestore.Step{Action: postrestore.WaitForRestore, Initialized: 1, Total: 1},
		},
		"row 3 before 'no DeploymentConfig': a failure is told": {
			state: state(nil, withPods(podOf(detached("a").InitializedTrue(), broken(inPod(""), "no")))),
			want:  postrestore.Step{Action: postrestore.Stop, Initialized: 1, Total: 1}, says: []string{"in pod a failed: no"},
		},

		// Row 4: delete, and wait until they are gone.
		"row 4: the data is in": {
			state: state(held(2), withPods(ready("a"), ready("b"))),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 2, Total: 2}, says: []string{"deleting 2 detached pods"},
		},
		"row 4: one pod is being deleted, another not yet": {
			state: state(held(2), withPods(podOf(detached("a").InitializedTrue().Terminating(), inPod(postrestore.VolumeCompleted)), ready("b"))),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 2, Total: 2},
		},
		"row 4, B12: all are being deleted: not scaled before they are gone": {
			state: state(held(2), withPods(podOf(detached("a").InitializedTrue().Terminating(), inPod(postrestore.VolumeCompleted)))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Initialized: 1, Total: 1}, says: []string{"waiting for 1 detached pod to be gone"},
		},
		"row 4: somebody deletes a pod whose data is on its way": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse().Terminating(), inPod(postrestore.VolumePending)))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Total: 1, LostVolumes: []string{"a/data"}},
		},
		"row 4, D15: a hold by another restore is taken over first": {
			state: state(held(2), withPods(podOf(detached("a").InitializedTrue())), func(s *postrestore.State) { s.HeldBy = "openshift-adp/earlier" }),
			want:  postrestore.Step{Action: postrestore.TakeOver, Initialized: 1, Total: 1}, says: []string{"held by restore openshift-adp/earlier"},
		},
		"row 4, D15: pods of an earlier restore go with those of this one": {
			state: state(testkit.MakeDC("shop", "web").Held(earlier, 2, false), withPods(ready("a"), podOf(testkit.MakePod("shop", "web", 1).Named("b").Detached(earlier).InitializedTrue()))),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 2, Total: 2},
		},
		"row 4: a DeploymentConfig that was at 0 before, its pods go": {
			state: state(testkit.MakeDC("shop", "web").Replicas(0), withPods(ready("a"))),
			want:  postrestore.Step{Action: postrestore.DeletePods, Initialized: 1, Total: 1},
		},
		"row 4: the record cannot be read: the pods stay": {
			state: state(held(2).Annotation("oadp.openshift.io/original-replicas", "x"), withPods(ready("a"))),
			want:  postrestore.Step{Action: postrestore.Stop, Initialized: 1, Total: 1}, says: []string{"oadp.openshift.io/original-replicas", `"x"`, "by hand"},
		},
		"I2: no DeploymentConfig: the pods are the only copy": {
			state: state(nil, withPods(ready("a"), ready("b"))),
			want:  postrestore.Step{Action: postrestore.Stop, Initialized: 2, Total: 2}, says: []string{"2 detached pods are kept", "only copy"},
		},
		"I2: no DeploymentConfig, with --accept-data-loss": {
			state: state(nil, withPods(ready("a")), acceptDataLoss, restoreEnded), want: postrestore.Step{Action: postrestore.Stop, Initialized: 1, Total: 1},
		},
		"by label: a DeploymentConfig that was not chosen gives its pods back": {
			state: state(nil, withPods(ready("a"), podOf(detached("b").InitializedFalse(), inPod(postrestore.VolumePending))), chosenByLabel),
			want:  postrestore.Step{Action: postrestore.Reattach, Initialized: 1, Total: 2}, says: []string{"was not chosen by this restore", "2 pods are restored as they were"},
		},
		"by label: one that was chosen is resumed like any other": {
			state: state(held(2), withPods(ready("a")), chosenByLabel), want: postrestore.Step{Action: postrestore.DeletePods, Initialized: 1, Total: 1},
		},

		// Row 5: scale.
		"row 5: the pods are gone": {
			state: state(held(3), withControllers(heldRC())),
			want:  postrestore.Step{Action: postrestore.Scale, Originals: originals(3, false)}, says: []string{"scaling to 3 replicas"},
		},
		"row 5, D7: originally paused": {
			state: state(testkit.MakeDC("shop", "web").Held(owner, 1, true), withControllers(heldRC())),
			want:  postrestore.Step{Action: postrestore.Scale, Originals: originals(1, true)}, says: []string{"scaling to 1 replica"},
		},
		"row 5, D10: held paused for its lifecycle hooks": {
			state: state(testkit.MakeDC("shop", "web").PreHook().Held(owner, 2, false).Paused()),
			want:  postrestore.Step{Action: postrestore.Scale, Originals: originals(2, false)},
		},
		"row 5: held by the stock plugin": {
			state: state(testkit.MakeDC("shop", "web").HeldByStock(owner, 2, false)), want: postrestore.Step{Action: postrestore.Scale, Originals: originals(2, false)},
		},
		"row 5, B21: half a record": {
			state: state(testkit.MakeDC("shop", "web").Replicas(0).Label("oadp.openshift.io/replicas-modified", "r").Annotation("oadp.openshift.io/original-replicas", "2")),
			want:  postrestore.Step{Action: postrestore.Stop}, says: []string{"oadp.openshift.io/original-paused is missing", "set the annotations by hand"},
		},
		"row 5, B21: no record at all": {
			state: state(testkit.MakeDC("shop", "web").Replicas(0).Label("oadp.openshift.io/replicas-modified", "r")),
			want:  postrestore.Step{Action: postrestore.Stop}, says: []string{"oadp.openshift.io/original-replicas and oadp.openshift.io/original-paused are missing"},
		},
		"row 5: originally at 0, nothing to scale": {
			state: state(held(0), withControllers(heldRC())),
			want:  postrestore.Step{Action: postrestore.Finish}, says: []string{"back at 0 replicas"},
		},
		"row 5: originally at 0 and paused": {
			state: state(testkit.MakeDC("shop", "web").Held(owner, 0, true)),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(0, true)}, says: []string{"back at 0 replicas, paused"},
		},

		// Row 6: start a rollout that nobody else starts, and one that failed while held.
		"row 6, D8: no triggers and no rollout": {
			state: state(scaled(2).NoTriggers().LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.Rollout, Originals: originals(2, false)}, says: []string{"nothing starts its first rollout"},
		},
		"row 6, D9: an image trigger that is not automatic": {
			state: state(scaled(2).NoTriggers().ManualImageTrigger("web:latest").LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.Rollout, Originals: originals(2, false)},
		},
		"row 6, D9: a config change trigger beside one that is not automatic": {
			state: state(scaled(2).ManualImageTrigger("web:latest").LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.Rollout, Originals: originals(2, false)},
		},
		"row 6: the newest rollout failed while held": {
			state: state(scaled(2), withControllers(heldRC().Phase(ocpappsv1.DeploymentStatusFailed))),
			want:  postrestore.Step{Action: postrestore.Rollout, Originals: originals(2, false)}, says: []string{"rollout web-1 failed while the volumes were empty"},
		},
		"row 6, once: the new rollout is asked for and not there yet": {
			state: state(scaled(2).LatestVersion(2), withControllers(heldRC().Phase(ocpappsv1.DeploymentStatusFailed))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"waiting for ReplicationController web-2"},
		},
		"row 6, once: the new rollout is asked for and not there yet, while an earlier one runs the pods": {
			state: state(scaled(2).LatestVersion(2), withControllers(fullRC(2))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"waiting for ReplicationController web-2"},
		},
		"row 6: a rollout that failed after it was resumed is not repeated": {
			state: state(scaled(2), withControllers(testkit.MakeRC("shop", "web", 1).Replicas(0).Desired(2).Phase(ocpappsv1.DeploymentStatusFailed))),
			want:  postrestore.Step{Action: postrestore.Stop, Originals: originals(2, false)}, says: []string{"rollout web-1 failed", "oc rollout latest dc/web -n shop"},
		},
		"row 6: the second one failed too, while an earlier one runs the pods": {
			state: state(scaled(2).LatestVersion(2), withControllers(fullRC(2), testkit.MakeRC("shop", "web", 2).Replicas(0).Desired(2).Phase(ocpappsv1.DeploymentStatusFailed))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(2, false)},
		},
		"row 6: a rollout failed while held, though an earlier one runs the pods": {
			state: state(scaled(2).LatestVersion(2), withControllers(fullRC(2), testkit.MakeRC("shop", "web", 2).Replicas(0).Desired(0).Phase(ocpappsv1.DeploymentStatusFailed))),
			want:  postrestore.Step{Action: postrestore.Rollout, Originals: originals(2, false)},
		},
		"row 6: failed while held and paused: it is unpaused first": {
			state: state(scaled(2).Paused(), withControllers(heldRC().Phase(ocpappsv1.DeploymentStatusFailed))),
			want:  postrestore.Step{Action: postrestore.Scale, Originals: originals(2, false)}, says: []string{"unpausing"},
		},

		// Row 7: an unresolved image trigger.
		"row 7, D9: an image trigger is not resolved, and is named": {
			state: state(scaled(2).ImageTrigger("images", "web:latest", "").LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.Wait, Originals: originals(2, false)}, says: []string{"waiting for the image of trigger ImageStreamTag web:latest"},
		},
		"row 7: both unresolved triggers are named": {
			state: state(scaled(2).ImageTrigger("", "web:latest", "").ImageTrigger("", "sidecar:1", "").ImageTrigger("", "there:1", "sha256:1").LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.Wait, Originals: originals(2, false)}, says: []string{"ImageStreamTag web:latest, ImageStreamTag sidecar:1:"},
		},
		"row 7: all image triggers are resolved": {
			state: state(scaled(2).ImageTrigger("", "web:latest", "sha256:1").LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"waiting for its first rollout"},
		},
		"row 7: a trigger without parameters says nothing": {
			state: state(scaled(2).Trigger(ocpappsv1.DeploymentTriggerPolicy{Type: ocpappsv1.DeploymentTriggerOnImageChange}).LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)},
		},
		"row 7: an unresolved trigger does not matter once there is a rollout": {
			state: state(scaled(2).ImageTrigger("", "web:latest", ""), withControllers(fullRC(2))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(2, false)},
		},

		// Row 8: wait for the ReplicationController.
		"row 8: the first rollout is about to start": {
			state: state(scaled(2).LatestVersion(0)),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"waiting for its first rollout"},
		},
		"row 8: its ReplicationController is not there yet": {
			state: state(scaled(2)), want: postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"waiting for ReplicationController web-1"},
		},
		"row 8, B39: its rollout runs": {
			state: state(scaled(2), withControllers(heldRC().Phase(ocpappsv1.DeploymentStatusRunning))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"waiting for rollout web-1, which is running"},
		},
		"row 8: the ReplicationController has not been scaled yet": {
			state: state(scaled(2), withControllers(heldRC())),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"web-1 has 0 of 2 pods"},
		},
		"row 8: it has one pod of two": {
			state: state(scaled(2), withControllers(fullRC(2).Pods(1))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"web-1 has 1 of 2 pods"},
		},
		"row 8: pods of a rollout that still runs do not count": {
			state: state(scaled(2), withControllers(fullRC(2).Phase(ocpappsv1.DeploymentStatusPending))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)},
		},
		"row 8: a ReplicationController of no version is not ours to judge": {
			state: state(scaled(2), withControllers(fullRC(2).Annotation("openshift.io/deployment-config.latest-version", "x"))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"waiting for ReplicationController web-1"},
		},
		"row 8: the highest version counts, 10 above 9": {
			state: state(scaled(2).LatestVersion(10), withControllers(testkit.MakeRC("shop", "web", 10).Replicas(2), testkit.MakeRC("shop", "web", 9).Replicas(0))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(2, false)},
		},

		// Row 9: pause again.
		"row 9, D7: scaled and unpaused, its ReplicationController has the replicas": {
			state: state(testkit.MakeDC("shop", "web").Held(owner, 2, true).Replicas(2).LatestVersion(1), withControllers(fullRC(2))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(2, true)}, says: []string{"back at 2 replicas, paused"},
		},
		"row 9, D7: not paused before the ReplicationController has them": {
			state: state(testkit.MakeDC("shop", "web").Held(owner, 2, true).Replicas(2).LatestVersion(1), withControllers(heldRC())),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, true)},
		},
		"row 9, D7: what the OADP script has scaled and paused in one patch is unpaused": {
			state: state(testkit.MakeDC("shop", "web").Held(owner, 2, true).Replicas(2).Paused().LatestVersion(1), withControllers(heldRC())),
			want:  postrestore.Step{Action: postrestore.Scale, Originals: originals(2, true)}, says: []string{"unpausing until it has its replicas"},
		},
		"row 9: it has its replicas and is paused again, only the marks are left": {
			state: state(testkit.MakeDC("shop", "web").Held(owner, 2, true).Replicas(2).Paused().LatestVersion(1), withControllers(fullRC(2))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(2, true)},
		},

		// Row 10: done.
		"row 10: it has its replicas, only the marks are left": {
			state: state(scaled(1), withControllers(fullRC(1))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(1, false)}, says: []string{"back at 1 replica"},
		},
		"row 10, D33: test: true, its pods run during rollouts only": {
			state: state(scaled(2).Test(), withControllers(heldRC())),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(2, false)}, says: []string{"it is a test"},
		},
		"row 10, D37: replicas that an autoscaler has set are not fought": {
			state: state(held(2).Replicas(5), withControllers(fullRC(5))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(2, false)}, says: []string{"back at 5 replicas"},
		},
		"row 10, D37: they are waited for": {
			state: state(held(2).Replicas(5), withControllers(fullRC(2))),
			want:  postrestore.Step{Action: postrestore.WaitShortly, Originals: originals(2, false)}, says: []string{"web-1 has 2 of 5 pods"},
		},
		"row 10: scaled by hand over a record that cannot be read: that is what it is to have": {
			state: state(held(2).Annotation("oadp.openshift.io/original-replicas", "x").Replicas(4).Paused(), withControllers(fullRC(4))),
			want:  postrestore.Step{Action: postrestore.Finish, Originals: originals(4, true)},
		},
		"row 10, D17: nothing is held": {
			state: state(testkit.MakeDC("shop", "web").Replicas(2)), want: postrestore.Step{Action: postrestore.Done}, says: []string{"nothing is held; it is at 2 replicas"},
		},
		"row 10: a DeploymentConfig that was at 0 before stays so": {
			state: state(testkit.MakeDC("shop", "web").Replicas(0)), want: postrestore.Step{Action: postrestore.Done}, says: []string{"it is at 0 replicas"},
		},
		"row 10: a record without a mark is not a hold": {
			state: state(testkit.MakeDC("shop", "web").Replicas(0).Annotation("oadp.openshift.io/original-replicas", "2").Annotation("oadp.openshift.io/original-paused", "false")),
			want:  postrestore.Step{Action: postrestore.Done},
		},
		"row 10: neither pods nor a DeploymentConfig": {
			state: state(nil), want: postrestore.Step{Action: postrestore.Done}, says: []string{"nothing is held"},
		},

		// Nobody takes the steps by itself.
		"nobody takes the step: a person is waited for": {
			state: state(held(2), withPods(ready("a")), undriven),
			want:  postrestore.Step{Action: postrestore.WaitForPerson, Initialized: 1, Total: 1}, says: []string{"held for a person to resume (resume: manual)"},
		},
		"nobody takes the step: what is given up is not lost yet": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), broken(inPod(""), "x"))), acceptDataLoss, undriven),
			want:  postrestore.Step{Action: postrestore.WaitForPerson, Total: 1},
		},
		"nobody takes the steps, but data is still waited for": {
			state: state(held(2), withPods(podOf(detached("a").InitializedFalse(), inPod(postrestore.VolumePending))), undriven),
			want:  postrestore.Step{Action: postrestore.Wait, Total: 1}, says: []string{"0 of 1"},
		},
		"nobody takes the last step: its originals are told": {
			state: state(scaled(2), withControllers(fullRC(2)), undriven),
			want:  postrestore.Step{Action: postrestore.WaitForPerson, Originals: originals(2, false)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := copyOf(tc.state)
			got := postrestore.Next(tc.state)
			require.NotEmpty(t, got.Sentence)
			for _, part := range tc.says {
				require.Contains(t, got.Sentence, part)
			}
			sentence := got.Sentence
			got.Sentence = ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("step %q (-want +got):\n%s", sentence, diff)
			}
			require.Empty(t, cmp.Diff(before, tc.state), "the state was changed")
		})
	}
}

func copyOf(s postrestore.State) postrestore.State {
	s.DC = s.DC.DeepCopy()
	controllers, pods := s.Controllers, s.Pods
	s.Controllers, s.Pods = nil, nil
	for i := range controllers {
		s.Controllers = append(s.Controllers, *controllers[i].DeepCopy())
	}
	for _, pod := range pods {
		pod.Pod = pod.DeepCopy()
		pod.Volumes = append([]postrestore.VolumeRestore(nil), pod.Volumes...)
		s.Pods = append(s.Pods, pod)
	}
	return s
}

func TestActionWrites(t *testing.T) {
	t.Parallel()
	for action, writes := range map[postrestore.Action]bool{
		postrestore.Wait: false, postrestore.WaitShortly: false, postrestore.WaitForRestore: false, postrestore.WaitForPerson: false, postrestore.Stop: false, postrestore.Done: false,
		postrestore.DeletePods: true, postrestore.Reattach: true, postrestore.Scale: true, postrestore.Rollout: true, postrestore.Finish: true,
	} {
		require.Equal(t, writes, action.Writes(), action)
	}
}
