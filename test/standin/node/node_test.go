package node_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
)

// within is how long anything here may take; on an idle machine nothing takes a tenth of it.
const within = 30 * time.Second

// fixture is a namespace of one test on a node that several tests share.
type fixture struct {
	client.Client
	cluster *cluster
	*node.Node
	t  *testing.T
	ns string
}

// TestNode runs a node against a real API server and controller manager and does to it what controllers, Velero and
// people do to pods.
func TestNode(t *testing.T) {
	c := startCluster(t)
	n, err := node.Run(t.Context(), c.RESTConfig(), node.Options{Labels: map[string]string{"disk": "fast"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Stop()) })

	tests := map[string]func(*fixture){
		"the Node becomes Ready and loses its taint":       nodeReady,
		"a pod with a claim runs, and goes when deleted":   podWithClaim,
		"a claim can wait for its first consumer":          waitForConsumer,
		"a pod that fits no node says so":                  unschedulable,
		"init containers run one after another":            initContainers,
		"a failing init container is reported as such":     failingInit,
		"an image that is missing is not pulled":           missingImage,
		"Jobs complete and fail":                           jobs,
		"a deployer pod runs until someone ends it":        deployerPod,
		"a pod ends in its time, never after its grace":    termination,
		"readiness follows the annotation":                 readiness,
		"commands are executed in running containers":      execs,
		"a command dies with its pod":                      execInDyingPod,
		"pods of one claim are counted":                    users,
		"Deployments, StatefulSets and DaemonSets work":    workloads,
		"an emptyDir dies with its pod":                    emptyDir,
		"a force-deleted pod is forgotten":                 forceDelete,
		"an ephemeral volume has a claim":                  ephemeral,
		"deleting the namespace takes everything with it":  namespaceDeletion,
		"a claim that is deleted takes its contents along": reclaim,
	}
	t.Run("tests", func(t *testing.T) { // ends when its parallel tests have ended, before the node is stopped
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
				require.NoError(t, c.Client().Create(t.Context(), ns))
				test(&fixture{t: t, Client: c.Client(), cluster: c, Node: n, ns: ns.Name})
			})
		}
	})
}

// pod builds a pod with one container; change may alter it.
func (f *fixture) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](30),
			Containers:                    []corev1.Container{{Name: "main", Image: "app:1"}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func withClaim(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
}

func withInit(containers ...corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.InitContainers = containers }
}

func withCommand(command ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command = command }
}

func withPolicy(policy corev1.RestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
}

func withAnnotation(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func (f *fixture) claim(name, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if class != "" {
		c.Spec.StorageClassName = &class
	}
	return c
}

func (f *fixture) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, f.Create(t.Context(), o))
	}
}

// until polls an object until it is as wanted; the object is left as last seen.
func until[T client.Object](t *testing.T, c client.Client, o T, what string, wanted func(T) bool) T {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return wanted(o), nil
	})
	require.NoError(t, err, "%s: %+v", what, o)
	return o
}

// stays watches an object for half a second.
func stays[T client.Object](t *testing.T, c client.Client, o T, what string, wanted func(T) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return !wanted(o), nil
	})
	require.ErrorIs(t, err, context.DeadlineExceeded, "does not stay %s: %+v", what, o)
}

func (f *fixture) untilGone(t *testing.T, o client.Object) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		err := f.Get(ctx, client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	require.NoError(t, err, "%T %s is still there: %+v", o, o.GetName(), o)
}

func phase(p corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Status.Phase == p }
}

func is(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == condition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func ready(pod *corev1.Pod) bool { return is(pod, corev1.PodReady) }

func waitingFor(reason string, statuses func(*corev1.Pod) []corev1.ContainerStatus) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		all := statuses(pod)
		return len(all) > 0 && all[0].State.Waiting != nil && all[0].State.Waiting.Reason == reason
	}
}

func mains(pod *corev1.Pod) []corev1.ContainerStatus { return pod.Status.ContainerStatuses }
func inits(pod *corev1.Pod) []corev1.ContainerStatus { return pod.Status.InitContainerStatuses }

