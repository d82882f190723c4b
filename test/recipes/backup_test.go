package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// parallel runs a subtest beside others, in a scene of its own.
func parallel(t *testing.T, name string, test func(*scene)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(newScene(t))
	})
}

// record is what a backup says of the Recipe of an archived VolumeReplicationGroup.
func (s *scene) record(archived *unstructured.Unstructured) recipe.Record {
	s.t.Helper()
	require.NotNil(s.t, archived)
	record, ok, err := recipe.RecordOf(archived)
	require.NoError(s.t, err)
	require.True(s.t, ok, "%s has no record", archived.GetName())
	return record
}

// keepsWithout asserts that a backup is PartiallyFailed for one stated reason, and has the VolumeReplicationGroup all the same,
// with that outcome on record, but no Recipe.
func (s *scene) keepsWithout(of *site, backup *velerov1.Backup, vrg *unstructured.Unstructured, outcome recipe.Outcome, words ...string) {
	s.t.Helper()
	s.partly(of, backup, append(words, vrg.GetName())...)
	objects := s.holds(of, backup, vrgCRD, key(vrg))
	assert.Equal(s.t, outcome, s.record(objects[key(vrg)]).Outcome)
}

// TestBackup is the matrix of what a backup holds, with the plugin.
func TestBackup(t *testing.T) {
	east := eastern(t)

	parallel(t, "T861 the VRG's namespace is backed up: its Recipe in another namespace and both CRDs come along", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		s.create(east, shop, vrg)
		live := s.like(east, shop)
		backup := s.backedUp(east)
		objects := s.holds(east, backup, recipeCRD, vrgCRD, key(shop), key(vrg))
		assert.Equal(s.t, shop.Object["spec"], objects[key(shop)].Object["spec"])
		record := s.record(objects[key(vrg)])
		assert.Equal(s.t, recipe.OutcomeBundled, record.Outcome)
		sha256, err := recipe.SHA256OfSpec(live)
		require.NoError(s.t, err)
		assert.Equal(s.t, recipe.Identity{
			Namespace: s.app, Name: "shop",
			UID: live.GetUID(), Generation: 1, ResourceVersion: live.GetResourceVersion(), SHA256: sha256,
		}, record.Recipe)
		require.NotNil(s.t, record.CRD)
		assert.Equal(s.t, []string{"v1alpha1"}, record.CRD.Served)
		assert.Equal(s.t, recipe.VRGRecord{Generation: 1}, record.VRG)
		assert.Equal(s.t, east.uid, string(record.Cluster))
		assert.Equal(s.t, backup.Name, record.Backup)
		assert.Empty(s.t, s.like(east, vrg).GetAnnotations(), "the VRG in the cluster stays as it is")
	})
	parallel(t, "TVelero1830 cluster resources are excluded: the CRDs come all the same", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		s.create(east, shop, vrg)
		backup := s.backedUp(east, append(s.selector(), "--include-cluster-resources=false")...)
		s.holds(east, backup, recipeCRD, vrgCRD, key(shop), key(vrg))
	})
	parallel(t, "only VRGs are included: their Recipe and the CRDs come all the same", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		s.create(east, shop, vrg)
		backup := s.backedUp(east, append(s.selector(), "--include-resources", "volumereplicationgroups.ramendr.openshift.io")...)
		s.holds(east, backup, recipeCRD, vrgCRD, key(shop), key(vrg))
	})
	parallel(t, "a Recipe on its own brings its CRD, also where cluster resources are excluded", func(s *scene) {
		shop := s.recipe("shop", ramen.Simple(s.app))
		s.create(east, shop)
		backup := s.backedUp(east, "--include-namespaces", s.app, "--include-cluster-resources=false")
		s.holds(east, backup, recipeCRD, key(shop))
	})
	parallel(t, "a reference to a Recipe that is not there is kept, and said", func(s *scene) {
		vrg := s.vrg("shop", "gone")
		s.create(east, vrg)
		s.keepsWithout(east, s.backup(east), vrg, recipe.OutcomeDangling, s.app+"/gone")
	})
	parallel(t, "a reference that names nothing is kept, and said", func(s *scene) {
		vrg := s.labelled(ramen.VRG(ramen.OpsNamespace, s.id+"-shop", "{recipeRef: {}}"))
		s.create(east, vrg)
		s.keepsWithout(east, s.backup(east), vrg, recipe.OutcomeDangling)
	})
	parallel(t, "a Recipe that is excluded from backups stays out, and that is said", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		shop.SetLabels(map[string]string{velerov1.ExcludeFromBackupLabel: "true"})
		s.create(east, shop, vrg)
		s.keepsWithout(east, s.backup(east), vrg, recipe.OutcomeExcluded, s.app+"/shop", velerov1.ExcludeFromBackupLabel)
	})
	parallel(t, "a Recipe that is being deleted stays out, and that is said", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		shop.SetFinalizers([]string{"example.com/wait"})
		s.create(east, shop, vrg)
		require.NoError(s.t, east.Client().Delete(s.t.Context(), shop.DeepCopy()))
		s.keepsWithout(east, s.backup(east), vrg, recipe.OutcomeTerminating, s.app+"/shop", "being deleted")
		s.patch(east, shop, `{"metadata":{"finalizers":null}}`)
	})
	parallel(t, "T1090 two VRGs with parameters of their own share one copy of their Recipe", func(s *scene) {
		shop := s.recipe("shop", ramen.Parameterised())
		one, two := s.vrg("one", "shop"), s.vrg("two", "shop")
		ramen.Set(one, parameters("db1", "a", "b"), "spec", "kubeObjectProtection", "recipeParameters")
		ramen.Set(two, parameters("db2", "c"), "spec", "kubeObjectProtection", "recipeParameters")
		s.create(east, shop, one, two)
		objects := s.holds(east, s.backedUp(east), recipeCRD, vrgCRD, key(shop), key(one), key(two))
		assert.Equal(s.t, shop.Object["spec"], objects[key(shop)].Object["spec"], "parameters are not put in")
		assert.Equal(s.t, one.Object["spec"], objects[key(one)].Object["spec"])
		assert.Equal(s.t, two.Object["spec"], objects[key(two)].Object["spec"])
	})
	parallel(t, "T1090 a VRG that was changed after the capture is recorded as newer than it", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		s.create(east, shop, vrg)
		s.patchStatus(east, vrg, `{"status":{"kubeObjectProtection":{"captureToRecoverFrom":{"number":1,"startGeneration":1,"endTime":"2026-11-30T12:00:00Z"}}}}`)
		s.patch(east, vrg, `{"spec":{"kubeObjectProtection":{"captureInterval":"5m"}}}`)
		backup := s.backedUp(east)
		got := s.record(east.archive(s.t, backup)[key(vrg)]).VRG
		assert.Equal(s.t, recipe.VRGRecord{
			Generation: 2, AsCaptured: new(false),
			Capture: &recipe.Capture{Number: 1, StartGeneration: 1, EndTime: "2026-11-30T12:00:00Z"},
		}, got)
	})
	parallel(t, "T235e849d a Recipe that the hub has handed out is bundled as well, selected or not", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		shop.SetLabels(map[string]string{ramen.CreatedByRamen: "true"})
		s.create(east, shop, vrg)
		s.holds(east, s.backedUp(east), recipeCRD, vrgCRD, key(shop), key(vrg))
	})
	parallel(t, "T2143 a backup that Ramen makes is left alone, even where a Recipe is missing", func(s *scene) {
		vrg := s.vrg("shop", "gone")
		s.create(east, vrg)
		backup := s.backedUp(east, append(s.selector(), "--labels", ramen.CreatedByRamen+"=true")...)
		objects := s.holds(east, backup, vrgCRD, key(vrg))
		assert.Empty(s.t, objects[key(vrg)].GetAnnotations())
	})
	parallel(t, "Ramen's built-in Recipe is no object, and its absence no error", func(s *scene) {
		vrg := s.labelled(ramen.VRG(ramen.OpsNamespace, s.id+"-vms", `
recipeRef: {namespace: ramen-ops, name: vm-recipe}
recipeParameters: {PROTECTED_VMS: [web, db], VM_NAMESPACE: [vms]}
`))
		s.create(east, vrg)
		objects := s.holds(east, s.backedUp(east), vrgCRD, key(vrg))
		assert.Equal(s.t, recipe.OutcomeBuiltIn, s.record(objects[key(vrg)]).Outcome)
	})
	parallel(t, "a VRG without a Recipe is none of our business", func(s *scene) {
		vrg := s.labelled(ramen.VRG(ramen.OpsNamespace, s.id+"-shop", "{captureInterval: 30m}"))
		s.create(east, vrg)
		objects := s.holds(east, s.backedUp(east), vrgCRD, key(vrg))
		assert.Empty(s.t, objects[key(vrg)].GetAnnotations())
	})
	parallel(t, "a reference without a namespace is to the VRG's own", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Everything(s.app)), ramen.VRG(s.app, "shop", "{recipeRef: {name: shop}}")
		s.create(east, shop, vrg)
		backup := s.backedUp(east, "--include-namespaces", s.app)
		objects := s.holds(east, backup, recipeCRD, vrgCRD, key(shop), key(vrg))
		assert.Equal(s.t, recipe.OutcomeBundled, s.record(objects[key(vrg)]).Outcome)
	})
	parallel(t, "a tenant's VRG does not pull another namespace's Recipe into a backup that the tenant reads", func(s *scene) {
		shop := s.recipe("shop", ramen.Simple(s.app))
		vrg := ramen.VRG(s.app+"-tenant", "shop", fmt.Sprintf("{recipeRef: {namespace: %s, name: shop}}", s.app))
		s.create(east, shop, vrg)
		s.keepsWithout(east, s.backup(east, "--include-namespaces", vrg.GetNamespace()), vrg, recipe.OutcomeDenied, s.app+"/shop")
		both := s.backupAs(east, "both", "--include-namespaces", vrg.GetNamespace()+","+s.app)
		assert.Equal(s.t, velerov1.BackupPhaseCompleted, both.Status.Phase)
		s.holds(east, both, recipeCRD, vrgCRD, key(shop), key(vrg))
	})
	parallel(t, "what a Recipe is likely to fail with is a warning", func(s *scene) {
		shop := s.recipe("shop", `
appType: shop
groups: [{name: all, type: resource, includedNamespaces: ["$namespaces"]}]
hooks:
  - {name: db, namespace: $namespaces, type: exec, ops: [{name: freeze, command: "db freeze $PASSWORD"}]}
workflows: [{name: backup, sequence: [{hook: db/thaw}, {group: nothing}, {group: all}]}]
`)
		vrg := s.vrg("shop", "shop")
		ramen.Set(vrg, map[string]any{"namespaces": []any{"a", "b"}, "quoted": []any{`say "hello"`}}, "spec", "kubeObjectProtection", "recipeParameters")
		s.create(east, shop, vrg)
		backup := s.backedUp(east)
		warnings := strings.Join(east.lines(s.t, backup.Name, "warning"), "")
		for _, word := range []string{"$PASSWORD", "parameter namespaces", "parameter quoted", "nothing", "thaw", `restore`} {
			assert.Contains(s.t, warnings, word)
		}
		assert.GreaterOrEqual(s.t, backup.Status.Warnings, 5)
	})
	parallel(t, "T36 IBM Fusion's Recipe is another API: it is neither taken for Ramen's nor changed", func(s *scene) {
		fusion := ramen.FusionRecipe(s.app, "shop", `{appType: mas, groups: [{name: ns, namespace: "${GROUP.ns.namespace}"}]}`)
		vrg := ramen.VRG(s.app, "shop", fmt.Sprintf("{recipeRef: {namespace: %s, name: shop}}", s.app))
		s.create(east, fusion, vrg)
		backup := s.backup(east, "--include-namespaces", s.app)
		s.partly(east, backup, s.app+"/shop")
		objects := s.holds(east, backup, vrgCRD, key(vrg), "customresourcedefinitions recipes.spp-data-protection.isf.ibm.com")
		assert.Equal(s.t, recipe.OutcomeDangling, s.record(objects[key(vrg)]).Outcome)
	})
}

