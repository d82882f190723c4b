package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// TestPostRestoreResumes runs in a bubble, as do all tests that wait: time passes as soon as everybody waits for it.
func TestPostRestoreResumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted))...)

		first := c.run(t, "post-restore", "monday")
		assert.Equal(t, ExitDone, first.code, first.errOut)
		assert.Equal(t, "NAMESPACE   DEPLOYMENTCONFIG   RESULT    MESSAGE\nshop        web                resumed   back at 2 replicas\n", first.out)
		golden(t, "progress.txt", first.errOut)
		dc := &ocpappsv1.DeploymentConfig{}
		require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, dc))
		assert.Equal(t, int32(2), dc.Spec.Replicas)
		assert.Empty(t, dc.Labels)
		assert.Empty(t, dc.Annotations)

		writes := len(c.writes)
		second := c.run(t, "post-restore", "monday")
		assert.Equal(t, ran{
			code: ExitDone, errOut: "Nothing to do: nothing in the cluster is held for restore velero/monday.\n",
		}, second)
		assert.Len(t, c.writes, writes, "run again, it writes nothing")
	})
}

func TestPostRestoreDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted))...)
		got := c.run(t, "post-restore", "monday", "--dry-run")
		assert.Equal(t, ran{
			code: ExitDone,
			out: "NAMESPACE   DEPLOYMENTCONFIG   RESULT    STEP          PODS   MESSAGE\n" +
				"shop        web                planned   delete-pods   2/2    deleting 2 detached pods\n",
		}, got)
		assert.Empty(t, c.writes)
	})
}

func TestPostRestoreGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	broken := []client.Object{
		restoreIn(velerov1.RestorePhasePartiallyFailed),
		heldDC("bank", "ledger", "1"), detachedPod("bank", "ledger", "ledger-1-a", true), failedVolume("bank", "ledger-1-a", "books"),
	}
	for name, tc := range map[string]struct {
		args   []string
		code   int
		golden string
	}{
		"one of two has lost a volume, the other is resumed": {args: nil, code: ExitFailed, golden: "one-failed.txt"},
		"as JSON":                 {args: []string{"-o", "json"}, code: ExitFailed, golden: "one-failed.json"},
		"as YAML":                 {args: []string{"-o", "yaml"}, code: ExitFailed, golden: "one-failed.yaml"},
		"in a dry run it says so": {args: []string{"--dry-run", "-o", "json"}, code: ExitFailed, golden: "plan.json"},
		"with the loss accepted both are resumed": {args: []string{"--accept-data-loss"}, code: ExitDone, golden: "loss-accepted.txt"},
		"only the good namespace":                 {args: []string{"-n", "shop"}, code: ExitDone, golden: "one-namespace.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				objects := append(oneApplication(), rollout("bank", "ledger"))
				for _, object := range broken {
					objects = append(objects, object.DeepCopyObject().(client.Object))
				}
				c := newCluster(t, objects...)
				got := c.run(t, append([]string{"post-restore", "monday"}, tc.args...)...)
				assert.Equal(t, tc.code, got.code, got.errOut)
				golden(t, tc.golden, got.out)
			})
		})
	}
}

func TestPostRestoreRefusesARestoreThatHasNotEnded(t *testing.T) {
	t.Parallel()
	for name, phase := range map[string]velerov1.RestorePhase{
		"no phase yet":                "",
		"in progress":                 velerov1.RestorePhaseInProgress,
		"waiting for operations":      velerov1.RestorePhaseWaitingForPluginOperations,
		"finalizing":                  velerov1.RestorePhaseFinalizing,
		"partly failed, going on":     velerov1.RestorePhaseFinalizingPartiallyFailed,
		"a phase of a Velero to come": "Polishing",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, append(oneApplication(), restoreIn(phase))...)
			got := c.run(t, "post-restore", "monday")
			assert.Equal(t, ExitNotFinished, got.code)
			assert.Contains(t, got.errOut, "error: restore velero/monday has not ended: it is ")
			assert.Contains(t, got.errOut, "velero restore get monday -n velero")
			assert.Empty(t, got.out)
			assert.Empty(t, c.writes)
		})
	}
}

