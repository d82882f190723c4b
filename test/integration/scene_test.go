package integration

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/history"
)

const (
	// soon is what the cluster does by itself: start pods, roll out.
	soon = time.Minute
	// restoreTime is how long a restore may take, also while others wait before it: Velero restores one after another.
	restoreTime = 4 * time.Minute
)

// scene is one scenario: a namespace of its own in a cluster that may be shared.
type scene struct {
	*cluster
	t  *testing.T
	ns string
	// record of what happens from the first restore on; nil before.
	record *history.Recording
	// tolerated are invariants that a scenario breaks on purpose, by their names.
	tolerated []string
}

// newScene returns a scene in the shared cluster, to run beside others.
func newScene(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	return newSceneIn(t, sharedCluster(t))
}

// newSceneIn returns a scene in a cluster.
func newSceneIn(t *testing.T, c *cluster) *scene {
	t.Helper()
	sum := sha256.Sum256([]byte(t.Name()))
	s := &scene{cluster: c, t: t, ns: "shop-" + hex.EncodeToString(sum[:4])}
	s.createNamespace(s.ns)
	t.Cleanup(s.end)
	return s
}

func (s *scene) createNamespace(name string) {
	s.t.Helper()
	require.NoError(s.t, s.Client().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// end checks the invariants over all that happened.
func (s *scene) end() {
	if s.record == nil {
		return
	}
	for _, violation := range history.Violations(s.record.End()) {
		if !slices.ContainsFunc(s.tolerated, func(name string) bool { return strings.HasPrefix(violation, name) }) {
			s.t.Error(violation)
		}
	}
}

// observe records what happens in the namespaces from now on.
func (s *scene) observe(namespaces ...string) {
	s.t.Helper()
	require.Nil(s.t, s.record, "a scene is recorded once")
	s.record = history.Record(s.watching, s.VeleroNamespace(), namespaces...)
}

// create creates objects.
func (s *scene) create(objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		require.NoError(s.t, s.Client().Create(s.t.Context(), object))
	}
}

// deploy creates an application with its claim, waits until it runs and writes data into the claim.
func (s *scene) deploy(a app) {
	s.t.Helper()
	if a.claim != "" {
		s.ensureClaim(a.claim)
	}
	dc := a.dc(s.ns)
	s.create(dc)
	if dc.Spec.Paused || len(dc.Spec.Triggers) == 0 {
		s.rollOut(a.name, 1)
	}
	s.awaitPods(s.ns, a.name, int(a.replicas))
}

// ensureClaim creates a claim unless it is there, and writes its data.
func (s *scene) ensureClaim(name string) {
	s.t.Helper()
	if err := s.Client().Create(s.t.Context(), claim(s.ns, name)); err != nil {
		require.True(s.t, apierrors.IsAlreadyExists(err), err)
	}
	s.until(soon, func(ctx context.Context) error { return s.node.Write(ctx, s.ns, name, s.data(name)) })
}

// data is the value in a claim.
func (s *scene) data(claim string) string { return "orders of " + s.ns + "/" + claim }

// rollOut starts a rollout as `oc rollout latest` does, and unpauses for it where needed.
func (s *scene) rollOut(name string, version int64) {
	s.t.Helper()
	dc := s.dc(s.ns, name)
	paused := dc.Spec.Paused
	if paused {
		s.patch(dc, `{"spec":{"paused":false}}`)
	}
	s.patchStatus(dc, fmt.Sprintf(`{"status":{"latestVersion":%d}}`, version))
	s.until(soon, func(ctx context.Context) error { return s.rolledOut(ctx, s.ns, name, version) })
	if paused {
		s.patch(dc, `{"spec":{"paused":true}}`)
	}
}

// rolledOut tells whether a version is rolled out with the replicas of the DeploymentConfig.
func (s *scene) rolledOut(ctx context.Context, namespace, name string, version int64) error {
	var dc ocpappsv1.DeploymentConfig
	if err := s.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &dc); err != nil {
		return err
	}
	var rc corev1.ReplicationController
	if err := s.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, version)}, &rc); err != nil {
		return err
	}
	if phase := rc.Annotations[contract.DeploymentPhaseAnnotation]; phase != string(ocpappsv1.DeploymentStatusComplete) || rc.Status.ReadyReplicas != dc.Spec.Replicas {
		return fmt.Errorf("rollout %s is %s with %d of %d pods", rc.Name, phase, rc.Status.ReadyReplicas, dc.Spec.Replicas)
	}
	return nil
}

