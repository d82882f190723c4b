package ramen_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

var recipeKey = types.NamespacedName{Namespace: "app", Name: "r"}

func newBackups(t *testing.T, objects ...client.Object) (*ramen.Backups, *testkit.Requests) {
	t.Helper()
	c, requests := testkit.Record(testkit.FakeClient(t, objects...))
	return ramen.NewBackups(c, now, time.Time{}), requests
}

func look(t *testing.T, backups *ramen.Backups, backup *velerov1.Backup) recipe.BackupFacts {
	t.Helper()
	known := recipe.BackupFacts{Backup: backup}
	backups.Look(t.Context(), &known, recipeKey)
	return known
}

// now is long after everything was created.
var now = clocktesting.NewFakePassiveClock(testkit.Epoch.Add(time.Hour))

func TestLookReadsOnceForABackup(t *testing.T) {
	t.Parallel()
	backups, requests := newBackups(t, testkit.MakeRecipeCRD().Obj(), testkit.MakeVRGCRD().Obj(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeKubeSystem())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			known := look(t, backups, testkit.BackupNamed("b").Result())
			if known.CRD.Object == nil || known.VRGCRD.Object == nil || known.Recipe.Object == nil || known.Cluster != testkit.ClusterUID || known.ClusterErr != nil ||
				!known.Now.Equal(now.Now()) || !known.ServerStarted.IsZero() {
				t.Errorf("not all was found: %+v", known)
			}
		})
	}
	all.Wait()
	once := map[string]int{"get CustomResourceDefinition": 2, "get Recipe": 1, "get Namespace": 1}
	require.Equal(t, once, requests.Count())
	requests.Reset()
	look(t, backups, testkit.BackupNamed("another").Result())
	require.Equal(t, once, requests.Count(), "another backup looks for itself")
}

func TestLookAsksForNoRecipeWithoutItsCRD(t *testing.T) {
	t.Parallel()
	backups, requests := newBackups(t, testkit.MakeRecipeCRD().Condition("Established", false).Obj())
	known := look(t, backups, testkit.BackupNamed("b").Result())
	require.Equal(t, recipe.Found{}, known.Recipe)
	require.NotNil(t, known.CRD.Object)
	require.True(t, apierrors.IsNotFound(known.VRGCRD.Err))
	require.True(t, apierrors.IsNotFound(known.ClusterErr))
	require.Equal(t, map[string]int{"get CustomResourceDefinition": 2, "get Namespace": 1}, requests.Count())
}

func TestLookKeepsWhatWillNotPass(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "x", errors.New("no"))
	backups, requests := newBackups(t)
	requests.Fail(func(testkit.Request) error { return forbidden })
	for range 3 {
		known := look(t, backups, testkit.BackupNamed("b").Result())
		require.ErrorIs(t, known.CRD.Err, forbidden)
		require.ErrorIs(t, known.ClusterErr, forbidden)
	}
	require.Equal(t, map[string]int{"get CustomResourceDefinition": 2, "get Namespace": 1}, requests.Count())
}

func TestLookAsksAgainForWhatMayPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backups, requests := newBackups(t, testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeKubeSystem())
		away := apierrors.NewServiceUnavailable("etcd is away")
		requests.Fail(func(testkit.Request) error { return away })
		known := look(t, backups, testkit.BackupNamed("b").Result())
		require.ErrorIs(t, known.CRD.Err, away)
		require.ErrorIs(t, known.ClusterErr, away)
		requests.Fail(nil)
		known = look(t, backups, testkit.BackupNamed("b").Result())
		require.NotNil(t, known.CRD.Object)
		require.NotNil(t, known.Recipe.Object)
		require.Equal(t, testkit.ClusterUID, known.Cluster)
	})
}

