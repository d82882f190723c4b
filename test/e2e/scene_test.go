package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilexec "k8s.io/client-go/util/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/history"
)

const (
	// soon is what the cluster does by itself: start pods, roll out, delete.
	soon = 2 * time.Minute
	// restoreTime is how long a backup or restore may take, also while others go before it: Velero restores one after another.
	restoreTime = 5 * time.Minute
	// allVolumes makes Velero back up all volumes of pods file by file.
	allVolumes = "--default-volumes-to-fs-backup"
)

// scene is a scenario while it runs: a namespace of its own.
type scene struct {
	*cluster
	t *testing.T
	// ns is where the application is: before a restore into another namespace the one, then the other.
	ns string
	// name begins the names of the scene's backup and restores.
	name string
	// written is the SHA-256 of what was written, by the name of the application.
	written map[string]string
	// record of what happens from the first restore on; nil before.
	record *history.Recording
	// restores are the names of those that were begun, restoring when the last of them was.
	restores  []string
	restoring time.Time
	outcome   outcome
}

// newScene returns a scene with its namespace. Its outcome is reported when the test ends.
func newScene(t *testing.T, c *cluster, name string) *scene {
	t.Helper()
	began := time.Now()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	require.NoError(t, c.Client().Create(t.Context(), namespace))
	s := &scene{
		cluster: c, t: t, ns: namespace.Name, name: namespace.Name, written: map[string]string{},
		outcome: outcome{scenario: name},
	}
	t.Cleanup(func() {
		if s.record != nil {
			for _, violation := range history.Violations(s.record.End()) {
				t.Error(violation)
			}
		}
		if t.Failed() {
			t.Log(s.states())
		}
		s.outcome.wall, s.outcome.passed = time.Since(began), !t.Failed()
		outcomes.add(s.outcome)
	})
	return s
}

// until polls a condition and fails the test with its last error.
func (s *scene) until(timeout time.Duration, check func(context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			require.NoError(s.t, last, "not within %s", timeout)
		case <-ticker.C:
		}
	}
}

func (s *scene) patch(object client.Object, merge string) {
	s.t.Helper()
	require.NoError(s.t, s.Client().Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// pods returns the pods of a DeploymentConfig, detached or not.
func (s *scene) pods(ctx context.Context, a app) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := s.Client().List(ctx, &list, client.InNamespace(s.ns), client.MatchingLabels{contract.DeploymentConfigLabel: a.name})
	return list.Items, err
}

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// awaitPods waits until an application has exactly its replicas as pods, all ready, none going and none detached.
func (s *scene) awaitPods(a app) (pods []corev1.Pod) {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) (err error) {
		if pods, err = s.pods(ctx, a); err != nil {
			return err
		}
		if len(pods) != int(a.replicas) {
			return fmt.Errorf("%s has %d pods, want %d", a.name, len(pods), a.replicas)
		}
		for i := range pods {
			if !hasCondition(&pods[i], corev1.PodReady) || pods[i].DeletionTimestamp != nil || pods[i].Labels[contract.DisconnectedLabel] != "" {
				return fmt.Errorf("pod %s is not ready, going or detached: %s", pods[i].Name, pods[i].Status.Phase)
			}
		}
		return nil
	})
	return pods
}

// awaitDetached waits until an application has exactly n pods, all detached and with a condition.
func (s *scene) awaitDetached(a app, n int, condition corev1.PodConditionType) (pods []corev1.Pod) {
	s.t.Helper()
	s.until(restoreTime, func(ctx context.Context) (err error) {
		if pods, err = s.pods(ctx, a); err != nil {
			return err
		}
		for i := range pods {
			if pods[i].Labels[contract.DisconnectedLabel] == "" || !hasCondition(&pods[i], condition) {
				return fmt.Errorf("pod %s is not detached, or not %s", pods[i].Name, condition)
			}
		}
		if len(pods) != n {
			return fmt.Errorf("%s has %d pods, want %d detached ones", a.name, len(pods), n)
		}
		return nil
	})
	return pods
}

// backup backs the scene's namespace up.
func (s *scene) backup(args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), restoreTime)
	defer cancel()
	began := time.Now()
	backup, err := s.Backup(ctx, s.name, append([]string{"--include-namespaces=" + s.ns}, args...)...)
	require.NoError(s.t, err)
	s.outcome.backup = time.Since(began)
	if backup.Status.Phase != velerov1.BackupPhaseCompleted {
		described, err := s.DescribeBackup(s.t.Context(), s.name)
		require.Equal(s.t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s %v", described, err)
	}
}

