package disconnect

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Owner says which restore holds or detached an object. It is what the marks on an object record.
type Owner struct {
	// Restore is the namespace and name of the Restore.
	Restore types.NamespacedName
	// UID of the Restore. Two restores of one name, made one after the other, differ in it.
	UID types.UID
}

// OwnerOf returns the Owner that a restore leaves on its objects.
func OwnerOf(restore *velerov1.Restore) Owner {
	return Owner{Restore: types.NamespacedName{Namespace: restore.Namespace, Name: restore.Name}, UID: restore.UID}
}

// Label is the value of the label by which the objects of this restore are found.
func (o Owner) Label() string { return label.GetValidName(o.Restore.Name) }

// Marked tells whether an object with these labels and annotations carries the mark of this restore: the label key with
// this restore's value, and no annotation that says otherwise. The openshift-velero-plugin sets the label alone, so
// missing annotations say nothing. A zero UID stands for any restore of the name.
func (o Owner) Marked(labelKey string, labels, annotations map[string]string) bool {
	if labels[labelKey] != o.Label() {
		return false
	}
	if restore := annotations[contract.RestoreAnnotation]; restore != "" && restore != o.Restore.String() {
		return false
	}
	uid := annotations[contract.RestoreUIDAnnotation]
	return uid == "" || o.UID == "" || uid == string(o.UID)
}

// mark writes who owns the object under the given label key.
func (o Owner) mark(obj *unstructured.Unstructured, labelKey string) {
	setLabel(obj, labelKey, o.Label())
	setAnnotation(obj, contract.RestoreAnnotation, o.Restore.String())
	setAnnotation(obj, contract.RestoreUIDAnnotation, string(o.UID))
}

// Originals are the values of a DeploymentConfig before it was held.
type Originals struct {
	Replicas int32
	Paused   bool
}

// Annotations under which the originals are recorded.
func (o Originals) Annotations() map[string]string {
	return map[string]string{
		contract.OriginalReplicasAnnotation: strconv.FormatInt(int64(o.Replicas), 10),
		contract.OriginalPausedAnnotation:   strconv.FormatBool(o.Paused),
	}
}

// Recorded reads the originals from a DeploymentConfig's annotations. ok is false, without an error, when none are
// recorded. A half-written or malformed record is an error that names the annotation: whoever meets it must not guess.
func Recorded(annotations map[string]string) (originals Originals, ok bool, err error) {
	replicas, hasReplicas := annotations[contract.OriginalReplicasAnnotation]
	paused, hasPaused := annotations[contract.OriginalPausedAnnotation]
	if !hasReplicas && !hasPaused {
		return Originals{}, false, nil
	}
	if !hasReplicas {
		return Originals{}, false, fmt.Errorf("annotation %s is missing", contract.OriginalReplicasAnnotation)
	}
	n, err := strconv.ParseInt(replicas, 10, 32)
	if err != nil || n < 0 {
		return Originals{}, false, fmt.Errorf("annotation %s is %q, not a number of replicas", contract.OriginalReplicasAnnotation, replicas)
	}
	if !hasPaused {
		return Originals{}, false, fmt.Errorf("annotation %s is missing", contract.OriginalPausedAnnotation)
	}
	isPaused, err := strconv.ParseBool(paused)
	if err != nil {
		return Originals{}, false, fmt.Errorf("annotation %s is %q, neither true nor false", contract.OriginalPausedAnnotation, paused)
	}
	return Originals{Replicas: int32(n), Paused: isPaused}, true, nil
}

// HeldLabels and HeldAnnotations are the keys that a held DeploymentConfig carries; DetachedLabels and
// DetachedAnnotations those of a detached pod. Phase two removes them.
var (
	HeldLabels      = []string{contract.ReplicasModifiedLabel}
	HeldAnnotations = []string{
		contract.OriginalReplicasAnnotation, contract.OriginalPausedAnnotation,
		contract.RestoreAnnotation, contract.RestoreUIDAnnotation,
	}
	DetachedLabels      = []string{contract.DisconnectedLabel}
	DetachedAnnotations = []string{
		contract.RestoreAnnotation, contract.RestoreUIDAnnotation, contract.DeploymentConfigAnnotation,
	}
)

// setLabel, setAnnotation and removeKeys work on copies of the maps, so that a map that the object shares with its
// original is not changed through it.
func setLabel(obj *unstructured.Unstructured, key, value string) {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	obj.SetLabels(labels)
}

func setAnnotation(obj *unstructured.Unstructured, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

func removeKeys(obj *unstructured.Unstructured, labelKeys, annotationKeys []string) {
	labels := obj.GetLabels()
	for _, key := range labelKeys {
		delete(labels, key)
	}
	obj.SetLabels(labels)
	annotations := obj.GetAnnotations()
	for _, key := range annotationKeys {
		delete(annotations, key)
	}
	obj.SetAnnotations(annotations)
}
