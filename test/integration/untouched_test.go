package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	hcplugin "github.com/hashicorp/go-plugin"
	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework/common"
	riav2framework "github.com/vmware-tanzu/velero/pkg/plugin/framework/restoreitemaction/v2"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// Defect D20 and report B34: deployer pods, lifecycle-hook pods and build pods that ran when the backup was made came back,
// where a deployer pod is taken for that of the new rollout. None of them may, also not one that mounts a backed-up
// claim; nor the ReplicationControllers that the DeploymentConfig makes anew.
func TestPodsOfRolloutsAndBuilds(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data", change: func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Triggers = ocpappsv1.DeploymentTriggerPolicies{} // so that changes of the strategy start no rollout
	}})
	// A rollout that stays in its first hook: hook pod and deployer pod run while the backup is made.
	dc := s.dc(s.ns, "web")
	s.patch(dc, `{"spec":{"strategy":{"recreateParams":{"pre":{"failurePolicy":"Abort","execNewPod":{"containerName":"app","command":["sleep","600"],"volumes":["data"]}}}}}}`)
	s.patchStatus(dc, `{"status":{"latestVersion":2}}`)
	s.until(soon, func(ctx context.Context) error {
		return errors.Join(s.running(ctx, "web-2-deploy"), s.running(ctx, "web-2-hook-pre"))
	})
	s.patch(dc, `{"spec":{"strategy":{"recreateParams":null}}}`)
	build := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.ns, Name: "web-5-build", Labels: map[string]string{contract.BuildAnnotation: "web-5"},
			Annotations: map[string]string{contract.BuildAnnotation: "web-5"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "docker-build", Image: "registry.example/builder:1"}}},
	}
	s.create(build)
	s.until(soon, func(ctx context.Context) error { return s.running(ctx, build.Name) })
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.resumed(restore.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
	restored := s.everRestored()
	s.row("D20 deployer and lifecycle-hook pods are not restored", func(s *scene) {
		assert.NotContains(s.t, restored, "web-2-deploy")
		assert.NotContains(s.t, restored, "web-2-hook-pre")
		for _, pod := range []string{"web-2-deploy", "web-2-hook-pre"} {
			assert.Contains(s.t, s.logged(restore.Name, pod), "deployer or lifecycle-hook pod of ReplicationController web-2")
		}
	})
	s.row("D20 ReplicationControllers of a DeploymentConfig are not restored", func(s *scene) {
		for _, rc := range []string{"web-1", "web-2"} {
			assert.Contains(s.t, s.logged(restore.Name, rc), "decision=skipped")
		}
		var rcs corev1.ReplicationControllerList
		require.NoError(s.t, s.Client().List(s.t.Context(), &rcs, client.InNamespace(s.ns)))
		assert.Len(s.t, rcs.Items, 1, "the first version is all there is")
	})
	s.row("B34 build pods are not restored", func(s *scene) {
		assert.NotContains(s.t, restored, build.Name)
		assert.Contains(s.t, s.logged(restore.Name, build.Name), "pod of Build web-5")
	})
}

// running tells whether a pod of the scene's namespace runs.
func (s *scene) running(ctx context.Context, name string) error {
	var pod corev1.Pod
	if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: name}, &pod); err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
	}
	return nil
}

// everRestored returns the names of the pods that Velero has created while recorded.
func (s *scene) everRestored() []string {
	names := map[string]bool{}
	for _, v := range s.record.SoFar() {
		if pod, ok := v.Object.(*corev1.Pod); ok && pod.Labels[velerov1.RestoreNameLabel] != "" {
			names[pod.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// A DeploymentConfig that comes back paused rolls nothing out, so its ReplicationController must come back and run its pods.
func TestReplicationControllerOfAPausedDeploymentConfig(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, change: func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Paused = true }})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 0)
	s.resumed(restore.Name, s.ns, "web", 2, true)
	var rc corev1.ReplicationController
	require.NoError(t, s.Client().Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "web-1"}, &rc))
	assert.Equal(t, restore.Name, rc.Labels[velerov1.RestoreNameLabel])
	for _, pod := range s.podsByName(s.ns, "web") {
		assert.Equal(t, rc.UID, metav1.GetControllerOf(&pod).UID, pod.Name)
	}
}

