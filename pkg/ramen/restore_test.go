package ramen_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

const (
	recipeCRD = "recipes.ramendr.openshift.io"
	vrgCRD    = "volumereplicationgroups.ramendr.openshift.io"
)

func factsOf(t *testing.T, r *velerov1.Restore, objs ...client.Object) (*ramen.RestoreFacts, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objs...))
	restores := ramen.NewRestores(c)
	require.Same(t, restores.For(r), restores.For(r.DeepCopy()), "one restore has its facts once")
	return restores.For(r), requests
}

// settingsMap is the ConfigMap of the restore action on VRGs.
func settingsMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testkit.VeleroNamespace, Name: "vrg-restore",
			Labels: map[string]string{"velero.io/plugin-config": "", "oadp.openshift.io/volumereplicationgroup-restore": "RestoreItemAction"},
		},
		Data: data,
	}
}

func TestRestoreSettings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		objects []client.Object
		restore *velerov1.Restore
		want    ramen.RestoreSettings
		fails   string
	}{
		"nothing is set": {
			want: ramen.RestoreSettings{Mode: recipe.Guard, AdminNamespaces: []string{"ramen-ops", "ramen-system", "openshift-dr-ops", "openshift-dr-system"}},
		},
		"a ConfigMap": {
			objects: []client.Object{settingsMap(map[string]string{"vrgRestore": "skip", "adminNamespaces": "dr, ops"})},
			want:    ramen.RestoreSettings{Mode: recipe.Skip, AdminNamespaces: []string{"dr", "ops"}},
		},
		"the Restore's annotation wins": {
			objects: []client.Object{settingsMap(map[string]string{"vrgRestore": "skip", "adminNamespaces": "dr"})},
			restore: testkit.RestoreNamed("r").ObjectMeta(builder.WithAnnotations("oadp.openshift.io/vrg-restore", "failover")).Result(),
			want:    ramen.RestoreSettings{Mode: recipe.Failover, AdminNamespaces: []string{"dr"}},
		},
		"a wrong mode": {
			objects: []client.Object{settingsMap(map[string]string{"vrgRestore": "x"})},
			fails:   `settings for restores of VRGs (ConfigMap openshift-adp/vrg-restore): setting vrgRestore is "x"`,
		},
		"a wrong namespace": {
			objects: []client.Object{settingsMap(map[string]string{"adminNamespaces": "A"})}, fails: `setting adminNamespaces is "A"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.restore == nil {
				tc.restore = testkit.RestoreNamed("r").Result()
			}
			facts, requests := factsOf(t, tc.restore, tc.objects...)
			got, err := facts.Settings(t.Context())
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				var invalid *restore.InvalidSettingsError
				require.ErrorAs(t, err, &invalid)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			again, err := facts.Settings(t.Context())
			require.NoError(t, err)
			require.Equal(t, got, again)
			require.Len(t, requests.All(), 1, "they are read once")
		})
	}
}

func TestRestoreSettingsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	facts, requests := factsOf(t, testkit.RestoreNamed("r").Result())
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
	requests.Fail(func(testkit.Request) error { return forbidden })
	_, err := facts.Settings(t.Context())
	require.ErrorIs(t, err, forbidden)
}

func TestClusterIsReadOnce(t *testing.T) {
	t.Parallel()
	facts, requests := factsOf(t, testkit.RestoreNamed("r").Result(), testkit.MakeKubeSystem())
	for range 3 {
		got, err := facts.Cluster(t.Context())
		require.NoError(t, err)
		require.Equal(t, testkit.ClusterUID, got)
	}
	require.Len(t, requests.All(), 1)
}

func TestCRDIsReadUntilItCanBeUsed(t *testing.T) {
	t.Parallel()
	c, requests := testkit.Record(testkit.FakeClient(t))
	facts := ramen.NewRestores(c).For(testkit.RestoreNamed("r").Result())
	crd, err := facts.CRD(t.Context(), recipeCRD)
	require.NoError(t, err)
	require.Nil(t, crd)

	object := testkit.MakeRecipeCRD().Condition("Established", false).Obj()
	object.SetResourceVersion("")
	require.NoError(t, c.Create(t.Context(), object))
	crd, err = facts.CRD(t.Context(), recipeCRD)
	require.NoError(t, err)
	require.False(t, crd.Established)

	established := testkit.MakeRecipeCRD().Obj()
	established.SetResourceVersion(object.GetResourceVersion())
	require.NoError(t, c.Status().Update(t.Context(), established))
	requests.Reset()
	for range 3 {
		crd, err = facts.CRD(t.Context(), recipeCRD)
		require.NoError(t, err)
		require.True(t, crd.Established)
	}
	require.Equal(t, map[string]int{"get CustomResourceDefinition": 1}, requests.Count())
}

func TestObjectsThatAreNotThere(t *testing.T) {
	t.Parallel()
	facts, requests := factsOf(t, testkit.RestoreNamed("r").Result(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeVRG("ops", "v").Obj())
	key := types.NamespacedName{Namespace: "app", Name: "r"}
	found, err := facts.Recipe(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "r", found.GetName())
	found, err = facts.Recipe(t.Context(), types.NamespacedName{Namespace: "app", Name: "other"})
	require.NoError(t, err)
	require.Nil(t, found)
	found, err = facts.VRG(t.Context(), types.NamespacedName{Namespace: "ops", Name: "v"})
	require.NoError(t, err)
	require.Equal(t, "v", found.GetName())
	found, err = facts.VRG(t.Context(), key)
	require.NoError(t, err)
	require.Nil(t, found)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "ramendr.openshift.io", Resource: "recipes"}, "r", errors.New("no"))
	requests.Fail(func(testkit.Request) error { return forbidden })
	_, err = facts.Recipe(t.Context(), key)
	require.ErrorIs(t, err, forbidden)
	require.ErrorContains(t, err, "get Recipe app/r")
}

func TestTry(t *testing.T) {
	t.Parallel()
	item := testkit.Reset(testkit.MakeRecipe("app", "r").Field([]any{map[string]any{"manager": "kubectl"}}, "metadata", "managedFields").Obj())
	before := item.DeepCopy()

	facts, requests := factsOf(t, testkit.RestoreNamed("r").Result())
	trial := facts.Try(t.Context(), item, "app-dr", nil)
	require.NoError(t, trial.Err)
	require.Equal(t, []testkit.Request{{Verb: "create", Kind: "Recipe", Object: client.ObjectKey{Namespace: "app-dr", Name: "r"}, DryRun: true, Strict: true}}, requests.All())
	require.Empty(t, cmp.Diff(item.Object["spec"], trial.Stored.Object["spec"]))
	require.Empty(t, trial.Stored.GetManagedFields())

	live := testkit.MakeRecipe("app-dr", "r").Field("other", "spec", "appType").Label("kept", "x").Obj()
	facts, requests = factsOf(t, testkit.RestoreNamed("r").Result(), live)
	found, err := facts.Recipe(t.Context(), types.NamespacedName{Namespace: "app-dr", Name: "r"})
	require.NoError(t, err)
	beforeLive := found.DeepCopy()
	requests.Reset()
	trial = facts.Try(t.Context(), item, "app-dr", found)
	require.NoError(t, trial.Err)
	require.Equal(t, []testkit.Request{{Verb: "update", Kind: "Recipe", Object: client.ObjectKey{Namespace: "app-dr", Name: "r"}, DryRun: true, Strict: true}}, requests.All())
	require.Empty(t, cmp.Diff(item.Object["spec"], trial.Stored.Object["spec"]))
	require.Equal(t, map[string]string{"kept": "x"}, trial.Stored.GetLabels())
	require.Empty(t, cmp.Diff(before, item))
	require.Empty(t, cmp.Diff(beforeLive, found))
	require.Empty(t, requests.Writes())
}

// The clock is that of the bubble: no second passes.
func TestTryIsRepeatedWhereAServerLagsBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		facts, requests := factsOf(t, testkit.RestoreNamed("r").Result())
		unserved := apierrors.NewGenericServerResponse(404, "create", schema.GroupResource{Group: "ramendr.openshift.io", Resource: "recipes"}, "", "", 0, true)
		asked := 0
		requests.Fail(func(testkit.Request) error {
			if asked++; asked < 3 {
				return unserved
			}
			return nil
		})
		trial := facts.Try(t.Context(), testkit.MakeRecipe("app", "r").NoField("metadata", "resourceVersion").Obj(), "app", nil)
		require.NoError(t, trial.Err)
		require.Equal(t, 3, asked)
		requests.Fail(func(testkit.Request) error { return unserved })
		trial = facts.Try(t.Context(), testkit.MakeRecipe("app", "r").NoField("metadata", "resourceVersion").Obj(), "app", nil)
		require.ErrorContains(t, trial.Err, "dry run of Recipe app/r")
		require.Nil(t, trial.Stored)
	})
}

func TestReady(t *testing.T) {
	t.Parallel()
	brought := []velero.ResourceIdentifier{ramen.CRDItem(vrgCRD), ramen.CRDItem(recipeCRD), ramen.RecipeItem(types.NamespacedName{Namespace: "app", Name: "r"})}
	r := testkit.RestoreNamed("r").NamespaceMappings("app", "app-dr").Result()
	for name, tc := range map[string]struct {
		objects []client.Object
		items   []velero.ResourceIdentifier
		want    bool
	}{
		"all is there": {
			objects: []client.Object{testkit.MakeVRGCRD().Obj(), testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app-dr", "r").Obj()}, items: brought, want: true,
		},
		"T18: the CRD was there and is not established": {
			objects: []client.Object{testkit.MakeVRGCRD().Obj(), testkit.MakeRecipeCRD().Condition("Established", false).Obj()}, want: false,
		},
		"the VRG's own CRD is not established": {
			objects: []client.Object{testkit.MakeVRGCRD().Condition("Established", false).Obj(), testkit.MakeRecipeCRD().Obj()}, want: false,
		},
		"a CRD that this restore has created does not show yet": {items: []velero.ResourceIdentifier{ramen.CRDItem(recipeCRD)}, want: false},
		"nothing was brought, and nothing is there":             {want: true},
		"the Recipe does not show yet":                          {objects: []client.Object{testkit.MakeRecipeCRD().Obj()}, items: brought[2:], want: false},
		"the Recipe is looked for where it is mapped to": {
			objects: []client.Object{testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj()}, items: brought[2:], want: false,
		},
		"what is none of ours is not waited for": {
			items: []velero.ResourceIdentifier{{GroupResource: schema.GroupResource{Group: "spp-data-protection.isf.ibm.com", Resource: "recipes"}, Namespace: "app", Name: "r"}}, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, requests := factsOf(t, r, tc.objects...)
			got, err := facts.Ready(t.Context(), tc.items)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			require.Empty(t, requests.Writes())
		})
	}
}

func TestReadyReturnsErrors(t *testing.T) {
	t.Parallel()
	for i, kind := range []string{"CustomResourceDefinition", "Recipe"} {
		t.Run(strconv.Itoa(i)+kind, func(t *testing.T) {
			t.Parallel()
			facts, requests := factsOf(t, testkit.RestoreNamed("r").Result(), testkit.MakeRecipeCRD().Obj())
			forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no"))
			requests.Fail(func(r testkit.Request) error {
				if r.Kind == kind {
					return forbidden
				}
				return nil
			})
			ready, err := facts.Ready(t.Context(), []velero.ResourceIdentifier{ramen.RecipeItem(types.NamespacedName{Namespace: "app", Name: "r"})})
			require.ErrorIs(t, err, forbidden)
			require.False(t, ready)
		})
	}
}
