package volumereplicationgroup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/velero-plugins/volumereplicationgroup"
)

// restores are the two actions on VRGs over one cluster.
type restores struct {
	first, gate *volumereplicationgroup.RestoreAction
	requests    *testkit.Requests
	client      client.Client
}

func newRestores(t *testing.T, log logrus.FieldLogger, objs ...client.Object) restores {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	facts := ramen.NewRestores(c)
	return restores{volumereplicationgroup.NewRestore(log, facts), volumereplicationgroup.NewRestoreGate(log, facts), requests, c}
}

const (
	record = `{"version":1,"outcome":"bundled","recipe":{"namespace":"app","name":"r","generation":3,"sha256":"0f3a"},` +
		`"crd":{"served":["v1alpha1"],"sha256":"c1"},"vrg":{"generation":5},"cluster":"uid-of-cluster-a","backup":"nightly"}`
	provenance = `{"version":1,"backup":"nightly","cluster":"uid-of-cluster-a","outcome":"bundled","recipe":"app/r","generation":3,"sha256":"0f3a"}`
)

// backedUp is the VRG of a discovered application as it stands in a backup.
func backedUp() *testkit.Ramen {
	return testkit.MakeVRG("ramen-ops", "db").RecipeRef("app", "r").Parameter("ns", "app", "app-data").
		Field(map[string]any{"kept": true}, "spec", "tomorrowsField").
		Field("Primary", "status", "state").
		Finalizer("volumereplicationgroups.ramendr.openshift.io/vrg-protection").
		Annotation("backup.velero.io/must-include-additional-items", "true").Annotation("note", "kept").Annotation("oadp.openshift.io/recipe-bundle", record)
}

func crdItem(name string) velero.ResourceIdentifier {
	return velero.ResourceIdentifier{GroupResource: schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, Name: name}
}

var (
	vrgs      = crdItem("volumereplicationgroups.ramendr.openshift.io")
	recipes   = crdItem("recipes.ramendr.openshift.io")
	theRecipe = velero.ResourceIdentifier{GroupResource: schema.GroupResource{Group: "ramendr.openshift.io", Resource: "recipes"}, Namespace: "app", Name: "r"}
)

func TestRestoreAppliesTo(t *testing.T) {
	t.Parallel()
	actions := newRestores(t, testkit.Logger(t))
	for name, action := range map[string]*volumereplicationgroup.RestoreAction{
		"oadp.openshift.io/volumereplicationgroup-restore": actions.first, "oadp.openshift.io/volumereplicationgroup-restore-gate": actions.gate,
	} {
		got, err := action.AppliesTo()
		require.NoError(t, err)
		require.Equal(t, velero.ResourceSelector{IncludedResources: []string{"volumereplicationgroups.ramendr.openshift.io"}}, got)
		require.Equal(t, name, action.Name())
		_, err = action.Progress("x", nil)
		require.ErrorContains(t, err, "is invalid")
		require.ErrorContains(t, action.Cancel("x", nil), "is invalid")
	}
	require.Empty(t, actions.requests.All())
}

func withoutVersion(objs ...client.Object) []client.Object {
	for _, obj := range objs {
		obj.SetResourceVersion("")
	}
	return objs
}

