package recipe_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

const (
	recipeCRD = "recipes.ramendr.openshift.io"
	vrgCRD    = "volumereplicationgroups.ramendr.openshift.io"
)

func notFound(resource, name string) recipe.Found {
	return recipe.Found{Err: apierrors.NewNotFound(schema.GroupResource{Group: "ramendr.openshift.io", Resource: resource}, name)}
}

func forbidden(resource, name string) recipe.Found {
	return recipe.Found{Err: apierrors.NewForbidden(schema.GroupResource{Group: "ramendr.openshift.io", Resource: resource}, name, errors.New("no rule allows it"))}
}

func found(r *testkit.Ramen) recipe.Found { return recipe.Found{Object: r.Obj()} }

// bundle returns facts with which everything goes into the backup: a VRG in Ramen's namespace with a Recipe in the
// application's, as Ramen's discovered applications have it.
func bundle(changes ...func(*recipe.BackupFacts)) recipe.BackupFacts {
	facts := recipe.BackupFacts{
		VRG:             testkit.MakeVRG("ramen-ops", "v").RecipeRef("app", "r").Generation(4).Captured(1, 4).Obj(),
		Backup:          testkit.BackupNamed("b").IncludedNamespaces("ramen-ops").Result(),
		AdminNamespaces: []string{"ramen-ops", "openshift-dr-ops"},
		Missing:         recipe.LevelError,
		CRD:             found(testkit.MakeRecipeCRD()),
		VRGCRD:          found(testkit.MakeVRGCRD()),
		Recipe:          found(testkit.MakeRecipe("app", "r").Generation(7)),
		Cluster:         testkit.ClusterUID,
		Now:             testkit.Epoch.Add(time.Hour),
	}
	for _, change := range changes {
		change(&facts)
	}
	return facts
}

// asTenant makes the VRG one of a namespace that is not Ramen's.
func asTenant(f *recipe.BackupFacts) {
	f.VRG = testkit.MakeVRG("shop", "v").RecipeRef("app", "r").Obj()
	f.Backup = testkit.BackupNamed("b").IncludedNamespaces("shop").Result()
}

func of(change func(*recipe.BackupFacts)) []func(*recipe.BackupFacts) {
	return []func(*recipe.BackupFacts){change}
}

