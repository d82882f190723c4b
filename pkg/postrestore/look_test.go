package postrestore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// seen says of each state "<namespace>/<name> <dc|none> <pods> <controllers>".
func seen(states []postrestore.State) []string {
	var all []string
	for _, s := range states {
		var pods, controllers []string
		for _, pod := range s.Pods {
			pods = append(pods, pod.Name)
		}
		for i := range s.Controllers {
			controllers = append(controllers, s.Controllers[i].Name)
		}
		dc := "none"
		if s.DC != nil {
			dc = "dc"
		}
		all = append(all, fmt.Sprintf("%s %s %v %v", s.Name, dc, pods, controllers))
	}
	return all
}

func TestLookFindsWhatTheRestoreHasMarked(t *testing.T) {
	t.Parallel()
	mine, other := testkit.OwnerNamed("r"), testkit.OwnerNamed("s")
	twin := testkit.OwnerNamed("r")
	twin.Restore.Namespace, twin.UID = "other-velero", "uid-of-twin"
	again := testkit.OwnerNamed("r")
	again.UID = "uid-of-earlier"
	pod := func(namespace, dc, name string) *testkit.Pod { return testkit.MakePod(namespace, dc, 1).Named(name) }
	tests := map[string]struct {
		objects []client.Object
		scope   func(*postrestore.Scope)
		want    []string
	}{
		"an empty cluster": {},
		"a held DeploymentConfig with its pods and ReplicationControllers": {
			objects: []client.Object{
				testkit.MakeDC("shop", "web").Held(mine, 2, false).Obj(), pod("shop", "web", "b").Detached(mine).Obj(), pod("shop", "web", "a").Detached(mine).Obj(),
				testkit.MakeRC("shop", "web", 1).Obj(), testkit.MakeRC("shop", "web", 2).Obj(), testkit.MakeRC("shop", "db", 1).Obj(), testkit.MakePlainRC("shop", "alone").Obj(),
				pod("shop", "web", "attached").Obj(), testkit.MakeDC("shop", "db").Obj(),
			},
			want: []string{"shop/web dc [a b] [web-1 web-2]"},
		},
		"in the order of their names": {
			objects: []client.Object{
				testkit.MakeDC("shop", "web").Held(mine, 2, false).Obj(), testkit.MakeDC("shop", "db").Held(mine, 1, false).Obj(), testkit.MakeDC("blog", "web").Held(mine, 1, false).Obj(),
			},
			want: []string{"blog/web dc [] []", "shop/db dc [] []", "shop/web dc [] []"},
		},
		"I2: what another restore has marked is not ours": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Held(other, 2, false).Obj(), pod("shop", "web", "a").Detached(other).Obj()},
		},
		"I2: what a restore of the same name in another Velero has marked is not ours": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Held(twin, 2, false).Obj(), pod("shop", "web", "a").Detached(twin).Obj()},
		},
		"what an earlier restore of the same name has marked is not ours": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Held(again, 2, false).Obj()},
		},
		"what an earlier restore of the same name has marked, when any of the name is asked for": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Held(again, 2, false).Obj()},
			scope:   func(s *postrestore.Scope) { s.Owner = postrestore.OwnerOf(testkit.VeleroNamespace, "r") },
			want:    []string{"shop/web dc [] []"},
		},
		"what the stock plugin has marked": {
			objects: []client.Object{testkit.MakeDC("shop", "web").HeldByStock(mine, 2, false).Obj(), pod("shop", "web", "a").DetachedByStock(mine).Annotation("oadp.openshift.io/deploymentconfig", "web").Obj()},
			want:    []string{"shop/web dc [a] []"},
		},
		"the stock plugin's pods are known by OpenShift's annotation": {
			objects: []client.Object{testkit.MakeDC("shop", "web").HeldByStock(mine, 2, false).Obj(), pod("shop", "web", "a").DetachedByStock(mine).Obj()},
			want:    []string{"shop/web dc [a] []"},
		},
		"D15: pods of another restore belong to a DeploymentConfig that this one holds": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Held(mine, 2, false).Obj(), pod("shop", "web", "a").Detached(mine).Obj(), pod("shop", "web", "b").Detached(other).Obj()},
			want:    []string{"shop/web dc [a b] []"},
		},
		"D15: a DeploymentConfig that another restore holds, with pods of this one": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Held(other, 2, false).Obj(), pod("shop", "web", "a").Detached(mine).Obj(), testkit.MakeRC("shop", "web", 1).Obj()},
			want:    []string{"shop/web dc [a] [web-1]"},
		},
		"pods of a DeploymentConfig that nobody holds": {
			objects: []client.Object{testkit.MakeDC("shop", "web").Replicas(0).Obj(), pod("shop", "web", "a").Detached(mine).Obj(), testkit.MakeRC("shop", "web", 1).Obj()},
			want:    []string{"shop/web dc [a] []"},
		},
		"D35: pods whose DeploymentConfig did not come": {
			objects: []client.Object{pod("shop", "web", "a").Detached(mine).Obj()}, want: []string{"shop/web none [a] []"},
		},
		"a DeploymentConfig of the same name in another namespace is another": {
			objects: []client.Object{pod("shop", "web", "a").Detached(mine).Obj(), testkit.MakeDC("blog", "web").Obj()}, want: []string{"shop/web none [a] []"},
		},
		"only the namespaces asked for": {
			objects: []client.Object{
				testkit.MakeDC("shop", "web").Held(mine, 2, false).Obj(), testkit.MakeDC("blog", "web").Held(mine, 2, false).Obj(), testkit.MakeDC("wiki", "web").Held(mine, 2, false).Obj(),
				pod("blog", "web", "a").Detached(mine).Obj(), pod("wiki", "web", "b").Detached(mine).Obj(),
			},
			scope: func(s *postrestore.Scope) { s.Namespaces = []string{"shop", "wiki"} },
			want:  []string{"shop/web dc [] []", "wiki/web dc [b] []"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.objects...)
			s := scope()
			if tc.scope != nil {
				tc.scope(&s)
			}
			require.Equal(t, tc.want, seen(w.look(s)))
			require.Empty(t, w.requests.Writes())
		})
	}
}

