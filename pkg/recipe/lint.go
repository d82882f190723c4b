package recipe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxFindings bounds what Lint returns, and maxPlaces the places that one finding names: each finding is a line in a log, and
// a warning of the backup.
const (
	maxFindings = 20
	maxPlaces   = 3
)

// The workflow that Ramen runs to recover (Ramen internal/controller/vrg_kubeobjects.go, getRecoverGroups).
const restoreWorkflow = "restore"

// Lint returns what will go wrong when Ramen uses a Recipe with the parameters of a VRG: sentences without a subject, sorted,
// at most 20. Values of parameters are in them only as names of groups and hooks. nil means that nothing was found; of a Recipe without a spec there
// is nothing to say.
func Lint(recipe *unstructured.Unstructured, parameters map[string][]string) []string {
	spec, _, err := mapAt(recipe.Object, "spec")
	if err != nil {
		return []string{err.Error()}
	}
	var uses usages
	uses.walk("spec", spec, false)
	findings := slices.Concat(uses.findings(parameters), quotes(parameters))
	expanded, err := Expand(spec, parameters)
	if err != nil {
		findings = append(findings, "Ramen cannot use it with the parameters of the VRG: "+err.Error())
		expanded = spec
	}
	findings = append(findings, workflows(expanded)...)
	slices.Sort(findings)
	findings = slices.Compact(findings)
	if more := len(findings) - maxFindings; more > 0 {
		findings = append(findings[:maxFindings-1], fmt.Sprintf("… and %d more findings", more+1))
	}
	return findings
}

// usage is a place where a name is replaced.
type usage struct {
	name, path string
	// list is true when the place is an item of a list, whole when the name is all that stands there.
	list, whole bool
}

// usages are all places of a spec that have a `$`.
type usages struct {
	all []usage
	// open are places with a `${` that is not closed.
	open []string
}

// walk collects the usages in a value and below it. list tells that the value is an item of a list.
func (u *usages) walk(path string, value any, list bool) {
	switch value := value.(type) {
	case string:
		u.text(path, value, list)
	case []any:
		for i := range value {
			u.walk(fmt.Sprintf("%s[%d]", path, i), value[i], true)
		}
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(value)) {
			u.text(path+", a field name", field, false)
			u.walk(path+"."+field, value[field], false)
		}
	}
}

func (u *usages) text(path, text string, list bool) {
	names, open := variables(text)
	for _, name := range names {
		u.all = append(u.all, usage{name: name, path: path, list: list, whole: text == "$"+name || text == "${"+name+"}"})
	}
	if open {
		u.open = append(u.open, path)
	}
}

func (u *usages) findings(parameters map[string][]string) []string {
	var findings []string
	if len(u.open) > 0 {
		findings = append(findings, fmt.Sprintf("${ without } in %s: Ramen reads on to the next } of the Recipe and loses what is between", places(u.open)))
	}
	byName := map[string][]usage{}
	for _, use := range u.all {
		byName[use.name] = append(byName[use.name], use)
	}
	for name, uses := range byName {
		values, given := parameters[name]
		switch {
		case !given:
			findings = append(findings, fmt.Sprintf("%s in %s is no parameter of the VRG: Ramen replaces it by nothing, "+
				"which goes for the shell variables of hook commands too, and cannot be escaped", variable(name), pathsOf(uses, nil)))
		case len(values) == 0:
			findings = append(findings, fmt.Sprintf("parameter %s has no value: in %s stands an empty string then", name, pathsOf(uses, nil)))
		case len(values) > 1:
			findings = append(findings, several(name, len(values), uses)...)
		}
	}
	return findings
}

