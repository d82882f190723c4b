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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// StorageClass is the default class: its claims get a volume at once.
	StorageClass = "standin"
	// WaitingStorageClass is the class whose claims get a volume when a pod that uses them is scheduled.
	WaitingStorageClass = "standin-wffc"

	provisioner             = "standin.test/volumes"
	provisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
)

// Use is the time during which one pod had one volume mounted in running containers.
type Use struct {
	Pod    types.NamespacedName
	PodUID types.UID
	// Volume is the name of the PersistentVolume.
	Volume string
	// From is when the pod's first container started, To when its last one ended; To is zero while it runs.
	From, To time.Time
}

func (n *Node) createStorageClasses(ctx context.Context) error {
	class := func(name string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
		return &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: name},
			Provisioner:       provisioner,
			VolumeBindingMode: &mode,
			ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		}
	}
	immediate := class(StorageClass, storagev1.VolumeBindingImmediate)
	immediate.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	for _, c := range []*storagev1.StorageClass{immediate, class(WaitingStorageClass, storagev1.VolumeBindingWaitForFirstConsumer)} {
		if err := n.client.Create(ctx, c); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create StorageClass %s: %w", c.Name, err)
		}
	}
	return nil
}

// addProvisioner registers the stand-in for an external provisioner. Binding is left to kube-controller-manager.
func (n *Node) addProvisioner(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).Named("provisioner").
		For(&corev1.PersistentVolumeClaim{}).
		Complete(reconcile.Func(n.provision))
	if err != nil {
		return fmt.Errorf("add the provisioner: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("reclaimer").
		For(&corev1.PersistentVolume{}).
		Complete(reconcile.Func(n.reclaim))
	if err != nil {
		return fmt.Errorf("add the reclaimer: %w", err)
	}
	return nil
}

// storageClass returns the class of a claim if it is one of ours, else nil.
func (n *Node) storageClass(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	if ptr.Deref(claim.Spec.StorageClassName, "") == "" {
		return nil, nil //nolint:nilnil // no class is an answer
	}
	var class storagev1.StorageClass
	err := n.client.Get(ctx, types.NamespacedName{Name: *claim.Spec.StorageClassName}, &class)
	if apierrors.IsNotFound(err) || err == nil && class.Provisioner != provisioner {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, fmt.Errorf("get the StorageClass of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return &class, nil
}

// provision creates the volume of a pending claim. Its source is `local`: Velero's file-system backup takes that, while
// it skips hostPath (velero pkg/podvolume/backupper.go, isHostPathVolume).
func (n *Node) provision(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := n.client.Get(ctx, req.NamespacedName, &claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// A selector asks for a volume that exists, and external provisioners refuse it too.
	if claim.Spec.VolumeName != "" || claim.Spec.Selector != nil || !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	class, err := n.storageClass(ctx, &claim)
	if err != nil || class == nil {
		return reconcile.Result{}, err
	}
	if waitsForConsumer(class) && claim.Annotations[selectedNodeAnnotation] != n.opts.Name {
		return reconcile.Result{}, nil
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{provisionedByAnnotation: provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: "/standin/" + string(claim.UID)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{n.opts.Name},
				}},
			}}}},
		},
	}
	if err := n.client.Create(ctx, volume); err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, fmt.Errorf("create a volume for claim %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// reclaim deletes volumes of ours whose claim is gone: kube-controller-manager leaves that to external provisioners.
func (n *Node) reclaim(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var volume corev1.PersistentVolume
	if err := n.client.Get(ctx, req.NamespacedName, &volume); err != nil {
		if apierrors.IsNotFound(err) {
			n.mu.Lock()
			delete(n.contents, "pv/"+req.Name)
			n.mu.Unlock()
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if volume.Status.Phase != corev1.VolumeReleased || volume.Annotations[provisionedByAnnotation] != provisioner ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || !volume.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	err := n.client.Delete(ctx, &volume, client.Preconditions{UID: &volume.UID})
	if err := client.IgnoreNotFound(err); err != nil {
		return reconcile.Result{}, fmt.Errorf("delete released volume %s: %w", req.Name, err)
	}
	return reconcile.Result{}, nil
}

// Write puts contents into the volume of a bound claim. The contents go when the volume goes.
func (n *Node) Write(ctx context.Context, namespace, claim, value string) error {
	key, err := n.claimKey(ctx, n.reader, namespace, claim)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.contents[key] = value
	return nil
}

// Read returns the contents of the volume of a bound claim; a volume that nobody wrote to has "".
func (n *Node) Read(ctx context.Context, namespace, claim string) (string, error) {
	key, err := n.claimKey(ctx, n.reader, namespace, claim)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.contents[key], nil
}

// WriteVolume is [Node.Write] for a volume of a pod, which may be an emptyDir.
func (n *Node) WriteVolume(ctx context.Context, namespace, pod, volume, value string) error {
	key, err := n.podVolumeKey(ctx, namespace, pod, volume)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.contents[key] = value
	return nil
}

// ReadVolume is [Node.Read] for a volume of a pod, which may be an emptyDir.
func (n *Node) ReadVolume(ctx context.Context, namespace, pod, volume string) (string, error) {
	key, err := n.podVolumeKey(ctx, namespace, pod, volume)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.contents[key], nil
}

func (n *Node) podVolumeKey(ctx context.Context, namespace, name, volume string) (string, error) {
	var pod corev1.Pod
	if err := n.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &pod); err != nil {
		return "", fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return n.volumeKey(ctx, n.reader, &pod, volume)
}

// volumeKey returns the key of a pod's volume in Node.contents: that of the PersistentVolume behind it, or one of the pod
// itself, which dies with it.
func (n *Node) volumeKey(ctx context.Context, reader client.Reader, pod *corev1.Pod, name string) (string, error) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return "", fmt.Errorf("pod %s/%s has no volume %q", pod.Namespace, pod.Name, name)
	}
	if claim := claimOf(pod, &pod.Spec.Volumes[i]); claim != "" {
		return n.claimKey(ctx, reader, pod.Namespace, claim)
	}
	return podKey(pod.UID) + name, nil
}

func podKey(uid types.UID) string { return "pod/" + string(uid) + "/" }

func (n *Node) claimKey(ctx context.Context, reader client.Reader, namespace, name string) (string, error) {
	var claim corev1.PersistentVolumeClaim
	if err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &claim); err != nil {
		return "", fmt.Errorf("get claim %s/%s: %w", namespace, name, err)
	}
	if claim.Spec.VolumeName == "" {
		return "", fmt.Errorf("claim %s/%s is not bound, so it has no contents", namespace, name)
	}
	return "pv/" + claim.Spec.VolumeName, nil
}

// Uses returns who used the volumes of a claim of this name and when, oldest first. Claims that were deleted and made
// again under the same name are included; Use.Volume tells them apart.
func (n *Node) Uses(namespace, claim string) []Use {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.uses[types.NamespacedName{Namespace: namespace, Name: claim}]
	uses := make([]Use, 0, len(all))
	for _, u := range all {
		uses = append(uses, *u)
	}
	return uses
}

// MaxUsers returns the greatest number of pods that had one volume of this claim in use at the same moment. For a
// ReadWriteOnce claim of an application with R replicas, more than R means that old and new pods overlapped.
func (n *Node) MaxUsers(namespace, claim string) int {
	uses := n.Uses(namespace, claim)
	most := 0
	for _, at := range uses { // the maximum is reached at the start of some use
		users := 0
		for _, u := range uses {
			if u.Volume == at.Volume && !u.From.After(at.From) && (u.To.IsZero() || u.To.After(at.From)) {
				users++
			}
		}
		most = max(most, users)
	}
	return most
}
