package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// vrgRestore are the arguments of `velero restore create` that say what becomes of VolumeReplicationGroups.
func vrgRestore(mode string) []string {
	return []string{"--annotations", contract.VRGRestoreAnnotation + "=" + mode}
}

// asIs restores a VolumeReplicationGroup as it was, which the guard would not do in another cluster.
func asIs(more ...string) []string { return append(vrgRestore("as-is"), more...) }

// protected creates a Recipe and a VolumeReplicationGroup that refers to it.
func (s *scene) protected(in *site) (shop, vrg *unstructured.Unstructured) {
	s.t.Helper()
	shop, vrg = s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
	s.create(in, shop, vrg)
	return shop, vrg
}

// TestRestoreWithoutCRDs restores into a cluster that has none of Ramen's CRDs. Each subtest begins with such a one.
func TestRestoreWithoutCRDs(t *testing.T) {
	east := eastern(t)
	t.Run("T861 T860 T1135 a whole backup: the CRDs, the Recipe of the backup's time, and then the VRG", func(t *testing.T) {
		west, s := western(t, absent), newScene(t)
		shop, vrg := s.protected(east)
		backup := s.backedUp(east)
		s.patch(east, shop, `{"spec":{"appType":"changed after the backup"}}`)
		since := time.Now()
		s.completed(west, s.restore(west, backup, asIs()...))
		s.has(west, shop)
		s.has(west, vrg)
		created := s.created(west, since)
		assert.ElementsMatch(t, []string{recipeCRD, vrgCRD, key(shop), key(vrg)}, created)
		assert.Equal(t, key(vrg), created[len(created)-1], "the VRG is last")
	})
	t.Run("T829 the restore names namespaces: Velero then leaves CRDs out, and they come all the same", func(t *testing.T) {
		west, s := western(t, absent), newScene(t)
		shop, vrg := s.protected(east)
		backup := s.backedUp(east, "--include-namespaces", ramen.OpsNamespace+","+s.app, "--selector", sceneLabel+"="+s.id)
		s.completed(west, s.restore(west, backup, asIs("--include-namespaces", ramen.OpsNamespace+","+s.app)...))
		s.has(west, shop)
		s.has(west, vrg)
	})
	t.Run("TVelero8925 the restore names the VRG's namespace only: the Recipe in another one comes all the same", func(t *testing.T) {
		west, s := western(t, absent), newScene(t)
		shop, vrg := s.protected(east)
		backup := s.backedUp(east)
		s.completed(west, s.restore(west, backup, asIs("--include-namespaces", ramen.OpsNamespace)...))
		s.has(west, shop)
		s.has(west, vrg)
	})
	t.Run("a Recipe on its own brings its CRD where cluster resources are excluded", func(t *testing.T) {
		west, s := western(t, absent), newScene(t)
		shop := s.recipe("shop", ramen.Simple(s.app))
		s.create(east, shop)
		backup := s.backedUp(east, "--include-namespaces", s.app)
		s.completed(west, s.restore(west, backup, "--include-cluster-resources=false"))
		s.has(west, shop)
	})
	t.Run("T922 TVelero2461 the backup has no Recipe: the VRG is not restored, and the error names the Recipe", func(t *testing.T) {
		west, s := western(t, absent), newScene(t)
		vrg := s.vrg("shop", "gone")
		s.create(east, vrg)
		s.failed(west, s.restore(west, s.backup(east), asIs()...), vrg.GetName(), s.app+"/gone")
		s.lacks(west, vrg)
	})
}

// TestRestoreWithVRGCRD is the other half of T861: the cluster knows VRGs, and Recipes not yet.
func TestRestoreWithVRGCRD(t *testing.T) {
	east, west, s := eastern(t), western(t, onlyVRG), newScene(t)
	shop, vrg := s.protected(east)
	west.crds = unknown // present, and Velero does not know: it looks for new resources every 5 minutes
	s.completed(west, s.restore(west, s.backedUp(east), asIs("--include-namespaces", ramen.OpsNamespace)...))
	s.has(west, shop)
	s.has(west, vrg)
}

