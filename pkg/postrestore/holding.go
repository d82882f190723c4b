package postrestore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// Holding is one DeploymentConfig that a mark leads to: it is held, pods are detached from it, or it carries a record of
// originals without being held.
type Holding struct {
	// Name is the namespace and name of the DeploymentConfig. The latter is empty for a pod that does not tell.
	Name types.NamespacedName
	// Exists is false when the cluster has no such DeploymentConfig; Held is true when it carries the mark of a hold.
	Exists, Held bool
	// Restore is the one that phase two is to be run for: the holder's or, when that is gone, one that has detached a pod.
	Restore HoldingRestore
	// Since is when it was held, or when its first pod was detached. SinceFrom says where that comes from: it is not recorded.
	Since     time.Time
	SinceFrom SinceSource
	// Originals are the recorded ones, nil where there are none or they cannot be read.
	Originals *disconnect.Originals
	// Pods are its detached pods, in the order of their names.
	Pods []Pod
	// Step is what Next says of it.
	Step Step
	// Problems are what does not fit together, in the order of the constants.
	Problems []Problem
	// Command is the shell command that helps.
	Command string
	// undriven: nobody takes its steps by itself.
	undriven bool
}

// HoldingRestore is what is known of the restore of a Holding.
type HoldingRestore struct {
	// Name is namespace and name. Zero where no mark names one.
	types.NamespacedName
	// Exists is false when there is no such Restore any more; Phase is its phase.
	Exists bool
	Phase  velerov1.RestorePhase
}

// SinceSource says where a time comes from.
type SinceSource string

// The sources.
const (
	// SinceManagedFields: the API server has noted who set the label, and when that one last changed the object. It has so
	// where the restore has patched a DeploymentConfig that was there; one that Velero creates gets the managed fields of the
	// backup, in which the label is not (velero pkg/restore/restore.go, "restore the managedFields").
	SinceManagedFields SinceSource = "managedFields"
	// SinceCreation: the restore has created the object.
	SinceCreation SinceSource = "creationTimestamp"
)

// Inconsistency is a kind of Problem.
type Inconsistency string

// The inconsistencies.
const (
	// RestoreGone: the Restore that made the marks does not exist any more.
	RestoreGone Inconsistency = "restore-gone"
	// RestoreReplaced: there is a Restore of the name, but it is another one.
	RestoreReplaced Inconsistency = "restore-replaced"
	// PodsAlone: detached pods whose DeploymentConfig does not exist.
	PodsAlone Inconsistency = "pods-without-deploymentconfig"
	// RecordUnreadable: held, but the recorded originals are missing, half-written or malformed.
	RecordUnreadable Inconsistency = "record-unreadable"
	// RecordWithoutMark: originals are recorded, but the label of a hold is missing, so that nothing finds it.
	RecordWithoutMark Inconsistency = "record-without-mark"
	// HeldWithoutPods: held though no detached pod is left, and nobody is at work.
	HeldWithoutPods Inconsistency = "held-without-pods"
)

// Problem is what does not fit together, and says it in words.
type Problem struct {
	Kind    Inconsistency
	Message string
}

