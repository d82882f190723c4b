package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/history"
)

// TestResume brings DeploymentConfigs back that do not come back by `replicas: N` alone, all in one restore. Each has a
// claim of its own name. Two of them keep the restore waiting until the test gives what they wait for.
func TestResume(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "third", replicas: 2, claim: "third"})
	s.bump("third", 3)
	s.deploy(app{name: "paused", replicas: 2, claim: "paused", change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Paused = true }})
	s.deploy(app{name: "untriggered", replicas: 1, claim: "untriggered", change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Triggers = nil }})
	s.deploy(app{name: "migrates", replicas: 1, claim: "migrates", change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Strategy.RecreateParams = &ocpappsv1.RecreateDeploymentStrategyParams{Pre: hookPod("migrate")}
	}})
	s.deploy(app{name: "blocked", replicas: 2, claim: "blocked"})
	s.deploy(app{name: "scaled", replicas: 2, claim: "scaled"})
	s.deploy(app{name: "capped", replicas: 3, claim: "capped"})
	s.deployByImage(app{name: "awaits", replicas: 1, claim: "awaits", change: imageTrigger(true)})
	s.deployByImage(app{name: "fires", replicas: 1, claim: "fires", change: imageTrigger(true)})
	s.deployByImage(app{name: "byhand", replicas: 1, claim: "byhand", change: imageTrigger(false)})
	autoscaler := autoscalerOf(s.ns, "scaled", 1, 4)
	s.create(autoscaler)
	names := []string{"third", "paused", "untriggered", "migrates", "blocked", "scaled", "capped", "awaits", "fires", "byhand"}

	backup := s.backup(allVolumes)
	s.lose()
	require.NoError(t, s.Client().Delete(t.Context(), autoscaler.DeepCopy()))

	// A pod by the name of a deployer pod that is none makes the first rollout fail, at 0 replicas, while it is held.
	s.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "blocked-1-deploy"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
	})
	s.create(autoscalerOf(s.ns, "capped", 1, 1))
	download := s.awaitsDownload("restore", "fires")
	s.startRestore(s.name("restore"), backup)

	t.Run("B24 an image trigger that fires while it is held", func(t *testing.T) { s.in(t).firesWhileHeld(download) })
	t.Run("D9 an image trigger that is not resolved", func(t *testing.T) { s.in(t).unresolvedTrigger() })
	restore := s.awaitRestore(s.name("restore"))
	s.completed(restore, len(names))
	back := func(t *testing.T, name string, replicas int, paused bool) {
		t.Helper()
		s := s.in(t)
		s.awaitPods(s.ns, name, replicas)
		assert.EqualValues(t, replicas, s.dc(s.ns, name).Spec.Replicas)
		assert.Equal(t, paused, s.dc(s.ns, name).Spec.Paused)
		s.hasData(s.ns, name)
		s.neverBeside(name)
	}

	// The report: "RCs discarded, mariadb-3 is not back". Instead: versions start at 1 again, and a rollout brings the pods.
	t.Run("B18 its old ReplicationControllers do not come back, a rollout does", func(t *testing.T) {
		back(t, "third", 2, false)
		assert.Equal(t, []string{"third-1"}, s.in(t).controllersOf("third"))
	})
	// The report: a DeploymentConfig that was paused comes back paused and nothing starts. Instead: its pods, then paused.
	t.Run("B20 D7 originally paused", func(t *testing.T) {
		back(t, "paused", 2, true)
		s.in(t).pausedLast("paused")
	})
	// The defect: the ReplicationController of a paused one is restored at its full count and starts pods on volumes that
	// are half restored. Instead: it does not come; neverBeside above shows that no pod of it did.
	t.Run("D11 no ReplicationController of a paused one runs beside the data", func(t *testing.T) {
		assert.NotContains(t, s.in(t).details(restore.Name), s.ns+"/paused-1(created)")
		s.in(t).neverBeside("paused")
	})
	// The defect: without triggers nothing rolls out, and scaling alone leaves 0 pods. Instead: phase two starts a rollout.
	t.Run("D8 no triggers", func(t *testing.T) {
		back(t, "untriggered", 1, false)
		assert.Equal(t, []string{"untriggered-1"}, s.in(t).controllersOf("untriggered"))
	})
	// The defect: a trigger with automatic: false is never resolved, and the first rollout is deferred for ever. Instead:
	// phase two starts it.
	t.Run("D9 an image trigger that is not automatic", func(t *testing.T) { back(t, "byhand", 1, false) })
	t.Run("B24 D9 resolved triggers", func(t *testing.T) {
		back(t, "fires", 1, false)
		back(t, "awaits", 1, false)
	})
	// The defect: the hook pods of a rollout run on volumes that are still empty. Instead: after the data is in.
	t.Run("D10 a lifecycle hook", func(t *testing.T) {
		back(t, "migrates", 1, false)
		s.in(t).hookAfterData("migrates")
	})
	// A rollout that failed while it was held would leave 0 pods for ever; phase two starts a new one, once.
	t.Run("a rollout that failed while it was held", func(t *testing.T) {
		back(t, "blocked", 2, false)
		assert.Equal(t, []string{"blocked-1", "blocked-2"}, s.in(t).controllersOf("blocked"))
	})
	// The report: the autoscaler of a restored DeploymentConfig does not find its target. Instead: it comes as it was.
	t.Run("B25 its autoscaler", func(t *testing.T) {
		back(t, "scaled", 2, false)
		var restored autoscalingv2.HorizontalPodAutoscaler
		require.NoError(t, s.Client().Get(t.Context(), client.ObjectKeyFromObject(autoscaler), &restored))
		assert.Equal(t, autoscaler.Spec, restored.Spec)
	})
	// The reports: an autoscaler whose target is at 0 is disabled for ever, so 0 must not be left; and phase two must not
	// fight over replicas that the autoscaler corrects. The autoscaler's own controller looks every 15 s.
	t.Run("B26 D37 an autoscaler with less replicas", func(t *testing.T) {
		s := s.in(t)
		s.until(soon, func(ctx context.Context) error {
			var dc ocpappsv1.DeploymentConfig
			if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "capped"}, &dc); err != nil {
				return err
			}
			if dc.Spec.Replicas != 1 {
				return fmt.Errorf("it has %d replicas, the autoscaler allows 1", dc.Spec.Replicas)
			}
			return nil
		})
		s.resumed(restore.Name, s.ns, "capped", 1, false)
		s.hasData(s.ns, "capped")
	})
}

