package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		result postrestore.Result
		want   Outcome
	}{
		"its last step was the finish":                         {postrestore.Result{Step: postrestore.Step{Action: postrestore.Done}, Did: postrestore.Finish, Held: true}, Resumed},
		"it was not held and its pods were deleted":            {postrestore.Result{Step: postrestore.Step{Action: postrestore.Done}, Did: postrestore.DeletePods}, PodsDeleted},
		"its pods were reattached":                             {postrestore.Result{Step: postrestore.Step{Action: postrestore.Done}, Did: postrestore.Reattach}, Reattached},
		"Velero finished it while we waited":                   {postrestore.Result{Step: postrestore.Step{Action: postrestore.Done}, Held: true}, NothingToDo},
		"Velero finished it after we deleted its pods":         {postrestore.Result{Step: postrestore.Step{Action: postrestore.Done}, Did: postrestore.DeletePods, Held: true}, NothingToDo},
		"it has stopped":                                       {postrestore.Result{Step: postrestore.Step{Action: postrestore.Stop}}, Failed},
		"its step was refused":                                 {postrestore.Result{Step: postrestore.Step{Action: postrestore.Scale}, Err: errors.New("forbidden")}, Failed},
		"its step could not be carried out this time":          {postrestore.Result{Step: postrestore.Step{Action: postrestore.Scale}, Retrying: errors.New("conflict")}, NotFinished},
		"its data is on its way":                               {postrestore.Result{Step: postrestore.Step{Action: postrestore.Wait}}, NotFinished},
		"its pods are deleted, its replicas are still to come": {postrestore.Result{Step: postrestore.Step{Action: postrestore.Scale}, Did: postrestore.DeletePods}, NotFinished},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, outcomeOf(tc.result))
		})
	}
}

func TestSentenceOfABrokenOffRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		retrying error
		want     string
	}{
		"nothing is wrong":             {nil, "scaling"},
		"a passing error is told":      {errors.New("conflict"), "scaling: not yet: conflict"},
		"the end of time is told once": {fmt.Errorf("patch: %w", context.DeadlineExceeded), "scaling"},
		"an interruption is told once": {fmt.Errorf("patch: %w", context.Canceled), "scaling"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, postrestore.Result{Step: postrestore.Step{Action: postrestore.Scale, Sentence: "scaling"}, Retrying: tc.retrying}.Sentence())
		})
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	of := func(outcomes ...Outcome) Output {
		var output Output
		for _, outcome := range outcomes {
			output.Results = append(output.Results, OutputResult{Result: outcome})
		}
		return output
	}
	for name, tc := range map[string]struct {
		output Output
		want   int
	}{
		"nothing is held":                        {of(), ExitDone},
		"everything ended well":                  {of(Resumed, PodsDeleted, Reattached, NothingToDo), ExitDone},
		"one is not finished":                    {of(Resumed, NotFinished), ExitNotFinished},
		"one failed":                             {of(Resumed, Failed), ExitFailed},
		"failure counts for more than not ended": {of(NotFinished, Failed, Resumed), ExitFailed},
		"a plan":                                 {of(Planned, Planned), ExitDone},
		"a plan that stops":                      {Output{Results: []OutputResult{{Result: Planned, Step: postrestore.Stop}}}, ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, tc.output.exitCode())
		})
	}
}

func TestOutputOf(t *testing.T) {
	t.Parallel()
	report := postrestore.Report{Results: []postrestore.Result{{
		Name: types.NamespacedName{Namespace: "shop", Name: "web"},
		Step: postrestore.Step{Action: postrestore.DeletePods, Sentence: "deleting\n2 pods", Initialized: 1, Total: 2, LostVolumes: []string{"web-1/data"}},
	}}}
	restore := types.NamespacedName{Namespace: "velero", Name: "monday"}

	planned := outputOf(restore, report, true)
	assert.Equal(t, Output{Restore: "monday", Namespace: "velero", Results: []OutputResult{{
		Namespace: "shop", Name: "web", Result: Planned, Step: postrestore.DeletePods, Message: "deleting\n2 pods",
		Pods: &OutputPods{Initialized: 1, Total: 2}, LostVolumes: []string{"web-1/data"},
	}}}, planned)
	assert.Equal(t, []any{"shop", "web", "planned", "delete-pods", "1/2", "web-1/data", "deleting 2 pods"}, planned.table().Rows[0].Cells)

	run := outputOf(restore, report, false)
	assert.Equal(t, NotFinished, run.Results[0].Result)
	assert.Empty(t, run.Results[0].LostVolumes, "nothing was given up yet")
	assert.Empty(t, run.Results[0].Step)

	assert.NotNil(t, outputOf(restore, postrestore.Report{}, false).Results, "an empty list, not null")
}
