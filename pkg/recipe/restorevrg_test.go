package recipe_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

const (
	mustIncludeAtBackup  = "backup.velero.io/must-include-additional-items"
	mustIncludeAtRestore = "restore.velero.io/must-include-additional-items"
	ramensFinalizer      = "volumereplicationgroups.ramendr.openshift.io/vrg-protection"

	// bundled is the record of ramen-ops/db, backed up on testkit.ClusterUID with its Recipe app/r; bundledHash its Recipe's.
	bundledHash = "0f3a"
	bundled     = `{"version":1,"outcome":"bundled","recipe":{"namespace":"app","name":"r","uid":"u","generation":3,"resourceVersion":"7","sha256":"0f3a"},` +
		`"crd":{"served":["v1alpha1"],"sha256":"c1"},"vrg":{"generation":5,"asCaptured":true},"cluster":"uid-of-cluster-a","backup":"nightly"}`
	dangling = `{"version":1,"outcome":"dangling","recipe":{"namespace":"app","name":"r"},"vrg":{},"cluster":"uid-of-cluster-a","backup":"nightly"}`
	builtIn  = `{"version":1,"outcome":"builtin","recipe":{"namespace":"elsewhere","name":"vm-recipe"},"vrg":{},"cluster":"uid-of-cluster-a","backup":"nightly"}`
)

var adminNamespaces = []string{"ramen-ops", "openshift-dr-ops"}

// discovered is the VRG of a discovered application as it stands in a backup: in the administrators' namespace, its Recipe in
// the application's, with parameters.
func discovered() *testkit.Ramen {
	return testkit.MakeVRG("ramen-ops", "db").RecipeRef("app", "r").Parameter("ns", "app", "app-data").Parameter("empty").
		Finalizer(ramensFinalizer).Annotation(mustIncludeAtBackup, "true").Annotation(contract.RecipeBundleAnnotation, bundled)
}

