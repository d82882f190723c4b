package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/cli"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// TestJob holds the scenarios of the Job that stands by for a restore. In this bed Velero is a process and its Deployment is at 0 replicas, so
// that elsewhere no Job is made. Here the Deployment has one replica; no container runs, and the test does what the Job's would.
func TestJob(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, bed.Options{ItemOperationSyncFrequency: time.Second})
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.VeleroNamespace(), Name: "velero"}}
	require.NoError(t, c.Client().Patch(t.Context(), deployment, client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"replicas":1}}`))))
	for _, scenario := range []struct {
		name string
		run  func(*scene)
	}{
		{"goes on after exec hooks", (*scene).jobAfterHooks},
		{"goes on where a restart has ended the restore", (*scene).jobAfterRestart},
		{"is not made with resume: manual", (*scene).noJobByAnnotation},
		{"cannot be made: the operation says what to run", (*scene).noJobByQuota},
	} {
		t.Run(scenario.name, func(t *testing.T) { scenario.run(newSceneIn(t, c)) })
	}
}

// hookedApps deploys applications with an exec hook of their own, and backs them up.
func (s *scene) hookedApps(names ...string) (backup string) {
	s.t.Helper()
	for _, name := range names {
		s.deploy(app{name: name, replicas: 1, podAnnotations: map[string]string{hooks.ExecCommandAnnotation: `["/bin/reindex"]`}})
	}
	return s.backup()
}

func (s *scene) jobsOf(restore string) []batchv1.Job {
	s.t.Helper()
	var list batchv1.JobList
	require.NoError(s.t, s.Client().List(s.t.Context(), &list, client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{velerov1.RestoreNameLabel: restore}))
	return list.Items
}

// runJob runs the command of the one Job of a restore and returns the Job as it is then.
func (s *scene) runJob(restore string) (*batchv1.Job, ran) {
	s.t.Helper()
	jobs := s.jobsOf(restore)
	require.Len(s.t, jobs, 1)
	container := jobs[0].Spec.Template.Spec.Containers[0]
	require.Equal(s.t, []string{contract.InstalledPath}, container.Command)
	require.Equal(s.t, "post-restore", container.Args[0])
	run := s.postRestore(container.Args[1:]...)
	require.NoError(s.t, s.Client().Get(s.t.Context(), client.ObjectKeyFromObject(&jobs[0]), &jobs[0]))
	return &jobs[0], run
}

// jobAfterHooks: one Job for the restore of two DeploymentConfigs, which a restart of Velero leaves alone. It goes with its Restore.
func (s *scene) jobAfterHooks() {
	backup := s.hookedApps("web", "api")
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 2)
	jobs := s.jobsOf(restore.Name)
	require.Len(s.t, jobs, 1)
	assert.True(s.t, metav1.IsControlledBy(&jobs[0], restore))
	assert.Contains(s.t, s.details(restore.Name), "; then the Job "+s.VeleroNamespace()+"/"+jobs[0].Name+" goes on")
	for _, name := range []string{"web", "api"} {
		s.held(restore, s.ns, name, disconnect.Originals{Replicas: 1}, 1)
	}
	require.NoError(s.t, s.RestartVelero(s.t.Context()))

	job, run := s.runJob(restore.Name)
	require.Equal(s.t, cli.ExitDone, run.code, run)
	assert.Equal(s.t, jobs[0].UID, job.UID)
	assert.Equal(s.t, ptr.To[int32](3600), job.Spec.TTLSecondsAfterFinished)
	for _, name := range []string{"web", "api"} {
		s.resumed(restore.Name, s.ns, name, 1, false)
		s.hookedOnce(name)
	}
	require.NoError(s.t, s.Client().Delete(s.t.Context(), restore))
	s.until(soon, func(ctx context.Context) error {
		if err := s.Client().Get(ctx, client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Job %s is there without its Restore (%w)", job.Name, err)
		}
		return nil
	})
}

// jobAfterRestart: no hook applies. The data of the one DeploymentConfig is in when Velero is restarted, that of the other is not and never will be.
func (s *scene) jobAfterRestart() {
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	s.deploy(app{name: "db", replicas: 1, claim: "rows"})
	backup, name := s.backup(allVolumes), s.name("restore")
	s.lose()
	s.holdData("rows")
	s.startRestore(name, backup)
	s.awaitDetached(s.ns, "web", 1)
	s.until(restoreTime, func(ctx context.Context) error {
		if len(s.jobsOf(name)) == 0 {
			return fmt.Errorf("restore %s has no Job yet", name)
		}
		return errors.Join(s.dcIsHeld(ctx, "web"), s.dcIsHeld(ctx, "db"))
	})
	require.NoError(s.t, s.RestartVelero(s.t.Context()))
	restore := s.awaitRestore(name)
	require.Equal(s.t, velerov1.RestorePhaseFailed, restore.Status.Phase)

	job, run := s.runJob(name)
	assert.Equal(s.t, cli.ExitFailed, run.code, "the one cannot be brought back: %s", run)
	assert.Nil(s.t, job.Spec.TTLSecondsAfterFinished, "it stays, with its log")
	assert.Regexp(s.t, `web +resumed`, run.out, run)
	s.awaitPods(s.ns, "web", 2)
	s.hasData(s.ns, "data")
	s.held(restore, s.ns, "db", disconnect.Originals{Replicas: 1}, 1)
	s.failedEvent("db", "of volume")
}

func (s *scene) noJobByAnnotation() {
	backup := s.hookedApps("web")
	s.lose()
	restore := s.restoreWith("restore", backup, func(r *velerov1.Restore) {
		r.Annotations = map[string]string{contract.ResumeAnnotation: "manual"}
	})
	s.completed(restore, 1)
	assert.Empty(s.t, s.jobsOf(restore.Name))
	assert.Equal(s.t, cli.ExitDone, s.postRestore(restore.Name).code)
	s.resumed(restore.Name, s.ns, "web", 1, false)
}

// noJobByQuota: the API server refuses the Job, as it does for want of a right.
func (s *scene) noJobByQuota() {
	backup := s.hookedApps("web")
	s.lose()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.VeleroNamespace(), Name: "no-jobs"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}},
	}
	s.create(quota)
	defer func() { require.NoError(s.t, s.Client().Delete(context.WithoutCancel(s.t.Context()), quota)) }()
	s.until(soon, func(ctx context.Context) error {
		err := s.Client().Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && len(quota.Status.Hard) == 0 {
			err = fmt.Errorf("the quota does not hold yet")
		}
		return err
	})
	restore := s.restore(backup)
	s.completed(restore, 1)
	assert.Empty(s.t, s.jobsOf(restore.Name))
	details := s.details(restore.Name)
	assert.Regexp(s.t, `no Job stands by to go on \(create the Job `+s.VeleroNamespace()+`/post-restore-\S+: jobs.batch "\S+" is forbidden: exceeded quota: no-jobs`, details)
	assert.Contains(s.t, details, "; then run: kubectl -n "+s.VeleroNamespace()+" exec deploy/velero")
	assert.Equal(s.t, cli.ExitDone, s.postRestore(restore.Name).code)
	s.resumed(restore.Name, s.ns, "web", 1, false)
}