// lose deletes the scene's namespace with all that is in it, and waits until its volumes have gone too.
func (s *scene) lose() {
	s.t.Helper()
	// First what takes time: while something is left in a namespace, it is looked at again at long intervals only.
	for _, kind := range []client.Object{
		&ocpappsv1.DeploymentConfig{}, &corev1.ReplicationController{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{},
	} {
		require.NoError(s.t, s.Client().DeleteAllOf(s.t.Context(), kind, client.InNamespace(s.ns), client.GracePeriodSeconds(0)))
	}
	s.until(soon, func(ctx context.Context) error {
		var claims corev1.PersistentVolumeClaimList
		if err := s.Client().List(ctx, &claims, client.InNamespace(s.ns)); err != nil {
			return err
		}
		if len(claims.Items) > 0 {
			return fmt.Errorf("%d claims are left", len(claims.Items))
		}
		return nil
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	require.NoError(s.t, s.Client().Delete(s.t.Context(), namespace))
	s.until(soon, func(ctx context.Context) error {
		if err := s.Client().Get(ctx, client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the namespace is there (%w)", err)
		}
		var volumes corev1.PersistentVolumeList
		if err := s.Client().List(ctx, &volumes); err != nil {
			return err
		}
		for i := range volumes.Items {
			if claim := volumes.Items[i].Spec.ClaimRef; claim != nil && claim.Namespace == s.ns {
				return fmt.Errorf("volume %s of claim %s is there", volumes.Items[i].Name, claim.Name)
			}
		}
		return nil
	})
}

// restore restores the scene's backup with Velero's command line and returns the ended Restore.
func (s *scene) restore(args ...string) *velerov1.Restore {
	s.t.Helper()
	return s.awaitRestore(s.startRestore(args...))
}

// startRestore returns the name of the Restore. What happens is recorded from the first one on.
func (s *scene) startRestore(args ...string) string {
	s.t.Helper()
	name := s.nextRestore()
	require.NoError(s.t, s.CreateRestore(s.t.Context(), name, append([]string{"--from-backup=" + s.name}, args...)...))
	return name
}

func (s *scene) nextRestore() string {
	s.t.Helper()
	if s.record == nil {
		s.record = history.Record(s.watching, s.VeleroNamespace(), s.ns)
	}
	name := fmt.Sprintf("%s-%d", s.name, len(s.restores)+1)
	s.restores, s.restoring = append(s.restores, name), time.Now()
	return name
}

func (s *scene) awaitRestore(name string) *velerov1.Restore {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), restoreTime)
	defer cancel()
	restore, err := s.WaitRestore(ctx, name)
	require.NoError(s.t, err)
	if s.outcome.restore == 0 {
		s.outcome.restore = time.Since(s.restoring)
	}
	return restore
}

// awaitPhase waits until a restore is in a phase and returns it.
func (s *scene) awaitPhase(name string, phase velerov1.RestorePhase) *velerov1.Restore {
	s.t.Helper()
	restore := &velerov1.Restore{}
	s.until(restoreTime, func(ctx context.Context) error {
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.VeleroNamespace(), Name: name}, restore); err != nil {
			return err
		}
		if restore.Status.Phase != phase {
			return fmt.Errorf("restore %s is %s, want %s", name, restore.Status.Phase, phase)
		}
		return nil
	})
	return restore
}

// completed requires that a restore ended well, with so many operations.
func (s *scene) completed(restore *velerov1.Restore, operations int) {
	s.t.Helper()
	require.Equal(s.t, velerov1.RestorePhaseCompleted, restore.Status.Phase)
	assert.Equal(s.t, operations, restore.Status.RestoreItemOperationsAttempted, "operations attempted")
	assert.Equal(s.t, operations, restore.Status.RestoreItemOperationsCompleted, "operations completed")
}

// details is what `velero restore describe --details` says.
func (s *scene) details(restore string) string {
	s.t.Helper()
	out, err := s.DescribeRestore(s.t.Context(), restore)
	require.NoError(s.t, err)
	return out
}

// volumeRestores returns the PodVolumeRestores of a restore into pods of an application.
func (s *scene) volumeRestores(ctx context.Context, restore string, a app) ([]velerov1.PodVolumeRestore, error) {
	pods, err := s.pods(ctx, a)
	if err != nil {
		return nil, err
	}
	var list velerov1.PodVolumeRestoreList
	if err := s.Client().List(ctx, &list, client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{velerov1.RestoreNameLabel: restore}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(r velerov1.PodVolumeRestore) bool {
		return !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == r.Spec.Pod.UID })
	}), nil
}