func TestParseMode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		data, annotations map[string]string
		want              recipe.Mode
		fails             string
	}{
		"nothing is set: guard":        {want: "guard"},
		"the setting":                  {data: map[string]string{"vrgRestore": "skip", "other": "x"}, want: "skip"},
		"the annotation":               {annotations: map[string]string{"oadp.openshift.io/vrg-restore": "failover"}, want: "failover"},
		"the annotation wins":          {data: map[string]string{"vrgRestore": "skip"}, annotations: map[string]string{"oadp.openshift.io/vrg-restore": "as-is"}, want: "as-is"},
		"the annotation can set guard": {data: map[string]string{"vrgRestore": "as-is"}, annotations: map[string]string{"oadp.openshift.io/vrg-restore": "guard"}, want: "guard"},
		"an unknown setting": {
			data: map[string]string{"vrgRestore": "Failover"}, fails: `setting vrgRestore is "Failover": it is one of "guard", "as-is", "failover" and "skip"`,
		},
		"an unknown setting that an annotation overrides is still a mistake": {
			data: map[string]string{"vrgRestore": "x"}, annotations: map[string]string{"oadp.openshift.io/vrg-restore": "guard"}, fails: `setting vrgRestore is "x"`,
		},
		"an empty annotation": {
			annotations: map[string]string{"oadp.openshift.io/vrg-restore": ""}, fails: `annotation oadp.openshift.io/vrg-restore of the Restore is ""`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := recipe.ParseMode(tc.data, tc.annotations)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestPrepareVRG(t *testing.T) {
	t.Parallel()
	const vrgs, recipes = "volumereplicationgroups.ramendr.openshift.io", "recipes.ramendr.openshift.io"
	tests := map[string]struct {
		vrg         *testkit.Ramen
		has         recipe.VRGNeeds
		crds        []string
		recipe      string
		mustInclude bool
		warn        bool
		says        string
	}{
		"T1: an empty cluster: all three come, CRDs first, past the filters": {
			vrg: discovered(), crds: []string{vrgs, recipes}, recipe: "app/r", mustInclude: true,
			says: "before it come volumereplicationgroups.ramendr.openshift.io, recipes.ramendr.openshift.io, Recipe app/r",
		},
		"T6: the CRDs are there: only the Recipe comes": {
			vrg: discovered(), has: recipe.VRGNeeds{VRGCRD: true, RecipeCRD: true}, recipe: "app/r", mustInclude: true, says: "before it come Recipe app/r",
		},
		"the Recipe is there: it comes all the same, so that Velero tells whether it differs": {
			vrg: discovered(), has: recipe.VRGNeeds{VRGCRD: true, RecipeCRD: true, Recipe: true}, recipe: "app/r", mustInclude: true, says: "Recipe app/r",
		},
		"T3: the backup says that the Recipe was missing: Velero is not asked for it": {
			vrg: discovered().Annotation(contract.RecipeBundleAnnotation, dangling), crds: []string{vrgs}, says: "before it come " + vrgs,
		},
		"without a record the Recipe is asked for where it is missing, and the filters hold": {
			vrg: testkit.MakeVRG("ramen-ops", "db").RecipeRef("app", "r"), crds: []string{vrgs, recipes}, recipe: "app/r", says: "Recipe app/r",
		},
		"without a record nothing is asked for that is there": {
			vrg: testkit.MakeVRG("ramen-ops", "db").RecipeRef("app", "r"), has: recipe.VRGNeeds{VRGCRD: true, RecipeCRD: true, Recipe: true}, says: "nothing has to come before it",
		},
		"a record of another Recipe opens no filter": {
			vrg: discovered().RecipeRef("secret", "r"), has: recipe.VRGNeeds{VRGCRD: true}, says: "nothing has to come",
		},
		"a record that cannot be read counts as none, and is told of": {
			vrg: discovered().Annotation(contract.RecipeBundleAnnotation, `{"version":2}`), has: recipe.VRGNeeds{VRGCRD: true, RecipeCRD: true}, recipe: "app/r", warn: true,
			says: "before it come Recipe app/r; read annotation oadp.openshift.io/recipe-bundle: it was written by a newer version",
		},
		"a VRG without a Recipe needs its own CRD": {vrg: testkit.MakeVRG("ramen-ops", "db"), crds: []string{vrgs}, says: "before it come " + vrgs},
		"Ramen's built-in Recipe is no object, by its record": {
			vrg: testkit.MakeVRG("elsewhere", "vm").RecipeRef("elsewhere", "vm-recipe").Annotation(contract.RecipeBundleAnnotation, builtIn), crds: []string{vrgs}, says: vrgs,
		},
		"Ramen's built-in Recipe is no object, by its namespace": {
			vrg: testkit.MakeVRG("ramen-ops", "vm").RecipeRef("ramen-ops", "vm-recipe"), has: recipe.VRGNeeds{VRGCRD: true}, says: "nothing",
		},
		"a Recipe of that name elsewhere is an object": {
			vrg: testkit.MakeVRG("app", "vm").RecipeRef("app", "vm-recipe"), has: recipe.VRGNeeds{VRGCRD: true, RecipeCRD: true}, recipe: "app/vm-recipe", says: "Recipe app/vm-recipe",
		},
		"the old shape of a reference": {
			vrg:    testkit.MakeVRG("app", "db").Field("r", "spec", "kubeObjectProtection", "recipe", "name"),
			recipe: "app/r", crds: []string{vrgs, recipes}, says: "Recipe app/r",
		},
		"a reference without a namespace": {
			vrg: testkit.MakeVRG("app", "db").RecipeRef("", "r"), has: recipe.VRGNeeds{VRGCRD: true, RecipeCRD: true}, recipe: "app/r", says: "Recipe app/r",
		},
		"a reference that names nothing": {
			vrg: testkit.MakeVRG("app", "db").Field(map[string]any{}, "spec", "kubeObjectProtection", "recipeRef"), has: recipe.VRGNeeds{VRGCRD: true}, says: "nothing",
		},
		"a reference that cannot be read is told of": {
			vrg: testkit.MakeVRG("app", "db").Field("text", "spec", "kubeObjectProtection"), crds: []string{vrgs}, warn: true, says: "spec.kubeObjectProtection is string, not an object",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.has.Backup, tc.has.AdminNamespaces = tc.vrg.Obj(), adminNamespaces
			got := recipe.PrepareVRG(tc.has)
			require.Equal(t, recipe.Prepared, got.Verdict)
			require.Equal(t, tc.crds, got.CRDs)
			key := ""
			if len(got.Recipes) == 1 {
				key = got.Recipes[0].String()
			}
			require.Equal(t, tc.recipe, key)
			require.Equal(t, tc.mustInclude, got.MustInclude)
			require.Equal(t, tc.warn, got.Warn)
			require.Contains(t, got.Reason, tc.says)
			require.Empty(t, cmp.Diff(tc.vrg.Obj(), tc.has.Backup))
		})
	}
}

func TestPreparedVRG(t *testing.T) {
	t.Parallel()
	const provenance = `{"version":1,"backup":"nightly","cluster":"uid-of-cluster-a","outcome":"bundled","recipe":"app/r","generation":3,"sha256":"0f3a","asCaptured":true}`
	prepared := map[string]string{
		contract.RecipeProvenanceAnnotation: provenance, contract.RecipeBundleRestoredAnnotation: "r/uid-of-r", mustIncludeAtRestore: "true",
	}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(prepared)
		maps.Copy(all, more)
		return all
	}
	mapping := func(pairs ...string) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) {
			r.Spec.NamespaceMapping = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				r.Spec.NamespaceMapping[pairs[i]] = pairs[i+1]
			}
		}
	}
	recipeNamespace := func(namespace string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(u.Object, namespace, "spec", "kubeObjectProtection", "recipeRef", "namespace"))
		}
	}
	unchanged := func(*unstructured.Unstructured) {}
	tests := map[string]struct {
		vrg         *testkit.Ramen
		restore     func(*velerov1.Restore)
		annotations map[string]string
		finalizers  []string
		want        func(*unstructured.Unstructured)
	}{
		"T4: parameters and all else stay, marks of the backup go": {vrg: discovered(), annotations: prepared, want: unchanged},
		"T25: the reference follows the mapping of its own namespace": {
			vrg: discovered(), restore: mapping("app", "app-dr", "ramen-ops", "openshift-dr-ops"), annotations: prepared, want: recipeNamespace("app-dr"),
		},
		"the mapping of the VRG's namespace alone leaves the reference": {
			vrg: discovered(), restore: mapping("ramen-ops", "openshift-dr-ops"), annotations: prepared, want: unchanged,
		},
		"an omitted namespace is written out": {
			vrg: testkit.MakeVRG("app", "db").RecipeRef("", "r"), annotations: map[string]string{contract.RecipeBundleRestoredAnnotation: "r/uid-of-r"}, want: recipeNamespace("app"),
		},
		"an omitted namespace is written out as it is mapped": {
			vrg: testkit.MakeVRG("app", "db").RecipeRef("", "r"), restore: mapping("app", "app-dr"),
			annotations: map[string]string{contract.RecipeBundleRestoredAnnotation: "r/uid-of-r"}, want: recipeNamespace("app-dr"),
		},
		"the old shape of a reference has no namespace to map": {
			vrg: testkit.MakeVRG("app", "db").Field("r", "spec", "kubeObjectProtection", "recipe", "name"), restore: mapping("app", "app-dr"),
			annotations: map[string]string{contract.RecipeBundleRestoredAnnotation: "r/uid-of-r"}, want: unchanged,
		},
		"a VRG without a Recipe": {
			vrg: testkit.MakeVRG("app", "db"), restore: mapping("app", "app-dr"), annotations: map[string]string{contract.RecipeBundleRestoredAnnotation: "r/uid-of-r"}, want: unchanged,
		},
		"T27: the finalizers of others stay": {
			vrg: discovered().Finalizer("example.com/theirs"), annotations: prepared, finalizers: []string{"example.com/theirs"}, want: unchanged,
		},
		"its own annotations stay": {
			vrg: discovered().Annotation("note", "kept"), annotations: with(map[string]string{"note": "kept"}), want: unchanged,
		},
		"its status is kept out where the Restore asks for it": {
			vrg: discovered(), restore: func(r *velerov1.Restore) {
				r.Spec.RestoreStatus = &velerov1.RestoreStatusSpec{IncludedResources: []string{"*"}}
			}, annotations: with(map[string]string{"velero.io/restore-status": "false"}), want: unchanged,
		},
		"its status is kept out where it asks for it itself": {
			vrg: discovered().Annotation("velero.io/restore-status", "true"), annotations: with(map[string]string{"velero.io/restore-status": "false"}), want: unchanged,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testkit.RestoreNamed("r").Result()
			if tc.restore != nil {
				tc.restore(r)
			}
			item := testkit.Reset(tc.vrg.Obj())
			want := item.DeepCopy()
			want.SetAnnotations(tc.annotations)
			want.SetFinalizers(tc.finalizers)
			if tc.finalizers == nil {
				unstructured.RemoveNestedField(want.Object, "metadata", "finalizers")
			}
			tc.want(want)
			require.NoError(t, recipe.PrepareVRG(recipe.VRGNeeds{Backup: tc.vrg.Obj(), AdminNamespaces: adminNamespaces}).Apply(item, r))
			require.Empty(t, cmp.Diff(want.Object, item.Object))
			require.True(t, recipe.IsPrepared(item, r))
		})
	}
}

