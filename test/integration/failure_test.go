package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/cli"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	podaction "github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/pod"
)

// TestFailures restores three applications of which one is well: of another, the data does not come; the third's lifecycle
// hook fails in the new cluster. The restore is PartiallyFailed and names both, and the one that is well is back.
func TestFailures(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "well", replicas: 2, claim: "well"})
	s.deploy(app{name: "lost", replicas: 2, claim: "lost"})
	s.deploy(app{name: "migrates", replicas: 1, claim: "migrates"})
	s.patch(s.dc(s.ns, "migrates"), `{"spec":{"strategy":{"recreateParams":{"pre":{"failurePolicy":"Abort","execNewPod":{"containerName":"app","command":["/bin/false"]}}}}}}`)
	backup := s.backup(allVolumes)
	s.lose()
	s.node.FailRestores(s.ns, "lost")
	restore := s.restore(backup)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, s.report(restore.Name))
	assert.Equal(t, 3, restore.Status.RestoreItemOperationsAttempted)
	assert.Equal(t, 2, restore.Status.RestoreItemOperationsFailed)
	assert.Equal(t, 1, restore.Status.RestoreItemOperationsCompleted)
	details := s.details(restore.Name)
	originals := disconnect.Originals{Replicas: 2}

	t.Run("two DeploymentConfigs of which one fails: the other is back", func(t *testing.T) {
		s := s.in(t)
		s.awaitPods(s.ns, "well", 2)
		s.hasData(s.ns, "well")
		dc := s.dc(s.ns, "well")
		assert.NotContains(t, dc.Labels, contract.ReplicasModifiedLabel)
	})
	t.Run("a volume restore that fails", func(t *testing.T) {
		s := s.in(t)
		s.held(restore, s.ns, "lost", originals, 1)
		for _, want := range []string{
			"DeploymentConfig " + s.ns + "/lost: ", "of volume data in pod lost-1-", "are told to fail",
			"/plugins/velero-plugin-for-openshift-dr post-restore " + restore.Name,
		} {
			assert.Contains(t, details, want)
		}
		s.failedEvent("lost", "of volume data in pod lost-1-")
		before := s.revisions(s.ns)
		run := s.postRestore(restore.Name)
		assert.Equal(t, 1, run.code, run)
		assert.Contains(t, run.out, "failed: ", run)
		assert.Contains(t, run.out, "of volume data in pod lost-1-", run)
		assert.Equal(t, before, s.revisions(s.ns), "pods and DeploymentConfigs stay as they are")
	})
	t.Run("a rollout that fails after it was resumed", func(t *testing.T) {
		s := s.in(t)
		assert.Contains(t, details, "DeploymentConfig "+s.ns+"/migrates: rollout migrates-1 failed")
		s.failedEvent("migrates", "rollout migrates-1 failed")
		dc := s.dc(s.ns, "migrates")
		assert.EqualValues(t, 1, dc.Spec.Replicas)
		// As the message says: put the cause right, and start a new rollout.
		s.patch(dc, `{"spec":{"strategy":{"recreateParams":{"pre":{"execNewPod":{"command":["/bin/migrate"]}}}}}}`)
		s.patchStatus(dc, `{"status":{"latestVersion":2}}`)
		s.until(soon, func(ctx context.Context) error { return s.rolledOut(ctx, s.ns, "migrates", 2) })
		run := s.postRestore(restore.Name)
		assert.Equal(t, 1, run.code, "the other is as it was: %s", run)
		s.awaitPods(s.ns, "migrates", 1)
		assert.NotContains(t, s.dc(s.ns, "migrates").Labels, contract.ReplicasModifiedLabel)
		s.hasData(s.ns, "migrates")
	})
	t.Run("giving the data up", func(t *testing.T) {
		s := s.in(t)
		run := s.postRestore(restore.Name, "--accept-data-loss", "-o", "json")
		require.Equal(t, 0, run.code, run)
		output := decode(t, run)
		require.Len(t, output.Results, 1)
		assert.Equal(t, "lost", output.Results[0].Name)
		assert.Equal(t, cli.Resumed, output.Results[0].Result)
		if assert.Len(t, output.Results[0].LostVolumes, 1) {
			assert.Regexp(t, `^lost-1-\w+/data$`, output.Results[0].LostVolumes[0])
		}
		s.resumed(restore.Name, s.ns, "lost", 2, false)
		s.resumed(restore.Name, s.ns, "well", 2, false)
		s.resumed(restore.Name, s.ns, "migrates", 1, false)
	})
}

