package recipe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// Mode says what becomes of VRGs in a restore.
type Mode string

// The modes.
const (
	// Guard keeps those out that would not recover but start to capture. The default.
	Guard Mode = "guard"
	// AsIs restores them as they were backed up.
	AsIs Mode = "as-is"
	// Failover makes them recover: they become primary, with spec.action Failover.
	Failover Mode = "failover"
	// Skip leaves them all out. What they need comes all the same.
	Skip Mode = "skip"
)

var modes = []Mode{Guard, AsIs, Failover, Skip}

// ParseMode reads the mode from the data of the plugin's ConfigMap (nil: none) and the annotations of the Restore, which
// win. Absent: Guard. An unknown value is an error that names it.
func ParseMode(data, restoreAnnotations map[string]string) (Mode, error) {
	mode := Guard
	for _, source := range []struct {
		values    map[string]string
		key, name string
	}{
		{data, contract.VRGRestoreSetting, "setting " + contract.VRGRestoreSetting},
		{restoreAnnotations, contract.VRGRestoreAnnotation, "annotation " + contract.VRGRestoreAnnotation + " of the Restore"},
	} {
		value, ok := source.values[source.key]
		if !ok {
			continue
		}
		if mode = Mode(value); !slices.Contains(modes, mode) {
			return "", fmt.Errorf("%s is %q: it is one of %q, %q, %q and %q", source.name, value, Guard, AsIs, Failover, Skip)
		}
	}
	return mode, nil
}

// VRGNeeds is what the preparation of a VRG rests on.
type VRGNeeds struct {
	// Backup is the VRG as it stands in the backup.
	Backup *unstructured.Unstructured
	// VRGCRD, RecipeCRD and Recipe tell what the cluster has: the CRDs, and in the target namespace the Recipe. That is not
	// looked up for a VRG that refers to none.
	VRGCRD, RecipeCRD, Recipe bool
	// AdminNamespaces are those of Ramen itself, see NeededRecipe.
	AdminNamespaces []string
}

// VRGPreparation is what has to come before a VRG, and what is edited.
type VRGPreparation struct {
	disconnect.Decision
	// CRDs to bring, by name.
	CRDs []string
	// Recipes to bring, one or none, by the key in the backup.
	Recipes []types.NamespacedName
	// MustInclude makes Velero bring them past the filters of the restore.
	MustInclude bool

	record    *Record
	reference *Reference
}

// PrepareVRG decides what has to come before a VRG. Velero warns of each additional item that is not in the backup, so only
// what the record names is asked for, and what the cluster does not have. It is brought past the restore's filters where
// the record says that the backup took it in for this VRG: a restore of the VRG's namespace is to bring its Recipe from
// another one. Without a record, whether the Recipe may come is for the filters to say.
func PrepareVRG(f VRGNeeds) VRGPreparation {
	p := VRGPreparation{Decision: disconnect.Decision{Verdict: Prepared}}
	record, ok, unreadableRecord := RecordOf(f.Backup)
	if ok {
		p.record = &record
	}
	if !f.VRGCRD {
		p.CRDs = append(p.CRDs, contract.VRGCRD)
	}
	reference, ok, unreadableReference := NeededRecipe(f.Backup, f.AdminNamespaces)
	if ok {
		p.bring(reference, f)
	}
	p.Reason = p.says()
	for _, err := range []error{unreadableRecord, unreadableReference} {
		if err != nil {
			p.Warn = true
			p.Reason += "; " + err.Error()
		}
	}
	return p
}

// bring adds the Recipe that a VRG refers to, and its CRD.
func (p *VRGPreparation) bring(reference Reference, f VRGNeeds) {
	p.reference = &reference
	p.MustInclude = p.record != nil && p.record.Outcome == OutcomeBundled && p.record.Key() == reference.Key
	if !p.MustInclude && (p.record != nil || f.Recipe || reference.Key.Name == "") {
		return
	}
	p.Recipes = []types.NamespacedName{reference.Key}
	if !f.RecipeCRD {
		p.CRDs = append(p.CRDs, contract.RecipeCRD)
	}
}

// says names what comes first.
func (p VRGPreparation) says() string {
	first := slices.Clone(p.CRDs)
	for _, key := range p.Recipes {
		first = append(first, "Recipe "+key.String())
	}
	if len(first) == 0 {
		return "nothing has to come before it"
	}
	return "before it come " + strings.Join(first, ", ")
}

