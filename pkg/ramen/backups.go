package ramen

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// maxKept bounds what Backups keeps. The largest published Recipes have some 26 kB, so it stays far below 20 MB.
const maxKept = 512

// Backups reads what the actions on VRGs and Recipes need for one backup, and keeps it for the other items of that backup: VRGs
// that share a Recipe then record the same state of it, and cost no more requests. Velero starts a plugin process for each
// backup; the key is the Backup's UID all the same. What failed for a reason that may pass is not kept. Safe for concurrent use.
type Backups struct {
	client  client.Reader
	reader  *Reader
	clock   clock.PassiveClock
	started time.Time

	// mu is held during a read, so that two items do not read the same.
	mu   sync.Mutex
	kept *lru.Cache
}

// NewBackups returns an empty Backups that reads through a client of pkg/restore.NewClient. started is when Velero's server
// started, see ServerStart; zero: that is not known.
func NewBackups(c client.Reader, passive clock.PassiveClock, started time.Time) *Backups {
	return &Backups{client: c, reader: NewReader(c), clock: passive, started: started, kept: lru.New(maxKept)}
}

// slot is what is kept: of which backup, and what.
type slot struct {
	backup     types.UID
	kind, name string
}

// keep returns what read returns, and keeps it where read says so.
func keep[T any](b *Backups, in slot, read func() (value T, lasting bool)) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept, ok := b.kept.Get(in); ok {
		return kept.(T) //nolint:forcetypeassert // each kind is used with one type only
	}
	value, lasting := read()
	if lasting {
		b.kept.Add(in, value)
	}
	return value
}

// Settings returns the settings for a backup. The error, with which come the defaults, is returned to the first caller only
// where it is an InvalidSettingsError: one line in the log is enough of it.
func (b *Backups) Settings(ctx context.Context, backup *velerov1.Backup) (BackupSettings, error) {
	var failed error
	settings := keep(b, slot{backup.UID, "settings", ""}, func() (BackupSettings, bool) {
		settings, err := ReadBackupSettings(ctx, b.client, backup)
		failed = err
		return settings, err == nil || invalid(err)
	})
	return settings, failed
}

func invalid(err error) bool {
	var invalid *restore.InvalidSettingsError
	return errors.As(err, &invalid)
}

// Look fills in the CRDs, the Recipe, the cluster and the times that the decision on a VRG rests on. A Recipe is not asked for where its
// CRD is not ready: the API server's answer would not tell that from a Recipe that is not there.
func (b *Backups) Look(ctx context.Context, known *recipe.BackupFacts, key types.NamespacedName) {
	known.Now, known.ServerStarted = b.clock.Now(), b.started
	known.CRD, known.VRGCRD = b.CRD(ctx, known.Backup, contract.RecipeCRD), b.CRD(ctx, known.Backup, contract.VRGCRD)
	if recipe.CanRead(known.CRD) {
		known.Recipe = b.recipe(ctx, known.Backup, key)
	}
	known.Cluster, known.ClusterErr = b.cluster(ctx, known.Backup)
}

// CRD looks for a CustomResourceDefinition.
func (b *Backups) CRD(ctx context.Context, backup *velerov1.Backup, name string) recipe.Found {
	return keep(b, slot{backup.UID, contract.CRDKind, name}, func() (recipe.Found, bool) {
		return found(b.reader.CRD(ctx, name))
	})
}

func (b *Backups) recipe(ctx context.Context, backup *velerov1.Backup, key types.NamespacedName) recipe.Found {
	return keep(b, slot{backup.UID, contract.RecipeKind, key.String()}, func() (recipe.Found, bool) {
		return found(b.reader.Recipe(ctx, key))
	})
}

// Archived notes a Recipe as Velero puts it into a backup. Velero archives an object once, so VRGs that come later record this
// state of it, and not that of a moment later. changed tells that VRGs that came before have recorded another.
func (b *Backups) Archived(backup *velerov1.Backup, item *unstructured.Unstructured) (changed bool) {
	in := slot{backup.UID, contract.RecipeKind, types.NamespacedName{Namespace: item.GetNamespace(), Name: item.GetName()}.String()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept, ok := b.kept.Get(in); ok {
		before := kept.(recipe.Found).Object //nolint:forcetypeassert // each kind is used with one type only
		changed = before == nil || before.GetResourceVersion() != item.GetResourceVersion()
	}
	b.kept.Add(in, recipe.Found{Object: item.DeepCopy(), Archived: true})
	return changed
}

func (b *Backups) cluster(ctx context.Context, backup *velerov1.Backup) (types.UID, error) {
	type answer struct {
		uid types.UID
		err error
	}
	a := keep(b, slot{backup.UID, "cluster", ""}, func() (answer, bool) {
		uid, err := b.reader.Cluster(ctx)
		return answer{uid, err}, err == nil || !MayPass(err)
	})
	return a.uid, a.err
}

func found(object *unstructured.Unstructured, err error) (recipe.Found, bool) {
	return recipe.Found{Object: object, Err: err}, err == nil || !MayPass(err)
}
