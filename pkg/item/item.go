// Package item decodes the items that Velero hands to actions. Items are read through typed copies and edited as
// unstructured content, never written back from a typed one: that would add a status and creationTimestamp, and drop the
// fields that the pinned type does not know.
package item

import (
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
)

// ErrIncomplete is returned for a call of Velero that lacks the item, the item as backed up or the restore.
var ErrIncomplete = errors.New("velero called the action without an item, its original or a restore")

// Check tells whether a call is complete.
func Check(input *velero.RestoreItemActionExecuteInput) error {
	if input == nil || isNil(input.Item) || isNil(input.ItemFromBackup) || input.Restore == nil {
		return ErrIncomplete
	}
	return nil
}

// ErrIncompleteBackup is returned for a call of Velero that lacks the item or the backup.
var ErrIncompleteBackup = errors.New("velero called the action without an item or a backup")

// CheckBackup tells whether the call of a backup action is complete.
func CheckBackup(source runtime.Unstructured, backup *velerov1.Backup) error {
	if isNil(source) || backup == nil {
		return ErrIncompleteBackup
	}
	return nil
}

// isNil tells whether there is no item: also one that is a nil pointer in an interface that is not nil.
func isNil(item runtime.Unstructured) bool {
	pointer, ok := item.(*unstructured.Unstructured)
	return item == nil || ok && pointer == nil
}

// Read returns a typed copy of an item. The item is not changed.
func Read[T any](source runtime.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(source.UnstructuredContent(), typed); err != nil {
		return nil, fmt.Errorf("read the item as %T: %w", typed, err)
	}
	return typed, nil
}

// View returns an item to be read, not copied: whoever gets it must not change it.
func View(source runtime.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: source.UnstructuredContent()}
}

// Edit returns a deep copy of an item to be edited, so that the caller's stays as it is.
func Edit(source runtime.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(source.UnstructuredContent())}
}

// LogDecision writes the one line that an action logs for an item.
func LogDecision(log logrus.FieldLogger, decision disconnect.Decision) {
	log = log.WithFields(logrus.Fields{contract.LogDecision: string(decision.Verdict), contract.LogReason: decision.Reason})
	switch {
	case decision.Warn:
		log.Warn("Decided on the item")
	case decision.Verdict == disconnect.Untouched:
		log.Debug("Decided on the item")
	default:
		log.Info("Decided on the item")
	}
}

// Say writes a line of an action at a level of the core's. In a backup the text is all that `velero backup describe` shows of a
// warning or an error, so it names what it is about.
func Say(log logrus.FieldLogger, level recipe.Level, text string) {
	switch level {
	case recipe.LevelError:
		log.Error(text)
	case recipe.LevelWarn:
		log.Warn(text)
	case recipe.LevelInfo:
		log.Info(text)
	default:
		log.Debug(text)
	}
}
