package node

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/restorehelper"
)

// conflictRetry is how soon a write is tried again that came too early: the cache did not have the newest object yet.
const conflictRetry = 10 * time.Millisecond

// addKubelet registers the stand-in for kubelet: it keeps a sandbox for each pod of this node and writes its status.
func (n *Node) addKubelet(mgr manager.Manager) error {
	mine := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && pod.Spec.NodeName == n.opts.Name
	})
	b := builder.ControllerManagedBy(mgr).Named("kubelet").
		For(&corev1.Pod{}, builder.WithPredicates(mine)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(n.podsOfClaim))
	if n.opts.VeleroNamespace != "" {
		b = b.Watches(&velerov1.PodVolumeRestore{}, handler.EnqueueRequestsFromMapFunc(podOfRestore))
	}
	if err := b.Complete(reconcile.Func(n.syncPod)); err != nil {
		return fmt.Errorf("add the kubelet: %w", err)
	}
	return nil
}

func podOfRestore(_ context.Context, o client.Object) []reconcile.Request {
	pvr, ok := o.(*velerov1.PodVolumeRestore)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pvr.Spec.Pod.Namespace, Name: pvr.Spec.Pod.Name}}}
}

func (n *Node) syncPod(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := n.client.Get(ctx, req.NamespacedName, &pod); err != nil {
		if apierrors.IsNotFound(err) {
			n.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.Spec.NodeName != n.opts.Name {
		return reconcile.Result{}, nil
	}
	volumes, err := n.mounts(ctx, &pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	f := facts{mounted: volumes != nil}
	if f.restored, err = n.restored(ctx, &pod); err != nil {
		return reconcile.Result{}, err
	}

	old, now := pod.DeepCopy(), time.Now()
	n.mu.Lock()
	s := n.sandboxOf(&pod, now)
	next := s.advance(&pod, f, n.opts, now)
	s.report(&pod, f, n.opts, "127.0.0.1", now)
	n.recordUses(s, &pod, volumes, now)
	remove := s.stopped && !pod.DeletionTimestamp.IsZero()
	n.mu.Unlock()

	after := time.Duration(0)
	if !next.IsZero() {
		after = max(next.Sub(now), time.Millisecond)
	}
	result, err := n.writeStatus(ctx, old, &pod, after)
	if err != nil || result.RequeueAfter == conflictRetry || !remove {
		return result, err
	}
	return result, n.remove(ctx, &pod)
}

// remove takes a pod whose containers have ended out of the API.
func (n *Node) remove(ctx context.Context, pod *corev1.Pod) error {
	err := n.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // gone, or replaced
		return fmt.Errorf("remove terminated pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// writeStatus writes the status of a pod if it differs from old's, under the condition that old is still what the API
// server has, and asks to be called again after the given time (0: not).
func (n *Node) writeStatus(ctx context.Context, old, pod *corev1.Pod, after time.Duration) (reconcile.Result, error) {
	if equality.Semantic.DeepEqual(old.Status, pod.Status) {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	err := n.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(old, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("write the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// sandboxOf returns the sandbox of a pod, a new one for a new pod. It is called with n.mu held.
func (n *Node) sandboxOf(pod *corev1.Pod, now time.Time) *sandbox {
	key := client.ObjectKeyFromObject(pod)
	if s := n.sandboxes[key]; s != nil {
		if s.uid == pod.UID {
			return s
		}
		n.discard(s, now) // force-deleted and made again under the same name
	}
	n.lastIP++
	s := newSandbox(pod, fmt.Sprintf("10.131.%d.%d", n.lastIP>>8, n.lastIP&0xff), now)
	n.sandboxes[key] = s
	return s
}

// forget drops a pod whose API object is gone.
func (n *Node) forget(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sandboxes[key]; s != nil {
		n.discard(s, time.Now())
		delete(n.sandboxes, key)
	}
}

// discard ends a sandbox and its emptyDirs. It is called with n.mu held.
func (n *Node) discard(s *sandbox, now time.Time) {
	s.stop(now, exitKilled)
	prefix := podKey(s.uid)
	for key := range n.contents {
		if len(key) > len(prefix) && key[:len(prefix)] == prefix {
			delete(n.contents, key)
		}
	}
}

// mounts returns the volume behind each claim of a pod; nil while one of them is not bound.
func (n *Node) mounts(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	volumes := map[string]string{}
	for _, name := range claimsOf(pod) {
		var claim corev1.PersistentVolumeClaim
		if err := n.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, &claim); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, nil //nolint:nilnil // not bound
			}
			return nil, fmt.Errorf("get claim %s/%s: %w", pod.Namespace, name, err)
		}
		if claim.Status.Phase != corev1.ClaimBound {
			return nil, nil //nolint:nilnil // not bound
		}
		volumes[name] = claim.Spec.VolumeName
	}
	return volumes, nil
}

// recordUses opens a Use for each claim when the pod's first container runs; sandbox.stop closes it. It is called with
// n.mu held.
func (n *Node) recordUses(s *sandbox, pod *corev1.Pod, volumes map[string]string, now time.Time) {
	if len(s.uses) > 0 || !s.running() {
		return
	}
	for claim, volume := range volumes {
		u := &Use{Pod: client.ObjectKeyFromObject(pod), PodUID: pod.UID, Volume: volume, From: now}
		s.uses = append(s.uses, u)
		key := types.NamespacedName{Namespace: pod.Namespace, Name: claim}
		n.uses[key] = append(n.uses[key], u)
	}
}

// restored reports whether the pod's restore-wait container has nothing left to wait for. The real one looks each second
// for a file <volume>/.velero/<UID of the restore> in each volume mounted under /restores, which the data path writes
// when it is done (velero cmd/velero-restore-helper and pkg/podvolume/restore_micro_service.go).
func (n *Node) restored(ctx context.Context, pod *corev1.Pod) (bool, error) {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == restorehelper.WaitInitContainer })
	if i < 0 || n.opts.VeleroNamespace == "" || len(pod.Spec.InitContainers[i].Args) == 0 {
		return false, nil
	}
	restoreWait := &pod.Spec.InitContainers[i]
	var pvrs velerov1.PodVolumeRestoreList
	err := n.client.List(ctx, &pvrs, client.InNamespace(n.opts.VeleroNamespace), client.MatchingLabels{
		velerov1.RestoreUIDLabel: restoreWait.Args[0],
		velerov1.PodUIDLabel:     string(pod.UID),
	})
	if err != nil {
		return false, fmt.Errorf("list the PodVolumeRestores of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	for _, mount := range restoreWait.VolumeMounts {
		done := path.Dir(mount.MountPath) != "/restores" || // not one that Velero added
			slices.ContainsFunc(pvrs.Items, func(pvr velerov1.PodVolumeRestore) bool {
				return pvr.Spec.Volume == mount.Name && pvr.Status.Phase == velerov1.PodVolumeRestorePhaseCompleted
			})
		if !done {
			return false, nil
		}
	}
	return true, nil
}
