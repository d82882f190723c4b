package recipes

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// endTime is how long a backup or restore may take, also while others wait before it: Velero restores one after another.
const endTime = 4 * time.Minute

// sceneLabel is on the VolumeReplicationGroups of a scene: those of all scenes share a namespace. Recipes do not have it:
// what comes with a VolumeReplicationGroup does not have to be selected (Velero #7750).
const sceneLabel = "scene"

// scene is what one test works on: namespaces and names of its own in clusters that are shared.
type scene struct {
	t *testing.T
	// id tells scenes apart; app is the namespace of the application and of its Recipe.
	id, app string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	sum := sha256.Sum256([]byte(t.Name()))
	id := hex.EncodeToString(sum[:4])
	return &scene{t: t, id: id, app: "app-" + id}
}

// recipe makes a Recipe in the application's namespace.
func (s *scene) recipe(name, spec string) *unstructured.Unstructured {
	return ramen.Recipe(s.app, name, spec)
}

// vrg makes the VolumeReplicationGroup of a discovered application: in Ramen's own namespace, with a Recipe of the application's.
func (s *scene) vrg(name, recipe string) *unstructured.Unstructured {
	return s.labelled(ramen.VRG(ramen.OpsNamespace, s.id+"-"+name,
		fmt.Sprintf("{captureInterval: 30m, recipeRef: {namespace: %s, name: %s}}", s.app, recipe)))
}

// labelled gives an object the label of the scene.
func (s *scene) labelled(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetLabels(map[string]string{sceneLabel: s.id})
	return object
}

// selector are the arguments with which `velero backup create` takes this scene's VolumeReplicationGroups only.
func (s *scene) selector() []string {
	return []string{"--include-namespaces", ramen.OpsNamespace, "--selector", sceneLabel + "=" + s.id}
}

// create creates objects in a cluster, and their namespaces. Their specs take on the defaults that the server gives.
func (s *scene) create(in *site, objects ...*unstructured.Unstructured) {
	s.t.Helper()
	for _, object := range objects {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace()}}
		require.NoError(s.t, client.IgnoreAlreadyExists(in.Client().Create(s.t.Context(), namespace)))
		created := object.DeepCopy()
		require.NoError(s.t, in.Client().Create(s.t.Context(), created), "%s %s", object.GetKind(), object.GetName())
		object.Object["spec"] = created.Object["spec"]
	}
}

// get reads an object; nil: it is not there, or its kind is not.
func (s *scene) get(in *site, kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	s.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	err := in.Client().Get(s.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	require.NoError(s.t, err)
	return object
}

// like reads the object of that kind, namespace and name.
func (s *scene) like(in *site, object *unstructured.Unstructured) *unstructured.Unstructured {
	s.t.Helper()
	return s.get(in, object.GroupVersionKind(), object.GetNamespace(), object.GetName())
}

// has asserts that an object is in a cluster with the same spec, and returns it.
func (s *scene) has(in *site, object *unstructured.Unstructured) *unstructured.Unstructured {
	s.t.Helper()
	found := s.like(in, object)
	require.NotNil(s.t, found, "%s %s/%s is not in %s", object.GetKind(), object.GetNamespace(), object.GetName(), in.name)
	assert.Equal(s.t, object.Object["spec"], found.Object["spec"], "spec of %s %s", object.GetKind(), object.GetName())
	return found
}

// lacks asserts that an object is not in a cluster.
func (s *scene) lacks(in *site, object *unstructured.Unstructured) {
	s.t.Helper()
	assert.Nil(s.t, s.like(in, object), "%s %s/%s is in %s", object.GetKind(), object.GetNamespace(), object.GetName(), in.name)
}

// patch merges JSON into an object.
func (s *scene) patch(in *site, object *unstructured.Unstructured, merge string) {
	s.t.Helper()
	require.NoError(s.t, in.Client().Patch(s.t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(merge))))
}

// patchStatus merges JSON into an object's status.
func (s *scene) patchStatus(in *site, object *unstructured.Unstructured, merge string) {
	s.t.Helper()
	require.NoError(s.t, in.Client().Status().Patch(s.t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(merge))))
}

// name returns a name for a backup or restore of this scene.
func (s *scene) name(what string) string { return s.id + "-" + what }

// backup backs up a cluster and returns the ended Backup. Without arguments it is of this scene's VolumeReplicationGroups.
func (s *scene) backup(of *site, args ...string) *velerov1.Backup {
	s.t.Helper()
	return s.backupAs(of, "backup", args...)
}

func (s *scene) backupAs(of *site, name string, args ...string) *velerov1.Backup {
	s.t.Helper()
	if len(args) == 0 {
		args = s.selector()
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), endTime)
	defer cancel()
	backup, err := of.Backup(ctx, s.name(name), args...)
	require.NoError(s.t, err)
	return backup
}

