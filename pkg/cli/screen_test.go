package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asScreen makes this test's own program say what it takes its stderr for, and end.
const asScreen = "TELL_THE_SCREEN"

// TestScreenOf runs itself on a real terminal, which script(1) makes.
func TestScreenOf(t *testing.T) {
	t.Parallel()
	if os.Getenv(asScreen) != "" {
		width, height, ok := screenOf(os.Stderr)()
		fmt.Printf("screen %d %d %t\n", width, height, ok)
		os.Exit(0)
	}
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("script(1) is not installed: there is no terminal to run on")
	}
	self := os.Args[0] + " -test.run=^TestScreenOf$"
	for name, tc := range map[string]struct {
		command, term string
		want          string
	}{
		"a terminal, by its size":                    {"stty cols 91 rows 17; " + self, "xterm", "screen 91 17 true"},
		"a pipe":                                     {self + " 2>&1 | cat", "xterm", "screen 0 0 false"},
		"a terminal that cannot move its cursor":     {"stty cols 91 rows 17; " + self, "dumb", "screen 0 0 false"},
		"a terminal that does not know its own size": {"stty cols 0 rows 0; " + self, "xterm", "screen 0 0 false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "script", "--quiet", "--return", "--command", tc.command, filepath.Join(t.TempDir(), "typescript"))
			cmd.Env = append(os.Environ(), asScreen+"=1", "TERM="+tc.term)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			assert.Contains(t, strings.ReplaceAll(string(out), "\r", ""), tc.want)
		})
	}
}
