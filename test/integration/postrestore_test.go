package integration

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/cli"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

// TestPostRestore runs phase two by hand, after `resume: manual`, step by step: what must not change anything first. It also
// holds the faults of the OADP script, each as it is done instead.
func TestPostRestore(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "alpha", replicas: 2, claim: "alpha"})
	s.deploy(app{name: "beta", replicas: 1, claim: "beta"})
	s.deploy(app{name: "gamma", replicas: 1, claim: "gamma"})
	s.tolerated = []string{"I2: the recorded original of " + s.ns + "/gamma "} // it is the test that changes it
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup, manually...)
	s.completed(restore, 3)
	originals := map[string]disconnect.Originals{"alpha": {Replicas: 2}, "beta": {Replicas: 1}, "gamma": {Replicas: 1}}
	before := s.revisions(s.ns)
	unchanged := func(t *testing.T, run ran) {
		t.Helper()
		assert.Equal(t, before, s.in(t).revisions(s.ns), "nothing may change: %s", run)
	}

	// The report: the DeploymentConfig stays at 0, and nothing says so. Instead: the operation, an event and the command.
	t.Run("B11 what is held says so", func(t *testing.T) {
		s := s.in(t)
		for name, original := range originals {
			s.held(restore, s.ns, name, original, 1)
			if events := s.events(s.ns, name); assert.Len(t, events, 1) {
				assert.Contains(t, events[0], postrestore.HeldReason+": Held at 0 replicas by restore "+restore.Name)
			}
		}
		details := s.details(restore.Name)
		assert.Contains(t, details, "held for a person to resume (resume: manual); then run: ")
		assert.Contains(t, details, "/plugins/velero-plugin-for-openshift-dr post-restore "+restore.Name)
	})
	// The script ends with 0 after a slip of the pen. Instead: 1, and what does hold something is named.
	t.Run("D24 an unknown restore", func(t *testing.T) {
		run := s.in(t).postRestore(restore.Name + "s")
		assert.Equal(t, cli.ExitFailed, run.code, run)
		assert.Contains(t, run.errOut, "there is no Restore "+restore.Namespace+"/"+restore.Name+"s")
		assert.Contains(t, run.errOut, restore.Name, "the restores that hold something")
		unchanged(t, run)
	})
	t.Run("wrong usage", func(t *testing.T) {
		for _, args := range [][]string{{}, {"Not_A_Name"}, {restore.Name, "--timeout", "0s"}, {restore.Name, "-n", ""}, {restore.Name, "-o", "xml"}} {
			run := s.in(t).postRestore(args...)
			assert.Equal(t, cli.ExitUsage, run.code, run)
			unchanged(t, run)
		}
	})
	t.Run("a dry run", func(t *testing.T) {
		s := s.in(t)
		run := s.postRestore(restore.Name, "--dry-run")
		assert.Equal(t, cli.ExitDone, run.code, run)
		for name := range originals {
			assert.Regexp(t, s.ns+` +`+name+` +planned +delete-pods`, run.out)
		}
		unchanged(t, run)
		output := decode(t, s.postRestore(restore.Name, "--dry-run", "-o", "json", "-n", s.ns))
		assert.Equal(t, restore.Name, output.Restore)
		if assert.Len(t, output.Results, 3) {
			assert.Equal(t, cli.OutputResult{
				Namespace: s.ns, Name: "alpha", Result: cli.Planned, Step: postrestore.DeletePods,
				Pods: &cli.OutputPods{Initialized: 1, Total: 1}, Message: "deleting 1 detached pod",
			}, output.Results[0])
		}
	})
	t.Run("without any rights", func(t *testing.T) {
		s := s.in(t)
		nobody, err := s.KubeconfigFor(s.name("nobody"))
		require.NoError(t, err)
		run := s.postRestoreWith(nobody, restore.Name)
		assert.Equal(t, cli.ExitFailed, run.code, run)
		assert.Contains(t, run.errOut, "grant the right to get restores.velero.io in namespace "+s.VeleroNamespace())
		unchanged(t, run)
	})
	// The script deletes the pods, cannot list DeploymentConfigs, and ends with 0. Instead: nothing is touched, and the error
	// names verb and resource.
	t.Run("D24 without rights on DeploymentConfigs", func(t *testing.T) {
		s := s.in(t)
		run := s.postRestoreWith(s.user("reader"), restore.Name)
		assert.Equal(t, cli.ExitFailed, run.code, run)
		assert.Contains(t, run.errOut, "grant the right to list deploymentconfigs.apps.openshift.io in all namespaces, or name the namespaces to work in with --namespace")
		unchanged(t, run)
	})
	// The report: the pods could not be deleted and the DeploymentConfig was scaled all the same: two pods on one claim.
	// Instead: it is not scaled while a detached pod of it exists.
	t.Run("B12 without the right to delete pods", func(t *testing.T) {
		s := s.in(t)
		run := s.postRestoreWith(s.user("nodelete", rules(nil, "get", "list")...), restore.Name, "--namespace", s.ns)
		assert.Equal(t, cli.ExitFailed, run.code, run)
		assert.Contains(t, run.out, "cannot delete resource \"pods\"", run)
		unchanged(t, run)
	})
	// The script patches nothing where the record is missing. Instead: it says so.
	t.Run("D24 a record that is missing", func(t *testing.T) {
		s := s.in(t)
		dc := s.dc(s.ns, "gamma")
		s.patch(dc, `{"metadata":{"annotations":{"`+contract.OriginalReplicasAnnotation+`":null}}}`)
		run := s.postRestore(restore.Name, "--dry-run")
		assert.Equal(t, cli.ExitFailed, run.code, run)
		assert.Contains(t, run.out, "annotation "+contract.OriginalReplicasAnnotation+" is missing")
		s.patch(dc, `{"metadata":{"annotations":{"`+contract.OriginalReplicasAnnotation+`":"1"}}}`)
		unchanged(t, run)
	})
	// The script stops at the first that fails. Instead: the others are brought back, and the failure is reported.
	t.Run("D24 one that may not be patched", func(t *testing.T) {
		s := s.in(t)
		run := s.postRestoreWith(s.user("notall", rules([]string{"beta", "gamma"}, "get", "list", "delete")...), restore.Name, "--namespace", s.ns)
		assert.Equal(t, cli.ExitFailed, run.code, run)
		assert.Regexp(t, `alpha +failed .*cannot patch resource "deploymentconfigs"`, run.out, run)
		assert.Regexp(t, `beta +resumed`, run.out, run)
		assert.Regexp(t, `gamma +resumed`, run.out, run)
		assert.Zero(t, s.dc(s.ns, "alpha").Spec.Replicas)
		s.awaitPods(s.ns, "beta", 1)
		s.awaitPods(s.ns, "gamma", 1)
	})
	t.Run("with rights in its namespace alone", func(t *testing.T) {
		s := s.in(t)
		run := s.postRestoreWith(s.user("enough", rules([]string{"alpha"}, "get", "list", "delete")...), restore.Name, "-n", s.ns, "-o", "json")
		require.Equal(t, cli.ExitDone, run.code, run)
		output := decode(t, run)
		if assert.Len(t, output.Results, 1) {
			assert.Equal(t, cli.Resumed, output.Results[0].Result)
			assert.Equal(t, "back at 2 replicas", output.Results[0].Message)
		}
		for name, original := range originals {
			s.resumed(restore.Name, s.ns, name, int(original.Replicas), false)
			s.neverBeside(name)
			s.hasData(s.ns, name)
			assert.Contains(t, s.events(s.ns, name), postrestore.ResumedReason+": Resumed after restore "+restore.Name+": back at "+
				map[bool]string{true: "1 replica", false: "2 replicas"}[original.Replicas == 1])
		}
	})
	// The defect: what the script leaves makes a second run undo what a person has scaled since. Instead: nothing is left,
	// and a second run changes nothing.
	t.Run("D17 again after a person has scaled it", func(t *testing.T) {
		s := s.in(t)
		s.patch(s.dc(s.ns, "alpha"), `{"spec":{"replicas":3}}`)
		s.awaitPods(s.ns, "alpha", 3)
		s.resumed(restore.Name, s.ns, "alpha", 3, false)
		run := s.postRestore(restore.Name)
		assert.Equal(t, cli.ExitDone, run.code, run)
		assert.Contains(t, run.errOut, "Nothing to do")
	})
}

