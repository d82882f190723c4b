package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// app is an application under a DeploymentConfig. Its pods mount a claim of its name at /data, all of them the same: on one
// node that goes with ReadWriteOnce, the only mode that the provisioner has.
type app struct {
	name     string
	replicas int32
	paused   bool
	// annotations go to its pods.
	annotations map[string]string
	// mebibytes of random data in /data/orders; 0: 32.
	mebibytes int
	// change is the last word on the DeploymentConfig's pod template.
	change func(*corev1.PodTemplateSpec)
}

func (a app) size() int {
	if a.mebibytes == 0 {
		return 32
	}
	return a.mebibytes
}

// dc returns the DeploymentConfig. It holds no empty list or map: a CRD does not default them away as OpenShift's API
// server does.
func (a app) dc(namespace string) *ocpappsv1.DeploymentConfig {
	labels := map[string]string{"app": a.name}
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: a.annotations},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name: "app", Image: bed.BoxImage, Command: []string{"sleep", "100000"}, VolumeMounts: []corev1.VolumeMount{dataMount},
			}},
			Volumes: []corev1.Volume{{Name: dataMount.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: a.name},
			}}},
		},
	}
	if a.change != nil {
		a.change(template)
	}
	return &ocpappsv1.DeploymentConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.name, Labels: labels},
		Spec: ocpappsv1.DeploymentConfigSpec{
			Replicas: a.replicas,
			Selector: labels,
			Triggers: []ocpappsv1.DeploymentTriggerPolicy{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}},
			Strategy: ocpappsv1.DeploymentStrategy{Type: ocpappsv1.DeploymentStrategyTypeRecreate},
			Template: template,
		},
	}
}

// dataFolder is where containers of an application have its claim.
const dataFolder = "/data"

var dataMount = corev1.VolumeMount{Name: "data", MountPath: dataFolder}

func (a app) claim(namespace string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// create creates an application, whose pods then start.
func (s *scene) create(a app) {
	s.t.Helper()
	require.NoError(s.t, s.Client().Create(s.t.Context(), a.claim(s.ns)))
	require.NoError(s.t, s.Client().Create(s.t.Context(), a.dc(s.ns)))
}

// deploy creates an application, waits until it runs, and writes its data.
func (s *scene) deploy(a app) {
	s.t.Helper()
	s.create(a)
	s.fill(a)
}

// fill waits until an application runs and writes its data.
func (s *scene) fill(a app) {
	s.t.Helper()
	pod := s.awaitPods(a)[0]
	s.until(soon, func(ctx context.Context) error {
		rc := &corev1.ReplicationController{}
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: a.name + "-1"}, rc); err != nil {
			return err
		}
		if phase := rc.Annotations[contract.DeploymentPhaseAnnotation]; phase != string(ocpappsv1.DeploymentStatusComplete) {
			return fmt.Errorf("rollout %s is %s", rc.Name, phase)
		}
		return nil
	})
	if a.paused {
		// Not from the beginning: nothing would be rolled out.
		s.patch(a.dc(s.ns), `{"spec":{"paused":true}}`)
	}
	hash := sha256.New()
	data := io.TeeReader(io.LimitReader(rand.Reader, int64(a.size())<<20), hash)
	// The shell has something to do after cat, so that it stays: a process that the node's containerd starts for itself alone,
	// without a parent beside it, loses its input after some 100 KiB (seen with containerd 1.6).
	_, err := s.Exec(s.t.Context(), client.ObjectKeyFromObject(&pod), "app", data, "sh", "-c", "cat >/data/orders && test -s /data/orders")
	require.NoError(s.t, err)
	s.written[a.name] = hex.EncodeToString(hash.Sum(nil))
	require.Equal(s.t, s.written[a.name], s.sum(&pod), "the data as the pod sees it")
}

// sum is the SHA-256 of an application's data, as a pod sees it.
func (s *scene) sum(pod *corev1.Pod) string {
	s.t.Helper()
	sum, _, _ := strings.Cut(s.in(pod, "sha256sum", "/data/orders"), " ")
	return sum
}

// in runs a command in the container of a pod and returns what it prints.
func (s *scene) in(pod *corev1.Pod, command ...string) string {
	s.t.Helper()
	out, err := s.Exec(s.t.Context(), client.ObjectKeyFromObject(pod), "app", nil, command...)
	require.NoError(s.t, err)
	return out
}
