package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// recorder keeps every version of the pods and DeploymentConfigs of some namespaces, and of all PodVolumeRestores.
type recorder struct {
	mu       sync.Mutex
	versions []version
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// version is an object as it was from one moment on. All objects of a bed are in one etcd, whose revisions order them.
type version struct {
	revision int64
	deleted  bool
	object   client.Object
}

func newRecorder(t *testing.T, c *cluster, namespaces ...string) *recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &recorder{stop: cancel}
	lists := map[string][]client.ObjectList{c.VeleroNamespace(): {&velerov1.PodVolumeRestoreList{}}}
	for _, namespace := range namespaces {
		lists[namespace] = []client.ObjectList{&corev1.PodList{}, &ocpappsv1.DeploymentConfigList{}}
	}
	for namespace, kinds := range lists {
		for _, list := range kinds {
			r.follow(ctx, c.watching, namespace, list)
		}
	}
	return r
}

// follow records what a watch tells. The API server ends a watch after half an hour at the earliest, which no scenario
// lasts.
func (r *recorder) follow(ctx context.Context, c client.WithWatch, namespace string, list client.ObjectList) {
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
			r.versions = append(r.versions, version{revision: revision, deleted: event.Type == watch.Deleted, object: object})
			r.mu.Unlock()
		}
	})
}

// history ends the recording once it has seen what the cluster holds now, and returns it in order.
func (r *recorder) history() []version {
	r.stop()
	r.done.Wait()
	slices.SortStableFunc(r.versions, func(a, b version) int { return cmp.Compare(a.revision, b.revision) })
	return r.versions
}

// past is the state of the recorded objects at one moment.
type past struct {
	pods     map[types.NamespacedName]*corev1.Pod
	dcs      map[types.NamespacedName]*ocpappsv1.DeploymentConfig
	restores map[types.UID][]*velerov1.PodVolumeRestore
	original map[types.NamespacedName]string
}

// violations checks invariants I1 and I2 over a history and returns what breaks them.
func violations(history []version) []string {
	now := past{
		pods: map[types.NamespacedName]*corev1.Pod{}, dcs: map[types.NamespacedName]*ocpappsv1.DeploymentConfig{},
		restores: map[types.UID][]*velerov1.PodVolumeRestore{}, original: map[types.NamespacedName]string{},
	}
	var found []string
	for _, v := range history {
		key := client.ObjectKeyFromObject(v.object)
		switch object := v.object.(type) {
		case *velerov1.PodVolumeRestore:
			now.sawRestore(object)
		case *ocpappsv1.DeploymentConfig:
			found = append(found, now.sawDC(key, object, v.deleted)...)
		case *corev1.Pod:
			found = append(found, now.sawPod(key, object, v.deleted)...)
		}
		found = append(found, now.detachedOfRunning(v.revision)...)
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
