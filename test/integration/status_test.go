package integration

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/cli"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

// TestStatus looks at what `resume: manual` leaves held, as an administrator and as users with fewer rights, then at marks
// that do not fit together any more, and at nothing after `post-restore`.
func TestStatus(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "web"})
	s.deploy(app{name: "db", replicas: 1, claim: "db"})
	s.tolerated = []string{"I2: the recorded original of " + s.ns + "/db "} // it is the test that changes it
	backup := s.backup(allVolumes)
	started := time.Now().Truncate(time.Second)
	s.lose()
	restore := s.restore(backup, manually...)
	s.completed(restore, 2)
	before := s.revisions(s.ns)
	run := "kubectl -n " + s.VeleroNamespace() + " exec deploy/velero -c velero -- /plugins/velero-plugin-for-openshift-dr post-restore " + restore.Name

	t.Run("what is held, and the command", func(t *testing.T) {
		s := s.in(t)
		ran := s.status("-n", s.ns)
		assert.Equal(t, cli.ExitNotFinished, ran.code, ran)
		assert.Regexp(t, s.ns+` +web +`+restore.Name+` +Completed +\d+s +2 +1/1 +held for a person to resume \(restore \S+ has ended: Completed\)`, ran.out)
		assert.Regexp(t, s.ns+` +db +`+restore.Name+` +Completed +\d+s +1 +1/1 +held for a person`, ran.out)
		assert.Contains(t, ran.errOut, s.ns+"/db, "+s.ns+"/web: run "+run)
		assert.NotContains(t, ran.out, "PROBLEMS")
		assert.Equal(t, before, s.revisions(s.ns), "nothing may change")
	})
	t.Run("as JSON, with all fields", func(t *testing.T) {
		s := s.in(t)
		item := s.statusOf("web")
		assert.True(t, item.Held)
		assert.Equal(t, &cli.StatusRestore{Namespace: restore.Namespace, Name: restore.Name, Exists: true, Phase: "Completed"}, item.Restore)
		assert.Equal(t, &cli.StatusOriginals{Replicas: 2}, item.Originals)
		assert.Equal(t, postrestore.SinceCreation, item.SinceFrom, "Velero gives what it creates the managed fields of the backup")
		assert.WithinRange(t, item.Since, started, time.Now())
		if assert.Len(t, item.Pods, 1) {
			assert.True(t, item.Pods[0].Initialized)
			assert.WithinRange(t, item.Pods[0].Since, started, item.Since)
		}
		assert.Equal(t, run, item.Command)
		assert.Empty(t, item.Problems)
	})
	t.Run("in the cluster, among others", func(t *testing.T) {
		s := s.in(t)
		ran := s.status("-A", "-o", "wide")
		assert.Equal(t, cli.ExitNotFinished, ran.code, ran)
		assert.Regexp(t, s.ns+` +web +`+restore.Name+` .*`+run, ran.out)
	})
	t.Run("without rights", func(t *testing.T) {
		s := s.in(t)
		nobody, err := s.KubeconfigFor(s.name("nobody"))
		require.NoError(t, err)
		ran := s.runWith(nobody, "status")
		assert.Equal(t, cli.ExitFailed, ran.code, ran)
		assert.Empty(t, ran.out)
		assert.Contains(t, ran.errOut, "grant the right to list deploymentconfigs.apps.openshift.io in all namespaces, or name the namespaces to work in with --namespace")
		ran = s.runWith(s.user("there", rules(nil, "list")...), "status", "-n", s.ns)
		assert.Equal(t, cli.ExitFailed, ran.code, ran)
		assert.Contains(t, ran.errOut, "grant the right to list restores.velero.io in namespace "+s.VeleroNamespace())
	})
	t.Run("a record that somebody has torn", func(t *testing.T) {
		s := s.in(t)
		dc := s.dc(s.ns, "db")
		s.patch(dc, `{"metadata":{"annotations":{"`+contract.OriginalPausedAnnotation+`":null}}}`)
		item := s.statusOf("db")
		assert.Contains(t, item.Message, "annotation "+contract.OriginalPausedAnnotation+" is missing")
		if assert.Len(t, item.Problems, 1) {
			assert.Equal(t, postrestore.RecordUnreadable, item.Problems[0].Problem)
		}
		assert.Contains(t, item.Command, "annotate --overwrite deploymentconfigs.apps.openshift.io/db")
		s.patch(dc, `{"metadata":{"annotations":{"`+contract.OriginalPausedAnnotation+`":"false"}}}`)
	})
	t.Run("the restore expires", func(t *testing.T) {
		s := s.in(t)
		require.NoError(t, s.Client().Delete(t.Context(), restore))
		s.until(soon, func(ctx context.Context) error {
			if err := s.Client().Get(ctx, client.ObjectKeyFromObject(restore), &velerov1.Restore{}); err != nil {
				return client.IgnoreNotFound(err)
			}
			return errors.New("the Restore is still there")
		})
		item := s.statusOf("web")
		assert.Contains(t, item.Message, "held for a person to resume (restore "+restore.Namespace+"/"+restore.Name+" does not exist any more)")
		if assert.Len(t, item.Problems, 1) {
			assert.Equal(t, postrestore.RestoreGone, item.Problems[0].Problem)
		}
		assert.Equal(t, run, item.Command)
	})
	t.Run("after post-restore, nothing", func(t *testing.T) {
		s := s.in(t)
		ran := s.postRestore(restore.Name)
		require.Equal(t, cli.ExitDone, ran.code, ran)
		ran = s.status("-n", s.ns)
		assert.Equal(t, cli.ExitDone, ran.code, ran)
		assert.Empty(t, ran.out)
		assert.Equal(t, "Nothing is held in namespace "+s.ns+".\n", ran.errOut)
		s.awaitPods(s.ns, "web", 2)
		s.awaitPods(s.ns, "db", 1)
		s.unmarked(s.ns)
	})
}

// status runs `status` as an administrator on a laptop.
func (s *scene) status(args ...string) ran {
	s.t.Helper()
	return s.runWith(s.Kubeconfig(), "status", args...)
}

// statusOf returns what `status -o json` says of a DeploymentConfig of the scene.
func (s *scene) statusOf(name string) cli.StatusItem {
	s.t.Helper()
	ran := s.status("-n", s.ns, "-o", "json")
	require.Equal(s.t, cli.ExitNotFinished, ran.code, ran)
	var status cli.Status
	require.NoError(s.t, json.Unmarshal([]byte(ran.out), &status), ran)
	for _, item := range status.Items {
		if item.Name == name {
			return item
		}
	}
	require.Failf(s.t, "status says nothing of it", "%s in %+v", name, status)
	return cli.StatusItem{}
}