func nodeReady(f *fixture) {
	t := f.t
	n := until(t, f.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Name()}}, "no taint", func(n *corev1.Node) bool {
		return len(n.Spec.Taints) == 0
	})
	assert.Equal(t, "127.0.0.1", n.Status.Addresses[0].Address)
	assert.NotZero(t, n.Status.DaemonEndpoints.KubeletEndpoint.Port)
}

func podWithClaim(f *fixture) {
	t := f.t
	pod := f.pod("p", withClaim("c"))
	f.create(t, f.claim("c", ""), pod)
	until(t, f.Client, pod, "Ready", ready)
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	assert.Equal(t, f.Name(), pod.Spec.NodeName)
	assert.NotEmpty(t, pod.Status.PodIP)
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReadyToStartContainers} {
		assert.True(t, is(pod, c), c)
	}

	claim := f.claim("c", "")
	require.NoError(t, f.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	assert.Equal(t, node.StorageClass, *claim.Spec.StorageClassName)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	require.NoError(t, f.Get(t.Context(), client.ObjectKeyFromObject(volume), volume))
	assert.NotNil(t, volume.Spec.Local, "file-system backup skips hostPath")

	require.NoError(t, f.Write(t.Context(), f.ns, "c", "hello"))
	require.NoError(t, f.Delete(t.Context(), pod))
	f.untilGone(t, pod)
	got, err := f.Read(t.Context(), f.ns, "c")
	require.NoError(t, err)
	assert.Equal(t, "hello", got, "a claim outlives its pod")

	uses := f.Uses(f.ns, "c")
	require.Len(t, uses, 1)
	assert.True(t, uses[0].To.After(uses[0].From))
	assert.Equal(t, pod.UID, uses[0].PodUID)
}

func waitForConsumer(f *fixture) {
	t := f.t
	claim := f.claim("c", node.WaitingStorageClass)
	f.create(t, claim)
	stays(t, f.Client, claim, "not bound without a consumer", func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.VolumeName == "" })
	pod := f.pod("p", withClaim("c"))
	f.create(t, pod)
	until(t, f.Client, pod, "Ready", ready)
	until(t, f.Client, claim, "Bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

func unschedulable(f *fixture) {
	t := f.t
	here := f.pod("here", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} })
	elsewhere := f.pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"region": "lost"} })
	claimless := f.pod("claimless", withClaim("later"))
	f.create(t, here, elsewhere, claimless)
	until(t, f.Client, here, "Ready", ready)
	stuck := func(message string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
					return strings.Contains(c.Message, message)
				}
			}
			return false
		}
	}
	until(t, f.Client, elsewhere, "Unschedulable", stuck("selector"))
	until(t, f.Client, claimless, "Unschedulable", stuck(`"later" not found`))
	assert.Empty(t, elsewhere.Spec.NodeName)
	f.create(t, f.claim("later", ""))
	until(t, f.Client, claimless, "Ready", ready)
	require.NoError(t, f.Delete(t.Context(), elsewhere))
	f.untilGone(t, elsewhere)
}

func initContainers(f *fixture) {
	t := f.t
	pod := f.pod("p", withInit(
		corev1.Container{Name: "one", Image: "i", Command: []string{"sh", "-c", "sleep 0.3"}},
		corev1.Container{Name: "two", Image: "i", Command: []string{"sh", "-c", "sleep 0.3"}},
	))
	f.create(t, pod)
	until(t, f.Client, pod, "two runs", func(p *corev1.Pod) bool { return len(inits(p)) == 2 && inits(p)[1].State.Running != nil })
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)
	assert.False(t, is(pod, corev1.PodInitialized))
	assert.Equal(t, "Completed", inits(pod)[0].State.Terminated.Reason)
	assert.Equal(t, "PodInitializing", mains(pod)[0].State.Waiting.Reason)
	until(t, f.Client, pod, "Ready", ready)
	assert.True(t, is(pod, corev1.PodInitialized))
}