func TestPostRestoreOfARestoreThatIsNotThere(t *testing.T) {
	t.Parallel()
	stockDC := heldDC("shop", "web", "2")
	stockDC.Annotations = map[string]string{contract.OriginalReplicasAnnotation: "2", contract.OriginalPausedAnnotation: "false"}
	for name, tc := range map[string]struct {
		objects []client.Object
		getenv  func(string) string
		args    []string
		code    int
		errOut  string
	}{
		"nothing is held by anybody": {
			args: []string{"monday"}, code: ExitFailed,
			errOut: "error: there is no Restore velero/monday, and nothing in the cluster is held for it; no other restore holds anything there either. See also --velero-namespace\n",
		},
		"a slip of the pen: the names that hold something are told": {
			objects: oneApplication(), args: []string{"munday"}, code: ExitFailed,
			errOut: "error: there is no Restore velero/munday, and nothing in the cluster is held for it; these restores hold something: velero/monday. See also --velero-namespace\n",
		},
		"another Velero's": {
			objects: oneApplication(), args: []string{"monday", "--velero-namespace", "openshift-adp"}, code: ExitFailed,
			errOut: "error: there is no Restore openshift-adp/monday, and nothing in the cluster is held for it; these restores hold something: velero/monday. See also --velero-namespace\n",
		},
		"elsewhere than in the namespaces": {
			objects: oneApplication(), args: []string{"monday", "-n", "bank,depot"}, code: ExitFailed,
			errOut: "error: there is no Restore velero/monday, and nothing in namespaces bank, depot is held for it; no other restore holds anything there either. See also --velero-namespace\n",
		},
		"it has expired, but its marks are there": {
			objects: oneApplication(), args: []string{"monday"}, code: ExitDone,
		},
		"marks of the openshift plugin, in Velero's pod": {
			objects: []client.Object{stockDC, rollout("shop", "web")}, args: []string{"monday"}, code: ExitDone,
		},
		"marks, but Velero's namespace is a guess": {
			objects: []client.Object{stockDC, rollout("shop", "web")}, args: []string{"monday"}, getenv: nowhere, code: ExitFailed,
			errOut: "error: no Restore velero/monday, though something is held for a restore of that name: say where Velero runs with --velero-namespace\n",
		},
		"marks, and Velero's namespace is said": {
			objects: []client.Object{stockDC, rollout("shop", "web")}, args: []string{"monday", "--velero-namespace=velero"}, getenv: nowhere, code: ExitDone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var objects []client.Object
				for _, object := range tc.objects {
					objects = append(objects, object.DeepCopyObject().(client.Object))
				}
				c := newCluster(t, objects...)
				s := surroundings{getenv: tc.getenv}
				if s.getenv == nil {
					s.getenv = inVelerosPod
				}
				got := c.runIn(t.Context(), s, append([]string{"post-restore"}, tc.args...)...)
				assert.Equal(t, tc.code, got.code, got.errOut)
				if tc.code == ExitDone {
					assert.Contains(t, got.out, "back at 2 replicas")
					assert.Contains(t, got.errOut, "Restore velero/monday does not exist any more")
					return
				}
				assert.Equal(t, tc.errOut, got.errOut)
				assert.Empty(t, c.writes)
			})
		})
	}
}

func TestPostRestoreWithoutRights(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		refuse func(verb string, object any, namespace string) error
		args   []string
		code   int
		want   []string
	}{
		"to list pods in the cluster": {
			refuse: func(verb string, object any, namespace string) error {
				if _, ok := object.(*corev1.PodList); ok && namespace == "" {
					return forbidden(verb, "", "pods", namespace)
				}
				return nil
			},
			code: ExitFailed,
			want: []string{`error: list detached pods: pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the cluster scope: ` +
				"grant the right to list pods in all namespaces, or name the namespaces to work in with --namespace\n"},
		},
		"to list pods in the cluster, which is not asked for": {
			refuse: func(verb string, object any, namespace string) error {
				if _, ok := object.(client.ObjectList); ok && namespace == "" {
					return forbidden(verb, "", "pods", namespace)
				}
				return nil
			},
			args: []string{"--namespace", "shop"},
			code: ExitDone,
		},
		"to read the restore": {
			refuse: func(verb string, object any, namespace string) error {
				if _, ok := object.(*velerov1.Restore); ok {
					return forbidden(verb, "velero.io", "restores", namespace)
				}
				return nil
			},
			code: ExitFailed,
			want: []string{"grant the right to get restores.velero.io in namespace velero\n"},
		},
		"to delete pods: the DeploymentConfig fails with the sentence": {
			refuse: func(verb string, object any, namespace string) error {
				if verb == "delete" {
					return forbidden(verb, "", "pods", namespace)
				}
				return nil
			},
			code: ExitFailed,
			want: []string{`cannot delete resource "pods" in API group "" in the namespace "shop"`, "error: 1 of 1 DeploymentConfigs of restore velero/monday failed\n"},
		},
		"to write events, which does not matter": {
			refuse: func(verb string, object any, namespace string) error {
				if _, ok := object.(*corev1.Event); ok {
					return forbidden(verb, "", "events", namespace)
				}
				return nil
			},
			code: ExitDone,
			want: []string{"warning: Event cannot be written: "},
		},
		"to read the settings, which are not needed": {
			refuse: func(verb string, object any, namespace string) error {
				if _, ok := object.(*corev1.ConfigMapList); ok {
					return forbidden(verb, "", "configmaps", namespace)
				}
				return nil
			},
			code: ExitDone,
			want: []string{"warning: list the plugin's ConfigMap in velero: ", "; going on with startTimeout 5m0s\n"},
		},
		"to anything, not being logged in": {
			refuse: func(string, any, string) error { return apierrors.NewUnauthorized("Unauthorized") },
			code:   ExitFailed,
			want:   []string{"error: get Restore velero/monday: Unauthorized: log in to the cluster first"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted))...)
				c.refuse = tc.refuse
				got := c.run(t, append([]string{"post-restore", "monday"}, tc.args...)...)
				assert.Equal(t, tc.code, got.code, got.errOut)
				for _, want := range tc.want {
					assert.Contains(t, got.errOut, want)
				}
			})
		})
	}
}

