package recipes

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// TestVeleroAlone records what Velero does without the plugin, and so why the plugin does what it does. If a new Velero
// changes one of these, the rule that rests on it has to be looked at again.
func TestVeleroAlone(t *testing.T) {
	alone := startSite(t, "a cluster without the plugin", present, bed.Options{})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(alone.Logs())
		}
		alone.Stop()
	})
	s := newScene(t)
	recipe, vrg := s.recipe("shop", ramen.Simple(s.app)), s.vrg("shop", "shop")
	vrg.SetFinalizers([]string{ramen.VRGFinalizer})
	s.create(alone, recipe, vrg)
	both := s.backupAs(alone, "both", "--include-namespaces", ramen.OpsNamespace+","+s.app)

	t.Run("a backup of the VRG's namespace has no Recipe, although the VRG's recovery needs it", func(t *testing.T) {
		s := s.in(t)
		backup := s.backedUp(alone)
		s.holds(alone, backup, vrgCRD, key(vrg))
	})
	t.Run("TVelero6828 existing-resource-policy none leaves a live VRG alone, update makes a live secondary a primary", func(t *testing.T) {
		s := s.in(t)
		s.patch(alone, vrg, `{"spec":{"replicationState":"secondary"}}`)
		restore := s.restoreAs(alone, "none", both)
		s.completed(alone, restore)
		_, warnings := alone.results(t, restore.Name)
		assert.Contains(t, strings.Join(warnings, "\n"), "VolumeReplicationGroup:"+vrg.GetName()+" already exists. Warning: the in-cluster version is different")
		assert.Equal(t, "secondary", state(s.like(alone, vrg)))
		s.completed(alone, s.restoreAs(alone, "update", both, "--existing-resource-policy", "update"))
		assert.Equal(t, "primary", state(s.like(alone, vrg)))
	})
	t.Run("TVelero2159 existing-resource-policy update puts an older CRD over a newer one", func(t *testing.T) {
		s := s.in(t)
		crd := crdObject(ramen.RecipeCRDName)
		s.patch(alone, crd, `{"spec":{"names":{"shortNames":["newer"]}}}`)
		s.completed(alone, s.restoreAs(alone, "older", both, "--existing-resource-policy", "update", "--include-cluster-resources=true"))
		_, found, err := unstructured.NestedStringSlice(s.like(alone, crd).Object, "spec", "names", "shortNames")
		require.NoError(t, err)
		assert.False(t, found, "what only the newer CRD has is gone")
	})
	t.Run("T829 a restore that names namespaces brings no CRD, so neither Recipe nor VRG", func(t *testing.T) {
		s := s.in(t)
		s.lose(alone)
		restore := s.restoreAs(alone, "named", both, "--include-namespaces", ramen.OpsNamespace+","+s.app)
		assert.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
		failures, _ := alone.results(t, restore.Name)
		assert.Len(t, failures, 2, "errors: %q", failures)
		s.lacks(alone, recipe)
		s.lacks(alone, vrg)
	})
	t.Run("T884 TVelero5580 a whole restore keeps the VRG's finalizer and primary, and drops owners and status", func(t *testing.T) {
		s := s.in(t)
		s.lose(alone)
		since := time.Now()
		s.completed(alone, s.restoreAs(alone, "whole", both))
		assert.Equal(t, []string{recipeCRD, vrgCRD, key(recipe), key(vrg)}, s.created(alone, since))
		s.has(alone, recipe)
		restored := s.has(alone, vrg)
		assert.Equal(t, []string{ramen.VRGFinalizer}, restored.GetFinalizers())
		assert.Equal(t, "primary", state(restored))
	})
	t.Run("TVelero80 a VRG's reference to its Recipe does not follow the namespace mapping", func(t *testing.T) {
		s := s.in(t)
		s.lose(alone)
		s.completed(alone, s.restoreAs(alone, "mapped", both, "--namespace-mappings", s.app+":"+s.app+"-2"))
		moved := recipe.DeepCopy()
		moved.SetNamespace(s.app + "-2")
		s.has(alone, moved)
		assert.Equal(t, s.app, recipeNamespace(s.like(alone, vrg)))
	})
}

// in is the same scene within a subtest.
func (s *scene) in(t *testing.T) *scene {
	t.Helper()
	return &scene{t: t, id: s.id, app: s.app}
}

// lose deletes Ramen's CRDs in a cluster with all that they define, and restarts Velero so that it knows.
func (s *scene) lose(in *site) {
	s.t.Helper()
	in.reset(s.t, absent)
}

// state is a VolumeReplicationGroup's spec.replicationState; empty: there is none.
func state(vrg *unstructured.Unstructured) string {
	if vrg == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(vrg.Object, "spec", "replicationState")
	return value
}

// recipeNamespace is the namespace in which a VolumeReplicationGroup looks for its Recipe; empty: there is none.
func recipeNamespace(vrg *unstructured.Unstructured) string {
	if vrg == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(vrg.Object, "spec", "kubeObjectProtection", "recipeRef", "namespace")
	return value
}

// crdObject is a CustomResourceDefinition to be read or patched.
func crdObject(name string) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(name)
	return crd
}
