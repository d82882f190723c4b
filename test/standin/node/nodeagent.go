package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/velero/pkg/apis/velero/shared"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/restorehelper"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// What Velero's node-agent puts on the objects it works on (velero pkg/controller/pod_volume_backup_controller.go,
	// pkg/exposer/types.go).
	podVolumeFinalizer = "velero.io/pod-volume-finalizer"
	exposingLabel      = "velero.io/expose-on-going"

	// snapshotPrefix starts the ID of a snapshot; the contents follow in hexadecimal. So a snapshot needs no store, and one
	// that Velero has synced into another cluster can be restored by the node there.
	snapshotPrefix = "standin-"

	// heldRetry is how often a held restore looks whether it has been released.
	heldRetry = 50 * time.Millisecond
)

// control is what a test ordered for the restores into one claim.
type control struct {
	fail, hold bool
	takes      time.Duration // 0: Options.Restore
}

// FailRestores makes PodVolumeRestores into a claim end as Failed, until Release. A volume without a claim is addressed by
// its own name.
func (n *Node) FailRestores(namespace, claim string) {
	n.order(namespace, claim, func(c *control) { c.fail = true })
}

// HoldRestores keeps PodVolumeRestores into a claim InProgress, with half their bytes done, until Release.
func (n *Node) HoldRestores(namespace, claim string) {
	n.order(namespace, claim, func(c *control) { c.hold = true })
}

// SlowRestores makes PodVolumeRestores into a claim take that long.
func (n *Node) SlowRestores(namespace, claim string, takes time.Duration) {
	n.order(namespace, claim, func(c *control) { c.takes = takes })
}

// Release takes back what FailRestores, HoldRestores and SlowRestores ordered for a claim. Restores that have ended stay
// as they are.
func (n *Node) Release(namespace, claim string) {
	n.order(namespace, claim, func(c *control) { *c = control{} })
}

func (n *Node) order(namespace, claim string, change func(*control)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: claim}
	c := n.controls[key]
	change(&c)
	n.controls[key] = c
}

// addNodeAgent registers the stand-in for Velero's node-agent, once the CRDs it works on are served. The pods of the
// node-agent DaemonSet, which the Velero server looks for, are run by the kubelet like any other pod.
func (n *Node) addNodeAgent(ctx context.Context, mgr manager.Manager) error {
	if n.opts.VeleroNamespace == "" {
		return nil
	}
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		for _, kind := range []string{"PodVolumeBackup", "PodVolumeRestore"} {
			_, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: velerov1.SchemeGroupVersion.Group, Kind: kind}, "v1")
			if meta.IsNoMatchError(err) {
				return false, nil
			}
			if err != nil {
				return false, fmt.Errorf("discover %s: %w", kind, err)
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the CRDs of Velero, which `velero install --crds-only` creates: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("podvolumebackup").
		For(&velerov1.PodVolumeBackup{}).
		Complete(reconcile.Func(n.backUp))
	if err != nil {
		return fmt.Errorf("add the PodVolumeBackup controller: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("podvolumerestore").
		For(&velerov1.PodVolumeRestore{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(n.restoresOfPod)).
		Complete(reconcile.Func(n.restore))
	if err != nil {
		return fmt.Errorf("add the PodVolumeRestore controller: %w", err)
	}
	return nil
}

func (n *Node) restoresOfPod(ctx context.Context, pod client.Object) []reconcile.Request {
	var pvrs velerov1.PodVolumeRestoreList
	err := n.client.List(ctx, &pvrs, client.InNamespace(n.opts.VeleroNamespace),
		client.MatchingLabels{velerov1.PodUIDLabel: string(pod.GetUID())})
	if err != nil {
		return nil // the cache has ended
	}
	var requests []reconcile.Request
	for i := range pvrs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pvrs.Items[i])})
	}
	return requests
}