// backedUp is backup for one that must be Completed.
func (s *scene) backedUp(of *site, args ...string) *velerov1.Backup {
	s.t.Helper()
	backup := s.backup(of, args...)
	require.Equal(s.t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s", strings.Join(of.lines(s.t, backup.Name, "error", "warning"), ""))
	return backup
}

// partly asserts that a backup is PartiallyFailed because of exactly one Error line, which has all these words in it.
func (s *scene) partly(of *site, backup *velerov1.Backup, words ...string) {
	s.t.Helper()
	lines := of.lines(s.t, backup.Name, "error")
	assert.Equal(s.t, velerov1.BackupPhasePartiallyFailed, backup.Status.Phase)
	assert.Equal(s.t, 1, backup.Status.Errors, "errors")
	if assert.Len(s.t, lines, 1, "Error lines") {
		for _, word := range words {
			assert.Contains(s.t, lines[0], word)
		}
	}
}

// restore restores a backup, which may be one of the other cluster, and returns the ended Restore.
func (s *scene) restore(to *site, backup *velerov1.Backup, args ...string) *velerov1.Restore {
	s.t.Helper()
	return s.restoreAs(to, "restore", backup, args...)
}

func (s *scene) restoreAs(to *site, name string, backup *velerov1.Backup, args ...string) *velerov1.Restore {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), endTime)
	defer cancel()
	require.NoError(s.t, to.CarryBackup(ctx, backup.Name))
	restore, err := to.Restore(ctx, s.name(name), append([]string{"--from-backup", backup.Name}, args...)...)
	require.NoError(s.t, err)
	return restore
}

// completed requires that a restore is Completed.
func (s *scene) completed(in *site, restore *velerov1.Restore) {
	s.t.Helper()
	failures, warnings := in.results(s.t, restore.Name)
	require.Equal(s.t, velerov1.RestorePhaseCompleted, restore.Status.Phase, "errors: %q\nwarnings: %q", failures, warnings)
}

// failed asserts that a restore is PartiallyFailed with exactly one error, which has all these words in it.
func (s *scene) failed(in *site, restore *velerov1.Restore, words ...string) {
	s.t.Helper()
	assert.Equal(s.t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase)
	failures, _ := in.results(s.t, restore.Name)
	if assert.Len(s.t, failures, 1, "errors: %q", failures) {
		for _, word := range words {
			assert.Contains(s.t, failures[0], word)
		}
	}
}

// results are the errors and warnings of an ended restore.
func (s *site) results(t *testing.T, restore string) (failures, warnings []string) {
	t.Helper()
	failures, warnings, err := s.RestoreResults(restore)
	require.NoError(t, err)
	return failures, warnings
}

// lines are the lines of a backup's log with one of these levels.
func (s *site) lines(t *testing.T, backup string, levels ...string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(string(s.stored(t, "backups", backup, backup+"-logs.gz"))) {
		if slices.ContainsFunc(levels, func(level string) bool { return strings.Contains(line, " level="+level+" ") }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// stored is the content of a gzipped file of Velero's in the bucket.
func (s *site) stored(t *testing.T, path ...string) []byte {
	t.Helper()
	file, err := os.Open(filepath.Join(append([]string{s.ObjectDir(), "backups"}, path...)...))
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	content, err := io.ReadAll(unzipped)
	require.NoError(t, err)
	return content
}

// archived is a path of such an object in a backup's archive as archive returns: with its resource, its namespace if it has one,
// and its name.
var archived = regexp.MustCompile(`^resources/((?:[a-z]+\.ramendr\.openshift|customresourcedefinitions\.apiextensions\.k8s)\.io)/(?:namespaces/([^/]+)|cluster)/([^/]+)\.json$`)

// archive are the objects of Ramen's API and the CRDs in a backup's archive, by "<resource> <namespace>/<name>", or
// "<resource> <name>" where they have no namespace.
func (s *site) archive(t *testing.T, backup *velerov1.Backup) map[string]*unstructured.Unstructured {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for files := tar.NewReader(strings.NewReader(string(s.stored(t, "backups", backup.Name, backup.Name+".tar.gz")))); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		match := archived.FindStringSubmatch(header.Name)
		if len(match) == 0 {
			continue
		}
		content, err := io.ReadAll(files)
		require.NoError(t, err)
		object := &unstructured.Unstructured{}
		require.NoError(t, object.UnmarshalJSON(content))
		resource, _, _ := strings.Cut(match[1], ".")
		key := resource + " " + match[3]
		if match[2] != "" {
			key = resource + " " + match[2] + "/" + match[3]
		}
		objects[key] = object
	}
}

// Keys of archive.
const (
	recipeCRD = "customresourcedefinitions " + ramen.RecipeCRDName
	vrgCRD    = "customresourcedefinitions " + ramen.VRGCRDName
)

// key is that of an object in archive.
func key(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "s " + object.GetNamespace() + "/" + object.GetName()
}

// holds requires that a backup's archive has exactly these objects of Ramen's API and CRDs, and returns them.
func (s *scene) holds(of *site, backup *velerov1.Backup, want ...string) map[string]*unstructured.Unstructured {
	s.t.Helper()
	objects := of.archive(s.t, backup)
	slices.Sort(want)
	require.Equal(s.t, want, slices.Sorted(maps.Keys(objects)), "objects in the backup")
	return objects
}

// created are the objects of Ramen's API and the CRDs that Velero has created in a cluster since a time, in that order.
func (s *scene) created(in *site, since time.Time) []string {
	s.t.Helper()
	events, err := in.AuditEvents(since)
	require.NoError(s.t, err)
	var names []string
	for _, e := range events {
		if e.Verb != "create" || e.Code != 201 || strings.Contains(e.URI, "dryRun") || !strings.HasSuffix(e.User, ":velero") ||
			e.APIGroup != "ramendr.openshift.io" && e.APIGroup != "apiextensions.k8s.io" {
			continue
		}
		name := e.Name
		if e.Namespace != "" {
			name = e.Namespace + "/" + e.Name
		}
		names = append(names, e.Resource+" "+name)
	}
	return names
}

// until polls a condition and fails the test with its last error.
func until(t *testing.T, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		require.NoError(t, fmt.Errorf("%w: %w", err, last))
	}
}
