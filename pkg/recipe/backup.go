package recipe

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/collections"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Level at which an action tells a log. Velero counts Warn lines of a backup as warnings and Error lines as errors, which make
// it PartiallyFailed (velero pkg/util/logging/log_counter_hook.go); in a restore lines do not count.
type Level string

// The levels.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// Found is what a look for an object came to: the object, or the error of the API server, which apierrors can tell apart. The
// zero value was not looked for.
type Found struct {
	Object *unstructured.Unstructured
	Err    error
	// Archived tells that the object is in the backup already, so that Velero knows its kind.
	Archived bool
}

// BackupFacts is what the decision on a VRG of a backup rests on.
type BackupFacts struct {
	// VRG as it is in the cluster, with its status.
	VRG *unstructured.Unstructured
	// Backup that the VRG goes into.
	Backup *velerov1.Backup
	// AdminNamespaces and Missing are the settings, see pkg/ramen.BackupSettings.
	AdminNamespaces []string
	Missing         Level
	// CRD of Recipes, and the Recipe that Lookup names, which has to be looked for only where that CRD is ready.
	CRD, Recipe Found
	// VRGCRD is the CRD of VRGs.
	VRGCRD Found
	// Now is the time, and ServerStarted the start of Velero's server, zero where that is not known: long ago, then. See discoveryLag.
	Now, ServerStarted time.Time
	// Cluster is the UID of kube-system; with ClusterErr it is empty.
	Cluster    types.UID
	ClusterErr error
}

// BackupDecision says what comes with a VRG into its backup.
type BackupDecision struct {
	Outcome Outcome
	// Level and Reason are the one line for the log. The reason is a sentence that stands by itself: of a plugin's line,
	// `velero backup describe` shows nothing else.
	Level  Level
	Reason string
	// CRDs, by name, and Recipes are the items that the backup has to have, whatever its filters say. All of them were readable
	// a moment ago.
	CRDs    []string
	Recipes []types.NamespacedName
	// Record for the archived VRG, nil when there is nothing to record.
	Record *Record
	// Warnings are further lines for the log: what is wrong with the Recipe that goes with the VRG. Sorted.
	Warnings []string
}

// MadeByRamen tells whether Ramen made a Backup or Restore itself. Nothing is done in those: an error or an object more in one
// of them would break Ramen's own capture or recovery.
func MadeByRamen(object metav1.Object) bool {
	return object.GetLabels()[contract.CreatedByRamenLabel] == "true"
}

// Concerned tells whether there is anything to decide: the backup is not Ramen's own, and the VRG refers to a Recipe, though
// it may be in a way that cannot be read.
func (f BackupFacts) Concerned() bool {
	_, ok, err := ReferenceOf(f.VRG)
	return !MadeByRamen(f.Backup) && (ok || err != nil)
}

// Lookup names the Recipe that has to be looked for. ok is false where the decision needs none. AdminNamespaces must be set.
func (f BackupFacts) Lookup() (key types.NamespacedName, ok bool) {
	reference, ok, err := ReferenceOf(f.VRG)
	if err != nil || !ok || !f.Concerned() || reference.Key.Name == "" || reference.BuiltIn(f.AdminNamespaces) || !f.mayBring(reference) {
		return types.NamespacedName{}, false
	}
	return reference.Key, true
}

// mayBring tells whether the VRG may bring a Recipe into the backup. Otherwise whoever can write a VRG could have a foreign
// namespace's object put into a backup that he can read.
func (f BackupFacts) mayBring(reference Reference) bool {
	return reference.Key.Namespace == f.VRG.GetNamespace() ||
		slices.Contains(f.AdminNamespaces, f.VRG.GetNamespace()) ||
		IncludesNamespace(f.Backup, reference.Key.Namespace)
}

// IncludesNamespace tells whether a backup is of a namespace, wildcards considered, by Velero's own rule (velero
// pkg/backup/backup.go, getNamespaceIncludesExcludesAndArgoCDNamespaces). A pattern that Velero refuses includes nothing.
func IncludesNamespace(backup *velerov1.Backup, namespace string) bool {
	filter := collections.NewNamespaceIncludesExcludes().
		ActiveNamespaces([]string{namespace}).
		Includes(backup.Spec.IncludedNamespaces...).
		Excludes(backup.Spec.ExcludedNamespaces...)
	return filter.ExpandIncludesExcludes(true) == nil && filter.ShouldInclude(namespace)
}

