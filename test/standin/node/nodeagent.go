package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/velero/pkg/apis/velero/shared"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/restorehelper"
)

const (
	// What Velero's node-agent puts on the objects it works on (velero pkg/controller/pod_volume_backup_controller.go,
	// pkg/exposer/types.go).
	podVolumeFinalizer = "velero.io/pod-volume-finalizer"
	exposingLabel      = "velero.io/expose-on-going"

	// snapshotPrefix starts the ID of a snapshot; the contents follow in hexadecimal. So a snapshot needs no store, and one
	// that Velero has synced into another cluster can be restored by the node there.
	snapshotPrefix = "standin-"

	// The phases of both, which Velero spells once for each (velero pkg/apis/velero/v1).
	jobAccepted   = string(velerov1.PodVolumeBackupPhaseAccepted)
	jobPrepared   = string(velerov1.PodVolumeBackupPhasePrepared)
	jobInProgress = string(velerov1.PodVolumeBackupPhaseInProgress)
	jobCompleted  = string(velerov1.PodVolumeBackupPhaseCompleted)
	jobFailed     = string(velerov1.PodVolumeBackupPhaseFailed)
	jobCanceled   = string(velerov1.PodVolumeBackupPhaseCanceled)

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

// A job is a PodVolumeBackup or a PodVolumeRestore. Both go through the same phases, under types of their own.
type job[P ~string] struct {
	object                       client.Object
	what                         string // backup or restore
	cancelled                    bool
	phase                        *P
	message                      *string
	accepted, started, completed **metav1.Time
	// begins says whether a new job may be accepted, and puts into it what the one who accepts it writes.
	begins func(context.Context) (bool, error)
	// moves returns how long the data still needs, 0 once it has all been moved.
	moves func(context.Context) (time.Duration, error)
}

func (n *Node) backUp(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pvb velerov1.PodVolumeBackup
	if err := n.client.Get(ctx, req.NamespacedName, &pvb); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pvb.Spec.Node != n.opts.Name {
		return reconcile.Result{}, nil
	}
	st := &pvb.Status
	return takeFurther(ctx, n, &job[velerov1.PodVolumeBackupPhase]{
		object:    &pvb,
		what:      "backup",
		cancelled: pvb.Spec.Cancel || !pvb.DeletionTimestamp.IsZero(),
		phase:     &st.Phase, message: &st.Message,
		accepted: &st.AcceptedTimestamp, started: &st.StartTimestamp, completed: &st.CompletionTimestamp,
		begins: func(context.Context) (bool, error) { return true, nil },
		moves:  func(ctx context.Context) (time.Duration, error) { return n.copyOut(ctx, &pvb) },
	})
}

// restore begins only when the pod runs its restore-wait container. The restore of a pod that is not there stays New, as it
// does in Velero.
func (n *Node) restore(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pvr velerov1.PodVolumeRestore
	if err := n.client.Get(ctx, req.NamespacedName, &pvr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	st := &pvr.Status
	return takeFurther(ctx, n, &job[velerov1.PodVolumeRestorePhase]{
		object:    &pvr,
		what:      "restore",
		cancelled: pvr.Spec.Cancel || !pvr.DeletionTimestamp.IsZero(),
		phase:     &st.Phase, message: &st.Message,
		accepted: &st.AcceptedTimestamp, started: &st.StartTimestamp, completed: &st.CompletionTimestamp,
		begins: func(ctx context.Context) (bool, error) {
			ok, err := n.runsRestoreWait(ctx, &pvr)
			if ok {
				st.Node = n.opts.Name
			}
			return ok, err
		},
		moves: func(ctx context.Context) (time.Duration, error) { return n.copyIn(ctx, &pvr) },
	})
}

// takeFurther takes a job one phase further and writes it; the event of the write leads to the next phase.
func takeFurther[P ~string](ctx context.Context, n *Node, j *job[P]) (reconcile.Result, error) {
	before := j.object.DeepCopyObject()
	wait, err := j.step(ctx, n, new(metav1.Now()))
	if err != nil || equality.Semantic.DeepEqual(before, j.object) {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	err = n.client.Update(ctx, j.object)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("update %T %s: %w", j.object, client.ObjectKeyFromObject(j.object), err)
	}
	return reconcile.Result{}, nil
}

// step puts into a job what velero's pod_volume_backup_controller.go and pod_volume_restore_controller.go write next. It
// returns when to look again at a job that only time takes further.
func (j *job[P]) step(ctx context.Context, n *Node, now *metav1.Time) (time.Duration, error) {
	switch phase := string(*j.phase); {
	case phase == jobCompleted || phase == jobFailed || phase == jobCanceled:
		controllerutil.RemoveFinalizer(j.object, podVolumeFinalizer)
		n.transferEnds(j.object.GetUID())
	case j.cancelled:
		j.end(jobCanceled, *j.message, now)
	case phase == jobInProgress:
		wait, err := j.moves(ctx)
		if err != nil {
			j.end(jobFailed, "data path "+j.what+" failed: "+err.Error(), now)
		} else if wait == 0 {
			j.end(jobCompleted, "", now)
		}
		return wait, nil
	case phase == jobPrepared:
		*j.phase, *j.started = P(jobInProgress), now
		setExposing(j.object, false)
	case phase == jobAccepted:
		*j.phase = P(jobPrepared)
	default: // New
		if ok, err := j.begins(ctx); err != nil || !ok {
			return 0, err
		}
		controllerutil.AddFinalizer(j.object, podVolumeFinalizer)
		setExposing(j.object, true)
		*j.phase, *j.accepted = P(jobAccepted), now
	}
	return 0, nil
}

func (j *job[P]) end(phase, message string, now *metav1.Time) {
	*j.phase, *j.message, *j.completed = P(phase), message, now
	if (*j.started).IsZero() {
		*j.started = now
	}
	setExposing(j.object, false)
	controllerutil.RemoveFinalizer(j.object, podVolumeFinalizer)
}

func setExposing(o client.Object, on bool) {
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, exposingLabel)
	if on {
		labels[exposingLabel] = "true"
	}
	o.SetLabels(labels)
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

// copyOut keeps the contents of a pod's volume in the snapshot ID of its backup.
func (n *Node) copyOut(ctx context.Context, pvb *velerov1.PodVolumeBackup) (time.Duration, error) {
	if left := n.transferLeft(pvb.UID, n.opts.Backup); left > 0 {
		return left, nil
	}
	pod, err := n.podOf(ctx, &pvb.Spec.Pod)
	if err != nil {
		return 0, err
	}
	key, err := n.volumeKey(ctx, n.client, pod, pvb.Spec.Volume)
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	contents := n.contents[key]
	n.mu.Unlock()
	size := int64(len(contents))
	pvb.Status.SnapshotID = snapshotPrefix + hex.EncodeToString([]byte(contents))
	pvb.Status.Path = "/host_pods/" + string(pvb.Spec.Pod.UID) + "/volumes/kubernetes.io~standin/" + pvb.Spec.Volume
	pvb.Status.Progress = shared.DataMoveOperationProgress{TotalBytes: size, BytesDone: size}
	pvb.Status.IncrementalBytes = size
	return 0, nil
}

// copyIn writes what the snapshot of a restore holds into the pod's volume, unless a test has other orders.
func (n *Node) copyIn(ctx context.Context, pvr *velerov1.PodVolumeRestore) (time.Duration, error) {
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
	size := pvr.Spec.SnapshotSize
	pvr.Status.Progress = shared.DataMoveOperationProgress{TotalBytes: size, BytesDone: size / 2}
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
	pvr.Status.Progress.BytesDone = size
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
	return &pod, nil
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
