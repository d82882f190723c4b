package openshift

import (
	"context"
	"errors"
	"fmt"
	"sync"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claims decides which ReplicationControllers are a DeploymentConfig's, and makes that so: it adopts orphans that carry the
// DeploymentConfig's name in the label openshift.io/deployment-config.name and lets go of its own that do not. It is good
// for one look at the DeploymentConfig.
type claims struct {
	api    client.Client
	dc     *ocpappsv1.DeploymentConfig
	wanted labels.Selector
	// mayAdopt asks the API server, at most once, whether dc still exists and is not being deleted. The cache cannot be
	// trusted here: a ReplicationController adopted by a deleted owner is collected as garbage.
	mayAdopt func() error
}

func newClaims(ctx context.Context, api client.Client, dc *ocpappsv1.DeploymentConfig) *claims {
	return &claims{
		api:    api,
		dc:     dc,
		wanted: labels.SelectorFromSet(labels.Set{ocpappsv1.DeploymentConfigAnnotation: dc.Name}),
		mayAdopt: sync.OnceValue(func() error {
			fresh := &ocpappsv1.DeploymentConfig{}
			if err := api.Get(ctx, client.ObjectKeyFromObject(dc), fresh); err != nil {
				return err
			}
			if fresh.UID != dc.UID {
				return fmt.Errorf("DeploymentConfig %s/%s was replaced: its UID is %s, no longer %s", dc.Namespace, dc.Name, fresh.UID, dc.UID)
			}
			if fresh.DeletionTimestamp != nil {
				return fmt.Errorf("DeploymentConfig %s/%s is being deleted", dc.Namespace, dc.Name)
			}
			return nil
		}),
	}
}

// all returns those of rcs that belong to the DeploymentConfig now. An error means that some could not be adopted or
// released; the caller tries again later.
func (c *claims) all(ctx context.Context, rcs []corev1.ReplicationController) ([]*corev1.ReplicationController, error) {
	var ours []*corev1.ReplicationController
	var errs []error
	for i := range rcs {
		isOurs, err := c.one(ctx, &rcs[i])
		if err != nil {
			errs = append(errs, err)
		} else if isOurs {
			ours = append(ours, &rcs[i])
		}
	}
	return ours, errors.Join(errs...)
}

// one says whether rc belongs to the DeploymentConfig now, after adopting or releasing it where needed.
func (c *claims) one(ctx context.Context, rc *corev1.ReplicationController) (bool, error) {
	matches := c.wanted.Matches(labels.Set(rc.Labels))
	owner := metav1.GetControllerOfNoCopy(rc)
	switch {
	case owner != nil && owner.UID != c.dc.UID:
		return false, nil
	case owner != nil && matches:
		return true, nil
	case owner == nil && (!matches || rc.DeletionTimestamp != nil), c.dc.DeletionTimestamp != nil:
		return false, nil
	case owner != nil:
		return false, c.release(ctx, rc)
	}
	if err := c.adopt(ctx, rc); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return true, nil
}

func (c *claims) adopt(ctx context.Context, rc *corev1.ReplicationController) error {
	if err := c.mayAdopt(); err != nil {
		return fmt.Errorf("adopt ReplicationController %s/%s (%s): %w", rc.Namespace, rc.Name, rc.UID, err)
	}
	// The UID in the patch makes the API server refuse it for a namesake that has come since.
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"controller":true,"blockOwnerDeletion":true}]}}`,
		rc.UID, controllerKind.GroupVersion(), controllerKind.Kind, c.dc.Name, c.dc.UID)
	if err := c.patch(ctx, rc, patch); err != nil {
		return fmt.Errorf("adopt ReplicationController %s/%s: %w", rc.Namespace, rc.Name, err)
	}
	return nil
}

func (c *claims) release(ctx context.Context, rc *corev1.ReplicationController) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, rc.UID, c.dc.UID)
	// Not found or invalid: it is gone, it was replaced, or it has no such owner any more. Nothing is left to release.
	if err := c.patch(ctx, rc, patch); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("release ReplicationController %s/%s: %w", rc.Namespace, rc.Name, err)
	}
	return nil
}

// patch applies a strategic merge patch without touching rc: the callers go on with what the cache holds, like the original.
func (c *claims) patch(ctx context.Context, rc *corev1.ReplicationController, patch string) error {
	return c.api.Patch(ctx, rc.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
}