// backUp takes a PodVolumeBackup one phase further: New, Accepted, Prepared, InProgress, Completed. The fields are those
// that velero's pod_volume_backup_controller.go writes in each.
func (n *Node) backUp(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pvb velerov1.PodVolumeBackup
	if err := n.client.Get(ctx, req.NamespacedName, &pvb); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pvb.Spec.Node != n.opts.Name {
		return reconcile.Result{}, nil
	}
	now, st := metav1.Now(), &pvb.Status
	end := func(phase velerov1.PodVolumeBackupPhase, message string) {
		st.Phase, st.Message, st.CompletionTimestamp = phase, message, &now
		if st.StartTimestamp.IsZero() {
			st.StartTimestamp = &now
		}
		delete(pvb.Labels, exposingLabel)
		controllerutil.RemoveFinalizer(&pvb, podVolumeFinalizer)
	}
	cancelled := pvb.Spec.Cancel || !pvb.DeletionTimestamp.IsZero()
	switch st.Phase {
	case velerov1.PodVolumeBackupPhaseCompleted, velerov1.PodVolumeBackupPhaseFailed, velerov1.PodVolumeBackupPhaseCanceled:
		n.transferEnds(pvb.UID)
		if !controllerutil.RemoveFinalizer(&pvb, podVolumeFinalizer) {
			return reconcile.Result{}, nil
		}
	case "", velerov1.PodVolumeBackupPhaseNew:
		if cancelled {
			end(velerov1.PodVolumeBackupPhaseCanceled, st.Message)
			break
		}
		controllerutil.AddFinalizer(&pvb, podVolumeFinalizer)
		metav1.SetMetaDataLabel(&pvb.ObjectMeta, exposingLabel, "true")
		st.Phase, st.AcceptedTimestamp = velerov1.PodVolumeBackupPhaseAccepted, &now
	case velerov1.PodVolumeBackupPhaseAccepted:
		st.Phase = velerov1.PodVolumeBackupPhasePrepared
	case velerov1.PodVolumeBackupPhasePrepared:
		st.Phase, st.StartTimestamp = velerov1.PodVolumeBackupPhaseInProgress, &now
		delete(pvb.Labels, exposingLabel)
	default: // InProgress, Canceling
		if cancelled {
			end(velerov1.PodVolumeBackupPhaseCanceled, st.Message)
			break
		}
		if left := n.transferLeft(pvb.UID, n.opts.Backup); left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
		contents, err := n.contentsFor(ctx, &pvb.Spec.Pod, pvb.Spec.Volume)
		if err != nil {
			end(velerov1.PodVolumeBackupPhaseFailed, "data path backup failed: "+err.Error())
			break
		}
		size := int64(len(contents))
		st.SnapshotID = snapshotPrefix + hex.EncodeToString([]byte(contents))
		st.Path = "/host_pods/" + string(pvb.Spec.Pod.UID) + "/volumes/kubernetes.io~standin/" + pvb.Spec.Volume
		st.Progress = shared.DataMoveOperationProgress{TotalBytes: size, BytesDone: size}
		st.IncrementalBytes = size
		end(velerov1.PodVolumeBackupPhaseCompleted, "")
	}
	return n.update(ctx, &pvb)
}

// restore takes a PodVolumeRestore one phase further: New, Accepted, Prepared, InProgress, Completed or Failed. The fields
// are those that velero's pod_volume_restore_controller.go writes in each. It begins only when the pod runs its
// restore-wait container; the restore of a pod that is not there stays New, as it does in Velero.
func (n *Node) restore(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pvr velerov1.PodVolumeRestore
	if err := n.client.Get(ctx, req.NamespacedName, &pvr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now, st := metav1.Now(), &pvr.Status
	end := func(phase velerov1.PodVolumeRestorePhase, message string) {
		st.Phase, st.Message, st.CompletionTimestamp = phase, message, &now
		if st.StartTimestamp.IsZero() && phase == velerov1.PodVolumeRestorePhaseCanceled {
			st.StartTimestamp = &now
		}
		delete(pvr.Labels, exposingLabel)
		controllerutil.RemoveFinalizer(&pvr, podVolumeFinalizer)
	}
	cancelled := pvr.Spec.Cancel || !pvr.DeletionTimestamp.IsZero()
	switch st.Phase {
	case velerov1.PodVolumeRestorePhaseCompleted, velerov1.PodVolumeRestorePhaseFailed, velerov1.PodVolumeRestorePhaseCanceled:
		n.transferEnds(pvr.UID)
		if !controllerutil.RemoveFinalizer(&pvr, podVolumeFinalizer) {
			return reconcile.Result{}, nil
		}
	case "", velerov1.PodVolumeRestorePhaseNew:
		if cancelled {
			end(velerov1.PodVolumeRestorePhaseCanceled, st.Message)
			break
		}
		if waits, err := n.runsRestoreWait(ctx, &pvr); err != nil || !waits {
			return reconcile.Result{}, err
		}
		controllerutil.AddFinalizer(&pvr, podVolumeFinalizer)
		metav1.SetMetaDataLabel(&pvr.ObjectMeta, exposingLabel, "true")
		st.Phase, st.AcceptedTimestamp, st.Node = velerov1.PodVolumeRestorePhaseAccepted, &now, n.opts.Name
	case velerov1.PodVolumeRestorePhaseAccepted:
		st.Phase = velerov1.PodVolumeRestorePhasePrepared
	case velerov1.PodVolumeRestorePhasePrepared:
		st.Phase, st.StartTimestamp = velerov1.PodVolumeRestorePhaseInProgress, &now
		delete(pvr.Labels, exposingLabel)
	default: // InProgress, Canceling
		if cancelled {
			end(velerov1.PodVolumeRestorePhaseCanceled, st.Message)
			break
		}
		wait, err := n.transfer(ctx, &pvr)
		switch {
		case err != nil:
			end(velerov1.PodVolumeRestorePhaseFailed, "data path restore failed: "+err.Error())
		case wait == 0:
			st.Progress = shared.DataMoveOperationProgress{TotalBytes: pvr.Spec.SnapshotSize, BytesDone: pvr.Spec.SnapshotSize}
			end(velerov1.PodVolumeRestorePhaseCompleted, "")
		default:
			half := shared.DataMoveOperationProgress{TotalBytes: pvr.Spec.SnapshotSize, BytesDone: pvr.Spec.SnapshotSize / 2}
			if st.Progress == half {
				return reconcile.Result{RequeueAfter: wait}, nil
			}
			st.Progress = half
		}
	}
	return n.update(ctx, &pvr)
}

// update writes an object of Velero; the event of the write leads to the next phase.
func (n *Node) update(ctx context.Context, o client.Object) (reconcile.Result, error) {
	err := n.client.Update(ctx, o)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("update %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
	}
	return reconcile.Result{}, nil
}

// runsRestoreWait is velero's isInitContainerRunning, for a pod of this node.
func (n *Node) runsRestoreWait(ctx context.Context, pvr *velerov1.PodVolumeRestore) (bool, error) {
	var pod corev1.Pod
	key := types.NamespacedName{Namespace: pvr.Spec.Pod.Namespace, Name: pvr.Spec.Pod.Name}
	if err := n.client.Get(ctx, key, &pod); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get pod %s of PodVolumeRestore %s: %w", key, pvr.Name, err)
	}
	return pod.Spec.NodeName == n.opts.Name &&
		slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.Name == restorehelper.WaitInitContainer && c.State.Running != nil
		}), nil
}

