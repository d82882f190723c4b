package postrestore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/standby"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

const (
	runR     = "kubectl -n openshift-adp exec deploy/velero -c velero -- /plugins/velero-plugin-for-openshift-dr post-restore r"
	describe = "velero -n openshift-adp restore describe r --details"
	webDC    = "deploymentconfigs.apps.openshift.io/web"
)

// restoreIn is restore r in a phase.
func restoreIn(phase velerov1.RestorePhase, edit ...func(*velerov1.Restore)) *velerov1.Restore {
	r := testkit.RestoreNamed("r").Phase(phase).Result()
	for _, e := range edit {
		e(r)
	}
	return r
}

func settingsOf(data ...string) *corev1.ConfigMap {
	return builder.ForConfigMap(testkit.VeleroNamespace, "dr-settings").ObjectMeta(builder.WithLabels(
		"velero.io/plugin-config", "", "oadp.openshift.io/deploymentconfig-restore", "RestoreItemAction")).Data(data...).Result()
}

// jobOf is the Job that stands by for a restore.
func jobOf(r *velerov1.Restore, conditions ...batchv1.JobCondition) client.Object {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: standby.Name(r), Labels: map[string]string{velerov1.RestoreUIDLabel: string(r.UID)}},
		Status:     batchv1.JobStatus{Conditions: conditions},
	}
}

// dataDownload is one of a restore into the claim of detached.
func dataDownload(name, restore string, phase velerov2alpha1.DataDownloadPhase) client.Object {
	return &velerov2alpha1.DataDownload{
		ObjectMeta: metav1.ObjectMeta{Namespace: testkit.VeleroNamespace, Name: name, Labels: map[string]string{velerov1.RestoreNameLabel: restore}},
		Spec:       velerov2alpha1.DataDownloadSpec{TargetVolume: velerov2alpha1.TargetVolumeSpec{Namespace: "shop", PVC: "web-data"}},
		Status:     velerov2alpha1.DataDownloadStatus{Phase: phase},
	}
}

var everywhere = postrestore.Area{VeleroNamespace: testkit.VeleroNamespace}