func TestLookFindsByTheCutLabelOfALongName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 253)
	owner := testkit.OwnerNamed(long)
	pod := testkit.MakePod("shop", "web", 1).Claim("data", "web-data").Detached(owner).Obj()
	pvr := podVolumeRestore("p", pod, "data", velerov1.PodVolumeRestorePhaseCompleted)
	pvr.Labels[velerov1.RestoreNameLabel] = strings.Repeat("a", 57) + "32859a"
	w := newWorld(t, testkit.MakeDC("shop", "web").Held(owner, 2, false).Obj(), pod, pvr)
	states := w.look(postrestore.ScopeOf(testkit.RestoreNamed(long).Result(), false, false, postrestore.Options{}))
	require.Equal(t, []string{"shop/web dc [web-1-x7k2p] []"}, seen(states))
	require.Len(t, states[0].Pods[0].Volumes, 1)
}

func TestLookFindsVolumeRestores(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	pod := testkit.MakePod("shop", "web", 1).Named("a").EmptyDir("tmp").Claim("data", "web-data").Detached(owner).Obj()
	download := func(name, namespace, claim string, phase velerov2alpha1.DataDownloadPhase) *velerov2alpha1.DataDownload {
		return builder.ForDataDownload(testkit.VeleroNamespace, name).Labels(map[string]string{velerov1.RestoreNameLabel: "r"}).
			TargetVolume(velerov2alpha1.TargetVolumeSpec{Namespace: namespace, PVC: claim}).Phase(phase).Message("said").Result()
	}
	inPod := func(name string, edit func(*velerov1.PodVolumeRestore)) *velerov1.PodVolumeRestore {
		pvr := podVolumeRestore(name, pod, "data", velerov1.PodVolumeRestorePhaseCompleted)
		edit(pvr)
		return pvr
	}
	volume := func(object, volume string, beforeStart bool, phase postrestore.VolumePhase, message string) postrestore.VolumeRestore {
		return postrestore.VolumeRestore{Object: object, Volume: volume, BeforeStart: beforeStart, Phase: phase, Message: message}
	}
	nothing := func(*velerov1.PodVolumeRestore) {}
	phase := func(phase velerov1.PodVolumeRestorePhase) func(*velerov1.PodVolumeRestore) {
		return func(pvr *velerov1.PodVolumeRestore) { pvr.Status.Phase, pvr.Status.Message = phase, "said" }
	}
	tests := map[string]struct {
		object client.Object
		want   []postrestore.VolumeRestore
	}{
		"a completed PodVolumeRestore":         {inPod("p", nothing), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumeCompleted, "")}},
		"a new one":                            {inPod("p", phase("")), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumePending, "said")}},
		"one in progress":                      {inPod("p", phase("InProgress")), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumePending, "said")}},
		"one that is being cancelled":          {inPod("p", phase("Canceling")), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumePending, "said")}},
		"one in a phase of a later Velero":     {inPod("p", phase("Polishing")), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumePending, "said")}},
		"a failed one":                         {inPod("p", phase("Failed")), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumeFailed, "said")}},
		"a cancelled one":                      {inPod("p", phase("Canceled")), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumeFailed, "said")}},
		"one of another pod":                   {inPod("p", func(p *velerov1.PodVolumeRestore) { p.Spec.Pod.Name = "b" }), nil},
		"one of another namespace":             {inPod("p", func(p *velerov1.PodVolumeRestore) { p.Spec.Pod.Namespace = "blog" }), nil},
		"one of an earlier pod of that name":   {inPod("p", func(p *velerov1.PodVolumeRestore) { p.Spec.Pod.UID = "earlier" }), nil},
		"one that does not say which":          {inPod("p", func(p *velerov1.PodVolumeRestore) { p.Spec.Pod.UID = "" }), []postrestore.VolumeRestore{volume("PodVolumeRestore p", "data", false, postrestore.VolumeCompleted, "")}},
		"one of another restore":               {inPod("p", func(p *velerov1.PodVolumeRestore) { p.Labels[velerov1.RestoreNameLabel] = "s" }), nil},
		"one of another Velero":                {inPod("p", func(p *velerov1.PodVolumeRestore) { p.Namespace = "other-velero" }), nil},
		"a DataDownload into a claim":          {download("d", "shop", "web-data", "InProgress"), []postrestore.VolumeRestore{volume("DataDownload d", "web-data", true, postrestore.VolumePending, "said")}},
		"a completed DataDownload":             {download("d", "shop", "web-data", "Completed"), []postrestore.VolumeRestore{volume("DataDownload d", "web-data", true, postrestore.VolumeCompleted, "said")}},
		"a failed DataDownload":                {download("d", "shop", "web-data", "Failed"), []postrestore.VolumeRestore{volume("DataDownload d", "web-data", true, postrestore.VolumeFailed, "said")}},
		"a DataDownload that is accepted":      {download("d", "shop", "web-data", "Accepted"), []postrestore.VolumeRestore{volume("DataDownload d", "web-data", true, postrestore.VolumePending, "said")}},
		"a DataDownload into another claim":    {download("d", "shop", "other", "InProgress"), nil},
		"a DataDownload into another space":    {download("d", "blog", "web-data", "InProgress"), nil},
		"a DataDownload into a volume's name":  {download("d", "shop", "data", "InProgress"), nil},
		"a DataDownload into an emptyDir's":    {download("d", "shop", "tmp", "InProgress"), nil},
		"nothing that has to do with the pod ": {testkit.MakeDC("shop", "web").Obj(), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := newWorld(t, pod, tc.object).look(scope())
			require.Len(t, states, 1)
			if diff := cmp.Diff(tc.want, states[0].Pods[0].Volumes); diff != "" {
				t.Errorf("volume restores (-want +got):\n%s", diff)
			}
		})
	}
}

