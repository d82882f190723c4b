package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InstallCRDs creates CRDs side by side and waits until all are Established and the API server lists what they define. The
// CRDs that are handed in take on what the server made of them. A Velero that runs already notices them within 5 minutes, or
// when it is restarted.
// (envtest.InstallCRDs does nearly this, but takes no context and logs through a logger that is global to the process.)
func (b *Bed) InstallCRDs(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range crds {
		if err := b.client.Create(ctx, crd); err != nil {
			return fmt.Errorf("create the CustomResourceDefinition %s: %w", crd.Name, err)
		}
	}
	resources, err := discovery.NewDiscoveryClientForConfig(b.config)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := poll(ctx, "wait for the CustomResourceDefinition "+crd.Name, func(ctx context.Context) error {
			if err := b.client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
				return err
			}
			return served(crd, resources)
		}); err != nil {
			return err
		}
	}
	return nil
}

// served is nil when clients can find and use all that a CRD defines.
func served(crd *apiextensionsv1.CustomResourceDefinition, resources discovery.ServerResourcesInterface) error {
	if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}) {
		return fmt.Errorf("it is not Established: %v", crd.Status.Conditions)
	}
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		groupVersion := crd.Spec.Group + "/" + version.Name
		list, err := resources.ServerResourcesForGroupVersion(groupVersion)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
			return fmt.Errorf("%s does not list %s", groupVersion, crd.Spec.Names.Plural)
		}
	}
	return nil
}

// readCRDs reads the CRDs in a file, or in the .yaml, .yml and .json files below a directory. A document that is something
// else is an error: it would be missing on the bed.
func readCRDs(path string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			return nil
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			switch err := decoder.Decode(crd); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("decode %s: %w", file, err)
			case crd.Kind == "" && crd.Name == "": // an empty document
			case crd.GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"):
				return fmt.Errorf("%s has a %s where CRDs of %s are expected", file, crd.GroupVersionKind(), apiextensionsv1.SchemeGroupVersion)
			default:
				crds = append(crds, crd)
			}
		}
	})
	if err == nil && len(crds) == 0 {
		err = fmt.Errorf("no CustomResourceDefinition in %s", path)
	}
	return crds, err
}