func TestRestore(t *testing.T) {
	t.Parallel()
	all := func() []client.Object {
		return withoutVersion(testkit.MakeVRGCRD().Obj(), testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj())
	}
	annotated := func(mode string) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) {
			r.Annotations = map[string]string{"oadp.openshift.io/vrg-restore": mode}
		}
	}
	kubeSystem := testkit.MakeKubeSystem()
	elsewhere := testkit.MakeKubeSystem()
	elsewhere.SetUID("uid-of-cluster-b")
	tests := map[string]struct {
		vrg     *testkit.Ramen
		objects []client.Object
		restore func(*velerov1.Restore)
		// brought comes between the two actions.
		brought []client.Object
		bring   []velero.ResourceIdentifier
		skipped bool
		fails   string
		// dryRun is what the API server says of the dry run.
		dryRun error
		// decision of the gate and a part of its reason.
		decision, says string
		// want edits the VRG that must come out, which has the marks of the backup taken away and the provenance added.
		want func(*testkit.Ramen)
	}{
		"T1, T12: an empty cluster": {
			objects: []client.Object{kubeSystem}, brought: all(), bring: []velero.ResourceIdentifier{vrgs, recipes, theRecipe}, decision: "admitted", says: "what it needs is in the cluster",
		},
		"T6: all is there": {objects: append(all(), kubeSystem), bring: []velero.ResourceIdentifier{theRecipe}, decision: "admitted"},
		"T3: the Recipe has not come": {
			objects: []client.Object{kubeSystem}, brought: all()[:2], bring: []velero.ResourceIdentifier{vrgs, recipes, theRecipe}, decision: "refused",
			fails: "VolumeReplicationGroup ramen-ops/db is not restored: it needs Recipe app/r, which is not in the cluster: it is in the backup, and this restore has not brought it",
		},
		"its own CRD has not come": {
			objects: []client.Object{kubeSystem}, bring: []velero.ResourceIdentifier{vrgs, recipes, theRecipe}, decision: "refused",
			fails: "VolumeReplicationGroup ramen-ops/db is not restored: the cluster has no CustomResourceDefinition volumereplicationgroups.ramendr.openshift.io",
		},
		"a secondary is live, policy update": {
			objects: append(all(), kubeSystem, backedUp().Field("secondary", "spec", "replicationState").Obj()),
			restore: func(r *velerov1.Restore) { r.Spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate },
			bring:   []velero.ResourceIdentifier{theRecipe}, skipped: true, decision: "skipped", says: "never overwritten",
		},
		"T9: the hub manages it: its Recipe comes": {
			vrg:     backedUp().Label("ramendr.openshift.io/created-by-ramen", "true"),
			objects: []client.Object{elsewhere}, brought: all(), bring: []velero.ResourceIdentifier{vrgs, recipes, theRecipe}, skipped: true, decision: "skipped", says: "the hub manages it",
		},
		"T8: another cluster": {
			objects: append(all(), elsewhere), bring: []velero.ResourceIdentifier{theRecipe}, decision: "refused",
			fails: "VolumeReplicationGroup ramen-ops/db is not restored: it was backed up on another cluster",
		},
		"another cluster, as-is": {
			objects: append(all(), elsewhere), restore: annotated("as-is"), bring: []velero.ResourceIdentifier{theRecipe}, decision: "admitted",
		},
		"another cluster, failover": {
			objects: append(all(), elsewhere), restore: annotated("failover"), bring: []velero.ResourceIdentifier{theRecipe}, decision: "admitted", says: "it recovers",
			want: func(vrg *testkit.Ramen) { vrg.Field("Failover", "spec", "action") },
		},
		"skip, by the setting": {
			objects: append(all(), kubeSystem, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: testkit.VeleroNamespace, Name: "settings", Labels: map[string]string{
					"velero.io/plugin-config": "", "oadp.openshift.io/volumereplicationgroup-restore": "RestoreItemAction",
				}},
				Data: map[string]string{"vrgRestore": "skip"},
			}), bring: []velero.ResourceIdentifier{theRecipe}, skipped: true, decision: "skipped", says: "the mode is skip",
		},
		"T25: the Recipe's namespace is mapped": {
			objects: []client.Object{kubeSystem, testkit.MakeVRGCRD().Obj(), testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app-dr", "r").Obj()},
			restore: func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"app": "app-dr"} },
			bring:   []velero.ResourceIdentifier{theRecipe}, decision: "admitted", want: func(vrg *testkit.Ramen) { vrg.RecipeRef("app-dr", "r") },
		},
		"T25: the Recipe is in the namespace of the backup only": {
			objects: append(all(), kubeSystem),
			restore: func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"app": "app-dr"} },
			bring:   []velero.ResourceIdentifier{theRecipe}, decision: "refused", fails: "it needs Recipe app-dr/r, which is not in the cluster",
		},
		"the VRG's namespace is mapped: what is live there counts": {
			objects: append(all(), kubeSystem, testkit.MakeVRG("openshift-dr-ops", "db").Obj()),
			restore: func(r *velerov1.Restore) {
				r.Spec.NamespaceMapping = map[string]string{"ramen-ops": "openshift-dr-ops"}
			},
			bring: []velero.ResourceIdentifier{theRecipe}, skipped: true, decision: "skipped", says: "never overwritten",
		},
		"T1573: an older CRD would prune the parameters": {
			objects: append(all(), kubeSystem), bring: []velero.ResourceIdentifier{theRecipe}, decision: "refused",
			dryRun: apierrors.NewBadRequest(`… strict decoding error: unknown field "spec.kubeObjectProtection.recipeParameters"`),
			fails: `VolumeReplicationGroup ramen-ops/db is not restored: the CustomResourceDefinition volumereplicationgroups.ramendr.openshift.io of the cluster ` +
				`does not know or not allow what the backup has: unknown field "spec.kubeObjectProtection.recipeParameters".`,
		},
		"a garbled reference": {
			vrg:     backedUp().Field("text", "spec", "kubeObjectProtection", "recipeRef"),
			objects: append(all(), kubeSystem), decision: "refused", fails: "whether its Recipe is there cannot be told",
		},
	}
	for name, tc := range tests {
		for order, swapped := range map[string]bool{"": false, ", the gate is called first": true} {
			t.Run(name+order, func(t *testing.T) {
				t.Parallel()
				log, entries := testkit.RecordingLogger(t)
				actions := newRestores(t, log, tc.objects...)
				r := testkit.RestoreNamed("r").Result()
				if tc.restore != nil {
					tc.restore(r)
				}
				vrg := backedUp()
				if tc.vrg != nil {
					vrg = tc.vrg.Copy()
				}
				input := testkit.Input(r, vrg.Obj())
				before := input.Item.(*unstructured.Unstructured).DeepCopy()
				first, second := actions.first, actions.gate
				if swapped {
					first, second = second, first
				}
				prepared, err := first.Execute(input)
				require.NoError(t, err)
				require.Equal(t, tc.bring, prepared.AdditionalItems)
				require.True(t, prepared.WaitForAdditionalItems)
				require.Equal(t, 2*time.Minute, prepared.AdditionalItemsReadyTimeout)
				require.False(t, prepared.SkipRestore)
				for _, brought := range tc.brought {
					require.NoError(t, actions.client.Create(t.Context(), brought.DeepCopyObject().(client.Object)))
				}
				actions.requests.Reset()
				actions.requests.Fail(func(r testkit.Request) error {
					if r.DryRun {
						return tc.dryRun
					}
					return nil
				})
				output, err := second.Execute(&velero.RestoreItemActionExecuteInput{Item: prepared.UpdatedItem, ItemFromBackup: input.ItemFromBackup, Restore: r})
				require.Empty(t, cmp.Diff(before, input.Item), "the input was changed")
				require.Empty(t, actions.requests.Writes())
				require.Len(t, entries.AllEntries(), 2, "one line an action")
				require.Equal(t, "prepared", entries.AllEntries()[0].Data["decision"])
				require.Equal(t, tc.decision, entries.LastEntry().Data["decision"])
				require.Contains(t, entries.LastEntry().Data["reason"], tc.says)
				if tc.fails != "" {
					require.ErrorContains(t, err, tc.fails)
					require.Contains(t, fmt.Sprintf("%+v", err), "restore.go", "the outermost error carries the stack that Velero logs")
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.skipped, output.SkipRestore)
				require.Len(t, actions.requests.Of("create", "VolumeReplicationGroup"), map[bool]int{true: 0, false: 1}[tc.skipped], "what is created is tried before")
				require.Empty(t, output.AdditionalItems)
				want := vrg.NoField("status").NoField("metadata", "finalizers")
				if tc.want != nil {
					tc.want(want)
				}
				expected := testkit.Reset(want.Obj())
				expected.SetAnnotations(map[string]string{"note": "kept", "oadp.openshift.io/recipe-provenance": provenance})
				require.Empty(t, cmp.Diff(expected.Object, output.UpdatedItem.UnstructuredContent()))
			})
		}
	}
}