// A pod of another restore waits for that restore's data (D15).
func TestLookFindsVolumeRestoresOfEveryRestoreThatHasDetachedAPod(t *testing.T) {
	t.Parallel()
	pod := testkit.MakePod("shop", "web", 1).Named("b").Claim("data", "web-data").Detached(testkit.OwnerNamed("s")).Obj()
	pvr := podVolumeRestore("p", pod, "data", velerov1.PodVolumeRestorePhaseInProgress)
	pvr.Labels[velerov1.RestoreNameLabel] = "s"
	w := newWorld(t, testkit.MakeDC("shop", "web").Held(testkit.OwnerNamed("r"), 2, false).Obj(), pod, pvr)
	states := w.look(scope())
	require.Len(t, states[0].Pods[0].Volumes, 1)
	require.Equal(t, postrestore.Wait, postrestore.Next(states[0]).Action, "I2: a pod whose data is on its way is never deleted")
}

func TestLookFindsExecHooks(t *testing.T) {
	t.Parallel()
	hook := velerov1.RestoreResourceHookSpec{
		Name: "warm", IncludedNamespaces: []string{"shop"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"deploymentconfig": "web"}},
		PostHooks: []velerov1.RestoreResourceHook{{Exec: &velerov1.ExecRestoreHook{Command: []string{"true"}}}},
	}
	r := testkit.RestoreNamed("r").Result()
	r.Spec.Hooks.Resources = []velerov1.RestoreResourceHookSpec{hook}
	mine, other := testkit.OwnerNamed("r"), testkit.OwnerNamed("s")
	annotated := testkit.MakePod("shop", "db", 1).Named("c").Annotation("post.hook.restore.velero.io/command", "true").Detached(mine)
	w := newWorld(t,
		testkit.MakePod("shop", "web", 1).Named("a").Detached(mine).Obj(), testkit.MakePod("shop", "web", 1).Named("b").Detached(other).Obj(),
		annotated.Obj(), testkit.MakePod("blog", "web", 1).Named("d").Detached(mine).Obj(),
	)
	found := map[string][]string{}
	for _, s := range w.look(postrestore.ScopeOf(r, false, false, postrestore.Options{})) {
		for _, pod := range s.Pods {
			found[pod.Name] = pod.ExecHooks
		}
	}
	require.Equal(t, map[string][]string{"a": {"warm"}, "b": nil, "c": {"<from-annotation>"}, "d": nil}, found)

	gone := postrestore.ScopeOf(r, false, true, postrestore.Options{})
	gone.Hooks = nil
	for _, s := range w.look(gone) {
		for _, pod := range s.Pods {
			require.Equal(t, pod.Name == "c", len(pod.ExecHooks) == 1, "without its Restore only annotations say something")
		}
	}

	r.Spec.Hooks.Resources[0].LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Contains"}}
	_, err := w.runner.Look(t.Context(), postrestore.ScopeOf(r, false, false, postrestore.Options{}))
	require.ErrorContains(t, err, `find the exec hooks of pod`)
	require.ErrorContains(t, err, `restore hook "warm"`)
}

func TestLookTellsTheTimeAndTheOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.MakeDC("shop", "web").Held(testkit.OwnerNamed("r"), 2, false).Obj())
	s := scope()
	s.Restore.Ended, s.AcceptDataLoss = true, true
	state := w.look(s)[0]
	require.Equal(t, w.clock.Now(), state.Now)
	require.Equal(t, s.Restore, state.Restore)
	require.Equal(t, s.Options, state.Options)
}

func TestLookWithoutWhatIsNotServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.MakePod("shop", "web", 1).Named("a").Detached(testkit.OwnerNamed("r")).Obj())
	w.requests.Fail(func(r testkit.Request) error {
		switch r.Kind {
		case "DeploymentConfig":
			return notServed("apps.openshift.io", "deploymentconfigs")
		case "DataDownload":
			return notServed("velero.io", "datadownloads")
		default:
			return nil
		}
	})
	require.Equal(t, []string{"shop/web none [a] []"}, seen(w.look(scope())))
}

func TestLookNamesWhatCannotBeListed(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	for kind, says := range map[string]string{
		"DeploymentConfig":      "list held DeploymentConfigs",
		"Pod":                   "list detached pods",
		"ReplicationController": "list ReplicationControllers in shop",
		"PodVolumeRestore":      "list PodVolumeRestores in openshift-adp",
		"DataDownload":          "list DataDownloads in openshift-adp",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.MakeDC("shop", "web").Held(owner, 2, false).Obj(), testkit.MakePod("shop", "web", 1).Detached(owner).Obj())
			w.requests.Fail(failing("list", kind, forbidden("list", kind)))
			_, err := w.runner.Look(t.Context(), scope())
			require.ErrorContains(t, err, says)
			require.True(t, apierrors.IsForbidden(err))
		})
	}
	t.Run("DeploymentConfigs that nobody holds", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, testkit.MakePod("shop", "web", 1).Detached(owner).Obj())
		w.requests.Fail(func(r testkit.Request) error {
			if r.Kind == "DeploymentConfig" && r.List.Namespace == "shop" {
				return forbidden("list", "deploymentconfigs")
			}
			return nil
		})
		_, err := w.runner.Look(t.Context(), scope())
		require.ErrorContains(t, err, "list DeploymentConfigs in shop")
	})
}

// The cost of a look depends on namespaces, not on DeploymentConfigs or pods.
func TestLookListsOncePerNamespace(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	var objects []client.Object
	for i := range 50 {
		namespace, name := fmt.Sprintf("shop-%d", i%5), fmt.Sprintf("web-%d", i)
		objects = append(objects, testkit.MakeDC(namespace, name).Held(owner, 4, false).Obj())
		for j := range 4 {
			objects = append(objects, testkit.MakePod(namespace, name, 1).Named(fmt.Sprintf("%s-%d", name, j)).Detached(owner).Obj())
		}
	}
	w := newWorld(t, objects...)
	require.Len(t, w.look(scope()), 50)
	require.Equal(t, map[string]int{
		"list DeploymentConfig": 1, "list Pod": 1, "list ReplicationController": 5, "list PodVolumeRestore": 1, "list DataDownload": 1,
	}, w.requests.Count())
}