// TestCancel: the time of the restore's operations is up before the data is in: everything stays held, and an event and the
// server's log say what to run.
func TestCancel(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	download := s.awaitsDownload("restore", "data")
	restore := s.restore(backup, "--item-operation-timeout", "2s")
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, s.report(restore.Name))
	s.held(restore, s.ns, "web", disconnect.Originals{Replicas: 2}, 2)
	s.failedEvent("web", "its time is up: ")
	assert.Contains(t, s.details(restore.Name), "timed out")
	command := "post-restore " + restore.Name
	assert.True(t, anyLine(s.VeleroLog(), "level=warning", "The time of the restore's operations is up", command), "the log of the server says what to run")

	// The data is still on its way: that is waited for, and nothing is deleted when the time for it is up.
	t.Run("B29 clean-up does not run ahead of the data", func(t *testing.T) {
		s := s.in(t)
		before := s.revisions(s.ns)
		run := s.postRestore(restore.Name, "--timeout", "1s")
		assert.Equal(t, 3, run.code, run)
		assert.Contains(t, run.out, "not-finished")
		assert.Equal(t, before, s.revisions(s.ns))
	})
	s.endDownload(download, velerov2alpha1.DataDownloadPhaseCompleted)
	run := s.postRestore(restore.Name)
	require.Equal(t, 0, run.code, run)
	s.resumed(restore.Name, s.ns, "web", 2, false)
	s.hasData(s.ns, "data")
}

// TestWrongSetting: an annotation that cannot be understood fails the operation, which names it; to guess could delete pods
// that a person wants to keep.
func TestWrongSetting(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup, "--annotations", "oadp.openshift.io/dc-resume=handoff")
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, s.report(restore.Name))
	s.held(restore, s.ns, "web", disconnect.Originals{Replicas: 1}, 1)
	details := s.details(restore.Name)
	assert.Contains(t, details, `annotation oadp.openshift.io/dc-resume of the Restore is "handoff": it is one of "replace" and "manual"`)
	assert.Contains(t, details, "post-restore "+restore.Name)
	run := s.postRestore(restore.Name)
	require.Equal(t, 0, run.code, "a person who has come to put it right is not stopped by it: %s", run)
	s.resumed(restore.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
}

// TestD35_DeploymentConfigThatCannotBeRestored: the defect: pods are detached, their DeploymentConfig fails to come, and
// nothing tells. Instead: the pods are kept, since they are the only copy, and that is reported, until it is there.
func TestD35_DeploymentConfigThatCannotBeRestored(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	allow := s.refuseDeploymentConfigs()
	restore := s.restore(backup)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, s.report(restore.Name))
	pod := s.awaitDetached(s.ns, "web", 1)[0]
	details := s.details(restore.Name)
	assert.Contains(t, details, "the cluster has no such DeploymentConfig: 1 detached pod is kept")
	assert.Empty(t, s.controllersOf("web"), "no old ReplicationController runs pods beside it")
	run := s.postRestore(restore.Name)
	assert.Equal(t, cli.ExitFailed, run.code, run)
	assert.Contains(t, run.out, "the cluster has no such DeploymentConfig", run)
	assert.Equal(t, pod.UID, s.awaitDetached(s.ns, "web", 1)[0].UID)

	// Restored anew, its DeploymentConfig is held for the pod of the first restore, and phase two of either sees it off.
	allow()
	again := s.restoreAs(s.name("again"), backup)
	assert.Equal(t, velerov1.RestorePhaseCompleted, again.Status.Phase, s.report(again.Name))
	s.resumed(again.Name, s.ns, "web", 2, false)
	s.resumed(restore.Name, s.ns, "web", 2, false)
	s.neverBeside("web")
	s.hasData(s.ns, "data")
}