// parameters are recipeParameters of the parameterised Recipe.
func parameters(database string, namespaces ...any) map[string]any {
	return map[string]any{"namespaces": namespaces, "database_namespace": []any{database}, "database_user": []any{"admin"}}
}

// TestSettingsOfBackups changes settings of the cluster, so nothing runs beside it.
func TestSettingsOfBackups(t *testing.T) {
	east := eastern(t)
	configure(t, east, contract.VRGBackupAction, "BackupItemAction", map[string]string{
		contract.MissingRecipeSetting:   "warn",
		contract.AdminNamespacesSetting: "platform-dr",
	})
	parallel(t, "missingRecipe warn: the backup passes, with a warning", func(s *scene) {
		vrg := ramen.VRG("platform-dr", s.id+"-shop", fmt.Sprintf("{recipeRef: {namespace: %s, name: gone}}", s.app))
		s.create(east, s.labelled(vrg))
		backup := s.backedUp(east, "--include-namespaces", vrg.GetNamespace(), "--selector", sceneLabel+"="+s.id)
		assert.Contains(s.t, strings.Join(east.lines(s.t, backup.Name, "warning"), ""), s.app+"/gone")
	})
	parallel(t, "adminNamespaces: a VRG there brings a Recipe of any namespace, and one elsewhere does not", func(s *scene) {
		shop := s.recipe("shop", ramen.Simple(s.app))
		ours := s.labelled(ramen.VRG("platform-dr", s.id+"-shop", fmt.Sprintf("{recipeRef: {namespace: %s, name: shop}}", s.app)))
		theirs := s.vrg("shop", "shop")
		s.create(east, shop, ours, theirs)
		s.holds(east, s.backedUp(east, "--include-namespaces", "platform-dr", "--selector", sceneLabel+"="+s.id), recipeCRD, vrgCRD, key(shop), key(ours))
		backup := s.backupAs(east, "theirs")
		assert.Equal(s.t, recipe.OutcomeDenied, s.record(s.holds(east, backup, vrgCRD, key(theirs))[key(theirs)]).Outcome)
	})
}