// Defect D27: a DeploymentConfig that had been through a typed struct was never equal to the one in the cluster, so each
// restore over a live one warned of a difference that there was not.
func TestD27_NoDifferenceWhereThereIsNone(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "same", replicas: 1})
	s.deploy(app{name: "changed", replicas: 1})
	backup := s.backup()
	s.patch(s.dc(s.ns, "changed"), `{"metadata":{"labels":{"changed":"since"}}}`)
	restore := s.restore(backup)
	s.completed(restore, 0)
	details := s.details(restore.Name)
	differs := func(name string) string {
		return fmt.Sprintf("DeploymentConfig:%s already exists. Warning: the in-cluster version is different", name)
	}
	assert.NotContains(t, details, differs("same"))
	assert.Contains(t, details, differs("changed"))
}

// executor starts the plugin as Velero does and returns one of its actions, to see the bytes that pass.
func (s *scene) executor(action string) riav2.RestoreItemAction {
	s.t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	kind := string(common.PluginKindRestoreItemActionV2)
	cmd := exec.CommandContext(s.t.Context(), plugin(s.t))
	cmd.Env = []string{"KUBECONFIG=" + s.Kubeconfig(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + s.t.TempDir()}
	process := hcplugin.NewClient(&hcplugin.ClientConfig{
		HandshakeConfig:  framework.Handshake(),
		AllowedProtocols: []hcplugin.Protocol{hcplugin.ProtocolGRPC},
		Plugins:          map[string]hcplugin.Plugin{kind: riav2framework.NewRestoreItemActionPlugin(common.ClientLogger(log))},
		Cmd:              cmd,
		SkipHostEnv:      true,
		Logger:           hclog.NewNullLogger(),
	})
	s.t.Cleanup(process.Kill)
	protocol, err := process.Client()
	require.NoError(s.t, err)
	dispensed, err := protocol.Dispense(kind)
	require.NoError(s.t, err)
	dispenser, ok := dispensed.(common.ClientDispenser)
	require.True(s.t, ok)
	client, ok := dispenser.ClientFor(action).(riav2.RestoreItemAction)
	require.True(s.t, ok)
	return client
}

// strange is content that a round trip through a typed struct would not leave as it is: fields that no type knows, empty
// and null values, numbers beyond a float's precision.
const strange = `"status":{},"future":{"field":[1,{"deep":null}],"big":9007199254740993,"fraction":0.1,"empty":{},"none":[]}`

func itemOf(t *testing.T, format string, args ...any) *unstructured.Unstructured {
	t.Helper()
	item := &unstructured.Unstructured{}
	require.NoError(t, item.UnmarshalJSON(fmt.Appendf(nil, format, args...)))
	return item
}

// restoreForExecute is a Restore that only the plugin sees.
func (s *scene) restoreForExecute() *velerov1.Restore {
	return &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.VeleroNamespace(), Name: s.name("restore"), UID: "0b0f3c4e-0000-4000-8000-000000000000"},
		Spec:       velerov1.RestoreSpec{BackupName: "none"},
		Status:     velerov1.RestoreStatus{StartTimestamp: new(metav1.Now())},
	}
}

