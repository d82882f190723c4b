// Package scripts_test runs the scripts with stand-ins for the programs they call.
package scripts_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const plugin = "/plugins/velero-plugin-for-openshift-dr"

// client stands in for oc and kubectl: it notes how it was called, one argument a line in brackets, and answers as the
// environment says.
const client = `#!/bin/bash
{ printf '%s' "${0##*/}"; for arg in "$@"; do printf ' [%s]' "$arg"; done; printf '\n'; } >>"$CALLS"
case "$*" in
  *" get deployment "*) printf '%s' "${GET_SAYS-}" >&2; exit "${GET_EXITS:-0}" ;;
  *" version") printf '%s' "${VERSION_SAYS-}" >&2; exit "${VERSION_EXITS:-0}" ;;
esac
printf 'out\n'
printf 'err\n' >&2
exit "${EXITS:-0}"
`

// ran is what a run of the script left behind.
type ran struct {
	code        int
	out, errOut string
	calls       []string
}

// run runs the script with the clients in its PATH and nothing else.
func run(t *testing.T, clients, env []string, args ...string) ran {
	t.Helper()
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	cmd, calls := command(t, clients, env, append([]string{bash, "dc-post-restore.sh"}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	code := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	return ran{code: code, out: out.String(), errOut: errOut.String(), calls: calls()}
}

func command(t *testing.T, clients, env []string, args ...string) (cmd *exec.Cmd, calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range clients {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(client), 0o755)) // #nosec G306 -- it is a program
	}
	noted := filepath.Join(dir, "calls")
	cmd = exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append([]string{"PATH=" + dir, "CALLS=" + noted}, env...)
	return cmd, func() []string {
		content, err := os.ReadFile(noted)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		require.NoError(t, err)
		return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	}
}

func TestPassesOn(t *testing.T) {
	t.Parallel()
	both := []string{"oc", "kubectl"}
	for name, tc := range map[string]struct {
		clients, env, args []string
		want               string
	}{
		"the restore, with oc":                     {clients: both, args: []string{"monday"}, want: "oc [-n] [openshift-adp] [exec] [deploy/velero] [-c] [velero] [--] [" + plugin + "] [post-restore] [monday]"},
		"with kubectl where there is no oc":        {clients: both[1:], args: []string{"monday"}, want: "kubectl [-n] [openshift-adp] [exec] [deploy/velero] [-c] [velero] [--] [" + plugin + "] [post-restore] [monday]"},
		"to the namespace of Velero":               {clients: both, env: []string{"OADP_NAMESPACE=backup"}, args: []string{"monday"}, want: "oc [-n] [backup] [exec] [deploy/velero] [-c] [velero] [--] [" + plugin + "] [post-restore] [monday]"},
		"options":                                  {clients: both, args: []string{"monday", "-n", "shop,bank", "--timeout=1m", "-o", "json"}, want: "[post-restore] [monday] [-n] [shop,bank] [--timeout=1m] [-o] [json]"},
		"options before the restore":               {clients: both, args: []string{"--dry-run", "monday"}, want: "[post-restore] [--dry-run] [monday]"},
		"the help of post-restore":                 {clients: both, args: []string{"monday", "--help"}, want: "[post-restore] [monday] [--help]"},
		"spaces, quotes, patterns, empty ones":     {clients: both, args: []string{"a b", "", `it's "x"`, "*", "$HOME"}, want: `[post-restore] [a b] [] [it's "x"] [*] [$HOME]`},
		"commands, which are only names":           {clients: both, args: []string{"$(exit 7);`exit 8`", "&& exit 9"}, want: "[post-restore] [$(exit 7);`exit 8`] [&& exit 9]"},
		"a name that is as long as can be":         {clients: both, args: []string{strings.Repeat("a", 253)}, want: "[" + strings.Repeat("a", 253) + "]"},
		"a namespace with a space in its variable": {clients: both, env: []string{"OADP_NAMESPACE=a b"}, args: []string{"monday"}, want: "oc [-n] [a b] [exec]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, tc.clients, tc.env, tc.args...)
			assert.Equal(t, 0, got.code, got.errOut)
			assert.Equal(t, "out\n", got.out)
			assert.Equal(t, "err\n", got.errOut)
			require.Len(t, got.calls, 3)
			assert.Contains(t, got.calls[2], tc.want)
		})
	}
}

func TestPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	for _, code := range []int{0, 1, 2, 3, 137} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			got := run(t, []string{"kubectl"}, []string{"EXITS=" + strconv.Itoa(code)}, "monday")
			assert.Equal(t, code, got.code)
			assert.Equal(t, "out\n", got.out)
			assert.Equal(t, "err\n", got.errOut)
		})
	}
}

func TestSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		clients, env, args []string
		code               int
		errOut             string
		calls              int
	}{
		"the restore":      {clients: []string{"oc"}, code: 2, errOut: "error: name the restore\n"},
		"an empty restore": {clients: []string{"oc"}, args: []string{""}, code: 2, errOut: "error: name the restore\n"},
		"both clients":     {args: []string{"monday"}, code: 1, errOut: "error: neither oc nor kubectl is in the PATH: install one of them and log in to the cluster\n"},
		"Velero's deployment": {
			clients: []string{"oc"}, env: []string{"GET_EXITS=1", "GET_SAYS=deployments velero not found"}, args: []string{"monday"}, code: 1, calls: 1,
			errOut: "error: no deployment velero in namespace openshift-adp: say where Velero runs with OADP_NAMESPACE. oc says: deployments velero not found\n",
		},
		"the plugin": {
			clients: []string{"kubectl"}, env: []string{"VERSION_EXITS=126", "VERSION_SAYS=no such file or directory"}, args: []string{"monday"}, code: 1, calls: 2,
			errOut: "error: cannot run " + plugin + " in the deployment velero of namespace openshift-adp: is the plugin installed (velero plugin add), " +
				"and is the pod up? kubectl says: no such file or directory\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, tc.clients, tc.env, tc.args...)
			assert.Equal(t, tc.code, got.code)
			assert.Contains(t, got.errOut, tc.errOut)
			assert.Empty(t, got.out)
			assert.Len(t, got.calls, tc.calls)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"-h", "--help"} {
		got := run(t, nil, nil, arg)
		assert.Equal(t, 0, got.code)
		assert.Contains(t, got.out, "dc-post-restore.sh RESTORE [options]")
		assert.Empty(t, got.errOut)
	}
}

// TestOnATerminal runs the script under script(1), which gives it a terminal.
func TestOnATerminal(t *testing.T) {
	t.Parallel()
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("script(1) is not installed, and nothing else here makes a terminal")
	}
	cmd, calls := command(t, []string{"oc"}, []string{"EXITS=3", "SHELL=/bin/bash"}, script, "--return", "--quiet", "--command", "/bin/bash dc-post-restore.sh 'a b'", "/dev/null")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(out))
	assert.Equal(t, 3, exit.ExitCode())
	require.Len(t, calls(), 3, string(out))
	assert.Contains(t, calls()[2], "[exec] [-i] [-t] [deploy/velero]")
	assert.Contains(t, calls()[2], "[post-restore] [a b]")
}
