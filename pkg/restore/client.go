package restore

import (
	"fmt"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// UserAgent is how the plugin and its commands present themselves to the API server.
const UserAgent = "velero-plugin-for-openshift-dr"

// served are the namespaced kinds that this binary asks an API server for. Those of Ramen are read as unstructured
// objects: their types are not needed, and would drop the fields that they do not know.
var served = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Pod"),
	corev1.SchemeGroupVersion.WithKind("ReplicationController"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithKind("Event"),
	appsv1.SchemeGroupVersion.WithKind("Deployment"),
	batchv1.SchemeGroupVersion.WithKind("Job"),
	ocpappsv1.GroupVersion.WithKind("DeploymentConfig"),
	velerov1.SchemeGroupVersion.WithKind("Backup"),
	velerov1.SchemeGroupVersion.WithKind("Restore"),
	velerov1.SchemeGroupVersion.WithKind("PodVolumeBackup"),
	velerov1.SchemeGroupVersion.WithKind("PodVolumeRestore"),
	velerov2alpha1.SchemeGroupVersion.WithKind("DataDownload"),
	{Group: contract.RamenGroup, Version: contract.RamenVersion, Kind: contract.VRGKind},
	{Group: contract.RamenGroup, Version: contract.RamenVersion, Kind: contract.RecipeKind},
}

// servedClusterWide are the kinds without a namespace.
var servedClusterWide = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Namespace"),
	{Group: contract.CRDGroup, Version: contract.CRDVersion, Kind: contract.CRDKind},
}

// NewScheme returns the scheme of the kinds that this binary reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, ocpappsv1.Install, velerov1.AddToScheme, velerov2alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	return scheme, nil
}

// NewClient returns a client for the kinds that this binary knows. Velero starts the binary anew for every restore and
// every poll of its operations, so the client is made without a request: its mapping of kinds to resources is fixed
// instead of discovered, and a kind that the cluster does not serve shows as "not found" when it is listed.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range served {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range servedClusterWide {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = UserAgent
	// Phase two works on all DeploymentConfigs of a restore side by side. client-go's default of 5 requests a second is
	// made for a single controller loop; these are Velero's own defaults (--client-qps, --client-burst).
	config.QPS, config.Burst = 100, 100
	// OpenShift answers every request for a DeploymentConfig with a warning that the kind is deprecated. That is for people
	// who write one, not for those who bring theirs back.
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return c, nil
}
