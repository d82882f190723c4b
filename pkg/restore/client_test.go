package restore_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// Velero starts the binary at every poll: the client must find each kind without asking the API server what it serves.
func TestNewClientAsksForEachKindByItsPath(t *testing.T) {
	t.Parallel()
	var paths, agents []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths, agents = append(paths, r.URL.Path), append(agents, r.UserAgent())
		http.NotFound(w, r)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	c, err := restore.NewClient(config)
	require.NoError(t, err)
	require.Empty(t, paths, "making the client asks for nothing")
	require.Empty(t, config.UserAgent, "the caller's configuration was changed")

	for path, list := range map[string]client.ObjectList{
		"/api/v1/namespaces/shop/pods":                                 &corev1.PodList{},
		"/api/v1/namespaces/shop/replicationcontrollers":               &corev1.ReplicationControllerList{},
		"/api/v1/namespaces/shop/configmaps":                           &corev1.ConfigMapList{},
		"/api/v1/namespaces/shop/events":                               &corev1.EventList{},
		"/apis/apps.openshift.io/v1/namespaces/shop/deploymentconfigs": &ocpappsv1.DeploymentConfigList{},
		"/apis/velero.io/v1/namespaces/shop/backups":                   &velerov1.BackupList{},
		"/apis/velero.io/v1/namespaces/shop/restores":                  &velerov1.RestoreList{},
		"/apis/velero.io/v1/namespaces/shop/podvolumebackups":          &velerov1.PodVolumeBackupList{},
		"/apis/velero.io/v1/namespaces/shop/podvolumerestores":         &velerov1.PodVolumeRestoreList{},
		"/apis/velero.io/v2alpha1/namespaces/shop/datadownloads":       &velerov2alpha1.DataDownloadList{},
	} {
		paths = nil
		err := c.List(t.Context(), list, client.InNamespace("shop"))
		require.Equal(t, []string{path}, paths)
		require.True(t, restore.NotServed(err), "%T: %v", list, err)
	}
	for path, kind := range map[string]schema.GroupVersionKind{
		"/apis/ramendr.openshift.io/v1alpha1/namespaces/shop/volumereplicationgroups/x": {Group: "ramendr.openshift.io", Version: "v1alpha1", Kind: "VolumeReplicationGroup"},
		"/apis/ramendr.openshift.io/v1alpha1/namespaces/shop/recipes/x":                 {Group: "ramendr.openshift.io", Version: "v1alpha1", Kind: "Recipe"},
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x":                     {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		"/api/v1/namespaces/x": {Version: "v1", Kind: "Namespace"},
	} {
		paths = nil
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		key := client.ObjectKey{Namespace: "shop", Name: "x"}
		if !strings.Contains(path, "/namespaces/shop/") {
			key.Namespace = ""
		}
		require.Error(t, c.Get(t.Context(), key, object))
		require.Equal(t, []string{path}, paths)
	}
	for _, agent := range agents {
		require.Equal(t, "velero-plugin-for-openshift-dr", agent)
	}
}

func TestNewClientNamesTheServerItCannotUse(t *testing.T) {
	t.Parallel()
	_, err := restore.NewClient(&rest.Config{Host: "https://cluster.example.com", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("no certificate")}})
	require.ErrorContains(t, err, "make a client for https://cluster.example.com")
}
