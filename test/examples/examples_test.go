package examples

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	strictyaml "sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/velero/config/crd/v1/crds"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

const (
	folder = "../../docs/examples"
	// valuesFile is no manifest.
	valuesFile = "helm-values.yaml"
	// oadpCRD is OADP's definition of a DataProtectionApplication, which is not part of this repository.
	oadpCRD = "../../../shared/fixtures/oadp.openshift.io_dataprotectionapplications.yaml"

	oadpGroup = "oadp.openshift.io"
	namespace = "openshift-adp" // of all examples
	plugin    = "velero-plugin-for-openshift-dr"
)

func TestExamples(t *testing.T) {
	t.Parallel()
	b, withOADP := newBed(t)
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if filepath.Base(file) == valuesFile {
			continue
		}
		t.Run("an API server takes "+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			for _, object := range manifests(t, file) {
				if object.GroupVersionKind().Group == oadpGroup && !withOADP {
					t.Skipf("OADP's definition of a DataProtectionApplication is not at hand (%s)", oadpCRD)
				}
				// strict: an unknown or a repeated field is an error, where a server mostly only warns
				require.NoError(t, client.WithFieldValidation(b.Client(), metav1.FieldValidationStrict).Create(t.Context(), object, client.DryRunAll))
			}
		})
	}

	t.Run("the plugin reads settings.yaml", func(t *testing.T) {
		t.Parallel()
		object := manifests(t, filepath.Join(folder, "settings.yaml"))[0]
		object.SetNamespace(metav1.NamespaceDefault) // not that of the other tests, who want to create it too
		require.NoError(t, b.Client().Create(t.Context(), object))
		anyRestore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "any"}}
		settings, err := restore.ReadSettings(t.Context(), b.Client(), anyRestore)
		require.NoError(t, err)
		assert.Equal(t, restore.Settings{Resume: restore.ResumeReplace, StartTimeout: 10 * time.Minute}, settings)
	})
	t.Run("the API server takes the containers of "+valuesFile, func(t *testing.T) {
		t.Parallel()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "velero"},
			Spec: corev1.PodSpec{
				InitContainers: values(t).InitContainers,
				Containers:     []corev1.Container{{Name: "velero", Image: "velero"}},
				Volumes:        []corev1.Volume{{Name: "plugins"}}, // as in the chart
			},
		}
		require.NoError(t, b.Client().Create(t.Context(), pod, client.DryRunAll))
	})
}

// newBed starts an API server that knows the kinds of the examples, and says whether OADP's is among them.
func newBed(t *testing.T) (b *bed.Bed, withOADP bool) {
	t.Helper()
	known, err := openshift.CRDs()
	require.NoError(t, err)
	var definitions []string
	switch _, err := os.Stat(oadpCRD); {
	case err == nil:
		definitions = append(definitions, oadpCRD)
	case !errors.Is(err, fs.ErrNotExist):
		require.NoError(t, err)
	}
	b = bed.ForTest(t, bed.Options{
		WithoutVelero: true, CRDDirs: definitions,
		CRDs: slices.Concat(known, crds.CRDs),
	})
	require.NoError(t, b.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	return b, len(definitions) > 0
}

// manifests reads the objects of a file.
func manifests(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, file)
		objects = append(objects, object)
	}
	require.NotEmpty(t, objects, file)
	return objects
}

// decode reads the one object of an example.
func decode(t *testing.T, file string, into any) {
	t.Helper()
	objects := manifests(t, filepath.Join(folder, file))
	require.Len(t, objects, 1)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[0].Object, into, true))
}

