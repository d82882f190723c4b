package ramen

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Names that Ramen uses.
const (
	// OpsNamespace is where the VolumeReplicationGroups of discovered applications are, on clusters other than OpenShift.
	OpsNamespace = "ramen-ops"
	// CreatedByRamen is the label of what Ramen makes itself, with the value "true".
	CreatedByRamen = "ramendr.openshift.io/created-by-ramen"
	// VRGFinalizer is what Ramen puts on a VolumeReplicationGroup that it looks after.
	VRGFinalizer = "volumereplicationgroups.ramendr.openshift.io/vrg-protection"
)

// The kinds.
var (
	groupVersion = schema.GroupVersion{Group: "ramendr.openshift.io", Version: "v1alpha1"}
	// RecipeKind is a Recipe's.
	RecipeKind = groupVersion.WithKind("Recipe")
	// VRGKind is a VolumeReplicationGroup's.
	VRGKind = groupVersion.WithKind("VolumeReplicationGroup")
	// FusionKind is that of IBM Fusion's Recipes.
	FusionKind = schema.GroupVersionKind{Group: "spp-data-protection.isf.ibm.com", Version: "v1alpha1", Kind: "Recipe"}
)

// Recipe makes a Recipe from its spec in YAML. It panics if that is no YAML object: it is a test's own text.
func Recipe(namespace, name, spec string) *unstructured.Unstructured {
	return object(RecipeKind, namespace, name, spec)
}

// FusionRecipe makes a Recipe of IBM Fusion's.
func FusionRecipe(namespace, name, spec string) *unstructured.Unstructured {
	return object(FusionKind, namespace, name, spec)
}

// VRG makes a VolumeReplicationGroup, primary and without an action, from its kubeObjectProtection in YAML. It panics if that
// is no YAML object.
func VRG(namespace, name, kubeObjectProtection string) *unstructured.Unstructured {
	vrg := object(VRGKind, namespace, name, `
pvcSelector: {matchLabels: {app: shop}}
replicationState: primary
s3Profiles: [minio-on-hub]
async: {schedulingInterval: 5m}
`)
	Set(vrg, fromYAML(kubeObjectProtection), "spec", "kubeObjectProtection")
	return vrg
}

// Set sets a field. It panics where a parent of it is no object.
func Set(object *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		panic(err)
	}
}

func object(kind schema.GroupVersionKind, namespace, name, spec string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	Set(object, fromYAML(spec), "spec")
	return object
}

func fromYAML(text string) map[string]any {
	// With the numbers that JSON from an API server gives: int64.
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(fmt.Errorf("%w in\n%s", err, text))
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Text","text":` + string(content) + `}`)); err != nil {
		panic(fmt.Errorf("%w in\n%s", err, text))
	}
	value, found, err := unstructured.NestedMap(object.Object, "text")
	if err != nil || !found {
		panic(fmt.Errorf("no object (%w) in\n%s", err, text))
	}
	return value
}
