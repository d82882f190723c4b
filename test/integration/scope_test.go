package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// triggerFrom returns an image trigger that does not stand in the way of a rollout of no replicas.
func triggerFrom(namespace, tag string) ocpappsv1.DeploymentTriggerPolicy {
	return ocpappsv1.DeploymentTriggerPolicy{
		Type: ocpappsv1.DeploymentTriggerOnImageChange,
		ImageChangeParams: &ocpappsv1.DeploymentTriggerImageChangeParams{
			Automatic: true, ContainerNames: []string{"app"},
			From: corev1.ObjectReference{Kind: "ImageStreamTag", Namespace: namespace, Name: tag},
		},
	}
}

// A restore into another namespace: data, marks and DeploymentConfig are in the target, and what was in the source is left
// alone. Defect D13: the image triggers got the target of the DeploymentConfig's namespace, whatever namespace they named,
// and none at all when that was not mapped.
func TestNamespaceMapping(t *testing.T) {
	s := newScene(t)
	target, images, imagesTarget := s.ns+"-target", s.ns+"-images", s.ns+"-images-target"
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	s.deploy(app{name: "triggered", change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Triggers = []ocpappsv1.DeploymentTriggerPolicy{
			{Type: ocpappsv1.DeploymentTriggerOnConfigChange},
			triggerFrom(s.ns, "own:1"), triggerFrom(images, "base:1"), triggerFrom("openshift", "shared:1"), triggerFrom("", "unnamed:1"),
		}
	}})
	backup := s.backup(allVolumes)
	before := s.revisions(s.ns)
	s.observe(s.ns, target)
	s.node.HoldRestores(target, "data")
	t.Cleanup(func() { s.node.Release(target, "data") })
	name := s.name("restore")
	s.startRestore(name, backup, "--namespace-mappings", s.ns+":"+target+","+images+":"+imagesTarget)
	s.moving(name, target)
	s.rolledOutHeld(target, "web")
	s.row("the marks are in the target", func(s *scene) {
		restore, err := s.restoreOf(s.t.Context(), name)
		require.NoError(s.t, err)
		s.heldOne(restore, target, "web")
		s.unmarked(s.ns)
	})
	s.node.Release(target, "data")
	s.completed(s.awaitRestore(name), 1)
	s.resumed(name, target, "web", 1, false)
	value, err := s.node.Read(t.Context(), target, "data")
	require.NoError(t, err)
	assert.Equal(t, s.data("data"), value)
	assert.Equal(t, before, s.revisions(s.ns), "the source is left alone")
	s.row("D13 each image trigger follows the mapping of the namespace that it names", func(s *scene) {
		var namespaces []string
		for _, trigger := range s.dc(target, "triggered").Spec.Triggers {
			if trigger.ImageChangeParams != nil {
				namespaces = append(namespaces, trigger.ImageChangeParams.From.Namespace)
			}
		}
		assert.Equal(s.t, []string{target, imagesTarget, "openshift", ""}, namespaces)
	})
}

// Defect D13, its other half: a DeploymentConfig whose own namespace is not mapped lost the namespace of its triggers.
func TestD13_MappingOfAnotherNamespace(t *testing.T) {
	s := newScene(t)
	images := s.ns + "-images"
	s.deploy(app{name: "web", change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Triggers = []ocpappsv1.DeploymentTriggerPolicy{triggerFrom(s.ns, "own:1"), triggerFrom(images, "base:1")}
	}})
	backup := s.backup()
	s.lose()
	s.completed(s.restore(backup, "--namespace-mappings", images+":"+images+"-target"), 0)
	triggers := s.dc(s.ns, "web").Spec.Triggers
	if assert.Len(t, triggers, 2) {
		assert.Equal(t, s.ns, triggers[0].ImageChangeParams.From.Namespace)
		assert.Equal(t, images+"-target", triggers[1].ImageChangeParams.From.Namespace)
	}
}

// loseWorkload deletes the DeploymentConfigs, ReplicationControllers and pods of the scene's namespace, not its claims.
func (s *scene) loseWorkload() {
	s.t.Helper()
	kinds := []client.Object{&ocpappsv1.DeploymentConfig{}, &corev1.ReplicationController{}, &corev1.Pod{}}
	s.until(soon, func(ctx context.Context) error {
		var errs []error
		for _, kind := range kinds {
			errs = append(errs, s.Client().DeleteAllOf(ctx, kind, client.InNamespace(s.ns), client.GracePeriodSeconds(0)))
		}
		left := 0
		for _, list := range []client.ObjectList{&ocpappsv1.DeploymentConfigList{}, &corev1.ReplicationControllerList{}, &corev1.PodList{}} {
			errs = append(errs, s.Client().List(ctx, list, client.InNamespace(s.ns)))
			left += lengthOf(list)
		}
		if err := errors.Join(errs...); err != nil || left == 0 {
			return err
		}
		return fmt.Errorf("%d objects are left", left)
	})
}

