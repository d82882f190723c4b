package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// row runs a check under the name of the report or defect that it answers.
func (s *scene) row(name string, check func(*scene)) {
	s.t.Helper()
	s.t.Run(name, func(t *testing.T) {
		row := *s
		row.t = t
		check(&row)
	})
}

// podsByName returns the pods of an application by their names.
func (s *scene) podsByName(namespace, name string) map[string]corev1.Pod {
	s.t.Helper()
	pods, err := s.pods(s.t.Context(), namespace, name)
	require.NoError(s.t, err)
	byName := map[string]corev1.Pod{}
	for i := range pods {
		byName[pods[i].Name] = pods[i]
	}
	return byName
}

// volumeRestores returns the PodVolumeRestores of a restore into a namespace.
func (s *scene) volumeRestores(ctx context.Context, restore, namespace string) ([]velerov1.PodVolumeRestore, error) {
	var list velerov1.PodVolumeRestoreList
	if err := s.Client().List(ctx, &list, client.InNamespace(s.VeleroNamespace())); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(r velerov1.PodVolumeRestore) bool {
		return r.Spec.Pod.Namespace != namespace || !slices.ContainsFunc(r.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Name == restore })
	}), nil
}

// holdData keeps the data of a claim on its way until it is released, at the latest when the test ends: Velero works on one
// restore at a time.
func (s *scene) holdData(claim string) {
	s.node.HoldRestores(s.ns, claim)
	s.t.Cleanup(func() { s.node.Release(s.ns, claim) })
}

// moving waits until a restore fills a volume of a namespace at this moment.
func (s *scene) moving(restore, namespace string) {
	s.t.Helper()
	s.until(restoreTime, func(ctx context.Context) error {
		restores, err := s.volumeRestores(ctx, restore, namespace)
		if err != nil {
			return err
		}
		for i := range restores {
			if restores[i].Status.Phase == velerov1.PodVolumeRestorePhaseInProgress {
				return nil
			}
		}
		return fmt.Errorf("none of %d PodVolumeRestores is in progress", len(restores))
	})
}

// rolledOutHeld waits until the controllers have rolled out a held DeploymentConfig at 0 replicas: all the harm that they
// could do to detached pods is done by then.
func (s *scene) rolledOutHeld(namespace, name string) {
	s.t.Helper()
	s.until(restoreTime, func(ctx context.Context) error {
		var dc ocpappsv1.DeploymentConfig
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &dc); err != nil {
			return err
		}
		if dc.Labels[contract.ReplicasModifiedLabel] == "" {
			return fmt.Errorf("DeploymentConfig %s is not held", name)
		}
		return s.rolledOut(ctx, namespace, name, 1)
	})
}

// empty asserts that a claim came back without the data that was in it.
func (s *scene) empty(namespace, claim string) {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		value, err := s.node.Read(ctx, namespace, claim)
		if err == nil && value != "" {
			err = fmt.Errorf("claim %s holds %q", claim, value)
		}
		return err
	})
}

