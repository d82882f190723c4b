package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// imageMissing: the data is in, and then an init container of the application cannot start, since nobody has its image any
// more. The operation gives up when its time is over and names the pod; nothing is deleted. Once the image is there,
// post-restore finishes it.
func imageMissing(s *scene) {
	image := s.Box("test-bed.invalid/"+s.name+":1", "/bin/sleep", "100000")
	require.NoError(s.t, s.ImportImage(s.t.Context(), image))
	a := app{name: "web", replicas: 1, change: func(pod *corev1.PodTemplateSpec) {
		pod.Spec.Containers[0].Image = image.Reference
		pod.Spec.InitContainers = []corev1.Container{{Name: "migrate", Image: image.Reference, Command: []string{"true"}}}
	}}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	require.NoError(s.t, s.RemoveImage(s.t.Context(), image.Reference))

	restore := s.restore()
	require.Equal(s.t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
	assert.Equal(s.t, 1, restore.Status.RestoreItemOperationsFailed)
	details := s.details(restore.Name)
	pod := s.held(restore, a, 1)[0]
	assert.Contains(s.t, details, "DeploymentConfig "+s.ns+"/web: pod "+pod.Name+" cannot start: its init container migrate waits: ")
	assert.Contains(s.t, details, "post-restore "+restore.Name)
	_, log := s.awaitJob(restore.Name, batchv1.JobFailed)
	assert.Contains(s.t, log, "pod "+pod.Name+" cannot start", "the Job can do no more, and does not try for ever")
	run := s.postRestore(restore.Name)
	assert.Equal(s.t, 1, run.code, run)
	assert.Contains(s.t, run.out, "pod "+pod.Name+" cannot start")
	assert.Equal(s.t, pod.UID, s.held(restore, a, 1)[0].UID, "nothing is deleted")

	require.NoError(s.t, s.ImportImage(s.t.Context(), image))
	assert.Equal(s.t, pod.UID, s.awaitDetached(a, 1, corev1.PodReady)[0].UID)
	run = s.postRestore(restore.Name)
	require.Zero(s.t, run.code, run)
	s.back(restore.Name, a)
}

// nodeAgentLost: the pod of node-agent is killed while it fills a volume. The next one takes the volume restore up again, since
// the data moves in a pod of its own (velero pkg/controller/pod_volume_restore_controller.go, AttemptPVRResume); where it
// cannot, the application is held, its pod kept, and the operation says what to do.
func nodeAgentLost(s *scene) {
	a := app{name: "db", replicas: 1, mebibytes: 256}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	name := s.startRestore()
	s.awaitVolumeRestore(name, a, velerov1.PodVolumeRestorePhaseInProgress)
	agents := []client.DeleteAllOfOption{client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{"name": "node-agent"}, client.GracePeriodSeconds(0)}
	require.NoError(s.t, s.Client().DeleteAllOf(s.t.Context(), &corev1.Pod{}, agents...))
	restores, err := s.volumeRestores(s.t.Context(), name, a)
	require.NoError(s.t, err)
	require.Len(s.t, restores, 1)
	require.Equal(s.t, velerov1.PodVolumeRestorePhaseInProgress, restores[0].Status.Phase, "it was killed in the middle")

	restore := s.awaitRestore(name)
	if restore.Status.Phase == velerov1.RestorePhaseCompleted {
		s.completed(restore, 1)
		s.back(restore.Name, a)
		return
	}
	s.t.Log("the volume restore did not survive: ", restore.Status.Phase)
	require.Equal(s.t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
	pod := s.held(restore, a, 1)[0]
	assert.Contains(s.t, s.details(name), "of volume data in pod "+pod.Name)
	assert.Contains(s.t, s.details(name), "post-restore "+name)
}

// veleroLostWhileWaiting: Velero's pod is deleted while operations are waited for. The new one asks on. An application with
// an exec hook has nothing to ask for: it is the Job's.
func veleroLostWhileWaiting(s *scene) {
	hooked, slow := app{name: "hooked", replicas: 1}, app{name: "slow", replicas: 2, change: gated}
	s.deploy(hooked)
	s.create(slow)
	s.openGate(slow)
	s.fill(slow)
	s.in(&s.awaitPods(slow)[0], "rm", gate)
	s.backup(allVolumes)
	s.lose()
	name := s.startHooked(execHook(hooked, note))
	restore := s.awaitPhase(name, velerov1.RestorePhaseWaitingForPluginOperations)
	s.held(restore, slow, 1)
	s.awaitHook(hooked)
	s.replaceVelero()
	s.held(restore, slow, 1)
	s.openGate(slow)
	s.completed(s.awaitRestore(name), 2)
	s.resumedByJob(name)
	s.back(name, slow)
	s.back(name, hooked)
	assert.Equal(s.t, s.detachedEver(hooked), s.hooked(hooked), "the hook ran once")
}

// veleroLostInProgress: Velero's pod is deleted while one application's data is in and another's is on its way. Velero marks
// the restore Failed when it starts again, gives up on that data, and asks for no operation any more. The Job finishes the
// one, whose hook has run as well, and keeps the other as it is, which a second restore then brings back.
func veleroLostInProgress(s *scene) {
	filled := app{name: "filled", replicas: 1}
	// Its pod starts with a Secret that comes from somewhere else.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password", Labels: map[string]string{velerov1.ExcludeFromBackupLabel: "true"}}}
	waiting := app{name: "waiting", replicas: 1, change: func(pod *corev1.PodTemplateSpec) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: "password", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret.Name}},
		})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "password", MountPath: "/password"})
	}}
	s.bring(secret)
	s.deploy(filled)
	s.deploy(waiting)
	s.backup(allVolumes)
	s.lose()
	name := s.startHooked(execHook(filled, note))
	detached := s.awaitHook(filled)
	s.awaitVolumeRestore(name, waiting, "", velerov1.PodVolumeRestorePhaseNew)
	s.awaitHeld(waiting)
	run := s.postRestore(name)
	assert.Equal(s.t, 3, run.code, "post-restore refuses: the restore has not ended: %s", run)
	s.replaceVelero()
	restore := s.awaitRestore(name)
	require.Equal(s.t, velerov1.RestorePhaseFailed, restore.Status.Phase)
	s.awaitVolumeRestore(name, waiting, velerov1.PodVolumeRestorePhaseCanceled)
	job, log := s.awaitJob(name, batchv1.JobFailed)
	assert.Nil(s.t, job.Spec.TTLSecondsAfterFinished, "a Job that has failed stays, with its log")
	assert.Contains(s.t, log, "of volume data in pod "+s.held(restore, waiting, 1)[0].Name, "one is back, the other is not")
	assert.Contains(s.t, log, "whether its exec hook (filled) has run to its end is not known")
	assert.Equal(s.t, []string{detached.Name}, s.hooked(filled), "it ran once")
	before := s.revisions(filled)

	// What was not restored is still in the backup. The other application is live by now, and not touched.
	s.remove(waiting)
	s.bring(secret)
	again := s.restore()
	s.completed(again, 1)
	s.proven(again.Name, waiting)
	assert.Equal(s.t, before, s.revisions(filled))
	s.back(name, filled)
}