// firesWhileHeld: the report: an image trigger rolls out during the restore, the pod is killed and its hook lost. Instead:
// the rollout is one of 0 replicas, and the pod that waits for its data lives.
func (s *scene) firesWhileHeld(download *velerov2alpha1.DataDownload) {
	s.t.Helper()
	pod := s.awaitDetached(s.ns, "fires", 1)[0]
	s.resolve("fires")
	s.until(soon, func(ctx context.Context) error { return s.rolledOut(ctx, s.ns, "fires", 1) })
	s.held(s.awaitPhase(s.name("restore"), velerov1.RestorePhaseWaitingForPluginOperations), s.ns, "fires", disconnect.Originals{Replicas: 1}, 1)
	still := s.awaitDetached(s.ns, "fires", 1)[0]
	assert.Equal(s.t, pod.UID, still.UID, "the pod outlives the rollout")
	s.endDownload(download, velerov2alpha1.DataDownloadPhaseCompleted)
}

// unresolvedTrigger: the defect: the first rollout is deferred for ever and nobody says so. Instead: the operation names the
// trigger and goes on when the image is there.
func (s *scene) unresolvedTrigger() {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		var dc ocpappsv1.DeploymentConfig
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "awaits"}, &dc); err != nil {
			return err
		}
		if dc.Spec.Replicas != 1 {
			return errors.New("it has no replicas yet")
		}
		return nil
	})
	assert.Empty(s.t, s.controllersOf("awaits"), "no rollout starts without an image")
	run := s.postRestore(s.name("restore"))
	assert.Equal(s.t, 3, run.code, run)
	assert.Contains(s.t, run.errOut, "has not ended: it is WaitingForPluginOperations")
	s.until(soon, func(context.Context) error {
		out, err := s.DescribeRestore(s.t.Context(), s.name("restore"))
		if err != nil {
			return err
		}
		if want := "waiting for the image of trigger ImageStreamTag awaits:latest"; !strings.Contains(out, want) {
			return fmt.Errorf("the operation does not say %q:\n%s", want, out)
		}
		return nil
	})
	s.resolve("awaits")
}

