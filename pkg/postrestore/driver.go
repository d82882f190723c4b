package postrestore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/standby"
)

const (
	// passBudget is how long a pass repeats itself while something moves, so that deletion, the wait for it and the scale
	// fall into one poll of Velero (10 s apart by default).
	passBudget = 5 * time.Second
	// passAge is how old a pass may be to answer for. All operations of a poll ask within a moment of each other.
	passAge = 3 * time.Second
)

func labelOf(r Restore) string { return label.GetValidName(r.Name) }

// Driver runs phase two as the asynchronous operations of a restore. Velero asks for the progress of each operation in
// turn, every 10 seconds by default and each time through a new plugin process; the first question of a poll makes one
// pass over everything the restore holds, and the others are answered from it. Nothing else is remembered: all state is
// in the operation's ID and on the objects. Safe for concurrent use.
type Driver struct {
	runner *Runner
	reader client.Reader
	keeper *standby.Keeper
	facts  *restore.Cache
	clock  clock.WithTicker

	mu     sync.Mutex
	passes map[types.UID]pass
}

// pass is what one pass found.
type pass struct {
	at       time.Time
	settings restore.Settings
	report   Report
	// standing says whether a Job stands by. It is looked at only when something waits for the restore's end.
	standing standby.Standing
	err      error
}

// NewDriver returns a Driver that reads settings and makes Jobs through c, and runs phase two with runner.
func NewDriver(c client.Client, runner *Runner, facts *restore.Cache, clk clock.WithTicker) *Driver {
	return &Driver{runner: runner, reader: c, keeper: standby.NewKeeper(c, clk), facts: facts, clock: clk, passes: map[types.UID]pass{}}
}

// StandBy makes sure of the Job that finishes a restore which its operations cannot finish (see pkg/standby), and logs once
// whether there is one. Call it for whatever gets an operation: only the first call of a process makes requests. Without a
// Job nothing else changes, so it returns no error: an item is not to be lost for it.
func (d *Driver) StandBy(log logrus.FieldLogger, r *velerov1.Restore) {
	d.standing(context.Background(), log, r)
}

func (d *Driver) standing(ctx context.Context, log logrus.FieldLogger, r *velerov1.Restore) standby.Standing {
	standing, first := d.keeper.Ensure(ctx, r)
	if !first {
		return standing
	}
	log = log.WithField(contract.LogRestore, r.Name)
	switch {
	case standing.Err != nil:
		log.WithError(standing.Err).Warn("No Job stands by to finish the restore: if its operations cannot, run: " + Command(r.Namespace, r.Name))
	case !standing.Stands():
		log.WithField(contract.LogReason, standing.Reason).Info("No Job stands by to finish the restore")
	default:
		log.WithField(contract.LogJob, standing.Job.String()).Info("A Job stands by to finish the restore")
	}
	return standing
}

// Progress answers Velero's question how far an operation is. An error fails the operation for good, and so does Err in a
// completed one: an error of the API that may pass is told as "not yet" instead
// (velero pkg/controller/restore_operations_controller.go). Started must not change from poll to poll; it is the start of
// the restore.
func (d *Driver) Progress(log logrus.FieldLogger, id string, r *velerov1.Restore) (velero.OperationProgress, error) {
	op, err := parseOperation(id, r)
	if err != nil {
		return velero.OperationProgress{}, err
	}
	made := d.pass(log, r)
	progress := velero.OperationProgress{Updated: made.at, OperationUnits: "pods"}
	if r.Status.StartTimestamp != nil {
		progress.Started = r.Status.StartTimestamp.Time
	}
	switch {
	case made.err != nil && !passing(made.err):
		progress.Completed = true
		progress.Err = cannotRun(disconnect.OwnerOf(r).Restore, made.err)
		return progress, nil
	case made.err != nil:
		progress.Description = notYet(made.err)
		return progress, nil //nolint:nilerr // an error would fail the operation for good: it is told in the description
	case op.dc == nil:
		return aboutPods(progress, made, r), nil
	default:
		return aboutDC(progress, made, *op.dc, r), nil
	}
}

// aboutDC answers for one DeploymentConfig.
func aboutDC(progress velero.OperationProgress, made pass, name types.NamespacedName, r *velerov1.Restore) velero.OperationProgress {
	result, ok := made.report.Find(name)
	if !ok {
		progress.Completed, progress.Description = true, nothingHeld
		return progress
	}
	progress.NCompleted, progress.NTotal = int64(result.Step.Initialized), int64(result.Step.Total)
	progress.Description = result.Sentence()
	switch {
	case result.Failed():
		progress.Completed = true
		progress.Err = failure(result, disconnect.OwnerOf(r).Restore)
	case result.Ended():
		progress.Completed = true
	case made.settings.Resume == restore.ResumeManual:
		progress.Completed = true
		if result.Step.Action != WaitForPerson {
			progress.Description += "; " + heldForPerson(manual)
		}
		progress.Description += thenRun(disconnect.OwnerOf(r).Restore)
	case result.Step.Action == WaitForRestore:
		progress.Completed = true
		progress.Description += thenGoesOn(made.standing, disconnect.OwnerOf(r).Restore)
	}
	return progress
}