// several returns what is wrong where a parameter of several values stands: they become several strings only as an item of a
// list.
func several(name string, count int, uses []usage) []string {
	var findings []string
	if scalar := pathsOf(uses, func(u usage) bool { return !u.list }); scalar != "" {
		findings = append(findings, fmt.Sprintf("parameter %s has %d values, and %s takes one: Ramen cannot read the Recipe then", name, count, scalar))
	}
	if cut := pathsOf(uses, func(u usage) bool { return u.list && !u.whole }); cut != "" {
		findings = append(findings, fmt.Sprintf("parameter %s has %d values and is part of a longer string in %s, "+
			"which is cut into as many strings", name, count, cut))
	}
	return findings
}

// quotes returns the parameters with values that mean something in JSON.
func quotes(parameters map[string][]string) []string {
	var findings []string
	for name, values := range parameters {
		if slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, breaksJSON) }) {
			findings = append(findings, fmt.Sprintf("a value of parameter %s has a double quote, a backslash or a control character: "+
				"Ramen puts it into JSON as it is, which breaks the Recipe or adds fields to it", name))
		}
	}
	return findings
}

func breaksJSON(r rune) bool { return r == '"' || r == '\\' || r < ' ' }

// workflows returns what is wrong with the workflows of an expanded spec.
func workflows(spec map[string]any) []string {
	var findings []string
	restores := false
	for _, workflow := range objects(spec["workflows"]) {
		name, _ := workflow["name"].(string)
		restores = restores || name == restoreWorkflow
		groups := 0
		for _, step := range objects(workflow["sequence"]) {
			for _, kind := range slices.Sorted(maps.Keys(step)) {
				target, _ := step[kind].(string)
				if kind == "group" {
					groups++
				}
				if wrong := stepFinding(spec, kind, target); wrong != "" {
					findings = append(findings, fmt.Sprintf("workflow %s names %s %q: %s", name, kind, target, wrong))
				}
			}
		}
		if groups == 0 {
			findings = append(findings, fmt.Sprintf("workflow %s names no group, and Ramen refuses such a workflow", name))
		}
	}
	if !restores {
		findings = append(findings, "there is no workflow restore: Ramen recovers by its default then, which restores all at once and runs no hook")
	}
	return findings
}

// stepFinding returns what is wrong with one step of a workflow, empty when nothing is.
func stepFinding(spec map[string]any, kind, target string) string {
	switch kind {
	case "group":
		volumes, _, _ := mapAt(spec, "volumes") // of another shape, it has no name
		if named(spec["groups"], target) == nil && (volumes == nil || volumes["name"] != target) {
			return "the Recipe has no such group"
		}
	case "hook":
		name, operation, ok := strings.Cut(target, "/")
		if !ok {
			return "a hook is named <hook>/<operation>"
		}
		hook := named(spec["hooks"], name)
		if hook == nil {
			return "the Recipe has no such hook"
		}
		// Where the operations of each type of hook are; a scale hook has none of its own.
		kind, _ := hook["type"].(string)
		field, known := map[string]string{"exec": "ops", "check": "chks", "job": "jobs"}[kind]
		if operation, _, _ = strings.Cut(operation, "/"); known && named(hook[field], operation) == nil {
			return fmt.Sprintf("the hook has no such operation in its %s", field)
		}
	default:
		return "a step is a group or a hook"
	}
	return ""
}

// named returns the object of that name in a list, nil when there is none.
func named(list any, name string) map[string]any {
	for _, object := range objects(list) {
		if found, _ := object["name"].(string); found == name {
			return object
		}
	}
	return nil
}

// pathsOf returns the places of the usages that which accepts (nil: all), empty when there are none.
func pathsOf(uses []usage, which func(usage) bool) string {
	var paths []string
	for _, use := range uses {
		if which == nil || which(use) {
			paths = append(paths, use.path)
		}
	}
	return places(paths)
}

func places(paths []string) string {
	paths = slices.Compact(paths)
	if more := len(paths) - maxPlaces; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:maxPlaces], ", "), more)
	}
	return strings.Join(paths, ", ")
}

// variable returns a name as it is written in a Recipe.
func variable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) && len(name) > 1 {
		return "${" + name + "}"
	}
	return "$" + name
}
