package recipe

import (
	"slices"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// IsRamenCRD tells whether a CustomResourceDefinition is that of Recipes or of VRGs. All others are none of our business.
func IsRamenCRD(name string) bool { return name == contract.RecipeCRD || name == contract.VRGCRD }

// DecideCRD decides what becomes of the CRD of Recipes or VRGs in a restore. live is that of the cluster, nil when there is
// none.
//
// One that exists is never written: under the policy update, Velero would replace it by that of the backup, and an older
// one would prune the fields of objects that the newer one knows.
func DecideCRD(live *CRD) disconnect.Decision {
	switch {
	case live == nil:
		return disconnect.Decision{Verdict: disconnect.Untouched, Reason: "the cluster has none"}
	case live.Terminating:
		return refused("the one in the cluster is being deleted, and all of its objects with it: restore again when it is gone")
	default:
		return disconnect.Decision{Verdict: disconnect.Skipped, Reason: "the cluster has one, which an older one must not replace"}
	}
}

// unready says why objects of a CRD cannot be restored, empty when they can. crd is nil when the cluster has none.
func unready(name string, crd *CRD) string {
	if crd == nil {
		return "the cluster has no CustomResourceDefinition " + name + ", and this restore has not brought it: it is not in " +
			"the backup, or see its error. Install Ramen, or restore from a backup that has it, and restore again"
	}
	if ready, reason := crd.Ready(); !ready {
		return "the CustomResourceDefinition " + name + " of the cluster cannot be used: " + reason + ". Restore again when it can"
	}
	return ""
}

// Awaited tells whether a CRD may become usable by waiting a little. crd is that of the cluster, nil when there is none;
// brought tells that this restore has just created it. One that nobody brings, that is being deleted or that serves other
// versions only is not worth a wait: the gate says so.
func Awaited(crd *CRD, brought bool) bool {
	switch {
	case crd == nil:
		return brought
	case crd.Terminating, !slices.Contains(crd.Served, contract.RamenVersion):
		return false
	default:
		ready, _ := crd.Ready()
		return !ready
	}
}