// DecideBackup decides what comes with a VRG into its backup. The VRG itself always does.
func DecideBackup(f BackupFacts) BackupDecision {
	reference, ok, err := ReferenceOf(f.VRG)
	switch {
	case MadeByRamen(f.Backup):
		return BackupDecision{Outcome: OutcomeNone, Level: LevelDebug, Reason: "The backup is made by Ramen itself"}
	case err != nil:
		return f.missing(reference, because(OutcomeMalformed, err.Error(), "correct it"))
	case !ok:
		return BackupDecision{Outcome: OutcomeNone, Level: LevelDebug, Reason: fmt.Sprintf("VRG %s refers to no Recipe", f.vrg())}
	case reference.BuiltIn(f.AdminNamespaces):
		return BackupDecision{
			Outcome: OutcomeBuiltIn, Level: LevelInfo, Record: f.record(OutcomeBuiltIn, reference),
			Reason: fmt.Sprintf("Recipe %s of VRG %s is part of Ramen: there is no object of it to back up", reference.Key, f.vrg()),
		}
	case reference.Key.Name == "":
		return f.missing(reference, because(OutcomeDangling, "the reference names no Recipe", "give it a name, or take it out of the VRG,"))
	case !f.mayBring(reference):
		return f.missing(reference, because(OutcomeDenied,
			fmt.Sprintf("the backup does not include namespace %s, and VRGs of namespace %s may not bring objects of other namespaces into it",
				reference.Key.Namespace, f.VRG.GetNamespace()),
			fmt.Sprintf("include namespace %s in the backup or, if only administrators can write VRGs in %s, add it to the setting %s,",
				reference.Key.Namespace, f.VRG.GetNamespace(), contract.AdminNamespacesSetting)))
	}
	if obstacle := f.obstacle(reference); obstacle != nil {
		return f.missing(reference, obstacle)
	}
	return f.bundled(reference)
}

func (f BackupFacts) bundled(reference Reference) BackupDecision {
	record := f.record(OutcomeBundled, reference)
	decision := BackupDecision{
		Outcome: OutcomeBundled, Level: LevelInfo, Record: record,
		Reason: fmt.Sprintf("Recipe %s (generation %d) goes with VRG %s, and its CustomResourceDefinition",
			reference.Key, record.Recipe.Generation, f.vrg()),
		CRDs:     []string{contract.RecipeCRD},
		Recipes:  []types.NamespacedName{reference.Key},
		Warnings: f.warnings(reference, record),
	}
	if f.VRGCRD.Object != nil && usableCRD(contract.VRGCRD, f.VRGCRD) == nil {
		// Velero leaves it out where the backup excludes cluster resources, and a VRG is nothing without it.
		decision.CRDs = append(decision.CRDs, contract.VRGCRD)
	}
	return decision
}

func (f BackupFacts) missing(reference Reference, why *obstacle) BackupDecision {
	level := f.Missing
	if level == "" {
		level = LevelError
	}
	name := "The Recipe"
	if reference.Key.Name != "" {
		name = "Recipe " + reference.Key.String()
	}
	return BackupDecision{
		Outcome: why.outcome, Level: level, Record: f.record(why.outcome, reference),
		Reason: fmt.Sprintf("%s of VRG %s is not in this backup, so its recovery workflow cannot be run from it: %s; %s and back up again",
			name, f.vrg(), why.cause, why.cure),
	}
}

// obstacle is why a Recipe cannot be brought, and what a person can do.
type obstacle struct {
	outcome     Outcome
	cause, cure string
}

func because(outcome Outcome, cause, cure string) *obstacle {
	return &obstacle{outcome: outcome, cause: cause, cure: cure}
}

// obstacle returns what keeps the Recipe from being brought, nil when nothing does. Velero would drop the VRG over an item
// that it cannot get, so every doubt is one.
func (f BackupFacts) obstacle(reference Reference) *obstacle {
	crd, found := readyCRD(f.CRD)
	if found == nil {
		found = f.young(crd)
	}
	if found != nil {
		return found
	}
	if apierrors.IsNotFound(f.Recipe.Err) {
		cause := "there is no such Recipe"
		if reference.NamespaceOmitted {
			cause += " (the VRG names no namespace, so it was looked for in the VRG's own)"
		}
		return because(OutcomeDangling, cause, "create it, or correct the reference,")
	}
	if found := usableRecipe(reference.Key, f.Recipe); found != nil {
		return found
	}
	if _, err := SHA256OfSpec(f.Recipe.Object); err != nil {
		return because(OutcomeError, err.Error(), "look at the Recipe")
	}
	return nil
}

// discoveryLag is how long Velero's server may not know a new kind: it looks for them when it starts and every 5 minutes (velero
// pkg/cmd/server/server.go, initDiscoveryHelper). The rest covers clocks that differ.
const discoveryLag = 6 * time.Minute

