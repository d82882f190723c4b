package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// TestInstallBackupLossRestore is the promise in one go, on data: the plugin is installed as users do, a DeploymentConfig with
// a claim loses its namespace, and when `velero restore` says Completed it is back with what it had written.
func TestInstallBackupLossRestore(t *testing.T) {
	c := newCluster(t, bed.Options{})
	begin := time.Now()
	lap := func(what string) {
		t.Logf("%s: %.1f s", what, time.Since(begin).Seconds())
		begin = time.Now()
	}
	ctx := t.Context()

	c.installPlugin(t)
	lap("velero plugin add")
	plugins, err := c.Velero(ctx, "plugin", "get")
	require.NoError(t, err)
	var ours []string
	for line := range strings.Lines(plugins) {
		if strings.HasPrefix(line, "oadp.openshift.io/") {
			ours = append(ours, strings.Join(strings.Fields(line), " "))
		}
	}
	assert.Equal(t, []string{
		contract.DeploymentConfigRestoreAction + " RestoreItemActionV2",
		contract.PodRestoreAction + " RestoreItemActionV2",
		contract.ReplicationControllerRestoreAction + " RestoreItemActionV2",
	}, ours)
	lap("velero plugin get")

	const namespace, name = "shop", "web"
	for _, object := range application(namespace, name, 2) {
		require.NoError(t, c.Client().Create(ctx, object))
	}
	pod := c.awaitPods(t, namespace, name, 2)[0]
	lap("rolled out")
	data := make([]byte, 32<<20)
	_, err = rand.Read(data)
	require.NoError(t, err)
	_, err = c.Exec(ctx, client.ObjectKeyFromObject(&pod), "", bytes.NewReader(data), "sh", "-c", "cat >/data/orders && sync")
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	want := hex.EncodeToString(sum[:])
	lap("32 MiB written")

	backup, err := c.Backup(ctx, "one", "--include-namespaces="+namespace, "--default-volumes-to-fs-backup")
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase)
	lap("backup")
	c.lose(t, namespace)
	lap("lost")

	restore, err := c.Restore(ctx, "back", "--from-backup=one")
	require.NoError(t, err)
	lap("restore")
	described, err := c.DescribeRestore(ctx, "back")
	require.NoError(t, err)
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, described)
	assert.Contains(t, described, "back at 2 replicas")
	for _, pod := range c.awaitPods(t, namespace, name, 2) {
		out, err := c.Exec(ctx, client.ObjectKeyFromObject(&pod), "", nil, "sha256sum", "/data/orders")
		require.NoError(t, err)
		assert.Equal(t, want+"  /data/orders\n", out, "what was written is there again, in %s", pod.Name)
	}
	lap("data read")
	var dc ocpappsv1.DeploymentConfig
	require.NoError(t, c.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &dc))
	assert.EqualValues(t, 2, dc.Spec.Replicas)
	assert.NotContains(t, dc.Labels, contract.ReplicasModifiedLabel)

	_, err = c.Velero(ctx, "plugin", "remove", pluginImage)
	require.NoError(t, err)
	require.NoError(t, c.AwaitVelero(ctx))
	plugins, err = c.Velero(ctx, "plugin", "get")
	require.NoError(t, err)
	assert.NotContains(t, plugins, "oadp.openshift.io/")
	lap("velero plugin remove")
}

// installPlugin installs the plugin as users do.
func (c *cluster) installPlugin(t *testing.T) {
	t.Helper()
	_, err := c.Velero(t.Context(), "plugin", "add", pluginImage, "--confirm")
	require.NoError(t, err)
	require.NoError(t, c.AwaitVelero(t.Context()))
}

// application is a DeploymentConfig with a claim, and its namespace.
func application(namespace, name string, replicas int32) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
		&ocpappsv1.DeploymentConfig{
			ObjectMeta: meta,
			Spec: ocpappsv1.DeploymentConfigSpec{
				Replicas: replicas,
				Selector: map[string]string{"app": name},
				Triggers: []ocpappsv1.DeploymentTriggerPolicy{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}},
				Strategy: ocpappsv1.DeploymentStrategy{Type: ocpappsv1.DeploymentStrategyTypeRecreate},
				Template: &corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
					Spec: corev1.PodSpec{
						TerminationGracePeriodSeconds: ptr.To[int64](1),
						Containers: []corev1.Container{{
							Name: "app", Image: bed.BoxImage, Command: []string{"sleep", "100000"},
							VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
						}},
						Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
						}}},
					},
				},
			},
		},
	}
}

// awaitPods waits until a DeploymentConfig has exactly n pods, all ready, none going and none detached, and returns them.
func (c *cluster) awaitPods(t *testing.T, namespace, name string, n int) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, eventually(t.Context(), 2*time.Minute, func(ctx context.Context) error {
		if err := c.Client().List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{contract.DeploymentConfigLabel: name}); err != nil {
			return err
		}
		if len(pods.Items) != n {
			return fmt.Errorf("%s/%s has %d pods, want %d", namespace, name, len(pods.Items), n)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if !ready || pod.DeletionTimestamp != nil || pod.Labels[contract.DisconnectedLabel] != "" {
				return fmt.Errorf("pod %s is not ready, going or detached: %s", pod.Name, pod.Status.Phase)
			}
		}
		return nil
	}))
	return pods.Items
}

// lose deletes a namespace with all that is in it, its volumes too, as a disaster does.
func (c *cluster) lose(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// First what takes time: while something is left in a namespace, it is looked at again at long intervals only.
	for _, kind := range []client.Object{
		&ocpappsv1.DeploymentConfig{}, &corev1.ReplicationController{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{},
	} {
		require.NoError(t, c.Client().DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
	}
	require.NoError(t, eventually(ctx, time.Minute, func(ctx context.Context) error {
		var claims corev1.PersistentVolumeClaimList
		if err := c.Client().List(ctx, &claims, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(claims.Items) > 0 {
			return fmt.Errorf("%d claims are left in %s", len(claims.Items), namespace)
		}
		return nil
	}))
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, c.Client().Delete(ctx, object))
	require.NoError(t, eventually(ctx, time.Minute, func(ctx context.Context) error {
		if err := c.Client().Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s is there: %w", namespace, err)
		}
		return nil
	}))
}
