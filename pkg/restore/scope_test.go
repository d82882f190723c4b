package restore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func TestScopeOf(t *testing.T) {
	t.Parallel()
	const (
		leftOutOfRestore = "the restore leaves out DeploymentConfigs"
		leftOutOfBackup  = "the backup leaves out DeploymentConfigs"
	)
	whole := disconnect.Scope{Included: true}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	r := func() *builder.RestoreBuilder { return testkit.RestoreNamed("r") }
	b := func() *builder.BackupBuilder { return builder.ForBackup(testkit.VeleroNamespace, "backup") }
	namespaced := func(included, excluded []string) *velerov1.Backup {
		backup := b().Result()
		backup.Spec.IncludedNamespaceScopedResources, backup.Spec.ExcludedNamespaceScopedResources = included, excluded
		return backup
	}
	orSelectors := func() *velerov1.Backup {
		backup := b().Result()
		backup.Spec.OrLabelSelectors = []*metav1.LabelSelector{selector}
		return backup
	}
	withPolicy := r().Result()
	withPolicy.Spec.ResourcePolicy = &corev1.TypedLocalObjectReference{Kind: "ConfigMap", Name: "policy"}
	tests := map[string]struct {
		restore *velerov1.Restore
		// backup is nil when it cannot be read.
		backup *velerov1.Backup
		want   disconnect.Scope
	}{
		"everything of everything":                       {r().Result(), b().Result(), whole},
		"the backup cannot be read":                      {r().Result(), nil, whole},
		"D19: pods only":                                 {r().IncludedResources("pods").Result(), b().Result(), disconnect.Scope{Reason: leftOutOfRestore}},
		"D19: pods only, the backup cannot be read":      {r().IncludedResources("pods").Result(), nil, disconnect.Scope{Reason: leftOutOfRestore}},
		"D18: DeploymentConfigs only":                    {r().IncludedResources("deploymentconfigs").Result(), b().Result(), whole},
		"by its full name":                               {r().IncludedResources("pods", "deploymentconfigs.apps.openshift.io").Result(), b().Result(), whole},
		"by its short name":                              {r().IncludedResources("dc").Result(), b().Result(), whole},
		"by its singular name, in capitals":              {r().IncludedResources("DeploymentConfig").Result(), b().Result(), whole},
		"by an asterisk":                                 {r().IncludedResources("*").Result(), b().Result(), whole},
		"another resource of a like name":                {r().IncludedResources("deployments", "deploymentconfigs.example.com").Result(), b().Result(), disconnect.Scope{Reason: leftOutOfRestore}},
		"excluded from the restore":                      {r().ExcludedResources("deploymentconfigs.apps.openshift.io").Result(), b().Result(), disconnect.Scope{Reason: leftOutOfRestore}},
		"exclusion wins":                                 {r().IncludedResources("dc").ExcludedResources("dc").Result(), b().Result(), disconnect.Scope{Reason: leftOutOfRestore}},
		"others excluded":                                {r().ExcludedResources("nodes", "events", "resticrepositories.velero.io").Result(), b().Result(), whole},
		"excluded from the backup":                       {r().Result(), b().ExcludedResources("deploymentconfigs").Result(), disconnect.Scope{Reason: leftOutOfBackup}},
		"not included in the backup":                     {r().Result(), b().IncludedResources("pods", "persistentvolumeclaims").Result(), disconnect.Scope{Reason: leftOutOfBackup}},
		"included in the backup":                         {r().Result(), b().IncludedResources("pods", "dc").Result(), whole},
		"not among the backup's namespaced resources":    {r().Result(), namespaced([]string{"pods"}, nil), disconnect.Scope{Reason: leftOutOfBackup}},
		"among the backup's namespaced resources":        {r().Result(), namespaced([]string{"pods", "deploymentconfigs"}, nil), whole},
		"among the excluded namespaced resources":        {r().Result(), namespaced(nil, []string{"deploymentconfigs"}), disconnect.Scope{Reason: leftOutOfBackup}},
		"the restore's reason comes before the backup's": {r().IncludedResources("pods").Result(), b().IncludedResources("pods").Result(), disconnect.Scope{Reason: leftOutOfRestore}},
		"namespaces do not matter":                       {r().IncludedNamespaces("shop").Result(), b().IncludedNamespaces("shop").Result(), whole},
		"the restore chooses by label":                   {r().LabelSelector(selector).Result(), b().Result(), disconnect.Scope{Included: true, Uncertain: true, Reason: "the restore chooses items by label or policy"}},
		"the restore chooses by label, backup unread":    {r().LabelSelector(selector).Result(), nil, disconnect.Scope{Included: true, Uncertain: true, Reason: "the restore chooses items by label or policy"}},
		"the restore chooses by one of labels":           {r().OrLabelSelector([]*metav1.LabelSelector{selector}).Result(), b().Result(), disconnect.Scope{Included: true, Uncertain: true, Reason: "the restore chooses items by label or policy"}},
		"the restore chooses by policy":                  {withPolicy, b().Result(), disconnect.Scope{Included: true, Uncertain: true, Reason: "the restore chooses items by label or policy"}},
		"the backup chose by label":                      {r().Result(), b().LabelSelector(selector).Result(), disconnect.Scope{Included: true, Uncertain: true, Reason: "the backup chose items by label"}},
		"the backup chose by one of labels":              {r().Result(), orSelectors(), disconnect.Scope{Included: true, Uncertain: true, Reason: "the backup chose items by label"}},
		"by label and left out is left out":              {r().LabelSelector(selector).IncludedResources("pods").Result(), b().Result(), disconnect.Scope{Reason: leftOutOfRestore}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restoreBefore, backupBefore := tc.restore.DeepCopy(), tc.backup.DeepCopy()
			if diff := cmp.Diff(tc.want, restore.ScopeOf(tc.restore, tc.backup)); diff != "" {
				t.Errorf("scope (-want +got):\n%s", diff)
			}
			require.Empty(t, cmp.Diff(restoreBefore, tc.restore), "the restore was changed")
			require.Empty(t, cmp.Diff(backupBefore, tc.backup), "the backup was changed")
		})
	}
}