func TestPreparedVRGWhoseItemHasAnotherShape(t *testing.T) {
	t.Parallel()
	item := testkit.MakeVRG("app", "db").Field("text", "spec", "kubeObjectProtection", "recipeRef").Obj()
	err := recipe.PrepareVRG(recipe.VRGNeeds{Backup: discovered().Obj()}).Apply(item, withMapping("app", "app-dr"))
	require.ErrorContains(t, err, "set spec.kubeObjectProtection.recipeRef.namespace")
}

func withMapping(source, target string) *velerov1.Restore {
	return testkit.RestoreNamed("r").NamespaceMappings(source, target).Result()
}

func TestDecideVRG(t *testing.T) {
	t.Parallel()
	const elsewhere types.UID = "uid-of-cluster-b"
	secondary := func() *testkit.Ramen { return discovered().Field("secondary", "spec", "replicationState") }
	tests := map[string]struct {
		vrg *testkit.Ramen
		// edit changes a cluster that has all that is needed, and is the one of the backup.
		edit     func(*recipe.VRGFacts)
		verdict  disconnect.Verdict
		failover bool
		warn     bool
		says     string
	}{
		"on the cluster of its backup": {vrg: discovered(), verdict: recipe.Admitted, says: "what it needs is in the cluster"},

		// In the cluster.
		"T: one in the cluster stays, whatever the mode": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Live, f.Mode = secondary().Obj(), recipe.Failover }, verdict: disconnect.Skipped, says: "never overwritten",
		},
		"one in the cluster that is being deleted": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Live = discovered().Terminating().Obj() }, verdict: disconnect.Refused, warn: true, says: "restore again when it is gone",
		},

		// Left out.
		"T9: hub-managed by its label": {
			vrg: discovered().Label("ramendr.openshift.io/created-by-ramen", "true"), verdict: disconnect.Skipped, says: "the hub manages it and makes it anew (label ramendr.openshift.io/created-by-ramen)",
		},
		"the label says false": {vrg: discovered().Label("ramendr.openshift.io/created-by-ramen", "false"), verdict: recipe.Admitted},
		"T9: hub-managed by an annotation": {
			vrg: discovered().Annotation("drplacementcontrol.ramendr.openshift.io/drpc-uid", "u"), verdict: disconnect.Skipped, says: "drplacementcontrol.ramendr.openshift.io/",
		},
		"T9: hub-managed by its owner": {
			vrg:     discovered().Field([]any{map[string]any{"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork", "name": "w", "uid": "u"}}, "metadata", "ownerReferences"),
			verdict: disconnect.Skipped, says: "owner AppliedManifestWork",
		},
		"another owner is no hub": {
			vrg:     discovered().Field([]any{map[string]any{"apiVersion": "example.com/v1", "kind": "App", "name": "w", "uid": "u"}}, "metadata", "ownerReferences"),
			verdict: recipe.Admitted,
		},
		"hub-managed, on another cluster, without its Recipe: still no error": {
			vrg: discovered().Label("ramendr.openshift.io/created-by-ramen", "true"), edit: func(f *recipe.VRGFacts) { f.Cluster, f.Recipe = elsewhere, nil },
			verdict: disconnect.Skipped, says: "the hub",
		},
		"skip": {vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Mode, f.Cluster = recipe.Skip, elsewhere }, verdict: disconnect.Skipped, says: "the mode is skip"},
		"skip, and one in the cluster is being deleted: no error": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Mode, f.Live = recipe.Skip, discovered().Terminating().Obj() }, verdict: disconnect.Skipped, says: "the mode is skip",
		},

		// What it needs.
		"its own CRD has not come": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.VRGCRD = nil }, verdict: disconnect.Refused, warn: true,
			says: "the cluster has no CustomResourceDefinition volumereplicationgroups.ramendr.openshift.io, and this restore has not brought it",
		},
		"its own CRD cannot be used": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.VRGCRD.Established = false }, verdict: disconnect.Refused, warn: true, says: "it is not established",
		},
		"the Recipe's CRD has not come": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.RecipeCRD, f.Recipe = nil, nil }, verdict: disconnect.Refused, warn: true,
			says: "it needs Recipe app/r: the cluster has no CustomResourceDefinition recipes.ramendr.openshift.io",
		},
		"T3: its Recipe has not come, and the backup has it": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Recipe = nil }, verdict: disconnect.Refused, warn: true,
			says: "it needs Recipe app/r, which is not in the cluster: it is in the backup, and this restore has not brought it",
		},
		"T3: its Recipe is missing here and was there": {
			vrg: discovered().Annotation(contract.RecipeBundleAnnotation, dangling), edit: func(f *recipe.VRGFacts) { f.Recipe = nil }, verdict: disconnect.Refused, warn: true,
			says: `it needs Recipe app/r, which is not in the cluster: it is not in the backup either, for which the record has "dangling"`,
		},
		"its Recipe was missing there and is here": {vrg: discovered().Annotation(contract.RecipeBundleAnnotation, dangling), verdict: recipe.Admitted},
		"its Recipe is missing, and the backup has no record": {
			vrg: discovered().NoField("metadata", "annotations"), edit: func(f *recipe.VRGFacts) { f.Recipe, f.Mode = nil, recipe.AsIs }, verdict: disconnect.Refused, warn: true,
			says: "the backup has no record of it",
		},
		"its Recipe is missing under the name that it is mapped to": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Recipe, f.Mapping = nil, map[string]string{"app": "app-dr"} }, verdict: disconnect.Refused, warn: true,
			says: "it needs Recipe app-dr/r",
		},
		"its Recipe is being deleted": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Recipe = testkit.MakeRecipe("app", "r").Terminating().Obj() }, verdict: disconnect.Refused, warn: true,
			says: "it needs Recipe app/r, which is being deleted",
		},
		"it names no Recipe": {
			vrg: discovered().Field(map[string]any{}, "spec", "kubeObjectProtection", "recipeRef"), verdict: disconnect.Refused, warn: true, says: "does not name it",
		},
		"its reference cannot be read": {
			vrg: discovered().Field("text", "spec", "kubeObjectProtection", "recipeRef"), verdict: disconnect.Refused, warn: true, says: "recipeRef is string, not an object",
		},
		"Ramen's built-in Recipe needs no object": {
			vrg:  testkit.MakeVRG("ramen-ops", "vm").RecipeRef("ramen-ops", "vm-recipe").Annotation(contract.RecipeBundleAnnotation, builtIn),
			edit: func(f *recipe.VRGFacts) { f.RecipeCRD, f.Recipe = nil, nil }, verdict: recipe.Admitted, says: "what it needs is in the cluster",
		},
		"without a Recipe and without kube object protection, elsewhere": {
			vrg: testkit.MakeVRG("app", "db"), edit: func(f *recipe.VRGFacts) { f.RecipeCRD, f.Recipe, f.Cluster = nil, nil, elsewhere }, verdict: recipe.Admitted,
		},

		// The guard.
		"T8: on another cluster it would capture and not recover": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Cluster = elsewhere }, verdict: disconnect.Refused, warn: true,
			says: "it was backed up on another cluster, and it is primary, protects Kubernetes objects and has no spec.action: Ramen would not recover the application " +
				"here, but take it for a new one, start to capture, and delete the first capture in S3",
		},
		"T8: the choice is named": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Cluster = elsewhere }, verdict: disconnect.Refused, warn: true,
			says: `by the annotation oadp.openshift.io/vrg-restore of the Restore or the setting vrgRestore: "failover" to recover here (spec.action Failover), "as-is" to restore it as it was backed up, "skip" to leave it out`,
		},
		"T8: without a record it is not known where it was": {
			vrg: discovered().NoField("metadata", "annotations"), verdict: disconnect.Refused, warn: true, says: "it is not known which cluster it was backed up on",
		},
		"T8: with a record that names no cluster": {
			vrg:     discovered().Annotation(contract.RecipeBundleAnnotation, strings.Replace(bundled, `"cluster":"uid-of-cluster-a",`, "", 1)),
			verdict: disconnect.Refused, warn: true, says: "it is not known which cluster",
		},
		"T34: this cluster cannot be told": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.ClusterErr = errors.New("namespaces is forbidden") }, verdict: disconnect.Refused, warn: true,
			says: "this cluster cannot be told from others (namespaces is forbidden), and it is primary",
		},
		"T34: this cluster cannot be told, and nothing depends on it": {
			vrg: secondary(), edit: func(f *recipe.VRGFacts) { f.ClusterErr = errors.New("namespaces is forbidden") }, verdict: recipe.Admitted,
		},
		"kube object protection without a Recipe is guarded too": {
			vrg:     testkit.MakeVRG("app", "db").Field(map[string]any{}, "spec", "kubeObjectProtection"),
			verdict: disconnect.Refused, warn: true, says: "it is not known which cluster",
		},
		"a secondary does not capture": {vrg: secondary(), edit: func(f *recipe.VRGFacts) { f.Cluster = elsewhere }, verdict: recipe.Admitted},
		"one with an action recovers": {
			vrg: discovered().Field("Relocate", "spec", "action"), edit: func(f *recipe.VRGFacts) { f.Cluster = elsewhere }, verdict: recipe.Admitted,
		},
		"an empty action is none": {
			vrg: discovered().Field("", "spec", "action"), edit: func(f *recipe.VRGFacts) { f.Cluster = elsewhere }, verdict: disconnect.Refused, warn: true, says: "another cluster",
		},
		"a state that nobody knows counts as primary": {
			vrg: discovered().NoField("spec", "replicationState"), edit: func(f *recipe.VRGFacts) { f.Cluster = elsewhere }, verdict: disconnect.Refused, warn: true, says: "another cluster",
		},
		"as-is: restored elsewhere": {vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Cluster, f.Mode = elsewhere, recipe.AsIs }, verdict: recipe.Admitted},
		"failover: recovers elsewhere": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Cluster, f.Mode = elsewhere, recipe.Failover }, verdict: recipe.Admitted, failover: true, says: "it recovers: the mode is failover",
		},
		"failover: into a mapped namespace nothing would be found": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) {
				f.Mode, f.Mapping = recipe.Failover, map[string]string{"ramen-ops": "openshift-dr-ops"}
			},
			verdict: disconnect.Refused, warn: true, says: "the restore puts it into the namespace openshift-dr-ops, and Ramen finds what it has stored by the namespace and name",
		},
		"as-is: into a mapped namespace": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) {
				f.Mode, f.Mapping = recipe.AsIs, map[string]string{"ramen-ops": "openshift-dr-ops"}
			}, verdict: recipe.Admitted,
		},
		"a spec that is none": {
			vrg: testkit.MakeVRG("app", "db").Field("text", "spec"), verdict: disconnect.Refused, warn: true, says: "spec is string, not an object",
		},
		"failover: the Recipe's namespace may be mapped": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) { f.Mode, f.Mapping = recipe.Failover, map[string]string{"app": "app-dr"} }, verdict: recipe.Admitted, failover: true,
		},

		// What a reader of the log should know.
		"T5: it had changed since the capture": {
			vrg:     discovered().Annotation(contract.RecipeBundleAnnotation, strings.Replace(bundled, `"asCaptured":true`, `"asCaptured":false`, 1)),
			verdict: recipe.Admitted, warn: true, says: "it had changed since the capture",
		},
		"T2: its Recipe in the cluster is another": {
			vrg: discovered(), edit: func(f *recipe.VRGFacts) {
				f.Recipe = testkit.MakeRecipe("app", "r").Field("other", "spec", "appType").Obj()
			},
			verdict: recipe.Admitted, warn: true, says: "its Recipe in the cluster is not the one that was backed up",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := testkit.MakeRecipe("app", "r").Obj()
			hash, err := recipe.SHA256OfSpec(live)
			require.NoError(t, err)
			// The record of the tables has a hash that nobody has to work out; here it becomes that of the live Recipe.
			backup := tc.vrg.Obj()
			if annotations := backup.GetAnnotations(); annotations[contract.RecipeBundleAnnotation] != "" {
				annotations[contract.RecipeBundleAnnotation] = strings.Replace(annotations[contract.RecipeBundleAnnotation], bundledHash, hash, 1)
				backup.SetAnnotations(annotations)
			}
			facts := recipe.VRGFacts{
				Backup: backup, Mode: recipe.Guard, AdminNamespaces: adminNamespaces, Cluster: testkit.ClusterUID,
				VRGCRD: crdOf(t, testkit.MakeVRGCRD()), RecipeCRD: crdOf(t, testkit.MakeRecipeCRD()), Recipe: live,
			}
			if tc.edit != nil {
				tc.edit(&facts)
			}
			before := backup.DeepCopy()
			got := recipe.DecideVRG(facts)
			require.Equal(t, tc.verdict, got.Verdict, got.Reason)
			require.Equal(t, tc.failover, got.Failover)
			require.Equal(t, tc.warn, got.Warn, got.Reason)
			require.Contains(t, got.Reason, tc.says)
			require.Empty(t, cmp.Diff(before, facts.Backup))
		})
	}
}