func TestRestoreWaitsForWhatItNeeds(t *testing.T) {
	t.Parallel()
	actions := newRestores(t, testkit.Logger(t), testkit.MakeVRGCRD().Obj(), testkit.MakeRecipeCRD().Obj())
	r := testkit.RestoreNamed("r").Result()
	ready, err := actions.first.AreAdditionalItemsReady([]velero.ResourceIdentifier{theRecipe}, r)
	require.NoError(t, err)
	require.False(t, ready)
	require.NoError(t, actions.client.Create(t.Context(), withoutVersion(testkit.MakeRecipe("app", "r").Obj())[0]))
	ready, err = actions.first.AreAdditionalItemsReady([]velero.ResourceIdentifier{theRecipe}, r)
	require.NoError(t, err)
	require.True(t, ready)
	ready, err = actions.first.AreAdditionalItemsReady(nil, r)
	require.NoError(t, err)
	require.True(t, ready, "nothing has been restored: the gate tells")
	forbidden := apierrors.NewForbidden(theRecipe.GroupResource, "r", errors.New("no"))
	actions.requests.Fail(func(testkit.Request) error { return forbidden })
	_, err = actions.first.AreAdditionalItemsReady([]velero.ResourceIdentifier{theRecipe}, r)
	require.ErrorIs(t, err, forbidden)
}