// since returns when a DeploymentConfig was held, or its first pod detached.
func since(state State) (time.Time, SinceSource) {
	if isHeld(state.DC) || len(state.Pods) == 0 {
		if at, ok := labelled(state.DC, contract.ReplicasModifiedLabel); ok {
			return at, SinceManagedFields
		}
		return state.DC.CreationTimestamp.Time, SinceCreation
	}
	first := slices.MinFunc(state.Pods, func(a, b Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return first.CreationTimestamp.Time, SinceCreation
}

// labelled returns when a label was set, as the API server has noted in the managed fields of whoever set it. Ours is left
// out, who takes holds over, and what is older than the object, which came with the backup of a held one.
func labelled(obj client.Object, key string) (at time.Time, ok bool) {
	for _, entry := range obj.GetManagedFields() {
		if entry.Time == nil || entry.FieldsV1 == nil || entry.Manager == restore.UserAgent || entry.Time.Time.Before(obj.GetCreationTimestamp().Time) {
			continue
		}
		var fields struct {
			Metadata struct {
				Labels map[string]any `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.Raw, &fields) != nil {
			continue // of a form that a later API server uses: then it is as if nothing was noted
		}
		if _, owns := fields.Metadata.Labels["f:"+key]; owns && (!ok || entry.Time.Time.Before(at)) {
			at, ok = entry.Time.Time, true
		}
	}
	return at, ok
}

// problems says what does not fit together. r is the Restore of the name, which may be another one.
func problems(state State, h Holding, r *velerov1.Restore) []Problem {
	found := restoreProblems(h.Restore, r)
	add := func(kind Inconsistency, message string) { found = append(found, Problem{Kind: kind, Message: message}) }
	if len(state.Pods) > 0 && state.DC == nil && !state.Restore.Bringing {
		add(PodsAlone, podsAlone(h.Name))
	}
	if _, _, err := state.record(); err != nil {
		add(RecordUnreadable, err.Error())
	}
	if state.DC != nil && !h.Held && hasRecord(state.DC) {
		add(RecordWithoutMark, recordWithoutMark())
	}
	if h.Held && len(state.Pods) == 0 && state.Undriven != "" {
		add(HeldWithoutPods, heldWithoutPods)
	}
	return found
}

func restoreProblems(of HoldingRestore, r *velerov1.Restore) []Problem {
	switch {
	case of.Exists, of.Name == "":
		return nil
	case r == nil:
		return []Problem{{RestoreGone, restoreIsGone(of.NamespacedName)}}
	default:
		return []Problem{{RestoreReplaced, restoreIsReplaced(of.NamespacedName)}}
	}
}

// has tells whether there is a problem of a kind.
func (h Holding) has(kind Inconsistency) bool {
	return slices.ContainsFunc(h.Problems, func(p Problem) bool { return p.Kind == kind })
}

// command returns what to run. Where one command makes ready for another, both stand in it.
func command(state State, h Holding, r *velerov1.Restore) string {
	run := Command(h.Restore.Namespace, h.Restore.Name)
	dc := "deploymentconfigs.apps.openshift.io/" + h.Name.Name
	switch {
	case h.has(RestoreReplaced):
		return fmt.Sprintf("kubectl -n %s annotate %s %s- && %s", h.Name.Namespace, h.objects(dc), contract.RestoreUIDAnnotation, run)
	case h.has(RecordWithoutMark):
		return markOrForget(h, dc, state.DC.Spec.Replicas == 0, run)
	case h.has(RecordUnreadable):
		return fmt.Sprintf("kubectl -n %s annotate --overwrite %s %s=REPLICAS %s=false && %s", h.Name.Namespace, dc,
			contract.OriginalReplicasAnnotation, contract.OriginalPausedAnnotation, run)
	case h.has(PodsAlone) && h.Step.Action == Stop:
		return bringDeploymentConfig(h, r)
	case h.goesOn():
		return fmt.Sprintf("velero -n %s restore describe %s --details", h.Restore.Namespace, h.Restore.Name)
	default:
		return run
	}
}

// goesOn tells whether Velero, or the Job that stands by, is at work on it.
func (h Holding) goesOn() bool { return !h.undriven && h.Step.Action != Stop }

// objects names the marked objects for kubectl.
func (h Holding) objects(dc string) string {
	var objects []string
	if h.Held {
		objects = append(objects, dc)
	}
	for _, pod := range h.Pods {
		objects = append(objects, "pods/"+pod.Name)
	}
	return strings.Join(objects, " ")
}

// markOrForget makes one held again whose label is missing. Where it runs, or nothing says for which restore it was held,
// the record is of no use any more.
func markOrForget(h Holding, dc string, down bool, run string) string {
	if down && h.Restore.Name != "" {
		return fmt.Sprintf("kubectl -n %s label %s %s=%s && %s", h.Name.Namespace, dc,
			contract.ReplicasModifiedLabel, disconnect.Owner{Restore: h.Restore.NamespacedName}.Label(), run)
	}
	return fmt.Sprintf("kubectl -n %s annotate %s %s- %s-", h.Name.Namespace, dc, contract.OriginalReplicasAnnotation, contract.OriginalPausedAnnotation)
}

// bringDeploymentConfig restores the missing DeploymentConfig alone. Its own restore then sees the pods off.
func bringDeploymentConfig(h Holding, r *velerov1.Restore) string {
	backup, source, mapping := "BACKUP", h.Name.Namespace, ""
	if r != nil {
		backup = r.Spec.BackupName
		for from, to := range r.Spec.NamespaceMapping {
			if to == h.Name.Namespace {
				source, mapping = from, fmt.Sprintf(" --namespace-mappings %s:%s", from, to)
			}
		}
	}
	return fmt.Sprintf("velero -n %s restore create --from-backup %s --include-namespaces %s%s --include-resources deploymentconfigs.apps.openshift.io",
		h.Restore.Namespace, backup, source, mapping)
}

// Ended tells whether a Restore does not leave its phase any more. A phase that is not known here is one of a later
// Velero, and may well be left.
func Ended(phase velerov1.RestorePhase) bool {
	switch phase {
	case velerov1.RestorePhaseCompleted, velerov1.RestorePhasePartiallyFailed, velerov1.RestorePhaseFailed, velerov1.RestorePhaseFailedValidation:
		return true
	default:
		return false
	}
}