// startPrecision is how far ServerStarted and a time of the API server can be apart for one moment: both are cut to seconds.
const startPrecision = 2 * time.Second

// young returns an obstacle where Velero may not know Recipes yet: it would drop a VRG that brings an item of a kind that it
// does not know, and a backup without the VRG is the greater loss.
func (f BackupFacts) young(crd CRD) *obstacle {
	known := crd.EstablishedAt.Add(discoveryLag)
	if f.Recipe.Archived || !f.Now.Before(known) || !f.ServerStarted.Add(startPrecision).Before(crd.EstablishedAt) {
		return nil
	}
	return because(OutcomeCRDNotReady,
		fmt.Sprintf("CustomResourceDefinition %s is there since %s only, and Velero's server may not know it yet",
			contract.RecipeCRD, crd.EstablishedAt.UTC().Format(time.RFC3339)),
		fmt.Sprintf("wait until %s UTC, or restart the server,", known.UTC().Format(time.TimeOnly)))
}

// readyCRD reads a CRD of Recipes that can be used and brought; otherwise it returns what keeps it from that.
func readyCRD(found Found) (CRD, *obstacle) {
	if apierrors.IsNotFound(found.Err) {
		return CRD{}, because(OutcomeCRDAbsent, "this cluster has no CustomResourceDefinition "+contract.RecipeCRD,
			"install it and create the Recipe, or take the reference out of the VRG,")
	}
	if obstacle := usableCRD(contract.RecipeCRD, found); obstacle != nil {
		return CRD{}, obstacle
	}
	crd, err := CRDOf(found.Object)
	if err != nil {
		return CRD{}, because(OutcomeCRDNotReady, err.Error(), "mend it")
	}
	if ready, reason := crd.Ready(); !ready {
		return CRD{}, because(OutcomeCRDNotReady, fmt.Sprintf("CustomResourceDefinition %s cannot be used: %s", contract.RecipeCRD, reason), "mend it")
	}
	return crd, nil
}

// CanRead tells whether a look for the CRD of Recipes found one that serves Recipes.
func CanRead(crd Found) bool {
	_, obstacle := readyCRD(crd)
	return obstacle == nil
}

// usable returns what keeps an object from being brought into a backup, as far as that is the same for every kind. what names
// the object, resource the rights to it.
func usable(what, resource string, found Found) *obstacle {
	switch {
	case apierrors.IsForbidden(found.Err) || apierrors.IsUnauthorized(found.Err):
		return because(OutcomeForbidden, fmt.Sprintf("Velero may not read %s (%v)", what, found.Err),
			fmt.Sprintf("grant Velero's service account the verb get on %s", resource))
	case found.Err != nil:
		return because(OutcomeError, fmt.Sprintf("%s could not be read (%v)", what, found.Err), "see to the API server")
	case found.Object == nil:
		return because(OutcomeError, what+" was not looked for", "report this as a bug of the plugin")
	case found.Object.GetDeletionTimestamp() != nil:
		return because(OutcomeTerminating, what+" is being deleted", "create it anew once it is gone")
	case found.Object.GetLabels()[velerov1.ExcludeFromBackupLabel] == "true":
		return because(OutcomeExcluded, fmt.Sprintf("%s carries the label %s=true", what, velerov1.ExcludeFromBackupLabel), "take the label off")
	default:
		return nil
	}
}

func usableCRD(name string, found Found) *obstacle {
	return usable(contract.CRDKind+" "+name, contract.CRDResource+"."+contract.CRDGroup, found)
}

func usableRecipe(key types.NamespacedName, found Found) *obstacle {
	return usable(contract.RecipeKind+" "+key.String(), fmt.Sprintf("%s in namespace %s", contract.RecipeCRD, key.Namespace), found)
}

// record returns the Record of the VRG. What was not read is left empty.
func (f BackupFacts) record(outcome Outcome, reference Reference) *Record {
	record := &Record{
		Version: RecordVersion, Outcome: outcome, VRG: VRGRecordOf(f.VRG), Cluster: f.Cluster, Backup: f.Backup.Name,
		Recipe: Identity{Namespace: reference.Key.Namespace, Name: reference.Key.Name},
	}
	if found := f.CRD.Object; found != nil {
		if crd, err := CRDOf(found); err == nil {
			record.CRD = &CRDRecord{Served: crd.Served[:min(len(crd.Served), maxServed)], SHA256: crd.SHA256}
		}
	}
	if found := f.Recipe.Object; found != nil {
		record.Recipe.UID, record.Recipe.Generation, record.Recipe.ResourceVersion = found.GetUID(), found.GetGeneration(), found.GetResourceVersion()
		if sum, err := SHA256OfSpec(found); err == nil {
			record.Recipe.SHA256 = sum
		}
	}
	return record
}

