// Package history records what becomes of pods, DeploymentConfigs and volume restores while a scenario runs, and says what
// of it breaks the invariants of docs/architecture.md: those hold at every moment, and a look at the end shows the end only.
package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Recording keeps every version of the pods and DeploymentConfigs of some namespaces, and of all PodVolumeRestores.
type Recording struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	versions []Version
}

// Version is an object as it was from one moment on. All objects of a cluster are in one etcd, whose revisions order them.
type Version struct {
	Revision int64
	// At is when it was told of, by the clock of this machine.
	At      time.Time
	Deleted bool
	Object  client.Object
}

// Record starts a recording of the namespaces, and of the PodVolumeRestores in Velero's. It goes on until End.
func Record(c client.WithWatch, veleroNamespace string, namespaces ...string) *Recording {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recording{stop: cancel}
	r.follow(ctx, c, veleroNamespace, &velerov1.PodVolumeRestoreList{})
	for _, namespace := range namespaces {
		r.follow(ctx, c, namespace, &corev1.PodList{})
		r.follow(ctx, c, namespace, &ocpappsv1.DeploymentConfigList{})
	}
	return r
}

// follow records what a watch tells. The API server ends a watch after half an hour at the earliest, which no scenario
// lasts.
func (r *Recording) follow(ctx context.Context, c client.WithWatch, namespace string, list client.ObjectList) {
	r.done.Go(func() {
		w, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			return // a cluster without that kind has nothing to record
		}
		defer w.Stop()
		for event := range w.ResultChan() {
			object, ok := event.Object.(client.Object)
			if !ok {
				continue
			}
			revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
			if err != nil {
				continue
			}
			r.mu.Lock()
			r.versions = append(r.versions, Version{Revision: revision, At: time.Now(), Deleted: event.Type == watch.Deleted, Object: object})
			r.mu.Unlock()
		}
	})
}

// SoFar returns what has been recorded up to now, in order, and goes on recording.
func (r *Recording) SoFar() []Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(r.versions), func(a, b Version) int { return cmp.Compare(a.Revision, b.Revision) })
}

// End ends the recording and returns it, in order.
func (r *Recording) End() []Version {
	r.stop()
	r.done.Wait()
	return r.SoFar()
}

// past is the state of the recorded objects at one moment.
type past struct {
	pods     map[types.NamespacedName]*corev1.Pod
	dcs      map[types.NamespacedName]*ocpappsv1.DeploymentConfig
	restores map[types.UID][]*velerov1.PodVolumeRestore
	original map[types.NamespacedName]string
}

// Violations checks invariants I1 and I2 over a history and returns what breaks them, each beginning with its name.
func Violations(history []Version) []string {
	now := past{
		pods: map[types.NamespacedName]*corev1.Pod{}, dcs: map[types.NamespacedName]*ocpappsv1.DeploymentConfig{},
		restores: map[types.UID][]*velerov1.PodVolumeRestore{}, original: map[types.NamespacedName]string{},
	}
	var found []string
	for _, v := range history {
		key := client.ObjectKeyFromObject(v.Object)
		switch object := v.Object.(type) {
		case *velerov1.PodVolumeRestore:
			now.sawRestore(object)
		case *ocpappsv1.DeploymentConfig:
			found = append(found, now.sawDC(key, object, v.Deleted)...)
		case *corev1.Pod:
			found = append(found, now.sawPod(key, object, v.Deleted)...)
		}
		found = append(found, now.detachedOfRunning(v.Revision)...)
	}
	return slices.Compact(found)
}

func (p *past) sawRestore(restore *velerov1.PodVolumeRestore) {
	of := restore.Spec.Pod.UID
	p.restores[of] = append(slices.DeleteFunc(p.restores[of], func(r *velerov1.PodVolumeRestore) bool { return r.Name == restore.Name }), restore)
}

// sawDC checks that a recorded original never changes (I2).
func (p *past) sawDC(key types.NamespacedName, dc *ocpappsv1.DeploymentConfig, deleted bool) (found []string) {
	if deleted {
		delete(p.dcs, key)
		delete(p.original, key)
		return nil
	}
	p.dcs[key] = dc
	recorded := dc.Annotations[contract.OriginalReplicasAnnotation] + "/" + dc.Annotations[contract.OriginalPausedAnnotation]
	if recorded == "/" {
		delete(p.original, key)
		return nil
	}
	if before, ok := p.original[key]; ok && before != recorded {
		found = append(found, fmt.Sprintf("I2: the recorded original of %s went from %s to %s", key, before, recorded))
	}
	p.original[key] = recorded
	return found
}

