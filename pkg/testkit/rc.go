package testkit

import (
	"fmt"
	"strconv"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// RC builds a ReplicationController.
type RC struct{ rc corev1.ReplicationController }

// MakeRC returns the ReplicationController of a version of a DeploymentConfig as OpenShift's controller leaves it after a
// rollout to 1 replica: phase Complete, 1 pod.
func MakeRC(namespace, dc string, version int64) *RC {
	name := fmt.Sprintf("%s-%d", dc, version)
	podLabels := map[string]string{contract.DeploymentLabel: name, contract.DeploymentConfigLabel: dc}
	r := MakePlainRC(namespace, name)
	r.rc.Labels = map[string]string{"app": dc, contract.PodDeploymentConfigAnnotation: dc}
	r.rc.Annotations = map[string]string{
		contract.PodDeploymentConfigAnnotation: dc,
		contract.LatestVersionAnnotation:       strconv.FormatInt(version, 10),
	}
	r.rc.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: ocpappsv1.GroupVersion.String(), Kind: "DeploymentConfig", Name: dc, UID: dcUID(namespace, dc),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	r.rc.Spec.Selector = podLabels
	r.rc.Spec.Template = &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: with(podLabels, contract.DeploymentConfigLabel, dc)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: dc, Image: "example.com/" + dc + ":1"}}},
	}
	return r.Phase(ocpappsv1.DeploymentStatusComplete).Desired(1).Replicas(1)
}

// MakePlainRC returns a ReplicationController that nobody owns, with 1 replica and 1 pod.
func MakePlainRC(namespace, name string) *RC {
	r := &RC{rc: corev1.ReplicationController{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ReplicationController"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("rc-" + namespace + "-" + name), CreationTimestamp: Epoch,
		},
		Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": name}},
	}}
	return r.Replicas(1)
}

// Obj returns a copy of what was built.
func (r *RC) Obj() *corev1.ReplicationController { return r.rc.DeepCopy() }

// Replicas sets spec.replicas and as many pods.
func (r *RC) Replicas(n int32) *RC {
	r.rc.Spec.Replicas = new(n)
	return r.Pods(n)
}

// Pods sets how many pods it has.
func (r *RC) Pods(n int32) *RC {
	r.rc.Status.Replicas = n
	return r
}

// Phase sets how far its rollout is.
func (r *RC) Phase(phase ocpappsv1.DeploymentStatus) *RC {
	return r.Annotation(contract.DeploymentPhaseAnnotation, string(phase))
}

// Desired sets the replicas its rollout is to end with: 0 for one that was started while its DeploymentConfig was held.
func (r *RC) Desired(n int) *RC {
	return r.Annotation(contract.DesiredReplicasAnnotation, strconv.Itoa(n))
}

// Label sets a label.
func (r *RC) Label(key, value string) *RC {
	r.rc.Labels = with(r.rc.Labels, key, value)
	return r
}

// Annotation sets an annotation.
func (r *RC) Annotation(key, value string) *RC {
	r.rc.Annotations = with(r.rc.Annotations, key, value)
	return r
}

// Orphan removes all owners.
func (r *RC) Orphan() *RC {
	r.rc.OwnerReferences = nil
	return r
}
