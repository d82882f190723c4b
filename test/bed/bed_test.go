package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

func TestSharedStorageTakesTwoBedsWithVelero(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]Options{
		"this bed has no Velero":    {WithoutVelero: true, Storage: &Bed{}},
		"the other has none":        {Storage: &Bed{opts: Options{WithoutVelero: true}}},
		"this bed has a real node":  {Node: &NodeOptions{}, Storage: &Bed{}},
		"the other has a real node": {Storage: &Bed{node: &realNode{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(t.Context(), options)
			require.ErrorContains(t, err, "two beds share an S3 server only if both have Velero")
		})
	}
}

// TestBackupAndRestore is the bed's promise in one go: what a real Velero backs up, it restores; and nothing stays.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	begin := time.Now()
	b := ForTest(t, Options{ItemOperationSyncFrequency: time.Second})
	t.Logf("start: %.1f s", time.Since(begin).Seconds())
	processes := processesOf(t, b.Dir())
	require.NotEmpty(t, processes)

	assert.Empty(t, strangers(t, b.Dir()), "nothing listens where others can reach it")

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	require.NoError(t, b.Client().Create(ctx, namespace))
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"},
		Data:       map[string]string{"tea": "3"},
	}
	require.NoError(t, b.Client().Create(ctx, want.DeepCopy()))

	begin = time.Now()
	backup, err := b.Backup(ctx, "one", "--include-namespaces=shop")
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase)
	t.Logf("backup: %.1f s", time.Since(begin).Seconds())
	require.FileExists(t, filepath.Join(b.ObjectDir(), "backups", "backups", "one", "one.tar.gz"))

	begin = time.Now()
	require.NoError(t, b.Client().Delete(ctx, namespace))
	deadline, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	require.NoError(t, poll(deadline, "wait until the namespace has gone", func(ctx context.Context) error {
		err := b.Client().Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	}))
	t.Logf("namespace deleted: %.1f s", time.Since(begin).Seconds())

	begin = time.Now()
	restore, err := b.Restore(ctx, "back", "--from-backup=one")
	require.NoError(t, err)
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase)
	t.Logf("restore: %.1f s", time.Since(begin).Seconds())
	got := &corev1.ConfigMap{}
	require.NoError(t, b.Client().Get(ctx, client.ObjectKeyFromObject(want), got))
	assert.Equal(t, want.Data, got.Data)

	described, err := b.DescribeRestore(ctx, "back")
	require.NoError(t, err)
	assert.Contains(t, described, "Completed")
	logs, err := b.RestoreLogs(ctx, "back")
	require.NoError(t, err)
	assert.Contains(t, logs, "prices")

	events, err := b.AuditEvents(begin)
	require.NoError(t, err)
	var byVelero int
	for _, event := range events {
		if event.Verb == "create" && event.Resource == "configmaps" && event.Name == "prices" && event.Code == 201 {
			byVelero++
			assert.Equal(t, "system:serviceaccount:velero:velero", event.User)
			assert.Contains(t, event.UserAgent, "velero")
		}
	}
	assert.Equal(t, 1, byVelero, "the request that restored the ConfigMap is in the audit log once")

	begin = time.Now()
	require.NoError(t, b.RestartVelero(ctx))
	t.Logf("restart of Velero: %.1f s", time.Since(begin).Seconds())
	require.NoError(t, b.StopVelero(ctx))
	require.ErrorContains(t, b.StopVelero(ctx), "does not run")
	require.NoError(t, b.StartVelero(ctx))

	// A server that dies is noticed by those who wait for its work, and can be started again.
	require.NoError(t, b.runningVelero().signal(syscall.SIGKILL))
	require.NoError(t, b.CreateBackup(ctx, "two", "--include-namespaces=shop"))
	_, err = b.WaitBackup(ctx, "two")
	require.ErrorContains(t, err, "velero ended (signal: killed)")
	require.NoError(t, b.RestartVelero(ctx))
	backup, err = b.WaitBackup(ctx, "two")
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase)

	_, err = b.Velero(ctx, "backup", "logs", "unknown")
	require.ErrorContains(t, err, "unknown")

	for pid, command := range processesOf(t, b.Dir()) {
		t.Logf("process %d: %s MiB RSS, %s", pid, residentMiB(pid), filepath.Base(command))
	}
	begin = time.Now()
	b.Stop()
	t.Logf("stop: %.1f s", time.Since(begin).Seconds())
	b.Stop() // again: nothing happens
	requireGone(t, b.Dir())
	_, err = b.crew.start("late", "/bin/true", nil, nil)
	require.ErrorIs(t, err, errStopped)
}

// processesOf are the processes that have dir in their command line: all of the bed in dir. Zombies have none.
func processesOf(t *testing.T, dir string) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	found := map[int]string{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		command, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil { // it has ended meanwhile
			continue
		}
		if strings.Contains(string(command), dir) {
			found[pid], _, _ = strings.Cut(string(command), "\x00")
		}
	}
	return found
}

// residentMiB is the memory that a process has in RAM.
func residentMiB(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return "?"
	}
	pages, err := strconv.Atoi(strings.Fields(string(content))[1])
	if err != nil {
		return "?"
	}
	return strconv.Itoa(pages * os.Getpagesize() >> 20)
}

// requireGone waits until neither a process of the bed in dir is left nor the directory. Grandchildren are killed, not
// awaited, hence the wait.
func requireGone(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	require.NoError(t, poll(ctx, "wait for the bed to be gone", func(context.Context) error {
		if left := processesOf(t, dir); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return fmt.Errorf("%s is there (%w)", dir, err)
		}
		return nil
	}))
}
