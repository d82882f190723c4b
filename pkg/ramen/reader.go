// Package ramen reads from a cluster what the rules of pkg/recipe rest on: CustomResourceDefinitions, Recipes, VRGs, the
// cluster's identity, and the settings of the actions on them. It asks the API server itself, as Velero's service account,
// because Velero drops a VRG from a backup whose additional items it cannot read (velero pkg/backup/item_backupper.go,
// executeActions), and because a restore action must know what is in the cluster already.
package ramen

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// readTimeout bounds a read with all its repetitions. Velero works on one item after the other, so a longer one would hold up
// the whole backup or restore.
const readTimeout = 10 * time.Second

// tries are how often, and after what pauses, a read is repeated that failed for a reason that may pass: some 6 seconds.
func tries() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6}
}

// Reader reads Ramen's objects and what they need. Each method repeats a read that failed for a reason that may pass, within
// 10 seconds. The errors are those of the API server and can be told apart with apierrors.IsNotFound and the like; they name
// the object. Safe for concurrent use.
type Reader struct{ reader client.Reader }

// NewReader returns a Reader over a client that knows the kinds of pkg/restore.NewClient.
func NewReader(reader client.Reader) *Reader { return &Reader{reader: reader} }

// CRD returns a CustomResourceDefinition, by its full name.
func (r *Reader) CRD(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	kind := schema.GroupVersionKind{Group: contract.CRDGroup, Version: contract.CRDVersion, Kind: contract.CRDKind}
	return r.object(ctx, kind, types.NamespacedName{Name: name})
}

// Recipe returns a Recipe of Ramen. Where the cluster does not serve Recipes, the error is "not found" too: look at the CRD
// first.
func (r *Reader) Recipe(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return r.object(ctx, ramenKind(contract.RecipeKind), key)
}

// VRG returns a VolumeReplicationGroup. Where the cluster does not serve them, the error is "not found" too.
func (r *Reader) VRG(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return r.object(ctx, ramenKind(contract.VRGKind), key)
}

// Cluster returns what tells clusters apart: the UID of the namespace kube-system.
func (r *Reader) Cluster(ctx context.Context) (types.UID, error) {
	var namespace corev1.Namespace
	err := again(ctx, "Namespace kube-system", func(ctx context.Context) error {
		return r.reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, &namespace)
	})
	return namespace.UID, err
}

func (r *Reader) object(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	name := key.Name
	if key.Namespace != "" {
		name = key.String()
	}
	if err := again(ctx, kind.Kind+" "+name, func(ctx context.Context) error { return r.reader.Get(ctx, key, object) }); err != nil {
		return nil, err
	}
	return object, nil
}

func ramenKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: contract.RamenGroup, Version: contract.RamenVersion, Kind: kind}
}

// again reads until it succeeds, fails for good, or time is up; then the error is that of the last read.
func again(ctx context.Context, what string, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, tries(), func(ctx context.Context) (bool, error) {
		last = read(ctx)
		return last == nil || !MayPass(last), nil
	})
	if last != nil {
		err = last
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", what, err)
	}
	return nil
}

// MayPass tells whether the same request may succeed a little later: the API server is overloaded or away, or did not answer.
func MayPass(err error) bool {
	if errors.Is(err, context.Canceled) || meta.IsNoMatchError(err) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return code < http.StatusBadRequest || code >= http.StatusInternalServerError
	}
}
