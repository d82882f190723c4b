package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/recipes/ramen"
)

// The application. Its Recipe lives with it, its VolumeReplicationGroup in Ramen's own namespace, as for every discovered
// application.
const (
	shop = "shop"
	// backup and the two restores.
	backup   = "ramen"
	guarded  = "ramen-guarded"
	failover = "ramen-failover"
	// dangling is the VolumeReplicationGroup whose Recipe is missing, and the backup that has it.
	dangling = "billing"
)

// story is what is told.
type story struct {
	*printer
	a, b *bed.Bed
	// captured is the Recipe at the time of the backup, changed what it was made afterwards.
	captured, changed *unstructured.Unstructured
}

func (s *story) tell(ctx context.Context) error {
	for i, act := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"Cluster A is backed up, and its Recipe changes afterwards", s.backUp},
		{"Cluster B is restored to, without a choice about the VolumeReplicationGroup", s.restoreGuarded},
		{"The choice is made: fail over", s.restoreFailover},
		{"A reference to a Recipe that is not there", s.dangle},
	} {
		s.act(fmt.Sprintf("%d  %s", i+1, act.title))
		if err := act.play(ctx); err != nil {
			return err
		}
	}
	return nil
}

// backUp makes Recipe and VolumeReplicationGroup, backs the latter's namespace up, and then changes the Recipe.
func (s *story) backUp(ctx context.Context) error {
	recipe := ramen.Recipe(shop, shop, ramen.Parameterised())
	vrg := ramen.VRG(ramen.OpsNamespace, shop, `
captureInterval: 30m
recipeRef: {namespace: shop, name: shop}
recipeParameters: {namespaces: [shop, shop-web], database_namespace: [shop], database_user: [admin]}
`)
	for _, object := range []*unstructured.Unstructured{recipe, vrg} {
		if err := create(ctx, s.a, object); err != nil {
			return err
		}
	}
	s.happened("The VolumeReplicationGroup %s refers to the Recipe %s, with parameters.", name(vrg), name(recipe))
	made, err := s.backup(ctx, backup)
	if err != nil {
		return err
	}
	s.happened("%s, though only %s was asked for: the Recipe and its CRD come with the VolumeReplicationGroup.", made.Status.Phase, ramen.OpsNamespace)
	if s.captured, err = get(ctx, s.a, recipe); err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"workflows":[{"name":"backup","sequence":[{"group":"front"}]}]}}`))
	if err := s.a.Client().Patch(ctx, recipe.DeepCopy(), patch); err != nil {
		return fmt.Errorf("change the Recipe: %w", err)
	}
	if s.changed, err = get(ctx, s.a, recipe); err != nil {
		return err
	}
	s.happened("The Recipe in A is changed: it has no workflow %q any more. What A captured before can be recovered only with the Recipe of then.", "restore")
	return s.verdict(s.check(made.Status.Phase == velerov1.BackupPhaseCompleted, "the backup is Completed"))
}

// restoreGuarded restores into the empty cluster, which brings CRD and Recipe, and explains why not the VolumeReplicationGroup.
func (s *story) restoreGuarded(ctx context.Context) error {
	restore, failures, err := s.restore(ctx, guarded)
	if err != nil {
		return err
	}
	for _, failure := range failures {
		s.quote(failure)
	}
	recipe, err := get(ctx, s.b, s.captured)
	if err != nil {
		return err
	}
	vrg, err := get(ctx, s.b, ramen.VRG(ramen.OpsNamespace, shop, "{}"))
	if err != nil {
		return err
	}
	s.line("")
	return s.verdict(
		s.check(recipe != nil && reflect.DeepEqual(recipe.Object["spec"], s.captured.Object["spec"]), "B has the Recipe, and it is that of the backup's time"),
		s.check(recipe != nil && !reflect.DeepEqual(recipe.Object["spec"], s.changed.Object["spec"]), "B has not the Recipe that A has now"),
		s.check(vrg == nil, "B has no VolumeReplicationGroup yet"),
		s.check(restore.Status.Phase == velerov1.RestorePhasePartiallyFailed && len(failures) == 1,
			"the restore is PartiallyFailed, with one sentence on why"),
	)
}

// restoreFailover restores again, with the choice that the error has offered.
func (s *story) restoreFailover(ctx context.Context) error {
	restore, failures, err := s.restore(ctx, failover, "--annotations", contract.VRGRestoreAnnotation+"=failover")
	if err != nil {
		return err
	}
	for _, failure := range failures {
		s.quote(failure)
	}
	vrg, err := get(ctx, s.b, ramen.VRG(ramen.OpsNamespace, shop, "{}"))
	if err != nil {
		return err
	}
	s.line("")
	if vrg == nil {
		return s.verdict(s.check(false, "B has the VolumeReplicationGroup (%s)", restore.Status.Phase))
	}
	state, _, _ := unstructured.NestedString(vrg.Object, "spec", "replicationState")
	action, _, _ := unstructured.NestedString(vrg.Object, "spec", "action")
	var provenance recipe.Provenance
	if err := json.Unmarshal([]byte(vrg.GetAnnotations()[contract.RecipeProvenanceAnnotation]), &provenance); err != nil {
		return fmt.Errorf("read the annotation %s: %w", contract.RecipeProvenanceAnnotation, err)
	}
	s.say("An annotation on it says where it comes from: backup %s, with Recipe %s of generation %d.", provenance.Backup, provenance.Recipe, provenance.Generation)
	return s.verdict(
		s.check(restore.Status.Phase == velerov1.RestorePhaseCompleted, "the restore is Completed"),
		s.check(state == "primary" && action == "Failover",
			"the VolumeReplicationGroup is %s with the action %s: Ramen would recover with this Recipe", state, action),
	)
}

// dangle backs up a VolumeReplicationGroup whose Recipe is missing.
func (s *story) dangle(ctx context.Context) error {
	vrg := ramen.VRG(ramen.OpsNamespace, dangling, "{recipeRef: {namespace: billing, name: ledger}}")
	if err := create(ctx, s.a, vrg); err != nil {
		return err
	}
	s.happened("The VolumeReplicationGroup %s refers to the Recipe billing/ledger, which nobody has made.", name(vrg))
	made, err := s.backup(ctx, dangling)
	if err != nil {
		return err
	}
	s.happened("%s.", made.Status.Phase)
	s.command("velero", "backup", "logs", dangling, "|", "grep", "level=error")
	logs, err := s.a.BackupLogs(ctx, dangling)
	if err != nil {
		return err
	}
	var lines []string
	for line := range strings.Lines(logs) {
		if strings.Contains(line, " level=error ") {
			lines = append(lines, message(line))
			s.quote(message(line))
		}
	}
	s.line("")
	return s.verdict(
		s.check(made.Status.Phase == velerov1.BackupPhasePartiallyFailed, "the backup does not pass for whole"),
		s.check(len(lines) == 1 && strings.Contains(lines[0], "billing/ledger"), "one sentence names what is missing"),
	)
}

// backup backs up Ramen's namespace in A.
func (s *story) backup(ctx context.Context, called string) (*velerov1.Backup, error) {
	s.command("velero", "backup", "create", called, "--include-namespaces", ramen.OpsNamespace)
	return s.a.Backup(ctx, called, "--include-namespaces", ramen.OpsNamespace)
}

// restore restores the backup in B, and says what was created when. It returns the errors of the ended Restore.
func (s *story) restore(ctx context.Context, called string, args ...string) (*velerov1.Restore, []string, error) {
	args = append([]string{"--from-backup", backup}, args...)
	s.command(append([]string{"velero", "restore", "create", called}, args...)...)
	if err := s.b.CarryBackup(ctx, backup); err != nil {
		return nil, nil, err
	}
	since := time.Now()
	restore, err := s.b.Restore(ctx, called, args...)
	if err != nil {
		return nil, nil, err
	}
	ended := time.Since(s.began)
	events, err := s.b.AuditEvents(since)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range events {
		ours := e.APIGroup == "apiextensions.k8s.io" || e.APIGroup == "ramendr.openshift.io"
		if ours && e.Verb == "create" && e.Code == 201 && !strings.Contains(e.URI, "dryRun") {
			s.at(e.Time.Sub(s.began), "B gets %s", created(e))
		}
	}
	s.at(ended, "%s.", restore.Status.Phase)
	failures, _, err := s.b.RestoreResults(called)
	return restore, failures, err
}

// created names an object that a request has created.
func created(e bed.AuditEvent) string {
	switch e.Resource {
	case "customresourcedefinitions":
		return "the CRD " + e.Name
	case "recipes":
		return "the Recipe " + e.Namespace + "/" + e.Name
	default:
		return "the VolumeReplicationGroup " + e.Namespace + "/" + e.Name
	}
}

// verdict is an error unless all checks hold.
func (s *story) verdict(checks ...bool) error {
	if slices.Contains(checks, false) {
		return errors.New("a check has failed")
	}
	return nil
}

// message is the text of a line of Velero's log.
func message(line string) string {
	_, text, found := strings.Cut(line, `msg="`)
	if !found {
		return strings.TrimSpace(line)
	}
	for i := range len(text) {
		if text[i] == '"' && (i == 0 || text[i-1] != '\\') {
			return strings.ReplaceAll(text[:i], `\"`, `"`)
		}
	}
	return text
}

func name(object client.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// create creates an object and, if need be, its namespace.
func create(ctx context.Context, in *bed.Bed, object *unstructured.Unstructured) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace()}}
	if err := in.Client().Create(ctx, namespace); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("create namespace %s: %w", namespace.Name, err)
	}
	if err := in.Client().Create(ctx, object); err != nil {
		return fmt.Errorf("create %s %s: %w", object.GetKind(), name(object), err)
	}
	return nil
}

// get reads the object of the same kind, namespace and name; nil: it is not there, or its kind is not.
func get(ctx context.Context, in *bed.Bed, like *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(like.GroupVersionKind())
	err := in.Client().Get(ctx, client.ObjectKeyFromObject(like), object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // an object that is not there is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", like.GetKind(), name(like), err)
	}
	return object, nil
}