func TestRestoreThatRamenMakesIsLeftAlone(t *testing.T) {
	t.Parallel()
	log, entries := testkit.RecordingLogger(t)
	actions := newRestores(t, log)
	r := testkit.RestoreNamed("r").Result()
	r.Labels = map[string]string{"ramendr.openshift.io/created-by-ramen": "true"}
	input := testkit.Input(r, backedUp().Obj())
	for _, action := range []*volumereplicationgroup.RestoreAction{actions.first, actions.gate} {
		output, err := action.Execute(input)
		require.NoError(t, err)
		require.Equal(t, velero.NewRestoreItemActionExecuteOutput(input.Item), output)
	}
	require.Empty(t, actions.requests.All())
	require.Empty(t, entries.AllEntries())
}

func TestRestoreReturnsAnErrorWhereItCannotTell(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fails func(testkit.Request) bool
		names string
		// prepared tells that the first action needs it already.
		first bool
	}{
		"the settings":     {func(r testkit.Request) bool { return r.Kind == "ConfigMap" }, "the plugin's settings", true},
		"the VRG's CRD":    {func(r testkit.Request) bool { return strings.HasPrefix(r.Object.Name, "volumerep") }, "get CustomResourceDefinition volumereplicationgroups", true},
		"the Recipe's CRD": {func(r testkit.Request) bool { return strings.HasPrefix(r.Object.Name, "recipes.") }, "get CustomResourceDefinition recipes", true},
		"the Recipe":       {func(r testkit.Request) bool { return r.Kind == "Recipe" }, "get Recipe app/r", true},
		"the VRG":          {func(r testkit.Request) bool { return r.Kind == "VolumeReplicationGroup" }, "get VolumeReplicationGroup ramen-ops/db", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no"))
			fail := func(r testkit.Request) error {
				if tc.fails(r) {
					return forbidden
				}
				return nil
			}
			input := testkit.Input(testkit.RestoreNamed("r").Result(), backedUp().Obj())
			failing := newRestores(t, testkit.Logger(t), testkit.MakeKubeSystem())
			failing.requests.Fail(fail)
			output, err := failing.first.Execute(input)
			if !tc.first {
				require.NoError(t, err)
				input.Item = output.UpdatedItem
				_, err = failing.gate.Execute(input)
			}
			require.ErrorIs(t, err, forbidden)
			require.ErrorContains(t, err, "VolumeReplicationGroup ramen-ops/db is not restored: ")
			require.ErrorContains(t, err, tc.names)
			if !tc.first {
				return
			}
			// The gate asks for it as well.
			working := newRestores(t, testkit.Logger(t), testkit.MakeKubeSystem())
			output, err = working.first.Execute(input)
			require.NoError(t, err)
			input.Item = output.UpdatedItem
			_, err = failing.gate.Execute(input)
			require.ErrorIs(t, err, forbidden)
		})
	}
}

