package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/version"
)

func TestRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args   []string
		code   int
		out    string
		errOut string
	}{
		"nothing: what this is":   {nil, ExitDone, "This is a Velero plugin", ""},
		"help":                    {[]string{"help"}, ExitDone, "post-restore", ""},
		"help of a command":       {[]string{"help", "post-restore"}, ExitDone, "Exit codes:", ""},
		"--help":                  {[]string{"--help"}, ExitDone, "velero plugin add IMAGE", ""},
		"post-restore --help":     {[]string{"post-restore", "--help"}, ExitDone, "--accept-data-loss", ""},
		"version":                 {[]string{"version"}, ExitDone, "Velero:   ", ""},
		"version with too much":   {[]string{"version", "please"}, ExitUsage, "", "error: unknown command \"please\""},
		"version in a bad format": {[]string{"version", "-o", "table"}, ExitUsage, "", "it is one of text, json, yaml"},
		"unknown command":         {[]string{"restore"}, ExitUsage, "", "error: unknown command \"restore\""},
		"unknown flag":            {[]string{"--force"}, ExitUsage, "", "error: unknown flag: --force"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			assert.Equal(t, tc.code, Run(tc.args, strings.NewReader(""), &out, &errOut))
			assert.Contains(t, out.String(), tc.out)
			assert.Contains(t, errOut.String(), tc.errOut)
			if tc.code == ExitDone {
				assert.Empty(t, errOut.String())
			} else {
				assert.Empty(t, out.String(), "only results go to stdout")
				assert.Contains(t, errOut.String(), "--help' for usage.\n")
			}
		})
	}
}

func noFile(string) ([]byte, error) { return nil, fs.ErrNotExist }

// TestHelp holds every command to the form of a manual page: what it does, in lines that fit a terminal, and examples
// that name the program as it is called.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := newRoot(surroundings{getenv: nowhere, readFile: noFile})
	for _, cmd := range append(root.Commands(), root) {
		assert.NotEmpty(t, cmd.Short, cmd.CommandPath())
		assert.Positive(t, strings.Count(cmd.Long, "\n"), "%s has no description", cmd.CommandPath())
		assert.Contains(t, cmd.Example, binary, "%s has no example", cmd.CommandPath())
		for line := range strings.Lines(cmd.Long) {
			assert.LessOrEqual(t, len(line), 130, line)
		}
		for line := range strings.Lines(cmd.Example) {
			assert.True(t, line == "\n" || strings.HasPrefix(line, "  "), "%s: an example is not indented: %q", cmd.CommandPath(), line)
		}
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			assert.NotEmpty(t, flag.Usage, "%s --%s", cmd.CommandPath(), flag.Name)
		})
		help := newCluster(t).run(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		assert.Equal(t, ExitDone, help.code)
		assert.Contains(t, help.out, cmd.Long)
		assert.Contains(t, help.out, cmd.Example)
	}
}

func TestVersionFormats(t *testing.T) {
	t.Parallel()
	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, into any) error { return yaml.UnmarshalStrict(data, into) },
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			require.Equal(t, ExitDone, Run([]string{"version", "-o", format}, strings.NewReader(""), &out, &errOut), errOut.String())
			var info version.Info
			require.NoError(t, decode(out.Bytes(), &info))
			assert.Equal(t, version.Get(), info)
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestResultsThatCannotBeWrittenAreAFailure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"version", "-o", "json"}, {"version", "-o", "yaml"}} {
		var errOut bytes.Buffer
		assert.Equal(t, ExitFailed, Run(args, strings.NewReader(""), brokenPipe{}, &errOut))
		assert.Contains(t, errOut.String(), "broken pipe")
	}
}

func TestVeleroNamespace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env, file string
		want      string
		guessed   bool
	}{
		"the variable of Velero's pod": {env: "openshift-adp", file: "other", want: "openshift-adp"},
		"the pod's own namespace":      {file: "openshift-adp\n", want: "openshift-adp"},
		"an empty file":                {file: "\n", want: "velero", guessed: true},
		"outside a pod":                {want: "velero", guessed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, guessed := surroundings{
				getenv: func(string) string { return tc.env },
				readFile: func(string) ([]byte, error) {
					if tc.file == "" {
						return nil, fs.ErrNotExist
					}
					return []byte(tc.file), nil
				},
			}.veleroNamespace()
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.guessed, guessed)
		})
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err        error
		namespaces []string
		want       string
	}{
		"in the cluster":             {forbidden("list", "", "pods", ""), nil, ": grant the right to list pods in all namespaces, or name the namespaces to work in with --namespace"},
		"in the cluster, of a group": {forbidden("list", "apps.openshift.io", "deploymentconfigs", ""), []string{"shop"}, ": grant the right to list deploymentconfigs.apps.openshift.io in all namespaces"},
		"in a namespace":             {forbidden("patch", "apps.openshift.io", "deploymentconfigs/status", "shop"), nil, ": grant the right to patch deploymentconfigs/status.apps.openshift.io in namespace shop"},
		"anything else is left":      {errors.New("no route to host"), nil, "no route to host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := explain(tc.err, tc.namespaces)
			require.ErrorIs(t, got, tc.err)
			assert.True(t, strings.HasSuffix(got.Error(), tc.want), got.Error())
		})
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://one.example.com"}}
- {name: two, cluster: {server: "https://two.example.com"}}
contexts:
- {name: one, context: {cluster: one, user: jane}}
- {name: two, context: {cluster: two, user: jane}}
users:
- {name: jane, user: {token: secret}}
`

func TestConnection(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(kubeconfig), 0o600))
	for name, tc := range map[string]struct {
		args []string
		host string
		as   string
	}{
		"the current context": {[]string{"--kubeconfig", path}, "https://one.example.com", ""},
		"another context":     {[]string{"--kubeconfig", path, "--context", "two"}, "https://two.example.com", ""},
		"as somebody else":    {[]string{"--kubeconfig", path, "--as", "admin", "--as-group", "ops"}, "https://one.example.com", "admin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c connection
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			c.addFlags(flags)
			require.NoError(t, flags.Parse(tc.args))
			config, err := c.config()
			require.NoError(t, err)
			assert.Equal(t, tc.host, config.Host)
			assert.Equal(t, tc.as, config.Impersonate.UserName)
		})
	}
}
