package integration

import (
	"context"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// TestD8_NoTriggersAndNoData: a DeploymentConfig without triggers never rolls out by itself (D8), and one with an image
// trigger that is not automatic never either (D9). Where no data waits, its pods and ReplicationControllers are left to it
// all the same, so phase two must start its rollout.
func TestD8_NoTriggersAndNoData(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Triggers = ocpappsv1.DeploymentTriggerPolicies{}
	}})
	backup := s.backup()
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.resumed(restore.Name, s.ns, "web", 1, false)
}

// TestI2_ClaimBackedUpThroughAHookPod: Velero backs a claim up through the first pod that mounts it, in the order of names,
// and in a backup made during a rollout that may be a lifecycle-hook pod (web-10-hook-pre comes before web-9-…), which is
// never restored. The data has no way back: the restore must say so instead of passing for whole.
func TestI2_ClaimBackedUpThroughAHookPod(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	s.bump("web", 9)
	dc := s.dc(s.ns, "web")
	s.patch(dc, `{"spec":{"strategy":{"recreateParams":{"pre":{"failurePolicy":"Abort",`+
		`"execNewPod":{"containerName":"app","command":["sleep","600"],"volumes":["data"]}}}}}}`)
	s.patchStatus(dc, `{"status":{"latestVersion":10}}`)
	s.until(soon, func(ctx context.Context) error { return s.running(ctx, "web-10-hook-pre") })
	s.patch(dc, `{"spec":{"strategy":{"recreateParams":null}}}`)
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
	assert.Contains(t, s.details(restore.Name), "the data of claim data was backed up through it")
	s.resumed(restore.Name, s.ns, "web", 1, false)
}