// bump rolls an application out until its newest version is the given one.
func (s *scene) bump(name string, version int64) {
	s.t.Helper()
	for v := s.dc(s.ns, name).Status.LatestVersion + 1; v <= version; v++ {
		s.rollOut(name, v)
	}
	s.awaitPods(s.ns, name, int(s.dc(s.ns, name).Spec.Replicas))
}

func (s *scene) patch(object client.Object, merge string) {
	s.t.Helper()
	require.NoError(s.t, s.Client().Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(merge))))
}

func (s *scene) patchStatus(object client.Object, merge string) {
	s.t.Helper()
	require.NoError(s.t, s.Client().Status().Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// until polls a condition and fails the test with its last error.
func (s *scene) until(timeout time.Duration, check func(context.Context) error) {
	s.t.Helper()
	require.NoError(s.t, eventually(s.t.Context(), timeout, check))
}

// dc returns a DeploymentConfig.
func (s *scene) dc(namespace, name string) *ocpappsv1.DeploymentConfig {
	s.t.Helper()
	var dc ocpappsv1.DeploymentConfig
	require.NoError(s.t, s.Client().Get(s.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &dc))
	return &dc
}

// pods returns the pods of a DeploymentConfig, detached or not, in the order of their names.
func (s *scene) pods(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := s.Client().List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{contract.DeploymentConfigLabel: name}); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// awaitPods waits until a DeploymentConfig has exactly n pods, all of them ready and none of them detached or going.
func (s *scene) awaitPods(namespace, name string, n int) {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		pods, err := s.pods(ctx, namespace, name)
		if err != nil {
			return err
		}
		if len(pods) != n {
			return fmt.Errorf("%s/%s has %d pods, want %d", namespace, name, len(pods), n)
		}
		for i := range pods {
			if pods[i].DeletionTimestamp != nil || pods[i].Labels[contract.DisconnectedLabel] != "" || !ready(&pods[i]) {
				return fmt.Errorf("pod %s is going, detached or not ready", pods[i].Name)
			}
		}
		return nil
	})
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// name returns a name for a backup or restore of this scene.
func (s *scene) name(what string) string { return s.ns + "-" + what }

// backup backs the scene's namespace up and returns the backup's name.
func (s *scene) backup(args ...string) string {
	s.t.Helper()
	name := s.name("backup")
	s.backupAs(name, append([]string{"--include-namespaces", s.ns}, args...)...)
	return name
}

// allVolumes makes Velero back up all volumes of pods file by file.
const allVolumes = "--default-volumes-to-fs-backup"

func (s *scene) backupAs(name string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), restoreTime)
	defer cancel()
	backup, err := s.Backup(ctx, name, args...)
	require.NoError(s.t, err)
	if backup.Status.Phase != velerov1.BackupPhaseCompleted {
		logs, _ := s.BackupLogs(s.t.Context(), name)
		require.Equal(s.t, velerov1.BackupPhaseCompleted, backup.Status.Phase, logs)
	}
}

// lose deletes everything of the application in the namespace, as a disaster does: at once and for good.
func (s *scene) lose(namespaces ...string) {
	s.t.Helper()
	if len(namespaces) == 0 {
		namespaces = []string{s.ns}
	}
	kinds := []client.Object{
		&ocpappsv1.DeploymentConfig{}, &corev1.ReplicationController{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.ConfigMap{},
	}
	for _, namespace := range namespaces {
		for _, kind := range kinds {
			require.NoError(s.t, s.Client().DeleteAllOf(s.t.Context(), kind, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
		}
		s.until(soon, func(ctx context.Context) error {
			var pods corev1.PodList
			var claims corev1.PersistentVolumeClaimList
			var dcs ocpappsv1.DeploymentConfigList
			var rcs corev1.ReplicationControllerList
			var errs []error
			for _, list := range []client.ObjectList{&pods, &claims, &dcs, &rcs} {
				errs = append(errs, s.Client().List(ctx, list, client.InNamespace(namespace)))
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			if left := len(pods.Items) + len(claims.Items) + len(dcs.Items) + len(rcs.Items); left > 0 {
				// A controller may have made something anew in between.
				_ = s.Client().DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0))
				return fmt.Errorf("%d objects are left in %s", left, namespace)
			}
			return nil
		})
	}
}

// restore restores a backup and returns the ended Restore. The scene is recorded from here on.
func (s *scene) restore(backup string, args ...string) *velerov1.Restore {
	s.t.Helper()
	return s.restoreAs(s.name("restore"), backup, args...)
}

func (s *scene) restoreAs(name, backup string, args ...string) *velerov1.Restore {
	s.t.Helper()
	s.startRestore(name, backup, args...)
	return s.awaitRestore(name)
}

func (s *scene) startRestore(name, backup string, args ...string) {
	s.t.Helper()
	if s.record == nil {
		s.observe(s.ns)
	}
	require.NoError(s.t, s.CreateRestore(s.t.Context(), name, append([]string{"--from-backup", backup}, args...)...))
}

func (s *scene) awaitRestore(name string) *velerov1.Restore {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), restoreTime)
	defer cancel()
	restore, err := s.WaitRestore(ctx, name)
	if err != nil {
		describe, _ := s.DescribeRestore(s.t.Context(), name)
		require.NoError(s.t, err, describe)
	}
	return restore
}