func (w *world) survey(area postrestore.Area) []postrestore.Holding {
	w.t.Helper()
	found, err := w.runner.Survey(w.t.Context(), area)
	require.NoError(w.t, err)
	return found
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	later := testkit.OwnerNamed("r")
	later.UID = "uid-of-the-first-r"
	ended, running := restoreIn(velerov1.RestorePhaseCompleted), restoreIn(velerov1.RestorePhaseWaitingForPluginOperations)
	halfWritten := heldWeb(2, false).Obj()
	delete(halfWritten.Annotations, "oadp.openshift.io/original-paused")
	unlabelled := func(replicas int32) client.Object {
		dc := heldWeb(2, false).Replicas(replicas).Obj()
		delete(dc.Labels, "oadp.openshift.io/replicas-modified")
		return dc
	}
	nobodys := unlabelled(0)
	nobodys.SetAnnotations(map[string]string{"oadp.openshift.io/original-replicas": "2", "oadp.openshift.io/original-paused": "false"})
	mapped := restoreIn(velerov1.RestorePhaseCompleted, func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"store": "shop"} })
	hooked := restoreIn(velerov1.RestorePhaseInProgress, func(r *velerov1.Restore) {
		r.Spec.Hooks.Resources = []velerov1.RestoreResourceHookSpec{{Name: "warm", PostHooks: []velerov1.RestoreResourceHook{
			{Exec: &velerov1.ExecRestoreHook{Command: []string{"true"}}},
		}}}
	})
	byLabel := restoreIn(velerov1.RestorePhaseCompleted, func(r *velerov1.Restore) { r.Spec.LabelSelector = &metav1.LabelSelector{} })
	byHand := restoreIn(velerov1.RestorePhaseWaitingForPluginOperations, func(r *velerov1.Restore) {
		r.Annotations = map[string]string{"oadp.openshift.io/dc-resume": "manual"}
	})
	filling := detached("a").InitializedFalse().Obj()
	for name, tc := range map[string]struct {
		objects []client.Object
		// restore is "<namespace>/<name> <phase>", step and says are of Next, problems their kinds.
		restore  string
		held     bool
		step     postrestore.Action
		says     string
		problems []postrestore.Inconsistency
		command  string
	}{
		"data is on its way": {
			objects: []client.Object{running, heldWeb(2, false).Obj(), filling, podVolumeRestore("p", filling, "data", velerov1.PodVolumeRestorePhaseInProgress), readyPod("b").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.Wait, says: "1 of 2 detached pods initialised", command: describe,
		},
		"Velero is about to see the pods off": {
			objects: []client.Object{running, heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.DeletePods, says: "deleting 1 detached pod", command: describe,
		},
		"a volume restore failed": {
			objects: []client.Object{ended, heldWeb(2, false).Obj(), readyPod("a").Obj(), podVolumeRestore("p", readyPod("a").Obj(), "data", velerov1.PodVolumeRestorePhaseFailed)},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.Stop, says: "PodVolumeRestore p of volume data in pod a failed", command: runR,
		},
		"the restore has ended": {
			objects: []client.Object{ended, heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.WaitForPerson, says: "held for a person to resume (restore r has ended: Completed)", command: runR,
		},
		"the restore has ended, and its Job is at work": {
			objects: []client.Object{ended, jobOf(ended), heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.DeletePods, says: "deleting 1 detached pod", command: describe,
		},
		"the restore has ended, and so has its Job": {
			objects: []client.Object{ended, jobOf(ended, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}), heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.WaitForPerson, says: "held for a person to resume (restore r has ended: Completed)", command: runR,
		},
		"resume: manual in the settings": {
			objects: []client.Object{running, settingsOf("resume", "manual"), heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.WaitForPerson, says: "held for a person to resume (resume: manual)", command: runR,
		},
		"resume: manual of the restore": {
			objects: []client.Object{byHand, heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.WaitForPerson, says: "held for a person to resume (resume: manual)", command: runR,
		},
		"settings that are wrong": {
			objects: []client.Object{running, settingsOf("resume", "later"), heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.WaitForPerson, says: `setting resume is "later"`, command: runR,
		},
		"the start timeout of the settings": {
			objects: []client.Object{running, settingsOf("startTimeout", "30s"), heldWeb(2, false).Obj(), detached("a").Unschedulable("0/3 nodes").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.Stop, says: "0/3 nodes", command: runR,
		},
		"an exec hook applies": {
			objects: []client.Object{hooked, heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r InProgress", held: true, step: postrestore.WaitForRestore, says: "phase two waits for the end of restore r", command: describe,
		},
		"the DeploymentConfig is yet to come": {
			objects: []client.Object{restoreIn(velerov1.RestorePhaseInProgress), readyPod("a").Obj()},
			restore: "openshift-adp/r InProgress", step: postrestore.Wait, says: "which the restore has yet to bring", command: describe,
		},
		"a DeploymentConfig that was at 0": {
			objects: []client.Object{running, testkit.MakeDC("shop", "web").Replicas(0).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", step: postrestore.DeletePods, says: "deleting 1 detached pod", command: describe,
		},
		"held without pods, while Velero is at work": {
			objects: []client.Object{running, heldWeb(2, false).Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.Scale, says: "scaling to 2 replicas", command: describe,
		},
		"held without pods, and nobody is at work": {
			objects: []client.Object{ended, heldWeb(2, false).Obj()},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.WaitForPerson, says: "held for a person",
			problems: []postrestore.Inconsistency{postrestore.HeldWithoutPods}, command: runR,
		},
		"the restore is gone": {
			objects: []client.Object{heldWeb(2, false).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r ", held: true, step: postrestore.WaitForPerson, says: "held for a person to resume (restore openshift-adp/r does not exist any more)",
			problems: []postrestore.Inconsistency{postrestore.RestoreGone}, command: runR,
		},
		"another restore of the name": {
			objects: []client.Object{ended, testkit.MakeDC("shop", "web").Held(later, 2, false).LatestVersion(1).Obj(), testkit.MakePod("shop", "web", 1).Named("a").Detached(later).InitializedTrue().Obj()},
			restore: "openshift-adp/r ", held: true, step: postrestore.WaitForPerson, says: "held for a person",
			problems: []postrestore.Inconsistency{postrestore.RestoreReplaced},
			command:  "kubectl -n shop annotate " + webDC + " pods/a oadp.openshift.io/restore-uid- && " + runR,
		},
		"the holder is gone, the restore of a pod is not: that one takes it over": {
			objects: []client.Object{ended, testkit.MakeDC("shop", "web").Held(testkit.OwnerNamed("earlier"), 2, false).LatestVersion(1).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.WaitForPerson, says: "held for a person", command: runR,
		},
		"another restore holds it, and Velero is about to take it over": {
			objects: []client.Object{running, testkit.MakeDC("shop", "web").Held(testkit.OwnerNamed("earlier"), 2, false).LatestVersion(1).Obj(), readyPod("a").Obj()},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.TakeOver, says: "held by restore openshift-adp/earlier", command: describe,
		},
		"what another restore has failed to bring into the same claim": {
			objects: []client.Object{
				running, heldWeb(2, false).Obj(), readyPod("a").Obj(),
				dataDownload("mine", "r", velerov2alpha1.DataDownloadPhaseCompleted), dataDownload("theirs", "earlier", velerov2alpha1.DataDownloadPhaseFailed),
			},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.DeletePods, says: "deleting 1 detached pod", command: describe,
		},
		"a DataDownload is on its way": {
			objects: []client.Object{running, heldWeb(2, false).Obj(), filling, dataDownload("mine", "r", velerov2alpha1.DataDownloadPhaseInProgress)},
			restore: "openshift-adp/r WaitingForPluginOperations", held: true, step: postrestore.Wait, says: "0 of 1", command: describe,
		},
		"pods without a DeploymentConfig": {
			objects: []client.Object{mapped, readyPod("a").Obj()},
			restore: "openshift-adp/r Completed", step: postrestore.Stop, says: "the cluster has no such DeploymentConfig",
			problems: []postrestore.Inconsistency{postrestore.PodsAlone},
			command:  "velero -n openshift-adp restore create --from-backup backup --include-namespaces store --namespace-mappings store:shop --include-resources deploymentconfigs.apps.openshift.io",
		},
		"pods without a DeploymentConfig, of a restore that is gone": {
			objects: []client.Object{readyPod("a").Obj()},
			restore: "openshift-adp/r ", step: postrestore.Stop, says: "the cluster has no such DeploymentConfig",
			problems: []postrestore.Inconsistency{postrestore.RestoreGone, postrestore.PodsAlone},
			command:  "velero -n openshift-adp restore create --from-backup BACKUP --include-namespaces shop --include-resources deploymentconfigs.apps.openshift.io",
		},
		"pods whose DeploymentConfig was not chosen": {
			objects: []client.Object{byLabel, readyPod("a").Obj()},
			restore: "openshift-adp/r Completed", step: postrestore.WaitForPerson, says: "held for a person",
			problems: []postrestore.Inconsistency{postrestore.PodsAlone}, command: runR,
		},
		"a record that is half-written": {
			objects: []client.Object{ended, halfWritten, readyPod("a").Obj()},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.Stop, says: "annotation oadp.openshift.io/original-paused is missing",
			problems: []postrestore.Inconsistency{postrestore.RecordUnreadable},
			command:  "kubectl -n shop annotate --overwrite " + webDC + " oadp.openshift.io/original-replicas=REPLICAS oadp.openshift.io/original-paused=false && " + runR,
		},
		"a record without its label, at 0": {
			objects: []client.Object{ended, unlabelled(0)},
			restore: "openshift-adp/r Completed", step: postrestore.Done, says: "nothing is held; it is at 0 replicas",
			problems: []postrestore.Inconsistency{postrestore.RecordWithoutMark},
			command:  "kubectl -n shop label " + webDC + " oadp.openshift.io/replicas-modified=r && " + runR,
		},
		"a record without its label, running": {
			objects: []client.Object{ended, unlabelled(2)},
			restore: "openshift-adp/r Completed", step: postrestore.Done, says: "nothing is held; it is at 2 replicas",
			problems: []postrestore.Inconsistency{postrestore.RecordWithoutMark},
			command:  "kubectl -n shop annotate " + webDC + " oadp.openshift.io/original-replicas- oadp.openshift.io/original-paused-",
		},
		"a record of nobody": {
			objects: []client.Object{nobodys}, restore: "/ ", step: postrestore.Done, says: "nothing is held",
			problems: []postrestore.Inconsistency{postrestore.RecordWithoutMark},
			command:  "kubectl -n shop annotate " + webDC + " oadp.openshift.io/original-replicas- oadp.openshift.io/original-paused-",
		},
		"the openshift plugin's marks": {
			objects: []client.Object{ended, testkit.MakeDC("shop", "web").HeldByStock(testkit.OwnerNamed("r"), 2, false).LatestVersion(1).Obj()},
			restore: "openshift-adp/r Completed", held: true, step: postrestore.WaitForPerson, says: "held for a person",
			problems: []postrestore.Inconsistency{postrestore.HeldWithoutPods}, command: runR,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.objects...)
			found := w.survey(everywhere)
			require.Empty(t, w.requests.Writes())
			require.Len(t, found, 1)
			h := found[0]
			require.Equal(t, "shop/web", h.Name.String())
			require.Equal(t, tc.restore, fmt.Sprintf("%s %s", h.Restore, h.Restore.Phase))
			require.Equal(t, strings.TrimSpace(string(h.Restore.Phase)) != "", h.Restore.Exists)
			require.Equal(t, tc.held, h.Held)
			require.Equal(t, tc.step, h.Step.Action, h.Sentence())
			require.Contains(t, h.Sentence(), tc.says)
			var problems []postrestore.Inconsistency
			for _, problem := range h.Problems {
				problems = append(problems, problem.Kind)
				require.NotEmpty(t, problem.Message)
			}
			require.Equal(t, tc.problems, problems)
			require.Equal(t, tc.command, h.Command)
		})
	}
}

func TestSurveyOfLongRestoreNames(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed(strings.Repeat("r", 70))
	r := builder.ForRestore(testkit.VeleroNamespace, owner.Restore.Name).Phase(velerov1.RestorePhaseCompleted).Result()
	for name, dc := range map[string]client.Object{
		"in full by the annotation":    testkit.MakeDC("shop", "web").Held(disconnect.Owner{Restore: owner.Restore}, 2, false).Obj(),
		"by the Restore of that label": testkit.MakeDC("shop", "web").HeldByStock(owner, 2, false).Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := newWorld(t, r, dc).survey(everywhere)
			require.Len(t, found, 1)
			require.Equal(t, owner.Restore, found[0].Restore.NamespacedName)
			require.True(t, found[0].Restore.Exists)
		})
	}
}

// What is there is listed once, however much is held.
func TestSurveyCostsAConstantNumberOfLists(t *testing.T) {
	t.Parallel()
	objects := []client.Object{restoreIn(velerov1.RestorePhaseWaitingForPluginOperations)}
	for i := range 20 {
		namespace := fmt.Sprintf("shop-%d", i%5)
		name := fmt.Sprintf("web-%d", i)
		objects = append(objects, testkit.MakeDC(namespace, name).Held(testkit.OwnerNamed("r"), 2, false).Obj(), testkit.MakeRC(namespace, name, 1).Replicas(0).Obj(),
			testkit.MakePod(namespace, name, 1).Named(name+"-a").Detached(testkit.OwnerNamed("r")).Obj(),
			testkit.MakePod(namespace, name+"-alone", 1).Named(name+"-b").Detached(testkit.OwnerNamed("r")).Obj())
	}
	w := newWorld(t, objects...)
	require.Len(t, w.survey(everywhere), 40)
	require.Equal(t, map[string]int{
		"list DeploymentConfig": 1, "list Pod": 1, "list ReplicationController": 1, "list Restore": 1, "list Backup": 1,
		"list ConfigMap": 1, "list Job": 1, "list PodVolumeRestore": 1, "list DataDownload": 1,
	}, w.requests.Count())

	w = newWorld(t)
	require.Empty(t, w.survey(everywhere))
	require.Equal(t, map[string]int{"list DeploymentConfig": 1, "list Pod": 1}, w.requests.Count(), "where nothing is held, nothing else is asked for")

	w = newWorld(t, objects...)
	require.Len(t, w.survey(postrestore.Area{Namespaces: []string{"shop-1", "shop-3"}, VeleroNamespace: testkit.VeleroNamespace}), 16)
	require.Equal(t, 2, w.requests.Count()["list DeploymentConfig"])
	require.Equal(t, 1, w.requests.Count()["list Restore"])
}

// A gap would look like "nothing is held".
func TestSurveyForgivesNoRefusal(t *testing.T) {
	t.Parallel()
	objects := []client.Object{restoreIn(velerov1.RestorePhaseCompleted), heldWeb(2, false).Obj(), readyPod("a").Obj(), testkit.MakePod("shop", "db", 1).Named("b").Detached(testkit.OwnerNamed("r")).Obj()}
	for kind, says := range map[string]string{
		"DeploymentConfig": "list DeploymentConfigs: ", "Pod": "list detached pods: ", "ReplicationController": "list ReplicationControllers: ",
		"Restore": "list Restores in openshift-adp: ", "Backup": "list Backups in openshift-adp: ", "ConfigMap": "ConfigMap in openshift-adp: ", "Job": "list Jobs in openshift-adp: ",
		"PodVolumeRestore": "list PodVolumeRestores in openshift-adp: ", "DataDownload": "list DataDownloads in openshift-adp: ",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, objects...)
			w.requests.Fail(failing("list", kind, forbidden("list", kind)))
			_, err := w.runner.Survey(t.Context(), everywhere)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, says)
		})
	}
	t.Run("a cluster without DeploymentConfigs, without Velero", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, readyPod("a").Obj())
		w.requests.Fail(func(r testkit.Request) error {
			switch r.Kind {
			case "Pod", "ConfigMap":
				return nil
			default:
				return notServed("x", r.Kind)
			}
		})
		found := w.survey(everywhere)
		require.Len(t, found, 1)
		require.False(t, found[0].Exists)
		require.False(t, found[0].Restore.Exists)
	})
}