// TestD12_RCOfAPausedDeploymentConfig: a paused DeploymentConfig without data is not held; its ReplicationController is what
// runs its pods. The defect: the openshift plugin reads it as a ReplicaSet, and spec.selector is lost. Instead: it comes
// byte by byte.
func TestD12_RCOfAPausedDeploymentConfig(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Paused = true }})
	var before, after corev1.ReplicationController
	key := client.ObjectKey{Namespace: s.ns, Name: "web-1"}
	require.NoError(t, s.Client().Get(t.Context(), key, &before))
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 0)
	require.NoError(t, s.Client().Get(t.Context(), key, &after))
	assert.Equal(t, before.Spec, after.Spec)
	assert.Equal(t, before.Annotations, after.Annotations)
	s.resumed(restore.Name, s.ns, "web", 2, true)
}

// TestD32_ServiceOfDetachedPods: the defect: detached pods lose the label deploymentconfig, which Services of `oc new-app`
// select on. Instead: they keep it, so that a hook that talks to the application finds it.
func TestD32_ServiceOfDetachedPods(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	s.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{contract.DeploymentConfigLabel: "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup, manually...)
	s.completed(restore, 1)
	pod := s.awaitDetached(s.ns, "web", 1)[0]
	s.until(soon, func(ctx context.Context) error {
		var endpoints corev1.Endpoints //nolint:staticcheck // the shortest way to what a Service leads to
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "web"}, &endpoints); err != nil {
			return err
		}
		for _, subset := range endpoints.Subsets {
			for _, address := range slices.Concat(subset.Addresses, subset.NotReadyAddresses) {
				if address.TargetRef != nil && address.TargetRef.UID == pod.UID {
					return nil
				}
			}
		}
		return errors.New("the Service does not lead to the detached pod")
	})
	run := s.postRestore(restore.Name)
	require.Equal(t, 0, run.code, run)
	s.resumed(restore.Name, s.ns, "web", 1, false)
}

// manually leaves phase two to the test.
var manually = []string{"--annotations", contract.ResumeAnnotation + "=manual"}

// in returns the scene for a subtest, which then fails in its place.
func (s *scene) in(t *testing.T) *scene {
	t.Helper()
	c := *s
	c.t = t
	return &c
}

// hookPod is a lifecycle hook that mounts the application's claim.
func hookPod(command ...string) *ocpappsv1.LifecycleHook {
	return &ocpappsv1.LifecycleHook{
		FailurePolicy: ocpappsv1.LifecycleHookFailurePolicyAbort,
		ExecNewPod:    &ocpappsv1.ExecNewPodHook{ContainerName: "app", Command: command, Volumes: []string{"data"}},
	}
}

// imageTrigger gives a DeploymentConfig an image trigger beside that for changes of its configuration.
func imageTrigger(automatic bool) func(*ocpappsv1.DeploymentConfig) {
	return func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Triggers = append(slices.Clone(onConfigChange), ocpappsv1.DeploymentTriggerPolicy{
			Type: ocpappsv1.DeploymentTriggerOnImageChange,
			ImageChangeParams: &ocpappsv1.DeploymentTriggerImageChangeParams{
				Automatic: automatic, ContainerNames: []string{"app"},
				From: corev1.ObjectReference{Kind: "ImageStreamTag", Name: dc.Name + ":latest"},
			},
		})
	}
}