// NeededRecipe returns the reference of a VRG to a Recipe that has to be an object. ok is false for a VRG without a Recipe,
// and for one of Ramen's built-in Recipe: by its record, and without one by the namespaces of Ramen. The error is one
// of a reference that cannot be read. vrg is as it stands in the backup.
func NeededRecipe(vrg *unstructured.Unstructured, adminNamespaces []string) (reference Reference, ok bool, err error) {
	reference, ok, err = ReferenceOf(vrg)
	if err != nil || !ok {
		return Reference{}, false, err
	}
	if record, recorded, err := RecordOf(vrg); err == nil && recorded {
		return reference, record.Outcome != OutcomeBuiltIn, nil
	}
	return reference, !reference.BuiltIn(adminNamespaces), nil
}

// Apply edits the VRG for its gate, in place: the reference to its Recipe follows the restore's namespace mapping; Ramen's
// finalizer, Velero's must-include annotation and our record go; a short provenance stays; its status is not restored.
// All else, the parameters first of all, stays as it is.
func (p VRGPreparation) Apply(item *unstructured.Unstructured, restore *velerov1.Restore) error {
	if err := p.mapReference(item, restore.Spec.NamespaceMapping); err != nil {
		return err
	}
	// A VRG whose Recipe is missing keeps its finalizer for ever (Ramen issue 922). Ramen sets it anew when it has seen the VRG.
	if finalizers := item.GetFinalizers(); slices.Contains(finalizers, contract.VRGFinalizer) {
		item.SetFinalizers(slices.DeleteFunc(finalizers, func(name string) bool { return name == contract.VRGFinalizer }))
		if len(item.GetFinalizers()) == 0 {
			unstructured.RemoveNestedField(item.Object, "metadata", "finalizers")
		}
	}
	removeAnnotations(item, contract.RecipeBundleAnnotation)
	if p.record != nil {
		provenance, err := p.record.provenance()
		if err != nil {
			return err
		}
		setAnnotation(item, contract.RecipeProvenanceAnnotation, provenance)
	}
	keepStatusOut(item, restore)
	prepare(item, restore, p.MustInclude)
	return nil
}

// mapReference writes the namespace that the Recipe is restored into. An omitted one is written too: Ramen documents that it
// is the VRG's, and looks in none.
func (p VRGPreparation) mapReference(item *unstructured.Unstructured, mapping map[string]string) error {
	if p.reference == nil || p.reference.Legacy || p.reference.Key.Name == "" {
		return nil
	}
	source := p.reference.Key.Namespace
	if target := disconnect.TargetNamespace(mapping, source); target != source || p.reference.NamespaceOmitted {
		if err := unstructured.SetNestedField(item.Object, target, "spec", "kubeObjectProtection", "recipeRef", "namespace"); err != nil {
			return fmt.Errorf("set spec.kubeObjectProtection.recipeRef.namespace: %w", err)
		}
	}
	return nil
}

// restoreStatusAnnotation on an item wins over the Restore's spec.restoreStatus (velero pkg/restore/restore.go,
// ObjectStatusRestoreAnnotationKey).
const restoreStatusAnnotation = "velero.io/restore-status"

// keepStatusOut sees to it that the status of a VRG is not restored: Ramen takes conditions of the old cluster for its own,
// and with ClusterDataReady and KubeObjectsReady there it would not recover. Velero restores no status unless it is told to.
func keepStatusOut(item *unstructured.Unstructured, restore *velerov1.Restore) {
	if _, ok := item.GetAnnotations()[restoreStatusAnnotation]; ok || restore.Spec.RestoreStatus != nil {
		setAnnotation(item, restoreStatusAnnotation, "false")
	}
}

// Provenance is what stays on a restored VRG of its record, in the annotation contract.RecipeProvenanceAnnotation.
type Provenance struct {
	Version int       `json:"version"`
	Backup  string    `json:"backup,omitempty"`
	Cluster types.UID `json:"cluster,omitempty"`
	Outcome Outcome   `json:"outcome"`
	// Recipe is <namespace>/<name> on the cluster of the backup; Generation and SHA256 are those of its spec there.
	Recipe     string `json:"recipe,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	SHA256     string `json:"sha256,omitempty"`
	// AsCaptured is false when the VRG had changed since the capture that Ramen would have recovered from.
	AsCaptured *bool `json:"asCaptured,omitempty"`
}

func (r Record) provenance() (string, error) {
	data, err := json.Marshal(Provenance{
		Version: r.Version, Backup: r.Backup, Cluster: r.Cluster, Outcome: r.Outcome,
		Recipe: strings.Trim(r.Key().String(), "/"), Generation: r.Recipe.Generation, SHA256: r.Recipe.SHA256, AsCaptured: r.VRG.AsCaptured,
	})
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", contract.RecipeProvenanceAnnotation, err)
	}
	return string(data), nil
}
