package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/standby"
)

const (
	// waitInterval is how often a restore is asked for that has not ended: one small request. Nothing is down meanwhile, so
	// that more haste would gain nothing.
	waitInterval = 5 * time.Second
	// waitRequest bounds what is asked for at a time.
	waitRequest = 30 * time.Second
)

// afterRestore waits for the end of the restore and then runs phase two. When time is up without success, the
// DeploymentConfigs get an event that says so; after success, the Job that this runs in is left to the cluster to delete.
func (p *phaseTwo) afterRestore(interrupt context.Context, phaseTwo func() error) error {
	given := p.deadline
	manual, err := p.awaitEnd(interrupt)
	switch {
	case err != nil:
	case manual:
		p.progress.note(fmt.Sprintf("The settings leave restore %s to a person (resume: %s). When it may go on, run: %s",
			p.key, restore.ResumeManual, postrestore.Command(p.key.Namespace, p.key.Name)))
	default:
		if !given.IsZero() {
			// Data may still be on its way, as after a restart of Velero: there is time until the deadline.
			p.timeout = max(p.timeout, given.Sub(p.clock.Now()))
		}
		err = phaseTwo()
	}
	var exit *exitError
	switch {
	case err == nil && p.job != "":
		if err := standby.KeepForAnHour(interrupt, p.client, types.NamespacedName{Namespace: p.key.Namespace, Name: p.job}); err != nil {
			p.progress.note(fmt.Sprintf("warning: %v; delete it by hand, or with its Restore", err))
		}
	case errors.As(err, &exit) && exit.code == ExitNotFinished && interrupt.Err() == nil:
		p.giveUp(interrupt)
	}
	return err
}

// awaitEnd returns when the Restore has ended or does not exist. manual is true when this runs in a Job and the settings, as
// they are at the end, leave phase two to a person. Errors are exitErrors: time is up, the command was interrupted, or an
// error that does not pass.
func (p *phaseTwo) awaitEnd(interrupt context.Context) (manual bool, err error) {
	begin := p.clock.Now()
	phase := velerov1.RestorePhaseNew
	for {
		r, manual, err := p.lookAtRestore(interrupt)
		switch {
		case err == nil && (r == nil || postrestore.Ended(r.Status.Phase)):
			p.setDeadline(begin, r)
			return manual, nil
		case err == nil:
			p.setDeadline(begin, r)
			if r.Status.Phase != "" {
				phase = r.Status.Phase
			}
			p.progress.note(fmt.Sprintf("Restore %s is %s: waiting for its end, until %s at the latest", p.key, phase, p.deadline.UTC().Format(time.RFC3339)))
		case interrupt.Err() != nil:
		case !postrestore.IsPassing(err):
			return false, failed(explain(err, nil))
		default:
			p.progress.note("warning: not yet: " + oneLine(err.Error()))
		}
		if err := p.pause(interrupt, begin, phase); err != nil {
			return false, err
		}
	}
}

// setDeadline sets the deadline that no flag has set. It is known when the Restore is.
func (p *phaseTwo) setDeadline(begin time.Time, r *velerov1.Restore) {
	switch {
	case !p.deadline.IsZero():
	case r == nil:
		p.deadline = begin
	default:
		p.deadline = begin.Add(standby.Timeout(r))
	}
}

// pause waits until it is time to ask again. It returns an error when there will be no such time.
func (p *phaseTwo) pause(interrupt context.Context, begin time.Time, phase velerov1.RestorePhase) error {
	deadline := p.deadline
	if deadline.IsZero() {
		deadline = begin.Add(standby.DefaultTimeout) // the Restore, which tells its own, could not be read yet
	}
	command := postrestore.Command(p.key.Namespace, p.key.Name)
	left := deadline.Sub(p.clock.Now())
	if left <= 0 {
		return notFinished(fmt.Errorf("time is up: restore %s has not ended by %s, it is %s. What it holds stays held and nothing is lost. "+
			"When it has ended, run: %s", p.key, deadline.UTC().Format(time.RFC3339), phase, command))
	}
	timer := p.clock.NewTimer(min(waitInterval, left))
	defer timer.Stop()
	select {
	case <-interrupt.Done():
		return notFinished(fmt.Errorf("interrupted: restore %s has not ended, it is %s. When it has, run: %s", p.key, phase, command))
	case <-timer.C():
		return nil
	}
}

// lookAtRestore returns the Restore, nil when there is none, and when it has ended whether the settings leave it to a person.
func (p *phaseTwo) lookAtRestore(ctx context.Context) (r *velerov1.Restore, manual bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitRequest)
	defer cancel()
	r = &velerov1.Restore{}
	if err := p.client.Get(ctx, p.key, r); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("get Restore %s: %w", p.key, err)
	}
	if p.job == "" || !postrestore.Ended(r.Status.Phase) {
		return r, false, nil // a person who runs this has decided
	}
	settings, err := restore.ReadSettings(ctx, p.client, r)
	return r, settings.Resume == restore.ResumeManual, err
}

// giveUp writes the event that time is up on whatever is still held.
func (p *phaseTwo) giveUp(interrupt context.Context) {
	ctx, cancel := context.WithTimeout(interrupt, waitRequest)
	defer cancel()
	scope, _, err := p.scope(ctx)
	if err == nil {
		err = p.runner.GiveUp(ctx, scope)
	}
	if err != nil {
		p.progress.note("warning: the event that time is up cannot be written: " + oneLine(err.Error()))
	}
}
