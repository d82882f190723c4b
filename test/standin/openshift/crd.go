package openshift

import (
	_ "embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crds/apps.openshift.io_deploymentconfigs.yaml
var deploymentConfigCRD []byte

// CRDs returns the CustomResourceDefinitions that stand in for OpenShift's apps.openshift.io API, to be created before
// Run is called, and before a Velero server starts (its discovery is refreshed every few minutes only). An error means
// that the embedded file is broken.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(deploymentConfigCRD, crd); err != nil {
		return nil, fmt.Errorf("decode the embedded DeploymentConfig CRD: %w", err)
	}
	return []*apiextensionsv1.CustomResourceDefinition{crd}, nil
}
