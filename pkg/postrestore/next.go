package postrestore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// Action is what a step does.
type Action string

// The actions. Those that write are carried out by Runner.
const (
	// Wait for something that takes its time: data, a pod's start, an image.
	Wait Action = "wait"
	// WaitShortly for something that the cluster is about to do: look again at once.
	WaitShortly Action = "wait-shortly"
	// WaitForRestore: an exec hook applies, and Velero says that hooks have run only by ending the restore.
	WaitForRestore Action = "wait-for-restore"
	// WaitForPerson: everything is there for the next step, but nobody takes it by itself.
	WaitForPerson Action = "wait-for-person"
	// Stop: phase two cannot go on by itself. Pods and DeploymentConfig stay as they are.
	Stop Action = "stop"
	// TakeOver makes a hold by another restore that of this one.
	TakeOver Action = "take-over"
	// DeletePods deletes the detached pods.
	DeletePods Action = "delete-pods"
	// Reattach gives detached pods their label `deployment` back and removes the marks.
	Reattach Action = "reattach"
	// Scale sets replicas, and paused to false.
	Scale Action = "scale"
	// Rollout raises status.latestVersion by one.
	Rollout Action = "rollout"
	// Finish removes the marks and sets paused to its original.
	Finish Action = "finish"
	// Done: nothing is left to do.
	Done Action = "done"
)

// Writes tells whether the action changes the cluster.
func (a Action) Writes() bool {
	switch a {
	case TakeOver, DeletePods, Reattach, Scale, Rollout, Finish:
		return true
	default:
		return false
	}
}

// Step is what to do next with one DeploymentConfig.
type Step struct {
	Action Action
	// Sentence says in words what is waited for, done or wrong. The same one is shown everywhere.
	Sentence string
	// Initialized of Total detached pods have their data.
	Initialized, Total int
	// Originals of the DeploymentConfig, for Scale and Finish.
	Originals disconnect.Originals
	// LostVolumes are volumes whose restore did not complete and that are given up, as <pod>/<volume>.
	LostVolumes []string
}

// Next returns the next step for a DeploymentConfig. The order of the rules is that of the design's table.
func Next(s State) Step {
	step := s.podsStep()
	if step.Action == Done {
		step = s.scaleStep()
	}
	for _, pod := range s.Pods {
		if pod.Initialized() {
			step.Initialized++
		}
	}
	step.Total = len(s.Pods)
	if s.Undriven != "" && step.Action.Writes() {
		step.Action, step.Sentence, step.LostVolumes = WaitForPerson, heldForPerson(s.Undriven), nil
	}
	return step
}

// podsStep deals with the detached pods. It is Done when there are none.
func (s State) podsStep() Step {
	if len(s.Pods) == 0 {
		return Step{Action: Done}
	}
	if s.DC == nil && s.Restore.Bringing {
		return Step{Action: Wait, Sentence: "waiting for its DeploymentConfig, which the restore has yet to bring"}
	}
	if s.DC == nil && s.Restore.ByLabel {
		return Step{Action: Reattach, Sentence: "its DeploymentConfig was not chosen by this restore: " +
			count(len(s.Pods), "pod is restored as it was", "pods are restored as they were")}
	}
	if step := s.dataStep(); step.Action != Done {
		return step
	}
	switch _, _, err := s.record(); {
	case s.DC == nil:
		return Step{Action: Stop, Sentence: "the cluster has no such DeploymentConfig: " +
			count(len(s.Pods), "detached pod is kept, since it is", "detached pods are kept, since they are") +
			" the only copy of the data; restore the DeploymentConfig, then run phase two"}
	case err != nil:
		return s.unreadable(err)
	case s.HeldBy != "":
		// With the last pod of this restore goes all that leads to the DeploymentConfig: it would stay at 0 (D15).
		return Step{Action: TakeOver, Sentence: fmt.Sprintf("it is held by restore %s: taking it over", s.HeldBy)}
	}
	step := Step{LostVolumes: s.lostVolumes()}
	if slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.DeletionTimestamp == nil }) {
		step.Action = DeletePods
		step.Sentence = "deleting " + count(len(s.Pods), "detached pod", "detached pods")
		return step
	}
	step.Action = WaitShortly
	step.Sentence = "waiting for " + count(len(s.Pods), "detached pod", "detached pods") + " to be gone"
	return step
}