// Invariant I5 and defect D27: what is not a DeploymentConfig's business passes through the plugin byte by byte.
func TestD27_UntouchedItemsPassByteByByte(t *testing.T) {
	s := newScene(t)
	owned := func(kind, name string) string {
		return fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":%q,"name":%q,"uid":"1","controller":true}]`, kind, name)
	}
	pod := func(labels, more string) *unstructured.Unstructured {
		return itemOf(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":%q,"name":"it","creationTimestamp":null,"labels":%s%s},"spec":{"nodeSelector":{"zone":"source"},"containers":[{"name":"app","image":"x","future":{}}],"volumes":[]},%s}`,
			s.ns, labels, more, strange)
	}
	for name, tc := range map[string]struct {
		action string
		item   *unstructured.Unstructured
	}{
		"a bare pod":                                {contract.PodRestoreAction, pod(`{}`, "")},
		"a pod of a ReplicationController":          {contract.PodRestoreAction, pod(`{"app":"x","deployment":"x-1"}`, ","+owned("ReplicationController", "x-1"))},
		"a pod of a Deployment":                     {contract.PodRestoreAction, pod(`{"app":"x","pod-template-hash":"abc"}`, ","+owned("ReplicaSet", "x-abc"))},
		"a pod of a StatefulSet":                    {contract.PodRestoreAction, pod(`{"app":"x","deploymentconfig":"x"}`, ","+owned("StatefulSet", "x"))},
		"a pod of a Job":                            {contract.PodRestoreAction, pod(`{"job-name":"x"}`, ","+owned("Job", "x"))},
		"a DeploymentConfig's pod that comes alone": {contract.PodRestoreAction, pod(`{"deployment":"x-1","deploymentconfig":"x"}`, "")},
		"a ReplicationController": {contract.ReplicationControllerRestoreAction, itemOf(t,
			`{"apiVersion":"v1","kind":"ReplicationController","metadata":{"namespace":%q,"name":"it","creationTimestamp":null},"spec":{"replicas":2,"selector":{"app":"x"},"template":null},%s}`, s.ns, strange)},
		"a DeploymentConfig without data": {contract.DeploymentConfigRestoreAction, itemOf(t,
			`{"apiVersion":"apps.openshift.io/v1","kind":"DeploymentConfig","metadata":{"namespace":%q,"name":"it","creationTimestamp":null},"spec":{"replicas":2,"triggers":[{"type":"ConfigChange","imageChangeParams":null}],"template":{"metadata":{"creationTimestamp":null},"spec":{"containers":[]}},"future":1},%s}`, s.ns, strange)},
	} {
		s.row("I5 "+name, func(s *scene) {
			restore := s.restoreForExecute()
			restore.Spec.ExcludedResources = []string{"deploymentconfigs"}
			before, err := json.Marshal(tc.item.Object)
			require.NoError(s.t, err)
			out, err := s.executor(tc.action).Execute(&velero.RestoreItemActionExecuteInput{Item: tc.item, ItemFromBackup: tc.item, Restore: restore})
			require.NoError(s.t, err)
			assert.False(s.t, out.SkipRestore)
			assert.Empty(s.t, out.OperationID)
			assert.Empty(s.t, out.AdditionalItems)
			after, err := json.Marshal(out.UpdatedItem.UnstructuredContent())
			require.NoError(s.t, err)
			assert.Equal(s.t, string(before), string(after))
		})
	}
}

