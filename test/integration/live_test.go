package integration

import (
	"context"
	"slices"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// TestLive restores over an application that runs. One of its pods was deleted since the backup: that one Velero would
// create beside the others. The reports: live pods lose their labels and are replaced, the live DeploymentConfig is zeroed,
// and the original recorded is wrong. Instead: its DeploymentConfig owns the application, and the log says so.
func TestLive(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.until(soon, func(ctx context.Context) error { return s.node.Write(ctx, s.ns, "data", "newer orders") })
	require.NoError(t, s.Client().Delete(t.Context(), s.podsOf("web")[0].DeepCopy()))
	s.awaitPods(s.ns, "web", 2)
	before := s.podUIDs("web")
	for _, policy := range []string{"none", "update"} {
		t.Run("B28 D14 policy "+policy, func(t *testing.T) {
			s := s.in(t)
			restore := s.restoreAs(s.name("restore-"+policy), backup, "--existing-resource-policy", policy)
			s.completed(restore, 0)
			assert.Equal(t, before, s.podUIDs("web"), "no pod was replaced or added")
			logs, err := s.RestoreLogs(t.Context(), restore.Name)
			require.NoError(t, err)
			assert.Contains(t, logs, "was live before this restore with 2 replicas")
			value, err := s.node.Read(t.Context(), s.ns, "data")
			require.NoError(t, err)
			assert.Equal(t, "newer orders", value, "its data is not overwritten under it")
			s.resumed(restore.Name, s.ns, "web", 2, false)
			for _, v := range s.record.SoFar() {
				switch object := v.Object.(type) {
				case *ocpappsv1.DeploymentConfig:
					assert.EqualValues(t, 2, object.Spec.Replicas, "replicas at revision %d", v.Revision)
					assert.NotContains(t, object.Labels, contract.ReplicasModifiedLabel)
				case *corev1.Pod:
					if object.Labels[contract.DeploymentConfigLabel] == "web" {
						assert.Contains(t, object.Labels, contract.DeploymentLabel, "labels of pod %s", object.Name)
						assert.NotContains(t, object.Labels, contract.DisconnectedLabel)
					}
				}
			}
		})
	}
}

// TestInPlace restores the data of an application that was scaled to 0 for that. Its pods bring the data and go; it stays at
// 0, or gets the backup's replicas where the restore was told to update what exists.
func TestInPlace(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.patch(s.dc(s.ns, "web"), `{"spec":{"replicas":0}}`)
	s.awaitPods(s.ns, "web", 0)
	spoil := func() {
		s.until(soon, func(ctx context.Context) error { return s.node.Write(ctx, s.ns, "data", "spoilt") })
	}
	t.Run("policy none: its data is back and it stays at 0", func(t *testing.T) {
		s := s.in(t)
		spoil()
		restore := s.restoreAs(s.name("none"), backup)
		s.completed(restore, 1)
		s.resumed(restore.Name, s.ns, "web", 0, false)
		s.hasData(s.ns, "data")
		s.onlyDetached("web", 1)
	})
	t.Run("policy update: its data is back and it has the backup's replicas", func(t *testing.T) {
		s := s.in(t)
		spoil()
		restore := s.restoreAs(s.name("update"), backup, "--existing-resource-policy", "update")
		s.completed(restore, 1)
		s.resumed(restore.Name, s.ns, "web", 2, false)
		s.hasData(s.ns, "data")
		s.neverBeside("web")
	})
}

// TestAgain restores one backup again and again: over its own hold, over the application that it brought back, and from a
// backup that was taken of the hold. Two applications, of which the one is originally paused.
func TestAgain(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	s.deploy(app{name: "paused", replicas: 1, claim: "paused", change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Paused = true }})
	originals := map[string]disconnect.Originals{"web": {Replicas: 2}, "paused": {Replicas: 1, Paused: true}}
	first := s.backup(allVolumes)
	s.lose()
	holding := s.restoreAs(s.name("holding"), first, manually...)
	s.completed(holding, 2)
	held := func(t *testing.T) {
		t.Helper()
		for name, original := range originals {
			s.in(t).held(holding, s.ns, name, original, 1)
		}
	}
	held(t)

	// The report: a second attempt records 0 as the original. Instead: the record of the first stays, under either policy.
	t.Run("B21 again while it is held", func(t *testing.T) {
		s := s.in(t)
		for _, policy := range []string{"none", "update"} {
			again := s.restoreAs(s.name("again-"+policy), first, slices.Concat(manually, []string{"--existing-resource-policy", policy})...)
			assert.Equal(t, velerov1.RestorePhaseCompleted, again.Status.Phase, s.report(again.Name))
			for name, original := range originals {
				dc := s.dc(s.ns, name)
				recorded, ok, err := disconnect.Recorded(dc.Annotations)
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, original, recorded, "%s after a restore with policy %s", name, policy)
				assert.Zero(t, dc.Spec.Replicas)
			}
		}
	})
	// The defect: a backup of the hold has 0 replicas and stale marks; restored, it stays at 0 for ever. Instead: what is
	// recorded counts, and the pods of the old hold are those of the new.
	t.Run("D16 a backup taken while it is held", func(t *testing.T) {
		s := s.in(t)
		s.backupAs(s.name("held"), "--include-namespaces", s.ns, allVolumes)
		s.lose()
		restore := s.restoreAs(s.name("released"), s.name("held"))
		s.completed(restore, 2)
		for name, original := range originals {
			s.resumed(restore.Name, s.ns, name, int(original.Replicas), original.Paused)
			s.neverBeside(name)
		}
		s.hasData(s.ns, "data")
		s.hasData(s.ns, "paused")
	})
	// The defect: the DeploymentConfig keeps the marks of the first restore, the pods have those of the second, and clean-up
	// by name finds half. Instead: what is live is left alone, and nothing is marked.
	t.Run("D15 again when it is back", func(t *testing.T) {
		s := s.in(t)
		before := s.podUIDs("web")
		restore := s.restoreAs(s.name("late"), first)
		s.completed(restore, 0)
		assert.Equal(t, before, s.podUIDs("web"))
		for name, original := range originals {
			s.resumed(restore.Name, s.ns, name, int(original.Replicas), original.Paused)
		}
	})
}