// sawPod checks that no detached pod is deleted whose data is on its way (I2).
func (p *past) sawPod(key types.NamespacedName, pod *corev1.Pod, deleted bool) (found []string) {
	before := p.pods[key]
	if deleted {
		delete(p.pods, key)
	} else {
		p.pods[key] = pod
	}
	isGoing := deleted || pod.DeletionTimestamp != nil
	wasGoing := before != nil && before.DeletionTimestamp != nil
	if !isGoing || wasGoing || pod.Labels[contract.DisconnectedLabel] == "" {
		return nil
	}
	for _, restore := range p.restores[pod.UID] {
		switch restore.Status.Phase {
		case velerov1.PodVolumeRestorePhaseCompleted, velerov1.PodVolumeRestorePhaseFailed, velerov1.PodVolumeRestorePhaseCanceled:
		default:
			found = append(found, fmt.Sprintf("I2: detached pod %s was deleted while %s was %q", key, restore.Name, restore.Status.Phase))
		}
	}
	return found
}

// detachedOfRunning checks that a DeploymentConfig is at 0 for as long as a pod detached from it lives (I1).
func (p *past) detachedOfRunning(revision int64) (found []string) {
	for key, pod := range p.pods {
		name := pod.Annotations[contract.DeploymentConfigAnnotation]
		if pod.Labels[contract.DisconnectedLabel] == "" || name == "" {
			continue
		}
		dc := p.dcs[types.NamespacedName{Namespace: key.Namespace, Name: name}]
		if dc != nil && dc.Spec.Replicas > 0 {
			found = append(found, fmt.Sprintf("I1: pod %s was detached while its DeploymentConfig had %d replicas (revision %d)", key, dc.Spec.Replicas, revision))
		}
	}
	return found
}

// Beside returns the pods that a DeploymentConfig had made while one that is detached from it was still there: the two would
// write to the same volume. detached tells whether any pod was detached from it at all.
func Beside(history []Version, dc types.NamespacedName) (beside []string, detached bool) {
	live := map[string]bool{}
	for _, v := range history {
		pod, ok := v.Object.(*corev1.Pod)
		if !ok || pod.Namespace != dc.Namespace || pod.Labels[contract.DeploymentConfigLabel] != dc.Name {
			continue
		}
		switch {
		case pod.Labels[contract.DisconnectedLabel] == "":
			if len(live) > 0 && !slices.Contains(beside, pod.Name) {
				beside = append(beside, pod.Name)
			}
		case v.Deleted:
			delete(live, pod.Name)
		default:
			live[pod.Name], detached = true, true
		}
	}
	return beside, detached
}

// Outage is for how long the users of an application had no pod to answer them while phase two replaced the restored pods:
// the time without a single ready pod, from when a detached pod was first ready, or, if none was before, when one began to
// go, until the DeploymentConfig has as many ready pods of its own as it has replicas. A pod that is going is not ready: no
// Service leads to it. ok is false when that end, or any detached pod, is not in the history.
func Outage(history []Version, dc types.NamespacedName, replicas int) (outage time.Duration, ok bool) {
	ready, own := map[string]bool{}, map[string]bool{}
	var begun bool
	var last time.Time
	for _, v := range history {
		pod, is := v.Object.(*corev1.Pod)
		if !is || pod.Namespace != dc.Namespace || pod.Labels[contract.DeploymentConfigLabel] != dc.Name {
			continue
		}
		if begun && len(ready) == 0 {
			outage += v.At.Sub(last)
		}
		last = v.At
		detached := pod.Labels[contract.DisconnectedLabel] != ""
		going := v.Deleted || pod.DeletionTimestamp != nil
		switch {
		case going || !isReady(pod):
			delete(ready, pod.Name)
			delete(own, pod.Name)
		case detached:
			ready[pod.Name] = true
		default:
			ready[pod.Name], own[pod.Name] = true, true
		}
		begun = begun || detached && (going || ready[pod.Name])
		if begun && len(own) >= replicas {
			return outage, true
		}
	}
	return 0, false
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