func TestRestoresSayWhatTheyAreMeantToSay(t *testing.T) {
	t.Parallel()
	var backup velerov1.Backup
	decode(t, "backup.yaml", &backup)
	pod := hooks.Pod{
		TargetNamespace:   backup.Spec.IncludedNamespaces[0],
		LabelsWhenCreated: map[string]string{contract.DeploymentConfigLabel: "shop"},
		Containers:        []corev1.Container{{Name: "shop"}},
	}
	for file, want := range map[string]hooks.Applied{
		"restore.yaml":           {},
		"restore-with-hook.yaml": {Exec: []string{"rebuild-the-index"}},
	} {
		var example velerov1.Restore
		decode(t, file, &example)
		assert.Equal(t, backup.Name, example.Spec.BackupName, file)
		assert.Equal(t, backup.Namespace, example.Namespace, file)
		settings, err := restore.ParseSettings(nil, example.Annotations)
		require.NoError(t, err, file)
		assert.Equal(t, restore.ResumeReplace, settings.Resume, file)
		found, err := hooks.Find(&example.Spec.Hooks, pod)
		require.NoError(t, err, file)
		assert.Equal(t, want, found, file)
	}
}

func TestDataProtectionApplicationHasThePluginBesideOpenShifts(t *testing.T) {
	t.Parallel()
	object := manifests(t, filepath.Join(folder, "dataprotectionapplication.yaml"))[0].Object
	defaults, found, err := unstructured.NestedStringSlice(object, "spec", "configuration", "velero", "defaultPlugins")
	require.NoError(t, err)
	require.True(t, found)
	assert.Contains(t, defaults, "openshift")
	custom, found, err := unstructured.NestedSlice(object, "spec", "configuration", "velero", "customPlugins")
	require.NoError(t, err)
	require.True(t, found)
	require.Len(t, custom, 1)
	fields, ok := custom[0].(map[string]any)
	require.True(t, ok)
	assert.Equal(t, plugin, fields["name"])
	assert.Contains(t, fields["image"], "/"+plugin+":")
}

// helmValues are the values of Velero's Helm chart that the example sets.
type helmValues struct {
	InitContainers []corev1.Container `json:"initContainers"`
	Configuration  struct {
		BackupStorageLocation []struct {
			Name     string            `json:"name"`
			Provider string            `json:"provider"`
			Bucket   string            `json:"bucket"`
			Prefix   string            `json:"prefix"`
			Default  bool              `json:"default"`
			Config   map[string]string `json:"config"`
		} `json:"backupStorageLocation"`
		UploaderType string `json:"uploaderType"`
	} `json:"configuration"`
	Credentials struct {
		ExistingSecret string `json:"existingSecret"`
	} `json:"credentials"`
	SnapshotsEnabled bool `json:"snapshotsEnabled"`
	DeployNodeAgent  bool `json:"deployNodeAgent"`
	ConfigMaps       map[string]struct {
		Labels map[string]string `json:"labels"`
		Data   map[string]string `json:"data"`
	} `json:"configMaps"`
}

func values(t *testing.T) helmValues {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, valuesFile))
	require.NoError(t, err)
	var read helmValues
	require.NoError(t, strictyaml.UnmarshalStrict(content, &read))
	return read
}

func TestHelmValues(t *testing.T) {
	t.Parallel()
	read := values(t)
	var names []string
	for _, container := range read.InitContainers {
		names = append(names, container.Name)
		assert.Equal(t, []corev1.VolumeMount{{Name: "plugins", MountPath: "/target"}}, container.VolumeMounts, container.Name)
	}
	assert.Equal(t, []string{"velero-plugin-for-aws", plugin}, names)
	require.Len(t, read.ConfigMaps, 1)
	for name, object := range read.ConfigMaps {
		var same corev1.ConfigMap
		decode(t, "settings.yaml", &same)
		assert.Equal(t, same.Labels, object.Labels, name)
		settings, err := restore.ParseSettings(object.Data, nil)
		require.NoError(t, err, name)
		assert.Equal(t, 10*time.Minute, settings.StartTimeout, name)
	}
}

// TestReadmeNamesEachExample keeps the table in the README whole.
func TestReadmeNamesEachExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		name := filepath.Base(file)
		assert.Contains(t, string(readme), fmt.Sprintf("[%s](%s)", name, name), "the table has each example")
	}
}
