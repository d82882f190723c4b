package recipe

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// VRGFacts is what the gate's decision on a VRG rests on.
type VRGFacts struct {
	// Backup is the VRG as it stands in the backup.
	Backup *unstructured.Unstructured
	// Mapping of namespaces of the restore.
	Mapping map[string]string
	// Live is the VRG of that name in the target namespace, nil when there is none.
	Live *unstructured.Unstructured
	// Mode is the setting. AdminNamespaces are those of Ramen itself, see NeededRecipe.
	Mode            Mode
	AdminNamespaces []string
	// VRGCRD and RecipeCRD are those of the cluster, nil when there are none.
	VRGCRD, RecipeCRD *CRD
	// Recipe that the restored VRG refers to, nil when the cluster has none. Not looked up for a VRG that needs none.
	Recipe *unstructured.Unstructured
	// Cluster is the UID of the namespace kube-system of this cluster, ClusterErr why it could not be read. The guard alone
	// needs it.
	Cluster    types.UID
	ClusterErr error
}

// VRGDecision is a Decision on a VRG.
type VRGDecision struct {
	disconnect.Decision
	// Failover is true when the VRG is restored as one that recovers.
	Failover bool
}

// DecideVRG decides what becomes of a VRG, once what it needs has been restored as far as it could be.
func DecideVRG(f VRGFacts) VRGDecision {
	for _, rule := range []func() (disconnect.Decision, bool){f.leftOut, f.inCluster, f.withoutCRD, f.withoutRecipe, f.failsOverElsewhere, f.guarded} {
		if decision, ok := rule(); ok {
			return VRGDecision{Decision: decision}
		}
	}
	decision := VRGDecision{
		Decision: disconnect.Decision{Verdict: Admitted, Reason: "what it needs is in the cluster"},
		Failover: f.Mode == Failover,
	}
	if decision.Failover {
		decision.Reason += "; it recovers: the mode is failover"
	}
	if record, ok := f.record(); ok {
		f.compare(record, &decision.Decision)
	}
	return decision
}

// protection is the field in which everything stands that a recovery goes by.
const protection = "spec.kubeObjectProtection"

// Tried returns the decision on an admitted VRG once it is known what a dry run of creating it came to. One whose protection
// the API server would store only in part is refused: Ramen's first fields for a Recipe, or recipeParameters on an older CRD,
// would be pruned in silence, and Ramen would recover by another workflow, or other values, than were captured. Of other
// fields only the log tells, and of what cannot be told: Velero's own attempt comes next.
func (d VRGDecision) Tried(trial Trial) VRGDecision {
	misfit := Misfit(trial.Err)
	switch {
	case trial.Err == nil:
		return d
	case apierrors.IsAlreadyExists(trial.Err):
		return VRGDecision{Decision: skipped("somebody has just created it")}
	case strings.Contains(misfit, protection):
		return VRGDecision{Decision: refused("the CustomResourceDefinition %s of the cluster does not know or not allow what the backup has: %s. Ramen "+
			"would not recover as was captured. Bring the CustomResourceDefinition to the version of the backup's cluster, and restore again",
			contract.VRGCRD, misfit)}
	case misfit != "":
		d.Reason += "; its CRD does not know or not allow what the backup has: " + misfit
	default:
		d.Reason += fmt.Sprintf("; whether its CRD knows all fields of it cannot be told: %v", trial.Err)
	}
	d.Warn = true
	return d
}

// inCluster keeps Velero away from a VRG that is in the cluster: under the policy update it would patch that of the backup
// into it, and make a secondary primary while another cluster is.
func (f VRGFacts) inCluster() (disconnect.Decision, bool) {
	switch {
	case f.Live == nil:
		return disconnect.Decision{}, false
	case f.Live.GetDeletionTimestamp() != nil:
		return refused("the one in the cluster is being deleted: restore again when it is gone"), true
	default:
		return skipped("the cluster has one, which is never overwritten"), true
	}
}