// lengthOf returns the number of items in one of the lists above.
func lengthOf(list client.ObjectList) int {
	switch l := list.(type) {
	case *ocpappsv1.DeploymentConfigList:
		return len(l.Items)
	case *corev1.ReplicationControllerList:
		return len(l.Items)
	case *corev1.PodList:
		return len(l.Items)
	default:
		return 0
	}
}

// Defect D18: a restore limited to DeploymentConfigs held them all the same, at 0, with nothing to wait for. They must come
// back as they were, at once.
func TestD18_DeploymentConfigsOnly(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.loseWorkload()
	restore := s.restore(backup, "--include-resources", "deploymentconfigs.apps.openshift.io")
	s.completed(restore, 0)
	s.resumed(restore.Name, s.ns, "web", 2, false)
	s.hasData(s.ns, "data")
	assert.Empty(t, s.events(s.ns, "web"))
	assert.False(t, s.everHeld("web"), "it was never held")
}

// everHeld tells whether a DeploymentConfig of the scene's namespace was at 0 replicas or marked while recorded.
func (s *scene) everHeld(name string) bool {
	for _, v := range s.record.SoFar() {
		if dc, ok := v.Object.(*ocpappsv1.DeploymentConfig); ok && dc.Namespace == s.ns && dc.Name == name &&
			(dc.Spec.Replicas == 0 || dc.Labels[contract.ReplicasModifiedLabel] != "") {
			return true
		}
	}
	return false
}

// Defect D19: a restore without DeploymentConfigs detached the pods all the same, and nobody saw to them ever after. They
// must come back as they were, with their data; so the two restores by hand that OADP 1.0 documented go on to work.
func TestD19_PodsOnly(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"D19 the restore includes pods and claims only": {"--include-resources", "pods,persistentvolumeclaims,persistentvolumes"},
		"D19 the restore excludes DeploymentConfigs":    {"--exclude-resources", "deploymentconfigs,replicationcontrollers"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.deploy(app{name: "web", replicas: 1, claim: "data"})
			before := s.podsByName(s.ns, "web")
			backup := s.backup(allVolumes)
			s.lose()
			restore := s.restore(backup, args...)
			s.completed(restore, 0)
			s.awaitPods(s.ns, "web", 1)
			s.hasData(s.ns, "data")
			s.unmarked(s.ns)
			for name, pod := range s.podsByName(s.ns, "web") {
				assert.Equal(t, before[name].Labels[contract.DeploymentLabel], pod.Labels[contract.DeploymentLabel], name)
				assert.Equal(t, before[name].Labels[contract.DeploymentConfigLabel], pod.Labels[contract.DeploymentConfigLabel], name)
			}
			run := s.postRestore(restore.Name)
			assert.Equal(t, 0, run.code, run)
		})
	}
}

// A restore whose label selector takes in the DeploymentConfig as well as its pods: it is held and resumed as ever.
func TestLabelsOfAllThatBelongs(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	s.labelClaim("data", "app", "web")
	s.deploy(app{name: "other", replicas: 1, claim: "data-other"})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup, "--selector", "app=web")
	s.completed(restore, 2) // one for the DeploymentConfig, one in case that it does not come
	s.resumed(restore.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
	assert.Empty(t, s.podsByName(s.ns, "other"), "not selected")
}

// Defect D19 by label: the selector takes in the pods alone, which cannot be known before the DeploymentConfig fails to
// come. Their pods must end as they were, without a mark.
func TestD19_LabelsOfPodsAlone(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	s.labelClaim("data", contract.DeploymentConfigLabel, "web")
	before := s.podsByName(s.ns, "web")
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup, "--selector", contract.DeploymentConfigLabel+"=web")
	s.completed(restore, 1)
	s.awaitPods(s.ns, "web", 1)
	s.hasData(s.ns, "data")
	s.unmarked(s.ns)
	for name, pod := range s.podsByName(s.ns, "web") {
		assert.Equal(t, before[name].Labels[contract.DeploymentLabel], pod.Labels[contract.DeploymentLabel], name)
	}
	assert.Contains(t, s.details(restore.Name), "its DeploymentConfig was not chosen by this restore")
	run := s.postRestore(restore.Name)
	assert.Equal(t, 0, run.code, run)
}

func (s *scene) labelClaim(name, key, value string) {
	s.t.Helper()
	s.patch(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}},
		fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))
}

