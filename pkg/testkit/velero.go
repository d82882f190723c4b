package testkit

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// VeleroNamespace is where the Restores and Backups of tests live.
const VeleroNamespace = "openshift-adp"

// OwnerNamed returns the Owner of a restore of VeleroNamespace with the UID `uid-of-<name>`.
func OwnerNamed(restore string) disconnect.Owner {
	return disconnect.Owner{
		Restore: types.NamespacedName{Namespace: VeleroNamespace, Name: restore},
		UID:     types.UID("uid-of-" + restore),
	}
}

// RestoreNamed returns the Restore that OwnerNamed is the Owner of: InProgress since Epoch, of the Backup `backup`. Go on
// with the methods of Velero's builder.
func RestoreNamed(name string) *builder.RestoreBuilder {
	return builder.ForRestore(VeleroNamespace, name).
		ObjectMeta(builder.WithUID("uid-of-" + name)).
		Backup("backup").
		Phase(velerov1.RestorePhaseInProgress).
		StartTimestamp(Epoch.Time)
}

// VeleroDeployment returns the Deployment that runs Velero in VeleroNamespace, with the init container that brings the plugin.
func VeleroDeployment() *appsv1.Deployment {
	mount := func(path string) []corev1.VolumeMount {
		return []corev1.VolumeMount{{Name: "plugins", MountPath: path}}
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: VeleroNamespace, Name: "velero", Labels: map[string]string{"component": "velero"}},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			ServiceAccountName: "velero",
			InitContainers:     []corev1.Container{{Name: "plugin", Image: "registry.example/plugin:1", VolumeMounts: mount("/target")}},
			Containers:         []corev1.Container{{Name: "velero", Image: "registry.example/velero:1", Args: []string{"server"}, VolumeMounts: mount("/plugins")}},
			Volumes:            []corev1.Volume{{Name: "plugins", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		}}},
	}
}

// Unstructured returns an object as it stands in a backup: through JSON, without the status and creationTimestamp that a
// typed object always has. It panics on what cannot be JSON, which is a mistake of the test.
func Unstructured(obj any) *unstructured.Unstructured {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(err)
	}
	item := &unstructured.Unstructured{}
	// Kubernetes' own decoder, which reads whole numbers as int64, as Velero's side of a plugin call does.
	if err := utiljson.Unmarshal(data, &item.Object); err != nil {
		panic(err)
	}
	unstructured.RemoveNestedField(item.Object, "status")
	unstructured.RemoveNestedField(item.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(item.Object, "spec", "template", "metadata", "creationTimestamp")
	return item
}

// Input returns what Velero calls a restore action with: the object as it stands in the backup, and the item, whose
// metadata Velero has reset (velero pkg/restore/restore.go, resetMetadataAndStatus).
func Input(restore *velerov1.Restore, obj any) *velero.RestoreItemActionExecuteInput {
	fromBackup := Unstructured(obj)
	return &velero.RestoreItemActionExecuteInput{Item: Reset(fromBackup), ItemFromBackup: fromBackup, Restore: restore}
}

// Reset returns a copy of an item with the metadata that Velero resets taken away, and without status.
func Reset(item *unstructured.Unstructured) *unstructured.Unstructured {
	reset := item.DeepCopy()
	for _, field := range []string{
		"generateName", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "ownerReferences",
	} {
		unstructured.RemoveNestedField(reset.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(reset.Object, "status")
	return reset
}
