package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// selectedNodeAnnotation is set on a WaitForFirstConsumer claim by the scheduler; provisioners wait for it
	// (component-helpers/storage/volume.AnnSelectedNode).
	selectedNodeAnnotation = "volume.kubernetes.io/selected-node"
	// unschedulableRetry is how soon a pod that does not fit is looked at again, for changes that are not watched (labels
	// of the Node). Changes of claims are watched.
	unschedulableRetry = time.Second
)

// addScheduler registers the stand-in for kube-scheduler: it binds pods that have no node, or says why it does not.
func (n *Node) addScheduler(mgr manager.Manager) error {
	unscheduled := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && pod.Spec.NodeName == ""
	})
	err := builder.ControllerManagedBy(mgr).Named("scheduler").
		For(&corev1.Pod{}, builder.WithPredicates(unscheduled)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(n.podsOfClaim)).
		Complete(reconcile.Func(n.schedule))
	if err != nil {
		return fmt.Errorf("add the scheduler: %w", err)
	}
	return nil
}

// podsOfClaim returns the pods that use a claim.
func (n *Node) podsOfClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := n.client.List(ctx, &pods, client.InNamespace(claim.GetNamespace())); err != nil {
		return nil // the cache has ended
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if slices.Contains(claimsOf(&pods.Items[i]), claim.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
		}
	}
	return requests
}

func (n *Node) schedule(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := n.client.Get(ctx, req.NamespacedName, &pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !schedulable(&pod) {
		return reconcile.Result{}, nil
	}
	var node corev1.Node
	if err := n.client.Get(ctx, types.NamespacedName{Name: n.opts.Name}, &node); err != nil {
		return reconcile.Result{}, fmt.Errorf("get the Node for pod %s: %w", req, err)
	}
	why := "1 node(s) didn't match Pod's node affinity/selector."
	if fits(&pod, &node) {
		var err error
		if why, err = n.prepareClaims(ctx, &pod); err != nil {
			return reconcile.Result{}, err
		}
	}
	if why != "" {
		return n.unschedulable(ctx, &pod, "0/1 nodes are available: "+why)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: n.opts.Name},
	}
	err := n.client.SubResource("binding").Create(ctx, &pod, binding)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // bound before, or gone: the cache is late
		return reconcile.Result{}, fmt.Errorf("bind pod %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

func schedulable(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp.IsZero() && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Spec.SchedulerName == corev1.DefaultSchedulerName
}

// prepareClaims returns "" when every claim of the pod is bound, else why the pod has to wait. A claim that waits for its
// first consumer is told that this is it.
func (n *Node) prepareClaims(ctx context.Context, pod *corev1.Pod) (why string, err error) {
	for _, name := range claimsOf(pod) {
		var claim corev1.PersistentVolumeClaim
		err := n.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, &claim)
		switch {
		case apierrors.IsNotFound(err):
			why = fmt.Sprintf("persistentvolumeclaim %q not found.", name)
			continue
		case err != nil:
			return "", fmt.Errorf("get claim %s/%s: %w", pod.Namespace, name, err)
		case !claim.DeletionTimestamp.IsZero():
			why = fmt.Sprintf("persistentvolumeclaim %q is being deleted.", name)
			continue
		case claim.Status.Phase == corev1.ClaimBound:
			continue
		case claim.Status.Phase == corev1.ClaimLost:
			why = fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q.", name, claim.Spec.VolumeName)
			continue
		}
		why = "pod has unbound immediate PersistentVolumeClaims."
		class, err := n.storageClass(ctx, &claim)
		if err != nil {
			return "", err
		}
		if class != nil && waitsForConsumer(class) && claim.Annotations[selectedNodeAnnotation] == "" {
			old := claim.DeepCopy()
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, selectedNodeAnnotation, n.opts.Name)
			if err := client.IgnoreNotFound(n.client.Patch(ctx, &claim, client.MergeFrom(old))); err != nil {
				return "", fmt.Errorf("select the node of claim %s/%s: %w", pod.Namespace, name, err)
			}
		}
	}
	return why, nil
}

func (n *Node) unschedulable(ctx context.Context, pod *corev1.Pod, message string) (reconcile.Result, error) {
	old := pod.DeepCopy()
	setCondition(&pod.Status, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}, time.Now())
	return n.writeStatus(ctx, old, pod, unschedulableRetry)
}

// fits reports whether the pod's node selector and required node affinity (by which the DaemonSet controller places its
// pods) allow the node.
func fits(pod *corev1.Pod, node *corev1.Node) bool {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	fields := labels.Set{metav1.ObjectNameField: node.Name}
	return slices.ContainsFunc(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms,
		func(term corev1.NodeSelectorTerm) bool {
			return len(term.MatchExpressions)+len(term.MatchFields) > 0 && // an empty term matches nothing
				matches(term.MatchExpressions, node.Labels) && matches(term.MatchFields, fields)
		})
}

func matches(requirements []corev1.NodeSelectorRequirement, set labels.Set) bool {
	for _, r := range requirements {
		op, ok := map[corev1.NodeSelectorOperator]selection.Operator{
			corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
			corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
			corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
		}[r.Operator]
		if !ok {
			return false
		}
		requirement, err := labels.NewRequirement(r.Key, op, r.Values)
		if err != nil || !requirement.Matches(set) {
			return false // a requirement that cannot be read matches no node
		}
	}
	return true
}

func waitsForConsumer(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// claimsOf returns the names of the claims a pod uses, those of its generic ephemeral volumes included.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		if name := claimOf(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// claimOf returns the name of the claim behind a volume of a pod, "" if there is none.
func claimOf(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name // component-helpers/storage/ephemeral.VolumeClaimName
	}
	return ""
}
