package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// anHourAgo is when the objects of these tests were made: the clock of a bubble starts at the same time in every one.
func anHourAgo(objects ...client.Object) []client.Object {
	for _, object := range objects {
		object.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Hour)))
	}
	return objects
}

// someHeld are two DeploymentConfigs of restore monday, one of which waits for data, and a pod of a restore that is gone.
func someHeld(phase velerov1.RestorePhase) []client.Object {
	alone := detachedPod("wiki", "pages", "pages-1-a", true)
	alone.Labels[contract.DisconnectedLabel] = "sunday"
	alone.Annotations[contract.RestoreAnnotation] = "velero/sunday"
	return anHourAgo(append(oneApplication(), restoreIn(phase),
		heldDC("bank", "ledger", "1"), detachedPod("bank", "ledger", "ledger-1-a", false), alone)...)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args   []string
		golden string
	}{
		"a table":         {nil, "status.txt"},
		"of everything":   {[]string{"-A"}, "status.txt"},
		"wide":            {[]string{"-o", "wide"}, "status-wide.txt"},
		"JSON":            {[]string{"-o", "json"}, "status.json"},
		"YAML":            {[]string{"-o", "yaml"}, "status.yaml"},
		"of a namespace":  {[]string{"-n", "wiki"}, "status-wiki.txt"},
		"of two, by twos": {[]string{"-n", "bank,shop", "-n", "shop"}, "status-two.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, someHeld(velerov1.RestorePhaseCompleted)...)
				got := c.run(t, append([]string{"status"}, tc.args...)...)
				assert.Equal(t, ExitNotFinished, got.code, got.errOut)
				golden(t, tc.golden, got.out+got.errOut)
				assert.NotContains(t, got.errOut, "error:")
				assert.Empty(t, c.writes)
			})
		})
	}
}

func TestStatusOfNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args        []string
		out, errOut string
	}{
		"in the cluster":   {nil, "", "Nothing is held in the cluster.\n"},
		"in two":           {[]string{"-n", "shop,bank"}, "", "Nothing is held in namespaces bank, shop.\n"},
		"wide":             {[]string{"-o", "wide", "-n", "shop"}, "", "Nothing is held in namespace shop.\n"},
		"JSON for scripts": {[]string{"-o", "json"}, "{\n  \"items\": []\n}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newCluster(t, restoreIn(velerov1.RestorePhaseCompleted)).run(t, append([]string{"status"}, tc.args...)...)
			assert.Equal(t, ran{code: ExitDone, out: tc.out, errOut: tc.errOut}, got)
		})
	}
}

func TestStatusWithoutRights(t *testing.T) {
	t.Parallel()
	refusePods := func(verb string, object any, namespace string) error {
		if _, ok := object.(*corev1.PodList); ok && namespace == "" {
			return forbidden(verb, "", "pods", namespace)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		refuse func(verb string, object any, namespace string) error
		args   []string
		code   int
		want   string
	}{
		"to list pods in the cluster": {
			refuse: refusePods, code: ExitFailed,
			want: "grant the right to list pods in all namespaces, or name the namespaces to work in with --namespace\n",
		},
		"to list pods in the cluster, which is not asked for": {refuse: refusePods, args: []string{"-n", "shop"}, code: ExitNotFinished},
		"to read restores": {
			refuse: func(verb string, object any, namespace string) error {
				if _, ok := object.(*velerov1.RestoreList); ok {
					return forbidden(verb, "velero.io", "restores", namespace)
				}
				return nil
			},
			code: ExitFailed, want: "error: list Restores in velero: restores.velero.io is forbidden: ",
		},
		"while the API server is away": {
			refuse: func(string, any, string) error { return apierrors.NewServiceUnavailable("going down") },
			code:   ExitFailed, want: "error: list DeploymentConfigs: going down\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, someHeld(velerov1.RestorePhaseCompleted)...)
				c.refuse = tc.refuse
				got := c.run(t, append([]string{"status"}, tc.args...)...)
				assert.Equal(t, tc.code, got.code)
				assert.Contains(t, got.errOut, tc.want)
				if tc.code == ExitFailed {
					assert.Empty(t, got.out, "nothing, rather than a part")
				}
			})
		})
	}
}

func TestStatusUsage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a restore":        {[]string{"monday"}, "unknown command \"monday\""},
		"both":             {[]string{"-A", "-n", "shop"}, "both --namespace and --all-namespaces are set: choose one"},
		"an unset name":    {[]string{"-n", ""}, "--namespace is empty"},
		"a pattern":        {[]string{"-n", "shop-*"}, `"shop-*" is not the name of a namespace`},
		"unknown format":   {[]string{"-o", "xml"}, "it is one of table, wide, json, yaml"},
		"negative timeout": {[]string{"--timeout", "-1s"}, "--timeout is -1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newCluster(t).run(t, append([]string{"status"}, tc.args...)...)
			assert.Equal(t, ExitUsage, got.code)
			assert.Contains(t, got.errOut, tc.want)
			assert.Empty(t, got.out)
		})
	}
}