// logged returns the lines of a restore's log that our actions wrote on an object, by its name.
func (s *scene) logged(restore, object string) string {
	s.t.Helper()
	logs, err := s.RestoreLogs(s.t.Context(), restore)
	require.NoError(s.t, err)
	var lines []string
	for line := range strings.Lines(logs) {
		if strings.Contains(line, "Decided on the item") && strings.Contains(line, "name="+object+" ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// recorded returns what has been recorded so far of the live pods of an application: for each moment, their names.
func (s *scene) recorded(namespace, name string) (moments [][]string) {
	live := map[string]bool{}
	for _, v := range s.record.SoFar() {
		pod, ok := v.Object.(*corev1.Pod)
		if !ok || pod.Namespace != namespace || pod.Labels[contract.DeploymentConfigLabel] != name {
			continue
		}
		if v.Deleted || pod.DeletionTimestamp != nil {
			delete(live, pod.Name)
		} else {
			live[pod.Name] = true
		}
		var names []string
		for name := range live {
			names = append(names, name)
		}
		moments = append(moments, names)
	}
	return moments
}

// recordedKeys returns the labels and annotations that restored pods and DeploymentConfigs have had while recorded.
func (s *scene) recordedKeys() map[string]bool {
	keys := map[string]bool{}
	for _, v := range s.record.SoFar() {
		if _, ok := v.Object.(*velerov1.PodVolumeRestore); ok || v.Object.GetLabels()[velerov1.RestoreNameLabel] == "" {
			continue
		}
		for key := range v.Object.GetLabels() {
			keys[key] = true
		}
		for key := range v.Object.GetAnnotations() {
			keys[key] = true
		}
	}
	return keys
}

// The report, in many words and over many years: the restored pod is replaced by its DeploymentConfig before its data is
// in. It must live until its data is in, and then make room.
func TestPodsLiveUntilTheirDataIsIn(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	before := s.podsByName(s.ns, "web")
	owned := s.objects(s.ns)
	backup := s.backup(allVolumes)
	s.lose()
	s.holdData("data")
	name := s.name("restore")
	s.startRestore(name, backup)
	s.moving(name, s.ns)
	s.rolledOutHeld(s.ns, "web")
	during := s.podsByName(s.ns, "web")
	s.row("B2 the restored pod keeps its name", func(s *scene) {
		// Velero backs a claim up once, through one of the pods that mount it. The others have nothing to wait for.
		assert.Len(s.t, during, 1)
		for name, pod := range during {
			assert.Contains(s.t, before, name)
			assert.Nil(s.t, pod.DeletionTimestamp)
		}
	})
	s.node.Release(s.ns, "data")
	restore := s.awaitRestore(name)
	s.completed(restore, 1)
	s.resumed(name, s.ns, "web", 2, false)

	s.row("B1 every volume restore completes in the pod it was made for", func(s *scene) {
		restores, err := s.volumeRestores(s.t.Context(), name, s.ns)
		require.NoError(s.t, err)
		assert.Len(s.t, restores, 1)
		for i := range restores {
			assert.Equal(s.t, velerov1.PodVolumeRestorePhaseCompleted, restores[i].Status.Phase, restores[i].Name)
			assert.Equal(s.t, during[restores[i].Spec.Pod.Name].UID, restores[i].Spec.Pod.UID)
		}
		s.hasData(s.ns, "data")
	})
	s.row("B3 no volume restore waits for a pod that is gone", func(s *scene) {
		restores, err := s.volumeRestores(s.t.Context(), name, s.ns)
		require.NoError(s.t, err)
		for i := range restores {
			assert.NotContains(s.t, []velerov1.PodVolumeRestorePhase{"", velerov1.PodVolumeRestorePhaseNew}, restores[i].Status.Phase, restores[i].Name)
		}
		assert.Equal(s.t, velerov1.RestorePhaseCompleted, restore.Status.Phase)
	})
	s.row("B15 every key that we add begins with oadp.openshift.io", func(s *scene) {
		known := map[string]bool{}
		for _, object := range owned {
			for key := range object.GetLabels() {
				known[key] = true
			}
			for key := range object.GetAnnotations() {
				known[key] = true
			}
		}
		added := 0
		for key := range s.recordedKeys() {
			if known[key] || strings.HasPrefix(key, "velero.io/") {
				continue
			}
			assert.True(s.t, strings.HasPrefix(key, "oadp.openshift.io/"), key)
			added++
		}
		assert.Equal(s.t, 7, added, "labels and annotations of a held DeploymentConfig and a detached pod")
	})
	s.row("B16 no pod of the DeploymentConfig runs beside a restored one", func(s *scene) {
		moments := s.recorded(s.ns, "web")
		assert.NotEmpty(s.t, moments)
		for _, live := range moments {
			restored := slices.ContainsFunc(live, func(name string) bool { return before[name].Name != "" })
			made := slices.ContainsFunc(live, func(name string) bool { return before[name].Name == "" })
			assert.False(s.t, restored && made, "restored pods and new ones at the same time: %v", live)
		}
	})
	s.row("B35 there are as many pods as before, not twice as many", func(s *scene) {
		assert.Len(s.t, s.podsByName(s.ns, "web"), len(before))
		for _, live := range s.recorded(s.ns, "web") {
			assert.LessOrEqual(s.t, len(live), len(before), live)
		}
	})
}

// Defect D30: without detaching, pods of version 1 are deleted by the new rollout of version 1, and pods of a later version
// stay as duplicates. Neither may happen, and versions start at 1 again without ReplicationControllers of the backup in
// the way.
func TestPodsOfAnyVersion(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "one", replicas: 1, claim: "data-one"})
	s.deploy(app{name: "seven", replicas: 2, claim: "data-seven"})
	s.bump("seven", 7)
	before := s.podsByName(s.ns, "seven")
	for name := range before {
		require.True(t, strings.HasPrefix(name, "seven-7-"), name)
	}
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 2)
	for name, replicas := range map[string]int{"one": 1, "seven": 2} {
		s.row(fmt.Sprintf("D30 %s comes back with its data and its replicas", name), func(s *scene) {
			s.resumed(restore.Name, s.ns, name, replicas, false)
			s.hasData(s.ns, "data-"+name)
			for pod := range s.podsByName(s.ns, name) {
				assert.True(s.t, strings.HasPrefix(pod, name+"-1-"), "%s is of the first version", pod)
			}
		})
	}
	s.row("B19 the versions start at 1, and a rollout started by hand works", func(s *scene) {
		var rcs corev1.ReplicationControllerList
		require.NoError(s.t, s.Client().List(s.t.Context(), &rcs, client.InNamespace(s.ns)))
		var names []string
		for i := range rcs.Items {
			names = append(names, rcs.Items[i].Name)
		}
		assert.ElementsMatch(s.t, []string{"one-1", "seven-1"}, names)
		for _, rc := range []string{"one-1", "seven-1", "seven-6", "seven-7"} {
			assert.Contains(s.t, s.logged(restore.Name, rc), "decision=skipped")
		}
		s.rollOut("seven", 2)
		s.awaitPods(s.ns, "seven", 2)
	})
}