// leftOut leaves out what the hub brings, or nobody wants.
func (f VRGFacts) leftOut() (disconnect.Decision, bool) {
	if why := hubManaged(f.Backup); why != "" {
		return skipped("the hub manages it and makes it anew (" + why + "); what it needs is restored"), true
	}
	if f.Mode == Skip {
		return skipped("the mode is skip; what it needs is restored"), true
	}
	return disconnect.Decision{}, false
}

// withoutCRD says why a VRG cannot be created, better than the API server's "could not find the requested resource".
func (f VRGFacts) withoutCRD() (disconnect.Decision, bool) {
	problem := unready(contract.VRGCRD, f.VRGCRD)
	return refused("%s", problem), problem != ""
}

// withoutRecipe keeps out a VRG whose Recipe is missing: Ramen could neither recover with it nor, once it had set its
// finalizer, delete it.
func (f VRGFacts) withoutRecipe() (disconnect.Decision, bool) {
	reference, ok, err := NeededRecipe(f.Backup, f.AdminNamespaces)
	switch {
	case err != nil:
		return refused("whether its Recipe is there cannot be told: %v", err), true
	case !ok:
		return disconnect.Decision{}, false
	case reference.Key.Name == "":
		return refused("it refers to a Recipe and does not name it: Ramen could not use it"), true
	}
	recipe := types.NamespacedName{Namespace: disconnect.TargetNamespace(f.Mapping, reference.Key.Namespace), Name: reference.Key.Name}
	if problem := unready(contract.RecipeCRD, f.RecipeCRD); problem != "" {
		return refused("it needs Recipe %s: %s", recipe, problem), true
	}
	switch {
	case f.Recipe == nil:
		return refused("it needs Recipe %s, which is not in the cluster: %s. Without it Ramen could neither recover nor delete the "+
			"VolumeReplicationGroup. Create the Recipe, and restore again", recipe, f.whereIsTheRecipe()), true
	case f.Recipe.GetDeletionTimestamp() != nil:
		return refused("it needs Recipe %s, which is being deleted: restore again when it is gone", recipe), true
	default:
		return disconnect.Decision{}, false
	}
}

// whereIsTheRecipe says why the restore has not brought the Recipe, as far as the record tells.
func (f VRGFacts) whereIsTheRecipe() string {
	record, ok := f.record()
	switch {
	case !ok:
		return "the backup has no record of it"
	case record.Outcome == OutcomeBundled:
		return "it is in the backup, and this restore has not brought it: see its error, and the filters of the restore"
	default:
		return fmt.Sprintf("it is not in the backup either, for which the record has %q", record.Outcome)
	}
}

// failsOverElsewhere keeps out a VRG that is to recover in another namespace: Ramen finds what it has stored by
// <namespace>/<name> of the VRG, and would find nothing (internal/controller/vrg_kubeobjects.go).
func (f VRGFacts) failsOverElsewhere() (disconnect.Decision, bool) {
	source := f.Backup.GetNamespace()
	target := disconnect.TargetNamespace(f.Mapping, source)
	if f.Mode != Failover || source == target {
		return disconnect.Decision{}, false
	}
	return refused("it is to recover (%s: %s), but the restore puts it into the namespace %s, and Ramen finds what it has stored by the "+
		"namespace and name of the VolumeReplicationGroup: it would find nothing. Restore without mapping the namespace %s",
		contract.VRGRestoreSetting, Failover, target, source), true
}

