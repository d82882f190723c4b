package cli

import (
	"bytes"
	"context"
	"io/fs"
	"sync"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// cluster is an API server in memory, with as much of OpenShift's controllers as phase two waits for.
type cluster struct {
	client client.Client

	mu     sync.Mutex
	writes []string
	// refuse returns the error with which a request is answered, nil for none.
	refuse func(verb string, object any, namespace string) error
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme, err := restore.NewScheme()
	require.NoError(t, err)
	// The fake keeps what it is given, and tests that run side by side share their objects.
	own := make([]client.Object, len(objects))
	for i, object := range objects {
		own[i] = object.DeepCopyObject().(client.Object)
	}
	c := &cluster{}
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(own...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := c.answer(ctx, "get", obj, key.Namespace); err != nil {
				return err
			}
			return inner.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			options := client.ListOptions{}
			options.ApplyOptions(opts)
			if err := c.answer(ctx, "list", list, options.Namespace); err != nil {
				return err
			}
			return inner.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := c.write(ctx, "create", obj); err != nil {
				return err
			}
			return inner.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := c.write(ctx, "delete", obj); err != nil {
				return err
			}
			return inner.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.write(ctx, "patch", obj); err != nil {
				return err
			}
			if err := inner.Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			return rollOut(ctx, inner, obj)
		},
		SubResourcePatch: func(ctx context.Context, inner client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := c.write(ctx, "patch "+name, obj); err != nil {
				return err
			}
			return inner.SubResource(name).Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	return c
}

// answer is an API server's: it does not answer whose context has ended.
func (c *cluster) answer(ctx context.Context, verb string, object any, namespace string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		if err := c.refuse(verb, object, namespace); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *cluster) write(ctx context.Context, verb string, obj client.Object) error {
	if err := c.answer(ctx, verb, obj, obj.GetNamespace()); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isEvent := obj.(*corev1.Event); !isEvent || verb != "create" {
		c.writes = append(c.writes, verb+" "+obj.GetNamespace()+"/"+obj.GetName())
	} else {
		c.writes = append(c.writes, "event")
	}
	return nil
}

// rollOut does what OpenShift's controller does with a DeploymentConfig whose replicas have changed: it gives them to its
// ReplicationController, whose pods come up at once.
func rollOut(ctx context.Context, inner client.Client, obj client.Object) error {
	dc, ok := obj.(*ocpappsv1.DeploymentConfig)
	if !ok || dc.Spec.Paused {
		return nil
	}
	rc := &corev1.ReplicationController{}
	if err := inner.Get(ctx, client.ObjectKey{Namespace: dc.Namespace, Name: dc.Name + "-1"}, rc); err != nil {
		return client.IgnoreNotFound(err)
	}
	rc.Spec.Replicas = new(dc.Spec.Replicas)
	if err := inner.Update(ctx, rc); err != nil {
		return err
	}
	rc.Status.Replicas = dc.Spec.Replicas
	return inner.Status().Update(ctx, rc)
}

// forbidden is what an API server says to a user without rights.
func forbidden(verb, group, resource, namespace string) error {
	scope := "at the cluster scope"
	if namespace != "" {
		scope = `in the namespace "` + namespace + `"`
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, "",
		errorf(`User "jane" cannot %s resource "%s" in API group "%s" %s`, verb, resource, group, scope))
}

// ran is what a command left behind.
type ran struct {
	code        int
	out, errOut string
}

// run runs a command line against the cluster, in Velero's pod unless change says otherwise.
func (c *cluster) run(t *testing.T, args ...string) ran {
	t.Helper()
	return c.runIn(t.Context(), surroundings{getenv: inVelerosPod}, args...)
}

func (c *cluster) runIn(ctx context.Context, s surroundings, args ...string) ran {
	var out, errOut bytes.Buffer
	s.in, s.out, s.errOut = &bytes.Buffer{}, &out, &errOut
	s.clock = clock.RealClock{}
	if s.readFile == nil {
		s.readFile = func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	}
	if s.screen == nil {
		s.screen = func() (int, int, bool) { return 0, 0, false }
	}
	if s.outScreen == nil {
		s.outScreen = func() (int, int, bool) { return 0, 0, false }
	}
	s.connect = func(*connection) (client.Client, error) { return c.client, nil }
	code := execute(ctx, args, s)
	return ran{code: code, out: out.String(), errOut: errOut.String()}
}

func inVelerosPod(key string) string {
	if key == namespaceVariable {
		return "velero"
	}
	return ""
}

func nowhere(string) string { return "" }

// The objects of a restore, as phase one leaves them.

const restoreUID = "0f3c"

func restoreIn(phase velerov1.RestorePhase) *velerov1.Restore {
	return &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "monday", UID: restoreUID},
		Spec:       velerov1.RestoreSpec{BackupName: "sunday"},
		Status:     velerov1.RestoreStatus{Phase: phase},
	}
}

func marks(key string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Labels:      map[string]string{key: label.GetValidName("monday")},
		Annotations: map[string]string{contract.RestoreAnnotation: "velero/monday", contract.RestoreUIDAnnotation: restoreUID},
	}
}

func heldDC(namespace, name, replicas string) *ocpappsv1.DeploymentConfig {
	meta := marks(contract.ReplicasModifiedLabel)
	meta.Namespace, meta.Name, meta.UID = namespace, name, "1"
	meta.Annotations[contract.OriginalReplicasAnnotation], meta.Annotations[contract.OriginalPausedAnnotation] = replicas, "false"
	return &ocpappsv1.DeploymentConfig{
		ObjectMeta: meta,
		Status:     ocpappsv1.DeploymentConfigStatus{LatestVersion: 1},
	}
}

// rollout is the finished first rollout of a DeploymentConfig held at 0.
func rollout(namespace, name string) *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-1",
			Labels: map[string]string{contract.PodDeploymentConfigAnnotation: name},
			Annotations: map[string]string{
				contract.PodDeploymentConfigAnnotation: name, contract.LatestVersionAnnotation: "1",
				contract.DeploymentPhaseAnnotation: string(ocpappsv1.DeploymentStatusComplete),
			},
		},
		Spec: corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](0)},
	}
}

func detachedPod(namespace, dc, name string, initialized bool) *corev1.Pod {
	meta := marks(contract.DisconnectedLabel)
	meta.Namespace, meta.Name, meta.UID, meta.CreationTimestamp = namespace, name, "2", metav1.Now()
	meta.Labels[contract.DeploymentConfigLabel] = dc
	meta.Annotations[contract.DeploymentConfigAnnotation] = dc
	status := corev1.ConditionFalse
	if initialized {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodInitialized, Status: status}},
	}}
}

func failedVolume(namespace, pod, volume string) *velerov1.PodVolumeRestore {
	return &velerov1.PodVolumeRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "monday-" + volume, Labels: map[string]string{velerov1.RestoreNameLabel: "monday"}},
		Spec:       velerov1.PodVolumeRestoreSpec{Pod: corev1.ObjectReference{Namespace: namespace, Name: pod, UID: "2"}, Volume: volume},
		Status:     velerov1.PodVolumeRestoreStatus{Phase: velerov1.PodVolumeRestorePhaseFailed, Message: "no such snapshot"},
	}
}

func oneApplication() []client.Object {
	return []client.Object{
		heldDC("shop", "web", "2"), rollout("shop", "web"),
		detachedPod("shop", "web", "web-3-a", true), detachedPod("shop", "web", "web-3-b", true),
	}
}

var realClock = clock.RealClock{}

func noScreen() (width, height int, ok bool) { return 0, 0, false }