// completed requires that a restore ended well, with so many operations.
func (s *scene) completed(restore *velerov1.Restore, operations int) {
	s.t.Helper()
	if restore.Status.Phase != velerov1.RestorePhaseCompleted {
		s.t.Log(s.report(restore.Name))
	}
	require.Equal(s.t, velerov1.RestorePhaseCompleted, restore.Status.Phase)
	assert.Equal(s.t, operations, restore.Status.RestoreItemOperationsAttempted, "operations attempted")
	assert.Equal(s.t, operations, restore.Status.RestoreItemOperationsCompleted, "operations completed")
}

// report is what a person would look at after a restore that went wrong.
func (s *scene) report(restore string) string {
	describe, err := s.DescribeRestore(s.t.Context(), restore)
	if err != nil {
		describe = err.Error()
	}
	logs, err := s.RestoreLogs(s.t.Context(), restore)
	if err != nil {
		logs = err.Error()
	}
	var ours []string
	for line := range strings.Lines(logs) {
		if strings.Contains(line, "openshift-dr") || strings.Contains(line, "level=error") || strings.Contains(line, "level=warning") {
			ours = append(ours, line)
		}
	}
	return describe + "\n" + strings.Join(ours, "")
}

// details is what `velero restore describe --details` says.
func (s *scene) details(restore string) string {
	s.t.Helper()
	out, err := s.DescribeRestore(s.t.Context(), restore)
	require.NoError(s.t, err)
	return out
}

// resumed asserts that an application is back (I3): its replicas and paused, as many ready pods, no mark left on anything,
// and that phase two run again changes nothing (I4).
func (s *scene) resumed(restore, namespace, name string, replicas int, paused bool) {
	s.t.Helper()
	s.awaitPods(namespace, name, replicas)
	dc := s.dc(namespace, name)
	assert.EqualValues(s.t, replicas, dc.Spec.Replicas, "replicas")
	assert.Equal(s.t, paused, dc.Spec.Paused, "paused")
	s.unmarked(namespace)
	before := s.revisions(namespace)
	if run := s.postRestore(restore); assert.Equal(s.t, 0, run.code, run) {
		assert.Equal(s.t, before, s.revisions(namespace), "phase two run again must change nothing")
	}
}

// unmarked asserts that no object of a namespace carries a mark of a restore. ReplicationControllers copy the labels that
// their DeploymentConfig had when they were made, which is OpenShift's.
func (s *scene) unmarked(namespace string) {
	s.t.Helper()
	for _, object := range s.objects(namespace) {
		for _, key := range slices.Concat(disconnect.HeldLabels, disconnect.DetachedLabels) {
			assert.NotContains(s.t, object.GetLabels(), key, object.GetName())
		}
		for _, key := range slices.Concat(disconnect.HeldAnnotations, disconnect.DetachedAnnotations) {
			assert.NotContains(s.t, object.GetAnnotations(), key, object.GetName())
		}
	}
}

// objects returns the DeploymentConfigs and pods of a namespace.
func (s *scene) objects(namespace string) []client.Object {
	s.t.Helper()
	var pods corev1.PodList
	var dcs ocpappsv1.DeploymentConfigList
	require.NoError(s.t, s.Client().List(s.t.Context(), &pods, client.InNamespace(namespace)))
	require.NoError(s.t, s.Client().List(s.t.Context(), &dcs, client.InNamespace(namespace)))
	var objects []client.Object
	for i := range pods.Items {
		objects = append(objects, &pods.Items[i])
	}
	for i := range dcs.Items {
		objects = append(objects, &dcs.Items[i])
	}
	return objects
}

