package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
)

// TestVelero takes volumes through file-system backup and restore with a real Velero server.
func TestVelero(t *testing.T) {
	b := bed.ForTest(t, bed.Options{Log: t.Logf, ItemOperationSyncFrequency: time.Second})
	n, err := node.Run(t.Context(), b.RESTConfig(), node.Options{VeleroNamespace: b.VeleroNamespace()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Stop()) })
	f := &fixture{Client: b.Client(), cluster: b, Node: n}
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.VeleroNamespace(), Name: "node-agent"}}
	until(t, f.Client, agent, "ready", func(d *appsv1.DaemonSet) bool { return d.Status.NumberReady == 1 })

	f.ns = "shop"
	f.createDatabase(t)
	backup, err := b.Backup(t.Context(), "nightly", "--include-namespaces=shop", "--default-volumes-to-fs-backup")
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase)
	var pvbs velerov1.PodVolumeBackupList
	require.NoError(t, f.List(t.Context(), &pvbs, client.InNamespace(b.VeleroNamespace())))
	require.Len(t, pvbs.Items, 2, "a claim and an emptyDir")
	for _, pvb := range pvbs.Items {
		assert.Equal(t, velerov1.PodVolumeBackupPhaseCompleted, pvb.Status.Phase)
		assert.NotEmpty(t, pvb.Status.SnapshotID)
	}

	// The namespaces are mapped, so that no test waits for the deletion of another's, which takes a quarter of a minute.
	t.Run("data comes back before the hook runs", func(t *testing.T) {
		f := f.in("back")
		n.HoldRestores(f.ns, "data-db-0")
		require.NoError(t, b.CreateRestore(t.Context(), "back", "--from-backup=nightly", "--namespace-mappings=shop:back"))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "db-0"}}
		until(t, f.Client, pod, "waits for its data", func(p *corev1.Pod) bool { return len(inits(p)) > 0 && inits(p)[0].State.Running != nil })
		pvr := f.untilRestore(t, pod, "data", velerov1.PodVolumeRestorePhaseInProgress)
		assert.Equal(t, n.Name(), pvr.Status.Node)
		f.untilRestore(t, pod, "tmp", velerov1.PodVolumeRestorePhaseCompleted)
		require.NoError(t, f.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		assert.Equal(t, corev1.PodPending, pod.Status.Phase)
		n.Release(f.ns, "data-db-0")

		restore, err := b.WaitRestore(t.Context(), "back")
		require.NoError(t, err)
		assert.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase)
		got, err := n.Read(t.Context(), f.ns, "data-db-0")
		require.NoError(t, err)
		assert.Equal(t, "orders", got)
		got, err = n.ReadVolume(t.Context(), f.ns, "db-0", "tmp")
		require.NoError(t, err)
		assert.Equal(t, "cache", got)

		seen := f.execsHere()
		require.Len(t, seen, 1)
		assert.Equal(t, []string{"/bin/reindex"}, seen[0].Command)
		assert.Equal(t, "orders", seen[0].Contents["data"])
		assert.True(t, seen[0].Restored)
		assert.True(t, seen[0].PodThere)
		assert.Equal(t, 1, ptr.Deref(restore.Status.HookStatus, velerov1.HookStatus{}).HooksAttempted)
	})
	t.Run("a restore that fails leaves the pod waiting", func(t *testing.T) {
		f := f.in("failed")
		n.FailRestores(f.ns, "data-db-0")
		// The hook would wait for the pod for ever, and the restore for the hook.
		require.NoError(t, b.CreateRestore(t.Context(), "failed", "--from-backup=nightly", "--namespace-mappings=shop:failed"))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "db-0"}}
		until(t, f.Client, pod, "waits for its data", func(p *corev1.Pod) bool { return len(inits(p)) > 0 && inits(p)[0].State.Running != nil })
		pvr := f.untilRestore(t, pod, "data", velerov1.PodVolumeRestorePhaseFailed)
		assert.Contains(t, pvr.Status.Message, "data path restore failed: restores into failed/data-db-0 are told to fail")
		require.NoError(t, f.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		assert.NotNil(t, inits(pod)[0].State.Running)

		require.NoError(t, f.Delete(t.Context(), pod)) // ends the hook's wait
		restore, err := b.WaitRestore(t.Context(), "failed")
		require.NoError(t, err)
		assert.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
		assert.Empty(t, f.execsHere())
	})
}

func (f *fixture) in(ns string) *fixture {
	g := *f
	g.ns = ns
	return &g
}

// createDatabase makes a StatefulSet of one pod with a claim and an emptyDir, both with contents, and an exec hook.
func (f *fixture) createDatabase(t *testing.T) {
	t.Helper()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	pod := f.pod("db", withAnnotation("post.hook.restore.velero.io/command", `["/bin/reindex"]`), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "tmp", MountPath: "/tmp"}}
	})
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](1), Selector: selector,
		Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*f.claim("data", "")},
	}}
	f.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.ns}}, set)
	until(t, f.Client, set, "ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 1 })
	require.NoError(t, f.Write(t.Context(), f.ns, "data-db-0", "orders"))
	require.NoError(t, f.WriteVolume(t.Context(), f.ns, "db-0", "tmp", "cache"))
}

// untilRestore waits until the PodVolumeRestore of a pod's volume is in a phase.
func (f *fixture) untilRestore(t *testing.T, pod *corev1.Pod, volume string, phase velerov1.PodVolumeRestorePhase) *velerov1.PodVolumeRestore {
	t.Helper()
	var found *velerov1.PodVolumeRestore
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var pvrs velerov1.PodVolumeRestoreList
		require.NoError(c, f.List(ctx, &pvrs, client.MatchingLabels{velerov1.PodUIDLabel: string(pod.UID)}))
		for _, pvr := range pvrs.Items {
			if pvr.Spec.Volume == volume {
				require.Equal(c, phase, pvr.Status.Phase)
				found = &pvr
			}
		}
		require.NotNil(c, found)
	}, within, 50*time.Millisecond)
	return found
}