// TestRestore is the matrix of restores into a cluster that has Ramen's CRDs.
func TestRestore(t *testing.T) {
	east, west := eastern(t), western(t, present)

	parallel(t, "T968 a primary VRG in another cluster is not restored, and the error says why and what to choose", func(s *scene) {
		shop, vrg := s.protected(east)
		s.failed(west, s.restore(west, s.backedUp(east)), vrg.GetName(), "primary", contract.VRGRestoreAnnotation, "failover", "as-is", "skip")
		s.has(west, shop)
		s.lacks(west, vrg)
	})
	parallel(t, "vrgRestore failover: the VRG is made primary with the action Failover, so that Ramen recovers", func(s *scene) {
		_, vrg := s.protected(east)
		s.completed(west, s.restore(west, s.backedUp(east), vrgRestore("failover")...))
		restored := s.like(west, vrg)
		require.NotNil(s.t, restored)
		want := vrg.DeepCopy()
		ramen.Set(want, "Failover", "spec", "action")
		assert.Equal(s.t, want.Object["spec"], restored.Object["spec"])
	})
	parallel(t, "vrgRestore skip: the Recipe is restored, the VRG is not, and that is no error", func(s *scene) {
		shop, vrg := s.protected(east)
		s.completed(west, s.restore(west, s.backedUp(east), vrgRestore("skip")...))
		s.has(west, shop)
		s.lacks(west, vrg)
	})
	parallel(t, "vrgRestore of an unknown value: the VRG is not restored, and the error says the values", func(s *scene) {
		_, vrg := s.protected(east)
		s.failed(west, s.restore(west, s.backedUp(east), vrgRestore("yes")...), "yes", "guard", "as-is", "failover", "skip")
		s.lacks(west, vrg)
	})
	parallel(t, "a secondary VRG is restored", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		ramen.Set(vrg, "secondary", "spec", "replicationState")
		s.create(east, shop, vrg)
		s.completed(west, s.restore(west, s.backedUp(east)))
		s.has(west, shop)
		s.has(west, vrg)
	})
	parallel(t, "a VRG that is lost in its own cluster is restored as it was", func(s *scene) {
		shop, vrg := s.protected(west)
		backup := s.backedUp(west)
		for _, object := range []*unstructured.Unstructured{vrg, shop} {
			require.NoError(s.t, west.Client().Delete(s.t.Context(), object.DeepCopy()))
		}
		s.completed(west, s.restore(west, backup))
		s.has(west, shop)
		s.has(west, vrg)
	})
	parallel(t, "TVelero6828 a VRG that is in the cluster is never touched: update would make a live secondary a primary", func(s *scene) {
		shop, vrg := s.protected(east)
		backup := s.backedUp(east)
		live := s.labelled(ramen.VRG(vrg.GetNamespace(), vrg.GetName(), "{}"))
		ramen.Set(live, "secondary", "spec", "replicationState")
		s.create(west, live)
		before := s.like(west, live)
		for _, mode := range []string{"guard", "as-is", "failover"} {
			restore := s.restoreAs(west, mode, backup, append(vrgRestore(mode), "--existing-resource-policy", "update")...)
			assert.Equal(s.t, before, s.like(west, live), mode)
			s.completed(west, restore)
		}
		s.has(west, shop)
	})
	parallel(t, "T592 a VRG that the hub manages is not restored, its Recipe is", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		vrg.SetLabels(map[string]string{ramen.CreatedByRamen: "true", sceneLabel: s.id})
		vrg.SetAnnotations(map[string]string{"drplacementcontrol.ramendr.openshift.io/destination-cluster": "east"})
		s.create(east, shop, vrg)
		s.completed(west, s.restore(west, s.backedUp(east)))
		s.has(west, shop)
		s.lacks(west, vrg)
	})
	parallel(t, "T2143 a restore that Ramen makes is left alone", func(s *scene) {
		_, vrg := s.protected(east)
		backup := s.backedUp(east, append(s.selector(), "--labels", ramen.CreatedByRamen+"=true")...)
		s.completed(west, s.restore(west, backup, "--labels", ramen.CreatedByRamen+"=true"))
		s.has(west, vrg)
	})
	parallel(t, "T922 T884 TVelero5580 TVelero5429 the VRG comes without Ramen's finalizer, owners, status and what only Velero reads", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
		vrg.SetFinalizers([]string{ramen.VRGFinalizer, "example.com/theirs"})
		vrg.SetAnnotations(map[string]string{"example.com/note": "kept"})
		vrg.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ramen.OpsNamespace, UID: s.namespaceUID(east, ramen.OpsNamespace)}})
		s.create(east, shop, vrg)
		s.patchStatus(east, vrg, `{"status":{"state":"Primary"}}`)
		backup := s.backedUp(east)
		s.completed(west, s.restore(west, backup, asIs("--status-include-resources", "volumereplicationgroups.ramendr.openshift.io")...))
		restored := s.has(west, vrg)
		assert.Equal(s.t, []string{"example.com/theirs"}, restored.GetFinalizers())
		assert.Empty(s.t, restored.GetOwnerReferences())
		assert.NotContains(s.t, restored.Object, "status", "Ramen would take the recovery for done")
		annotations := restored.GetAnnotations()
		assert.Equal(s.t, "kept", annotations["example.com/note"])
		for _, name := range []string{
			contract.RecipeBundleAnnotation, contract.RecipeBundleRestoredAnnotation,
			velerov1.MustIncludeAdditionalItemAnnotation, velerov1.MustIncludeAdditionalItemRestoreAnnotation,
		} {
			assert.NotContains(s.t, annotations, name)
		}
		assert.Contains(s.t, annotations[contract.RecipeProvenanceAnnotation], backup.Name)
		s.patch(west, vrg, `{"metadata":{"finalizers":null}}`)
	})
	parallel(t, "TVelero80 TVelero5010 the VRG's reference follows the namespace mapping, its parameters do not", func(s *scene) {
		shop, vrg := s.recipe("shop", ramen.Parameterised()), s.vrg("shop", "shop")
		ramen.Set(vrg, parameters(s.app, s.app), "spec", "kubeObjectProtection", "recipeParameters")
		s.create(east, shop, vrg)
		s.completed(west, s.restore(west, s.backedUp(east), asIs("--namespace-mappings", s.app+":"+s.app+"-2")...))
		moved := shop.DeepCopy()
		moved.SetNamespace(s.app + "-2")
		s.has(west, moved)
		s.lacks(west, shop)
		want := vrg.DeepCopy()
		ramen.Set(want, s.app+"-2", "spec", "kubeObjectProtection", "recipeRef", "namespace")
		s.has(west, want)
	})
	parallel(t, "T1834 a Recipe that was made in both clusters by hand is left, and the VRG is restored", func(s *scene) {
		shop, vrg := s.protected(east)
		s.create(west, shop)
		before := s.like(west, shop)
		s.completed(west, s.restore(west, s.backedUp(east), asIs()...))
		assert.Equal(s.t, before, s.like(west, shop))
		s.has(west, vrg)
	})
	parallel(t, "T860 a Recipe in the cluster that differs is left, and the difference reported; with update it is the backup's", func(s *scene) {
		shop, _ := s.protected(east)
		backup := s.backedUp(east)
		live := shop.DeepCopy()
		ramen.Set(live, "newer", "spec", "appType")
		s.create(west, live)
		restore := s.restore(west, backup, vrgRestore("skip")...)
		s.has(west, live)
		failures, warnings := west.results(s.t, restore.Name)
		assert.Contains(s.t, strings.Join(append(failures, warnings...), "\n"), "shop")
		s.completed(west, s.restoreAs(west, "update", backup, append(vrgRestore("skip"), "--existing-resource-policy", "update")...))
		s.has(west, shop)
	})
	parallel(t, "the backup has no Recipe but the cluster has: the VRG is restored", func(s *scene) {
		shop, vrg := s.recipe("gone", ramen.Simple(s.app)), s.vrg("shop", "gone")
		s.create(east, vrg)
		backup := s.backup(east)
		s.create(west, shop)
		s.completed(west, s.restore(west, backup, asIs()...))
		s.has(west, vrg)
	})
	parallel(t, "only VRGs are restored: their Recipe comes along", func(s *scene) {
		shop, vrg := s.protected(east)
		s.completed(west, s.restore(west, s.backedUp(east), asIs("--include-resources", "volumereplicationgroups.ramendr.openshift.io")...))
		s.has(west, shop)
		s.has(west, vrg)
	})
	parallel(t, "cluster resources are excluded: nothing is missing where the CRDs are", func(s *scene) {
		shop, vrg := s.protected(east)
		s.completed(west, s.restore(west, s.backedUp(east), asIs("--include-cluster-resources=false")...))
		s.has(west, shop)
		s.has(west, vrg)
	})
	parallel(t, "TVelero7750 a selector that the Recipe does not match: it comes along", func(s *scene) {
		shop := s.recipe("shop", ramen.Simple(s.app))
		vrg := s.labelled(ramen.VRG(s.app+"-dr", "shop", fmt.Sprintf("{recipeRef: {namespace: %s, name: shop}}", s.app)))
		s.create(east, shop, vrg)
		backup := s.backedUp(east, "--include-namespaces", vrg.GetNamespace()+","+s.app)
		s.completed(west, s.restore(west, backup, asIs("--selector", sceneLabel+"="+s.id)...))
		s.has(west, shop)
		s.has(west, vrg)
	})
	parallel(t, "Ramen's built-in Recipe is not asked for", func(s *scene) {
		vrg := s.labelled(ramen.VRG(ramen.OpsNamespace, s.id+"-vms", "{recipeRef: {namespace: ramen-ops, name: vm-recipe}}"))
		s.create(east, vrg)
		s.completed(west, s.restore(west, s.backedUp(east), asIs()...))
		s.has(west, vrg)
	})
	parallel(t, "T36 IBM Fusion's Recipe passes through", func(s *scene) {
		fusion := ramen.FusionRecipe(s.app, "shop", `{appType: mas, groups: [{name: ns, namespace: "${GROUP.ns.namespace}"}], hooks: [{ops: [{command: [a, b]}]}]}`)
		s.create(east, fusion)
		s.completed(west, s.restore(west, s.backedUp(east, "--include-namespaces", s.app)))
		s.has(west, fusion)
	})
	parallel(t, "T1573 Recipes and parameters of every shape arrive as they were", func(s *scene) {
		var objects []*unstructured.Unstructured
		for name, spec := range map[string]string{
			"simple": ramen.Simple(s.app), "everything": ramen.Everything(s.app), "parameterised": ramen.Parameterised(),
			"empty-group-name": ramen.EmptyGroupName(s.app), "jobs": ramen.WithJobs(s.app),
		} {
			vrg := s.vrg(name, name)
			ramen.Set(vrg, parameters(s.app, "a", "b"), "spec", "kubeObjectProtection", "recipeParameters")
			objects = append(objects, s.recipe(name, spec), vrg)
		}
		s.create(east, objects...)
		s.completed(west, s.restore(west, s.backedUp(east), asIs()...))
		for _, object := range objects {
			s.has(west, object)
		}
	})
}

