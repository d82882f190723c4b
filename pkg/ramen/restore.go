package ramen

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// ReadyTimeout is how long Velero asks whether additional items are ready. A CRD is Established within a second; the rest is
// for an API server that is still starting.
const ReadyTimeout = 2 * time.Minute

// RestoreSettings are those for restores of VRGs.
type RestoreSettings struct {
	// Mode says what becomes of VRGs.
	Mode recipe.Mode
	// AdminNamespaces are those of Ramen itself, as in BackupSettings.
	AdminNamespaces []string
}

// ParseRestoreSettings reads the settings from the data of the ConfigMap (nil: none) and the annotations of the Restore, which
// win. Absent values get their defaults; an unknown or malformed one is an error that names it.
func ParseRestoreSettings(data, restoreAnnotations map[string]string) (RestoreSettings, error) {
	mode, err := recipe.ParseMode(data, restoreAnnotations)
	if err != nil {
		return RestoreSettings{}, err
	}
	backup, err := ParseBackupSettings(data)
	return RestoreSettings{Mode: mode, AdminNamespaces: backup.AdminNamespaces}, err
}

// Restores reads what the restore actions on CRDs, Recipes and VRGs need to know. What does not change within a restore is
// read once and kept: its settings, the cluster, and CRDs once they can be used. Safe for concurrent use.
type Restores struct {
	reader *Reader
	client client.Client

	mu    sync.Mutex
	facts map[types.UID]*RestoreFacts
}

// NewRestores returns a Restores over a client that knows the kinds of pkg/restore.NewClient.
func NewRestores(c client.Client) *Restores {
	return &Restores{reader: NewReader(c), client: c, facts: map[types.UID]*RestoreFacts{}}
}

// For returns the facts of a restore. Velero starts a plugin process for each restore, so in practice it has one.
func (r *Restores) For(restore *velerov1.Restore) *RestoreFacts {
	r.mu.Lock()
	defer r.mu.Unlock()
	facts, ok := r.facts[restore.UID]
	if !ok {
		facts = &RestoreFacts{reader: r.reader, client: r.client, restore: restore.DeepCopy(), crds: map[string]recipe.CRD{}}
		r.facts[restore.UID] = facts
	}
	return facts
}

// RestoreFacts are those of one restore. Safe for concurrent use.
type RestoreFacts struct {
	reader  *Reader
	client  client.Client
	restore *velerov1.Restore

	mu       sync.Mutex
	settings *RestoreSettings
	cluster  types.UID
	crds     map[string]recipe.CRD
}

// TargetNamespace returns the namespace that items of a source namespace are restored into.
func (f *RestoreFacts) TargetNamespace(source string) string {
	return restore.TargetNamespace(f.restore, source)
}

// Settings returns the settings of the restore, from the ConfigMap in its namespace, which is Velero's, and from its
// annotations.
func (f *RestoreFacts) Settings(ctx context.Context) (RestoreSettings, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settings != nil {
		return *f.settings, nil
	}
	var config restore.Config
	err := again(ctx, "the plugin's settings", func(ctx context.Context) error {
		var err error
		config, err = restore.ReadConfig(ctx, f.client, f.restore.Namespace, contract.VRGRestoreAction, restore.RestoreKinds)
		return err
	})
	if err != nil {
		return RestoreSettings{}, err
	}
	settings, err := ParseRestoreSettings(config.Data, f.restore.Annotations)
	if err != nil {
		return RestoreSettings{}, &restore.InvalidSettingsError{Err: fmt.Errorf("settings for restores of VRGs (%s): %w", config.Source, err)}
	}
	f.settings = &settings
	return settings, nil
}

// Cluster returns what tells clusters apart: the UID of the namespace kube-system.
func (f *RestoreFacts) Cluster(ctx context.Context) (types.UID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cluster != "" {
		return f.cluster, nil
	}
	var err error
	f.cluster, err = f.reader.Cluster(ctx)
	return f.cluster, err
}

// CRD returns what counts of a CustomResourceDefinition, nil when the cluster has none. One that can be used is read once.
func (f *RestoreFacts) CRD(ctx context.Context, name string) (*recipe.CRD, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if crd, ok := f.crds[name]; ok {
		return &crd, nil
	}
	object, err := present(f.reader.CRD(ctx, name))
	if err != nil || object == nil {
		return nil, err
	}
	crd, err := recipe.CRDOf(object)
	if err != nil {
		return nil, err
	}
	if ready, _ := crd.Ready(); ready {
		f.crds[name] = crd
	}
	return &crd, nil
}

// Recipe returns a Recipe as it is in the cluster now, nil when there is none or Recipes are not served.
func (f *RestoreFacts) Recipe(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return present(f.reader.Recipe(ctx, key))
}

// VRG returns a VolumeReplicationGroup as it is in the cluster now, nil when there is none or they are not served.
func (f *RestoreFacts) VRG(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return present(f.reader.VRG(ctx, key))
}

// present returns nil without an error for what is not there.
func present(object *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil is the answer: it is not there
	}
	return object, err
}

// Try asks the API server, in a dry run with strict field validation, to create a Recipe or VRG in a namespace; where live is
// not nil, to give that one its spec instead. Nothing is stored. It is repeated like a read.
func (f *RestoreFacts) Try(ctx context.Context, item *unstructured.Unstructured, namespace string, live *unstructured.Unstructured) recipe.Trial {
	var stored *unstructured.Unstructured
	what := fmt.Sprintf("the answer to a dry run of %s %s/%s", item.GetKind(), namespace, item.GetName())
	err := again(ctx, what, func(ctx context.Context) error {
		if live != nil {
			stored = live.DeepCopy()
			stored.Object["spec"] = item.DeepCopy().Object["spec"]
			return f.client.Update(ctx, stored, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		}
		stored = item.DeepCopy()
		stored.SetNamespace(namespace)
		stored.SetManagedFields(nil)
		return notYetServed(f.client.Create(ctx, stored, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)))
	})
	if err != nil {
		return recipe.Trial{Err: err}
	}
	return recipe.Trial{Stored: stored}
}

// notYetServed makes "not found" an error that may pass: nothing but the resource itself can be missing when an object is
// created, and of several API servers not all serve a new CRD the moment it is Established.
func notYetServed(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server has no place for it yet: %v", err) //nolint:errorlint // its kind is what has to be hidden
	}
	return err
}

// Ready tells whether the additional items of a Recipe or a VRG can be relied on: the Recipes among them are there, and so
// are the CRDs, which serve their kinds. It is one look; Velero asks again each second (velero pkg/restore/restore.go,
// itemsAvailable). items are those that exist, by Velero's word; a CRD that was in the cluster before is not among them, and
// may still become ready. What never will is no reason to wait: the gates say so.
func (f *RestoreFacts) Ready(ctx context.Context, items []velero.ResourceIdentifier) (bool, error) {
	for _, name := range []string{contract.VRGCRD, contract.RecipeCRD} {
		crd, err := f.CRD(ctx, name)
		if err != nil {
			return false, err
		}
		if recipe.Awaited(crd, slices.Contains(items, CRDItem(name))) {
			return false, nil
		}
	}
	for _, item := range items {
		source := types.NamespacedName{Namespace: item.Namespace, Name: item.Name}
		if item != RecipeItem(source) {
			continue
		}
		found, err := f.Recipe(ctx, types.NamespacedName{Namespace: f.TargetNamespace(source.Namespace), Name: source.Name})
		if err != nil || found == nil {
			return false, err
		}
	}
	return true, nil
}