func TestDecideBackup(t *testing.T) {
	t.Parallel()
	type facts = recipe.BackupFacts
	type changes = []func(*facts)
	both := []string{recipeCRD, vrgCRD}
	tests := map[string]struct {
		changes changes
		want    recipe.Outcome
		level   recipe.Level // error where empty
		crds    []string
	}{
		"T1: the Recipe of an application goes with the VRG of Ramen's namespace": {want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: both},
		"a Recipe of the VRG's own namespace": {changes: of(func(f *facts) {
			asTenant(f)
			f.VRG, f.Recipe = testkit.MakeVRG("shop", "v").RecipeRef("shop", "r").Obj(), found(testkit.MakeRecipe("shop", "r"))
		}), want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: both},
		"a tenant's VRG and a Recipe of a namespace that is in the backup": {changes: changes{asTenant, func(f *facts) {
			f.Backup = testkit.BackupNamed("b").IncludedNamespaces("shop", "app").Result()
		}}, want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: both},
		"a tenant's VRG in a backup of everything":         {changes: changes{asTenant, func(f *facts) { f.Backup = testkit.BackupNamed("b").Result() }}, want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: both},
		"a tenant's VRG and a Recipe of another namespace": {changes: of(asTenant), want: recipe.OutcomeDenied},
		"a tenant's VRG and a Recipe of an excluded namespace": {changes: changes{asTenant, func(f *facts) {
			f.Backup = testkit.BackupNamed("b").ExcludedNamespaces("app").Result()
		}}, want: recipe.OutcomeDenied},
		"T7: a Recipe that the hub has handed out": {changes: of(func(f *facts) {
			f.Recipe = found(testkit.MakeRecipe("app", "r").Label(contract.CreatedByRamenLabel, "true"))
		}), want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: both},
		"without the CRD of VRGs, the Recipe comes all the same": {changes: of(func(f *facts) { f.VRGCRD = forbidden("customresourcedefinitions", vrgCRD) }), want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: []string{recipeCRD}},
		"the CRD of VRGs is kept out of backups":                 {changes: of(func(f *facts) { f.VRGCRD = found(testkit.MakeVRGCRD().Label(velerov1.ExcludeFromBackupLabel, "true")) }), want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: []string{recipeCRD}},
		"no kube object protection":                              {changes: of(func(f *facts) { f.VRG = testkit.MakeVRG("ramen-ops", "v").Obj() }), want: recipe.OutcomeNone, level: recipe.LevelDebug},
		"a backup of Ramen's own":                                {changes: of(func(f *facts) { f.Backup.Labels = map[string]string{contract.CreatedByRamenLabel: "true"} }), want: recipe.OutcomeNone, level: recipe.LevelDebug},
		"a backup of Ramen's own, with a dangling reference": {changes: of(func(f *facts) {
			f.Backup.Labels, f.Recipe = map[string]string{contract.CreatedByRamenLabel: "true"}, notFound("recipes", "r")
		}), want: recipe.OutcomeNone, level: recipe.LevelDebug},
		"the Recipe that is part of Ramen": {changes: of(func(f *facts) {
			f.VRG = testkit.MakeVRG("ramen-ops", "v").RecipeRef("openshift-dr-ops", "vm-recipe").Obj()
		}), want: recipe.OutcomeBuiltIn, level: recipe.LevelInfo},
		"a Recipe of that name elsewhere": {changes: of(func(f *facts) {
			f.VRG, f.Recipe = testkit.MakeVRG("ramen-ops", "v").RecipeRef("app", "vm-recipe").Obj(), notFound("recipes", "vm-recipe")
		}), want: recipe.OutcomeDangling},
		"T12: no CRD of Recipes":             {changes: of(func(f *facts) { f.CRD = notFound("customresourcedefinitions", recipeCRD) }), want: recipe.OutcomeCRDAbsent},
		"a CRD that is not established":      {changes: of(func(f *facts) { f.CRD = found(testkit.MakeRecipeCRD().Condition("Established", false)) }), want: recipe.OutcomeCRDNotReady},
		"a CRD of another shape":             {changes: of(func(f *facts) { f.CRD = found(testkit.MakeRecipeCRD().Field("x", "spec")) }), want: recipe.OutcomeCRDNotReady},
		"a CRD that Velero may not know yet": {changes: of(func(f *facts) { f.Now = testkit.Epoch.Add(6*time.Minute - 1) }), want: recipe.OutcomeCRDNotReady},
		"the CRD is being deleted":           {changes: of(func(f *facts) { f.CRD = found(testkit.MakeRecipeCRD().Terminating()) }), want: recipe.OutcomeTerminating},
		"the CRD is kept out of backups":     {changes: of(func(f *facts) { f.CRD = found(testkit.MakeRecipeCRD().Label(velerov1.ExcludeFromBackupLabel, "true")) }), want: recipe.OutcomeExcluded},
		"T34: Velero may not read CRDs":      {changes: of(func(f *facts) { f.CRD = forbidden("customresourcedefinitions", recipeCRD) }), want: recipe.OutcomeForbidden},
		"the API server is away":             {changes: of(func(f *facts) { f.CRD = recipe.Found{Err: apierrors.NewServiceUnavailable("etcd is away")} }), want: recipe.OutcomeError},
		"no such Recipe":                     {changes: of(func(f *facts) { f.Recipe = notFound("recipes", "r") }), want: recipe.OutcomeDangling},
		"no such Recipe in the VRG's namespace, which it leaves out": {changes: of(func(f *facts) {
			f.VRG, f.Recipe = testkit.MakeVRG("ramen-ops", "v").RecipeRef("", "r").Obj(), notFound("recipes", "r")
		}), want: recipe.OutcomeDangling},
		"a reference that names nothing": {changes: of(func(f *facts) { f.VRG = testkit.MakeVRG("ramen-ops", "v").RecipeRef("app", "").Obj() }), want: recipe.OutcomeDangling},
		"a reference that cannot be read": {changes: of(func(f *facts) {
			f.VRG = testkit.MakeVRG("ramen-ops", "v").Field("r", "spec", "kubeObjectProtection", "recipeRef").Obj()
		}), want: recipe.OutcomeMalformed},
		"the Recipe is being deleted": {changes: of(func(f *facts) { f.Recipe = found(testkit.MakeRecipe("app", "r").Terminating()) }), want: recipe.OutcomeTerminating},
		"the Recipe is kept out of backups": {changes: of(func(f *facts) {
			f.Recipe = found(testkit.MakeRecipe("app", "r").Label(velerov1.ExcludeFromBackupLabel, "true"))
		}), want: recipe.OutcomeExcluded},
		"a label of another value keeps nothing out": {changes: of(func(f *facts) {
			f.Recipe = found(testkit.MakeRecipe("app", "r").Label(velerov1.ExcludeFromBackupLabel, "false"))
		}), want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: both},
		"Velero may not read Recipes":                      {changes: of(func(f *facts) { f.Recipe = forbidden("recipes", "r") }), want: recipe.OutcomeForbidden},
		"Velero's token is refused":                        {changes: of(func(f *facts) { f.Recipe = recipe.Found{Err: apierrors.NewUnauthorized("expired")} }), want: recipe.OutcomeForbidden},
		"the API server is away when asked for the Recipe": {changes: of(func(f *facts) { f.Recipe = recipe.Found{Err: errors.New("connection refused")} }), want: recipe.OutcomeError},
		"nobody has looked for the Recipe":                 {changes: of(func(f *facts) { f.Recipe = recipe.Found{} }), want: recipe.OutcomeError},
		"a Recipe that cannot be JSON":                     {changes: of(func(f *facts) { f.Recipe.Object.Object["spec"] = func() {} }), want: recipe.OutcomeError},
		"missingRecipe: warn":                              {changes: of(func(f *facts) { f.Missing, f.Recipe = recipe.LevelWarn, notFound("recipes", "r") }), want: recipe.OutcomeDangling, level: recipe.LevelWarn},
		"no setting: the strict side":                      {changes: of(func(f *facts) { f.Missing, f.Recipe = "", notFound("recipes", "r") }), want: recipe.OutcomeDangling},
		"the VRG of 2022": {changes: of(func(f *facts) {
			f.VRG, f.Recipe = testkit.MakeVRG("app", "v").Field("r", "spec", "kubeObjectProtection", "recipe", "name").Obj(), found(testkit.MakeRecipe("app", "r"))
		}), want: recipe.OutcomeBundled, level: recipe.LevelInfo, crds: both},
		"no admin namespaces: Ramen's own VRG is one like any other": {changes: of(func(f *facts) { f.AdminNamespaces = nil }), want: recipe.OutcomeDenied},
		"no admin namespaces: Ramen's own Recipe is one like another": {changes: of(func(f *facts) {
			f.AdminNamespaces, f.VRG, f.Recipe = nil, testkit.MakeVRG("ramen-ops", "v").RecipeRef("ramen-ops", "vm-recipe").Obj(), notFound("recipes", "vm-recipe")
		}), want: recipe.OutcomeDangling},
	}
	sentences := readSentences(t, "testdata/backup.golden")
	require.Equal(t, slices.Sorted(maps.Keys(tests)), slices.Sorted(maps.Keys(sentences)))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, before := bundle(tc.changes...), bundle(tc.changes...)
			got := recipe.DecideBackup(facts)
			require.Equal(t, tc.want, got.Outcome, got.Reason)
			require.Equal(t, tc.crds, got.CRDs)
			if tc.level == "" {
				tc.level = recipe.LevelError
			}
			require.Equal(t, tc.level, got.Level)
			require.Equal(t, tc.want == recipe.OutcomeBundled, len(got.Recipes) == 1, "the Recipe goes with its CRD, or not at all")
			require.Equal(t, tc.want == recipe.OutcomeNone, got.Record == nil)
			if got.Record != nil {
				require.Equal(t, tc.want, got.Record.Outcome)
				_, err := got.Record.Encode()
				require.NoError(t, err)
			}
			_, looks := facts.Lookup()
			require.Equal(t, !slices.Contains([]recipe.Outcome{recipe.OutcomeNone, recipe.OutcomeBuiltIn, recipe.OutcomeDenied, recipe.OutcomeMalformed}, tc.want) &&
				!strings.Contains(got.Reason, "names no Recipe"), looks, "a look is what costs requests")
			require.Equal(t, tc.want != recipe.OutcomeNone, facts.Concerned())
			require.Empty(t, cmp.Diff(before.VRG, facts.VRG), "the VRG was changed")
			require.Empty(t, cmp.Diff(before.Backup, facts.Backup), "the Backup was changed")
			require.Equal(t, sentences[name], string(got.Level)+": "+got.Reason)
		})
	}
}