// aboutPods answers for the detached pods whose DeploymentConfig did not come.
func aboutPods(progress velero.OperationProgress, made pass, r *velerov1.Restore) velero.OperationProgress {
	progress.Completed = true
	progress.Description = noPodAlone
	for _, result := range made.report.Results {
		switch {
		case result.Exists:
			continue
		case result.Failed():
			progress.Err = failure(result, disconnect.OwnerOf(r).Restore)
		case !result.Ended():
			progress.Completed = made.settings.Resume == restore.ResumeManual
		}
		progress.Description = about(result)
	}
	return progress
}

// Cancel is called when the operation's time is up. It leaves everything as it is: held, with the pods that may be the
// only copy of the data. Velero drops what it returns, so what a person needs to know goes to the log and into an event.
func (d *Driver) Cancel(log logrus.FieldLogger, id string, r *velerov1.Restore) error {
	op, err := parseOperation(id, r)
	if err != nil {
		return err
	}
	log = log.WithField(contract.LogOperation, id)
	log.Warn(timeIsUp(disconnect.OwnerOf(r).Restore))
	if op.dc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	scope := ScopeOf(r, false, false, Options{StartTimeout: restore.DefaultStartTimeout})
	scope.Namespaces = []string{op.dc.Namespace}
	if err := d.runner.GiveUp(ctx, scope, *op.dc); err != nil {
		log.WithError(err).Error("Event of the cancelled operation cannot be written")
		return err
	}
	return nil
}

// GiveUp writes the event that phase two was broken off, with what it was waiting for: on the named DeploymentConfigs, or on all
// of the scope.
func (r *Runner) GiveUp(ctx context.Context, scope Scope, names ...types.NamespacedName) error {
	states, err := r.Look(ctx, scope)
	if err != nil {
		return err
	}
	for _, state := range states {
		if (len(names) == 0 || slices.Contains(names, state.Name)) && state.DC != nil {
			result := planned(state)
			result.Step.Sentence = brokenOff(result.Step.Sentence)
			r.record(ctx, r.logOf(state), state, &eventLog{known: map[string]bool{}}, failed(state, result))
		}
	}
	return nil
}

// pass returns the pass that answers now, and makes it if there is none or it is too old.
func (d *Driver) pass(log logrus.FieldLogger, r *velerov1.Restore) pass {
	d.mu.Lock()
	defer d.mu.Unlock()
	if made, ok := d.passes[r.UID]; ok && d.clock.Since(made.at) <= passAge {
		return made
	}
	made := d.makePass(log, r)
	made.at = d.clock.Now()
	if made.err != nil {
		log.WithError(made.err).WithField(contract.LogRestore, r.Name).Warn("Phase two could not look")
	}
	d.passes[r.UID] = made
	return made
}

func (d *Driver) makePass(log logrus.FieldLogger, r *velerov1.Restore) (made pass) {
	// Enough for a slow API server, and an end for one that hangs: Velero waits for the answer.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if made.settings, made.err = restore.ReadSettings(ctx, d.reader, r); made.err != nil {
		return made
	}
	scoped, err := d.facts.For(r).Scope(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		made.err = err
		return made
	}
	scope := ScopeOf(r, scoped.Uncertain, false, Options{StartTimeout: made.settings.StartTimeout})
	if made.settings.Resume == restore.ResumeManual {
		scope.Undriven = manual
		made.report, made.err = d.runner.Hold(ctx, scope)
		return made
	}
	made.report, made.err = d.runner.Pass(ctx, scope, passBudget)
	if slices.ContainsFunc(made.report.Results, func(result Result) bool { return result.Step.Action == WaitForRestore }) {
		made.standing = d.standing(ctx, log, r)
	}
	return made
}

// IsPassing tells whether an error of a run may go away by itself.
func IsPassing(err error) bool { return passing(err) }

// OwnerOf returns the owner that marks of a restore name are looked for by, when the Restore itself is gone.
func OwnerOf(veleroNamespace, restoreName string) disconnect.Owner {
	return disconnect.Owner{Restore: types.NamespacedName{Namespace: veleroNamespace, Name: restoreName}}
}