func TestTriedVRG(t *testing.T) {
	t.Parallel()
	admitted := recipe.VRGDecision{Decision: disconnect.Decision{Verdict: recipe.Admitted, Reason: "all is well"}, Failover: true}
	for name, tc := range map[string]struct {
		err      error
		verdict  disconnect.Verdict
		failover bool
		warn     bool
		says     string
	}{
		"the API server would store all of it": {nil, recipe.Admitted, true, false, "all is well"},
		"T1573: parameters would be pruned": {
			strictly(`unknown field "spec.kubeObjectProtection.recipeParameters"`), disconnect.Refused, false, true,
			`volumereplicationgroups.ramendr.openshift.io of the cluster does not know or not allow what the backup has: unknown field "spec.kubeObjectProtection.recipeParameters". Ramen would not recover as was captured.`,
		},
		"T1573: a reference of an older shape would be pruned": {
			strictly(`unknown field "spec.kubeObjectProtection.recipe"`), disconnect.Refused, false, true, `unknown field "spec.kubeObjectProtection.recipe"`,
		},
		"somebody has created it since it was looked for": {
			apierrors.NewAlreadyExists(schema.GroupResource{Resource: "volumereplicationgroups"}, "db"), disconnect.Skipped, false, false, "somebody has just created it",
		},
		"another field would be pruned": {
			strictly(`unknown field "spec.tomorrow"`), recipe.Admitted, true, true, `all is well; its CRD does not know or not allow what the backup has: unknown field "spec.tomorrow"`,
		},
		"the API server does not answer": {
			errors.New("connection refused"), recipe.Admitted, true, true, "all is well; whether its CRD knows all fields of it cannot be told: connection refused",
		},
		"a webhook is in the way of the dry run": {errNoDryRun, recipe.Admitted, true, true, "cannot be told"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := admitted.Tried(recipe.Trial{Err: tc.err})
			require.Equal(t, tc.verdict, got.Verdict)
			require.Equal(t, tc.failover, got.Failover)
			require.Equal(t, tc.warn, got.Warn)
			require.Contains(t, got.Reason, tc.says)
			require.Equal(t, "all is well", admitted.Reason)
		})
	}
}