// configure makes the ConfigMap with an action's settings until the test and its subtests have ended.
func configure(t *testing.T, in *site, action, kind string, settings map[string]string) {
	t.Helper()
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.VeleroNamespace(), Name: "settings",
			Labels: map[string]string{contract.PluginConfigLabel: "", action: kind},
		},
		Data: settings,
	}
	require.NoError(t, in.Client().Create(t.Context(), config))
	t.Cleanup(func() { assert.NoError(t, in.Client().Delete(context.Background(), config)) })
}

// TestForbiddenRecipes takes rights from the server, so nothing runs beside it. It is TVelero4078.
func TestForbiddenRecipes(t *testing.T) {
	east, s := eastern(t), newScene(t)
	shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
	s.create(east, shop, vrg)
	without(t, east, rbacv1.PolicyRule{APIGroups: []string{"ramendr.openshift.io"}, Resources: []string{"recipes"}, Verbs: []string{"list", "watch"}})
	s.keepsWithout(east, s.backup(east), vrg, recipe.OutcomeForbidden, s.app+"/shop", "get", "recipes.ramendr.openshift.io")
}

// without leaves the Velero server every right but those on Ramen's Recipes, of which it gets the given ones, until the test
// has ended. Rights can only be given, so all others are, group by group.
func without(t *testing.T, in *site, recipes rbacv1.PolicyRule) {
	t.Helper()
	all := []string{"*"}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "velero-without-recipes"},
		Rules: []rbacv1.PolicyRule{
			recipes,
			{APIGroups: []string{"ramendr.openshift.io"}, Resources: []string{"volumereplicationgroups"}, Verbs: all},
		},
	}
	served, err := discovery.NewDiscoveryClientForConfigOrDie(in.RESTConfig()).ServerGroups()
	require.NoError(t, err)
	for _, group := range served.Groups {
		if group.Name != "ramendr.openshift.io" {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{group.Name}, Resources: all, Verbs: all})
		}
	}
	var full rbacv1.ClusterRoleBinding
	require.NoError(t, in.Client().Get(t.Context(), client.ObjectKey{Name: "velero"}, &full))
	limited := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: full.Subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	require.NoError(t, in.Client().Create(t.Context(), role))
	require.NoError(t, in.Client().Create(t.Context(), limited))
	require.NoError(t, in.Client().Delete(t.Context(), full.DeepCopy()))
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + in.VeleroNamespace() + ":velero",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "ramendr.openshift.io", Resource: "recipes", Verb: "get"},
	}}
	until(t, soon, func(ctx context.Context) error {
		if err := in.Client().Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed {
			return errors.New("the API server has not noticed yet")
		}
		return nil
	})
	t.Cleanup(func() {
		full.ResourceVersion, full.UID = "", ""
		ctx := context.Background()
		assert.NoError(t, in.Client().Create(ctx, &full))
		assert.NoError(t, in.Client().Delete(ctx, limited))
		assert.NoError(t, in.Client().Delete(ctx, role))
	})
}

// TestBackupWithoutRecipeCRD: the VRG is there and Recipes are not served.
func TestBackupWithoutRecipeCRD(t *testing.T) {
	west, s := western(t, onlyVRG), newScene(t)
	vrg := s.vrg("shop", "shop")
	s.create(west, vrg)
	s.keepsWithout(west, s.backup(west), vrg, recipe.OutcomeCRDAbsent, ramen.RecipeCRDName)
}

// TestBackupWhileRecipeCRDGoes: the CRD is being deleted and waits for a Recipe with a finalizer.
func TestBackupWhileRecipeCRDGoes(t *testing.T) {
	west, s := western(t, present), newScene(t)
	shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
	shop.SetFinalizers([]string{"example.com/wait"})
	s.create(west, shop, vrg)
	west.crds = unknown
	require.NoError(t, west.Client().Delete(t.Context(), crdObject(ramen.RecipeCRDName)))
	s.keepsWithout(west, s.backup(west), vrg, recipe.OutcomeTerminating, "being deleted")
}