// dataStep waits for the data and hooks of the detached pods. It is Done when all are in.
func (s State) dataStep() Step {
	pending, initialized := 0, 0
	var wrong []string
	for _, pod := range s.Pods {
		if pod.Initialized() {
			initialized++
		}
		waits, problems := pod.data(s.Now, s.StartTimeout)
		if waits {
			pending++
		}
		wrong = append(wrong, problems...)
	}
	switch hooks := s.execHooks(); {
	case pending > 0:
		return Step{Action: Wait, Sentence: fmt.Sprintf("%d of %s initialised", initialized, count(len(s.Pods), "detached pod", "detached pods"))}
	case len(wrong) > 0 && !s.AcceptDataLoss:
		return Step{Action: Stop, Sentence: strings.Join(wrong, "; ") + "; pods and DeploymentConfig stay as they are; " +
			"put it right, or give the data up with --accept-data-loss"}
	case !s.Restore.Ended && len(hooks) > 0:
		return Step{Action: WaitForRestore, Sentence: fmt.Sprintf("phase two waits for the end of restore %s, "+
			"because Velero runs an exec hook (%s) in a detached pod until then", s.Restore.Name, strings.Join(hooks, ", "))}
	default:
		return Step{Action: Done}
	}
}

// data tells whether the pod's data or init hooks are on their way, and otherwise what has gone wrong with them, if
// anything has.
func (p Pod) data(now time.Time, startTimeout time.Duration) (waits bool, problems []string) {
	if p.DeletionTimestamp != nil {
		return false, nil // somebody deletes it: it is beyond waiting for
	}
	if p.waitsForData() {
		return true, nil
	}
	if !p.Initialized() {
		if reason := p.cannotStart(now, startTimeout); reason != "" {
			return false, []string{fmt.Sprintf("pod %s cannot start: %s", p.Name, reason)}
		}
	}
	switch {
	case p.count(VolumePending) > 0:
		return true, nil
	case p.count(VolumeFailed) > 0:
		return false, p.failures()
	default:
		return !p.Initialized(), nil
	}
}

// failures says which volume restores of the pod failed.
func (p Pod) failures() []string {
	var failures []string
	for _, volume := range p.Volumes {
		if volume.Phase == VolumeFailed {
			failure := fmt.Sprintf("%s of volume %s in pod %s failed: %s", volume.Object, volume.Volume, p.Name, volume.Message)
			failures = append(failures, strings.TrimSuffix(failure, ": "))
		}
	}
	return failures
}

// lostVolumes returns the volumes whose data goes with the pods: those whose restore failed, and those of a pod that cannot
// start or that somebody deletes, whose restore will never complete.
func (s State) lostVolumes() []string {
	var lost []string
	for _, pod := range s.Pods {
		for _, volume := range pod.Volumes {
			if volume.Phase != VolumeCompleted {
				lost = append(lost, pod.Name+"/"+volume.Volume)
			}
		}
	}
	return lost
}

func (s State) execHooks() []string {
	var hooks []string
	for _, pod := range s.Pods {
		for _, hook := range pod.ExecHooks {
			if !slices.Contains(hooks, hook) {
				hooks = append(hooks, hook)
			}
		}
	}
	return hooks
}

// record returns the recorded originals of a held DeploymentConfig. held is false when it carries no mark.
func (s State) record() (originals disconnect.Originals, held bool, err error) {
	if s.DC == nil || s.DC.Labels[contract.ReplicasModifiedLabel] == "" {
		return disconnect.Originals{}, false, nil
	}
	originals, recorded, err := disconnect.Recorded(s.DC.Annotations)
	switch {
	case err == nil && recorded:
		return originals, true, nil
	case s.DC.Spec.Replicas > 0:
		// Somebody has scaled it by hand, which tells its replicas: only the marks are left.
		return disconnect.Originals{Replicas: s.DC.Spec.Replicas, Paused: s.DC.Spec.Paused}, true, nil
	case err == nil:
		err = fmt.Errorf("annotations %s and %s are missing", contract.OriginalReplicasAnnotation, contract.OriginalPausedAnnotation)
	}
	return disconnect.Originals{}, true, err
}

func (s State) unreadable(err error) Step {
	return Step{Action: Stop, Sentence: fmt.Sprintf("it is held, but what it was before is not recorded: %v; "+
		"set the annotations by hand, then run phase two", err)}
}

// scaleStep brings the DeploymentConfig back. No detached pod is left.
func (s State) scaleStep() Step {
	originals, held, err := s.record()
	switch {
	case err != nil:
		return s.unreadable(err)
	case !held && s.DC == nil:
		return Step{Action: Done, Sentence: nothingHeld}
	case !held:
		return Step{Action: Done, Sentence: fmt.Sprintf("%s; it is at %s", nothingHeld, count(int(s.DC.Spec.Replicas), "replica", "replicas"))}
	}
	step := s.heldStep(originals)
	step.Originals = originals
	return step
}