// Reports B4, B5 and B7: volumes chosen by the opt-in annotation came back empty, or their pods were restored while the
// DeploymentConfig was not held, or the annotation was mistaken for the one that opts out. Pod and DeploymentConfig must
// be decided on alike, by the data that there really is.
func TestOptIn(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "in", replicas: 2, claim: "data-in", podAnnotations: map[string]string{velerov1.VolumesToBackupAnnotation: "data"}})
	s.deploy(app{name: "plain", replicas: 1, claim: "data-plain"})
	plain := s.podsByName(s.ns, "plain")
	backup := s.backup()
	s.lose()
	s.holdData("data-in")
	name := s.name("restore")
	s.startRestore(name, backup)
	s.moving(name, s.ns)
	s.rolledOutHeld(s.ns, "in")
	s.row("B5 the DeploymentConfig of the restored pods is held", func(s *scene) {
		var restore velerov1.Restore
		require.NoError(s.t, s.Client().Get(s.t.Context(), client.ObjectKey{Namespace: s.VeleroNamespace(), Name: name}, &restore))
		s.held(&restore, s.ns, "in", disconnect.Originals{Replicas: 2}, 1)
	})
	s.node.Release(s.ns, "data-in")
	restore := s.awaitRestore(name)
	s.completed(restore, 1)
	s.row("B4 opt-in: the data comes back", func(s *scene) {
		s.resumed(name, s.ns, "in", 2, false)
		s.hasData(s.ns, "data-in")
	})
	s.row("B7 the annotation that opts in is the one that counts", func(s *scene) {
		restores, err := s.volumeRestores(s.t.Context(), name, s.ns)
		require.NoError(s.t, err)
		assert.Len(s.t, restores, 1)
	})
	s.row("D6 an application without data of its own in the backup is not held", func(s *scene) {
		s.awaitPods(s.ns, "plain", 1)
		s.empty(s.ns, "data-plain")
		for pod := range plain {
			assert.NotContains(s.t, s.podsByName(s.ns, "plain"), pod, "its DeploymentConfig makes its own")
			assert.Contains(s.t, s.logged(name, pod), "no data and no hook waits for it: DeploymentConfig plain makes its own pods")
		}
		assert.Empty(s.t, s.events(s.ns, "plain"))
	})
}

