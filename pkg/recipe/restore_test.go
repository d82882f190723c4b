package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// crdOf returns what counts of a CRD.
func crdOf(t *testing.T, crd *testkit.Ramen) *recipe.CRD {
	t.Helper()
	read, err := recipe.CRDOf(crd.Obj())
	require.NoError(t, err)
	return &read
}

func TestMadeByRamen(t *testing.T) {
	t.Parallel()
	require.True(t, recipe.MadeByRamen(testkit.RestoreNamed("r").ObjectMeta(builder.WithLabels("ramendr.openshift.io/created-by-ramen", "true")).Result()))
	require.False(t, recipe.MadeByRamen(testkit.RestoreNamed("r").ObjectMeta(builder.WithLabels("ramendr.openshift.io/created-by-ramen", "false")).Result()))
	require.False(t, recipe.MadeByRamen(testkit.RestoreNamed("r").Result()))
}

func TestIsRamenCRD(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"recipes.ramendr.openshift.io":                        true,
		"volumereplicationgroups.ramendr.openshift.io":        true,
		"recipes.spp-data-protection.isf.ibm.com":             false,
		"drplacementcontrols.ramendr.openshift.io":            false,
		"volumereplicationgroups.replication.storage.example": false,
		"recipes": false,
		"":        false,
	} {
		require.Equal(t, want, recipe.IsRamenCRD(name), name)
	}
}

func TestDecideCRD(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		live    *testkit.Ramen
		verdict disconnect.Verdict
		says    string
	}{
		"the cluster has none: it is restored": {nil, disconnect.Untouched, "the cluster has none"},
		"one that is there stays, whatever its version": {
			testkit.MakeRecipeCRD(), disconnect.Skipped, "must not replace",
		},
		"one that is not established yet stays too": {
			testkit.MakeRecipeCRD().Condition("Established", false), disconnect.Skipped, "must not replace",
		},
		"one that is being deleted is an error": {
			testkit.MakeRecipeCRD().Terminating(), disconnect.Refused, "is being deleted, and all of its objects with it: restore again when it is gone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var live *recipe.CRD
			if tc.live != nil {
				live = crdOf(t, tc.live)
			}
			got := recipe.DecideCRD(live)
			require.Equal(t, tc.verdict, got.Verdict)
			require.Contains(t, got.Reason, tc.says)
			require.Equal(t, tc.verdict == disconnect.Refused, got.Warn)
		})
	}
}

func TestAwaited(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		crd     *testkit.Ramen
		brought bool
		want    bool
	}{
		"one that this restore has created and that does not show yet":  {nil, true, true},
		"one that nobody brings is not worth a wait":                    {nil, false, false},
		"one that is not established":                                   {testkit.MakeRecipeCRD().Condition("Established", false), true, true},
		"one that was there before this restore and is not established": {testkit.MakeRecipeCRD().Condition("Established", false), false, true},
		"one whose names are not accepted yet":                          {testkit.MakeRecipeCRD().Condition("NamesAccepted", false), true, true},
		"one without any status":                                        {testkit.MakeRecipeCRD().NoField("status"), true, true},
		"one that can be used":                                          {testkit.MakeRecipeCRD(), true, false},
		"one that is being deleted never will be":                       {testkit.MakeRecipeCRD().Terminating(), true, false},
		"one that serves no version of ours never will":                 {testkit.MakeRecipeCRD().Field([]any{map[string]any{"name": "v2", "served": true}}, "spec", "versions"), true, false},
		"one that does not serve the version of ours that it has, too":  {testkit.MakeRecipeCRD().Field([]any{map[string]any{"name": "v1alpha1"}}, "spec", "versions"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var crd *recipe.CRD
			if tc.crd != nil {
				crd = crdOf(t, tc.crd)
			}
			require.Equal(t, tc.want, recipe.Awaited(crd, tc.brought))
		})
	}
}

// strictly returns the error of the API server for an object with unknown fields, in its words.
func strictly(fields string) error {
	return fmt.Errorf("get the answer: %w", apierrors.NewBadRequest(
		`Recipe in version "v1alpha1" cannot be handled as a Recipe: strict decoding error: `+fields))
}

func invalid(causes ...metav1.StatusCause) error {
	return fmt.Errorf("get the answer: %w", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: `Recipe.ramendr.openshift.io "r" is invalid: …`,
		Details: &metav1.StatusDetails{Causes: causes},
	}})
}

