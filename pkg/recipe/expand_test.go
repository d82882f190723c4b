package recipe_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// The rows are what Ramen makes of these, seen by running its expansion.
func TestExpand(t *testing.T) {
	t.Parallel()
	list := func(items ...any) map[string]any { return map[string]any{"x": items} }
	text := func(s string) map[string]any { return map[string]any{"x": s} }
	ns := map[string][]string{"ns": {"a", "b"}, "one": {"a"}, "none": {}}
	tests := map[string]struct {
		spec       map[string]any
		parameters map[string][]string
		want       map[string]any
		fails      string
	}{
		"a list takes all values":                   {spec: list("$ns"), parameters: ns, want: list("a", "b")},
		"with braces too":                           {spec: list("${ns}"), parameters: ns, want: list("a", "b")},
		"between other items":                       {spec: list("x", "$ns", "y"), parameters: ns, want: list("x", "a", "b", "y")},
		"part of an item: it is cut":                {spec: list("p-$ns-s"), parameters: ns, want: list("p-a", "b-s")},
		"one value fits anywhere":                   {spec: text("p-${one}-s"), parameters: ns, want: text("p-a-s")},
		"two values do not fit a string":            {spec: text("$ns"), parameters: ns, fails: "read the expanded spec: invalid character"},
		"no value leaves an empty string":           {spec: list("$none"), parameters: ns, want: list("")},
		"no parameter leaves an empty string":       {spec: list("$undefined"), want: list("")},
		"a shell variable is lost":                  {spec: text("mysql -p$MYSQL_ROOT_PASSWORD -e x"), want: text("mysql -p -e x")},
		"a positional one too":                      {spec: text("a $1 b"), want: text("a  b")},
		"and a reference of Fusion":                 {spec: text("${GROUP.x.namespace}"), want: text("")},
		"a dollar is no escape":                     {spec: text("$$one"), parameters: ns, want: text("one")},
		"what is no name stays":                     {spec: text("{$.spec.replicas} == {$.status.readyReplicas} $(date) $"), want: text("{$.spec.replicas} == {$.status.readyReplicas} $(date) $")},
		"a quote in a value breaks it":              {spec: text("$q"), parameters: map[string][]string{"q": {`a"b`}}, fails: "read the expanded spec: invalid character"},
		"a quote in a value adds a field":           {spec: list("$q"), parameters: map[string][]string{"q": {`a"],"y":["b`}}, want: map[string]any{"x": []any{"a"}, "y": []any{"b"}}},
		"an open brace eats what follows":           {spec: map[string]any{"x": "${one", "y": map[string]any{}}, parameters: ns, fails: "read the expanded spec: "},
		"numbers stay whole":                        {spec: map[string]any{"x": int64(9007199254740993)}, want: map[string]any{"x": int64(9007199254740993)}},
		"field names are replaced as well":          {spec: map[string]any{"$one": "x"}, parameters: ns, want: map[string]any{"a": "x"}},
		"a value is not looked at again":            {spec: text("$again"), parameters: map[string][]string{"again": {"$ns"}, "ns": {"x"}}, want: text("$ns")},
		"no spec":                                   {spec: nil, want: nil},
		"characters that JSON of Go writes escaped": {spec: text("<&>\u2028"), want: text("<&>\u2028")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, err := json.Marshal(tc.spec)
			require.NoError(t, err)
			got, err := recipe.Expand(tc.spec, tc.parameters)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, cmp.Diff(tc.want, got))
			after, err := json.Marshal(tc.spec)
			require.NoError(t, err)
			require.JSONEq(t, string(before), string(after), "the spec was changed")
		})
	}
	_, err := recipe.Expand(map[string]any{"no": func() {}}, nil)
	require.ErrorContains(t, err, "write the spec as JSON: ")
}

// Without a dollar in the spec, expansion changes nothing; with any, it gives a spec or an error.
func FuzzExpand(f *testing.F) {
	f.Add([]byte(`{"groups":[{"includedNamespaces":["$ns"]}]}`), "ns", "a", "b")
	f.Add([]byte(`{"x":"${ns"}`), "ns", "a", `"`)
	f.Add([]byte(`{"x":"${}$$$"}`), "", "", "")
	f.Add([]byte(`{"x":1.5,"y":null,"z":[true,{}]}`), "x", "\\", "\n")
	f.Fuzz(func(t *testing.T, data []byte, name, first, second string) {
		spec := decode(data)
		if spec == nil {
			t.Skip("no JSON object")
		}
		before := testkit.Unstructured(spec).Object
		expanded, err := recipe.Expand(spec, map[string][]string{name: {first, second}})
		if diff := cmp.Diff(before, testkit.Unstructured(spec).Object); diff != "" {
			t.Errorf("the spec was changed:\n%s", diff)
		}
		if err == nil && !strings.Contains(string(data), "$") && !strings.Contains(string(data), `\u0024`) {
			if diff := cmp.Diff(before, testkit.Unstructured(expanded).Object); diff != "" {
				t.Errorf("nothing was to be expanded:\n%s", diff)
			}
		}
	})
}

// decode returns the JSON object in data, nil for what is none.
func decode(data []byte) map[string]any {
	var object map[string]any
	if json.Unmarshal(data, &object) != nil {
		return nil
	}
	return object
}
