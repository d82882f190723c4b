package recipe

import (
	"encoding/json"
	"fmt"
	"os" //nolint:depguard // for os.Expand, which does no I/O: it is the very function that Ramen calls
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Expand returns the spec of a Recipe as Ramen uses it with the parameters of a VRG (Ramen internal/controller/vrg_recipe.go,
// RecipeParametersExpand): in the spec's JSON, each $NAME and ${NAME} is replaced by the parameter's values, joined with
// `","`, and the outcome is read as JSON again. So in a list, the string "$NAME" becomes one string for each value; anywhere
// else two values are an error, as is every value that is no JSON string content. A name without a parameter is replaced by
// nothing, shell variables included, and there is no escape.
//
// Only for looking at a Recipe: a backup takes the Recipe and the parameters as they are. spec is not changed.
func Expand(spec map[string]any, parameters map[string][]string) (map[string]any, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write the spec as JSON: %w", err)
	}
	text := os.Expand(string(data), func(name string) string { return strings.Join(parameters[name], `","`) })
	var expanded map[string]any
	if err := utiljson.Unmarshal([]byte(text), &expanded); err != nil {
		return nil, fmt.Errorf("read the expanded spec: %w", err)
	}
	return expanded, nil
}

// variables returns the names that Expand would replace in a string of the spec, in their order and with repetitions. open is
// true when the string ends within `${`: Expand then reads on, into what follows the string.
func variables(text string) (names []string, open bool) {
	names = namesIn(text)
	return names, len(namesIn(text+`"}`)) > len(names)
}

func namesIn(text string) (names []string) {
	os.Expand(text, func(name string) string {
		names = append(names, name)
		return ""
	})
	return names
}
