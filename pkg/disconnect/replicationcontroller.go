package disconnect

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// RCFacts is what the decision on a ReplicationController rests on.
type RCFacts struct {
	// RC as it stands in the backup, with its owners.
	RC *corev1.ReplicationController
	// DCExists, DCPaused and DCHeld describe its DeploymentConfig in the target namespace now, after the restore has
	// reached its DeploymentConfigs: those come before ReplicationControllers in every order of Velero and OADP.
	DCExists, DCPaused, DCHeld bool
	// DetachedPods of its DeploymentConfig in the target namespace.
	DetachedPods int
}

// DeploymentConfigOfRC returns the name of the DeploymentConfig that made the ReplicationController, empty if none did.
func DeploymentConfigOfRC(rc *corev1.ReplicationController) string {
	for _, owner := range rc.OwnerReferences {
		if owner.Kind == "DeploymentConfig" {
			return owner.Name
		}
	}
	return rc.Annotations[contract.PodDeploymentConfigAnnotation]
}

// DecideRC decides what becomes of a ReplicationController. A restored one of a DeploymentConfig would start pods on half
// restored volumes (D11), and its version would get in the way of a DeploymentConfig that starts at version 0 again
// (openshift/api 88). Only for a DeploymentConfig that came back paused it is what runs the pods, since a paused
// DeploymentConfig rolls nothing out.
func DecideRC(f RCFacts) Decision {
	dc := DeploymentConfigOfRC(f.RC)
	switch {
	case dc == "":
		return Decision{Verdict: Untouched, Reason: "it is not a DeploymentConfig's"}
	case f.DetachedPods > 0:
		// Even where the DeploymentConfig could not be restored: it would start pods beside them (D11, D35).
		return Decision{Verdict: Skipped, Reason: fmt.Sprintf("%d detached pods of DeploymentConfig %s wait for data or hooks", f.DetachedPods, dc)}
	case !f.DCExists:
		return Decision{Verdict: Untouched, Reason: fmt.Sprintf("its DeploymentConfig %s is not in the cluster, so nothing else runs its pods", dc)}
	case f.DCPaused && !f.DCHeld:
		return Decision{Verdict: Untouched, Reason: fmt.Sprintf("its DeploymentConfig %s is paused, so it is what runs the pods", dc)}
	default:
		return Decision{Verdict: Skipped, Reason: fmt.Sprintf("DeploymentConfig %s makes its own", dc)}
	}
}