// Only the guard has to know which cluster this is, and it says so.
func TestRestoreOnAClusterThatCannotBeTold(t *testing.T) {
	t.Parallel()
	for mode, fails := range map[string]string{
		"guard": "VolumeReplicationGroup ramen-ops/db is not restored: this cluster cannot be told from others (get Namespace kube-system: ", "as-is": "", "failover": "",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			actions := newRestores(t, testkit.Logger(t), testkit.MakeVRGCRD().Obj(), testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj())
			actions.requests.Fail(func(r testkit.Request) error {
				if r.Kind == "Namespace" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New("no"))
				}
				return nil
			})
			r := testkit.RestoreNamed("r").Result()
			r.Annotations = map[string]string{"oadp.openshift.io/vrg-restore": mode}
			input := testkit.Input(r, backedUp().Obj())
			output, err := actions.first.Execute(input)
			require.NoError(t, err)
			input.Item = output.UpdatedItem
			_, err = actions.gate.Execute(input)
			if fails == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, fails)
		})
	}
}

func TestRestoreOnWhatIsIncompleteOrGarbage(t *testing.T) {
	t.Parallel()
	actions := newRestores(t, testkit.Logger(t), testkit.MakeKubeSystem())
	for _, action := range []*volumereplicationgroup.RestoreAction{actions.first, actions.gate} {
		_, err := action.Execute(nil)
		require.ErrorIs(t, err, item.ErrIncomplete)
		require.ErrorContains(t, err, action.Name())
	}
	// The item has become another one than the backup has: the edits do not fit.
	input := testkit.Input(testkit.RestoreNamed("r").NamespaceMappings("app", "app-dr").Result(), backedUp().Obj())
	input.Item = testkit.MakeVRG("ramen-ops", "db").Field("text", "spec").Obj()
	_, err := actions.first.Execute(input)
	require.ErrorContains(t, err, "VolumeReplicationGroup ramen-ops/db is not restored: set spec.kubeObjectProtection.recipeRef.namespace")
}

func TestRestoreReadsOnceWhatDoesNotChange(t *testing.T) {
	t.Parallel()
	actions := newRestores(t, testkit.Logger(t), testkit.MakeKubeSystem(), testkit.MakeVRGCRD().Obj(), testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj())
	r := testkit.RestoreNamed("r").Result()
	for i := range 20 {
		input := testkit.Input(r, testkit.MakeVRG("ramen-ops", fmt.Sprintf("v%d", i)).RecipeRef("app", "r").Annotation("oadp.openshift.io/recipe-bundle", record).Obj())
		output, err := actions.first.Execute(input)
		require.NoError(t, err)
		input.Item = output.UpdatedItem
		_, err = actions.gate.Execute(input)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int{
		"list ConfigMap": 1, "get Namespace": 1, "get CustomResourceDefinition": 2, "get Recipe": 40, "get VolumeReplicationGroup": 20, "create VolumeReplicationGroup": 20,
	}, actions.requests.Count())
}
