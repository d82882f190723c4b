package restore

import (
	"slices"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// dcResourceNames are the names under which lists of resources mean DeploymentConfigs: Velero resolves them through
// discovery, as kubectl does.
var dcResourceNames = []string{
	"*", "dc", "deploymentconfig", "deploymentconfigs", "dc.apps.openshift.io", "deploymentconfig.apps.openshift.io",
	"deploymentconfigs.apps.openshift.io", "deploymentconfigs.v1.apps.openshift.io", "*.apps.openshift.io", "*.*",
}

// ScopeOf tells whether a restore of a backup brings DeploymentConfigs, as far as that follows from what its spec and the
// backup's spec include and exclude. The namespace does not matter: a DeploymentConfig is in its pod's, which the restore
// has just brought. backup may be nil, when it cannot be read: then only the restore's own spec says anything.
func ScopeOf(restore *velerov1.Restore, backup *velerov1.Backup) disconnect.Scope {
	if !includesDCs(restore.Spec.IncludedResources, restore.Spec.ExcludedResources) {
		return disconnect.Scope{Reason: "the restore leaves out DeploymentConfigs"}
	}
	scope := disconnect.Scope{Included: true}
	if restore.Spec.LabelSelector != nil || len(restore.Spec.OrLabelSelectors) > 0 || restore.Spec.ResourcePolicy != nil {
		scope.Uncertain, scope.Reason = true, "the restore chooses items by label or policy"
	}
	if backup == nil {
		return scope
	}
	if !includesDCs(backup.Spec.IncludedResources, backup.Spec.ExcludedResources) ||
		!includesDCs(backup.Spec.IncludedNamespaceScopedResources, backup.Spec.ExcludedNamespaceScopedResources) {
		return disconnect.Scope{Reason: "the backup leaves out DeploymentConfigs"}
	}
	if backup.Spec.LabelSelector != nil || len(backup.Spec.OrLabelSelectors) > 0 {
		scope.Uncertain, scope.Reason = true, "the backup chose items by label"
	}
	return scope
}

// includesDCs follows Velero's rule for lists of resources: nothing included means everything is.
func includesDCs(included, excluded []string) bool {
	isDC := func(name string) bool { return slices.Contains(dcResourceNames, strings.ToLower(name)) }
	return (len(included) == 0 || slices.ContainsFunc(included, isDC)) && !slices.ContainsFunc(excluded, isDC)
}