func TestPostRestoreDoesNotMindWrongSettings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := restoreIn(velerov1.RestorePhaseCompleted)
		r.Annotations = map[string]string{contract.ResumeAnnotation: "tomorrow"}
		c := newCluster(t, append(oneApplication(), r)...)
		got := c.run(t, "post-restore", "monday")
		assert.Equal(t, ExitDone, got.code, got.errOut)
		assert.Contains(t, got.errOut, `warning: settings for Restore velero/monday (no ConfigMap of the plugin): annotation oadp.openshift.io/dc-resume of the Restore is "tomorrow"`)
	})
}

func TestPostRestoreRunsOutOfTime(t *testing.T) {
	t.Parallel()
	waiting := func() []client.Object {
		return append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted),
			heldDC("bank", "ledger", "1"), detachedPod("bank", "ledger", "ledger-1-a", false))
	}
	unavailable := apierrors.NewServiceUnavailable("apiserver is shutting down")
	for name, tc := range map[string]struct {
		objects func() []client.Object
		prepare func(c *cluster, interrupt context.CancelFunc)
		args    []string
		code    int
		elapsed time.Duration
		out     []string
		errOut  []string
	}{
		"while data is on its way: what is ready is resumed": {
			objects: waiting, args: []string{"--timeout", "90s"}, code: ExitNotFinished, elapsed: 90 * time.Second,
			out:    []string{"not-finished   0/1    0 of 1 detached pod initialised", "resumed        -      back at 2 replicas"},
			errOut: []string{"error: time is up after 1m30s: 1 of 2 DeploymentConfigs of restore velero/monday are not finished. Nothing is lost: run this again\n"},
		},
		"interrupted by a person": {
			objects: waiting, code: ExitNotFinished, elapsed: 30 * time.Second,
			prepare: func(_ *cluster, interrupt context.CancelFunc) { time.AfterFunc(30*time.Second, interrupt) },
			out:     []string{"not-finished   0/1    0 of 1 detached pod initialised", "resumed        -      back at 2 replicas"},
			errOut:  []string{"error: interrupted: 1 of 2 DeploymentConfigs"},
		},
		"while the API server is away from the plan on: nothing passes for done": {
			objects: func() []client.Object { return append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted)) },
			prepare: func(c *cluster, _ context.CancelFunc) {
				lists := 0
				c.refuse = func(_ string, object any, _ string) error {
					if _, ok := object.(*ocpappsv1.DeploymentConfigList); ok {
						if lists++; lists > 1 {
							return unavailable
						}
					}
					return nil
				}
			},
			args: []string{"--timeout", "20s"}, code: ExitNotFinished, elapsed: 20 * time.Second,
			out:    []string{"not-finished   2/2    deleting 2 detached pods"},
			errOut: []string{"error: time is up after 20s: the cluster could not be looked at: list held DeploymentConfigs: apiserver is shutting down\n"},
		},
		"while the API server is away from the middle on: nothing passes for done": {
			objects: waiting,
			prepare: func(c *cluster, _ context.CancelFunc) {
				time.AfterFunc(5*time.Second, func() {
					c.mu.Lock()
					defer c.mu.Unlock()
					c.refuse = func(string, any, string) error { return unavailable }
				})
			},
			args: []string{"--timeout", "20s"}, code: ExitNotFinished, elapsed: 20 * time.Second,
			out:    []string{"not-finished   0/1    0 of 1 detached pod initialised"},
			errOut: []string{"cannot look at the cluster, trying again: list held DeploymentConfigs: apiserver is shutting down"},
		},
		"the API server is away for a moment only": {
			objects: func() []client.Object { return append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted)) },
			prepare: func(c *cluster, _ context.CancelFunc) {
				lists := 0
				c.refuse = func(_ string, object any, _ string) error {
					if _, ok := object.(*ocpappsv1.DeploymentConfigList); ok {
						if lists++; lists > 1 && lists < 5 {
							return unavailable
						}
					}
					return nil
				}
			},
			code: ExitDone, elapsed: 4 * time.Second, out: []string{"resumed   back at 2 replicas"},
		},
		"a change under its hands is tried again": {
			objects: func() []client.Object { return append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted)) },
			prepare: func(c *cluster, _ context.CancelFunc) {
				patches := 0
				c.refuse = func(verb string, _ any, _ string) error {
					if verb == "patch" {
						if patches++; patches == 1 {
							return apierrors.NewConflict(schema.GroupResource{Resource: "deploymentconfigs"}, "web", errors.New("changed"))
						}
					}
					return nil
				}
			},
			code: ExitDone, elapsed: 1200 * time.Millisecond, out: []string{"resumed   back at 2 replicas"},
			errOut: []string{"scaling to 2 replicas: not yet: patch DeploymentConfig shop/web: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, tc.objects()...)
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				if tc.prepare != nil {
					tc.prepare(c, interrupt)
				}
				start := time.Now()
				got := c.runIn(ctx, surroundings{getenv: inVelerosPod}, append([]string{"post-restore", "monday"}, tc.args...)...)
				assert.Equal(t, tc.code, got.code, got.errOut)
				assert.LessOrEqual(t, time.Since(start), tc.elapsed)
				for _, want := range tc.out {
					assert.Contains(t, got.out, want)
				}
				for _, want := range tc.errOut {
					assert.Contains(t, got.errOut, want)
				}
				assert.NotContains(t, got.out, "context")
			})
		})
	}
}