// held asserts that an application is held for a restore, and that its detached pods are there (I1).
func (s *scene) held(restore *velerov1.Restore, a app, detached int) []corev1.Pod {
	s.t.Helper()
	owner := disconnect.OwnerOf(restore)
	dc := s.dc(a)
	assert.Zero(s.t, dc.Spec.Replicas)
	assert.True(s.t, owner.Marked(contract.ReplicasModifiedLabel, dc.Labels, dc.Annotations), "%s is held by the restore", a.name)
	originals, recorded, err := disconnect.Recorded(dc.Annotations)
	if assert.NoError(s.t, err) && assert.True(s.t, recorded, "originals are recorded") {
		assert.Equal(s.t, disconnect.Originals{Replicas: a.replicas, Paused: a.paused}, originals)
	}
	pods, err := s.pods(s.t.Context(), a)
	require.NoError(s.t, err)
	assert.Len(s.t, pods, detached)
	for i := range pods {
		assert.True(s.t, owner.Marked(contract.DisconnectedLabel, pods[i].Labels, pods[i].Annotations), pods[i].Name)
		assert.Nil(s.t, pods[i].DeletionTimestamp, pods[i].Name)
	}
	return pods
}

func (s *scene) dc(a app) *ocpappsv1.DeploymentConfig {
	s.t.Helper()
	dc := &ocpappsv1.DeploymentConfig{}
	require.NoError(s.t, s.Client().Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: a.name}, dc))
	return dc
}

// back asserts that an application is back and proven, and measures its outage.
func (s *scene) back(restore string, a app) {
	s.t.Helper()
	s.proven(restore, a)
	outage, ok := history.Outage(s.record.SoFar(), types.NamespacedName{Namespace: s.ns, Name: a.name}, int(a.replicas))
	assert.True(s.t, ok, "%s has gone and come back", a.name)
	s.outcome.outage = max(s.outcome.outage, outage)
}

// proven asserts that an application is back (I3): its replicas and paused, as many ready pods, no mark on anything of it;
// that what was written is read in each pod; that no pod of its own ran beside a restored one; and that phase two run again
// changes nothing (I4).
func (s *scene) proven(restore string, a app) {
	s.t.Helper()
	s.until(soon, func(context.Context) error { // the marks go last
		if dc := s.dc(a); dc.Labels[contract.ReplicasModifiedLabel] != "" {
			return fmt.Errorf("DeploymentConfig %s is held", dc.Name)
		}
		return nil
	})
	pods := s.awaitPods(a)
	dc := s.dc(a)
	assert.Equal(s.t, a.replicas, dc.Spec.Replicas, "replicas")
	assert.Equal(s.t, a.paused, dc.Spec.Paused, "paused")
	for _, key := range disconnect.HeldAnnotations {
		assert.NotContains(s.t, dc.Annotations, key)
	}
	beside, detached := history.Beside(s.record.SoFar(), types.NamespacedName{Namespace: s.ns, Name: a.name})
	assert.Empty(s.t, beside, "pods of %s that were made while detached ones were there", a.name)
	assert.True(s.t, detached, "pods of %s were detached", a.name)

	read := proof{application: a.name, mebibytes: a.size(), written: s.written[a.name]}
	for i := range pods {
		read.read = s.sum(&pods[i])
		if assert.Equal(s.t, read.written, read.read, "what was written is read in pod %s", pods[i].Name) {
			read.pods++
		}
	}
	s.outcome.prove(read)

	before := s.revisions(a)
	if again := s.postRestore(restore); assert.Zero(s.t, again.code, again) {
		assert.Equal(s.t, before, s.revisions(a), "phase two run again must change nothing")
	}
}

// revisions is what identifies the present state of an application's DeploymentConfig and pods: specs and metadata, not the
// status that controllers keep writing.
func (s *scene) revisions(a app) map[string]string {
	s.t.Helper()
	pods, err := s.pods(s.t.Context(), a)
	require.NoError(s.t, err)
	objects := []client.Object{s.dc(a)}
	for i := range pods {
		objects = append(objects, &pods[i])
	}
	revisions := map[string]string{}
	for _, object := range objects {
		revisions[object.GetName()] = fmt.Sprintf("%s generation %d labels %v annotations %v going %v",
			object.GetUID(), object.GetGeneration(), object.GetLabels(), object.GetAnnotations(), object.GetDeletionTimestamp() != nil)
	}
	return revisions
}

// ran is a finished run of the binary by hand.
type ran struct {
	code int
	// out is what it printed, and the standard error of a run that failed.
	out string
}

// String is how a run is shown when a test fails.
func (r ran) String() string { return fmt.Sprintf("exit %d\n%s", r.code, r.out) }

// postRestore runs `post-restore` as the plugin's messages tell an administrator to: in Velero's pod.
func (s *scene) postRestore(args ...string) ran {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.Client().List(s.t.Context(), &pods, client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{"deploy": "velero"}))
	require.Len(s.t, pods.Items, 1, "Velero's pods")
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	out, err := s.Exec(ctx, client.ObjectKeyFromObject(&pods.Items[0]), "velero", nil,
		append([]string{"/plugins/" + pluginBinary, "post-restore"}, args...)...)
	var exit utilexec.CodeExitError
	if err != nil {
		require.ErrorAs(s.t, err, &exit)
		out += "\n" + err.Error()
	}
	return ran{code: exit.Code, out: out}
}
