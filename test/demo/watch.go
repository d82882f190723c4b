package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/restorehelper"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// narrator follows a restore of the shop and tells what happens, as it happens.
type narrator struct {
	*stage
	restore string
	stop    func()

	mu    sync.Mutex
	seen  map[string]bool // sentences that are told once
	known *ocpappsv1.DeploymentConfig
	heard int // orders in the last answer of the application; silent: none
	phase velerov1.RestorePhase
	// down is when the deletion of the first restored pod began, up when the first new pod was ready after it.
	down, up time.Time
}

// follow starts to tell. Call stop when there is nothing more to tell.
func (s *story) follow(ctx context.Context, restore string) (*narrator, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := &narrator{stage: s.stage, restore: restore, seen: map[string]bool{}, heard: silent}
	var running sync.WaitGroup
	n.stop = func() {
		cancel()
		running.Wait()
	}
	for _, follow := range []struct {
		list      client.ObjectList
		namespace string
	}{
		{&corev1.PodList{}, shop},
		{&ocpappsv1.DeploymentConfigList{}, shop},
		{&velerov1.PodVolumeRestoreList{}, s.VeleroNamespace()},
		{&velerov1.RestoreList{}, s.VeleroNamespace()},
	} {
		w, err := s.watching.Watch(ctx, follow.list, client.InNamespace(follow.namespace))
		if err != nil {
			n.stop()
			return nil, fmt.Errorf("watch %T in %s: %w", follow.list, follow.namespace, err)
		}
		running.Go(func() {
			defer w.Stop()
			for event := range w.ResultChan() {
				n.hear(event)
			}
		})
	}
	if s.ground.scene().serves {
		running.Go(func() { n.keepAsking(ctx, s.ground.orders) })
	}
	return n, nil
}

// silent is how many orders an application answers with that does not answer.
const silent = -1

// keepAsking asks the application for its orders until ctx ends, as a client does that needs it all the time.
func (n *narrator) keepAsking(ctx context.Context, ask func(context.Context) ([]string, error)) {
	ticker := time.NewTicker(2 * pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		answer := silent
		if orders, err := ask(ctx); err == nil {
			answer = len(orders)
		}
		if ctx.Err() == nil {
			n.answered(answer)
		}
	}
}

func (n *narrator) answered(orders int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if orders == n.heard {
		return
	}
	n.heard = orders
	switch orders {
	case silent:
		n.happened("Service", "does not answer")
	case ordered:
		n.happened("Service", "answers: %d orders", orders)
	default:
		n.noticed(red, "Service", "answers: %d orders of %d", orders, ordered)
	}
}

func (n *narrator) hear(event watch.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.Pod:
		if object.Labels[contract.DeploymentConfigLabel] == shop {
			n.pod(object, event.Type == watch.Deleted)
		}
	case *ocpappsv1.DeploymentConfig:
		n.dc(object)
	case *velerov1.PodVolumeRestore:
		if object.Labels[velerov1.RestoreNameLabel] == n.restore {
			n.data(object)
		}
	case *velerov1.Restore:
		if object.Name == n.restore && object.Status.Phase != n.phase && object.Status.Phase != "" {
			n.phase = object.Status.Phase
			n.happened("Restore", "%s", n.phase)
		}
	}
}

// once tells a sentence the first time, and returns whether that was now.
func (n *narrator) once(with style, what, format string, args ...any) bool {
	sentence := what + fmt.Sprintf(format, args...)
	if n.seen[sentence] {
		return false
	}
	n.seen[sentence] = true
	n.noticed(with, what, format, args...)
	return true
}

func (n *narrator) pod(pod *corev1.Pod, gone bool) {
	restored := pod.Labels[velerov1.RestoreNameLabel] == n.restore
	detached := pod.Labels[contract.DisconnectedLabel] != ""
	going := pod.DeletionTimestamp != nil
	switch {
	case detached:
		n.once(plain, "Pod", "%s is restored, detached, and waits for its data", pod.Name)
	case restored && bringsData(pod):
		n.once(plain, "Pod", "%s is restored and waits for its data", pod.Name)
	case restored:
		n.once(plain, "Pod", "%s is restored", pod.Name)
	default:
		n.once(plain, "Pod", "%s is made by ReplicationController %s", pod.Name, pod.Labels[contract.DeploymentLabel])
	}
	switch {
	case detached && going:
		if n.once(plain, "Pod", "%s is deleted: its work is done", pod.Name) && n.down.IsZero() {
			n.down = time.Now()
		}
	case restored && going && bringsData(pod):
		n.once(red, "Pod", "%s is deleted by its ReplicationController, before its data is there", pod.Name)
	case restored && going:
		n.once(plain, "Pod", "%s is deleted by its ReplicationController", pod.Name)
	case ready(pod) && !restored:
		if n.once(plain, "Pod", "%s is ready", pod.Name) && n.up.IsZero() {
			n.up = time.Now()
		}
	}
	if detached && gone {
		n.once(plain, "Pod", "%s is gone", pod.Name)
	}
}

// bringsData tells whether the pod is one whose volumes Velero fills, and has not filled yet.
func bringsData(pod *corev1.Pod) bool {
	waits := slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == restorehelper.WaitInitContainer })
	return waits && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
	})
}

func (n *narrator) dc(dc *ocpappsv1.DeploymentConfig) {
	held, before := dc.Labels[contract.ReplicasModifiedLabel] != "", n.known
	n.known = dc
	switch {
	case before == nil && held:
		n.happened("DC", "%s is restored and held at %d replicas; its own %s are written down",
			dc.Name, dc.Spec.Replicas, dc.Annotations[contract.OriginalReplicasAnnotation])
	case before == nil:
		n.happened("DC", "%s is restored with %d replicas, and rolls out", dc.Name, dc.Spec.Replicas)
	case before.Spec.Replicas != dc.Spec.Replicas:
		n.happened("DC", "%s is back at %d replicas", dc.Name, dc.Spec.Replicas)
	}
	if before != nil && !held && before.Labels[contract.ReplicasModifiedLabel] != "" {
		n.happened("DC", "%s is released, no mark is left on it", dc.Name)
	}
}

func (n *narrator) data(restore *velerov1.PodVolumeRestore) {
	switch restore.Status.Phase {
	case velerov1.PodVolumeRestorePhaseInProgress:
		n.once(plain, "Data", "is being written through pod %s", restore.Spec.Pod.Name)
	case velerov1.PodVolumeRestorePhaseCompleted:
		n.once(plain, "Data", "is back")
	}
}

// outage is the time without a ready pod; 0 if it is not over.
func (n *narrator) outage() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down.IsZero() || n.up.IsZero() {
		return 0
	}
	return n.up.Sub(n.down)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