// readSentences reads the lines that the log shows for the rows of a table, by the name of the row. A person has read them.
func readSentences(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	sentences := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimPrefix(string(data), "# "), "\n# ") {
		name, sentence, _ := strings.Cut(entry, "\n")
		sentences[name] = strings.TrimSpace(sentence)
	}
	return sentences
}

func TestDecideBackupNamesTheRecipe(t *testing.T) {
	t.Parallel()
	got := recipe.DecideBackup(bundle())
	require.Equal(t, []types.NamespacedName{key("app", "r")}, got.Recipes)
	require.Empty(t, got.Warnings)
	crd, err := recipe.SHA256OfSpec(testkit.MakeRecipeCRD().Obj())
	require.NoError(t, err)
	spec, err := recipe.SHA256OfSpec(testkit.MakeRecipe("app", "r").Obj())
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(&recipe.Record{
		Version: 1, Outcome: recipe.OutcomeBundled,
		Recipe: recipe.Identity{Namespace: "app", Name: "r", UID: "uid-of-app-r", Generation: 7, ResourceVersion: "1", SHA256: spec},
		CRD:    &recipe.CRDRecord{Served: []string{"v1alpha1"}, SHA256: crd},
		VRG: recipe.VRGRecord{
			Generation: 4, AsCaptured: new(true),
			Capture: &recipe.Capture{Number: 1, StartGeneration: 4, StartTime: "2026-03-01T11:50:00Z", EndTime: "2026-03-01T11:51:00Z"},
		},
		Cluster: "uid-of-cluster-a", Backup: "b",
	}, got.Record))
}