// Report B4 and defect D6: with the default-volumes flag, a volume that opts out has no data, so it is no reason to restore
// a pod; one beside it is.
func TestOptOut(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "out", replicas: 1, claim: "data-out", podAnnotations: map[string]string{velerov1.VolumesToExcludeAnnotation: "data"}})
	s.deploy(app{name: "part", replicas: 1, claim: "data-part", emptyDir: true, podAnnotations: map[string]string{velerov1.VolumesToExcludeAnnotation: "cache"}})
	out := s.podsByName(s.ns, "out")
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.row("B4 opt-out: the volume that did not opt out comes back", func(s *scene) {
		s.resumed(restore.Name, s.ns, "part", 1, false)
		s.hasData(s.ns, "data-part")
	})
	s.row("D6 a pod whose only volume opts out is not restored", func(s *scene) {
		s.awaitPods(s.ns, "out", 1)
		s.empty(s.ns, "data-out")
		for pod := range out {
			assert.NotContains(s.t, s.podsByName(s.ns, "out"), pod)
			assert.Contains(s.t, s.logged(restore.Name, pod), "no data and no hook waits for it")
		}
	})
}

// Report B4: whatever rule has chosen the volumes, also a volume policy, the data in the backup decides.
func TestVolumePolicy(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "kept", replicas: 1, claim: "data-kept"})
	s.deploy(app{name: "skipped", replicas: 1, claim: "data-skipped"})
	for name, action := range map[string]string{"data-kept": "files", "data-skipped": "none"} {
		s.patch(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}},
			fmt.Sprintf(`{"metadata":{"labels":{"backup":%q}}}`, action))
	}
	policy := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.VeleroNamespace(), Name: s.name("policy")},
		Data: map[string]string{"policy.yaml": `version: v1
volumePolicies:
- conditions: {pvcLabels: {backup: files}}
  action: {type: fs-backup}
- conditions: {pvcLabels: {backup: none}}
  action: {type: skip}
`},
	}
	s.create(policy)
	backup := s.backup("--resource-policies-configmap", policy.Name)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.row("B4 volume policy: the data that it chose comes back", func(s *scene) {
		s.resumed(restore.Name, s.ns, "kept", 1, false)
		s.hasData(s.ns, "data-kept")
	})
	s.row("D6 a volume that the policy skips holds nothing up", func(s *scene) {
		s.awaitPods(s.ns, "skipped", 1)
		s.empty(s.ns, "data-skipped")
		assert.Empty(s.t, s.events(s.ns, "skipped"))
	})
}

// Report B6: when Velero renamed the field of the default-volumes flag, pods were detached while DeploymentConfigs were not
// held. Under the old name too, both must be decided on alike.
func TestB6_TheFlagUnderItsOldName(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.VeleroNamespace(), Name: s.name("backup")},
		Spec:       velerov1.BackupSpec{IncludedNamespaces: []string{s.ns}, DefaultVolumesToRestic: new(true)}, //nolint:staticcheck // the old name is what the report is about
	}
	s.create(backup)
	ctx, cancel := context.WithTimeout(t.Context(), restoreTime)
	defer cancel()
	ended, err := s.WaitBackup(ctx, backup.Name)
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseCompleted, ended.Status.Phase)
	s.lose()
	restore := s.restore(backup.Name)
	s.completed(restore, 1)
	s.resumed(restore.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
	assert.Len(t, s.events(s.ns, "web"), 2, "it was held and resumed")
}