// watched runs a watch of 9 seconds, which looks 5 times, and changes the cluster after 3.
func watched(t *testing.T, change func(*cluster), s surroundings, args ...string) ran {
	t.Helper()
	var got ran
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, someHeld(velerov1.RestorePhaseWaitingForPluginOperations)...)
		timer := time.AfterFunc(3*time.Second, func() { change(c) })
		defer timer.Stop()
		s.getenv = inVelerosPod
		got = c.runIn(t.Context(), s, append([]string{"status", "--watch", "--timeout", "9s"}, args...)...)
	})
	return got
}

func remove(t *testing.T, c *cluster, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		require.NoError(t, c.client.Delete(context.Background(), object))
	}
}

func TestStatusWatchPrintsChanges(t *testing.T) {
	t.Parallel()
	got := watched(t, func(c *cluster) {
		remove(t, c, heldDC("shop", "web", "2"), detachedPod("shop", "web", "web-3-a", true), detachedPod("shop", "web", "web-3-b", true))
	}, surroundings{})
	assert.Equal(t, ExitNotFinished, got.code)
	golden(t, "status-changes.txt", got.out+got.errOut)
}

func TestStatusWatchEndsWithNothingHeld(t *testing.T) {
	t.Parallel()
	got := watched(t, func(c *cluster) {
		for _, list := range []client.Object{&corev1.Pod{}, &ocpappsv1.DeploymentConfig{}} {
			for _, namespace := range []string{"shop", "bank", "wiki"} {
				require.NoError(t, c.client.DeleteAllOf(context.Background(), list, client.InNamespace(namespace)))
			}
		}
	}, surroundings{})
	assert.Equal(t, ExitDone, got.code, got.errOut)
	assert.Contains(t, got.out, "shop/web: not held any more\n")
	assert.True(t, strings.HasSuffix(got.out, "  nothing is held in the cluster\n"), got.out)
}

func TestStatusWatchDrawsOnATerminal(t *testing.T) {
	t.Parallel()
	got := watched(t, func(c *cluster) { remove(t, c, detachedPod("wiki", "pages", "pages-1-a", true)) },
		surroundings{outScreen: func() (int, int, bool) { return 100, 40, true }})
	assert.Equal(t, ExitNotFinished, got.code)
	assert.Empty(t, got.errOut, "everything is in the picture")
	pictures := strings.Split(got.out, "\x1b[J")
	assert.Len(t, pictures, 5, "one every two seconds")
	assert.Contains(t, pictures[0], "\nwiki")
	golden(t, "status-terminal.txt", pictures[4])
	for line := range strings.Lines(pictures[4]) {
		assert.Less(t, len([]rune(strings.TrimSuffix(line, "\n"))), 100, "a full line would be wrapped")
	}
}

func TestStatusWatchOnALowTerminal(t *testing.T) {
	t.Parallel()
	got := watched(t, func(*cluster) {}, surroundings{outScreen: func() (int, int, bool) { return 60, 4, true }})
	last := got.out[strings.LastIndex(got.out, "\x1b[J")+len("\x1b[J"):]
	assert.Equal(t, 3, strings.Count(last, "\n"))
	assert.Contains(t, last, "… and ")
}

func TestStatusWatchOfDocuments(t *testing.T) {
	t.Parallel()
	got := watched(t, func(c *cluster) { remove(t, c, detachedPod("wiki", "pages", "pages-1-a", true)) }, surroundings{}, "-o", "yaml")
	documents := strings.Split(got.out, "---\n")
	assert.Len(t, documents, 2, "one for the beginning, one for the change")
	assert.Contains(t, documents[0], "pages")
	assert.NotContains(t, documents[1], "pages")
}

func TestStatusWatchOutlivesAnAPIServerThatIsAway(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		code   int
		errOut string
	}{
		"for a while":         {apierrors.NewServiceUnavailable("going down"), ExitNotFinished, "cannot look at the cluster, trying again: list DeploymentConfigs: going down\n"},
		"or says no for good": {forbidden("list", "apps.openshift.io", "deploymentconfigs", ""), ExitFailed, "grant the right to list deploymentconfigs.apps.openshift.io in all namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := watched(t, func(c *cluster) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.refuse = func(string, any, string) error { return tc.err }
			}, surroundings{})
			assert.Equal(t, tc.code, got.code)
			assert.Contains(t, got.errOut, tc.errOut)
		})
	}
}

func TestStatusThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"-w"}, {"-w", "-o", "json"}} {
		c := newCluster(t, oneApplication()...)
		s := surroundings{
			out: brokenPipe{}, errOut: &bytes.Buffer{}, getenv: inVelerosPod, clock: realClock, outScreen: noScreen,
			connect: func(*connection) (client.Client, error) { return c.client, nil },
		}
		assert.Equal(t, ExitFailed, execute(t.Context(), append([]string{"status"}, args...), s), "%v", args)
	}
}
