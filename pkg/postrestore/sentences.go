package postrestore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/standby"
)

// What phase two says. One state has one sentence: Next makes it, Result.Sentence adds why the step could not be taken,
// and the operation, the events, `post-restore` and `status` show that. What they put around it stands in this file.
// docs/troubleshooting.md explains every sentence, and a test compares the two (sentences_test.go of the module's root).
const (
	// nothingHeld is said of what needs no step.
	nothingHeld = "nothing is held"
	// noPodAlone is what the operation says that looks after pods whose DeploymentConfig may not come.
	noPodAlone = "every detached pod has its DeploymentConfig"
	// manual is why nobody takes the steps of a restore with that setting.
	manual = contract.ResumeSetting + ": " + string(restore.ResumeManual)
)

// Sentence says how far it is, in words. An error that the end of the asking itself has caused says nothing and is left
// out.
func (r Result) Sentence() string {
	switch {
	case r.Err != nil:
		return fmt.Sprintf("%s: %v", r.Step.Sentence, r.Err)
	case r.Retrying != nil && !errors.Is(r.Retrying, context.Canceled) && !errors.Is(r.Retrying, context.DeadlineExceeded):
		return r.Step.Sentence + ": " + notYet(r.Retrying)
	case r.HookNote != "" && r.Step.Action == Done:
		return r.Step.Sentence + "; " + r.HookNote
	default:
		return r.Step.Sentence
	}
}

// Sentence says what it waits for, in words.
func (h Holding) Sentence() string { return h.Step.Sentence }

// Command returns the shell command by which a person runs phase two of a restore.
func Command(veleroNamespace, restoreName string) string {
	return fmt.Sprintf("kubectl -n %s exec deploy/velero -c velero -- %s post-restore %s", veleroNamespace, contract.InstalledPath, restoreName)
}

// thenRun goes behind a sentence whose state a person ends.
func thenRun(of types.NamespacedName) string { return "; then run: " + Command(of.Namespace, of.Name) }

// thenGoesOn goes behind the sentence of WaitForRestore: the operation ends, and somebody else goes on when the restore has ended.
func thenGoesOn(standing standby.Standing, of types.NamespacedName) string {
	if standing.Stands() {
		return fmt.Sprintf("; then the Job %s goes on", standing.Job)
	}
	return fmt.Sprintf("; no Job stands by to go on (%s)", standing.Reason) + thenRun(of)
}

// hookNote says, of a DeploymentConfig in whose pods these exec hooks apply, that a hook has failed or may not have run: empty
// when Velero has counted hooks and none of them failed, and while the restore goes on. Which hook it was is only in the restore's log.
//
// Velero counts in memory and writes the count when the restore finalizes. So it has none of a restore that a restart of Velero has
// ended or that went on after one, nor of one whose hooks took longer than Velero awaits them
// (velero pkg/controller/restore_finalizer_controller.go, WaitRestoreExecHook).
func (r Restore) hookNote(hooks []string) string {
	if len(hooks) == 0 || !r.Ended || r.UID == "" {
		return ""
	}
	see := fmt.Sprintf("see `velero restore logs %s -n %s`", r.Name, r.Namespace)
	switch {
	case r.Hooks == nil || r.Hooks.HooksAttempted == 0:
		return fmt.Sprintf("whether its exec hook (%s) has run to its end is not known: %s", strings.Join(hooks, ", "), see)
	case r.Hooks.HooksFailed > 0:
		return fmt.Sprintf("%d of %s of the restore failed: %s", r.Hooks.HooksFailed, count(r.Hooks.HooksAttempted, "exec hook", "exec hooks"), see)
	default:
		return ""
	}
}

// about names the DeploymentConfig, where the sentence stands alone.
func about(result Result) string {
	return fmt.Sprintf("DeploymentConfig %s: %s", result.Name, result.Sentence())
}

// failure is the error of an operation: it names the DeploymentConfig, says why, and gives the command.
func failure(result Result, of types.NamespacedName) string { return about(result) + thenRun(of) }

// cannotRun is the error of an operation when phase two could not even look.
func cannotRun(of types.NamespacedName, err error) string {
	return fmt.Sprintf("phase two of restore %s cannot run: %v", of.Name, err) + thenRun(of)
}

// notYet tells an error that may go away by itself.
func notYet(err error) string { return fmt.Sprintf("not yet: %v", err) }

// heldForPerson is the sentence of WaitForPerson.
func heldForPerson(why string) string { return fmt.Sprintf("held for a person to resume (%s)", why) }

// Why nobody takes the steps.

func restoreHasEnded(r *velerov1.Restore) string {
	return fmt.Sprintf("restore %s has ended: %s", r.Name, r.Status.Phase)
}

func restoreIsGone(of types.NamespacedName) string {
	return fmt.Sprintf("restore %s does not exist any more", of)
}

// What does not fit together.

const heldWithoutPods = "no detached pod is left, and nobody brings it back"

func restoreIsReplaced(of types.NamespacedName) string {
	return fmt.Sprintf("there is another restore %s now: the one that made the marks does not exist any more", of)
}

func podsAlone(dc types.NamespacedName) string {
	if dc.Name == "" {
		return "its detached pods do not say which DeploymentConfig they belong to"
	}
	return "its detached pods have no DeploymentConfig"
}

func recordWithoutMark() string {
	return fmt.Sprintf("its original replicas and paused are recorded, but it does not carry the label %s, so nothing brings it back",
		contract.ReplicasModifiedLabel)
}

// timeIsUp goes to the log of a cancelled operation; brokenOff makes the sentence of its event.
func timeIsUp(of types.NamespacedName) string {
	return "The time of the restore's operations is up; everything stays as it is" + thenRun(of)
}

func brokenOff(sentence string) string { return "its time is up: " + sentence }

// The events on a DeploymentConfig.

func held(s State) note {
	until := "which resumes it when its data and hooks are done"
	if s.Undriven != "" {
		until = "until a person resumes it"
	}
	return note{corev1.EventTypeNormal, HeldReason, fmt.Sprintf("Held at 0 replicas by restore %s, %s", s.Restore.Name, until)}
}

func resumed(s State, result Result) note {
	return note{corev1.EventTypeNormal, ResumedReason, fmt.Sprintf("Resumed after restore %s: %s", s.Restore.Name, result.Sentence())}
}

func failed(s State, result Result) note {
	return note{corev1.EventTypeWarning, FailedReason, fmt.Sprintf("Restore %s does not resume it: %s", s.Restore.Name, result.Sentence()) +
		thenRun(s.Restore.NamespacedName)}
}

// count puts a number before the singular or the plural.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