// Defect D27: what is a DeploymentConfig's business changes by what is documented, and by nothing else.
func TestD27_OnlyWhatIsDocumentedChanges(t *testing.T) {
	s := newScene(t)
	restore := s.restoreForExecute()
	item := itemOf(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":%q,"name":"web-7-abcde","labels":{"app":"web","deployment":"web-7","deploymentconfig":"web"},"annotations":{"post.hook.restore.velero.io/command":"/bin/reindex"}},"spec":{"nodeSelector":{"zone":"source"},"affinity":{},"containers":[{"name":"app","image":"x"}]},%s}`, s.ns, strange)
	out, err := s.executor(contract.PodRestoreAction).Execute(&velero.RestoreItemActionExecuteInput{Item: item, ItemFromBackup: item, Restore: restore})
	require.NoError(t, err)
	require.False(t, out.SkipRestore)
	full := restore.Namespace + "/" + restore.Name
	assert.Equal(t, map[string]string{
		"metadata/labels/deployment":                                  `"web-7" to nothing`,
		"metadata/labels/" + contract.DisconnectedLabel:               fmt.Sprintf("nothing to %q", restore.Name),
		"metadata/annotations/" + contract.RestoreAnnotation:          fmt.Sprintf("nothing to %q", full),
		"metadata/annotations/" + contract.RestoreUIDAnnotation:       fmt.Sprintf("nothing to %q", restore.UID),
		"metadata/annotations/" + contract.DeploymentConfigAnnotation: `nothing to "web"`,
		"spec/nodeSelector/zone":                                      `"source" to nothing`,
	}, changes(item.Object, out.UpdatedItem.UnstructuredContent()))

	detached := &corev1.Pod{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(out.UpdatedItem.UnstructuredContent(), detached))
	s.create(detached)
	dc := itemOf(t, `{"apiVersion":"apps.openshift.io/v1","kind":"DeploymentConfig","metadata":{"namespace":%q,"name":"web"},"spec":{"replicas":3,"triggers":[],"template":{"spec":{"containers":[]}},"future":1},%s}`, s.ns, strange)
	out, err = s.executor(contract.DeploymentConfigRestoreAction).Execute(&velero.RestoreItemActionExecuteInput{Item: dc, ItemFromBackup: dc, Restore: restore})
	require.NoError(t, err)
	assert.NotEmpty(t, out.OperationID)
	assert.Equal(t, map[string]string{
		"spec/replicas": "3 to 0",
		"metadata/labels/" + contract.ReplicasModifiedLabel:           fmt.Sprintf("nothing to %q", restore.Name),
		"metadata/annotations/" + contract.OriginalReplicasAnnotation: `nothing to "3"`,
		"metadata/annotations/" + contract.OriginalPausedAnnotation:   `nothing to "false"`,
		"metadata/annotations/" + contract.RestoreAnnotation:          fmt.Sprintf("nothing to %q", full),
		"metadata/annotations/" + contract.RestoreUIDAnnotation:       fmt.Sprintf("nothing to %q", restore.UID),
	}, changes(dc.Object, out.UpdatedItem.UnstructuredContent()))
}

// changes returns what became of each value that differs between two objects, by its path. Two objects that differ in
// empty values only are told apart too.
func changes(before, after map[string]any) map[string]string {
	was, is := map[string]string{}, map[string]string{}
	flatten("", before, was)
	flatten("", after, is)
	changed := map[string]string{}
	for path := range was {
		if was[path] != is[path] {
			changed[path] = was[path] + " to " + cmp.Or(is[path], "nothing")
		}
	}
	for path := range is {
		if _, ok := was[path]; !ok {
			changed[path] = "nothing to " + is[path]
		}
	}
	return changed
}

func flatten(path string, value any, into map[string]string) {
	if fields, ok := value.(map[string]any); ok && len(fields) > 0 {
		for key, field := range fields {
			flatten(strings.TrimPrefix(path+"/"+key, "/"), field, into)
		}
		return
	}
	leaf, err := json.Marshal(value)
	into[path] = string(leaf)
	if err != nil {
		into[path] = err.Error()
	}
}

// Invariant I5: workloads that are not a DeploymentConfig's come back exactly as from a Velero without our plugin, and so do
// a DeploymentConfig's pods on a cluster that does not know DeploymentConfigs. One backup is restored with the plugin and,
// after a restart of the server, without it, and what Velero made is compared.
func TestUntouchedAsWithoutThePlugin(t *testing.T) {
	t.Parallel()
	s := newSceneIn(t, ownCluster(t, bed.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}, ItemOperationSyncFrequency: 2 * time.Second}))
	s.ensureClaim("data")
	s.create(s.workloads()...)
	s.until(soon, func(ctx context.Context) error { return s.podsReady(ctx, 6) })
	backup := s.backup(allVolumes)

	s.loseWorkloads()
	with := s.restoreAs(s.name("with"), backup)
	s.completed(with, 0)
	s.hasData(s.ns, "data")
	got := s.madeBy(with)
	s.row("the cluster does not know DeploymentConfigs: their pods are as they were", func(s *scene) {
		assert.Contains(s.t, got["Pod web-3-abcde"], `"deployment":"web-3"`)
		assert.NotContains(s.t, strings.Join(slices.Collect(maps.Values(got)), "\n"), "oadp.openshift.io/")
		run := s.postRestore(with.Name)
		assert.Equal(s.t, 0, run.code, run)
	})

	s.loseWorkloads()
	require.NoError(t, s.StopVelero(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(s.Dir(), "plugins", filepath.Base(plugin(t)))))
	require.NoError(t, s.StartVelero(t.Context()))
	without := s.restoreAs(s.name("without"), backup)
	s.completed(without, 0)
	want := s.madeBy(without)
	assert.Len(t, want, 11)
	assert.Equal(t, with.Status.Warnings, without.Status.Warnings)
	for _, object := range slices.Sorted(maps.Keys(want)) {
		s.row("I5 "+object, func(s *scene) { assert.JSONEq(s.t, want[object], cmp.Or(got[object], "{}")) })
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
}

