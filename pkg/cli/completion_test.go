package cli

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestCompletion asks as the scripts of the shells do, which themselves drop what does not begin with what was typed.
func TestCompletion(t *testing.T) {
	t.Parallel()
	elsewhere := restoreIn(velerov1.RestorePhaseCompleted)
	elsewhere.Namespace, elsewhere.Name = "openshift-adp", "friday"
	tuesday := restoreIn("")
	tuesday.Name = "tuesday"
	objects := []client.Object{restoreIn(velerov1.RestorePhaseCompleted), tuesday, elsewhere, namespaceNamed("shop"), namespaceNamed("shelf"), namespaceNamed("bank")}
	for name, tc := range map[string]struct {
		typed []string
		want  []string
	}{
		"commands":                        {[]string{""}, []string{"completion\t", "help\t", "install\t", "post-restore\t", "status\t", "version\t"}},
		"restores, with their phases":     {[]string{"post-restore", ""}, []string{"monday\tCompleted", "tuesday\tNew"}},
		"restores of another Velero":      {[]string{"post-restore", "--velero-namespace", "openshift-adp", ""}, []string{"friday\tCompleted"}},
		"no second restore":               {[]string{"post-restore", "monday", ""}, nil},
		"namespaces":                      {[]string{"status", "-n", "sh"}, []string{"bank", "shelf", "shop"}},
		"namespaces, after a comma":       {[]string{"post-restore", "-n", "shop,"}, []string{"shop,bank", "shop,shelf"}},
		"the namespace of Velero":         {[]string{"post-restore", "--velero-namespace", "b"}, []string{"bank", "shelf", "shop"}},
		"formats of status":               {[]string{"status", "-o", ""}, []string{"table", "wide", "json", "yaml"}},
		"formats of post-restore":         {[]string{"post-restore", "monday", "-o", ""}, []string{"table", "json", "yaml"}},
		"formats of version":              {[]string{"version", "-o", "j"}, []string{"text", "json", "yaml"}},
		"shells":                          {[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
		"nothing where there is no names": {[]string{"status", ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, objects...)
			got := c.run(t, append([]string{cobra.ShellCompRequestCmd}, tc.typed...)...)
			require.Equal(t, ExitDone, got.code, got.errOut)
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			if !strings.HasPrefix(name, "nothing") {
				assert.Equal(t, ":4", lines[len(lines)-1], "no names of files")
			}
			var found []string
			for _, line := range lines[:len(lines)-1] {
				if strings.HasPrefix(name, "commands") {
					line = line[:strings.Index(line, "\t")+1] // without what it is
				}
				found = append(found, line)
			}
			assert.Equal(t, tc.want, found)
		})
	}
}

func TestCompletionMakesNoNoise(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*cluster){
		"without rights": func(c *cluster) {
			c.refuse = func(verb string, _ any, namespace string) error {
				return forbidden(verb, "velero.io", "restores", namespace)
			}
		},
		"while the API server hangs": func(c *cluster) {
			c.refuse = func(string, any, string) error {
				time.Sleep(2 * completionTimeout) //nolint:forbidigo // takes no time: synctest's clock jumps
				return context.DeadlineExceeded
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, restoreIn(velerov1.RestorePhaseCompleted))
				prepare(c)
				got := c.run(t, cobra.ShellCompNoDescRequestCmd, "post-restore", "")
				assert.Equal(t, ExitDone, got.code)
				assert.Equal(t, ":4\n", got.out)
				assert.NotContains(t, got.errOut, "rror")
			})
		})
	}
	t.Run("without a cluster", func(t *testing.T) {
		t.Parallel()
		var out, errOut strings.Builder
		code := Run([]string{cobra.ShellCompNoDescRequestCmd, "post-restore", "--kubeconfig", filepath.Join(t.TempDir(), "none"), ""}, strings.NewReader(""), &out, &errOut)
		assert.Equal(t, ExitDone, code)
		assert.Equal(t, ":4\n", out.String())
		assert.NotContains(t, errOut.String(), "rror")
	})
}

// TestCompletionScripts lets each shell that is there read its script.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, check := range map[string][]string{"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"}} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			got := newCluster(t).run(t, "completion", shell)
			require.Equal(t, ExitDone, got.code, got.errOut)
			assert.Contains(t, got.out, binary)
			if _, err := exec.LookPath(check[0]); err != nil {
				t.Skipf("%s is not installed: its script is not read", shell)
			}
			cmd := exec.CommandContext(t.Context(), check[0], append(check[1:], "/dev/stdin")...)
			cmd.Stdin = strings.NewReader(got.out)
			said, err := cmd.CombinedOutput()
			assert.NoError(t, err, string(said))
		})
	}
	got := newCluster(t).run(t, "completion", "tcsh")
	assert.Equal(t, ExitUsage, got.code)
	assert.Equal(t, ExitFailed, execute(t.Context(), []string{"completion", "bash"}, surroundings{
		out: brokenPipe{}, errOut: io.Discard, getenv: nowhere, readFile: noFile,
	}))
}