func TestAdmittedVRG(t *testing.T) {
	t.Parallel()
	prepared := func() *testkit.Ramen {
		return testkit.MakeVRG("ramen-ops", "db").RecipeRef("app", "r").Annotation(contract.RecipeProvenanceAnnotation, "{}").
			Annotation(contract.RecipeBundleRestoredAnnotation, "r/uid-of-r").Annotation(mustIncludeAtRestore, "true")
	}
	admitted := func() *testkit.Ramen {
		return testkit.MakeVRG("ramen-ops", "db").RecipeRef("app", "r").Annotation(contract.RecipeProvenanceAnnotation, "{}")
	}
	for name, tc := range map[string]struct {
		item     *testkit.Ramen
		failover bool
		want     *testkit.Ramen
	}{
		"what Velero and the gate needed goes, the provenance stays": {prepared(), false, admitted()},
		"it is to recover": {prepared(), true, admitted().Field("Failover", "spec", "action")},
		"a secondary in the middle of a relocation is to recover": {
			prepared().Field("secondary", "spec", "replicationState").Field("Relocate", "spec", "action").Field(true, "spec", "runFinalSync").Field(true, "spec", "prepareForFinalSync"),
			true, admitted().Field("Failover", "spec", "action"),
		},
		"a secondary in the middle of a relocation stays one": {
			prepared().Field("secondary", "spec", "replicationState").Field(true, "spec", "runFinalSync"), false,
			admitted().Field("secondary", "spec", "replicationState").Field(true, "spec", "runFinalSync"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			item := tc.item.Obj()
			require.NoError(t, recipe.VRGDecision{Failover: tc.failover}.Apply(item))
			require.Empty(t, cmp.Diff(tc.want.Obj().Object, item.Object))
		})
	}
	broken := &unstructured.Unstructured{Object: map[string]any{"spec": "text"}}
	require.ErrorContains(t, recipe.VRGDecision{Failover: true}.Apply(broken), "set spec.")
	require.Error(t, recipe.VRGDecision{Failover: true}.Apply(broken))
}