// Velero drops a VRG over an item of a kind that its server does not know, and it looks for kinds every 5 minutes only.
func TestAYoungCRDIsLeftOutUnlessVeleroKnowsIt(t *testing.T) {
	t.Parallel()
	created := testkit.Epoch.Time
	for name, tc := range map[string]struct {
		established  string
		now, started time.Time
		archived     bool
		brings       bool
	}{
		"just created":                               {now: created.Add(time.Second)},
		"nearly old enough":                          {now: created.Add(6*time.Minute - time.Millisecond)},
		"old enough":                                 {now: created.Add(6 * time.Minute), brings: true},
		"the server started after it":                {now: created.Add(time.Minute), started: created.Add(30 * time.Second), brings: true},
		"the server started in the same second":      {now: created.Add(time.Minute), started: created, brings: true},
		"the clocks are cut to seconds":              {now: created.Add(time.Minute), started: created.Add(-2 * time.Second), brings: true},
		"the server started before it":               {now: created.Add(time.Minute), started: created.Add(-3 * time.Second)},
		"Velero has put the Recipe into the backup":  {now: created.Add(time.Second), archived: true, brings: true},
		"an old CRD that was established just now":   {established: "2026-03-01T12:59:00Z", now: created.Add(time.Hour)},
		"a condition that does not say when":         {established: "just now", now: created.Add(time.Hour), brings: true},
		"the clock of Velero is behind the server's": {now: created.Add(-time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := recipe.DecideBackup(bundle(func(f *recipe.BackupFacts) {
				f.Now, f.ServerStarted, f.Recipe.Archived = tc.now, tc.started, tc.archived
				if tc.established != "" {
					f.CRD = found(testkit.MakeRecipeCRD().Field([]any{
						map[string]any{"type": "NamesAccepted", "status": "True"},
						map[string]any{"type": "Established", "status": "True", "lastTransitionTime": tc.established},
					}, "status", "conditions"))
				}
			}))
			require.Equal(t, tc.brings, got.Outcome == recipe.OutcomeBundled, got.Reason)
			require.Equal(t, !tc.brings, got.Outcome == recipe.OutcomeCRDNotReady, got.Reason)
		})
	}
}