// TestAfterTheScript: a person has run OADP's script, or the same by hand, on what we hold; then the Restore expired. The
// defects: a DeploymentConfig that was paused stays at 0 pods for ever, and all marks stay. Instead: `post-restore` heals it,
// and needs no Restore for that.
func TestAfterTheScript(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "paused", replicas: 2, claim: "paused", change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Paused = true }})
	s.deploy(app{name: "web", replicas: 1, claim: "web"})
	s.deploy(app{name: "tested", replicas: 1, claim: "tested"})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup, manually...)
	s.completed(restore, 3)
	// A test is at 0 outside of rollouts, so it has no pods in a backup: this one has become one since.
	s.patch(s.dc(s.ns, "tested"), `{"spec":{"test":true}}`)

	detached := client.MatchingLabels{contract.DisconnectedLabel: disconnect.OwnerOf(restore).Label(), "app": "paused"}
	require.NoError(t, s.Client().DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(s.ns), detached))
	s.awaitPods(s.ns, "paused", 0)
	s.patch(s.dc(s.ns, "paused"), `{"spec":{"replicas":2,"paused":true}}`)

	require.NoError(t, s.Client().Delete(t.Context(), restore))
	s.until(soon, func(ctx context.Context) error {
		err := s.Client().Get(ctx, client.ObjectKeyFromObject(restore), &velerov1.Restore{})
		if err == nil {
			return errors.New("the Restore is still there")
		}
		return client.IgnoreNotFound(err)
	})
	run := s.postRestore(restore.Name)
	require.Equal(t, cli.ExitDone, run.code, run)
	assert.Contains(t, run.errOut, "does not exist any more")

	again := func(t *testing.T, name string) {
		t.Helper()
		s := s.in(t)
		s.unmarked(s.ns)
		s.hasData(s.ns, name)
		before := s.revisions(s.ns)
		run := s.postRestore(restore.Name)
		assert.Equal(t, cli.ExitFailed, run.code, "there is neither the Restore nor a mark of it: %s", run)
		assert.Equal(t, before, s.revisions(s.ns))
	}
	t.Run("D7 B20 paused and scaled in one patch", func(t *testing.T) {
		s.in(t).awaitPods(s.ns, "paused", 2)
		assert.True(t, s.dc(s.ns, "paused").Spec.Paused)
		again(t, "paused")
	})
	t.Run("one that the script did not reach", func(t *testing.T) {
		s.in(t).awaitPods(s.ns, "web", 1)
		again(t, "web")
	})
	// The defect: a test has no pods outside of rollouts, and waiting for them never ends. Instead: its replicas are back, and
	// its pods are not waited for.
	t.Run("D33 test: true", func(t *testing.T) {
		dc := s.dc(s.ns, "tested")
		assert.EqualValues(t, 1, dc.Spec.Replicas)
		assert.True(t, dc.Spec.Test)
		s.in(t).awaitPods(s.ns, "tested", 0)
		assert.Regexp(t, `tested +resumed +.*it is a test, so its pods run during rollouts only`, run.out)
		again(t, "tested")
	})
}

