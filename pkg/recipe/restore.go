package recipe

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// Verdicts of this package beside those of package disconnect. Recipes and VRGs pass two actions: Velero brings the
// additional items of an action before it asks the next one, and only SkipRestore or an error keeps it from creating an
// item (velero pkg/restore/restore.go, restoreItem). So the first action says what has to come before an item, and the
// second, the gate, sees what came of that and decides.
const (
	// Prepared items are edited, what they need comes first, and the gate decides on them next.
	Prepared disconnect.Verdict = "prepared"
	// Admitted items have passed the gate: Velero creates them, or applies its policy for existing ones.
	Admitted disconnect.Verdict = "admitted"
)

// IsPrepared tells whether the first of the two actions has seen an item in this restore. A mark that an item brought along
// from its backup does not count. Whichever action Velero calls first is the first: by their names that is the one without
// `-gate`, but Velero promises no order.
func IsPrepared(item *unstructured.Unstructured, restore *velerov1.Restore) bool {
	return item.GetAnnotations()[contract.RecipeBundleRestoredAnnotation] == markOf(restore)
}

// markOf returns the mark of a restore. It is never empty.
func markOf(restore *velerov1.Restore) string { return restore.Name + "/" + string(restore.UID) }

// prepare marks an item for the gate and removes Velero's must-include annotation of the backup, which Velero leaves in
// the archive (velero pkg/backup/item_backupper.go, executeActions). mustInclude makes Velero 1.18.3 and later bring the
// additional items past the filters of the restore.
func prepare(item *unstructured.Unstructured, restore *velerov1.Restore, mustInclude bool) {
	removeAnnotations(item, velerov1.MustIncludeAdditionalItemAnnotation)
	setAnnotation(item, contract.RecipeBundleRestoredAnnotation, markOf(restore))
	if mustInclude {
		setAnnotation(item, velerov1.MustIncludeAdditionalItemRestoreAnnotation, "true")
	}
}

// Admit removes from an item, in place, what the first action has put there for Velero and for the gate. Velero before
// 1.18.3 does not know the second annotation and would leave it on the object.
func Admit(item *unstructured.Unstructured) {
	removeAnnotations(item, contract.RecipeBundleRestoredAnnotation, velerov1.MustIncludeAdditionalItemRestoreAnnotation)
}

// refused returns a decision against restoring an item, with the sentence that the restore reports.
func refused(format string, args ...any) disconnect.Decision {
	return disconnect.Decision{Verdict: disconnect.Refused, Warn: true, Reason: fmt.Sprintf(format, args...)}
}

// Trial is what a dry run of writing an item with strict field validation came to.
type Trial struct {
	// Stored is the item as the API server would store it, with the defaults of its CRD; nil where Err is set.
	Stored *unstructured.Unstructured
	// Err is why the API server would not store it, or could not be asked.
	Err error
}

// strictDecoding begins what the API server says of unknown and doubled fields (apimachinery pkg/runtime/error.go,
// strictDecodingError).
const strictDecoding = "strict decoding error: "

// Misfit returns what the CRD of a kind does not know or not allow of an item, as the API server says it of a dry run with
// strict field validation: each field with what is wrong with it. Empty: err is about something else.
func Misfit(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	switch {
	case apierrors.IsInvalid(err):
		// The message has all of it, but begins with the kind, the name and the group.
		var found []string
		if details := status.Status().Details; details != nil {
			for _, cause := range details.Causes {
				found = append(found, cause.Field+": "+cause.Message)
			}
		}
		if len(found) == 0 {
			return status.Status().Message
		}
		return strings.Join(found, "; ")
	case apierrors.IsBadRequest(err):
		_, fields, _ := strings.Cut(status.Status().Message, strictDecoding)
		return fields
	default:
		return ""
	}
}

// dryRunUnsupported tells whether an admission webhook is in the way that dry runs must not reach (apiserver
// pkg/admission/plugin/webhook/errors, NewDryRunUnsupportedErr). Writing the item may work all the same.
func dryRunUnsupported(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// setAnnotation sets an annotation of an item, in place.
func setAnnotation(item *unstructured.Unstructured, key, value string) {
	annotations := item.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	item.SetAnnotations(annotations)
}

// removeAnnotations removes annotations of an item, in place. Where none is left, the field goes too.
func removeAnnotations(item *unstructured.Unstructured, keys ...string) {
	annotations := item.GetAnnotations()
	if annotations == nil {
		return
	}
	for _, key := range keys {
		delete(annotations, key)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	item.SetAnnotations(annotations)
}