// deployByImage is deploy for an application with an image trigger. One that is not automatic is resolved by whoever starts
// the rollout.
func (s *scene) deployByImage(a app) {
	s.t.Helper()
	s.ensureClaim(a.claim)
	dc := a.dc(s.ns)
	s.create(dc)
	s.resolve(a.name)
	if automatic := dc.Spec.Triggers[1].ImageChangeParams.Automatic; !automatic {
		s.rollOut(a.name, 1)
	}
	s.awaitPods(s.ns, a.name, int(a.replicas))
}

// resolve does what OpenShift's image trigger controller does when an image is there.
func (s *scene) resolve(name string) {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		var dc ocpappsv1.DeploymentConfig
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: name}, &dc); err != nil {
			return err
		}
		if dc.Status.ObservedGeneration != dc.Generation {
			return errors.New("its controller has not seen it yet")
		}
		const image = "registry.example/app@sha256:0123"
		for i := range dc.Spec.Triggers {
			if params := dc.Spec.Triggers[i].ImageChangeParams; params != nil {
				params.LastTriggeredImage = image
			}
		}
		dc.Spec.Template.Spec.Containers[0].Image = image
		return s.Client().Update(ctx, &dc)
	})
}

// autoscalerOf returns an autoscaler that has no metrics to go by, only bounds.
func autoscalerOf(namespace, name string, low, high int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: ocpappsv1.GroupVersion.String(), Kind: "DeploymentConfig", Name: name},
			MinReplicas:    &low, MaxReplicas: high,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](80)},
			}}},
		},
	}
}

// awaitsDownload creates a DataDownload into a claim for a restore of this scene that does not exist yet, as Velero's data
// mover does while it restores claims. It lasts until endDownload.
func (s *scene) awaitsDownload(restore, claim string) *velerov2alpha1.DataDownload {
	s.t.Helper()
	download := &velerov2alpha1.DataDownload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.VeleroNamespace(), Name: s.name(restore) + "-" + claim,
			Labels: map[string]string{velerov1.RestoreNameLabel: s.name(restore)},
		},
		Spec: velerov2alpha1.DataDownloadSpec{
			TargetVolume:          velerov2alpha1.TargetVolumeSpec{Namespace: s.ns, PVC: claim},
			BackupStorageLocation: "default", SnapshotID: "none", SourceNamespace: s.ns,
		},
		Status: velerov2alpha1.DataDownloadStatus{Phase: velerov2alpha1.DataDownloadPhaseInProgress},
	}
	s.create(download)
	return download
}

func (s *scene) endDownload(download *velerov2alpha1.DataDownload, phase velerov2alpha1.DataDownloadPhase) {
	s.t.Helper()
	s.patch(download, fmt.Sprintf(`{"status":{"phase":%q}}`, phase))
}

// awaitPhase waits until a restore is in a phase and returns it.
func (s *scene) awaitPhase(name string, phase velerov1.RestorePhase) *velerov1.Restore {
	s.t.Helper()
	restore := &velerov1.Restore{}
	s.until(restoreTime, func(ctx context.Context) error {
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.VeleroNamespace(), Name: name}, restore); err != nil {
			return err
		}
		if restore.Status.Phase != phase {
			return fmt.Errorf("restore %s is %s, want %s", name, restore.Status.Phase, phase)
		}
		return nil
	})
	return restore
}

// awaitDetached waits until a DeploymentConfig has so many detached pods, and nothing but them, all of them Initialized.
func (s *scene) awaitDetached(namespace, name string, n int) []corev1.Pod {
	s.t.Helper()
	var detached []corev1.Pod
	s.until(restoreTime, func(ctx context.Context) error {
		pods, err := s.pods(ctx, namespace, name)
		if err != nil {
			return err
		}
		detached = pods
		for i := range pods {
			initialized := slices.ContainsFunc(pods[i].Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
			})
			if pods[i].Labels[contract.DisconnectedLabel] == "" || !initialized {
				return fmt.Errorf("pod %s is not detached or not Initialized", pods[i].Name)
			}
		}
		if len(pods) != n {
			return fmt.Errorf("%s/%s has %d detached pods, want %d", namespace, name, len(pods), n)
		}
		return nil
	})
	return detached
}

