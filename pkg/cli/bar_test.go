package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

func TestBar(t *testing.T) {
	t.Parallel()
	step := func(action postrestore.Action, initialized, total int) postrestore.Step {
		return postrestore.Step{Action: action, Initialized: initialized, Total: total}
	}
	for name, tc := range map[string]struct {
		result postrestore.Result
		pods   int // at most, so far
		want   string
	}{
		"nothing is in":                      {postrestore.Result{Step: step(postrestore.Wait, 0, 3), Wanted: 2}, 3, "[------|------|------]"},
		"one of three is initialised":        {postrestore.Result{Step: step(postrestore.Wait, 1, 3), Wanted: 2}, 3, "[##----|------|------]"},
		"all are initialised":                {postrestore.Result{Step: step(postrestore.DeletePods, 3, 3), Wanted: 2}, 3, "[######|------|------]"},
		"two of three are gone":              {postrestore.Result{Step: step(postrestore.WaitShortly, 1, 1), Wanted: 2}, 3, "[######|####--|------]"},
		"all are gone":                       {postrestore.Result{Step: step(postrestore.Scale, 0, 0), Wanted: 2}, 3, "[######|######|------]"},
		"one of two replicas is back":        {postrestore.Result{Step: step(postrestore.WaitShortly, 0, 0), Back: 1, Wanted: 2}, 3, "[######|######|###---]"},
		"almost all is not all":              {postrestore.Result{Step: step(postrestore.WaitShortly, 0, 0), Back: 99, Wanted: 100}, 3, "[######|######|#####-]"},
		"it is back":                         {postrestore.Result{Step: step(postrestore.Done, 0, 0)}, 3, "[######|######|######]"},
		"it stops":                           {postrestore.Result{Step: step(postrestore.Stop, 1, 2), Wanted: 2}, 2, "[###---|------|------]"},
		"it never had pods":                  {postrestore.Result{Step: step(postrestore.Scale, 0, 0), Wanted: 1}, 0, "[######|######|------]"},
		"it is not held: its pods only":      {postrestore.Result{Step: step(postrestore.DeletePods, 1, 1)}, 1, "[######|------|------]"},
		"a pod of another restore was added": {postrestore.Result{Step: step(postrestore.Wait, 1, 2), Wanted: 2}, 2, "[###---|------|------]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, bar(tc.result, tc.pods))
		})
	}
}

func TestBarsOnTerminals(t *testing.T) {
	t.Parallel()
	result := func(name string, action postrestore.Action, sentence string) postrestore.Result {
		return postrestore.Result{Name: types.NamespacedName{Namespace: "shop", Name: name}, Step: postrestore.Step{Action: action, Sentence: sentence, Total: 1}, Wanted: 1}
	}
	report := postrestore.Report{Results: []postrestore.Result{
		result("db", postrestore.Done, "back at 1 replica"), result("web", postrestore.Wait, "0 of 1 detached pod initialised"), result("worker", postrestore.Stop, "pod a cannot start"),
	}}
	const done, stopped, plain = "\x1b[32m", "\x1b[31m", "\x1b[0m"
	for name, tc := range map[string]struct {
		width   int
		noColor string
		want    string
	}{
		"names are padded, and what has ended is coloured": {
			width: 100,
			want: "   0s  shop/db      " + done + "[######|######|######]" + plain + "  back at 1 replica\n" +
				"   0s  shop/worker  " + stopped + "[------|------|------]" + plain + "  pod a cannot start\n" +
				"   0s  shop/web     [------|------|------]  0 of 1 detached pod initialised\n",
		},
		"NO_COLOR": {
			width: 100, noColor: "1",
			want: "   0s  shop/db      [######|######|######]  back at 1 replica\n" +
				"   0s  shop/worker  [------|------|------]  pod a cannot start\n" +
				"   0s  shop/web     [------|------|------]  0 of 1 detached pod initialised\n",
		},
		"as narrow as there is room for a bar": {
			width: 73, noColor: "1",
			want: "   0s  shop/db      [######|######|######]  back at 1 replica\n" +
				"   0s  shop/worker  [------|------|------]  pod a cannot start\n" +
				"   0s  shop/web     [------|------|------]  0 of 1 detached pod initial…\n",
		},
		"narrower: the sentence is worth more than a bar": {
			width: 72,
			want: "   0s  shop/db: back at 1 replica\n" +
				"   0s  shop/worker: pod a cannot start\n" +
				"   0s  shop/web: 0 of 1 detached pod initialised\n",
		},
		"far too narrow": {
			width: 20, want: "   0s  shop/db: ba…\n   0s  shop/worker…\n   0s  shop/web: 0…\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			p := newProgress(surroundings{
				errOut: &out, clock: clock.RealClock{}, screen: func() (int, int, bool) { return tc.width, 24, true },
				getenv: func(key string) string { return map[string]string{"NO_COLOR": tc.noColor}[key] },
			})
			p.observe(report, nil)
			assert.Equal(t, tc.want, out.String())
		})
	}
}