// Defect D6: an emptyDir or a generic ephemeral volume made phase one happen, although its content goes with the pod that
// is replaced. Such a pod must not be restored, and the log must say what is not restored; beside a claim, the claim
// counts.
func TestVolumesThatDieWithTheirPod(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "cache", replicas: 1, emptyDir: true})
	s.deploy(app{name: "both", replicas: 1, claim: "data", emptyDir: true})
	s.deploy(app{name: "scratch", replicas: 1, change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim("", "").Spec}},
		}}}
		dc.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	}})
	before := map[string]map[string]corev1.Pod{}
	for _, name := range []string{"cache", "both", "scratch"} {
		before[name] = s.podsByName(s.ns, name)
	}
	for pod := range before["both"] {
		require.NoError(t, s.node.WriteVolume(t.Context(), s.ns, pod, "cache", "warm"))
	}
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 1)
	for name, volume := range map[string]string{"cache": "cache", "scratch": "scratch"} {
		s.row(fmt.Sprintf("D6 %s has no reason to be restored", name), func(s *scene) {
			s.awaitPods(s.ns, name, 1)
			for pod := range before[name] {
				assert.NotContains(s.t, s.podsByName(s.ns, name), pod)
				assert.Contains(s.t, s.logged(restore.Name, pod),
					"backed-up content of volumes that live and die with a pod is not restored: "+volume)
			}
			assert.Empty(s.t, s.events(s.ns, name))
		})
	}
	s.row("D6 a claim beside an emptyDir comes back, the emptyDir anew", func(s *scene) {
		s.resumed(restore.Name, s.ns, "both", 1, false)
		s.hasData(s.ns, "data")
		for pod := range s.podsByName(s.ns, "both") {
			value, err := s.node.ReadVolume(s.t.Context(), s.ns, pod, "cache")
			require.NoError(s.t, err)
			assert.Empty(s.t, value)
		}
	})
}

// An application that was at 0 replicas when it was backed up stays at 0, without marks and without an operation, and its
// claim comes back.
func TestNoReplicasInTheBackup(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 0, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 0)
	s.resumed(restore.Name, s.ns, "web", 0, false)
	assert.Empty(t, s.events(s.ns, "web"))
	s.empty(s.ns, "data") // no pod had it mounted, so Velero had no way to back its files up
}

// dataMover plays the part of Velero's data mover for one claim: in the cluster that is lost it owns the volume; in the
// restore it makes the volume once the data is in, as Velero's own does: until then the claim cannot be bound.
type dataMover struct {
	s     *scene
	claim string
}

func (m dataMover) key() string { return m.s.ns + "-" + m.claim }

// makeVolume makes a volume that only the claim can be bound to.
func (m dataMover) makeVolume(round string) {
	m.s.t.Helper()
	m.s.create(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: m.key() + "-" + round, Labels: map[string]string{"test/data": m.key()}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/standin/" + m.key()}},
		},
	})
}

// makeClaim makes the claim and its first volume.
func (m dataMover) makeClaim() {
	m.s.t.Helper()
	m.makeVolume("lost")
	c := claim(m.s.ns, m.claim)
	c.Spec.StorageClassName = new("")
	c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"test/data": m.key()}}
	m.s.create(c)
}

// lose deletes the volume after its claim.
func (m dataMover) lose() {
	m.s.t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: m.key() + "-lost"}}
	require.NoError(m.s.t, m.s.Client().Delete(m.s.t.Context(), volume))
	m.s.until(soon, func(ctx context.Context) error {
		if err := m.s.Client().Get(ctx, client.ObjectKeyFromObject(volume), volume); client.IgnoreNotFound(err) != nil || err == nil {
			return errors.Join(err, fmt.Errorf("volume %s is still there", volume.Name))
		}
		return nil
	})
}

