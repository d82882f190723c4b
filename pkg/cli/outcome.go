package cli

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

// Outcome says how a run ended for one DeploymentConfig.
type Outcome string

// The outcomes.
const (
	// Resumed: it has its replicas and paused back.
	Resumed Outcome = "resumed"
	// PodsDeleted: its detached pods are gone. It was not held, and stays as it is.
	PodsDeleted Outcome = "pods-deleted"
	// Reattached: the restore did not bring it, so its pods are as they were in the backup.
	Reattached Outcome = "reattached"
	// NothingToDo: somebody else, Velero perhaps, did the last step meanwhile.
	NothingToDo Outcome = "nothing-to-do"
	// Failed: it stays as it is until somebody puts right what the message names.
	Failed Outcome = "failed"
	// NotFinished: the run ended before it did.
	NotFinished Outcome = "not-finished"
	// Planned: nothing was tried (--dry-run).
	Planned Outcome = "planned"
)

// Output is what `post-restore -o json` and `-o yaml` print. Scripts rely on it: fields are added, never renamed.
type Output struct {
	// Restore is the name of the Restore.
	Restore string `json:"restore"`
	// Namespace is the Restore's: Velero's.
	Namespace string `json:"namespace"`
	// Results are in the order of namespaces and names. Empty means that nothing is held for the restore.
	Results []OutputResult `json:"results"`
}

// OutputResult is about one DeploymentConfig.
type OutputResult struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Result    Outcome `json:"result"`
	// Step is what would be done first. With --dry-run only.
	Step postrestore.Action `json:"step,omitempty"`
	// Pods are its detached pods, as last seen; none when they are gone.
	Pods *OutputPods `json:"pods,omitempty"`
	// LostVolumes are those whose restore failed and that are given up (--accept-data-loss): pod/volume or pod/claim.
	LostVolumes []string `json:"lostVolumes,omitempty"`
	// Hooks says that an exec hook of its pods failed or may not have run.
	Hooks string `json:"hooks,omitempty"`
	// Message says in words how far it is or what is wrong.
	Message string `json:"message"`
}

// OutputPods counts detached pods.
type OutputPods struct {
	// Initialized have all their data.
	Initialized int `json:"initialized"`
	Total       int `json:"total"`
}

// outputOf turns the report of a run, or of a plan, into what is printed.
func outputOf(restore types.NamespacedName, report postrestore.Report, planned bool) Output {
	output := Output{Restore: restore.Name, Namespace: restore.Namespace, Results: []OutputResult{}}
	for _, result := range report.Results {
		entry := OutputResult{
			Namespace: result.Name.Namespace, Name: result.Name.Name,
			Result: outcomeOf(result), LostVolumes: result.LostVolumes, Hooks: result.HookNote, Message: result.Sentence(),
		}
		if planned {
			entry.Result, entry.Step, entry.LostVolumes = Planned, result.Step.Action, result.Step.LostVolumes
		}
		if result.Step.Total > 0 {
			entry.Pods = &OutputPods{Initialized: result.Step.Initialized, Total: result.Step.Total}
		}
		output.Results = append(output.Results, entry)
	}
	return output
}

func outcomeOf(result postrestore.Result) Outcome {
	switch {
	case result.Failed():
		return Failed
	case !result.Ended():
		return NotFinished
	case result.Did == postrestore.Finish:
		return Resumed
	case result.Did == postrestore.Reattach:
		return Reattached
	case result.Did == postrestore.DeletePods && !result.Held:
		return PodsDeleted
	default:
		return NothingToDo
	}
}

// count returns how many results are of an outcome.
func (o Output) count(outcome Outcome) int {
	return o.countBy(func(r OutputResult) bool { return r.Result == outcome })
}

// stopped returns how many results of a plan cannot be brought back as things are.
func (o Output) stopped() int {
	return o.countBy(func(r OutputResult) bool { return r.Step == postrestore.Stop })
}

func (o Output) countBy(test func(OutputResult) bool) int {
	n := 0
	for _, result := range o.Results {
		if test(result) {
			n++
		}
	}
	return n
}

// exitCode is that of a run with these results, or of a plan: a plan that stops at a DeploymentConfig has failed.
func (o Output) exitCode() int {
	switch {
	case o.count(Failed)+o.stopped() > 0:
		return ExitFailed
	case o.count(NotFinished) > 0:
		return ExitNotFinished
	default:
		return ExitDone
	}
}
