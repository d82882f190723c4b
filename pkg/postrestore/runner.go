package postrestore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

const (
	// apiTimeout bounds every single request, and every step of looking.
	apiTimeout = 30 * time.Second
	// lookAgain is the pause between two looks while something moves: short beside the second that a pod takes to end.
	lookAgain = 300 * time.Millisecond
	// sideBySide is how many DeploymentConfigs are worked on at once. The client's rate limit bounds the requests.
	sideBySide = 16
)

// Runner carries out the steps of phase two. It is the only code of this project that writes to applications: pkg/standby makes Jobs.
type Runner struct {
	client client.Client
	clock  clock.WithTicker
	log    logrus.FieldLogger
}

// NewRunner returns a Runner.
func NewRunner(c client.Client, clk clock.WithTicker, log logrus.FieldLogger) *Runner {
	return &Runner{client: c, clock: clk, log: log}
}

// Result is how far phase two is with one DeploymentConfig.
type Result struct {
	Name types.NamespacedName
	// Step is the last one found; after a successful Finish or Reattach it is Done, with the same sentence.
	Step Step
	// Held is true when the DeploymentConfig carried the mark of a hold when it was first looked at.
	Held bool
	// Exists is false when the cluster has no such DeploymentConfig.
	Exists bool
	// Err is why the step cannot be carried out, if it will not help to try again.
	Err error
	// Retrying is why the step could not be carried out this time.
	Retrying error
	// LostVolumes are volumes whose restore did not complete and that were given up, as <pod>/<volume>.
	LostVolumes []string
	// HookNote says that an exec hook of its pods failed or may not have run, empty otherwise. It changes nothing else.
	HookNote string
	// Back of the Wanted pods of its own are there. Both are 0 for one that is not held.
	Back, Wanted int
	// Did is the last action that was carried out on it, empty when none was.
	Did Action
}

// Ended tells whether nothing more will happen by itself.
func (r Result) Ended() bool { return r.Err != nil || r.Step.Action == Done || r.Step.Action == Stop }

// Failed tells whether phase two has ended without bringing the DeploymentConfig back.
func (r Result) Failed() bool { return r.Err != nil || r.Step.Action == Stop }

// Report is how far phase two is with every DeploymentConfig of a scope, in the order of their names.
type Report struct {
	Results []Result
}

// Find returns the result for a DeploymentConfig. ok is false when phase two has nothing to do with it.
func (r Report) Find(name types.NamespacedName) (Result, bool) {
	for _, result := range r.Results {
		if result.Name == name {
			return result, true
		}
	}
	return Result{}, false
}

// all tells whether the test holds for every result.
func (r Report) all(test func(Result) bool) bool {
	return !slices.ContainsFunc(r.Results, func(result Result) bool { return !test(result) })
}

// Ended tells whether nothing more will happen by itself.
func (r Report) Ended() bool { return r.all(Result.Ended) }

// moves tells whether something is done, or about to be done by the cluster, that is worth waiting for.
func (r Result) moves() bool {
	return r.Err == nil && (r.Step.Action == WaitShortly || r.Step.Action.Writes())
}

// Plan looks and returns the next step of every DeploymentConfig. It writes nothing.
func (r *Runner) Plan(ctx context.Context, scope Scope) (Report, error) {
	return r.plan(ctx, scope, func(State, Result) {})
}

// Hold is Plan for a restore whose steps a person takes. It writes one thing: the events of what is held.
func (r *Runner) Hold(ctx context.Context, scope Scope) (Report, error) {
	events := r.knownEvents(ctx, scope)
	return r.plan(ctx, scope, func(state State, result Result) {
		if result.Held {
			r.record(ctx, r.logOf(state), state, events, held(state))
		}
	})
}

func (r *Runner) plan(ctx context.Context, scope Scope, each func(State, Result)) (Report, error) {
	states, err := r.Look(ctx, scope)
	if err != nil {
		return Report{}, err
	}
	report := Report{}
	for _, state := range states {
		result := planned(state)
		each(state, result)
		report.Results = append(report.Results, result)
	}
	return report, nil
}

// logOf returns the logger for what is said about one DeploymentConfig.
func (r *Runner) logOf(state State) logrus.FieldLogger {
	return r.log.WithFields(logrus.Fields{
		contract.LogNamespace: state.Name.Namespace, contract.LogName: state.Name.Name, contract.LogRestore: state.Restore.Name,
	})
}

func planned(state State) Result {
	_, held, _ := state.record()
	result := Result{Name: state.Name, Step: Next(state), Held: held, Exists: state.DC != nil, HookNote: state.Restore.hookNote(state.execHooks())}
	result.Back, result.Wanted = state.back()
	return result
}