// transfer returns how long the data of a restore still takes; 0 once it has been written into the volume.
func (n *Node) transfer(ctx context.Context, pvr *velerov1.PodVolumeRestore) (time.Duration, error) {
	pod, err := n.podOf(ctx, &pvr.Spec.Pod)
	if err != nil {
		return 0, err
	}
	name := pvr.Spec.Volume
	if i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }); i >= 0 {
		if claim := claimOf(pod, &pod.Spec.Volumes[i]); claim != "" {
			name = claim
		}
	}
	n.mu.Lock()
	order := n.controls[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
	n.mu.Unlock()
	takes := n.opts.Restore
	if order.takes != 0 {
		takes = order.takes
	}
	switch left := n.transferLeft(pvr.UID, takes); {
	case left > 0:
		return left, nil
	case order.hold:
		return heldRetry, nil
	case order.fail:
		return 0, fmt.Errorf("restores into %s/%s are told to fail", pod.Namespace, name)
	}
	encoded, ok := strings.CutPrefix(pvr.Spec.SnapshotID, snapshotPrefix)
	contents, err := hex.DecodeString(encoded)
	if !ok || err != nil {
		return 0, fmt.Errorf("snapshot %q was not made by a stand-in node", pvr.Spec.SnapshotID)
	}
	key, err := n.volumeKey(ctx, n.client, pod, pvr.Spec.Volume)
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.contents[key] = string(contents)
	return 0, nil
}

// podOf returns the pod a volume backup or restore is for, not another of the same name.
func (n *Node) podOf(ctx context.Context, ref *corev1.ObjectReference) (*corev1.Pod, error) {
	var pod corev1.Pod
	if err := n.client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &pod); err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	if ref.UID != "" && ref.UID != pod.UID {
		return nil, fmt.Errorf("pod %s/%s with the UID %s is gone", ref.Namespace, ref.Name, ref.UID)
	}
	return ptr.To(pod), nil
}

func (n *Node) contentsFor(ctx context.Context, ref *corev1.ObjectReference, volume string) (string, error) {
	pod, err := n.podOf(ctx, ref)
	if err != nil {
		return "", err
	}
	key, err := n.volumeKey(ctx, n.client, pod, volume)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.contents[key], nil
}

// transferLeft returns what is left of the time that a transfer takes; the first call starts it.
func (n *Node) transferLeft(uid types.UID, takes time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	started, ok := n.transfers[uid]
	if !ok {
		started = time.Now()
		n.transfers[uid] = started
	}
	return max(takes-time.Since(started), 0)
}

// transferEnds drops what a transfer is remembered by, once its final phase is seen in the API.
func (n *Node) transferEnds(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.transfers, uid)
}
