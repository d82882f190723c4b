package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// stockPlugin builds the stand-in for the openshift-velero-plugin under a file name that puts it before or after ours:
// Velero runs plugins in the order of their file names.
func stockPlugin(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../standin/stockplugin").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// TestB36_BesideTheStockPlugin: two plugins that register one name keep Velero from starting; and the openshift plugin
// holds DeploymentConfigs by its own rules, under the same names, and leaves them so. Here both are installed, in either
// order, and the five DeploymentConfigs of the facts' table are back with no command typed. The openshift plugin does not
// restore a pod that has only an annotation hook (its defect D1), which nothing that runs beside it can change: the
// DeploymentConfig is back all the same.
func TestB36_BesideTheStockPlugin(t *testing.T) {
	for sentence, name := range map[string]string{
		"the openshift plugin before ours": "a-velero-plugins",
		"the openshift plugin after ours":  "velero-plugins",
	} {
		t.Run(sentence, func(t *testing.T) {
			c := ownCluster(t, bed.Options{Plugins: []string{stockPlugin(t, name)}, ItemOperationSyncFrequency: 2 * time.Second})
			s := newSceneIn(t, c)
			s.deploy(app{name: "plain", replicas: 1})
			s.deploy(app{name: "data", replicas: 2, claim: "data"})
			s.deploy(app{name: "paused", replicas: 1, claim: "paused", change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Paused = true }})
			s.deploy(app{name: "manual", replicas: 1, claim: "manual", change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Triggers = ocpappsv1.DeploymentTriggerPolicies{} }})
			s.deploy(app{name: "hook", replicas: 1, podAnnotations: map[string]string{"post.hook.restore.velero.io/command": "/bin/reindex"}})
			backup := s.backup(allVolumes)
			s.lose()
			restore := s.restore(backup)
			s.completed(restore, 5)
			for name, replicas := range map[string]int{"plain": 1, "data": 2, "paused": 1, "manual": 1, "hook": 1} {
				s.resumed(restore.Name, s.ns, name, replicas, name == "paused")
			}
			for _, claim := range []string{"data", "paused", "manual"} {
				s.hasData(s.ns, claim)
			}
			assert.Empty(t, s.node.Execs(), "the openshift plugin drops the pod with the annotation hook")

			list, err := s.Velero(t.Context(), "plugin", "get")
			require.NoError(t, err)
			for _, action := range []string{"openshift.io/08-deploymentconfig-restore-plugin", "oadp.openshift.io/deploymentconfig-restore"} {
				assert.Contains(t, list, action)
			}
		})
	}
}

// TestB36_ANameTakenTwiceStopsVelero shows why our names are our own: a second binary with the openshift plugin's names
// keeps the server from starting.
func TestB36_ANameTakenTwiceStopsVelero(t *testing.T) {
	stock := stockPlugin(t, "velero-plugins")
	twin := filepath.Join(t.TempDir(), "twin")
	data, err := os.ReadFile(stock)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(twin, data, 0o755))
	c, err := startCluster(plugin(t), bed.Options{Plugins: []string{stock, twin}})
	if err == nil {
		c.stop()
	}
	require.Error(t, err)
	assert.ErrorContains(t, err, "another plugin is already registered")
}