// A restore of one namespace of a backup of two brings that one alone.
func TestOneNamespaceOfTwo(t *testing.T) {
	s := newScene(t)
	other := *s
	other.ns = s.ns + "-b"
	s.createNamespace(other.ns)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	other.deploy(app{name: "web", replicas: 1, claim: "data"})
	backup := s.name("backup")
	s.backupAs(backup, "--include-namespaces", s.ns+","+other.ns, allVolumes)
	s.lose(s.ns, other.ns)
	s.observe(s.ns, other.ns)
	restore := s.restore(backup, "--include-namespaces", other.ns)
	s.completed(restore, 1)
	s.resumed(restore.Name, other.ns, "web", 1, false)
	other.hasData(other.ns, "data")
	assert.Empty(t, s.objects(s.ns), "it is not in this restore")
}

// Report B23: a restored pod asks for the nodes of the source cluster, since projects inject their node selector there, and
// the restore waits for ever for it to be scheduled. A detached pod must run anywhere.
func TestB23_NodeSelectorOfTheSourceCluster(t *testing.T) {
	s := newScene(t)
	key := "zone.test/" + s.ns
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name()}}
	label := func(value string) { s.patch(node, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)) }
	label(`"source"`)
	// A DeploymentConfig without triggers rolls out no change of its template: so its pods have a selector that it does not
	// know of, as with one injected by the project.
	s.deploy(app{name: "web", replicas: 1, claim: "data", change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Triggers = []ocpappsv1.DeploymentTriggerPolicy{}
		dc.Spec.Template.Spec.NodeSelector = map[string]string{key: "source"}
	}})
	s.patch(s.dc(s.ns, "web"), `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	for _, pod := range s.podsByName(s.ns, "web") {
		require.Equal(t, "source", pod.Spec.NodeSelector[key])
	}
	backup := s.backup(allVolumes)
	s.lose()
	label("null")
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.resumed(restore.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
}

// Report B28: with existingResourcePolicy update, live pods lost their labels and a live DeploymentConfig went to 0. What
// is live must go on as if nothing had happened.
func TestB28_UpdateOfALiveApplication(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	before := s.podsByName(s.ns, "web")
	restore := s.restore(backup, "--existing-resource-policy", "update")
	s.completed(restore, 0)
	s.resumed(restore.Name, s.ns, "web", 2, false)
	s.hasData(s.ns, "data")
	assert.False(t, s.everHeld("web"), "it was never held")
	after := s.podsByName(s.ns, "web")
	for name, pod := range before {
		assert.Equal(t, pod.UID, after[name].UID, name)
		assert.Equal(t, pod.Labels[contract.DeploymentLabel], after[name].Labels[contract.DeploymentLabel], name)
	}
}

// Report B13 and the names of section 3: the label of a restore does not tell two Velero instances apart whose restores
// have the same name. What the other one holds must be left alone, by the restore and by phase two run by hand.
func TestB13_RestoreOfTheSameNameInAnotherVelero(t *testing.T) {
	s := newScene(t)
	name := s.name("restore")
	other := *s
	other.ns = s.ns + "-b"
	s.createNamespace(other.ns)
	marks := map[string]string{
		contract.RestoreAnnotation: "velero-other/" + name, contract.RestoreUIDAnnotation: "6c5c1a0e-0000-4000-8000-000000000000",
	}
	held := app{name: "web", change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Labels[contract.ReplicasModifiedLabel] = name
		dc.Annotations = map[string]string{contract.OriginalReplicasAnnotation: "1", contract.OriginalPausedAnnotation: "false"}
		maps.Copy(dc.Annotations, marks)
	}}.dc(other.ns)
	detached := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: other.ns, Name: "web-3-abcde", Annotations: map[string]string{contract.DeploymentConfigAnnotation: "web"},
			Labels: map[string]string{"app": "web", contract.DeploymentConfigLabel: "web", contract.DisconnectedLabel: name},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
	}
	maps.Copy(detached.Annotations, marks)
	s.create(held, detached)
	s.until(soon, func(ctx context.Context) error { return s.rolledOut(ctx, other.ns, "web", 1) })
	before := s.revisions(other.ns)

	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	s.observe(s.ns, other.ns)
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.resumed(name, s.ns, "web", 1, false)
	assert.Equal(t, before, s.revisions(other.ns), "held by another Velero")
}

// heldOne asserts that an application of one replica is held with one detached pod.
func (s *scene) heldOne(restore *velerov1.Restore, namespace, name string) {
	s.t.Helper()
	s.held(restore, namespace, name, originalsOfOne, 1)
}
