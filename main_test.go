package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt/process"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework/common"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// TestMain makes the test binary pass for a Velero server: the registry starts os.Args[0] with `run-plugins` for Velero's
// own plugins, and hands every plugin the server's flags, os.Args[2:] (velero pkg/plugin/clientmgmt/process).
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run-plugins" {
		framework.NewServer().Serve()
		return
	}
	flag.Parse()
	os.Args = []string{os.Args[0], "server", "--log-level", "debug", "--features", "EnableCSI"}
	os.Exit(m.Run())
}

// build builds the binary as the Makefile does, into a directory of its own.
func build(t *testing.T) string {
	t.Helper()
	const version = "github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/version"
	binary := filepath.Join(t.TempDir(), "velero-plugin-for-openshift-dr")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // nothing is built yet on a fresh clone
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X "+version+".version=v1.2.3 -X "+version+".commit=abc1234", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return binary
}

// run runs the binary by hand.
func run(t *testing.T, binary string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...) // no cluster
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func registryOf(t *testing.T, log logrus.FieldLogger, binary string) process.Registry {
	t.Helper()
	registry := process.NewRegistry(filepath.Dir(binary), log, logrus.DebugLevel)
	require.NoError(t, registry.DiscoverPlugins(), "a Velero server would not start")
	return registry
}

//nolint:paralleltest // it changes the environment, which the plugin processes inherit
func TestBinary(t *testing.T) {
	binary := build(t)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")

	t.Run("Velero lists its actions, without a cluster", func(t *testing.T) {
		registry := registryOf(t, testkit.Logger(t), binary)
		var got []string
		for _, kind := range slices.Sorted(maps.Keys(common.AllPluginKinds())) {
			for _, action := range registry.List(common.PluginKind(kind)) {
				got = append(got, kind+" "+action.Name)
			}
		}
		want, err := os.ReadFile("testdata/actions.golden")
		require.NoError(t, err)
		if diff := cmp.Diff(strings.Fields(string(want)), strings.Fields(strings.Join(got, "\n"))); diff != "" {
			t.Errorf("actions of the built binary (-testdata/actions.golden +got): a badly formed name is silently absent, a changed one breaks the running operations of an upgrade\n%s", diff)
		}
	})

	t.Run("an action without a cluster says so", func(t *testing.T) {
		log := testkit.Logger(t)
		manager := clientmgmt.NewManager(log, logrus.DebugLevel, registryOf(t, log, binary))
		defer manager.CleanupClients()
		_, err := appliesTo(manager, contract.PodRestoreAction)
		require.ErrorContains(t, err, "find the cluster that this plugin runs in")
	})

	t.Run("Velero calls its actions", func(t *testing.T) { callActions(t, binary) })

	t.Run("Velero calls its backup actions", func(t *testing.T) { callBackupActions(t, binary) })

	t.Run("version", func(t *testing.T) {
		stdout, stderr, code := run(t, binary, nil, "version")
		require.Zero(t, code, stderr)
		require.Empty(t, stderr)
		require.Equal(t, []string{"Version:", "v1.2.3", "Commit:", "abc1234", "Go:", runtime.Version(), "Velero:", "v1.18.3"}, strings.Fields(stdout))
	})

	t.Run("started by hand it shows help", func(t *testing.T) {
		for _, args := range [][]string{nil, {"--help"}, {"help"}} {
			stdout, stderr, code := run(t, binary, nil, args...)
			require.Zero(t, code, "%v: %s", args, stderr)
			require.Contains(t, stdout, "velero plugin add", "%v", args)
			require.Contains(t, stdout, "post-restore", "%v", args)
		}
	})

	t.Run("an unknown command is a usage error, not a plugin", func(t *testing.T) {
		stdout, stderr, code := run(t, binary, nil, "run-plugins")
		require.Equal(t, 2, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, `unknown command "run-plugins"`)
	})

	t.Run("post-restore without a cluster says so", func(t *testing.T) {
		_, stderr, code := run(t, binary, nil, "post-restore", "r")
		require.Equal(t, 1, code, stderr)
		require.Contains(t, stderr, "error: ")
	})

	t.Run("it is one file that needs nothing beside it", func(t *testing.T) {
		info, err := os.Stat(binary)
		require.NoError(t, err)
		t.Logf("%.1f MB", float64(info.Size())/1e6)
		require.Less(t, info.Size(), int64(80e6), "has something brought in Velero's uploaders?")
	})
}

// appliesTo starts the plugin's process and asks an action what it applies to.
func appliesTo(manager clientmgmt.Manager, name string) (riav2.RestoreItemAction, error) {
	action, err := manager.GetRestoreItemActionV2(name)
	if err != nil {
		return nil, err
	}
	_, err = action.AppliesTo()
	return action, err
}

