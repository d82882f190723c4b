package recipe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestReferenceOf(t *testing.T) {
	t.Parallel()
	const protection, ref = "kubeObjectProtection", "recipeRef"
	vrg := func() *testkit.Ramen { return testkit.MakeVRG("ramen-ops", "v") }
	tests := map[string]struct {
		vrg   *testkit.Ramen
		want  recipe.Reference
		none  bool
		fails string
	}{
		"a Recipe of another namespace":                {vrg: vrg().RecipeRef("app", "r"), want: recipe.Reference{Key: key("app", "r")}},
		"a Recipe of its own namespace":                {vrg: vrg().RecipeRef("ramen-ops", "r"), want: recipe.Reference{Key: key("ramen-ops", "r")}},
		"no namespace: its own":                        {vrg: vrg().RecipeRef("", "r"), want: recipe.Reference{Key: key("ramen-ops", "r"), NamespaceOmitted: true}},
		"an empty namespace: its own":                  {vrg: vrg().Field(map[string]any{"name": "r", "namespace": ""}, "spec", protection, ref), want: recipe.Reference{Key: key("ramen-ops", "r"), NamespaceOmitted: true}},
		"an empty reference names nothing":             {vrg: vrg().Field(map[string]any{}, "spec", protection, ref), want: recipe.Reference{Key: key("ramen-ops", ""), NamespaceOmitted: true}},
		"a namespace without a name":                   {vrg: vrg().Field(map[string]any{"namespace": "app"}, "spec", protection, ref), want: recipe.Reference{Key: key("app", "")}},
		"fields of 2023 beside the name":               {vrg: vrg().Field(map[string]any{"name": "r", "captureWorkflowName": "c", "volumeGroupName": "v"}, "spec", protection, ref), want: recipe.Reference{Key: key("ramen-ops", "r"), NamespaceOmitted: true}},
		"the shape of 2022":                            {vrg: vrg().Field(map[string]any{"name": "r", "workflow": map[string]any{"captureName": "c"}}, "spec", protection, "recipe"), want: recipe.Reference{Key: key("ramen-ops", "r"), Legacy: true}},
		"both shapes: the new one counts":              {vrg: vrg().RecipeRef("app", "r").Field(map[string]any{"name": "old"}, "spec", protection, "recipe"), want: recipe.Reference{Key: key("app", "r")}},
		"no kube object protection":                    {vrg: vrg(), none: true},
		"protection without a Recipe":                  {vrg: vrg().Field("5m", "spec", protection, "captureInterval"), none: true},
		"null instead of protection":                   {vrg: vrg().Field(nil, "spec", protection), none: true},
		"null instead of a reference":                  {vrg: vrg().Field(nil, "spec", protection, ref), none: true},
		"no spec":                                      {vrg: vrg().NoField("spec"), none: true},
		"a spec that is a list":                        {vrg: vrg().Field([]any{}, "spec"), fails: "spec is []interface {}, not an object"},
		"protection that is a string":                  {vrg: vrg().Field("x", "spec", protection), fails: "spec.kubeObjectProtection is string, not an object"},
		"a reference that is a string":                 {vrg: vrg().Field("r", "spec", protection, ref), fails: "spec.kubeObjectProtection.recipeRef is string, not an object"},
		"a name that is a number":                      {vrg: vrg().Field(map[string]any{"name": int64(7)}, "spec", protection, ref), fails: "spec.kubeObjectProtection.recipeRef.name is int64, not a string"},
		"a namespace that is a list":                   {vrg: vrg().Field(map[string]any{"name": "r", "namespace": []any{"app"}}, "spec", protection, ref), fails: "spec.kubeObjectProtection.recipeRef.namespace is []interface {}, not a string"},
		"the shape of 2022, of the wrong type":         {vrg: vrg().Field([]any{"r"}, "spec", protection, "recipe"), fails: "spec.kubeObjectProtection.recipe is []interface {}, not an object"},
		"the shape of 2022, its name of a wrong type":  {vrg: vrg().Field(map[string]any{"name": true}, "spec", protection, "recipe"), fails: "spec.kubeObjectProtection.recipe.name is bool, not a string"},
		"the shape of 2022 has no namespace to follow": {vrg: vrg().Field(map[string]any{"name": "r", "namespace": "app"}, "spec", protection, "recipe"), want: recipe.Reference{Key: key("ramen-ops", "r"), Legacy: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := tc.vrg.Obj()
			got, ok, err := recipe.ReferenceOf(object)
			if tc.fails != "" {
				require.EqualError(t, err, tc.fails)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.fails == "" && !tc.none, ok)
			require.Equal(t, tc.want, got)
			require.Empty(t, cmp.Diff(tc.vrg.Obj().Object, object.Object), "the VRG was changed")
		})
	}
}

func TestBuiltIn(t *testing.T) {
	t.Parallel()
	admin := []string{"ramen-ops", "openshift-dr-ops"}
	tests := map[string]struct {
		reference recipe.Reference
		want      bool
	}{
		"in Ramen's own namespace":              {recipe.Reference{Key: key("openshift-dr-ops", "vm-recipe")}, true},
		"of that name in another namespace":     {recipe.Reference{Key: key("app", "vm-recipe")}, false},
		"another one in Ramen's own namespace":  {recipe.Reference{Key: key("ramen-ops", "r")}, false},
		"Ramen compares the namespace as it is": {recipe.Reference{Key: key("ramen-ops", "vm-recipe"), NamespaceOmitted: true}, false},
	}
	for name, tc := range tests {
		require.Equal(t, tc.want, tc.reference.BuiltIn(admin), name)
	}
}

func TestParametersOf(t *testing.T) {
	t.Parallel()
	raw := func(value any) *testkit.Ramen {
		return testkit.MakeVRG("ramen-ops", "v").Field(value, "spec", "kubeObjectProtection", "recipeParameters")
	}
	tests := map[string]struct {
		vrg   *testkit.Ramen
		want  map[string][]string
		fails string
	}{
		"none":                 {vrg: testkit.MakeVRG("ramen-ops", "v")},
		"null":                 {vrg: raw(nil)},
		"lists":                {vrg: raw(map[string]any{"ns": []any{"a", "b"}, "one": []any{"x"}}), want: map[string][]string{"ns": {"a", "b"}, "one": {"x"}}},
		"an empty list":        {vrg: raw(map[string]any{"ns": []any{}}), want: map[string][]string{"ns": {}}},
		"null for a list":      {vrg: raw(map[string]any{"ns": nil}), want: map[string][]string{"ns": {}}},
		"a list instead":       {vrg: raw([]any{"a"}), fails: "spec.kubeObjectProtection.recipeParameters is []interface {}, not an object"},
		"a string for a list":  {vrg: raw(map[string]any{"ns": "a"}), fails: "spec.kubeObjectProtection.recipeParameters.ns is string, not a list of strings"},
		"a number in the list": {vrg: raw(map[string]any{"ns": []any{"a", int64(1)}}), fails: "spec.kubeObjectProtection.recipeParameters.ns[1] is int64, not a string"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := recipe.ParametersOf(tc.vrg.Obj())
			if tc.fails != "" {
				require.EqualError(t, err, tc.fails)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, got)
		})
	}
}
