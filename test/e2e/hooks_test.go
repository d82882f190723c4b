package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/history"
)

// initHooks: a hook of the Restore's spec rewrites a file that was restored; what it wrote is there after phase two. A hook
// of an annotation cannot do that, since Velero gives its container no volume (velero internal/hook/item_hook_handler.go,
// getInitContainerFromAnnotation): it ran in the restored pod.
func initHooks(s *scene) {
	spec := app{name: "spec", replicas: 1}
	annotated := app{name: "annotated", replicas: 1, annotations: map[string]string{
		hooks.InitImageAnnotation:                    bed.BoxImage,
		"init.hook.restore.velero.io/container-name": "prepare",
		"init.hook.restore.velero.io/command":        `["sh", "-c", "echo prepared"]`,
	}}
	s.deploy(spec)
	s.deploy(annotated)
	for _, a := range []app{spec, annotated} {
		s.in(&s.awaitPods(a)[0], "sh", "-c", "echo site=old >/data/settings")
	}
	s.backup(allVolumes)
	s.lose()
	container, err := json.Marshal(corev1.Container{
		Name: "rewrite", Image: bed.BoxImage, VolumeMounts: []corev1.VolumeMount{dataMount},
		Command: []string{"sh", "-c", "sed -i s/old/new/ /data/settings && echo rewritten >>/data/settings"},
	})
	require.NoError(s.t, err)
	restore := s.restoreWith(velerov1.RestoreResourceHookSpec{
		Name: "rewrite", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": spec.name}},
		PostHooks: []velerov1.RestoreResourceHook{{Init: &velerov1.InitRestoreHook{InitContainers: []runtime.RawExtension{{Raw: container}}}}},
	})
	s.completed(restore, 2)
	s.back(restore.Name, spec)
	s.back(restore.Name, annotated)
	assert.Equal(s.t, "site=new\nrewritten\n", s.in(&s.awaitPods(spec)[0], "cat", "/data/settings"), "rewritten once")
	assert.Equal(s.t, "site=old\n", s.in(&s.awaitPods(annotated)[0], "cat", "/data/settings"))
	assert.True(s.t, s.ranInit(spec, "rewrite"), "the hook of the spec ran in the restored pod")
	assert.True(s.t, s.ranInit(annotated, "prepare"), "the hook of the annotation ran in the restored pod")
}

// execHooks: one hook of the Restore's spec and one of an annotation append a line to a file on the claim, a while after they
// began: each once, in the restored pod, before that is deleted.
func execHooks(s *scene) {
	// A pod's host name is its name.
	command := []string{"sh", "-c", "sleep 3; hostname >>/data/hooks"}
	annotation, err := json.Marshal(command)
	require.NoError(s.t, err)
	spec := app{name: "spec", replicas: 1}
	annotated := app{name: "annotated", replicas: 2, annotations: map[string]string{hooks.ExecCommandAnnotation: string(annotation)}}
	s.deploy(spec)
	s.deploy(annotated)
	s.backup(allVolumes)
	s.lose()
	restore := s.restoreWith(velerov1.RestoreResourceHookSpec{
		Name: "append", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": spec.name}},
		PostHooks: []velerov1.RestoreResourceHook{{Exec: &velerov1.ExecRestoreHook{Container: "app", Command: command}}},
	})
	s.completed(restore, 2)
	if assert.NotNil(s.t, restore.Status.HookStatus) {
		// The annotation's hook runs in both of the pods that have it.
		assert.Equal(s.t, velerov1.HookStatus{HooksAttempted: 3}, *restore.Status.HookStatus)
	}
	s.finish(restore, spec, annotated)
	for _, a := range []app{spec, annotated} {
		s.back(restore.Name, a)
		lines := strings.Fields(s.in(&s.awaitPods(a)[0], "cat", "/data/hooks"))
		assert.ElementsMatch(s.t, s.detachedEver(a), lines, "the hook of %s ran once in each restored pod", a.name)
	}
}

// finish does what a restore with exec hooks leaves to a person: Velero awaits those only after the restore's operations, so
// the operations could not wait for them.
func (s *scene) finish(restore *velerov1.Restore, apps ...app) {
	s.t.Helper()
	for _, a := range apps {
		s.held(restore, a, int(a.replicas))
	}
	assert.Contains(s.t, s.details(restore.Name), "phase two waits for the end of restore "+restore.Name)
	run := s.postRestore(restore.Name)
	require.Zero(s.t, run.code, run)
}

// restoreWith restores with a hook in the Restore's spec: Velero's command line has no flags for them.
func (s *scene) restoreWith(hook velerov1.RestoreResourceHookSpec) *velerov1.Restore {
	s.t.Helper()
	name := s.nextRestore()
	require.NoError(s.t, s.Client().Create(s.t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.VeleroNamespace(), Name: name},
		Spec: velerov1.RestoreSpec{
			BackupName: s.name, IncludedNamespaces: []string{"*"},
			Hooks: velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{hook}},
		},
	}))
	return s.awaitRestore(name)
}

// detachedEver returns the names of all pods that were detached from an application while recorded.
func (s *scene) detachedEver(a app) []string {
	names := map[string]bool{}
	for _, v := range s.record.SoFar() {
		if pod, ok := v.Object.(*corev1.Pod); ok && pod.Namespace == s.ns && pod.Labels[contract.DeploymentConfigLabel] == a.name &&
			pod.Labels[contract.DisconnectedLabel] != "" {
			names[pod.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ranInit tells whether an init container has ended well in a detached pod of an application while recorded.
func (s *scene) ranInit(a app, container string) bool {
	return slices.ContainsFunc(s.record.SoFar(), func(v history.Version) bool {
		pod, ok := v.Object.(*corev1.Pod)
		return ok && pod.Namespace == s.ns && pod.Labels[contract.DeploymentConfigLabel] == a.name && pod.Labels[contract.DisconnectedLabel] != "" &&
			slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.Name == container && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
			})
	})
}
