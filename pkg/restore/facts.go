// Package restore reads what the actions need to know of a restore: its backup, the data it brings, what the target
// namespaces hold, its settings. Each thing is listed once per restore or once per namespace and kept, so that the
// number of requests does not grow with the number of items.
package restore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// apiTimeout bounds every single request. A plugin call that never returns would stop the whole restore.
const apiTimeout = 30 * time.Second

// Cache holds the facts of the restores that this process serves. Velero starts a plugin process for each restore, so in
// practice that is one; the key is the Restore's UID all the same. Safe for concurrent use.
type Cache struct {
	reader client.Reader

	mu    sync.Mutex
	facts map[types.UID]*Facts
}

// NewCache returns an empty cache that reads through reader.
func NewCache(reader client.Reader) *Cache {
	return &Cache{reader: reader, facts: map[types.UID]*Facts{}}
}

// For returns the facts of a restore.
func (c *Cache) For(restore *velerov1.Restore) *Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	facts, ok := c.facts[restore.UID]
	if !ok {
		facts = &Facts{reader: c.reader, restore: restore.DeepCopy(), kept: map[string]any{}}
		c.facts[restore.UID] = facts
	}
	return facts
}

// Facts of one restore. Safe for concurrent use.
type Facts struct {
	reader  client.Reader
	restore *velerov1.Restore

	mu   sync.Mutex
	kept map[string]any
}

// once returns what read returns and keeps it under key. Errors are not kept: the next item asks again.
func once[T any](ctx context.Context, f *Facts, key string, read func(context.Context) (T, error)) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept, ok := f.kept[key]; ok {
		return kept.(T), nil //nolint:forcetypeassert // each key is used with one type only
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	value, err := read(ctx)
	if err != nil {
		var none T
		return none, err
	}
	f.kept[key] = value
	return value, nil
}

// First returns true the first time it is called with a key, false ever after.
func (f *Facts) First(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, called := f.kept["first/"+key]
	f.kept["first/"+key] = true
	return !called
}

// TargetNamespace returns the namespace that items of a source namespace are restored into.
func (f *Facts) TargetNamespace(source string) string { return TargetNamespace(f.restore, source) }

// TargetNamespace returns the namespace that a restore puts items of a source namespace into.
func TargetNamespace(restore *velerov1.Restore, source string) string {
	return disconnect.TargetNamespace(restore.Spec.NamespaceMapping, source)
}

// Scope tells whether the restore brings DeploymentConfigs. Where the backup cannot be read, it is taken to hold them,
// which loses nothing, and the error says why.
func (f *Facts) Scope(ctx context.Context) (disconnect.Scope, error) {
	backup, err := once(ctx, f, "backup", func(ctx context.Context) (*velerov1.Backup, error) {
		backup := &velerov1.Backup{}
		key := types.NamespacedName{Namespace: f.restore.Namespace, Name: f.restore.Spec.BackupName}
		if err := f.reader.Get(ctx, key, backup); err != nil {
			return nil, fmt.Errorf("get Backup %s: %w", key, err)
		}
		return backup, nil
	})
	if err != nil {
		return ScopeOf(f.restore, nil), err
	}
	return ScopeOf(f.restore, backup), nil
}

// Filled returns the volumes of a pod that this restore brings data for: those that a PodVolumeBackup of its backup
// belongs to, and the claims that a DataDownload of this restore targets. pod is as it stands in the backup.
func (f *Facts) Filled(ctx context.Context, pod *corev1.Pod) ([]disconnect.Filled, error) {
	backups, err := once(ctx, f, "podvolumebackups", f.podVolumeBackups)
	if err != nil {
		return nil, err
	}
	downloads, err := once(ctx, f, "datadownloads", f.dataDownloads)
	if err != nil {
		return nil, err
	}
	inPod := backedUpVolumes(backups[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}], pod)
	var filled []disconnect.Filled
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		by, ok := disconnect.ByPodVolumeBackup, inPod[volume.Name]
		if !ok && volume.PersistentVolumeClaim != nil {
			claim := types.NamespacedName{Namespace: f.TargetNamespace(pod.Namespace), Name: volume.PersistentVolumeClaim.ClaimName}
			if ok = downloads[claim]; ok {
				by = disconnect.ByDataDownload
			}
		}
		if ok {
			filled = append(filled, disconnect.Filled{Volume: volume.Name, By: by})
		}
	}
	return filled, nil
}

// backedUpVolumes returns the volumes of a pod that Velero makes a PodVolumeRestore for: those with a PodVolumeBackup that
// has a snapshot, and without any, those that annotations of very old backups name. The rule is that of
// podvolume.GetVolumeBackupsForPod (velero pkg/podvolume/util.go), which is not called because its package brings in
// every uploader and makes the binary half as large again.
func backedUpVolumes(backups []*velerov1.PodVolumeBackup, pod *corev1.Pod) map[string]bool {
	volumes := map[string]bool{}
	for _, backup := range backups {
		if backup.Status.SnapshotID != "" {
			volumes[backup.Spec.Volume] = true
		}
	}
	if len(volumes) > 0 {
		return volumes
	}
	for key := range pod.Annotations {
		if volume, ok := strings.CutPrefix(key, "snapshot.velero.io/"); ok {
			volumes[volume] = true
		}
	}
	return volumes
}

