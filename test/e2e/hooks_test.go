package e2e

import (
	"encoding/json"
	"maps"
	"slices"

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
	restore := s.awaitRestore(s.startHooked(velerov1.RestoreResourceHookSpec{
		Name: "rewrite", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": spec.name}},
		PostHooks: []velerov1.RestoreResourceHook{{Init: &velerov1.InitRestoreHook{InitContainers: []runtime.RawExtension{{Raw: container}}}}},
	}))
	s.completed(restore, 2)
	s.back(restore.Name, spec)
	s.back(restore.Name, annotated)
	assert.Equal(s.t, "site=new\nrewritten\n", s.in(&s.awaitPods(spec)[0], "cat", "/data/settings"), "rewritten once")
	assert.Equal(s.t, "site=old\n", s.in(&s.awaitPods(annotated)[0], "cat", "/data/settings"))
	assert.True(s.t, s.ranInit(spec, "rewrite"), "the hook of the spec ran in the restored pod")
	assert.True(s.t, s.ranInit(annotated, "prepare"), "the hook of the annotation ran in the restored pod")
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
