package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// CRD is what counts of a CustomResourceDefinition.
type CRD struct {
	Name string
	// Served versions, sorted.
	Served []string
	// Established and NamesAccepted are the conditions of these names.
	Established, NamesAccepted bool
	// EstablishedAt is since when it is Established, in whole seconds; its creation where the condition does not say.
	EstablishedAt time.Time
	// Terminating tells that its deletion has begun.
	Terminating bool
	// SHA256 of its spec, see SHA256.
	SHA256 string
}

// CRDOf reads a CustomResourceDefinition (apiextensions.k8s.io/v1). What cannot be read of it counts as absent; the error is
// one of a spec that cannot be JSON.
func CRDOf(object *unstructured.Unstructured) (CRD, error) {
	crd := CRD{Name: object.GetName(), Terminating: object.GetDeletionTimestamp() != nil, EstablishedAt: object.GetCreationTimestamp().Time}
	spec, _, err := mapAt(object.Object, "spec")
	if err != nil {
		return crd, fmt.Errorf("CustomResourceDefinition %s: %w", crd.Name, err)
	}
	for _, version := range objects(spec["versions"]) {
		name, _ := version["name"].(string)
		if served, _ := version["served"].(bool); served && name != "" {
			crd.Served = append(crd.Served, name)
		}
	}
	slices.Sort(crd.Served)
	status, _, _ := mapAt(object.Object, "status") // a status of another shape holds no condition
	for _, condition := range objects(status["conditions"]) {
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Established":
			crd.Established = true
			since, _ := condition["lastTransitionTime"].(string)
			if at, err := time.Parse(time.RFC3339, since); err == nil {
				crd.EstablishedAt = at
			}
		case "NamesAccepted":
			crd.NamesAccepted = true
		}
	}
	if crd.SHA256, err = SHA256(spec); err != nil {
		return crd, fmt.Errorf("CustomResourceDefinition %s: %w", crd.Name, err)
	}
	return crd, nil
}

// Ready tells whether objects of Ramen's version can be read and created, and otherwise why not: it is being deleted, not
// established, its names are not accepted, or the version is not served.
func (c CRD) Ready() (ready bool, reason string) {
	switch {
	case c.Terminating:
		return false, "it is being deleted"
	case !slices.Contains(c.Served, contract.RamenVersion):
		return false, fmt.Sprintf("it does not serve %s but %s", contract.RamenVersion, orNothing(c.Served))
	case !c.NamesAccepted:
		return false, "its names are not accepted"
	case !c.Established:
		return false, "it is not established"
	default:
		return true, ""
	}
}

// SHA256 returns the hash of a value as JSON with sorted keys, in lower-case hexadecimal. Whole numbers count the same
// whether they were decoded as int64 or float64.
func SHA256(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("hash it: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// SHA256OfSpec returns the hash of an object's spec.
func SHA256OfSpec(object *unstructured.Unstructured) (string, error) {
	return SHA256(object.Object["spec"])
}

// objects returns the objects in a list, and leaves out what is none.
func objects(list any) []map[string]any {
	items, _ := list.([]any)
	var found []map[string]any
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			found = append(found, object)
		}
	}
	return found
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
