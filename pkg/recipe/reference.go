package recipe

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Reference is what a VRG says of its Recipe.
type Reference struct {
	// Key of the Recipe. The namespace is never empty: where the VRG names none, it is the VRG's own, as Ramen documents
	// (docs/recipe.md). The name is empty where the VRG has a reference that names nothing.
	Key types.NamespacedName
	// NamespaceOmitted tells that the VRG names no namespace. Ramen's code looks such a Recipe up in the namespace "", and so
	// finds none (internal/controller/vrg_recipe.go, RecipeElementsGet).
	NamespaceOmitted bool
	// Legacy tells that the reference is spec.kubeObjectProtection.recipe.name, the field of Ramen's first shape.
	Legacy bool
}

// BuiltIn tells whether the reference is to the Recipe for virtual machines that is part of Ramen, of which there is no
// object: its name in Ramen's own namespace, which is one of adminNamespaces.
func (r Reference) BuiltIn(adminNamespaces []string) bool {
	return r.Key.Name == contract.BuiltInRecipe && !r.NamespaceOmitted && slices.Contains(adminNamespaces, r.Key.Namespace)
}

// ReferenceOf returns the reference of a VRG to its Recipe. ok is false when it has none. A reference of a shape that no
// version of Ramen knows is an error that names the field.
func ReferenceOf(vrg *unstructured.Unstructured) (reference Reference, ok bool, err error) {
	protection, ok, err := mapAt(vrg.Object, "spec", "kubeObjectProtection")
	if err != nil || !ok {
		return Reference{}, false, err
	}
	ref, ok, err := mapAt(protection, "recipeRef")
	field := "spec.kubeObjectProtection.recipeRef."
	if err == nil && !ok {
		// Ramen from 2022-12 to 2023-02, with the Recipe always in the VRG's namespace.
		ref, ok, err = mapAt(protection, "recipe")
		field, reference.Legacy = "spec.kubeObjectProtection.recipe.", ok
	}
	if err != nil || !ok {
		return Reference{}, false, prefixed("spec.kubeObjectProtection.", err)
	}
	if reference.Key.Name, err = stringAt(ref, "name"); err != nil {
		return Reference{}, false, prefixed(field, err)
	}
	if !reference.Legacy {
		if reference.Key.Namespace, err = stringAt(ref, "namespace"); err != nil {
			return Reference{}, false, prefixed(field, err)
		}
	}
	if reference.Key.Namespace == "" {
		reference.Key.Namespace, reference.NamespaceOmitted = vrg.GetNamespace(), !reference.Legacy
	}
	return reference, true, nil
}

// ParametersOf returns the recipeParameters of a VRG, nil when it has none.
func ParametersOf(vrg *unstructured.Unstructured) (map[string][]string, error) {
	const field = "spec.kubeObjectProtection.recipeParameters"
	raw, ok, err := mapAt(vrg.Object, "spec", "kubeObjectProtection", "recipeParameters")
	if err != nil || !ok {
		return nil, err
	}
	parameters := make(map[string][]string, len(raw))
	for name, value := range raw {
		list, isList := value.([]any)
		if !isList && value != nil {
			return nil, fmt.Errorf("%s.%s is %T, not a list of strings", field, name, value)
		}
		values := make([]string, len(list))
		for i := range list {
			if values[i], isList = list[i].(string); !isList {
				return nil, fmt.Errorf("%s.%s[%d] is %T, not a string", field, name, i, list[i])
			}
		}
		parameters[name] = values
	}
	return parameters, nil
}