// guarded keeps out a VRG that would do harm as it is. Ramen recovers only with spec.action (vrg_kubeobjects.go,
// shouldRecover); without, a primary on an empty cluster is a fresh deployment to it: it begins to capture, and its status
// being empty, deletes the capture number 1 of the same <namespace>/<name> in S3.
func (f VRGFacts) guarded() (disconnect.Decision, bool) {
	if f.Mode != Guard || !startsToCapture(f.Backup) {
		return disconnect.Decision{}, false
	}
	record, ok := f.record()
	var where string
	switch {
	case f.ClusterErr != nil:
		where = fmt.Sprintf("this cluster cannot be told from others (%v)", f.ClusterErr)
	case !ok || record.Cluster == "":
		where = "it is not known which cluster it was backed up on"
	case record.Cluster != f.Cluster:
		where = "it was backed up on another cluster"
	default:
		return disconnect.Decision{}, false
	}
	return refused("%s, and it is primary, protects Kubernetes objects and has no spec.action: Ramen would not recover the application "+
		"here, but take it for a new one, start to capture, and delete the first capture in S3, which may be the one to recover from. "+
		"Say what you want, by the annotation %s of the Restore or the setting %s: %q to recover here (spec.action Failover), %q to "+
		"restore it as it was backed up, %q to leave it out; and restore again", where,
		contract.VRGRestoreAnnotation, contract.VRGRestoreSetting, Failover, AsIs, Skip), true
}

// startsToCapture tells whether Ramen would begin to capture Kubernetes objects for a VRG at once. What cannot be read of it
// counts for yes.
func startsToCapture(vrg *unstructured.Unstructured) bool {
	spec, _, err := mapAt(vrg.Object, "spec")
	if err != nil {
		return true
	}
	return spec["replicationState"] != "secondary" && spec["kubeObjectProtection"] != nil && (spec["action"] == nil || spec["action"] == "")
}

// compare adds what a reader of the log should know of a VRG that is restored.
func (f VRGFacts) compare(record Record, decision *disconnect.Decision) {
	if as := record.VRG.AsCaptured; as != nil && !*as {
		decision.Warn = true
		decision.Reason += "; it had changed since the capture that Ramen would have recovered from, perhaps in its parameters"
	}
	if record.Outcome != OutcomeBundled || f.Recipe == nil {
		return
	}
	if live, err := SHA256OfSpec(f.Recipe); err == nil && live != record.Recipe.SHA256 {
		decision.Warn = true
		decision.Reason += "; its Recipe in the cluster is not the one that was backed up, or has got defaults of another version of its CRD"
	}
}

func (f VRGFacts) record() (Record, bool) {
	record, ok, err := RecordOf(f.Backup)
	return record, ok && err == nil
}

// hubManaged says by what a VRG shows that a hub made it, empty for others (Ramen internal/controller/drplacementcontrol.go,
// mw_util.go). Velero has removed the owners of the item, so vrg must be as it stands in the backup.
func hubManaged(vrg *unstructured.Unstructured) string {
	if vrg.GetLabels()[contract.CreatedByRamenLabel] == "true" {
		return "label " + contract.CreatedByRamenLabel
	}
	for key := range vrg.GetAnnotations() {
		if strings.HasPrefix(key, contract.DRPCAnnotationPrefix) {
			return "annotations " + contract.DRPCAnnotationPrefix + "…"
		}
	}
	for _, owner := range vrg.GetOwnerReferences() {
		if owner.Kind == "AppliedManifestWork" {
			return "owner AppliedManifestWork"
		}
	}
	return ""
}

func skipped(reason string) disconnect.Decision {
	return disconnect.Decision{Verdict: disconnect.Skipped, Reason: reason}
}

// Apply edits the VRG that is created, in place.
func (d VRGDecision) Apply(item *unstructured.Unstructured) error {
	Admit(item)
	if !d.Failover {
		return nil
	}
	// The final sync is the last step of the cluster that an application leaves, and has no place where it recovers.
	unstructured.RemoveNestedField(item.Object, "spec", "prepareForFinalSync")
	unstructured.RemoveNestedField(item.Object, "spec", "runFinalSync")
	for field, value := range map[string]string{"replicationState": "primary", "action": "Failover"} {
		if err := unstructured.SetNestedField(item.Object, value, "spec", field); err != nil {
			return fmt.Errorf("set spec.%s: %w", field, err)
		}
	}
	return nil
}
