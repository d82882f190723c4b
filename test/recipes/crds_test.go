package recipes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// A crdState says which of Ramen's CRDs a cluster has.
type crdState string

const (
	absent  crdState = "none of Ramen's CRDs"
	onlyVRG crdState = "the VolumeReplicationGroup's CRD only"
	present crdState = "both CRDs, as Ramen uses them today"
	of2024  crdState = "both CRDs, the Recipe's of October 2024"
	of2023  crdState = "both CRDs, as of early 2023"
	unknown crdState = "" // a test has changed it
)

// soon is what a cluster does by itself.
const soon = time.Minute

// load returns the CRDs. A test for which they are not there is skipped.
func (s crdState) load(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	vrg, published, err := ramen.VRGCRD(t.Context())
	require.NoError(t, err)
	if !published {
		t.Log("a stand-in for the VolumeReplicationGroup's CRD: Ramen's own is not beside the repository")
	}
	var recipe *apiextensionsv1.CustomResourceDefinition
	switch s {
	case absent:
		return nil
	case onlyVRG:
		return []*apiextensionsv1.CustomResourceDefinition{vrg}
	case present:
		recipe, err = ramen.RecipeCRD(t.Context())
	case of2024:
		recipe, err = ramen.RecipeCRD2024(t.Context())
		if errors.Is(err, fs.ErrNotExist) {
			t.Skip("the Recipe CRD of October 2024 is not beside the repository")
		}
	case of2023:
		recipe, err = ramen.StandInRecipeCRD2023()
		require.NoError(t, err)
		vrg, err = ramen.StandInVRGCRD()
	default:
		t.Fatalf("no such state: %q", s)
	}
	require.NoError(t, err)
	return []*apiextensionsv1.CustomResourceDefinition{recipe, vrg}
}

// reset deletes Ramen's CRDs with all that they define, creates those of a state, and restarts Velero: it would
// look for the deleted ones for 5 minutes, and not find the new ones as long.
func (s *site) reset(t *testing.T, state crdState) {
	t.Helper()
	s.crds = unknown
	crds := state.load(t)
	s.removeCRDs(t)
	require.NoError(t, s.InstallCRDs(t.Context(), crds))
	require.NoError(t, s.RestartVelero(t.Context()))
	s.crds = state
}

// removeCRDs deletes Ramen's CRDs with all that they define, finalizers or not.
func (s *site) removeCRDs(t *testing.T) {
	t.Helper()
	for crd, kind := range map[string]schema.GroupVersionKind{ramen.RecipeCRDName: ramen.RecipeKind, ramen.VRGCRDName: ramen.VRGKind} {
		err := s.Client().Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd}})
		require.NoError(t, client.IgnoreNotFound(err))
		until(t, soon, func(ctx context.Context) error {
			err := s.Client().Get(ctx, client.ObjectKey{Name: crd}, &apiextensionsv1.CustomResourceDefinition{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(fmt.Errorf("%s is still there (%w)", crd, err), s.release(ctx, kind))
		})
	}
}

// release takes the finalizers from all objects of a kind.
func (s *site) release(ctx context.Context, kind schema.GroupVersionKind) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err := s.Client().List(ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range list.Items {
		if len(list.Items[i].GetFinalizers()) == 0 {
			continue
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := s.Client().Patch(ctx, &list.Items[i], patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