var errNoDryRun = apierrors.NewBadRequest(`admission webhook "recipes.example.com" does not support dry run`)

func TestMisfit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"no error":                        {nil, ""},
		"no answer at all":                {context.DeadlineExceeded, ""},
		"an unknown field":                {strictly(`unknown field "spec.jobs"`), `unknown field "spec.jobs"`},
		"two of them":                     {strictly(`unknown field "spec.hooks[0].skipHookIfNotPresent", unknown field "spec.jobs"`), `unknown field "spec.hooks[0].skipHookIfNotPresent", unknown field "spec.jobs"`},
		"another bad request":             {apierrors.NewBadRequest("the body is not JSON"), ""},
		"a webhook that knows no dry run": {errNoDryRun, ""},
		"fields of another type and value": {
			invalid(metav1.StatusCause{Field: "spec.hooks[0].ops[0].command", Message: `Invalid value: "array": must be of type string: "array"`},
				metav1.StatusCause{Field: "spec.hooks[0].type", Message: `Unsupported value: "job": supported values: "exec", "scale", "check"`}),
			`spec.hooks[0].ops[0].command: Invalid value: "array": must be of type string: "array"; ` +
				`spec.hooks[0].type: Unsupported value: "job": supported values: "exec", "scale", "check"`,
		},
		"invalid without saying where": {invalid(), `Recipe.ramendr.openshift.io "r" is invalid: …`},
		"invalid without any details": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "it is invalid"}}, "it is invalid",
		},
		"forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "recipes"}, "r", errors.New("no")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, recipe.Misfit(tc.err))
		})
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b any
		want string
	}{
		"the same":                    {testkit.MakeRecipe("app", "r").Obj().Object["spec"], testkit.MakeRecipe("app", "r").Obj().Object["spec"], ""},
		"nothing on both sides":       {nil, nil, ""},
		"a value":                     {map[string]any{"appType": "a"}, map[string]any{"appType": "b"}, "spec.appType"},
		"a field more on the left":    {map[string]any{"a": "x", "b": "y"}, map[string]any{"a": "x"}, "spec.b"},
		"a field more on the right":   {map[string]any{"a": "x"}, map[string]any{"a": "x", "b": "y"}, "spec.b"},
		"a null is as good as absent": {map[string]any{"a": nil}, map[string]any{}, ""},
		"deep in a list": {
			map[string]any{"w": []any{map[string]any{"s": "1"}, map[string]any{"s": "2"}}},
			map[string]any{"w": []any{map[string]any{"s": "1"}, map[string]any{"s": "3"}}},
			"spec.w[1].s",
		},
		"lists of other lengths": {map[string]any{"w": []any{"a"}}, map[string]any{"w": []any{"a", "b"}}, "spec.w"},
		"other shapes":           {map[string]any{"w": []any{}, "x": map[string]any{}, "y": "t"}, map[string]any{"w": map[string]any{}, "x": []any{}, "y": []any{}}, "spec.w, spec.x, spec.y"},
		"a spec that is none":    {"text", map[string]any{}, "spec"},
		"more than are to be read": {
			map[string]any{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}, map[string]any{}, "spec.a, spec.b, spec.c, spec.d, spec.e, and 2 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, recipe.Differences(tc.a, tc.b))
		})
	}
}

func TestPrepareRecipe(t *testing.T) {
	t.Parallel()
	r := testkit.RestoreNamed("r").Result()
	for name, tc := range map[string]struct {
		crd  *testkit.Ramen
		want map[string]string
	}{
		"the cluster has no CRD: it comes first, past the filters": {nil, map[string]string{
			"note": "kept", "oadp.openshift.io/recipe-bundle-restored": "r/uid-of-r", "restore.velero.io/must-include-additional-items": "true",
		}},
		"the cluster has the CRD": {testkit.MakeRecipeCRD(), map[string]string{"note": "kept", "oadp.openshift.io/recipe-bundle-restored": "r/uid-of-r"}},
		"the cluster's CRD is being deleted: nothing can be brought, the gate tells": {
			testkit.MakeRecipeCRD().Terminating(), map[string]string{"note": "kept", "oadp.openshift.io/recipe-bundle-restored": "r/uid-of-r"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var crd *recipe.CRD
			if tc.crd != nil {
				crd = crdOf(t, tc.crd)
			}
			item := testkit.MakeRecipe("app", "r").Annotation("backup.velero.io/must-include-additional-items", "true").Annotation("note", "kept").Obj()
			require.False(t, recipe.IsPrepared(item, r))
			want := item.DeepCopy()
			want.SetAnnotations(tc.want)
			bring, decision := recipe.PrepareRecipe(item, crd, r)
			require.Equal(t, tc.crd == nil, bring)
			require.Equal(t, recipe.Prepared, decision.Verdict)
			require.Empty(t, cmp.Diff(want.Object, item.Object))
			require.True(t, recipe.IsPrepared(item, r))

			recipe.Admit(item)
			want.SetAnnotations(map[string]string{"note": "kept"})
			require.Empty(t, cmp.Diff(want.Object, item.Object), "nothing of it reaches the cluster, also where Velero does not know the annotation")
		})
	}
}