// warnings returns what is wrong with a Recipe that goes with the VRG, and with how the VRG uses it.
func (f BackupFacts) warnings(reference Reference, record *Record) []string {
	var warnings []string
	if reference.NamespaceOmitted {
		warnings = append(warnings, fmt.Sprintf("VRG %s names no namespace for Recipe %s: "+
			"Ramen looks for it in none and finds none; set spec.kubeObjectProtection.recipeRef.namespace", f.vrg(), reference.Key.Name))
	}
	if captured := record.VRG.AsCaptured; captured != nil && !*captured {
		warnings = append(warnings, fmt.Sprintf("VRG %s has changed since the capture that Ramen would recover from "+
			"(generation %d, captured at %d): its recipeParameters may not be those of the capture", f.vrg(), record.VRG.Generation, record.VRG.Capture.StartGeneration))
	}
	if f.ClusterErr != nil {
		warnings = append(warnings, fmt.Sprintf("The cluster that VRG %s is backed up on is not recorded, so a restore takes it for another one: %v",
			f.vrg(), f.ClusterErr))
	}
	parameters, err := ParametersOf(f.VRG)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("VRG %s: %v", f.vrg(), err))
	}
	for _, finding := range Lint(f.Recipe.Object, parameters) {
		warnings = append(warnings, fmt.Sprintf("Recipe %s of VRG %s: %s", reference.Key, f.vrg(), finding))
	}
	slices.Sort(warnings)
	return warnings
}

func (f BackupFacts) vrg() types.NamespacedName {
	return types.NamespacedName{Namespace: f.VRG.GetNamespace(), Name: f.VRG.GetName()}
}

// Apply writes the decision on the item: the record, and the annotation that makes Velero bring the other items against the
// filters of the backup. item is changed; it must be the caller's own. With an error all is written but the record.
func (d BackupDecision) Apply(item *unstructured.Unstructured) error {
	if d.Record == nil && len(d.CRDs) == 0 {
		return nil
	}
	annotations := item.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	defer func() { item.SetAnnotations(annotations) }()
	if len(d.CRDs) > 0 {
		annotations[velerov1.MustIncludeAdditionalItemAnnotation] = "true"
	}
	// A record of another backup, on a VRG that was restored without this plugin, says nothing about this one.
	delete(annotations, contract.RecipeBundleAnnotation)
	if d.Record == nil {
		return nil
	}
	text, err := d.Record.Encode()
	if err != nil {
		return err
	}
	annotations[contract.RecipeBundleAnnotation] = text
	return nil
}

// DecideRecipeBackup decides what comes with a Recipe into its backup: its CRD, which Velero leaves out where the backup
// excludes cluster resources, and where the Recipe comes only with its VRG. crd is the CRD of Recipes.
func DecideRecipeBackup(item *unstructured.Unstructured, backup *velerov1.Backup, crd Found) BackupDecision {
	name := types.NamespacedName{Namespace: item.GetNamespace(), Name: item.GetName()}
	if MadeByRamen(backup) {
		return BackupDecision{Outcome: OutcomeNone, Level: LevelDebug, Reason: "The backup is made by Ramen itself"}
	}
	found := usableCRD(contract.RecipeCRD, crd)
	if apierrors.IsNotFound(crd.Err) {
		found = because(OutcomeCRDAbsent, "this cluster has it no more", "install it")
	}
	if found != nil {
		return BackupDecision{Outcome: found.outcome, Level: LevelWarn, Reason: fmt.Sprintf(
			"Recipe %s may come into this backup without its CustomResourceDefinition, and can then be restored only where there is one: %s; %s and back up again",
			name, found.cause, found.cure)}
	}
	return BackupDecision{
		Outcome: OutcomeBundled, Level: LevelDebug, Reason: fmt.Sprintf("Recipe %s brings its CustomResourceDefinition", name),
		CRDs: []string{contract.RecipeCRD},
	}
}

// ChangedDuringBackup says that the state of a Recipe that went into a backup is not the one that VRGs have recorded.
func ChangedDuringBackup(item *unstructured.Unstructured) string {
	return fmt.Sprintf("Recipe %s/%s changed while the backup was made: its VRGs record another state than resourceVersion %s, which is in the backup",
		item.GetNamespace(), item.GetName(), item.GetResourceVersion())
}