// decode reads the output of a run with -o json.
func decode(t *testing.T, run ran) cli.Output {
	t.Helper()
	var output cli.Output
	require.NoError(t, json.Unmarshal([]byte(run.out), &output), run)
	return output
}

// rules are the rights in an application's namespace that phase two needs; patch only on the named DeploymentConfigs.
func rules(patched []string, onPods ...string) []rbacv1.PolicyRule {
	all := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: onPods},
		{APIGroups: []string{""}, Resources: []string{"replicationcontrollers"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "create"}},
		{APIGroups: []string{ocpappsv1.GroupName}, Resources: []string{"deploymentconfigs"}, Verbs: []string{"list"}},
	}
	if len(patched) > 0 {
		all = append(all, rbacv1.PolicyRule{
			APIGroups: []string{ocpappsv1.GroupName}, Resources: []string{"deploymentconfigs", "deploymentconfigs/status"},
			Verbs: []string{"patch"}, ResourceNames: patched,
		})
	}
	return all
}

// user returns the kubeconfig of a user who may read in Velero's namespace what phase two needs, and has these rights in the
// scene's.
func (s *scene) user(name string, rights ...rbacv1.PolicyRule) string {
	s.t.Helper()
	name = s.name(name)
	kubeconfig, err := s.KubeconfigFor(name)
	require.NoError(s.t, err)
	s.grant(s.VeleroNamespace(), name,
		rbacv1.PolicyRule{APIGroups: []string{velerov1.SchemeGroupVersion.Group}, Resources: []string{"restores", "backups"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{velerov1.SchemeGroupVersion.Group}, Resources: []string{"podvolumerestores", "datadownloads"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
	)
	s.grant(s.ns, name, rights...)
	return kubeconfig
}

// grant gives a user rights in a namespace.
func (s *scene) grant(namespace, user string, rights ...rbacv1.PolicyRule) {
	s.t.Helper()
	s.create(
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, Rules: rights},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		},
	)
}
