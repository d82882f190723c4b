package recipe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func version(name string, served bool) map[string]any {
	return map[string]any{"name": name, "served": served}
}

func TestCRDIsReadyWhenRecipesCanBeReadAndCreated(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		crd *testkit.Ramen
		why string
	}{
		"as the API server has it":       {crd: testkit.MakeRecipeCRD()},
		"with a newer version beside":    {crd: testkit.MakeRecipeCRD().Field([]any{version("v1", true), version("v1alpha1", true)}, "spec", "versions")},
		"its version is not served":      {crd: testkit.MakeRecipeCRD().Field([]any{version("v1alpha1", false)}, "spec", "versions"), why: "it does not serve v1alpha1 but nothing"},
		"other versions are":             {crd: testkit.MakeRecipeCRD().Field([]any{version("v2", true), version("v1", true)}, "spec", "versions"), why: "it does not serve v1alpha1 but v1, v2"},
		"not established":                {crd: testkit.MakeRecipeCRD().Condition("Established", false), why: "it is not established"},
		"its names are not accepted":     {crd: testkit.MakeRecipeCRD().Condition("NamesAccepted", false), why: "its names are not accepted"},
		"no status yet":                  {crd: testkit.MakeRecipeCRD().NoField("status"), why: "its names are not accepted"},
		"a status of another shape":      {crd: testkit.MakeRecipeCRD().Field("x", "status"), why: "its names are not accepted"},
		"conditions of another shape":    {crd: testkit.MakeRecipeCRD().Field([]any{"Established", map[string]any{"type": int64(1), "status": "True"}}, "status", "conditions"), why: "its names are not accepted"},
		"being deleted":                  {crd: testkit.MakeRecipeCRD().Terminating(), why: "it is being deleted"},
		"versions of another shape":      {crd: testkit.MakeRecipeCRD().Field([]any{"v1alpha1", version("", true)}, "spec", "versions"), why: "it does not serve v1alpha1 but nothing"},
		"no spec":                        {crd: testkit.MakeRecipeCRD().NoField("spec"), why: "it does not serve v1alpha1 but nothing"},
		"terminating is said before all": {crd: testkit.MakeRecipeCRD().Terminating().NoField("status"), why: "it is being deleted"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := tc.crd.Obj()
			crd, err := recipe.CRDOf(object)
			require.NoError(t, err)
			require.Equal(t, "recipes.ramendr.openshift.io", crd.Name)
			require.Len(t, crd.SHA256, 64)
			ready, why := crd.Ready()
			require.Equal(t, tc.why == "", ready)
			require.Equal(t, tc.why, why)
			require.Empty(t, cmp.Diff(tc.crd.Obj().Object, object.Object), "the CRD was changed")
		})
	}
}

func TestCRDOfNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	_, err := recipe.CRDOf(testkit.MakeRecipeCRD().Field("x", "spec").Obj())
	require.EqualError(t, err, "CustomResourceDefinition recipes.ramendr.openshift.io: spec is string, not an object")
	object := testkit.MakeRecipeCRD().Obj()
	object.Object["spec"] = map[string]any{"no": func() {}}
	_, err = recipe.CRDOf(object)
	require.ErrorContains(t, err, "CustomResourceDefinition recipes.ramendr.openshift.io: hash it: ")
}

// The hash stands in backups: another way of making it would report each Recipe as changed.
func TestSHA256(t *testing.T) {
	t.Parallel()
	// printf '{"a":[1,"x"],"b":true}' | sha256sum
	const want = "c817ea2211dc960ff318c03b8414e1c9f63f6010af61d11cca0cf7f920ac9dae"
	for name, value := range map[string]any{
		"in one order":                   map[string]any{"a": []any{int64(1), "x"}, "b": true},
		"in the other":                   map[string]any{"b": true, "a": []any{int64(1), "x"}},
		"a whole number read as a float": map[string]any{"a": []any{float64(1), "x"}, "b": true},
	} {
		got, err := recipe.SHA256(value)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	_, err := recipe.SHA256(func() {})
	require.ErrorContains(t, err, "hash it: ")
}

func TestSHA256OfSpecIsThatOfTheSpecAlone(t *testing.T) {
	t.Parallel()
	of := func(r *testkit.Ramen) string {
		sum, err := recipe.SHA256OfSpec(r.Obj())
		require.NoError(t, err)
		return sum
	}
	require.Equal(t, of(testkit.MakeRecipe("app", "r")), of(testkit.MakeRecipe("app", "r").Generation(9).Label("a", "b").Field("x", "status")))
	require.NotEqual(t, of(testkit.MakeRecipe("app", "r")), of(testkit.MakeRecipe("app", "r").Field("other", "spec", "appType")))
}
