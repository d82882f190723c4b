package testkit

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// Pod builds a pod.
type Pod struct {
	pod corev1.Pod
	dc  string
}

// MakePod returns a pod of a version of a DeploymentConfig, named `<dc>-<version>-x7k2p`, with the labels, annotations
// and owner that OpenShift gives it (library-go appsutil, MakeDeployment).
func MakePod(namespace, dc string, version int64) *Pod {
	deployment := fmt.Sprintf("%s-%d", dc, version)
	p := MakePlainPod(namespace, deployment+"-x7k2p")
	p.dc = dc
	p.pod.GenerateName = deployment + "-"
	p.pod.Labels = map[string]string{contract.DeploymentLabel: deployment, contract.DeploymentConfigLabel: dc}
	p.pod.Annotations = map[string]string{
		contract.PodDeploymentConfigAnnotation: dc,
		contract.PodDeploymentAnnotation:       deployment,
		contract.LatestVersionAnnotation:       strconv.FormatInt(version, 10),
	}
	p.Owner("v1", "ReplicationController", deployment)
	p.pod.Spec.Containers = []corev1.Container{{Name: dc, Image: "example.com/" + dc + ":1"}}
	return p
}

// MakePlainPod returns a pod with one container, no labels, annotations or owner.
func MakePlainPod(namespace, name string) *Pod {
	return &Pod{pod: corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("pod-" + namespace + "-" + name), CreationTimestamp: Epoch,
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}},
	}}
}

// MakeDeployerPod returns the deployer pod of a version of a DeploymentConfig.
func MakeDeployerPod(namespace, dc string, version int64) *Pod {
	deployment := fmt.Sprintf("%s-%d", dc, version)
	return MakePlainPod(namespace, deployment+"-deploy").
		Label(contract.DeployerPodForLabel, deployment).
		Annotation(contract.PodDeploymentConfigAnnotation, dc).
		Annotation(contract.PodDeploymentAnnotation, deployment).
		Owner("v1", "ReplicationController", deployment)
}

// MakeHookPod returns the lifecycle-hook pod of a version of a DeploymentConfig; moment is pre, mid or post.
func MakeHookPod(namespace, dc string, version int64, moment string) *Pod {
	deployment := fmt.Sprintf("%s-%d", dc, version)
	p := MakeDeployerPod(namespace, dc, version).Named(deployment+"-hook-"+moment).
		Label("openshift.io/deployer-pod.type", "hook-"+moment)
	p.pod.OwnerReferences = nil
	return p
}

// Obj returns a copy of what was built.
func (p *Pod) Obj() *corev1.Pod { return p.pod.DeepCopy() }

// Named sets the name, and a UID made from it.
func (p *Pod) Named(name string) *Pod {
	p.pod.Name, p.pod.UID = name, types.UID("pod-"+p.pod.Namespace+"-"+name)
	return p
}

// UID sets the UID.
func (p *Pod) UID(uid types.UID) *Pod {
	p.pod.UID = uid
	return p
}

// Label sets a label.
func (p *Pod) Label(key, value string) *Pod {
	p.pod.Labels = with(p.pod.Labels, key, value)
	return p
}

// NoLabel removes a label.
func (p *Pod) NoLabel(key string) *Pod {
	delete(p.pod.Labels, key)
	return p
}

// Annotation sets an annotation.
func (p *Pod) Annotation(key, value string) *Pod {
	p.pod.Annotations = with(p.pod.Annotations, key, value)
	return p
}

// NoAnnotation removes an annotation.
func (p *Pod) NoAnnotation(key string) *Pod {
	delete(p.pod.Annotations, key)
	return p
}

// Owner makes a controller its only owner.
func (p *Pod) Owner(apiVersion, kind, name string) *Pod {
	p.pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(kind + "-" + name),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	return p
}

// Orphan removes all owners.
func (p *Pod) Orphan() *Pod {
	p.pod.OwnerReferences = nil
	return p
}

// Claim adds a volume that is a claim.
func (p *Pod) Claim(volume, claim string) *Pod {
	p.pod.Spec.Volumes = append(p.pod.Spec.Volumes, claimVolume(volume, claim))
	return p
}