func TestPostRestoreOfWhatIsNotHeld(t *testing.T) {
	t.Parallel()
	live := heldDC("shop", "web", "2")
	live.Labels, live.Annotations = nil, nil
	byLabel := restoreIn(velerov1.RestorePhaseCompleted)
	byLabel.Spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}
	for name, tc := range map[string]struct {
		objects []client.Object
		code    int
		out     string
	}{
		"the pods of a DeploymentConfig that was at 0 before are deleted": {
			objects: []client.Object{restoreIn(velerov1.RestorePhaseCompleted), live, detachedPod("shop", "web", "web-3-a", true)},
			out:     "shop        web                pods-deleted   its detached pods are gone and nothing holds it\n",
		},
		"the pods of one that the restore did not choose are as they were": {
			objects: []client.Object{byLabel, detachedPod("shop", "web", "web-3-a", true)},
			out:     "shop        web                reattached   1/1    its DeploymentConfig was not chosen by this restore: 1 pod is restored as it was\n",
		},
		"pods without their DeploymentConfig are kept": {
			objects: []client.Object{restoreIn(velerov1.RestorePhaseCompleted), detachedPod("shop", "web", "web-3-a", true)},
			code:    ExitFailed,
			out: "shop        web                failed   1/1    the cluster has no such DeploymentConfig: 1 detached pod is kept, since it is the only copy of the data; " +
				"restore the DeploymentConfig, then run phase two\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, tc.objects...)
				got := c.run(t, "post-restore", "monday")
				assert.Equal(t, tc.code, got.code, got.errOut)
				assert.Contains(t, got.out, tc.out)
			})
		})
	}
}

func TestPostRestoreUsage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no restore":            {[]string{}, "name one restore, not 0"},
		"two restores":          {[]string{"a", "b"}, "name one restore, not 2"},
		"an empty name":         {[]string{""}, `"" is not the name of a Restore`},
		"a path for a name":     {[]string{"velero/monday"}, `"velero/monday" is not the name of a Restore`},
		"unknown flag":          {[]string{"monday", "--force"}, "unknown flag: --force"},
		"unknown format":        {[]string{"monday", "-o", "xml"}, "it is one of table, json, yaml"},
		"no time":               {[]string{"monday", "--timeout", "0"}, "--timeout is 0s"},
		"negative time":         {[]string{"monday", "--timeout", "-1m"}, "--timeout is -1m0s"},
		"an unset variable":     {[]string{"monday", "-n", ""}, "--namespace is empty"},
		"an unset second one":   {[]string{"monday", "-n", "shop,"}, `"" is not the name of a namespace`},
		"a pattern":             {[]string{"monday", "-n", "shop-*"}, `"shop-*" is not the name of a namespace`},
		"no Velero's namespace": {[]string{"monday", "--velero-namespace="}, `"" is not the name of a namespace`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted))...)
			got := c.run(t, append([]string{"post-restore"}, tc.args...)...)
			assert.Equal(t, ExitUsage, got.code)
			assert.Contains(t, got.errOut, "error: ")
			assert.Contains(t, got.errOut, tc.want)
			assert.Contains(t, got.errOut, "Run 'velero-plugin-for-openshift-dr post-restore --help' for usage.\n")
			assert.Empty(t, got.out)
			assert.Empty(t, c.writes)
		})
	}
}