// awaitHook waits until the hook has left its note in the detached pod of an application, and returns that pod. Velero runs
// hooks in its own process (velero internal/hook/wait_exec_hook_handler.go): one that has not run when the process ends
// never runs.
func (s *scene) awaitHook(a app) corev1.Pod {
	s.t.Helper()
	pod := s.awaitDetached(a, 1, corev1.PodReady)[0]
	s.until(soon, func(context.Context) error {
		if said := s.in(&pod, "sh", "-c", "cat /data/hooks || true"); strings.TrimSpace(said) != pod.Name {
			return fmt.Errorf("the hook has not run in pod %s: %q", pod.Name, said)
		}
		return nil
	})
	return pod
}

// replaceVelero deletes Velero's pod and waits until the next one serves.
func (s *scene) replaceVelero() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	require.NoError(s.t, s.RestartVelero(ctx))
}

// awaitVolumeRestore waits until the one volume restore into pods of an application is in one of the phases.
func (s *scene) awaitVolumeRestore(restore string, a app, phases ...velerov1.PodVolumeRestorePhase) {
	s.t.Helper()
	s.until(restoreTime, func(ctx context.Context) error {
		restores, err := s.volumeRestores(ctx, restore, a)
		if err != nil {
			return err
		}
		if len(restores) != 1 || !slices.Contains(phases, restores[0].Status.Phase) {
			return fmt.Errorf("%d volume restores into pods of %s, want one that is in %q", len(restores), a.name, phases)
		}
		return nil
	})
}

// awaitHeld waits until the DeploymentConfig of an application is there and held.
func (s *scene) awaitHeld(a app) {
	s.t.Helper()
	s.until(restoreTime, func(ctx context.Context) error {
		dc := a.dc(s.ns)
		if err := s.Client().Get(ctx, client.ObjectKeyFromObject(dc), dc); err != nil {
			return err
		}
		if dc.Labels[contract.ReplicasModifiedLabel] == "" {
			return fmt.Errorf("DeploymentConfig %s is not held", a.name)
		}
		return nil
	})
}

// remove deletes an application with its claim, as a person does who gives up what is there.
func (s *scene) remove(a app) {
	s.t.Helper()
	pods, err := s.pods(s.t.Context(), a)
	require.NoError(s.t, err)
	claim := a.claim(s.ns)
	objects := []client.Object{a.dc(s.ns), claim}
	for i := range pods {
		objects = append(objects, &pods[i])
	}
	for _, object := range objects {
		require.NoError(s.t, s.Client().Delete(s.t.Context(), object))
	}
	s.until(soon, func(ctx context.Context) error {
		if err := s.Client().Get(ctx, client.ObjectKeyFromObject(claim), claim); !apierrors.IsNotFound(err) {
			return fmt.Errorf("claim %s is there (%w)", claim.Name, err)
		}
		return nil
	})
}

// bring creates a copy of an object in the scene's namespace.
func (s *scene) bring(object client.Object) {
	s.t.Helper()
	object, _ = object.DeepCopyObject().(client.Object)
	object.SetNamespace(s.ns)
	require.NoError(s.t, s.Client().Create(s.t.Context(), object))
}

// gate is a file on an application's claim without which its pods are not Initialized.
const gate = dataFolder + "/open"

// gated gives pods an init container that waits for the gate.
func gated(pod *corev1.PodTemplateSpec) {
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "gate", Image: bed.BoxImage, VolumeMounts: []corev1.VolumeMount{dataMount},
		Command: []string{"sh", "-c", "until [ -e " + gate + " ]; do sleep 0.2; done"},
	}}
}

// openGate opens the gate from inside a pod that waits for it.
func (s *scene) openGate(a app) {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		pods, err := s.pods(ctx, a)
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			return fmt.Errorf("%s has no pods", a.name)
		}
		_, err = s.Exec(ctx, client.ObjectKeyFromObject(&pods[0]), "gate", nil, "touch", gate)
		return err
	})
}
