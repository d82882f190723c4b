package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vmware-tanzu/velero/pkg/plugin/framework/common"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Velero only logs a badly formed name in the plugin's process, and the action is silently absent.
func TestActionNames(t *testing.T) {
	t.Parallel()
	var names []string
	for _, name := range []string{
		contract.PodRestoreAction, contract.DeploymentConfigRestoreAction, contract.ReplicationControllerRestoreAction,
		contract.VRGBackupAction, contract.RecipeBackupAction, contract.VRGRestoreAction, contract.VRGRestoreGateAction,
		contract.RecipeRestoreAction, contract.RecipeRestoreGateAction, contract.CRDRestoreAction,
	} {
		require.NoError(t, common.ValidatePluginName(name, names))
		require.True(t, strings.HasPrefix(name, "oadp.openshift.io/"), "another plugin's name stops the server: %s", name)
		require.Empty(t, validation.IsQualifiedName(name), "it is the key of a label on the plugin's ConfigMap")
		names = append(names, name)
	}
}

// A gate looks at what the first action's additional items came to. The actions work in any order, but their log lines bear
// the names.
func TestTheGatesRunLast(t *testing.T) {
	t.Parallel()
	require.Less(t, contract.VRGRestoreAction, contract.VRGRestoreGateAction)
	require.Less(t, contract.RecipeRestoreAction, contract.RecipeRestoreGateAction)
}

// Names of others, spelled here because this package stands on nothing.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	require.True(t, strings.HasPrefix(common.PluginConfigLabelSelector("", ""), contract.PluginConfigLabel+","))
	require.Equal(t, "recipes.ramendr.openshift.io", contract.RecipeCRD)
	require.Equal(t, "volumereplicationgroups.ramendr.openshift.io", contract.VRGCRD)
}

// The community's names are read by OADP's script and documentation, and stand on clusters and in backups.
func TestNamesOfTheCommunity(t *testing.T) {
	t.Parallel()
	require.Equal(t, "oadp.openshift.io/disconnected-from-dc", contract.DisconnectedLabel)
	require.Equal(t, "oadp.openshift.io/replicas-modified", contract.ReplicasModifiedLabel)
	require.Equal(t, "oadp.openshift.io/original-replicas", contract.OriginalReplicasAnnotation)
	require.Equal(t, "oadp.openshift.io/original-paused", contract.OriginalPausedAnnotation)
	require.Equal(t, "oadp.openshift.io/includes-dm-dc-fix", contract.StockBackupAnnotation)
}

func TestKeysAreValidAndNoTwoAreTheSame(t *testing.T) {
	t.Parallel()
	keys := []string{
		contract.DisconnectedLabel, contract.ReplicasModifiedLabel, contract.OriginalReplicasAnnotation, contract.OriginalPausedAnnotation,
		contract.RestoreAnnotation, contract.RestoreUIDAnnotation, contract.DeploymentConfigAnnotation, contract.ResumeAnnotation, contract.StockBackupAnnotation,
		contract.DeploymentLabel, contract.DeploymentConfigLabel, contract.DeployerPodForLabel, contract.PodDeploymentConfigAnnotation,
		contract.PodDeploymentAnnotation, contract.LatestVersionAnnotation, contract.DeploymentPhaseAnnotation, contract.DesiredReplicasAnnotation, contract.BuildAnnotation,
		contract.RecipeBundleAnnotation, contract.RecipeProvenanceAnnotation, contract.VRGRestoreAnnotation, contract.RecipeBundleRestoredAnnotation,
		contract.PluginConfigLabel, contract.CreatedByRamenLabel,
	}
	seen := map[string]bool{}
	for _, key := range keys {
		require.Empty(t, validation.IsQualifiedName(key), key)
		require.False(t, seen[key], key)
		seen[key] = true
	}
}