// Pass looks, takes the next step of every DeploymentConfig side by side, and repeats that while something moves, for at
// most the budget. An error means that the cluster could not be looked at; the report is what was known before.
func (r *Runner) Pass(ctx context.Context, scope Scope, budget time.Duration) (Report, error) {
	start := r.clock.Now()
	return r.drive(ctx, scope, func(report Report) (time.Duration, bool) {
		moving := slices.ContainsFunc(report.Results, Result.moves)
		return lookAgain, moving && r.clock.Since(start) < budget
	})
}

// Run takes steps until nothing more will happen by itself or ctx is done. observe is called after every round. An error
// of looking that may pass is given to observe with the last report and tried again; another one is returned.
func (r *Runner) Run(ctx context.Context, scope Scope, observe func(Report, error)) (Report, error) {
	var last Report
	for {
		// The report of a drive is in last already, round by round. That of one that could not look even once is empty, which
		// must not be taken for "nothing is held any more".
		_, err := r.drive(ctx, scope, func(report Report) (time.Duration, bool) {
			last = merge(last, report.Results)
			observe(last, nil)
			pause := time.Second
			if slices.ContainsFunc(report.Results, Result.moves) {
				pause = lookAgain
			}
			return pause, !report.Ended()
		})
		switch {
		case err == nil:
			return last, nil
		case ctx.Err() != nil:
			return last, nil //nolint:nilerr // the end of ctx ends the run; the report tells what is not finished
		case !passing(err):
			return last, err
		}
		observe(last, err)
		if !r.pause(ctx, time.Second) {
			return last, nil
		}
	}
}

// drive makes rounds for as long as again asks for more, with the pause it asks for.
func (r *Runner) drive(ctx context.Context, scope Scope, again func(Report) (time.Duration, bool)) (Report, error) {
	var report Report
	events := r.knownEvents(ctx, scope)
	for {
		states, err := r.Look(ctx, scope)
		if err != nil {
			return report, err
		}
		report = merge(report, r.round(ctx, states, report, events))
		pause, more := again(report)
		if !more || !r.pause(ctx, pause) {
			return report, nil
		}
	}
}

