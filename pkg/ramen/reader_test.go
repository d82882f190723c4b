package ramen_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

var recipes = schema.GroupResource{Group: "ramendr.openshift.io", Resource: "recipes"}

func TestReaderReadsEachKind(t *testing.T) {
	t.Parallel()
	crd, recipe, vrg := testkit.MakeRecipeCRD().Obj(), testkit.MakeRecipe("app", "r").Obj(), testkit.MakeVRG("ramen-ops", "v").Obj()
	c, requests := testkit.Record(testkit.FakeClient(t, crd, recipe, vrg, testkit.MakeKubeSystem()))
	reader := ramen.NewReader(c)
	for want, read := range map[*unstructured.Unstructured]func() (*unstructured.Unstructured, error){
		crd: func() (*unstructured.Unstructured, error) {
			return reader.CRD(t.Context(), "recipes.ramendr.openshift.io")
		},
		recipe: func() (*unstructured.Unstructured, error) {
			return reader.Recipe(t.Context(), types.NamespacedName{Namespace: "app", Name: "r"})
		},
		vrg: func() (*unstructured.Unstructured, error) {
			return reader.VRG(t.Context(), types.NamespacedName{Namespace: "ramen-ops", Name: "v"})
		},
	} {
		got, err := read()
		require.NoError(t, err)
		got.SetResourceVersion(want.GetResourceVersion()) // the fake's own
		require.Empty(t, cmp.Diff(want.Object, got.Object))
	}
	uid, err := reader.Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, testkit.ClusterUID, uid)
	require.Equal(t, map[string]int{"get CustomResourceDefinition": 1, "get Recipe": 1, "get VolumeReplicationGroup": 1, "get Namespace": 1}, requests.Count())
}

func TestReaderNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	reader := ramen.NewReader(testkit.FakeClient(t))
	_, err := reader.CRD(t.Context(), "recipes.ramendr.openshift.io")
	require.ErrorContains(t, err, "get CustomResourceDefinition recipes.ramendr.openshift.io: ")
	require.True(t, apierrors.IsNotFound(err))
	_, err = reader.Recipe(t.Context(), types.NamespacedName{Namespace: "app", Name: "r"})
	require.ErrorContains(t, err, "get Recipe app/r: ")
	_, err = reader.VRG(t.Context(), types.NamespacedName{Namespace: "ramen-ops", Name: "v"})
	require.ErrorContains(t, err, "get VolumeReplicationGroup ramen-ops/v: ")
	_, err = reader.Cluster(t.Context())
	require.ErrorContains(t, err, "get Namespace kube-system: ")
}

func TestReaderAsksAgainWhereItMayHelp(t *testing.T) {
	t.Parallel()
	away := apierrors.NewServiceUnavailable("etcd is away")
	forbidden := apierrors.NewForbidden(recipes, "r", errors.New("no"))
	tests := map[string]struct {
		// fails are the answers before the real one; the last is repeated for ever if forever is set.
		fails   []error
		forever bool
		want    error
		asked   int
		within  time.Duration
	}{
		"it answers":                            {asked: 1, within: time.Millisecond},
		"it answers at the third time":          {fails: []error{away, away}, asked: 3, within: time.Second},
		"it is away and then forbids":           {fails: []error{away, forbidden}, want: forbidden, asked: 2, within: time.Second},
		"what is forbidden is not asked again":  {fails: []error{forbidden}, want: forbidden, asked: 1, within: time.Millisecond},
		"it stays away: the end of it, in time": {fails: []error{away}, forever: true, want: away, asked: 6, within: 10 * time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, requests := testkit.Record(testkit.FakeClient(t, testkit.MakeRecipe("app", "r").Obj()))
				asked := 0
				requests.Fail(func(testkit.Request) error {
					asked++
					switch {
					case asked <= len(tc.fails):
						return tc.fails[asked-1]
					case tc.forever:
						return tc.fails[len(tc.fails)-1]
					default:
						return nil
					}
				})
				started := time.Now()
				_, err := ramen.NewReader(c).Recipe(t.Context(), types.NamespacedName{Namespace: "app", Name: "r"})
				require.ErrorIs(t, err, tc.want)
				require.Equal(t, tc.asked, asked)
				require.LessOrEqual(t, time.Since(started), tc.within)
			})
		})
	}
}

func TestReaderEndsWithAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, requests := testkit.Record(testkit.FakeClient(t))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		requests.Fail(func(testkit.Request) error {
			<-ctx.Done()
			return ctx.Err()
		})
		_, err := ramen.NewReader(c).Recipe(ctx, types.NamespacedName{Namespace: "app", Name: "r"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, requests.All(), 1)
		_, err = ramen.NewReader(c).Recipe(ctx, types.NamespacedName{Namespace: "app", Name: "r"})
		require.ErrorContains(t, err, "get Recipe app/r: ", "a context that has ended already")
	})
}

func TestMayPass(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		errors.New("connection refused"):                                          true,
		context.DeadlineExceeded:                                                  true,
		context.Canceled:                                                          false,
		&meta.NoKindMatchError{}:                                                  false,
		apierrors.NewNotFound(recipes, "r"):                                       false,
		apierrors.NewForbidden(recipes, "r", errors.New("no")):                    false,
		apierrors.NewUnauthorized("who"):                                          false,
		apierrors.NewBadRequest("what"):                                           false,
		apierrors.NewTooManyRequests("later", 1):                                  true,
		apierrors.NewTimeoutError("slow", 1):                                      true,
		apierrors.NewServerTimeout(recipes, "get", 1):                             true,
		apierrors.NewInternalError(errors.New("oops")):                            true,
		apierrors.NewServiceUnavailable("away"):                                   true,
		apierrors.NewGenericServerResponse(502, "get", recipes, "r", "", 0, true): true,
	} {
		require.Equal(t, want, ramen.MayPass(err), "%v", err)
	}
}
