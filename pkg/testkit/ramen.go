package testkit

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// ClusterUID is the UID of kube-system in the cluster of MakeKubeSystem.
const ClusterUID types.UID = "uid-of-cluster-a"

// BackupNamed returns a Backup of VeleroNamespace with the UID `uid-of-<name>`, InProgress since Epoch, of everything. Go on
// with the methods of Velero's builder.
func BackupNamed(name string) *builder.BackupBuilder {
	return builder.ForBackup(VeleroNamespace, name).
		ObjectMeta(builder.WithUID("uid-of-" + name)).
		Phase(velerov1.BackupPhaseInProgress).
		StartTimestamp(Epoch.Time)
}

// MakeKubeSystem returns the namespace that tells clusters apart.
func MakeKubeSystem() *unstructured.Unstructured {
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName("kube-system")
	namespace.SetUID(ClusterUID)
	return namespace
}

// Ramen builds an object of Ramen's API, or a CRD.
type Ramen struct{ object unstructured.Unstructured }

// MakeVRG returns a primary VRG as Ramen's users write it, without kube object protection.
func MakeVRG(namespace, name string) *Ramen {
	return makeRamen(contract.RamenGroup+"/"+contract.RamenVersion, contract.VRGKind, namespace, name).
		Field("primary", "spec", "replicationState").
		Field(map[string]any{"matchLabels": map[string]any{"app": name}}, "spec", "pvcSelector").
		Field([]any{"s3-east", "s3-west"}, "spec", "s3Profiles").
		Field(map[string]any{"schedulingInterval": "5m"}, "spec", "async")
}

// MakeRecipe returns a Recipe that Ramen can run: a group, a volume group and an exec hook, in workflows `backup` and `restore`.
func MakeRecipe(namespace, name string) *Ramen {
	return makeRamen(contract.RamenGroup+"/"+contract.RamenVersion, contract.RecipeKind, namespace, name).
		Field(name, "spec", "appType").
		Field(map[string]any{"name": "volumes", "type": "volume", "includedNamespaces": []any{namespace}}, "spec", "volumes").
		Field([]any{map[string]any{"name": "config", "type": "resource", "backupRef": "config", "includedNamespaces": []any{namespace}}}, "spec", "groups").
		Field([]any{map[string]any{
			"name": "db", "namespace": namespace, "type": "exec", "labelSelector": map[string]any{"matchLabels": map[string]any{"app": "db"}},
			"ops": []any{map[string]any{"name": "quiesce", "command": "sync", "timeout": int64(30)}},
		}}, "spec", "hooks").
		Field([]any{
			map[string]any{"name": "backup", "sequence": []any{map[string]any{"hook": "db/quiesce"}, map[string]any{"group": "config"}}},
			map[string]any{"name": "restore", "sequence": []any{map[string]any{"group": "config"}}},
		}, "spec", "workflows")
}

// MakeRecipeCRD returns the CRD of Recipes as an API server has it that serves them. Its schema accepts everything.
func MakeRecipeCRD() *Ramen { return makeCRD(contract.RecipeResource, "recipe", contract.RecipeKind) }

// MakeVRGCRD returns the CRD of VRGs as an API server has it that serves them. Its schema accepts everything.
func MakeVRGCRD() *Ramen {
	return makeCRD(contract.VRGResource, "volumereplicationgroup", contract.VRGKind)
}

func makeCRD(plural, singular, kind string) *Ramen {
	return makeRamen(contract.CRDGroup+"/"+contract.CRDVersion, contract.CRDKind, "", plural+"."+contract.RamenGroup).
		Field(contract.RamenGroup, "spec", "group").
		Field("Namespaced", "spec", "scope").
		Field(map[string]any{"plural": plural, "singular": singular, "kind": kind, "listKind": kind + "List"}, "spec", "names").
		Field([]any{map[string]any{
			"name": contract.RamenVersion, "served": true, "storage": true,
			"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			"subresources": map[string]any{"status": map[string]any{}},
		}}, "spec", "versions").
		Condition("NamesAccepted", true).
		Condition("Established", true)
}

func makeRamen(apiVersion, kind, namespace, name string) *Ramen {
	r := &Ramen{object: unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{}}}}
	if namespace != "" {
		r.object.SetNamespace(namespace)
	}
	r.object.SetName(name)
	r.object.SetUID(types.UID("uid-of-" + namespace + "-" + name))
	r.object.SetGeneration(1)
	r.object.SetResourceVersion("1")
	r.object.SetCreationTimestamp(Epoch)
	return r
}

// Obj returns a copy of what was built.
func (r *Ramen) Obj() *unstructured.Unstructured { return r.object.DeepCopy() }

// Copy returns another one, for a test that changes what it shares with others.
func (r *Ramen) Copy() *Ramen { return &Ramen{object: *r.Obj()} }

// Field sets a field, whatever its shape. The value is copied.
func (r *Ramen) Field(value any, path ...string) *Ramen {
	if err := unstructured.SetNestedField(r.object.Object, value, path...); err != nil {
		panic(err) // a mistake of the test
	}
	return r
}

// NoField removes a field.
func (r *Ramen) NoField(path ...string) *Ramen {
	unstructured.RemoveNestedField(r.object.Object, path...)
	return r
}

// RecipeRef makes a VRG refer to a Recipe. An empty namespace is left out.
func (r *Ramen) RecipeRef(namespace, name string) *Ramen {
	ref := map[string]any{"name": name}
	if namespace != "" {
		ref["namespace"] = namespace
	}
	return r.Field(ref, "spec", "kubeObjectProtection", "recipeRef")
}

// Parameter gives a VRG a parameter of its Recipe.
func (r *Ramen) Parameter(name string, values ...string) *Ramen {
	list := make([]any, len(values))
	for i := range values {
		list[i] = values[i]
	}
	return r.Field(list, "spec", "kubeObjectProtection", "recipeParameters", name)
}

// Captured gives a VRG a capture to recover from, begun at a generation of it.
func (r *Ramen) Captured(number, startGeneration int64) *Ramen {
	return r.Field(map[string]any{
		"number": number, "startGeneration": startGeneration, "startTime": "2026-03-01T11:50:00Z", "endTime": "2026-03-01T11:51:00Z",
	}, "status", "kubeObjectProtection", "captureToRecoverFrom")
}

// Generation sets the generation.
func (r *Ramen) Generation(generation int64) *Ramen {
	r.object.SetGeneration(generation)
	return r
}

// Label sets a label.
func (r *Ramen) Label(key, value string) *Ramen {
	r.object.SetLabels(with(r.object.GetLabels(), key, value))
	return r
}

// Annotation sets an annotation.
func (r *Ramen) Annotation(key, value string) *Ramen {
	r.object.SetAnnotations(with(r.object.GetAnnotations(), key, value))
	return r
}

// Finalizer adds a finalizer.
func (r *Ramen) Finalizer(name string) *Ramen {
	r.object.SetFinalizers(append(r.object.GetFinalizers(), name))
	return r
}

// Terminating makes it one that is being deleted; a finalizer keeps it.
func (r *Ramen) Terminating() *Ramen {
	r.object.SetDeletionTimestamp(new(Epoch))
	return r.Finalizer("example.com/keep")
}

// Condition sets a condition of a CRD.
func (r *Ramen) Condition(kind string, met bool) *Ramen {
	status := metav1.ConditionFalse
	if met {
		status = metav1.ConditionTrue
	}
	conditions, _, _ := unstructured.NestedSlice(r.object.Object, "status", "conditions")
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == kind })
	return r.Field(append(conditions, map[string]any{"type": kind, "status": string(status)}), "status", "conditions")
}