// TestD21_BackupThatCannotBeRead: the defect: a backup that cannot be read is silently taken to hold nothing, and the data
// is lost. Instead: the log warns, and the pod is detached, which loses nothing. Velero refuses a restore whose backup is
// not there, so this one is put to the action itself.
func TestD21_BackupThatCannotBeRead(t *testing.T) {
	t.Parallel()
	refuses, requests := testkit.Record(testkit.FakeClient(t))
	requests.Fail(func(r testkit.Request) error {
		if r.Verb == "get" && r.Kind == "Backup" || r.Verb == "list" && r.Kind == "PodVolumeBackup" {
			return errors.New("connection refused")
		}
		return nil
	})
	log, record := testkit.RecordingLogger(t)
	facts := restore.NewCache(refuses)
	driver := postrestore.NewDriver(refuses, postrestore.NewRunner(refuses, clock.RealClock{}, log), facts, clock.RealClock{})
	pod := testkit.MakePod("shop", "web", 1).Obj()
	output, err := podaction.New(log, facts, driver).Execute(testkit.Input(testkit.RestoreNamed("restore").Result(), pod))
	require.NoError(t, err)
	assert.False(t, output.SkipRestore)
	restored := &unstructured.Unstructured{Object: output.UpdatedItem.UnstructuredContent()}
	assert.Contains(t, restored.GetLabels(), contract.DisconnectedLabel)
	var warnings []string
	for _, entry := range record.AllEntries() {
		if entry.Level.String() == "warning" {
			warnings = append(warnings, entry.Message)
		}
	}
	assert.Contains(t, strings.Join(warnings, "\n"), "the backup cannot be read")
}

// failedEvent asserts that an event on a DeploymentConfig of the scene says that phase two failed, and why.
func (s *scene) failedEvent(name, why string) {
	s.t.Helper()
	for _, event := range s.events(s.ns, name) {
		if strings.HasPrefix(event, postrestore.FailedReason+": ") && strings.Contains(event, why) && strings.Contains(event, "post-restore ") {
			return
		}
	}
	assert.Fail(s.t, "no event says why it failed", "want %q in %q", why, s.events(s.ns, name))
}

// anyLine tells whether a line of a log holds all the words.
func anyLine(log string, words ...string) bool {
	for line := range strings.Lines(log) {
		holds := true
		for _, word := range words {
			holds = holds && strings.Contains(line, word)
		}
		if holds {
			return true
		}
	}
	return false
}

// refuseDeploymentConfigs makes the API server refuse new DeploymentConfigs in the scene's namespace until the returned
// function is called.
func (s *scene) refuseDeploymentConfigs() (allow func()) {
	s.t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse-" + s.ns},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{
						APIGroups: []string{ocpappsv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"deploymentconfigs"},
					},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no DeploymentConfigs here"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources:    &admissionv1.MatchResources{NamespaceSelector: selecting("kubernetes.io/metadata.name", s.ns)},
		},
	}
	s.create(policy, binding)
	try := func(ctx context.Context) error {
		return s.Client().Create(ctx, app{name: "probe", replicas: 1}.dc(s.ns), client.DryRunAll)
	}
	s.until(soon, func(ctx context.Context) error {
		if try(ctx) == nil {
			return fmt.Errorf("the API server does not refuse DeploymentConfigs in %s yet", s.ns)
		}
		return nil
	})
	return func() {
		require.NoError(s.t, s.Client().Delete(s.t.Context(), binding))
		require.NoError(s.t, s.Client().Delete(s.t.Context(), policy))
		s.until(soon, try)
	}
}