func TestDecideBackupWarns(t *testing.T) {
	t.Parallel()
	vrg := func() *testkit.Ramen {
		return testkit.MakeVRG("ramen-ops", "v").RecipeRef("app", "r").Generation(4)
	}
	for name, tc := range map[string]struct {
		facts recipe.BackupFacts
		want  []string
	}{
		"T5: the VRG is newer than its capture": {bundle(func(f *recipe.BackupFacts) { f.VRG = vrg().Captured(1, 3).Obj() }), []string{
			"VRG ramen-ops/v has changed since the capture that Ramen would recover from (generation 4, captured at 3): its recipeParameters may not be those of the capture",
		}},
		"the VRG names no namespace": {bundle(func(f *recipe.BackupFacts) { f.VRG = testkit.MakeVRG("ramen-ops", "v").RecipeRef("", "r").Obj() }), []string{
			"VRG ramen-ops/v names no namespace for Recipe r: Ramen looks for it in none and finds none; set spec.kubeObjectProtection.recipeRef.namespace",
		}},
		"the cluster has no name": {bundle(func(f *recipe.BackupFacts) { f.Cluster, f.ClusterErr = "", errors.New("get Namespace kube-system: no") }), []string{
			"The cluster that VRG ramen-ops/v is backed up on is not recorded, so a restore takes it for another one: get Namespace kube-system: no",
		}},
		"what is wrong with the Recipe": {bundle(func(f *recipe.BackupFacts) {
			f.Recipe = found(testkit.MakeRecipe("app", "r").NoField("spec", "workflows"))
		}), []string{
			"Recipe app/r of VRG ramen-ops/v: there is no workflow restore: Ramen recovers by its default then, which restores all at once and runs no hook",
		}},
		"a parameter that is given is none of it": {bundle(func(f *recipe.BackupFacts) {
			f.VRG = vrg().Parameter("ns", "app").Obj()
			f.Recipe = found(testkit.MakeRecipe("app", "r").Field([]any{"$ns"}, "spec", "volumes", "includedNamespaces"))
		}), nil},
		"parameters that cannot be read": {bundle(func(f *recipe.BackupFacts) {
			f.VRG = vrg().Field("x", "spec", "kubeObjectProtection", "recipeParameters").Obj()
		}), []string{"VRG ramen-ops/v: spec.kubeObjectProtection.recipeParameters is string, not an object"}},
		"a Recipe that does not come is not looked into": {bundle(func(f *recipe.BackupFacts) {
			f.Recipe = found(testkit.MakeRecipe("app", "r").NoField("spec", "workflows").Terminating())
		}), nil},
	} {
		require.Equal(t, tc.want, recipe.DecideBackup(tc.facts).Warnings, name)
	}
}

