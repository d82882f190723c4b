package bed

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// requireNode skips a test where no real node can run.
func requireNode(t *testing.T) {
	t.Helper()
	if err := NodeSupported(); err != nil {
		t.Skip(err)
	}
}

// TestNode is the promise of a bed with a real node: data that was lost comes back, byte by byte, and nothing stays.
func TestNode(t *testing.T) {
	requireNode(t)
	ctx := t.Context()
	before := machineState(t)
	begin := time.Now()
	lap := func(what string) {
		t.Logf("%s: %.1f s", what, time.Since(begin).Seconds())
		begin = time.Now()
	}
	b := ForTest(t, Options{Node: &NodeOptions{}, ItemOperationSyncFrequency: time.Second})
	lap("start")

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	pod := client.ObjectKey{Namespace: namespace.Name, Name: "db-0"}
	for _, object := range append([]client.Object{namespace}, database(namespace.Name)...) {
		require.NoError(t, b.Client().Create(ctx, object))
	}
	awaitReady(t, b, pod)
	lap("pod with a claim ready")

	data := make([]byte, 32<<20)
	_, err := rand.Read(data)
	require.NoError(t, err)
	_, err = b.Exec(ctx, pod, "", bytes.NewReader(data), "sh", "-c", "cat >/data/orders && sync")
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	want := hex.EncodeToString(sum[:])
	require.Equal(t, want, checksum(t, b, pod))
	lap("32 MiB written")

	backup, err := b.Backup(ctx, "one", "--include-namespaces=shop", "--default-volumes-to-fs-backup")
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase)
	lap("backup")

	lose(t, b, namespace)
	lap("namespace deleted")

	restore, err := b.Restore(ctx, "back", "--from-backup=one")
	require.NoError(t, err)
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase)
	lap("restore")
	awaitReady(t, b, pod)
	assert.Equal(t, want, checksum(t, b, pod), "what was written is there again")
	lap("pod ready")
	logs, err := b.RestoreLogs(ctx, "back")
	require.NoError(t, err)
	assert.Contains(t, logs, "db-0", "the CLI reaches the object storage of the node")

	require.NoError(t, b.RestartVelero(ctx))
	lap("restart of Velero")
	require.NoError(t, b.StopVelero(ctx))
	require.NoError(t, b.StartVelero(ctx))
	lap("stop and start of Velero")
	assert.Contains(t, b.VeleroLog(), "Starting controllers")

	for pid, command := range processesOf(t, b.Dir()) {
		t.Logf("process %d: %s MiB RSS, %s", pid, residentMiB(pid), filepath.Base(command))
	}
	begin = time.Now()
	b.Stop()
	lap("stop")
	requireGone(t, b.Dir())
	assert.Equal(t, before, machineState(t))
}

// database is an application with a claim.
func database(namespace string) []client.Object {
	labels := map[string]string{"app": "db"}
	return []client.Object{
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
		&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"},
			Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						TerminationGracePeriodSeconds: ptr.To[int64](1),
						Containers: []corev1.Container{{
							Name: "db", Image: BoxImage, Command: []string{"sleep", "100000"},
							VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
						}},
						Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
						}}},
					},
				},
			},
		},
	}
}

func awaitReady(t *testing.T, b *Bed, key client.ObjectKey) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, poll(ctx, "wait for pod "+key.String(), func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := b.Client().Get(ctx, key, pod); err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New(containerStates(pod))
	}))
}

// checksum is the SHA-256 of /data/orders, as the pod itself sees it.
func checksum(t *testing.T, b *Bed, pod client.ObjectKey) string {
	t.Helper()
	out, err := b.Exec(t.Context(), pod, "", nil, "sha256sum", "/data/orders")
	require.NoError(t, err)
	sum, _, _ := strings.Cut(out, " ")
	return sum
}

// lose deletes a namespace and waits until it and its volumes have gone.
func lose(t *testing.T, b *Bed, namespace *corev1.Namespace) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// First what takes time: while something is left in a namespace, it is looked at again at long intervals only.
	for _, kind := range []client.Object{&appsv1.StatefulSet{}, &corev1.PersistentVolumeClaim{}} {
		require.NoError(t, b.Client().DeleteAllOf(ctx, kind, client.InNamespace(namespace.Name)))
	}
	require.NoError(t, poll(ctx, "wait until the claims have gone", func(ctx context.Context) error {
		var claims corev1.PersistentVolumeClaimList
		if err := b.Client().List(ctx, &claims, client.InNamespace(namespace.Name)); err != nil {
			return err
		}
		if len(claims.Items) > 0 {
			return fmt.Errorf("%d are left", len(claims.Items))
		}
		return nil
	}))
	require.NoError(t, b.Client().Delete(ctx, namespace))
	require.NoError(t, poll(ctx, "wait until the namespace and its volumes have gone", func(ctx context.Context) error {
		if err := b.Client().Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the namespace is there (%w)", err)
		}
		var volumes corev1.PersistentVolumeList
		if err := b.Client().List(ctx, &volumes); err != nil {
			return err
		}
		if len(volumes.Items) > 0 {
			return fmt.Errorf("%d volumes are left", len(volumes.Items))
		}
		return nil
	}))
}

// machineState is what a real node could leave on the machine besides processes and files of its own: mounts, interfaces, cgroups, and
// entries of the folders that its programs write to.
func machineState(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	state["mounts"] = string(mounts)
	for _, pattern := range []string{
		"/sys/class/net/*", "/sys/fs/cgroup/*", "/sys/fs/cgroup/*/dr-test-bed-*", "/run/*", "/run/netns/*", "/run/containerd/*",
		"/var/lib/*", "/var/lib/cni/*", "/var/lib/kubelet/*", "/var/log/*", "/etc/cni/net.d/*",
	} {
		entries, err := filepath.Glob(pattern)
		require.NoError(t, err)
		state[pattern] = strings.Join(entries, "\n")
	}
	return state
}