func (s State) heldStep(originals disconnect.Originals) Step {
	dc := s.DC
	finish := Step{Action: Finish, Sentence: "back at " + count(int(dc.Spec.Replicas), "replica", "replicas")}
	if originals.Paused {
		finish.Sentence += ", paused"
	}
	if dc.Spec.Replicas == 0 && originals.Replicas == 0 {
		return finish
	}
	if dc.Spec.Replicas == 0 {
		return Step{Action: Scale, Sentence: "scaling to " + count(int(originals.Replicas), "replica", "replicas")}
	}
	// From here on the replicas are ours, or those that a person or an autoscaler has set since: they are not fought.
	if dc.Spec.Test {
		finish.Sentence += "; it is a test, so its pods run during rollouts only"
		return finish
	}
	latest := s.latest()
	if latest != nil && latest.version == dc.Status.LatestVersion && latest.ended() && !latest.failedWhileHeld() &&
		s.hasReplicas(s.active()) {
		return finish
	}
	if dc.Spec.Paused {
		// Paused, it ignores its replicas (DeploymentConfigController.Handle): defect D7 of the OADP script.
		return Step{Action: Scale, Sentence: "unpausing until it has its replicas"}
	}
	return s.rolloutStep(latest)
}

// back returns how many of the pods that a held DeploymentConfig is to have its ReplicationControllers have.
func (s State) back() (back, wanted int) {
	originals, held, err := s.record()
	if !held || err != nil {
		return 0, 0
	}
	if wanted = int(s.DC.Spec.Replicas); wanted == 0 {
		wanted = int(originals.Replicas)
	}
	for i := range s.Controllers {
		back += int(s.Controllers[i].Status.Replicas)
	}
	return min(back, wanted), wanted
}

// hasReplicas tells whether a ReplicationController has the replicas of the DeploymentConfig, in its spec and as pods.
func (s State) hasReplicas(r *rollout) bool {
	return r != nil && r.Spec.Replicas != nil && *r.Spec.Replicas == s.DC.Spec.Replicas && r.Status.Replicas == s.DC.Spec.Replicas
}

// rolloutStep waits for the rollout that brings the pods, and starts it where the controller never would.
func (s State) rolloutStep(latest *rollout) Step {
	version := s.DC.Status.LatestVersion
	name := fmt.Sprintf("%s-%d", s.Name.Name, version)
	if version == 0 {
		return s.firstRolloutStep()
	}
	if latest == nil || latest.version < version {
		return Step{Action: WaitShortly, Sentence: fmt.Sprintf("waiting for ReplicationController %s", name)}
	}
	switch phase := latest.phase(); {
	case latest.failedWhileHeld():
		return Step{Action: Rollout, Sentence: fmt.Sprintf("rollout %s failed while the volumes were empty: starting a new one", latest.Name)}
	case phase == ocpappsv1.DeploymentStatusFailed:
		return Step{Action: Stop, Sentence: fmt.Sprintf("rollout %s failed: see its deployer pod and events, "+
			"then start a new one with `oc rollout latest dc/%s -n %s`", latest.Name, s.Name.Name, s.Name.Namespace)}
	case phase == ocpappsv1.DeploymentStatusComplete:
		return Step{Action: WaitShortly, Sentence: fmt.Sprintf("ReplicationController %s has %d of %s",
			latest.Name, latest.Status.Replicas, count(int(s.DC.Spec.Replicas), "pod", "pods"))}
	default:
		return Step{Action: WaitShortly, Sentence: fmt.Sprintf("waiting for rollout %s, which is %s", latest.Name, strings.ToLower(string(phase)))}
	}
}

// firstRolloutStep decides how a DeploymentConfig without any rollout gets its first one. The controller starts it for a
// config change trigger at once, and for image triggers when all of them are resolved (triggerActivated).
func (s State) firstRolloutStep() Step {
	var unresolved []string
	for _, trigger := range s.DC.Spec.Triggers {
		params := trigger.ImageChangeParams
		if trigger.Type == ocpappsv1.DeploymentTriggerOnImageChange && params != nil && params.Automatic && params.LastTriggeredImage == "" {
			unresolved = append(unresolved, fmt.Sprintf("%s %s", params.From.Kind, params.From.Name))
		}
	}
	switch {
	case len(unresolved) > 0:
		return Step{Action: Wait, Sentence: fmt.Sprintf("waiting for the image of trigger %s: no rollout can start before it is there",
			strings.Join(unresolved, ", "))}
	case disconnect.NothingRollsOut(s.DC.Spec.Triggers):
		return Step{Action: Rollout, Sentence: "nothing starts its first rollout: starting it"}
	default:
		return Step{Action: WaitShortly, Sentence: "waiting for its first rollout"}
	}
}
