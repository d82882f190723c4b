package bed

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/results"
)

const (
	// cliTimeout bounds one call of the Velero CLI. None of those made here waits for a backup or restore.
	cliTimeout = time.Minute
	// waitTimeout bounds the wait for the end of a backup or restore, and of a command in a pod, where the caller sets no deadline.
	waitTimeout = 2 * time.Minute
)

// Velero runs the Velero CLI as the administrator and returns its standard output. It is killed after cliTimeout, or
// earlier with ctx. The error carries the command line and standard error.
func (b *Bed) Velero(ctx context.Context, args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(ctx, cliTimeout)
	defer cancel()
	global := []string{"--kubeconfig=" + b.kubeconfig, "--namespace=" + b.opts.VeleroNamespace}
	cmd := exec.CommandContext(ctx, b.binaries.Velero, append(global, args...)...)
	cmd.Env = b.environment()
	cmd.Dir = b.dir
	cmd.WaitDelay = time.Second
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		return out.String(), fmt.Errorf("velero %s: %w\n%s", strings.Join(args, " "), err, errOut.String())
	}
	return out.String(), nil
}

// CreateBackup runs `velero backup create name args…` and returns once the Backup exists.
func (b *Bed) CreateBackup(ctx context.Context, name string, args ...string) error {
	_, err := b.Velero(ctx, append([]string{"backup", "create", name}, args...)...)
	return err
}

// CreateRestore runs `velero restore create name args…` (args name the backup: --from-backup) and returns once the Restore
// exists.
func (b *Bed) CreateRestore(ctx context.Context, name string, args ...string) error {
	_, err := b.Velero(ctx, append([]string{"restore", "create", name}, args...)...)
	return err
}

// WaitBackup waits until the Backup has ended, well or not, and returns it. Without a deadline in ctx it waits waitTimeout.
// The error says in which phase the Backup was when time ran out, or that Velero has died.
func (b *Bed) WaitBackup(ctx context.Context, name string) (*velerov1.Backup, error) {
	backup := &velerov1.Backup{}
	err := b.waitEnd(ctx, name, backup, func() (phase string, ended bool) {
		switch backup.Status.Phase {
		case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed,
			velerov1.BackupPhaseFailed, velerov1.BackupPhaseFailedValidation:
			ended = true
		}
		return string(backup.Status.Phase), ended
	})
	return backup, err
}

// WaitRestore is WaitBackup for a Restore.
func (b *Bed) WaitRestore(ctx context.Context, name string) (*velerov1.Restore, error) {
	restore := &velerov1.Restore{}
	err := b.waitEnd(ctx, name, restore, func() (phase string, ended bool) {
		switch restore.Status.Phase {
		case velerov1.RestorePhaseCompleted, velerov1.RestorePhasePartiallyFailed,
			velerov1.RestorePhaseFailed, velerov1.RestorePhaseFailedValidation:
			ended = true
		}
		return string(restore.Status.Phase), ended
	})
	return restore, err
}

// withDeadline gives ctx one of waitTimeout, unless it has one.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, waitTimeout)
}

// waitEnd reads object again and again until state says that it has ended.
func (b *Bed) waitEnd(ctx context.Context, name string, object client.Object, state func() (phase string, ended bool)) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	key := client.ObjectKey{Namespace: b.opts.VeleroNamespace, Name: name}
	return poll(ctx, fmt.Sprintf("wait for the end of %T %s", object, name), func(ctx context.Context) error {
		if err := b.client.Get(ctx, key, object); err != nil {
			return err
		}
		phase, ended := state()
		if ended {
			return nil
		}
		if p := b.runningVelero(); p != nil {
			if err := p.failure(); err != nil {
				return finalError{fmt.Errorf("its phase is %q: %w", phase, err)}
			}
		}
		return fmt.Errorf("its phase is %q", phase)
	})
}

// Backup is CreateBackup and WaitBackup. A Backup that ended Failed or PartiallyFailed is no error: look at its phase.
func (b *Bed) Backup(ctx context.Context, name string, args ...string) (*velerov1.Backup, error) {
	if err := b.CreateBackup(ctx, name, args...); err != nil {
		return nil, err
	}
	return b.WaitBackup(ctx, name)
}

// Restore is CreateRestore and WaitRestore, see Backup.
func (b *Bed) Restore(ctx context.Context, name string, args ...string) (*velerov1.Restore, error) {
	if err := b.CreateRestore(ctx, name, args...); err != nil {
		return nil, err
	}
	return b.WaitRestore(ctx, name)
}

// DescribeBackup is what `velero backup describe name --details` prints.
func (b *Bed) DescribeBackup(ctx context.Context, name string) (string, error) {
	return b.Velero(ctx, "backup", "describe", name, "--details")
}

// DescribeRestore is what `velero restore describe name --details` prints.
func (b *Bed) DescribeRestore(ctx context.Context, name string) (string, error) {
	return b.Velero(ctx, "restore", "describe", name, "--details")
}

// BackupLogs is the log of an ended backup, plugins' lines included.
func (b *Bed) BackupLogs(ctx context.Context, name string) (string, error) {
	return b.Velero(ctx, "backup", "logs", name)
}

// RestoreLogs is the log of an ended restore, plugins' lines included.
func (b *Bed) RestoreLogs(ctx context.Context, name string) (string, error) {
	return b.Velero(ctx, "restore", "logs", name)
}

// CarryBackup brings an ended Backup of the bed that Options.Storage names into this cluster, as Velero's own sync does
// within a minute (pkg/controller/backup_sync_controller.go). It is there when this returns; if it was already, all is well.
func (b *Bed) CarryBackup(ctx context.Context, name string) error {
	file := filepath.Join(b.ObjectDir(), bucketPrefix, "backups", name, "velero-backup.json")
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("carry the Backup %s into the cluster: %w", name, err)
	}
	backup := &velerov1.Backup{}
	if err := json.Unmarshal(content, backup); err != nil {
		return fmt.Errorf("carry the Backup %s into the cluster: decode %s: %w", name, file, err)
	}
	if backup.Status.CompletionTimestamp == nil { // Velero would take it for one of this cluster that has to be finished
		return fmt.Errorf("carry the Backup %s into the cluster: it has not ended, its phase is %q", name, backup.Status.Phase)
	}
	backup.Namespace, backup.ResourceVersion = b.opts.VeleroNamespace, ""
	if err := b.client.Create(ctx, backup); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("carry the Backup %s into the cluster: %w", name, err)
	}
	return nil
}

// RestoreResults are the errors and warnings of an ended restore, as `velero restore describe` shows them: those of Velero
// itself first, then those of the cluster's, and then those of the namespaces' items.
func (b *Bed) RestoreResults(name string) (failures, warnings []string, err error) {
	fail := func(err error) ([]string, []string, error) {
		return nil, nil, fmt.Errorf("read the results of the Restore %s: %w", name, err)
	}
	file, err := os.Open(filepath.Join(b.ObjectDir(), bucketPrefix, "restores", name, "restore-"+name+"-results.gz"))
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	content, err := gzip.NewReader(file)
	if err != nil {
		return fail(err)
	}
	var both struct{ Errors, Warnings results.Result }
	if err := json.NewDecoder(content).Decode(&both); err != nil {
		return fail(err)
	}
	return flat(both.Errors), flat(both.Warnings), nil
}

func flat(result results.Result) []string {
	all := slices.Concat(result.Velero, result.Cluster)
	for _, namespace := range slices.Sorted(maps.Keys(result.Namespaces)) {
		all = append(all, result.Namespaces[namespace]...)
	}
	return all
}