// revisions returns what identifies the present state of a namespace's pods and DeploymentConfigs: specs and metadata, not
// the status that controllers keep writing, and not OpenShift's deployer pods, which come and go by themselves: a held
// DeploymentConfig rolls out its 0 replicas.
func (s *scene) revisions(namespace string) map[string]string {
	revisions := map[string]string{}
	for _, object := range s.objects(namespace) {
		if object.GetLabels()[contract.DeployerPodForLabel] != "" {
			continue
		}
		revisions[fmt.Sprintf("%T %s", object, object.GetName())] = fmt.Sprintf("%s generation %d labels %v annotations %v going %v",
			object.GetUID(), object.GetGeneration(), object.GetLabels(), object.GetAnnotations(), object.GetDeletionTimestamp() != nil)
	}
	return revisions
}

// held asserts that an application is held for a restore with these originals, and has so many detached pods (I1).
func (s *scene) held(restore *velerov1.Restore, namespace, name string, originals disconnect.Originals, detached int) {
	s.t.Helper()
	owner := disconnect.OwnerOf(restore)
	dc := s.dc(namespace, name)
	assert.Zero(s.t, dc.Spec.Replicas)
	assert.True(s.t, owner.Marked(contract.ReplicasModifiedLabel, dc.Labels, dc.Annotations), "the DeploymentConfig is held by the restore")
	recorded, ok, err := disconnect.Recorded(dc.Annotations)
	if assert.NoError(s.t, err) && assert.True(s.t, ok, "originals are recorded") {
		assert.Equal(s.t, originals, recorded)
	}
	assert.Equal(s.t, restore.Namespace+"/"+restore.Name, dc.Annotations[contract.RestoreAnnotation])
	assert.Equal(s.t, string(restore.UID), dc.Annotations[contract.RestoreUIDAnnotation])
	pods, err := s.pods(s.t.Context(), namespace, name)
	require.NoError(s.t, err)
	assert.Len(s.t, pods, detached)
	for i := range pods {
		assert.True(s.t, owner.Marked(contract.DisconnectedLabel, pods[i].Labels, pods[i].Annotations), pods[i].Name)
		assert.NotContains(s.t, pods[i].Labels, contract.DeploymentLabel)
		assert.Equal(s.t, name, pods[i].Annotations[contract.DeploymentConfigAnnotation])
	}
}

// hasData asserts that a claim of a namespace holds the data that was written before the backup.
func (s *scene) hasData(namespace, claim string) {
	s.t.Helper()
	value, err := s.node.Read(s.t.Context(), namespace, claim)
	require.NoError(s.t, err)
	assert.Equal(s.t, s.data(claim), value)
}

// events returns the reasons and messages of the events on a DeploymentConfig that the plugin wrote, oldest first.
func (s *scene) events(namespace, name string) []string {
	s.t.Helper()
	var list corev1.EventList
	require.NoError(s.t, s.Client().List(s.t.Context(), &list, client.InNamespace(namespace)))
	// By etcd's revision: timestamps are whole seconds.
	slices.SortFunc(list.Items, func(a, b corev1.Event) int {
		return cmp.Or(cmp.Compare(len(a.ResourceVersion), len(b.ResourceVersion)), cmp.Compare(a.ResourceVersion, b.ResourceVersion))
	})
	var events []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Source.Component == "velero-plugin-for-openshift-dr" && e.InvolvedObject.Name == name {
			events = append(events, e.Reason+": "+e.Message)
		}
	}
	return events
}

// ran is a finished run of the binary by hand.
type ran struct {
	code        int
	out, errOut string
}

// String is how a run is shown when a test fails.
func (r ran) String() string { return fmt.Sprintf("exit %d\n%s\n%s", r.code, r.out, r.errOut) }

// postRestore runs `post-restore` as an administrator on a laptop.
func (s *scene) postRestore(args ...string) ran {
	s.t.Helper()
	return s.postRestoreWith(s.Kubeconfig(), args...)
}

func (s *scene) postRestoreWith(kubeconfig string, args ...string) ran {
	s.t.Helper()
	return s.runWith(kubeconfig, "post-restore", args...)
}

// runWith runs a command of the binary on Velero's cluster as the user of a kubeconfig.
func (s *scene) runWith(kubeconfig, command string, args ...string) ran {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, plugin(s.t), append([]string{command, "--kubeconfig", kubeconfig, "--velero-namespace", s.VeleroNamespace()}, args...)...)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(s.t, err)
	}
	return ran{code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
}