func TestWhatIsArchivedIsWhatVRGsRecord(t *testing.T) {
	t.Parallel()
	backup := testkit.BackupNamed("b").Result()
	archived := testkit.MakeRecipe("app", "r").Field("as archived", "spec", "appType").Obj()
	archived.SetResourceVersion("5")

	backups, requests := newBackups(t, testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeKubeSystem())
	require.False(t, backups.Archived(backup, archived), "no VRG has recorded anything yet")
	require.Empty(t, cmp.Diff(recipe.Found{Object: archived, Archived: true}, look(t, backups, backup).Recipe))
	require.Empty(t, requests.Of("get", "Recipe"))
	archived.SetName("changed by the caller")
	require.Equal(t, "r", look(t, backups, backup).Recipe.Object.GetName())

	backups, _ = newBackups(t, testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeKubeSystem())
	recorded := look(t, backups, backup).Recipe.Object
	require.False(t, backups.Archived(backup, recorded), "what the VRG has recorded is what is archived")
	archived.SetName("r")
	require.True(t, backups.Archived(backup, archived), "the VRG has recorded another state")
	require.False(t, backups.Archived(testkit.BackupNamed("another").Result(), archived), "another backup has recorded nothing")

	backups, _ = newBackups(t, testkit.MakeRecipeCRD().Obj(), testkit.MakeKubeSystem())
	require.True(t, apierrors.IsNotFound(look(t, backups, backup).Recipe.Err))
	require.True(t, backups.Archived(backup, archived), "the VRG has recorded that there is none")
}

func TestSettingsAreReadAndComplainedOfOnceForABackup(t *testing.T) {
	t.Parallel()
	backup := testkit.BackupNamed("b").Result()
	backups, requests := newBackups(t, config("c", "warn", "velero.io/plugin-config", "", vrgBackup, "BackupItemAction"))
	for range 3 {
		settings, err := backups.Settings(t.Context(), backup)
		require.NoError(t, err)
		require.Equal(t, recipe.LevelWarn, settings.MissingRecipe)
	}
	require.Equal(t, map[string]int{"list ConfigMap": 1}, requests.Count())

	backups, requests = newBackups(t, config("c", "later", "velero.io/plugin-config", "", vrgBackup, "BackupItemAction"))
	settings, err := backups.Settings(t.Context(), backup)
	require.ErrorContains(t, err, `"later"`)
	require.Equal(t, ramen.DefaultBackupSettings(), settings)
	settings, err = backups.Settings(t.Context(), backup)
	require.NoError(t, err)
	require.Equal(t, ramen.DefaultBackupSettings(), settings)
	require.Equal(t, map[string]int{"list ConfigMap": 1}, requests.Count())

	backups, requests = newBackups(t)
	requests.Fail(func(testkit.Request) error { return apierrors.NewUnauthorized("expired") })
	for range 2 {
		_, err = backups.Settings(t.Context(), backup)
		require.True(t, apierrors.IsUnauthorized(err), "a later VRG asks again")
	}
}

// A process that serves many backups does not grow without end.
func TestBackupsKeepsABoundedNumber(t *testing.T) {
	t.Parallel()
	backups, requests := newBackups(t, testkit.MakeRecipeCRD().Obj())
	for i := range 600 {
		backups.CRD(t.Context(), testkit.BackupNamed(fmt.Sprintf("b%d", i)).Result(), "recipes.ramendr.openshift.io")
	}
	requests.Reset()
	backups.CRD(t.Context(), testkit.BackupNamed("b599").Result(), "recipes.ramendr.openshift.io")
	require.Empty(t, requests.All())
	backups.CRD(t.Context(), testkit.BackupNamed("b0").Result(), "recipes.ramendr.openshift.io")
	require.Len(t, requests.All(), 1)
}

func TestServerStart(t *testing.T) {
	t.Parallel()
	started, err := ramen.ServerStart()
	require.NoError(t, err)
	// The parent of a test is the go command.
	require.WithinDuration(t, time.Now(), started, time.Hour)
	require.True(t, started.Before(time.Now().Add(time.Second)))
}

func TestItemsNamesCRDsBeforeRecipes(t *testing.T) {
	t.Parallel()
	got := ramen.Items([]string{"a", "b"}, []types.NamespacedName{recipeKey})
	require.Len(t, got, 3)
	require.Equal(t, "customresourcedefinitions.apiextensions.k8s.io", got[0].String())
	require.Equal(t, "a", got[0].Name)
	require.Equal(t, "b", got[1].Name)
	require.Equal(t, "recipes.ramendr.openshift.io", got[2].String())
	require.Equal(t, []string{"app", "r"}, []string{got[2].Namespace, got[2].Name})
	require.Nil(t, ramen.Items(nil, nil))
}
