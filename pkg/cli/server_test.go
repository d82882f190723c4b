package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// serve answers GET requests over HTTP as an API server does, by path, and returns a kubeconfig for it. A client in
// memory shows neither how answers are decoded nor what a refusal looks like over the wire.
func serve(t *testing.T, answers map[string]any) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := answers[r.URL.Path]
		if answer == nil {
			answer = apierrors.NewNotFound(ocpappsv1.Resource("any"), r.URL.Path)
		}
		var status apierrors.APIStatus
		if err, isError := answer.(error); isError && errors.As(err, &status) {
			w.WriteHeader(int(status.Status().Code))
			body := status.Status()
			body.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			answer = body
		}
		_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(kubeconfig, "https://one.example.com", s.URL)), 0o600))
	return path
}

func TestPostRestoreOverHTTP(t *testing.T) {
	t.Parallel()
	none := map[string]any{"metadata": map[string]any{}, "items": []any{}}
	held := func(dc *ocpappsv1.DeploymentConfig) ocpappsv1.DeploymentConfigList {
		return ocpappsv1.DeploymentConfigList{Items: []ocpappsv1.DeploymentConfig{*dc}}
	}
	unrecorded := heldDC("shop", "web", "")
	unrecorded.Annotations = nil
	answers := map[string]any{}
	for path, answer := range map[string]any{
		"/apis/velero.io/v1/namespaces/velero/restores/monday":         restoreIn(velerov1.RestorePhaseCompleted),
		"/api/v1/namespaces/velero/configmaps":                         none,
		"/api/v1/namespaces/bank/pods":                                 none,
		"/api/v1/namespaces/shop/pods":                                 none,
		"/api/v1/namespaces/bank/replicationcontrollers":               none,
		"/api/v1/namespaces/shop/replicationcontrollers":               none,
		"/apis/apps.openshift.io/v1/namespaces/bank/deploymentconfigs": held(heldDC("bank", "ledger", "5")),
		"/apis/apps.openshift.io/v1/namespaces/shop/deploymentconfigs": held(unrecorded),
		"/apis/apps.openshift.io/v1/deploymentconfigs":                 none,
		"/api/v1/pods": forbidden("list", "", "pods", ""),
	} {
		answers[path] = typed(t, path, answer)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"what one namespace holds is not taken for the next one's": {
			args: []string{"-n", "bank", "-n", "shop"},
			want: "annotations " + contract.OriginalReplicasAnnotation + " and " + contract.OriginalPausedAnnotation + " are missing",
		},
		"in the cluster, without the right": {
			want: "error: list detached pods: pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" at the cluster scope: " +
				"grant the right to list pods in all namespaces, or name the namespaces to work in with --namespace\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			args := append([]string{"post-restore", "monday", "--dry-run", "--velero-namespace=velero", "--kubeconfig", serve(t, answers)}, tc.args...)
			assert.Equal(t, ExitFailed, Run(args, strings.NewReader(""), &out, &errOut))
			assert.Contains(t, out.String()+errOut.String(), tc.want)
		})
	}
}

// TestPostRestoreEndsOnASignal sends the signal to the test's own process, where Run alone listens for it; so it runs
// beside no other test.
func TestPostRestoreEndsOnASignal(t *testing.T) { //nolint:paralleltest // the signal is the process's
	asked := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(kubeconfig, "https://one.example.com", s.URL)), 0o600))
	go func() {
		<-asked
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) // if it fails, the command times out
	}()
	var out, errOut bytes.Buffer
	code := Run([]string{"post-restore", "monday", "--timeout", "30s", "--kubeconfig", path}, strings.NewReader(""), &out, &errOut)
	assert.Equal(t, ExitNotFinished, code)
	assert.Contains(t, errOut.String(), "error: interrupted: get Restore ")
	assert.Contains(t, errOut.String(), "context canceled")
}

// typed adds to an answer the apiVersion and kind that follow from its path.
func typed(t *testing.T, path string, answer any) any {
	t.Helper()
	if _, isError := answer.(error); isError {
		return answer
	}
	data, err := json.Marshal(answer)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(data, &object))
	meta := metav1.TypeMeta{APIVersion: "v1", Kind: map[string]string{
		"monday": "Restore", "configmaps": "ConfigMapList", "pods": "PodList",
		"replicationcontrollers": "ReplicationControllerList", "deploymentconfigs": "DeploymentConfigList",
	}[filepath.Base(path)]}
	if group, ok := strings.CutPrefix(path, "/apis/"); ok {
		meta.APIVersion = strings.Join(strings.SplitN(group, "/", 3)[:2], "/")
	}
	object["apiVersion"], object["kind"] = meta.APIVersion, meta.Kind
	return object
}