func failingInit(f *fixture) {
	t := f.t
	failing := withInit(corev1.Container{Name: "init", Image: "i", Command: []string{"sh", "-c", "exit 3"}})
	always, never := f.pod("always", failing), f.pod("never", failing, withPolicy(corev1.RestartPolicyNever))
	f.create(t, always, never)
	until(t, f.Client, always, "CrashLoopBackOff", waitingFor("CrashLoopBackOff", inits))
	assert.Equal(t, corev1.PodPending, always.Status.Phase)
	assert.EqualValues(t, 3, inits(always)[0].LastTerminationState.Terminated.ExitCode)
	assert.NotZero(t, inits(always)[0].RestartCount)
	until(t, f.Client, never, "Failed", phase(corev1.PodFailed))
	assert.Equal(t, "Error", inits(never)[0].State.Terminated.Reason)
}

func missingImage(f *fixture) {
	t := f.t
	main := f.pod("main", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "missing:1" })
	init := f.pod("init", withInit(corev1.Container{Name: "init", Image: "registry.example/missing:1"}))
	f.create(t, main, init)
	until(t, f.Client, main, "ImagePullBackOff", waitingFor("ImagePullBackOff", mains))
	assert.Equal(t, corev1.PodPending, main.Status.Phase)
	assert.True(t, is(main, corev1.PodInitialized))
	until(t, f.Client, init, "ImagePullBackOff", waitingFor("ImagePullBackOff", inits))
	assert.False(t, is(init, corev1.PodInitialized))

	old := main.DeepCopy()
	main.Spec.Containers[0].Image = "found:1"
	require.NoError(t, f.Patch(t.Context(), main, client.MergeFrom(old)))
	until(t, f.Client, main, "Ready", ready)
	require.NoError(t, f.Delete(t.Context(), init))
	f.untilGone(t, init)
}

func jobs(f *fixture) {
	t := f.t
	job := func(name, command string) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name},
			Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{
				Spec: f.pod(name, withPolicy(corev1.RestartPolicyNever), withCommand("sh", "-c", command)).Spec,
			}},
		}
	}
	good, bad := job("good", "true"), job("bad", "exit 1")
	f.create(t, good, bad)
	until(t, f.Client, good, "succeeded", func(j *batchv1.Job) bool { return j.Status.Succeeded == 1 && j.Status.CompletionTime != nil })
	until(t, f.Client, bad, "failed", func(j *batchv1.Job) bool { return j.Status.Failed == 1 })
}

func deployerPod(f *fixture) {
	t := f.t
	pod := f.pod("web-1-deploy", withPolicy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Labels[contract.DeployerPodForLabel] = "web-1"
		p.Spec.Containers[0].Name = "deployment"
	})
	f.create(t, pod)
	until(t, f.Client, pod, "Ready", ready)
	pod.Status.Phase = corev1.PodSucceeded
	require.NoError(t, f.Status().Update(t.Context(), pod))
	stays(t, f.Client, pod, "in the final phase that someone else gave it", phase(corev1.PodSucceeded))
	require.NoError(t, f.Delete(t.Context(), pod))
	f.untilGone(t, pod)
}

func termination(f *fixture) {
	t := f.t
	// Deleted pods are seen in their final phase only between two writes of the kubelet, unless a finalizer holds them.
	hold := func(p *corev1.Pod) { p.Finalizers = []string{"standin.test/hold"} }
	slow := f.pod("slow", hold, withAnnotation(node.TerminatesAnnotation, "1500ms"))
	stubborn := f.pod("stubborn", hold, withAnnotation(node.TerminatesAnnotation, "1m"))
	f.create(t, slow, stubborn)
	until(t, f.Client, slow, "Ready", ready)
	until(t, f.Client, stubborn, "Ready", ready)

	start := time.Now()
	require.NoError(t, f.Delete(t.Context(), slow))
	require.NoError(t, f.Delete(t.Context(), stubborn, client.GracePeriodSeconds(1)))
	until(t, f.Client, stubborn, "Failed", phase(corev1.PodFailed))
	assert.GreaterOrEqual(t, time.Since(start), time.Second)
	assert.EqualValues(t, 137, mains(stubborn)[0].State.Terminated.ExitCode, "killed at the end of its grace period")
	until(t, f.Client, slow, "Succeeded", phase(corev1.PodSucceeded))
	assert.GreaterOrEqual(t, time.Since(start), 1500*time.Millisecond)
	assert.Less(t, time.Since(start), 10*time.Second)
	for _, pod := range []*corev1.Pod{slow, stubborn} {
		old := pod.DeepCopy()
		pod.Finalizers = nil
		require.NoError(t, f.Patch(t.Context(), pod, client.MergeFrom(old)))
		f.untilGone(t, pod)
	}
}