func (f *Facts) podVolumeBackups(ctx context.Context) (map[types.NamespacedName][]*velerov1.PodVolumeBackup, error) {
	var list velerov1.PodVolumeBackupList
	if err := f.reader.List(ctx, &list, client.InNamespace(f.restore.Namespace),
		client.MatchingLabels{velerov1.BackupNameLabel: label.GetValidName(f.restore.Spec.BackupName)}); err != nil {
		return nil, fmt.Errorf("list PodVolumeBackups of backup %s in %s: %w", f.restore.Spec.BackupName, f.restore.Namespace, err)
	}
	byPod := map[types.NamespacedName][]*velerov1.PodVolumeBackup{}
	for i := range list.Items {
		pod := types.NamespacedName{Namespace: list.Items[i].Spec.Pod.Namespace, Name: list.Items[i].Spec.Pod.Name}
		byPod[pod] = append(byPod[pod], &list.Items[i])
	}
	return byPod, nil
}

// dataDownloads returns the claims that DataDownloads of the restore target. Velero makes them while it restores claims,
// which is before pods. A Velero without data mover does not serve them.
func (f *Facts) dataDownloads(ctx context.Context) (map[types.NamespacedName]bool, error) {
	var list velerov2alpha1.DataDownloadList
	err := f.reader.List(ctx, &list, client.InNamespace(f.restore.Namespace),
		client.MatchingLabels{velerov1.RestoreNameLabel: label.GetValidName(f.restore.Name)})
	if err != nil && !NotServed(err) {
		return nil, fmt.Errorf("list DataDownloads of restore %s in %s: %w", f.restore.Name, f.restore.Namespace, err)
	}
	claims := map[types.NamespacedName]bool{}
	for i := range list.Items {
		target := list.Items[i].Spec.TargetVolume
		claims[types.NamespacedName{Namespace: target.Namespace, Name: target.PVC}] = true
	}
	return claims, nil
}

// DCsIn is what a namespace holds of DeploymentConfigs.
type DCsIn struct {
	// Served is false when the cluster does not know DeploymentConfigs.
	Served bool
	byName map[string]*ocpappsv1.DeploymentConfig
}

// Get returns a DeploymentConfig by name, nil when there is none.
func (d DCsIn) Get(name string) *ocpappsv1.DeploymentConfig { return d.byName[name] }

// DCsBefore returns the DeploymentConfigs of a target namespace as they were when this restore first asked: before it
// reached its own, when asked for the first pod or the first DeploymentConfig of that namespace.
func (f *Facts) DCsBefore(ctx context.Context, namespace string) (DCsIn, error) {
	return once(ctx, f, "dcs-before/"+namespace, func(ctx context.Context) (DCsIn, error) { return f.listDCs(ctx, namespace) })
}

// DCsAfter returns the DeploymentConfigs of a target namespace as they are when this restore first asks for it: after it
// has brought its own, when asked for the first ReplicationController of that namespace.
func (f *Facts) DCsAfter(ctx context.Context, namespace string) (DCsIn, error) {
	return once(ctx, f, "dcs-after/"+namespace, func(ctx context.Context) (DCsIn, error) { return f.listDCs(ctx, namespace) })
}

func (f *Facts) listDCs(ctx context.Context, namespace string) (DCsIn, error) {
	var list ocpappsv1.DeploymentConfigList
	if err := f.reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		if NotServed(err) {
			return DCsIn{}, nil
		}
		return DCsIn{}, fmt.Errorf("list DeploymentConfigs in %s: %w", namespace, err)
	}
	dcs := DCsIn{Served: true, byName: map[string]*ocpappsv1.DeploymentConfig{}}
	for i := range list.Items {
		dcs.byName[list.Items[i].Name] = &list.Items[i]
	}
	return dcs, nil
}

// Live describes a DeploymentConfig of a target namespace for the decision on a pod or on the DeploymentConfig itself.
func (f *Facts) Live(dc *ocpappsv1.DeploymentConfig) disconnect.LiveDC {
	if dc == nil {
		return disconnect.LiveDC{}
	}
	started := f.restore.Status.StartTimestamp
	return disconnect.LiveDC{
		Exists:      true,
		Replicas:    dc.Spec.Replicas,
		Annotations: dc.Annotations,
		OfThisRestore: dc.Labels[velerov1.RestoreNameLabel] == label.GetValidName(f.restore.Name) &&
			started != nil && !dc.CreationTimestamp.Before(started),
	}
}

// DetachedPods returns how many detached pods each DeploymentConfig of a target namespace has, from this restore or an
// earlier one: whoever has detached them, their DeploymentConfig must not run beside them. Ask for it when the restore has
// come to its DeploymentConfigs: pods come before them.
func (f *Facts) DetachedPods(ctx context.Context, namespace string) (map[string]int, error) {
	return once(ctx, f, "detached/"+namespace, func(ctx context.Context) (map[string]int, error) {
		var list corev1.PodList
		if err := f.reader.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{contract.DisconnectedLabel}); err != nil {
			return nil, fmt.Errorf("list detached pods in %s: %w", namespace, err)
		}
		count := map[string]int{}
		for i := range list.Items {
			count[disconnect.DeploymentConfigOf(&list.Items[i])]++
		}
		return count, nil
	})
}

// NotServed tells whether an error of a list means that the API server does not know the resource. A list of a resource
// that it knows never answers "not found".
func NotServed(err error) bool { return apierrors.IsNotFound(err) }