// workloads are one of each kind that is not a DeploymentConfig's business, and two pods as a DeploymentConfig makes them.
func (s *scene) workloads() []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: s.ns, Name: name, Labels: map[string]string{"app": name}}
	}
	podSpec := func(command ...string) corev1.PodSpec {
		return corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.example/app:1", Command: command,
				VolumeMounts: []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}},
			}},
			Volumes:                       []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			NodeSelector:                  map[string]string{corev1.LabelHostname: s.node.Name()},
			TerminationGracePeriodSeconds: ptr.To[int64](1),
		}
	}
	template := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: podSpec()}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	controller := template("rc")
	controller.Labels[contract.DeploymentLabel] = "rc"
	job := template("job")
	job.Spec = podSpec("sleep", "3600")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	bare := &corev1.Pod{ObjectMeta: meta("bare"), Spec: podSpec()}
	orphan := &corev1.Pod{ObjectMeta: meta("web-3-abcde"), Spec: podSpec()}
	orphan.Labels[contract.DeploymentLabel], orphan.Labels[contract.DeploymentConfigLabel] = "web-3", "web"
	orphan.Annotations = map[string]string{contract.PodDeploymentConfigAnnotation: "web", contract.PodDeploymentAnnotation: "web-3"}
	orphan.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	return []client.Object{
		bare, orphan,
		&corev1.ReplicationController{ObjectMeta: meta("rc"), Spec: corev1.ReplicationControllerSpec{
			Replicas: ptr.To[int32](1), Selector: controller.Labels, Template: &controller,
		}},
		&appsv1.Deployment{ObjectMeta: meta("deployment"), Spec: appsv1.DeploymentSpec{Selector: selector("deployment"), Template: template("deployment")}},
		&appsv1.StatefulSet{ObjectMeta: meta("set"), Spec: appsv1.StatefulSetSpec{ServiceName: "set", Selector: selector("set"), Template: template("set")}},
		&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: job}},
	}
}

// podsReady tells whether the scene's namespace has n pods, all of them ready.
func (s *scene) podsReady(ctx context.Context, n int) error {
	var pods corev1.PodList
	if err := s.Client().List(ctx, &pods, client.InNamespace(s.ns)); err != nil {
		return err
	}
	count := 0
	for i := range pods.Items {
		if ready(&pods.Items[i]) {
			count++
		}
	}
	if count != n || len(pods.Items) != n {
		return fmt.Errorf("%d of %d pods are ready, want %d", count, len(pods.Items), n)
	}
	return nil
}

// workloadKinds are the kinds that Velero makes objects of in TestUntouchedAsWithoutThePlugin, owners first.
var workloadKinds = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("StatefulSet"), batchv1.SchemeGroupVersion.WithKind("Job"),
	corev1.SchemeGroupVersion.WithKind("ReplicationController"), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), corev1.SchemeGroupVersion.WithKind("Pod"),
}

// eachWorkload lists the objects of a kind in the scene's namespace.
func (s *scene) eachWorkload(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kind)
	err := s.Client().List(ctx, &list, client.InNamespace(s.ns))
	return list.Items, err
}

// loseWorkloads deletes the workloads and claims, owners first, until all are gone.
func (s *scene) loseWorkloads() {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		left := 0
		for _, kind := range append(slices.Clone(workloadKinds), corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")) {
			objects, err := s.eachWorkload(ctx, kind)
			if err != nil {
				return err
			}
			left += len(objects)
			for i := range objects {
				options := []client.DeleteOption{client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)}
				if err := s.Client().Delete(ctx, &objects[i], options...); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
		}
		if left > 0 {
			return fmt.Errorf("%d objects are left", left)
		}
		return nil
	})
}

// uid matches every UID: those of owners, of the restore, of a Job's selector.
var uid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// madeBy returns what a restore has made of each workload, as JSON by kind and name, without what the cluster adds to every
// object by itself at its own time.
func (s *scene) madeBy(restore *velerov1.Restore) map[string]string {
	s.t.Helper()
	made := map[string]string{}
	for _, kind := range workloadKinds {
		objects, err := s.eachWorkload(s.t.Context(), kind)
		require.NoError(s.t, err)
		for i := range objects {
			object := &objects[i]
			if object.GetLabels()[velerov1.RestoreNameLabel] != restore.Name {
				continue
			}
			for _, path := range [][]string{
				{"status"},
				{"spec", "nodeName"},
				{"metadata", "uid"},
				{"metadata", "resourceVersion"},
				{"metadata", "generation"},
				{"metadata", "creationTimestamp"},
				{"metadata", "managedFields"},
				{"metadata", "ownerReferences"},
				{"metadata", "finalizers"},
			} {
				unstructured.RemoveNestedField(object.Object, path...)
			}
			content, err := json.Marshal(object.Object)
			require.NoError(s.t, err)
			text := strings.ReplaceAll(string(content), restore.Name, "RESTORE")
			made[object.GetKind()+" "+object.GetName()] = uid.ReplaceAllString(text, "UID")
		}
	}
	return made
}
