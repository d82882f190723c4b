package recipe

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// PrepareRecipe edits a Recipe for its gate, in place, and tells what has to come before it: its CRD, where the cluster has
// none. A restore that names namespaces leaves CRDs out, tries the Recipe, and never tries it again (velero
// pkg/restore/restore.go), so a CRD that came with the VRG would come too late.
//
// crd is that of the cluster, nil when there is none.
func PrepareRecipe(item *unstructured.Unstructured, crd *CRD, restore *velerov1.Restore) (bringCRD bool, decision disconnect.Decision) {
	bringCRD = crd == nil
	prepare(item, restore, bringCRD)
	decision = disconnect.Decision{Verdict: Prepared, Reason: "its CRD is in the cluster"}
	if bringCRD {
		decision.Reason = "its CRD comes first: the cluster has none"
	}
	return bringCRD, decision
}

// Candidate is a Recipe at its gate: what the decision on it rests on.
type Candidate struct {
	// CRD of Recipes in the cluster, nil when there is none.
	CRD *CRD
	// Live is the Recipe of that name in the target namespace, nil when there is none.
	Live *unstructured.Unstructured
	// Update is true when the restore's existingResourcePolicy makes Velero patch existing objects.
	Update bool
	// Trial is a dry run: of creating the Recipe, or of giving Live its spec. Not made where CanTry says no.
	Trial Trial
}

// CanTry tells whether a dry run can be made: the CRD can be used.
func (c Candidate) CanTry() bool { return unready(contract.RecipeCRD, c.CRD) == "" }

// DecideRecipe decides what becomes of a Recipe.
//
// Nothing is written that the API server would only store in part: it prunes the fields that its CRD does not know, and
// says so to nobody (a Recipe of 2026 has `jobs`, which a CRD of 2024 does not know).
func DecideRecipe(c Candidate) disconnect.Decision {
	if problem := unready(contract.RecipeCRD, c.CRD); problem != "" {
		return refused("%s", problem)
	}
	switch {
	case c.Live == nil:
		return c.create()
	case c.Live.GetDeletionTimestamp() != nil:
		return refused("the one in the cluster is being deleted: restore again when it is gone")
	case c.Update:
		return c.update()
	default:
		return c.leave()
	}
}

// create decides on a Recipe that the cluster does not have.
func (c Candidate) create() disconnect.Decision {
	if decision, ok := c.untried(); ok {
		return decision
	}
	return disconnect.Decision{Verdict: Admitted, Reason: "the cluster has none, and its CRD knows all fields of it"}
}

// update decides on a Recipe that Velero makes that of the backup.
func (c Candidate) update() disconnect.Decision {
	if decision, ok := c.untried(); ok {
		return decision
	}
	where := c.differences()
	if where == "" {
		return disconnect.Decision{Verdict: Admitted, Reason: "the cluster has one with the same spec"}
	}
	return disconnect.Decision{
		Verdict: Admitted, Warn: true,
		Reason: "the one in the cluster is made that of the backup, as the restore's policy for existing resources wants it; it differs in " + where,
	}
}

// leave decides on a Recipe that stays as it is in the cluster. One that differs is passed to Velero, whose restore then has
// the warning that the one in the cluster is different: plugins cannot give warnings themselves. One that does not would get
// that warning as well, for Velero compares managed fields and defaults too.
func (c Candidate) leave() disconnect.Decision {
	where := c.differences()
	switch {
	case c.Trial.Err != nil:
		return disconnect.Decision{
			Verdict: Admitted, Warn: true,
			Reason: fmt.Sprintf("the cluster has one, which stays as it is; whether it is that of the backup cannot be told: %v", c.Trial.Err),
		}
	case where != "":
		return disconnect.Decision{
			Verdict: Admitted, Warn: true,
			Reason: "the cluster has one, which stays as it is, and which differs from that of the backup in " + where,
		}
	default:
		return disconnect.Decision{Verdict: disconnect.Skipped, Reason: "the cluster has one with the same spec"}
	}
}

// untried decides on a Recipe that would be written and that the dry run did not store. ok is false when it did.
func (c Candidate) untried() (decision disconnect.Decision, ok bool) {
	err := c.Trial.Err
	switch misfit := Misfit(err); {
	case err == nil:
		return disconnect.Decision{}, false
	case misfit != "":
		return refused("the CustomResourceDefinition %s of the cluster does not know or not allow what the backup has: %s. The "+
			"workflows would not run as they were captured. Bring the CustomResourceDefinition to the version of the backup's "+
			"cluster, and restore again", contract.RecipeCRD, misfit), true
	case dryRunUnsupported(err):
		return disconnect.Decision{
			Verdict: Admitted, Warn: true,
			Reason: fmt.Sprintf("it is written unchecked: whether its CRD knows all fields of it cannot be told (%v)", err),
		}, true
	default:
		return refused("whether the CRD of the cluster knows all fields of it cannot be told: %v. Restore again when this has passed", err), true
	}
}

// differences names the fields in which the spec of the backup, with the defaults of the cluster's CRD, is not that of the
// cluster. Empty: none, or the defaults are not known.
func (c Candidate) differences() string {
	if c.Trial.Stored == nil {
		return ""
	}
	return Differences(c.Trial.Stored.Object["spec"], c.Live.Object["spec"])
}

// maxDifferences is how many fields Differences names. A log line is to be read.
const maxDifferences = 5

// Differences names the fields in which two specs differ, such as "spec.workflows[1].sequence", and no values: those may be
// secret. Empty when they are the same.
func Differences(a, b any) string {
	found := differences("spec", a, b, nil)
	if len(found) > maxDifferences {
		found = append(found[:maxDifferences], fmt.Sprintf("and %d more", len(found)-maxDifferences))
	}
	return strings.Join(found, ", ")
}

func differences(path string, a, b any, found []string) []string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return append(found, path)
		}
		for _, key := range unionOfKeys(x, y) {
			found = differences(path+"."+key, x[key], y[key], found)
		}
		return found
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return append(found, path)
		}
		for i := range x {
			found = differences(fmt.Sprintf("%s[%d]", path, i), x[i], y[i], found)
		}
		return found
	default:
		if !reflect.DeepEqual(a, b) {
			return append(found, path)
		}
		return found
	}
}

func unionOfKeys(a, b map[string]any) []string {
	keys := make([]string, 0, len(a))
	for key := range a {
		keys = append(keys, key)
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