// callActions calls the built binary as a Velero server does, over an API server that has nothing in it.
func callActions(t *testing.T, binary string) {
	t.Helper()
	var away atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := func(body string) {
			if _, err := io.WriteString(w, body); err != nil {
				t.Error(err)
			}
		}
		switch {
		case away.Load():
			w.WriteHeader(http.StatusForbidden)
			answer(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"velero may not list"}`)
		case strings.HasSuffix(r.URL.Path, "/pods"):
			answer(`{"kind":"PodList","apiVersion":"v1","items":[]}`)
		case strings.HasSuffix(r.URL.Path, "/deploymentconfigs"):
			answer(`{"kind":"DeploymentConfigList","apiVersion":"apps.openshift.io/v1","items":[]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer api.Close()
	t.Setenv("KUBECONFIG", kubeconfig(t, api.URL))
	log, entries := testkit.RecordingLogger(t)
	manager := clientmgmt.NewManager(log, logrus.DebugLevel, registryOf(t, log, binary))
	defer manager.CleanupClients()

	action, err := appliesTo(manager, contract.DeploymentConfigRestoreAction)
	require.NoError(t, err)
	r := testkit.RestoreNamed("r").Result()
	input := testkit.Input(r, testkit.MakeDC("shop", "web").Annotation(contract.StockBackupAnnotation, "true").Obj())
	output, err := action.Execute(input)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(input.Item.UnstructuredContent(), output.UpdatedItem.UnstructuredContent()), "an item is not changed on its way")
	require.Equal(t, "dc/v1/uid-of-r/shop/web", output.OperationID)

	_, err = action.Progress("of another restore", r)
	require.ErrorContains(t, err, "operation ID of another restore is invalid")

	rcs, err := appliesTo(manager, contract.ReplicationControllerRestoreAction)
	require.NoError(t, err)
	_, err = rcs.Execute(testkit.Input(r, testkit.MakePlainRC("shop", "rc").Obj()))
	require.NoError(t, err)
	pods, err := appliesTo(manager, contract.PodRestoreAction)
	require.NoError(t, err)
	skipped, err := pods.Execute(testkit.Input(r, testkit.MakeDeployerPod("shop", "web", 1).Obj()))
	require.NoError(t, err)
	require.True(t, skipped.SkipRestore)

	away.Store(true)
	_, err = action.Execute(testkit.Input(r, testkit.MakeDC("blog", "web").Obj()))
	require.ErrorContains(t, err, "decide on DeploymentConfig blog/web")
	require.ErrorContains(t, err, "velero may not list")

	// The decision reaches the restore's log with its fields.
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(entries.AllEntries(), func(e *logrus.Entry) bool {
			return e.Data[contract.LogDecision] == "skipped" && e.Data[contract.LogName] == "web-1-deploy" && e.Level == logrus.InfoLevel
		})
	}, 10*time.Second, 10*time.Millisecond)
}

// callBackupActions calls the built binary as a Velero server does for a backup, over an API server that has nothing in it.
func callBackupActions(t *testing.T, binary string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`
		if !strings.HasSuffix(r.URL.Path, "/configmaps") {
			w.WriteHeader(http.StatusNotFound)
			body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Error(err)
		}
	}))
	defer api.Close()
	t.Setenv("KUBECONFIG", kubeconfig(t, api.URL))
	log, entries := testkit.RecordingLogger(t)
	manager := clientmgmt.NewManager(log, logrus.DebugLevel, registryOf(t, log, binary))
	defer manager.CleanupClients()

	for _, action := range []struct {
		name string
		item *testkit.Ramen
	}{
		{contract.VRGBackupAction, testkit.MakeVRG("ramen-ops", "v").RecipeRef("app", "r")},
		{contract.RecipeBackupAction, testkit.MakeRecipe("app", "r")},
	} {
		backups, err := manager.GetBackupItemActionV2(action.name)
		require.NoError(t, err)
		selector, err := backups.AppliesTo()
		require.NoError(t, err)
		require.Len(t, selector.IncludedResources, 1)
		output, brings, operation, _, err := backups.Execute(action.item.Obj(), testkit.BackupNamed("b").Result())
		require.NoError(t, err)
		require.Empty(t, brings)
		require.Empty(t, operation)
		require.Equal(t, action.item.Obj().Object["spec"], output.UnstructuredContent()["spec"])
	}
	// What makes the backup PartiallyFailed reaches its log as an error, with the sentence as its message.
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(entries.AllEntries(), func(e *logrus.Entry) bool {
			return e.Level == logrus.ErrorLevel && e.Data[contract.LogName] == "v" && strings.HasPrefix(e.Message, "Recipe app/r of VRG ramen-ops/v is not in this backup")
		})
	}, 10*time.Second, 10*time.Millisecond)
}

// kubeconfig returns the path of a file that names an API server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
