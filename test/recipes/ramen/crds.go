// Package ramen is Ramen's API for tests: its CustomResourceDefinitions, and VolumeReplicationGroups and Recipes in the
// shapes that users have them. No controller of Ramen's runs here.
package ramen

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Names of the CRDs.
const (
	RecipeCRDName = "recipes.ramendr.openshift.io"
	VRGCRDName    = "volumereplicationgroups.ramendr.openshift.io"
)

// fixtures is where CRDs that others publish may lie, seen from the top of the repository. They are not part of it.
const fixtures = "../shared/fixtures"

//go:embed crds/volumereplicationgroups.yaml
var standInVRG []byte

//go:embed crds/recipes-2023.yaml
var standInRecipe2023 []byte

//go:embed crds/recipes-fusion.yaml
var standInFusion []byte

// RecipeCRD returns the Recipe CRD from the Go module that Ramen itself uses, at the version of test/tools/recipe/go.mod; the
// module is downloaded if it is not in the module cache. Run it from within the repository.
func RecipeCRD(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	const module = "github.com/ramendr/recipe"
	top, err := top(ctx)
	if err != nil {
		return nil, err
	}
	// Not `go list -m`: that says nothing of where a module is which is yet to be downloaded.
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(top, "test", "tools", "recipe")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the Go module %s: %w\n%s%s", module, err, out, stderr(err))
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("find the Go module %s: decode the answer of the go command: %w", module, err)
	}
	return read(filepath.Join(found.Dir, "config", "crd", "bases", "ramendr.openshift.io_recipes.yaml"))
}

// VRGCRD returns the VolumeReplicationGroup CRD: the one that Ramen publishes if it lies beside the repository, else a
// stand-in that is less strict. published says which.
func VRGCRD(ctx context.Context) (crd *apiextensionsv1.CustomResourceDefinition, published bool, err error) {
	crd, err = fixture(ctx, "ramendr.openshift.io_volumereplicationgroups.yaml")
	if errors.Is(err, fs.ErrNotExist) {
		crd, err = StandInVRGCRD()
		return crd, false, err
	}
	return crd, true, err
}

// RecipeCRD2024 returns the Recipe CRD as it was published in October 2024: without jobs and skipHookIfNotPresent. The error
// is fs.ErrNotExist if it does not lie beside the repository.
func RecipeCRD2024(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	return fixture(ctx, "ramendr.openshift.io_recipes-2024-10.yaml")
}

// StandInVRGCRD returns the stand-in for the VolumeReplicationGroup CRD, which also stores the fields of earlier years.
func StandInVRGCRD() (*apiextensionsv1.CustomResourceDefinition, error) { return decode(standInVRG) }

// StandInRecipeCRD2023 returns a stand-in for the Recipe CRD of early 2023, which stores every spec.
func StandInRecipeCRD2023() (*apiextensionsv1.CustomResourceDefinition, error) {
	return decode(standInRecipe2023)
}

// StandInFusionCRD returns a stand-in for the Recipe CRD of IBM Fusion, which is of another group.
func StandInFusionCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	return decode(standInFusion)
}

func fixture(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	top, err := top(ctx)
	if err != nil {
		return nil, err
	}
	return read(filepath.Join(top, filepath.FromSlash(fixtures), name))
}

// top is the top of the repository.
func top(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the top of the repository, run this from within it: %w\n%s", err, stderr(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// stderr is what a failed program said.
func stderr(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}

func read(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return decode(content)
}

func decode(content []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, crd); err != nil {
		return nil, fmt.Errorf("decode a CustomResourceDefinition: %w", err)
	}
	return crd, nil
}