// begin makes the DataDownload of a restore, as Velero does while it restores claims.
func (m dataMover) begin(restore string) {
	m.s.t.Helper()
	download := &velerov2alpha1.DataDownload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.s.VeleroNamespace(), Name: m.key(),
			Labels: map[string]string{velerov1.RestoreNameLabel: restore},
		},
		Spec: velerov2alpha1.DataDownloadSpec{
			TargetVolume:          velerov2alpha1.TargetVolumeSpec{Namespace: m.s.ns, PVC: m.claim},
			BackupStorageLocation: "default", SnapshotID: "none", SourceNamespace: m.s.ns,
			OperationTimeout: metav1.Duration{Duration: time.Hour},
		},
		Status: velerov2alpha1.DataDownloadStatus{Phase: velerov2alpha1.DataDownloadPhaseInProgress},
	}
	m.s.create(download)
	m.s.t.Cleanup(func() {
		_ = m.s.Client().Delete(context.Background(), download) // of no other scene's concern
	})
}

// end ends the DataDownload. A completed one has made the volume.
func (m dataMover) end(phase velerov2alpha1.DataDownloadPhase, message string) {
	m.s.t.Helper()
	if phase == velerov2alpha1.DataDownloadPhaseCompleted {
		m.makeVolume("restored")
	}
	download := &velerov2alpha1.DataDownload{ObjectMeta: metav1.ObjectMeta{Namespace: m.s.VeleroNamespace(), Name: m.key()}}
	m.s.patch(download, fmt.Sprintf(`{"status":{"phase":%q,"message":%q}}`, phase, message))
}

// saysInDetails waits until `velero restore describe --details` says something.
func (s *scene) saysInDetails(restore, sentence string) {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		details, err := s.DescribeRestore(ctx, restore)
		if err == nil && !strings.Contains(details, sentence) {
			err = fmt.Errorf("the details do not say %q:\n%s", sentence, details)
		}
		return err
	})
}

// Report B10: with the data mover, DeploymentConfigs replaced restored pods just as with file-system backup, since the rule
// knew of the latter only. Phase two must wait for a DataDownload into a pod's claim, and stop for one that fails.
func TestDataDownloads(t *testing.T) {
	s := newScene(t)
	orders, stock := dataMover{s, "orders"}, dataMover{s, "stock"}
	for _, mover := range []dataMover{orders, stock} {
		mover.makeClaim()
		s.create(app{name: mover.claim, replicas: 1, claim: mover.claim}.dc(s.ns))
		s.awaitPods(s.ns, mover.claim, 1)
	}
	backup := s.backup()
	s.lose()
	name := s.name("restore")
	for _, mover := range []dataMover{orders, stock} {
		mover.lose()
		mover.begin(name)
	}
	s.startRestore(name, backup)
	s.rolledOutHeld(s.ns, "orders")
	s.rolledOutHeld(s.ns, "stock")
	s.row("B10 a sentence says that phase two waits for the data", func(s *scene) {
		s.saysInDetails(name, "0 of 1 detached pod initialised")
	})
	orders.end(velerov2alpha1.DataDownloadPhaseCompleted, "")
	stock.end(velerov2alpha1.DataDownloadPhaseFailed, "the uploader has lost its repository")
	restore := s.awaitRestore(name)
	assert.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
	s.row("B10 an application whose data is in is back", func(s *scene) {
		s.awaitPods(s.ns, "orders", 1)
		dc := s.dc(s.ns, "orders")
		assert.EqualValues(s.t, 1, dc.Spec.Replicas)
		assert.NotContains(s.t, dc.Labels, contract.ReplicasModifiedLabel)
		var c corev1.PersistentVolumeClaim
		require.NoError(s.t, s.Client().Get(s.t.Context(), types.NamespacedName{Namespace: s.ns, Name: "orders"}, &c))
		assert.Equal(s.t, orders.key()+"-restored", c.Spec.VolumeName)
	})
	s.row("B10 an application whose data did not come is held, and the restore says so", func(s *scene) {
		s.held(restore, s.ns, "stock", disconnect.Originals{Replicas: 1}, 1)
		details := s.details(name)
		assert.Contains(s.t, details, "DeploymentConfig "+s.ns+"/stock: DataDownload "+stock.key()+" of volume stock")
		assert.Contains(s.t, details, "the uploader has lost its repository")
		assert.Contains(s.t, details, "post-restore "+name)
	})
}
