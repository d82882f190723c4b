package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runInstall runs the command with a file in the place of this program.
func runInstall(t *testing.T, program string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = execute(t.Context(), append([]string{"install"}, args...), surroundings{
		out: &stdout, errOut: &stderr, getenv: nowhere,
		readFile:   func(string) ([]byte, error) { return nil, fs.ErrNotExist },
		executable: func() (string, error) { return program, nil },
	})
	return code, stdout.String(), stderr.String()
}

// writeProgram writes a file that stands for this program.
func writeProgram(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o500))
	return path
}

// requireInstalled checks that the folder holds the program, for everybody to run, and nothing else.
func requireInstalled(t *testing.T, target, content string) {
	t.Helper()
	entries, err := os.ReadDir(target)
	require.NoError(t, err)
	require.Len(t, entries, 1, "Velero runs every file there")
	require.Equal(t, binary, entries[0].Name())
	info, err := entries[0].Info()
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode())
	got, err := os.ReadFile(filepath.Join(target, binary))
	require.NoError(t, err)
	require.Equal(t, content, string(got))
}

func TestInstall(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, target string){
		"into an empty folder": func(*testing.T, string) {},
		"over an older one": func(t *testing.T, target string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(target, binary), []byte("a longer old version"), 0o400))
		},
		"over what an interrupted run left": func(t *testing.T, target string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(target, "."+binary+".unfinished"), []byte("ha"), 0o400))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := t.TempDir()
			prepare(t, target)
			program := writeProgram(t, "version 2")
			for range 2 { // again: the same
				code, out, errOut := runInstall(t, program, target)
				require.Equal(t, ExitDone, code, errOut)
				assert.Equal(t, "installed "+filepath.Join(target, binary)+"\n", out)
				requireInstalled(t, target, "version 2")
			}
		})
	}
}

func TestB37_InstallOverARunningOne(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	old, err := os.ReadFile(sleep)
	require.NoError(t, err)
	target := t.TempDir()
	path := filepath.Join(target, binary)
	require.NoError(t, os.WriteFile(path, old, 0o500))
	cmd := exec.CommandContext(t.Context(), path, "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	require.ErrorContains(t, os.WriteFile(path, nil, 0o500), "text file busy", "else this test shows nothing")

	code, _, errOut := runInstall(t, writeProgram(t, "version 2"), target)
	require.Equal(t, ExitDone, code, errOut)
	requireInstalled(t, target, "version 2")
	require.NoError(t, cmd.Process.Kill(), "it goes on running")
}

func TestInstallFails(t *testing.T) {
	t.Parallel()
	file := writeProgram(t, "version 2")
	for name, tc := range map[string]struct {
		program string
		args    []string
		code    int
		want    string
	}{
		"without a folder":              {file, nil, ExitUsage, "accepts 1 arg"},
		"into a folder that is missing": {file, []string{"/no/such/folder"}, ExitFailed, "there is no such folder: mount the volume"},
		"into a file":                   {file, []string{file}, ExitFailed, "it is no folder"},
		"when the program has gone":     {"/no/such/program", []string{t.TempDir()}, ExitFailed, "copy this program to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := runInstall(t, tc.program, tc.args...)
			assert.Equal(t, tc.code, code)
			assert.Empty(t, out)
			assert.Contains(t, errOut, tc.want)
		})
	}
	t.Run("into a folder that it may not write to, and leaves nothing", func(t *testing.T) {
		t.Parallel()
		target := t.TempDir()
		// A folder in the place of the program: root may write anywhere, but not over that.
		require.NoError(t, os.MkdirAll(filepath.Join(target, binary, "x"), 0o700))
		code, _, errOut := runInstall(t, file, target)
		assert.Equal(t, ExitFailed, code)
		assert.Contains(t, errOut, "put the program in place")
		entries, err := os.ReadDir(target)
		require.NoError(t, err)
		assert.Len(t, entries, 1)
	})
	t.Run("when it does not know where it is", func(t *testing.T) {
		t.Parallel()
		var out, errOut bytes.Buffer
		code := execute(t.Context(), []string{"install", t.TempDir()}, surroundings{
			out: &out, errOut: &errOut, getenv: nowhere,
			readFile:   func(string) ([]byte, error) { return nil, fs.ErrNotExist },
			executable: func() (string, error) { return "", errors.New("no /proc") },
		})
		assert.Equal(t, ExitFailed, code)
		assert.Contains(t, errOut.String(), "find this program: no /proc")
	})
}
