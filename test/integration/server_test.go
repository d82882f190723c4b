package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/cli"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// TestServer holds the scenarios that change what every restore of a Velero shares, its settings and its server, one after
// another in a cluster of their own.
func TestServer(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, bed.Options{ItemOperationSyncFrequency: time.Second})
	scenario := func(name string, settings map[string]string, run func(*scene)) {
		t.Run(name, func(t *testing.T) {
			s := newSceneIn(t, c)
			s.settings(settings)
			run(s)
		})
	}
	scenario("a restored pod that never starts", map[string]string{contract.StartTimeoutSetting: "2s"}, (*scene).neverStarts)
	scenario("B11 resume: manual in the ConfigMap", map[string]string{contract.ResumeSetting: "manual"}, (*scene).manualByConfigMap)
	scenario("a wrong setting in the ConfigMap", map[string]string{contract.StartTimeoutSetting: "soon"}, (*scene).wrongInConfigMap)
	scenario("a restart while operations are waited for", nil, (*scene).restartWhileWaiting)
	scenario("B29 a restart while data is restored", nil, (*scene).restartInProgress)
}

// neverStarts: the image of an init hook cannot be pulled. The operation fails and names the pod and the reason; the pod and
// its data stay, until a person gives the pod up.
func (s *scene) neverStarts() {
	s.deploy(app{name: "web", replicas: 1, claim: "data", podAnnotations: map[string]string{
		hooks.InitImageAnnotation: "registry.example/missing:1", "init.hook.restore.velero.io/command": `["/bin/prepare"]`,
	}})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	require.Equal(s.t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, s.report(restore.Name))
	s.held(restore, s.ns, "web", disconnect.Originals{Replicas: 1}, 1)
	details := s.details(restore.Name)
	assert.Regexp(s.t, `DeploymentConfig `+s.ns+`/web: pod web-1-\w+ cannot start: its init container \S+ waits: (ImagePullBackOff|ErrImagePull)`,
		details, "the kubelet says the two in turn")
	assert.Contains(s.t, details, "post-restore "+restore.Name)
	s.failedEvent("web", "cannot start")
	run := s.postRestore(restore.Name)
	assert.Equal(s.t, cli.ExitFailed, run.code, run)
	s.held(restore, s.ns, "web", disconnect.Originals{Replicas: 1}, 1)
	run = s.postRestore(restore.Name, "--accept-data-loss")
	require.Equal(s.t, cli.ExitDone, run.code, run)
	s.resumed(restore.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
}

// manualByConfigMap: phase one only, for every restore that does not say otherwise.
func (s *scene) manualByConfigMap() {
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.held(restore, s.ns, "web", disconnect.Originals{Replicas: 2}, 1)
	assert.Contains(s.t, s.details(restore.Name), "held for a person to resume (resume: manual)")
	run := s.postRestore(restore.Name)
	require.Equal(s.t, cli.ExitDone, run.code, run)
	s.resumed(restore.Name, s.ns, "web", 2, false)

	s.lose()
	otherwise := s.restoreAs(s.name("otherwise"), backup, "--annotations", contract.ResumeAnnotation+"=replace")
	s.completed(otherwise, 1)
	s.resumed(otherwise.Name, s.ns, "web", 2, false)
	s.hasData(s.ns, "data")
}

// wrongInConfigMap: the operation fails, and says which ConfigMap and which setting.
func (s *scene) wrongInConfigMap() {
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	require.Equal(s.t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, s.report(restore.Name))
	s.held(restore, s.ns, "web", disconnect.Originals{Replicas: 1}, 1)
	details := s.details(restore.Name)
	assert.Contains(s.t, details, "ConfigMap "+s.VeleroNamespace()+"/openshift-dr")
	assert.Contains(s.t, details, "it is a duration above 0, such as 5m")
	run := s.postRestore(restore.Name)
	require.Equal(s.t, cli.ExitDone, run.code, run)
	assert.Contains(s.t, run.errOut, "going on with "+contract.StartTimeoutSetting+" 5m0s")
	s.resumed(restore.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
}

// restartWhileWaiting: Velero's server is killed while the operation waits for data. It goes on by itself.
func (s *scene) restartWhileWaiting() {
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	download := s.awaitsDownload("restore", "data")
	s.startRestore(s.name("restore"), backup)
	s.held(s.awaitPhase(s.name("restore"), velerov1.RestorePhaseWaitingForPluginOperations), s.ns, "web", disconnect.Originals{Replicas: 2}, 2)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	require.NoError(s.t, s.RestartVelero(ctx))
	s.endDownload(download, velerov2alpha1.DataDownloadPhaseCompleted)
	restore := s.awaitRestore(s.name("restore"))
	s.completed(restore, 1)
	s.resumed(restore.Name, s.ns, "web", 2, false)
	s.hasData(s.ns, "data")
	s.neverBeside("web")
}

// restartInProgress: Velero's server is killed while it fills volumes. It marks the restore Failed and cancels what was under
// way. The reports: what was restored stays half done, and clean-up that runs too early kills pods whose data is coming.
// Instead: `post-restore` refuses while the restore runs, then finishes the application whose data was in and names the other.
func (s *scene) restartInProgress() {
	s.deploy(app{name: "filled", replicas: 1, claim: "filled"})
	s.deploy(app{name: "filling", replicas: 1, claim: "filling"})
	backup := s.backup(allVolumes)
	s.lose()
	s.node.HoldRestores(s.ns, "filling")
	s.startRestore(s.name("restore"), backup)
	filled := s.awaitDetached(s.ns, "filled", 1)[0]
	s.until(soon, func(ctx context.Context) error {
		pods, err := s.pods(ctx, s.ns, "filling")
		if err != nil {
			return err
		}
		if len(pods) != 1 || pods[0].Labels[contract.DisconnectedLabel] == "" {
			return fmt.Errorf("filling has %d pods and not one detached", len(pods))
		}
		return s.dcIsHeld(ctx, "filling")
	})
	before := s.revisions(s.ns)
	run := s.postRestore(s.name("restore"))
	assert.Equal(s.t, cli.ExitNotFinished, run.code, run)
	assert.Contains(s.t, run.errOut, "has not ended: it is InProgress")
	assert.Equal(s.t, before, s.revisions(s.ns))

	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	require.NoError(s.t, s.RestartVelero(ctx))
	restore := s.awaitRestore(s.name("restore"))
	require.Equal(s.t, velerov1.RestorePhaseFailed, restore.Status.Phase)
	assert.Equal(s.t, filled.UID, s.awaitDetached(s.ns, "filled", 1)[0].UID)
	s.until(soon, func(ctx context.Context) error { return s.volumeRestoreEnded(ctx, "filling") })

	run = s.postRestore(restore.Name)
	assert.Equal(s.t, cli.ExitFailed, run.code, run)
	assert.Regexp(s.t, `filled +resumed`, run.out, run)
	assert.Regexp(s.t, `filling +failed .*PodVolumeRestore \S+ of volume data in pod filling-1-`, run.out, run)
	s.awaitPods(s.ns, "filled", 1)
	s.hasData(s.ns, "filled")
	s.held(restore, s.ns, "filling", disconnect.Originals{Replicas: 1}, 1)

	run = s.postRestore(restore.Name, "--accept-data-loss")
	require.Equal(s.t, cli.ExitDone, run.code, run)
	assert.Regexp(s.t, `filling-1-\w+/data`, run.out)
	s.resumed(restore.Name, s.ns, "filling", 1, false)
	s.resumed(restore.Name, s.ns, "filled", 1, false)
}

// settings puts the plugin's ConfigMap in place for the time of a scene.
func (s *scene) settings(data map[string]string) {
	s.t.Helper()
	if data == nil {
		return
	}
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.VeleroNamespace(), Name: "openshift-dr",
			Labels: map[string]string{"velero.io/plugin-config": "", contract.DeploymentConfigRestoreAction: "RestoreItemAction"},
		},
		Data: data,
	}
	s.create(config)
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		assert.NoError(s.t, s.Client().Delete(ctx, config))
	})
}

// dcIsHeld returns nil when a DeploymentConfig of the scene is held.
func (s *scene) dcIsHeld(ctx context.Context, name string) error {
	dc := app{name: name}.dc(s.ns)
	if err := s.Client().Get(ctx, client.ObjectKeyFromObject(dc), dc); err != nil {
		return err
	}
	if dc.Labels[contract.ReplicasModifiedLabel] == "" {
		return fmt.Errorf("DeploymentConfig %s is not held", name)
	}
	return nil
}

// volumeRestoreEnded returns nil when all volume restores into pods of an application have ended.
func (s *scene) volumeRestoreEnded(ctx context.Context, name string) error {
	pods, err := s.pods(ctx, s.ns, name)
	if err != nil {
		return err
	}
	var list velerov1.PodVolumeRestoreList
	if err := s.Client().List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		for j := range pods {
			if list.Items[i].Spec.Pod.UID == pods[j].UID && list.Items[i].Status.CompletionTimestamp == nil {
				return fmt.Errorf("PodVolumeRestore %s is %s", list.Items[i].Name, list.Items[i].Status.Phase)
			}
		}
	}
	return nil
}