// TestD15_TwoRestoresOfOneDeploymentConfig: the defect: a DeploymentConfig that one restore holds gets a pod from another,
// and clean-up by the name of either finds only half. Instead: phase two of either takes all its detached pods, and it is
// resumed when none is left.
func TestD15_TwoRestoresOfOneDeploymentConfig(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	// A data mover fills a claim for all its pods, so that both are detached.
	s.endDownload(s.awaitsDownload("one", "data"), velerov2alpha1.DataDownloadPhaseCompleted)
	s.endDownload(s.awaitsDownload("two", "data"), velerov2alpha1.DataDownloadPhaseCompleted)
	one := s.restoreAs(s.name("one"), backup, manually...)
	s.completed(one, 1)
	lost := s.awaitDetached(s.ns, "web", 2)[0]
	require.NoError(t, s.Client().Delete(t.Context(), &lost, client.GracePeriodSeconds(0)))
	two := s.restoreAs(s.name("two"), backup)
	s.completed(two, 1)
	s.resumed(one.Name, s.ns, "web", 2, false)
	s.resumed(two.Name, s.ns, "web", 2, false)
	s.hasData(s.ns, "data")
	s.neverBeside("web")
}

// podsOf returns the pods of an application in the scene's namespace.
func (s *scene) podsOf(name string) []corev1.Pod {
	s.t.Helper()
	pods, err := s.pods(s.t.Context(), s.ns, name)
	require.NoError(s.t, err)
	return pods
}

// podUIDs returns who the pods of an application are.
func (s *scene) podUIDs(name string) []types.UID {
	s.t.Helper()
	var uids []types.UID
	for _, pod := range s.podsOf(name) {
		uids = append(uids, pod.UID)
	}
	return uids
}

// onlyDetached asserts that a DeploymentConfig had so many detached pods, and no others since the restore.
func (s *scene) onlyDetached(name string, detached int) {
	s.t.Helper()
	names := map[string]bool{}
	for _, v := range s.record.SoFar() {
		if pod, ok := v.Object.(*corev1.Pod); ok && pod.Namespace == s.ns && pod.Labels[contract.DeploymentConfigLabel] == name {
			assert.Contains(s.t, pod.Labels, contract.DisconnectedLabel, pod.Name)
			names[pod.Name] = true
		}
	}
	assert.Len(s.t, names, detached)
}