// The mark of another restore, backed up for whatever reason, opens no gate.
func TestIsPreparedByThisRestoreOnly(t *testing.T) {
	t.Parallel()
	item := testkit.MakeRecipe("app", "r").Annotation("oadp.openshift.io/recipe-bundle-restored", "r/uid-of-earlier").Obj()
	require.False(t, recipe.IsPrepared(item, testkit.RestoreNamed("r").Result()))
	require.False(t, recipe.IsPrepared(testkit.MakeRecipe("app", "r").Obj(), &velerov1.Restore{}), "not even with a restore without name and UID")
}

func TestAdmitLeavesNoEmptyAnnotations(t *testing.T) {
	t.Parallel()
	item := testkit.MakeRecipe("app", "r").Obj()
	want := item.DeepCopy()
	recipe.Admit(item)
	require.Empty(t, cmp.Diff(want.Object, item.Object))
	recipe.PrepareRecipe(item, nil, testkit.RestoreNamed("r").Result())
	recipe.Admit(item)
	require.Empty(t, cmp.Diff(want.Object, item.Object))
}

func TestDecideRecipe(t *testing.T) {
	t.Parallel()
	backedUp := func() *testkit.Ramen { return testkit.MakeRecipe("app", "r") }
	stored := func(r *testkit.Ramen) recipe.Trial { return recipe.Trial{Stored: r.Obj()} }
	failed := func(err error) recipe.Trial { return recipe.Trial{Err: err} }
	away := errors.New("dial tcp: connection refused")
	tests := map[string]struct {
		crd     *testkit.Ramen
		live    *testkit.Ramen
		update  bool
		trial   recipe.Trial
		verdict disconnect.Verdict
		warn    bool
		says    string
	}{
		"the cluster has none and takes it": {
			crd: testkit.MakeRecipeCRD(), trial: stored(backedUp()), verdict: recipe.Admitted, says: "its CRD knows all fields of it",
		},
		"the cluster has no CRD": {
			verdict: disconnect.Refused, warn: true, says: "the cluster has no CustomResourceDefinition recipes.ramendr.openshift.io, and this restore has not brought it",
		},
		"the CRD is not established": {
			crd: testkit.MakeRecipeCRD().Condition("Established", false), verdict: disconnect.Refused, warn: true, says: "cannot be used: it is not established",
		},
		"the CRD is being deleted": {
			crd: testkit.MakeRecipeCRD().Terminating(), verdict: disconnect.Refused, warn: true, says: "cannot be used: it is being deleted",
		},
		"T13: the CRD is older and would prune a field": {
			crd: testkit.MakeRecipeCRD(), trial: failed(strictly(`unknown field "spec.jobs"`)), verdict: disconnect.Refused, warn: true,
			says: `recipes.ramendr.openshift.io of the cluster does not know or not allow what the backup has: unknown field "spec.jobs".`,
		},
		"T13: the CRD is newer and a field has another type": {
			crd:   testkit.MakeRecipeCRD(),
			trial: failed(invalid(metav1.StatusCause{Field: "spec.hooks[0].ops[0].command", Message: `Invalid value: "array"`})), verdict: disconnect.Refused, warn: true,
			says: `spec.hooks[0].ops[0].command: Invalid value: "array".`,
		},
		"a webhook is in the way of the dry run": {
			crd: testkit.MakeRecipeCRD(), trial: failed(errNoDryRun), verdict: recipe.Admitted, warn: true, says: "written unchecked",
		},
		"the API server does not answer": {
			crd: testkit.MakeRecipeCRD(), trial: failed(away), verdict: disconnect.Refused, warn: true, says: "cannot be told: dial tcp: connection refused. Restore again",
		},
		"it is there, the same": {
			crd: testkit.MakeRecipeCRD(), live: backedUp(), trial: stored(backedUp()), verdict: disconnect.Skipped, says: "the cluster has one with the same spec",
		},
		"it is there with other metadata: the same": {
			crd: testkit.MakeRecipeCRD(), live: backedUp().Label("ramendr.openshift.io/created-by-ramen", "true").Generation(9), trial: stored(backedUp()),
			verdict: disconnect.Skipped, says: "the cluster has one with the same spec",
		},
		"it is there with the defaults of a newer CRD: the same": {
			crd: testkit.MakeRecipeCRD(), live: backedUp().Field("new", "spec", "defaulted"), trial: stored(backedUp().Field("new", "spec", "defaulted")),
			verdict: disconnect.Skipped, says: "the cluster has one with the same spec",
		},
		"T2: it is there and differs: Velero leaves it and warns": {
			crd: testkit.MakeRecipeCRD(), live: backedUp().Field("other", "spec", "appType"), trial: stored(backedUp()), verdict: recipe.Admitted, warn: true,
			says: "stays as it is, and which differs from that of the backup in spec.appType",
		},
		"it is there with a field more than was backed up": {
			crd: testkit.MakeRecipeCRD(), live: backedUp().Field(int64(900), "spec", "more"), trial: stored(backedUp()), verdict: recipe.Admitted, warn: true, says: "differs from that of the backup in spec.more",
		},
		"it is there, and that of the backup does not fit its CRD: nothing is written, so nothing is refused": {
			crd: testkit.MakeRecipeCRD(), live: backedUp(), trial: failed(strictly(`unknown field "spec.jobs"`)), verdict: recipe.Admitted, warn: true,
			says: "stays as it is; whether it is that of the backup cannot be told",
		},
		"it is there and being deleted": {
			crd: testkit.MakeRecipeCRD(), live: backedUp().Terminating(), trial: stored(backedUp()), verdict: disconnect.Refused, warn: true, says: "restore again when it is gone",
		},
		"policy update: it is there, the same": {
			crd: testkit.MakeRecipeCRD(), live: backedUp(), update: true, trial: stored(backedUp()), verdict: recipe.Admitted, says: "the same spec",
		},
		"policy update: it is there and differs": {
			crd: testkit.MakeRecipeCRD(), live: backedUp().Field("other", "spec", "appType"), update: true, trial: stored(backedUp()), verdict: recipe.Admitted, warn: true,
			says: "is made that of the backup, as the restore's policy for existing resources wants it; it differs in spec.appType",
		},
		"policy update: Velero's patch would be pruned": {
			crd: testkit.MakeRecipeCRD(), live: backedUp(), update: true, trial: failed(strictly(`unknown field "spec.jobs"`)), verdict: disconnect.Refused, warn: true, says: `unknown field "spec.jobs"`,
		},
		"policy update: the API server does not answer": {
			crd: testkit.MakeRecipeCRD(), live: backedUp(), update: true, trial: failed(away), verdict: disconnect.Refused, warn: true, says: "connection refused",
		},
		"policy update: being deleted": {
			crd: testkit.MakeRecipeCRD(), live: backedUp().Terminating(), update: true, trial: stored(backedUp()), verdict: disconnect.Refused, warn: true, says: "being deleted",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := recipe.Candidate{Update: tc.update, Trial: tc.trial}
			if tc.crd != nil {
				facts.CRD = crdOf(t, tc.crd)
			}
			var before *unstructured.Unstructured
			if tc.live != nil {
				facts.Live, before = tc.live.Obj(), tc.live.Obj()
			}
			got := recipe.DecideRecipe(facts)
			require.Equal(t, tc.verdict, got.Verdict, got.Reason)
			require.Equal(t, tc.warn, got.Warn)
			require.Contains(t, got.Reason, tc.says)
			require.Empty(t, cmp.Diff(before, facts.Live))
			ready := false
			if facts.CRD != nil {
				ready, _ = facts.CRD.Ready()
			}
			require.Equal(t, ready, facts.CanTry())
		})
	}
}
