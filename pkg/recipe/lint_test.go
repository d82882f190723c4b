package recipe_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func TestLint(t *testing.T) {
	t.Parallel()
	made := func() *testkit.Ramen { return testkit.MakeRecipe("app", "r") }
	group := func(fields map[string]any) *testkit.Ramen {
		fields["name"] = "config"
		return made().Field([]any{fields}, "spec", "groups")
	}
	command := func(text string) *testkit.Ramen {
		return made().Field([]any{map[string]any{"name": "db", "type": "exec", "ops": []any{map[string]any{"name": "quiesce", "command": text}}}}, "spec", "hooks")
	}
	sequence := func(steps ...any) *testkit.Ramen {
		return made().Field([]any{map[string]any{"name": "restore", "sequence": steps}}, "spec", "workflows")
	}
	hook := func(hook map[string]any, target string) *testkit.Ramen {
		hook["name"] = "h"
		return sequence(map[string]any{"group": "config"}, map[string]any{"hook": target}).Field([]any{hook}, "spec", "hooks")
	}
	const noDefault = "there is no workflow restore: Ramen recovers by its default then, which restores all at once and runs no hook"
	const blanked = " is no parameter of the VRG: Ramen replaces it by nothing, which goes for the shell variables of hook commands too, and cannot be escaped"
	tests := map[string]struct {
		recipe     *testkit.Ramen
		parameters map[string][]string
		want       []string
	}{
		"nothing is wrong": {recipe: made()},
		"parameters that nobody uses are nobody's business": {recipe: made(), parameters: map[string][]string{"STOP_RECIPE_RECONCILE": {"true"}, "more": {"a", "b"}, "none": {}}},
		"a shell variable in a command": {
			recipe: command("mysql -p$MYSQL_ROOT_PASSWORD"),
			want:   []string{"$MYSQL_ROOT_PASSWORD in spec.hooks[0].ops[0].command" + blanked},
		},
		"many places of one name, and a reference of Fusion": {
			recipe: group(map[string]any{"includedNamespaces": []any{"$ns", "$ns", "x", "$ns", "${GROUP.x.namespace}"}, "labelSelector": "$ns$ns"}),
			want: []string{
				"$ns in spec.groups[0].includedNamespaces[0], spec.groups[0].includedNamespaces[1], spec.groups[0].includedNamespaces[3] and 1 more" + blanked,
				"${GROUP.x.namespace} in spec.groups[0].includedNamespaces[4]" + blanked,
			},
		},
		"a variable with a special name": {recipe: command("echo $$ $1 ${a-b}"), want: []string{
			"$$ in spec.hooks[0].ops[0].command" + blanked, "$1 in spec.hooks[0].ops[0].command" + blanked, "${a-b} in spec.hooks[0].ops[0].command" + blanked,
		}},
		"a dollar that is none": {recipe: command("{$.spec.replicas} == $(date) 5$")},
		"all parameters are given": {
			recipe: group(map[string]any{"includedNamespaces": []any{"$ns"}, "backupRef": "${one}"}), parameters: map[string][]string{"ns": {"a", "b"}, "one": {"x"}},
		},
		"several values where one is taken": {
			recipe: group(map[string]any{"backupRef": "$ns"}), parameters: map[string][]string{"ns": {"a", "b"}},
			want: []string{
				"Ramen cannot use it with the parameters of the VRG: read the expanded spec: invalid character ',' after object key",
				"parameter ns has 2 values, and spec.groups[0].backupRef takes one: Ramen cannot read the Recipe then",
			},
		},
		"several values in a part of an item": {
			recipe: group(map[string]any{"includedNamespaces": []any{"x-$ns"}}), parameters: map[string][]string{"ns": {"a", "b"}},
			want: []string{"parameter ns has 2 values and is part of a longer string in spec.groups[0].includedNamespaces[0], which is cut into as many strings"},
		},
		"a parameter without a value": {
			recipe: group(map[string]any{"includedNamespaces": []any{"$ns"}}), parameters: map[string][]string{"ns": {}},
			want: []string{"parameter ns has no value: in spec.groups[0].includedNamespaces[0] stands an empty string then"},
		},
		"a parameter in a field name": {
			recipe: group(map[string]any{"labelSelector": map[string]any{"matchLabels": map[string]any{"$key": "x"}}}), parameters: map[string][]string{"key": {"a", "b"}},
			want: []string{
				"Ramen cannot use it with the parameters of the VRG: read the expanded spec: invalid character ',' after object key",
				"parameter key has 2 values, and spec.groups[0].labelSelector.matchLabels, a field name takes one: Ramen cannot read the Recipe then",
			},
		},
		"values that mean something in JSON": {
			recipe: made(), parameters: map[string][]string{"q": {"a", `b"`}, "back": {`\`}, "line": {"a\nb"}, "plain": {"ä'b"}},
			want: []string{
				"a value of parameter back has a double quote, a backslash or a control character: Ramen puts it into JSON as it is, which breaks the Recipe or adds fields to it",
				"a value of parameter line has a double quote, a backslash or a control character: Ramen puts it into JSON as it is, which breaks the Recipe or adds fields to it",
				"a value of parameter q has a double quote, a backslash or a control character: Ramen puts it into JSON as it is, which breaks the Recipe or adds fields to it",
			},
		},
		"a brace that is not closed": {
			recipe: command("echo ${HOME"),
			want: []string{
				"${ without } in spec.hooks[0].ops[0].command: Ramen reads on to the next } of the Recipe and loses what is between",
				"Ramen cannot use it with the parameters of the VRG: read the expanded spec: invalid character 't' after object key:value pair",
			},
		},
		"a brace at the end": {
			recipe: command("echo ${"),
			want: []string{
				"${ without } in spec.hooks[0].ops[0].command: Ramen reads on to the next } of the Recipe and loses what is between",
				"Ramen cannot use it with the parameters of the VRG: read the expanded spec: invalid character 't' after object key:value pair",
			},
		},
		"a missing group, twice": {
			recipe: sequence(map[string]any{"group": "gone"}, map[string]any{"group": "gone"}), want: []string{`workflow restore names group "gone": the Recipe has no such group`},
		},
		"no workflows": {recipe: made().NoField("spec", "workflows"), want: []string{noDefault}},
		"no restore":   {recipe: made().Field([]any{map[string]any{"name": "backup", "sequence": []any{map[string]any{"group": "config"}}}}, "spec", "workflows"), want: []string{noDefault}},
		"the workflows of 2023": {
			recipe: made().NoField("spec", "workflows").Field(map[string]any{"sequence": []any{}}, "spec", "recoverWorkflow"), want: []string{noDefault},
		},
		"a missing group":                    {recipe: sequence(map[string]any{"group": "gone"}), want: []string{`workflow restore names group "gone": the Recipe has no such group`}},
		"the volume group":                   {recipe: sequence(map[string]any{"group": "volumes"})},
		"a group without a name":             {recipe: sequence(map[string]any{"group": ""}).Field([]any{map[string]any{"name": ""}}, "spec", "groups")},
		"no volume group":                    {recipe: sequence(map[string]any{"group": "gone"}).NoField("spec", "volumes"), want: []string{`workflow restore names group "gone": the Recipe has no such group`}},
		"a missing hook":                     {recipe: sequence(map[string]any{"group": "config"}, map[string]any{"hook": "gone/x"}), want: []string{`workflow restore names hook "gone/x": the Recipe has no such hook`}},
		"a hook without its operation":       {recipe: sequence(map[string]any{"group": "config"}, map[string]any{"hook": "db"}), want: []string{`workflow restore names hook "db": a hook is named <hook>/<operation>`}},
		"an operation of an exec hook":       {recipe: hook(map[string]any{"type": "exec", "ops": []any{map[string]any{"name": "a"}}}, "h/a")},
		"a missing operation":                {recipe: hook(map[string]any{"type": "exec", "ops": []any{map[string]any{"name": "a"}}}, "h/b"), want: []string{`workflow restore names hook "h/b": the hook has no such operation in its ops`}},
		"a check":                            {recipe: hook(map[string]any{"type": "check", "chks": []any{map[string]any{"name": "a"}}}, "h/a")},
		"a missing check":                    {recipe: hook(map[string]any{"type": "check", "ops": []any{map[string]any{"name": "a"}}}, "h/a"), want: []string{`workflow restore names hook "h/a": the hook has no such operation in its chks`}},
		"a job":                              {recipe: hook(map[string]any{"type": "job", "jobs": []any{map[string]any{"name": "a"}}}, "h/a").Field([]any{map[string]any{"a": "kind: Job"}}, "spec", "jobs")},
		"a scale hook has no operations":     {recipe: hook(map[string]any{"type": "scale"}, "h/down")},
		"Ramen reads up to the second slash": {recipe: hook(map[string]any{"type": "exec", "ops": []any{map[string]any{"name": "a"}}}, "h/a/b")},
		"a step of another kind":             {recipe: sequence(map[string]any{"group": "config"}, map[string]any{"workflow": "x"}), want: []string{`workflow restore names workflow "x": a step is a group or a hook`}},
		"a step that is no string":           {recipe: sequence(map[string]any{"group": int64(7)}), want: []string{`workflow restore names group "": the Recipe has no such group`}},
		"a workflow of hooks alone":          {recipe: sequence(map[string]any{"hook": "db/quiesce"}), want: []string{"workflow restore names no group, and Ramen refuses such a workflow"}},
		"a workflow that is empty":           {recipe: sequence(), want: []string{"workflow restore names no group, and Ramen refuses such a workflow"}},
		"names from parameters": {
			recipe: sequence(map[string]any{"group": "$g"}).Field([]any{map[string]any{"name": "${g}"}}, "spec", "groups"), parameters: map[string][]string{"g": {"x"}},
		},
		"no spec":                 {recipe: made().NoField("spec"), want: []string{noDefault}},
		"a spec of another shape": {recipe: made().Field("x", "spec"), want: []string{"spec is string, not an object"}},
		"fields of other shapes": {
			recipe: made().Field("x", "spec", "workflows").Field(int64(1), "spec", "groups").Field([]any{"x"}, "spec", "volumes"), want: []string{noDefault},
		},
		"the command array of 2023": {
			recipe: made().Field([]any{map[string]any{"name": "db", "type": "exec", "ops": []any{map[string]any{"name": "quiesce", "command": []any{"sh", "-c", "$CMD"}}}}}, "spec", "hooks"),
			want:   []string{"$CMD in spec.hooks[0].ops[0].command[2]" + blanked},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := tc.recipe.Obj()
			require.Empty(t, cmp.Diff(tc.want, recipe.Lint(object, tc.parameters)))
			require.Empty(t, cmp.Diff(tc.recipe.Obj().Object, object.Object), "the Recipe was changed")
		})
	}
}

// Each finding is a line in a log that a person reads.
func TestLintEnds(t *testing.T) {
	t.Parallel()
	var items []any
	for i := range 30 {
		items = append(items, fmt.Sprintf("$v%02d", i))
	}
	got := recipe.Lint(testkit.MakeRecipe("app", "r").Field(items, "spec", "volumes", "includedNamespaces").Obj(), nil)
	require.Len(t, got, 20)
	require.Contains(t, got[0], "$v00 in spec.volumes.includedNamespaces[0] ")
	require.Equal(t, "… and 11 more findings", got[19])
}

func FuzzLint(f *testing.F) {
	f.Add([]byte(`{"groups":[{"name":"$g","includedNamespaces":["$ns"]}],"workflows":[{"name":"restore","sequence":[{"group":"$g"}]}]}`), "ns", "secret-a", "secret-b")
	f.Add([]byte(`{"hooks":[{"name":"h","type":"exec","ops":[null,7]}],"workflows":[null,{"sequence":[{"hook":"h/x"},{"hook":"/"}]}]}`), "", "", "")
	f.Add([]byte(`{"workflows":{"a":"${"},"volumes":[{"$a":"$$"}]}`), "a", `"`, "\\")
	f.Fuzz(func(t *testing.T, data []byte, name, first, second string) {
		spec := decode(data)
		if spec == nil {
			t.Skip("no JSON object")
		}
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		before := object.DeepCopy()
		findings := recipe.Lint(object, map[string][]string{name: {"secret-" + first, "secret-" + second}})
		if !slices.IsSorted(findings[:max(0, len(findings)-1)]) || len(findings) > 20 {
			t.Errorf("not sorted, or too many: %q", findings)
		}
		if diff := cmp.Diff(before.Object, object.Object); diff != "" {
			t.Errorf("the Recipe was changed:\n%s", diff)
		}
		if again := recipe.Lint(object, map[string][]string{name: {"secret-" + first, "secret-" + second}}); !slices.Equal(findings, again) {
			t.Errorf("two looks, two opinions: %q, %q", findings, again)
		}
		for _, finding := range findings {
			if strings.Contains(finding, "secret-") && !strings.HasPrefix(finding, "workflow ") && !strings.Contains(string(data)+name, "secret-") {
				t.Errorf("the value of a parameter is in a log: %q", finding)
			}
		}
	})
}