func readiness(f *fixture) {
	t := f.t
	pod := f.pod("p", withAnnotation(node.ReadyAnnotation, "false"))
	f.create(t, pod)
	until(t, f.Client, pod, "Running", phase(corev1.PodRunning))
	assert.False(t, ready(pod))
	old := pod.DeepCopy()
	delete(pod.Annotations, node.ReadyAnnotation)
	require.NoError(t, f.Patch(t.Context(), pod, client.MergeFrom(old)))
	until(t, f.Client, pod, "Ready", ready)
}

// run is `kubectl exec`, over WebSocket or over SPDY as Velero does it.
func (f *fixture) run(ctx context.Context, pod string, websocket bool, command ...string) error {
	cfg := f.cluster.RESTConfig()
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	request := kube.CoreV1().RESTClient().Post().Namespace(f.ns).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "main", Command: command, Stdout: true, Stderr: true}, clientgoscheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(cfg, "POST", request.URL())
	if websocket {
		executor, err = remotecommand.NewWebSocketExecutor(cfg, "GET", request.URL().String())
	}
	if err != nil {
		return err
	}
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
}

func (f *fixture) execsHere() []node.Exec {
	var here []node.Exec
	for _, e := range f.Execs() {
		if e.Namespace == f.ns {
			here = append(here, e)
		}
	}
	return here
}

func execs(f *fixture) {
	t := f.t
	pod := f.pod("p", withClaim("c"))
	f.create(t, f.claim("c", ""), pod)
	until(t, f.Client, pod, "Ready", ready)
	require.NoError(t, f.Write(t.Context(), f.ns, "c", "rows"))
	for _, websocket := range []bool{false, true} {
		require.NoError(t, f.run(t.Context(), "p", websocket, "sh", "-c", "sleep 0.2"))
		var code exec.ExitError
		require.ErrorAs(t, f.run(t.Context(), "p", websocket, "sh", "-c", "exit 4"), &code)
		assert.Equal(t, 4, code.ExitStatus())
	}
	require.Error(t, f.run(t.Context(), "nobody", false, "true"))

	seen := f.execsHere()
	require.Len(t, seen, 4)
	assert.Equal(t, []string{"sh", "-c", "sleep 0.2"}, seen[0].Command)
	assert.GreaterOrEqual(t, seen[0].Ended.Sub(seen[0].Started), 200*time.Millisecond)
	assert.Equal(t, map[string]string{"data": "rows"}, seen[0].Contents)
	assert.True(t, seen[0].PodThere)
	assert.False(t, seen[0].Restored)
	assert.Equal(t, 4, seen[1].ExitCode)

	kube, err := kubernetes.NewForConfig(f.cluster.RESTConfig())
	require.NoError(t, err)
	log, err := kube.CoreV1().Pods(f.ns).GetLogs("p", &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	assert.Contains(t, string(log), "stand-in")
}

func execInDyingPod(f *fixture) {
	t := f.t
	pod := f.pod("p")
	f.create(t, pod)
	until(t, f.Client, pod, "Ready", ready)
	done := make(chan error, 1)
	go func() { done <- f.run(t.Context(), "p", false, "sleep 60") }()
	require.Eventually(t, func() bool { return len(f.execsHere()) == 1 }, within, 20*time.Millisecond)
	require.NoError(t, f.Delete(t.Context(), pod))
	var code exec.ExitError
	require.ErrorAs(t, <-done, &code)
	assert.Equal(t, 137, code.ExitStatus())
	assert.False(t, f.execsHere()[0].PodThere)
}

func users(f *fixture) {
	t := f.t
	one, two := f.pod("one", withClaim("c")), f.pod("two", withClaim("c"))
	f.create(t, f.claim("c", ""), one)
	until(t, f.Client, one, "Ready", ready)
	require.NoError(t, f.Delete(t.Context(), one))
	f.untilGone(t, one)
	f.create(t, two)
	until(t, f.Client, two, "Ready", ready)
	assert.Equal(t, 1, f.MaxUsers(f.ns, "c"))
	three := f.pod("three", withClaim("c"))
	f.create(t, three)
	until(t, f.Client, three, "Ready", ready)
	assert.Equal(t, 2, f.MaxUsers(f.ns, "c"))
}

func workloads(f *fixture) {
	t := f.t
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "w"}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: f.pod("w").Spec}
	meta := metav1.ObjectMeta{Namespace: f.ns, Name: "w"}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: selector, Template: template}}
	daemons := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](2), Selector: selector, Template: template,
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*f.claim("data", "")},
	}}
	f.create(t, deployment, daemons, set)
	until(t, f.Client, deployment, "available", func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 2 })
	until(t, f.Client, daemons, "ready", func(d *appsv1.DaemonSet) bool { return d.Status.NumberReady == 1 })
	until(t, f.Client, set, "ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 2 })
}