// Ramen can make a Recipe's CRD serve ever more versions, but the record must not outgrow an annotation.
func TestTheRecordOfABackupHasAnEnd(t *testing.T) {
	t.Parallel()
	var versions []any
	for i := range 40 {
		versions = append(versions, version(fmt.Sprintf("v%d%s", i, strings.Repeat("x", 60)), true))
	}
	long := strings.Repeat("n", 253)
	got := recipe.DecideBackup(bundle(func(f *recipe.BackupFacts) {
		f.CRD = found(testkit.MakeRecipeCRD().Field(append(versions, version("v1alpha1", true)), "spec", "versions"))
		f.VRG = testkit.MakeVRG(long, "v").RecipeRef(long, long).Obj()
		f.Backup = testkit.BackupNamed(long).Result()
	}))
	require.Equal(t, recipe.OutcomeBundled, got.Outcome)
	require.Len(t, got.Record.CRD.Served, 16)
	_, err := got.Record.Encode()
	require.NoError(t, err)
}

func TestCanRead(t *testing.T) {
	t.Parallel()
	require.True(t, recipe.CanRead(found(testkit.MakeRecipeCRD())))
	require.False(t, recipe.CanRead(found(testkit.MakeRecipeCRD().Condition("Established", false))))
	require.False(t, recipe.CanRead(notFound("customresourcedefinitions", recipeCRD)))
}

func TestIncludesNamespace(t *testing.T) {
	t.Parallel()
	backup := func() *builder.BackupBuilder { return testkit.BackupNamed("b") }
	for name, tc := range map[string]struct {
		backup *builder.BackupBuilder
		want   bool
	}{
		"a backup of everything":         {backup(), true},
		"a star":                         {backup().IncludedNamespaces("*"), true},
		"its name":                       {backup().IncludedNamespaces("x", "app"), true},
		"another name":                   {backup().IncludedNamespaces("apps"), false},
		"a pattern that matches":         {backup().IncludedNamespaces("a*"), true},
		"a pattern that does not":        {backup().IncludedNamespaces("b*"), false},
		"excluded":                       {backup().ExcludedNamespaces("app"), false},
		"excluded by a pattern":          {backup().IncludedNamespaces("a*").ExcludedNamespaces("*pp"), false},
		"another is excluded":            {backup().ExcludedNamespaces("shop"), true},
		"a pattern that Velero refuses":  {backup().IncludedNamespaces("a**"), false},
		"included and excluded: the ban": {backup().IncludedNamespaces("app").ExcludedNamespaces("app"), false},
	} {
		require.Equal(t, tc.want, recipe.IncludesNamespace(tc.backup.Result(), "app"), name)
	}
}

func TestApplyWritesTheRecordAndMustInclude(t *testing.T) {
	t.Parallel()
	const stale = `{"version":1,"outcome":"builtin"}`
	for name, tc := range map[string]struct {
		facts recipe.BackupFacts
		// record and must tell whether the annotations are there afterwards.
		record, must bool
	}{
		"bundled":  {bundle(), true, true},
		"dangling": {bundle(func(f *recipe.BackupFacts) { f.Recipe = notFound("recipes", "r") }), true, false},
		"a stale record is replaced": {bundle(func(f *recipe.BackupFacts) {
			f.VRG.SetAnnotations(map[string]string{contract.RecipeBundleAnnotation: stale})
		}), true, true},
		"what is not ours is untouched": {bundle(func(f *recipe.BackupFacts) { f.VRG = testkit.MakeVRG("a", "v").Obj() }), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			item := tc.facts.VRG.DeepCopy()
			decision := recipe.DecideBackup(tc.facts)
			require.NoError(t, decision.Apply(item))
			annotations := item.GetAnnotations()
			require.Equal(t, tc.must, annotations[velerov1.MustIncludeAdditionalItemAnnotation] == "true")
			got, ok, err := recipe.RecordOf(item)
			require.NoError(t, err)
			require.Equal(t, tc.record, ok)
			if ok {
				require.Empty(t, cmp.Diff(*decision.Record, got))
			}
			delete(annotations, velerov1.MustIncludeAdditionalItemAnnotation)
			delete(annotations, contract.RecipeBundleAnnotation)
			if item.SetAnnotations(annotations); len(annotations) == 0 {
				item.SetAnnotations(nil)
			}
			tc.facts.VRG.SetAnnotations(nil)
			require.Empty(t, cmp.Diff(tc.facts.VRG.Object, item.Object), "nothing else is written")
		})
	}
}

func TestApplyKeepsTheItemsWhereTheRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	decision := recipe.DecideBackup(bundle())
	decision.Record.Outcome = "lost"
	item := testkit.MakeVRG("ramen-ops", "v").Annotation("x", "y").Annotation(contract.RecipeBundleAnnotation, "of another backup").Obj()
	require.ErrorContains(t, decision.Apply(item), `its outcome is "lost"`)
	require.Equal(t, map[string]string{"x": "y", velerov1.MustIncludeAdditionalItemAnnotation: "true"}, item.GetAnnotations())
}

func TestDecideRecipeBackup(t *testing.T) {
	t.Parallel()
	sentences := readSentences(t, "testdata/recipe-backup.golden")
	for name, tc := range map[string]struct {
		backup *builder.BackupBuilder
		crd    recipe.Found
		want   recipe.Outcome
		level  recipe.Level
	}{
		"its CRD comes with it":   {testkit.BackupNamed("b"), found(testkit.MakeRecipeCRD()), recipe.OutcomeBundled, recipe.LevelDebug},
		"a backup of Ramen's own": {testkit.BackupNamed("b").ObjectMeta(builder.WithLabels(contract.CreatedByRamenLabel, "true")), found(testkit.MakeRecipeCRD()), recipe.OutcomeNone, recipe.LevelDebug},
		"the CRD is gone":         {testkit.BackupNamed("b"), notFound("customresourcedefinitions", recipeCRD), recipe.OutcomeCRDAbsent, recipe.LevelWarn},
		"the CRD is forbidden":    {testkit.BackupNamed("b"), forbidden("customresourcedefinitions", recipeCRD), recipe.OutcomeForbidden, recipe.LevelWarn},
		"the CRD is being deleted": {
			testkit.BackupNamed("b"), found(testkit.MakeRecipeCRD().Terminating()), recipe.OutcomeTerminating, recipe.LevelWarn,
		},
		"the CRD is kept out of backups": {
			testkit.BackupNamed("b"), found(testkit.MakeRecipeCRD().Label(velerov1.ExcludeFromBackupLabel, "true")), recipe.OutcomeExcluded, recipe.LevelWarn,
		},
	} {
		item := testkit.MakeRecipe("app", "r").Obj()
		got := recipe.DecideRecipeBackup(item, tc.backup.Result(), tc.crd)
		require.Equal(t, tc.want, got.Outcome, name)
		require.Equal(t, tc.level, got.Level, name)
		require.Equal(t, tc.want == recipe.OutcomeBundled, slices.Equal(got.CRDs, []string{recipeCRD}), name)
		require.Empty(t, got.Recipes, name)
		require.NoError(t, got.Apply(item))
		var annotations map[string]string
		if tc.want == recipe.OutcomeBundled {
			annotations = map[string]string{velerov1.MustIncludeAdditionalItemAnnotation: "true"}
		}
		require.Equal(t, annotations, item.GetAnnotations(), name)
		require.Equal(t, sentences[name], string(got.Level)+": "+got.Reason, name)
	}
	require.Equal(t, sentences["changed while the backup was made"], "warn: "+recipe.ChangedDuringBackup(testkit.MakeRecipe("app", "r").Obj()))
}