// namespaceUID is the UID of a namespace, which is created if it is not there.
func (s *scene) namespaceUID(in *site, name string) types.UID {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(s.t, client.IgnoreAlreadyExists(in.Client().Create(s.t.Context(), namespace)))
	require.NoError(s.t, in.Client().Get(s.t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	return namespace.UID
}

// TestRestoreOnOlderCRD is T1573 and TVelero2159: the cluster has the Recipe CRD of October 2024.
func TestRestoreOnOlderCRD(t *testing.T) {
	east, west := eastern(t), western(t, of2024)
	before := newScene(t).like(west, crdObject(ramen.RecipeCRDName)).Object["spec"]
	t.Run("matrix", func(t *testing.T) {
		parallel(t, "what it does not know of a Recipe is an error that names the fields, and the VRG is not restored", func(s *scene) {
			shop, vrg := s.recipe("shop", ramen.WithJobs(s.app)), s.vrg("shop", "shop")
			s.create(east, shop, vrg)
			restore := s.restore(west, s.backedUp(east), asIs()...)
			assert.Equal(s.t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
			failures, _ := west.results(s.t, restore.Name)
			all := strings.Join(failures, "\n")
			for _, word := range []string{s.app + "/shop", "jobs", vrg.GetName()} {
				assert.Contains(s.t, all, word)
			}
			s.lacks(west, shop)
			s.lacks(west, vrg)
		})
		parallel(t, "a Recipe that fits is restored, and a newer CRD does not replace it, also with update", func(s *scene) {
			shop, vrg := s.protected(east)
			s.completed(west, s.restore(west, s.backedUp(east), asIs("--existing-resource-policy", "update", "--include-cluster-resources=true")...))
			s.has(west, shop)
			s.has(west, vrg)
		})
	})
	assert.Equal(t, before, newScene(t).like(west, crdObject(ramen.RecipeCRDName)).Object["spec"], "the CRD stays as it was")
}

// TestRestoreOfOlderRecipe is T1573: a backup from early 2023 is restored where Ramen's present CRDs are.
func TestRestoreOfOlderRecipe(t *testing.T) {
	old, s := western(t, of2023), newScene(t)
	shop, typed := s.recipe("shop", ramen.Of2023()), s.recipe("typed", ramen.WithCommandList(s.app))
	vrg := ramen.VRG(s.app, "shop", "{recipe: {name: shop, workflow: {captureName: c, recoverName: r, volumeGroupName: v}}}")
	s.create(old, shop, typed, vrg)
	backup := s.backedUp(old, "--include-namespaces", s.app)
	s.holds(old, backup, recipeCRD, vrgCRD, key(shop), key(typed), key(vrg))

	west := western(t, present)
	restore := s.restore(west, backup, asIs()...)
	assert.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
	failures, _ := west.results(t, restore.Name)
	require.Len(t, failures, 3, "errors: %q", failures)
	for i, words := range [][]string{
		{"Recipe " + s.app + "/shop", `"spec.captureWorkflow"`, `"spec.recoverWorkflow"`},
		{"Recipe " + s.app + "/typed", "spec.hooks[0].ops[0].command"},
		{"VolumeReplicationGroup " + s.app + "/shop", "Recipe " + s.app + "/shop"},
	} {
		for _, word := range words {
			assert.Contains(t, failures[i], word)
		}
	}
	s.lacks(west, shop)
	s.lacks(west, typed)
	s.lacks(west, vrg)
}

// TestRestoreWhileRecipeCRDGoes is TVelero1350: the CRD in the cluster is being deleted.
func TestRestoreWhileRecipeCRDGoes(t *testing.T) {
	east, west, s := eastern(t), western(t, present), newScene(t)
	_, vrg := s.protected(east)
	backup := s.backedUp(east)
	holdsUp := ramen.Recipe(s.app, "holds-up", ramen.Simple(s.app))
	holdsUp.SetFinalizers([]string{"example.com/wait"})
	s.create(west, holdsUp)
	west.crds = unknown
	require.NoError(t, west.Client().Delete(t.Context(), crdObject(ramen.RecipeCRDName)))
	restore := s.restore(west, backup, asIs()...)
	assert.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
	failures, _ := west.results(t, restore.Name)
	all := strings.Join(failures, "\n")
	assert.Contains(t, all, ramen.RecipeCRDName)
	assert.Contains(t, all, "being deleted")
	s.lacks(west, vrg)
}

// TestRestoreWaitsForCRD is TVelero424: the cluster has the Recipe CRD, and it is not established yet. Velero waits for CRDs
// that it has created itself only.
func TestRestoreWaitsForCRD(t *testing.T) {
	east, west, s := eastern(t), western(t, absent), newScene(t)
	shop, vrg := s.protected(east)
	backup := s.backedUp(east)

	crds := present.load(t)
	recipes, vrgs, obstacle := crds[0], crds[1], crds[0].DeepCopy()
	obstacle.Name, obstacle.Spec.Names.Plural, obstacle.Spec.Names.Singular = "cookbooks."+obstacle.Spec.Group, "cookbooks", "cookbook"
	require.NoError(t, west.InstallCRDs(t.Context(), []*apiextensionsv1.CustomResourceDefinition{obstacle, vrgs}))
	require.NoError(t, west.Client().Create(t.Context(), recipes)) // not accepted: another one has its kind
	require.NoError(t, west.RestartVelero(t.Context()))

	name := s.name("restore")
	require.NoError(t, west.CarryBackup(t.Context(), backup.Name))
	require.NoError(t, west.CreateRestore(t.Context(), name, append([]string{"--from-backup", backup.Name}, asIs()...)...))
	until(t, endTime, func(context.Context) error {
		for line := range strings.Lines(west.VeleroLog()) {
			if strings.Contains(line, "restore="+name+" ") && strings.Contains(line, "action="+contract.RecipeRestoreAction+" ") {
				return nil
			}
		}
		return errors.New("the Recipe's turn has not come")
	})
	require.NoError(t, west.Client().Delete(t.Context(), obstacle))
	restore, err := west.WaitRestore(t.Context(), name)
	require.NoError(t, err)
	s.completed(west, restore)
	s.has(west, shop)
	s.has(west, vrg)
}
