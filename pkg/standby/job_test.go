package standby_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/standby"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func decode[T any](t *testing.T, file string) T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	var decoded T
	require.NoError(t, yaml.UnmarshalStrict(data, &decoded))
	return decoded
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := decode[appsv1.Deployment](t, "deployment.yaml")
	return &d
}

func TestBuild(t *testing.T) {
	t.Parallel()
	from, r := deployment(t), testkit.RestoreNamed("monday").Result()
	before, restoreBefore := from.DeepCopy(), r.DeepCopy()
	now := testkit.Epoch.Time
	job := standby.Build(from, r, now, now.Add(4*time.Hour))

	data, err := json.Marshal(job)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(data, &got))
	delete(got, "status")
	want := decode[map[string]any](t, "job.yaml")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Job (-want +got):\n%s", diff)
	}
	require.Empty(t, cmp.Diff(before, from), "the Deployment was changed")
	require.Empty(t, cmp.Diff(restoreBefore, r), "the Restore was changed")
}

func TestBuildRequestsNoMoreThanTheLimits(t *testing.T) {
	t.Parallel()
	from := deployment(t)
	from.Spec.Template.Spec.Containers = from.Spec.Template.Spec.Containers[1:]
	from.Spec.Template.Spec.Containers[0].Name = "server" // then the first one is the server
	from.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	job := standby.Build(from, testkit.RestoreNamed("r").Result(), testkit.Epoch.Time, testkit.Epoch.Time)
	container := job.Spec.Template.Spec.Containers[0]
	require.Equal(t, "registry.example/velero:1.18", container.Image)
	require.Equal(t, "32Mi", container.Resources.Requests.Memory().String())
	require.Equal(t, "10m", container.Resources.Requests.Cpu().String())
}

func TestName(t *testing.T) {
	t.Parallel()
	named := func(name, uid string) *velerov1.Restore {
		return &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	}
	long := strings.Repeat("a", 200)
	require.Equal(t, "post-restore-monday-89b086", standby.Name(named("monday", "uid-of-monday")))
	names := map[string]string{}
	for what, r := range map[string]*velerov1.Restore{
		"short":                              named("monday", "1"),
		"the same name, another Restore":     named("monday", "2"),
		"dots":                               named("a.b", "3"),
		"hyphens where that one has dots":    named("a-b", "4"),
		"63 characters":                      named(strings.Repeat("a", 63), "5"),
		"64 characters":                      named(strings.Repeat("a", 64), "6"),
		"253 characters":                     named(strings.Repeat("a.", 126)+"a", "7"),
		"253 characters, the last different": named(strings.Repeat("a.", 126)+"b", "8"),
		"a hyphen where it is cut":           named(strings.Repeat("a", 43)+"-"+long, "9"),
	} {
		name := standby.Name(r)
		require.Empty(t, validation.IsDNS1123Label(name), what)
		require.Empty(t, validation.IsValidLabelValue(name), what)
		require.Empty(t, names[name], "%s clashes with %s", what, names[name])
		names[name] = what
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	r := &velerov1.Restore{}
	require.Equal(t, 4*time.Hour, standby.Timeout(r), "Velero's default")
	r.Spec.ItemOperationTimeout.Duration = time.Minute
	require.Equal(t, time.Minute, standby.Timeout(r))
}

func TestChoose(t *testing.T) {
	t.Parallel()
	of := func(name string, replicas *int32) appsv1.Deployment {
		return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "adp", Name: name}, Spec: appsv1.DeploymentSpec{Replicas: replicas}}
	}
	tests := map[string]struct {
		candidates   []appsv1.Deployment
		want, reason string
	}{
		"the usual name":                   {candidates: []appsv1.Deployment{of("velero", ptr.To[int32](1))}, want: "velero"},
		"replicas left to the default":     {candidates: []appsv1.Deployment{of("velero", nil)}, want: "velero"},
		"another name, by the label":       {candidates: []appsv1.Deployment{of("dr-velero", nil)}, want: "dr-velero"},
		"one of two is at 0":               {candidates: []appsv1.Deployment{of("old", ptr.To[int32](0)), of("new", nil)}, want: "new"},
		"the usual name beside another":    {candidates: []appsv1.Deployment{of("ui", nil), of("velero", nil)}, want: "velero"},
		"two, neither of the usual name":   {candidates: []appsv1.Deployment{of("a", nil), of("b", nil)}, reason: "namespace adp has 2 Deployments labelled component=velero, and none of them is named velero"},
		"at 0 replicas: Velero runs apart": {candidates: []appsv1.Deployment{of("velero", ptr.To[int32](0))}, reason: "the Deployment adp/velero is at 0 replicas, so it does not run this Velero"},
		"none":                             {reason: "namespace adp has no Deployment velero to copy the pod from"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, reason := standby.Choose("adp", tc.candidates)
			require.Equal(t, tc.reason, reason)
			if tc.want == "" {
				require.Nil(t, got)
				return
			}
			require.Equal(t, tc.want, got.Name)
		})
	}
}