// controllersOf returns the names of the ReplicationControllers of a DeploymentConfig.
func (s *scene) controllersOf(name string) []string {
	s.t.Helper()
	var list corev1.ReplicationControllerList
	require.NoError(s.t, s.Client().List(s.t.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{contract.PodDeploymentConfigAnnotation: name}))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// neverBeside asserts that no pod of a DeploymentConfig's own was made before the last detached one was gone, and that
// there were detached ones.
func (s *scene) neverBeside(name string) {
	s.t.Helper()
	beside, detached := history.Beside(s.record.SoFar(), types.NamespacedName{Namespace: s.ns, Name: name})
	assert.Empty(s.t, beside, "pods of DeploymentConfig %s made while detached ones were there", name)
	assert.True(s.t, detached, "DeploymentConfig %s had detached pods", name)
}

// pausedLast asserts that a DeploymentConfig was never paused with replicas before its own pods were there: its controller
// ignores a paused one. They are counted as pods, since the DeploymentConfig's status follows later.
func (s *scene) pausedLast(name string) {
	s.t.Helper()
	own := map[string]bool{}
	for _, v := range s.record.SoFar() {
		switch object := v.Object.(type) {
		case *corev1.Pod:
			if object.Namespace == s.ns && object.Labels[contract.DeploymentConfigLabel] == name && object.Labels[contract.DisconnectedLabel] == "" {
				own[object.Name] = !v.Deleted
			}
		case *ocpappsv1.DeploymentConfig:
			if object.Name != name || object.Namespace != s.ns || !object.Spec.Paused || object.Spec.Replicas == 0 {
				continue
			}
			there := slices.DeleteFunc(slices.Collect(maps.Keys(own)), func(pod string) bool { return !own[pod] })
			assert.Len(s.t, there, int(object.Spec.Replicas), "pods when it was paused (revision %d)", v.Revision)
			return
		}
	}
	assert.Fail(s.t, "it was never paused again")
}

// hookAfterData asserts that a DeploymentConfig was held paused, and that its hook pod came when all volume restores of its
// detached pods had ended.
func (s *scene) hookAfterData(name string) {
	s.t.Helper()
	var filled, hook int64
	for _, v := range s.record.SoFar() {
		switch object := v.Object.(type) {
		case *velerov1.PodVolumeRestore:
			ours := object.Spec.Pod.Namespace == s.ns && object.Spec.Volume == "data" && slices.Contains(s.podsEver(name), object.Spec.Pod.Name)
			if ours && object.Status.Phase == velerov1.PodVolumeRestorePhaseCompleted {
				filled = max(filled, v.Revision)
			}
		case *corev1.Pod:
			if object.Namespace == s.ns && object.Labels[contract.DeployerPodForLabel] == name+"-1" && object.Name == name+"-1-hook-pre" && hook == 0 {
				hook = v.Revision
			}
		case *ocpappsv1.DeploymentConfig:
			if object.Namespace == s.ns && object.Name == name && object.Spec.Replicas == 0 {
				assert.True(s.t, object.Spec.Paused, "it is held paused (revision %d)", v.Revision)
			}
		}
	}
	require.NotZero(s.t, filled, "its data came")
	require.NotZero(s.t, hook, "its hook ran")
	assert.Greater(s.t, hook, filled, "the hook pod was made after the data was in")
}

// podsEver returns the names of all pods of a DeploymentConfig that were recorded.
func (s *scene) podsEver(name string) []string {
	var names []string
	for _, v := range s.record.SoFar() {
		if pod, ok := v.Object.(*corev1.Pod); ok && pod.Namespace == s.ns && pod.Labels[contract.DeploymentConfigLabel] == name && !slices.Contains(names, pod.Name) {
			names = append(names, pod.Name)
		}
	}
	return names
}