func emptyDir(f *fixture) {
	t := f.t
	scratch := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	pod := f.pod("p", scratch)
	f.create(t, pod)
	until(t, f.Client, pod, "Ready", ready)
	require.NoError(t, f.WriteVolume(t.Context(), f.ns, "p", "tmp", "scratch"))
	got, err := f.ReadVolume(t.Context(), f.ns, "p", "tmp")
	require.NoError(t, err)
	assert.Equal(t, "scratch", got)
	require.NoError(t, f.Delete(t.Context(), pod))
	f.untilGone(t, pod)
	again := f.pod("p", scratch)
	f.create(t, again)
	until(t, f.Client, again, "Ready", ready)
	got, err = f.ReadVolume(t.Context(), f.ns, "p", "tmp")
	require.NoError(t, err)
	assert.Empty(t, got)
}

func forceDelete(f *fixture) {
	t := f.t
	pod := f.pod("p", withClaim("c"))
	f.create(t, f.claim("c", ""), pod)
	until(t, f.Client, pod, "Ready", ready)
	require.NoError(t, f.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	again := f.pod("p", withClaim("c"))
	f.create(t, again)
	until(t, f.Client, again, "Ready", ready)
	assert.NotEqual(t, pod.UID, again.UID)
	assert.Equal(t, 1, f.MaxUsers(f.ns, "c"))
}

func ephemeral(f *fixture) {
	t := f.t
	pod := f.pod("p", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: f.claim("", "").Spec},
		}}}}
	})
	f.create(t, pod)
	until(t, f.Client, pod, "Ready", ready)
	require.NoError(t, f.Write(t.Context(), f.ns, "p-work", "x"))
}

func namespaceDeletion(f *fixture) {
	t := f.t
	pod := f.pod("p", withClaim("c"), func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1) // the namespace controller looks again after half of it
	})
	f.create(t, f.claim("c", ""), pod)
	until(t, f.Client, pod, "Ready", ready)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.ns}}
	require.NoError(t, f.Delete(t.Context(), ns))
	f.untilGone(t, ns)
}

func reclaim(f *fixture) {
	t := f.t
	claim := f.claim("c", "")
	f.create(t, claim)
	until(t, f.Client, claim, "Bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	require.NoError(t, f.Write(t.Context(), f.ns, "c", "old"))
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	require.NoError(t, f.Delete(t.Context(), claim))
	f.untilGone(t, volume)
	again := f.claim("c", "")
	f.create(t, again)
	until(t, f.Client, again, "Bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	got, err := f.Read(t.Context(), f.ns, "c")
	require.NoError(t, err)
	assert.Empty(t, got)
}
