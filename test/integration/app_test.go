package integration

import (
	"maps"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// app describes an application under a DeploymentConfig, as `oc new-app` makes it: labels app=<name> on everything.
type app struct {
	name     string
	replicas int32
	// claim is mounted by every pod; without it the application has no claim. With emptyDir it has such a volume as well.
	claim    string
	emptyDir bool
	// podAnnotations and podLabels go to its pods.
	podAnnotations map[string]string
	podLabels      map[string]string
	// change is the last word on the DeploymentConfig.
	change func(*ocpappsv1.DeploymentConfig)
}

// onConfigChange is the trigger that makes a DeploymentConfig roll out by itself.
var onConfigChange = []ocpappsv1.DeploymentTriggerPolicy{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}}

// dc returns the DeploymentConfig. It holds no empty list or map: a CRD does not default them away as OpenShift's API
// server does.
func (a app) dc(namespace string) *ocpappsv1.DeploymentConfig {
	labels := map[string]string{"app": a.name}
	maps.Copy(labels, a.podLabels)
	container := corev1.Container{Name: "app", Image: "registry.example/app:1"}
	var volumes []corev1.Volume
	if a.claim != "" {
		volumes = append(volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: a.claim},
		}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	}
	if a.emptyDir {
		volumes = append(volumes, corev1.Volume{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "cache", MountPath: "/cache"})
	}
	dc := &ocpappsv1.DeploymentConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.name, Labels: map[string]string{"app": a.name}},
		Spec: ocpappsv1.DeploymentConfigSpec{
			Replicas: a.replicas,
			Selector: map[string]string{"app": a.name},
			Triggers: onConfigChange,
			Strategy: ocpappsv1.DeploymentStrategy{Type: ocpappsv1.DeploymentStrategyTypeRecreate},
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: a.podAnnotations},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{container}, Volumes: volumes,
					TerminationGracePeriodSeconds: ptr.To[int64](5),
				},
			},
		},
	}
	if a.change != nil {
		a.change(dc)
	}
	return dc
}

// claim returns a claim of the stand-in's default storage class.
func claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}
