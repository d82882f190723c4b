package testkit

import (
	"strconv"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// DC builds a DeploymentConfig.
type DC struct{ dc ocpappsv1.DeploymentConfig }

// MakeDC returns a DeploymentConfig as `oc new-app` makes them: 1 replica, a config change trigger, a selector and pod
// labels `deploymentconfig: <name>`, one container of its name. It has no rollout yet.
func MakeDC(namespace, name string) *DC {
	return &DC{dc: ocpappsv1.DeploymentConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: ocpappsv1.GroupVersion.String(), Kind: "DeploymentConfig"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: dcUID(namespace, name), CreationTimestamp: Epoch,
			Labels: map[string]string{"app": name},
		},
		Spec: ocpappsv1.DeploymentConfigSpec{
			Replicas: 1,
			Selector: map[string]string{contract.DeploymentConfigLabel: name},
			Triggers: ocpappsv1.DeploymentTriggerPolicies{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}},
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{contract.DeploymentConfigLabel: name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "example.com/" + name + ":1"}}},
			},
		},
	}}
}

func dcUID(namespace, name string) types.UID { return types.UID("dc-" + namespace + "-" + name) }

// Obj returns a copy of what was built.
func (d *DC) Obj() *ocpappsv1.DeploymentConfig { return d.dc.DeepCopy() }

// Replicas sets spec.replicas.
func (d *DC) Replicas(n int32) *DC {
	d.dc.Spec.Replicas = n
	return d
}

// Paused sets spec.paused.
func (d *DC) Paused() *DC {
	d.dc.Spec.Paused = true
	return d
}

// Test sets spec.test: its pods run during rollouts only.
func (d *DC) Test() *DC {
	d.dc.Spec.Test = true
	return d
}

// LatestVersion sets status.latestVersion.
func (d *DC) LatestVersion(version int64) *DC {
	d.dc.Status.LatestVersion = version
	return d
}

// Label sets a label.
func (d *DC) Label(key, value string) *DC {
	d.dc.Labels = with(d.dc.Labels, key, value)
	return d
}

// Annotation sets an annotation.
func (d *DC) Annotation(key, value string) *DC {
	d.dc.Annotations = with(d.dc.Annotations, key, value)
	return d
}

// Created sets the creation timestamp.
func (d *DC) Created(at metav1.Time) *DC {
	d.dc.CreationTimestamp = at
	return d
}

// ResourceVersion sets metadata.resourceVersion.
func (d *DC) ResourceVersion(version string) *DC {
	d.dc.ResourceVersion = version
	return d
}

// NoTriggers removes all triggers: only a person starts a rollout.
func (d *DC) NoTriggers() *DC {
	d.dc.Spec.Triggers = nil
	return d
}

// Trigger adds a trigger.
func (d *DC) Trigger(trigger ocpappsv1.DeploymentTriggerPolicy) *DC {
	d.dc.Spec.Triggers = append(d.dc.Spec.Triggers, *trigger.DeepCopy())
	return d
}

// ImageTrigger adds an automatic trigger on an ImageStreamTag, such as "web:latest", of a namespace (empty: its own).
// lastTriggered is the image it was resolved to, empty when it is not.
func (d *DC) ImageTrigger(namespace, tag, lastTriggered string) *DC {
	return d.Trigger(ocpappsv1.DeploymentTriggerPolicy{
		Type: ocpappsv1.DeploymentTriggerOnImageChange,
		ImageChangeParams: &ocpappsv1.DeploymentTriggerImageChangeParams{
			Automatic: true, ContainerNames: []string{d.dc.Name}, LastTriggeredImage: lastTriggered,
			From: corev1.ObjectReference{Kind: "ImageStreamTag", Namespace: namespace, Name: tag},
		},
	})
}

// ManualImageTrigger adds an image trigger that is not automatic.
func (d *DC) ManualImageTrigger(tag string) *DC {
	d.ImageTrigger("", tag, "")
	d.dc.Spec.Triggers[len(d.dc.Spec.Triggers)-1].ImageChangeParams.Automatic = false
	return d
}

// Strategy sets the rollout strategy.
func (d *DC) Strategy(strategy ocpappsv1.DeploymentStrategy) *DC {
	d.dc.Spec.Strategy = *strategy.DeepCopy()
	return d
}

// PreHook makes it a Recreate strategy with a lifecycle hook that runs before the rollout.
func (d *DC) PreHook() *DC {
	return d.Strategy(ocpappsv1.DeploymentStrategy{
		Type: ocpappsv1.DeploymentStrategyTypeRecreate,
		RecreateParams: &ocpappsv1.RecreateDeploymentStrategyParams{Pre: &ocpappsv1.LifecycleHook{
			FailurePolicy: ocpappsv1.LifecycleHookFailurePolicyAbort,
			ExecNewPod:    &ocpappsv1.ExecNewPodHook{ContainerName: d.dc.Name, Command: []string{"true"}},
		}},
	})
}

// Template edits the pod template.
func (d *DC) Template(edit func(*corev1.PodTemplateSpec)) *DC {
	edit(d.dc.Spec.Template)
	return d
}

// Claim mounts a claim in the pod template.
func (d *DC) Claim(volume, claim string) *DC {
	d.dc.Spec.Template.Spec.Volumes = append(d.dc.Spec.Template.Spec.Volumes, claimVolume(volume, claim))
	return d
}

// Held makes it held at 0 replicas for a restore, with its originals recorded.
func (d *DC) Held(owner disconnect.Owner, replicas int32, paused bool) *DC {
	d.HeldByStock(owner, replicas, paused)
	return d.Annotation(contract.RestoreAnnotation, owner.Restore.String()).Annotation(contract.RestoreUIDAnnotation, string(owner.UID))
}

// HeldByStock makes it held as the openshift-velero-plugin does: it does not say which Velero the restore belongs to.
func (d *DC) HeldByStock(owner disconnect.Owner, replicas int32, paused bool) *DC {
	return d.Replicas(0).
		Label(contract.ReplicasModifiedLabel, label.GetValidName(owner.Restore.Name)).
		Annotation(contract.OriginalReplicasAnnotation, strconv.Itoa(int(replicas))).
		Annotation(contract.OriginalPausedAnnotation, strconv.FormatBool(paused))
}

// with returns a copy of m in which key is value.
func with(m map[string]string, key, value string) map[string]string {
	copied := map[string]string{key: value}
	for k, v := range m {
		if k != key {
			copied[k] = v
		}
	}
	return copied
}
