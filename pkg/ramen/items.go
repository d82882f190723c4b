package ramen

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// CRDItem names a CustomResourceDefinition as an additional item of another.
func CRDItem(name string) velero.ResourceIdentifier {
	return velero.ResourceIdentifier{GroupResource: schema.GroupResource{Group: contract.CRDGroup, Resource: contract.CRDResource}, Name: name}
}

// RecipeItem names a Recipe as an additional item of another, by its key in the backup.
func RecipeItem(key types.NamespacedName) velero.ResourceIdentifier {
	return velero.ResourceIdentifier{
		GroupResource: schema.GroupResource{Group: contract.RamenGroup, Resource: contract.RecipeResource},
		Namespace:     key.Namespace, Name: key.Name,
	}
}

// Items names CustomResourceDefinitions and Recipes, in this order, as additional items of another.
func Items(crds []string, recipes []types.NamespacedName) []velero.ResourceIdentifier {
	var items []velero.ResourceIdentifier
	for _, name := range crds {
		items = append(items, CRDItem(name))
	}
	for _, key := range recipes {
		items = append(items, RecipeItem(key))
	}
	return items
}