func claimVolume(volume, claim string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

// EmptyDir adds a volume that is an emptyDir.
func (p *Pod) EmptyDir(volume string) *Pod {
	p.pod.Spec.Volumes = append(p.pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	return p
}

// Ephemeral adds a generic ephemeral volume.
func (p *Pod) Ephemeral(volume string) *Pod {
	p.pod.Spec.Volumes = append(p.pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}},
	}})
	return p
}

// Container adds a container.
func (p *Pod) Container(name string) *Pod {
	p.pod.Spec.Containers = append(p.pod.Spec.Containers, corev1.Container{Name: name, Image: "example.com/" + name + ":1"})
	return p
}

// NodeSelector sets a node selector.
func (p *Pod) NodeSelector(key, value string) *Pod {
	p.pod.Spec.NodeSelector = with(p.pod.Spec.NodeSelector, key, value)
	return p
}

// Created sets the creation timestamp.
func (p *Pod) Created(at metav1.Time) *Pod {
	p.pod.CreationTimestamp = at
	return p
}

// Phase sets status.phase, reason and message.
func (p *Pod) Phase(phase corev1.PodPhase, reason, message string) *Pod {
	p.pod.Status.Phase, p.pod.Status.Reason, p.pod.Status.Message = phase, reason, message
	return p
}

// InitializedTrue makes all its init containers ended.
func (p *Pod) InitializedTrue() *Pod {
	return p.Condition(corev1.PodInitialized, corev1.ConditionTrue, "", "")
}

// InitializedFalse makes an init container of it run still.
func (p *Pod) InitializedFalse() *Pod {
	return p.Condition(corev1.PodInitialized, corev1.ConditionFalse, "ContainersNotInitialized", "")
}

// Unschedulable makes the scheduler refuse it.
func (p *Pod) Unschedulable(message string) *Pod {
	return p.Phase(corev1.PodPending, "", "").Condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, message)
}

// Condition adds a condition.
func (p *Pod) Condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) *Pod {
	p.pod.Status.Conditions = append(p.pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message})
	return p
}

// InitWaiting makes an init container wait for a reason.
func (p *Pod) InitWaiting(container, reason, message string) *Pod {
	p.pod.Status.InitContainerStatuses = append(p.pod.Status.InitContainerStatuses, waiting(container, reason, message))
	return p
}

// ContainerWaiting makes a container wait for a reason.
func (p *Pod) ContainerWaiting(container, reason, message string) *Pod {
	p.pod.Status.ContainerStatuses = append(p.pod.Status.ContainerStatuses, waiting(container, reason, message))
	return p
}

func waiting(container, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

// Terminating makes it one that is being deleted; the finalizer keeps it.
func (p *Pod) Terminating() *Pod {
	p.pod.DeletionTimestamp = new(Epoch)
	p.pod.Finalizers = []string{"example.com/keep"}
	return p
}

// Finalizer adds a finalizer: a deletion only begins.
func (p *Pod) Finalizer(name string) *Pod {
	p.pod.Finalizers = append(p.pod.Finalizers, name)
	return p
}

// Detached makes it a pod that a restore has detached and created: out of its ReplicationController's reach, without
// owner, with the marks.
func (p *Pod) Detached(owner disconnect.Owner) *Pod {
	return p.Orphan().NoLabel(contract.DeploymentLabel).
		Label(contract.DeploymentConfigLabel, p.dc).
		Label(contract.DisconnectedLabel, label.GetValidName(owner.Restore.Name)).
		Annotation(contract.RestoreAnnotation, owner.Restore.String()).
		Annotation(contract.RestoreUIDAnnotation, string(owner.UID)).
		Annotation(contract.DeploymentConfigAnnotation, p.dc)
}

// DetachedByStock makes it a pod that the openshift-velero-plugin has detached: both labels gone, no word of whose it is.
func (p *Pod) DetachedByStock(owner disconnect.Owner) *Pod {
	return p.Orphan().NoLabel(contract.DeploymentLabel).NoLabel(contract.DeploymentConfigLabel).
		Label(contract.DisconnectedLabel, label.GetValidName(owner.Restore.Name))
}