// pause waits. It is false when ctx ended first.
func (r *Runner) pause(ctx context.Context, d time.Duration) bool {
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// merge puts the results of a round over those known before. What a round does not find any more needs nothing: its pods
// are gone and nothing holds it.
func merge(before Report, round []Result) Report {
	merged := Report{Results: slices.Clone(round)}
	for _, old := range before.Results {
		i := slices.IndexFunc(merged.Results, func(r Result) bool { return r.Name == old.Name })
		if i >= 0 {
			merged.Results[i].Held = merged.Results[i].Held || old.Held
			if len(merged.Results[i].LostVolumes) == 0 {
				merged.Results[i].LostVolumes = old.LostVolumes
			}
			if merged.Results[i].Did == "" {
				merged.Results[i].Did = old.Did
			}
			continue
		}
		if !old.Ended() {
			old.Step = Step{Action: Done, Sentence: "its detached pods are gone and nothing holds it"}
			old.Retrying = nil
		}
		merged.Results = append(merged.Results, old)
	}
	slices.SortFunc(merged.Results, func(a, b Result) int { return cmp.Compare(a.Name.String(), b.Name.String()) })
	return merged
}

// round takes the next step of every state, side by side. before is the report of the rounds before.
func (r *Runner) round(ctx context.Context, states []State, before Report, events *eventLog) []Result {
	results := make([]Result, len(states))
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for i := range states {
		group.Go(func() error {
			old, _ := before.Find(states[i].Name)
			results[i] = r.step(ctx, states[i], old, events)
			return nil
		})
	}
	_ = group.Wait() // no function of the group returns an error
	return results
}

// step takes the next step of one DeploymentConfig, logs it and writes its events. old is its last result, empty in the first
// round.
func (r *Runner) step(ctx context.Context, state State, old Result, events *eventLog) Result {
	result := planned(state)
	result.HookNote = cmp.Or(result.HookNote, old.HookNote) // its pods, which told about hooks, may be gone by now
	log := r.logOf(state)
	if result.Held {
		r.record(ctx, log, state, events, held(state))
	}
	if result.Step.Action.Writes() {
		err := r.apply(ctx, state, result.Step)
		switch {
		case err == nil:
			log.WithField(contract.LogDecision, string(result.Step.Action)).Info(result.Step.Sentence)
			result.LostVolumes = result.Step.LostVolumes
			result.Did = result.Step.Action
		case passing(err):
			result.Retrying = err
			level := logrus.WarnLevel
			if apierrors.IsConflict(err) {
				level = logrus.InfoLevel // somebody was faster, most likely a controller: that is the order of things
			}
			log.WithError(err).Log(level, "Step of phase two is tried again")
		default:
			result.Err = err
			log.WithError(err).Error("Step of phase two failed")
		}
		if err == nil && (result.Step.Action == Finish || result.Step.Action == Reattach) {
			finished := result.Step.Action == Finish
			result.Step.Action = Done
			if finished {
				r.record(ctx, log, state, events, resumed(state, result))
			}
		}
	}
	if result.Failed() && result.Exists {
		r.record(ctx, log, state, events, failed(state, result))
	}
	return result
}

// passing tells whether an error may go away by itself: everything but wrong settings and a refusal of what was asked.
func passing(err error) bool {
	var settings *restore.InvalidSettingsError
	return !errors.As(err, &settings) && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsInvalid(err) &&
		!apierrors.IsMethodNotSupported(err) && !apierrors.IsBadRequest(err)
}

// apply carries a step out. Every write is conditional on what was looked at: on the UID of a pod, on the
// resourceVersion of a DeploymentConfig. Whoever has changed it since wins, and the next look sees what is left to do.
func (r *Runner) apply(ctx context.Context, state State, step Step) error {
	switch step.Action {
	case TakeOver:
		owner := disconnect.Owner{Restore: state.Restore.NamespacedName, UID: state.Restore.UID}
		annotations := map[string]any{contract.RestoreAnnotation: owner.Restore.String(), contract.RestoreUIDAnnotation: nil}
		if owner.UID != "" {
			annotations[contract.RestoreUIDAnnotation] = owner.UID
		}
		return r.patch(ctx, state, map[string]any{"metadata": map[string]any{
			"labels": map[string]any{contract.ReplicasModifiedLabel: owner.Label()}, "annotations": annotations,
		}}, false)
	case DeletePods:
		return r.deletePods(ctx, state.Pods)
	case Reattach:
		return r.reattach(ctx, state.Pods)
	case Scale:
		spec := map[string]any{}
		if state.DC.Spec.Replicas == 0 {
			spec["replicas"] = step.Originals.Replicas
		}
		if state.DC.Spec.Paused {
			spec["paused"] = false
		}
		return r.patch(ctx, state, map[string]any{"spec": spec}, false)
	case Rollout:
		return r.patch(ctx, state, map[string]any{"status": map[string]any{"latestVersion": state.DC.Status.LatestVersion + 1}}, true)
	case Finish:
		patch := map[string]any{"metadata": map[string]any{
			"labels": removal(disconnect.HeldLabels), "annotations": removal(disconnect.HeldAnnotations),
		}}
		if state.DC.Spec.Paused != step.Originals.Paused {
			patch["spec"] = map[string]any{"paused": step.Originals.Paused}
		}
		return r.patch(ctx, state, patch, false)
	default:
		return fmt.Errorf("step %q writes nothing", step.Action)
	}
}

// removal is the merge patch that removes keys of a map.
func removal(keys []string) map[string]any {
	patch := map[string]any{}
	for _, key := range keys {
		patch[key] = nil
	}
	return patch
}

// patch sends a merge patch for the DeploymentConfig. OpenShift's API server and a CRD both accept that kind.
func (r *Runner) patch(ctx context.Context, state State, patch map[string]any, status bool) error {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["resourceVersion"] = state.DC.ResourceVersion
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	return within(ctx, func(ctx context.Context) error {
		dc, merge := state.DC.DeepCopy(), client.RawPatch(types.MergePatchType, data)
		if status {
			err = r.client.Status().Patch(ctx, dc, merge)
		} else {
			err = r.client.Patch(ctx, dc, merge)
		}
		if err != nil {
			return fmt.Errorf("patch DeploymentConfig %s: %w", state.Name, err)
		}
		return nil
	})
}

// deletePods deletes those of the pods that nobody deletes yet. Deletion, not eviction: a PodDisruptionBudget must not
// keep an application down (D36).
func (r *Runner) deletePods(ctx context.Context, pods []Pod) error {
	var errs []error
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := within(ctx, func(ctx context.Context) error {
			return r.client.Delete(ctx, pod.Pod, client.Preconditions{UID: &pod.UID})
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return worst(errs)
}

func (r *Runner) reattach(ctx context.Context, pods []Pod) error {
	var errs []error
	for _, pod := range pods {
		labels := removal(disconnect.DetachedLabels)
		if deployment := pod.Annotations[contract.PodDeploymentAnnotation]; deployment != "" {
			labels[contract.DeploymentLabel] = deployment
		}
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": pod.UID, "labels": labels, "annotations": removal(disconnect.DetachedAnnotations),
		}})
		if err == nil {
			err = within(ctx, func(ctx context.Context) error {
				return r.client.Patch(ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.RawPatch(types.MergePatchType, data))
			})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("reattach pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return worst(errs)
}

// worst joins errors. Those that do not pass come alone: the others are tried again anyway.
func worst(errs []error) error {
	if lasting := slices.DeleteFunc(slices.Clone(errs), passing); len(lasting) > 0 {
		return lasting[0]
	}
	return errors.Join(errs...)
}

// within bounds one request.
func within(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return request(ctx)
}
