package version_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/version"
)

// A test binary is built without the Makefile's flags and has no dependencies recorded: every field says so rather than
// being empty. The real values are tested on the built binary.
func TestGetWithoutBuildFlags(t *testing.T) {
	t.Parallel()
	got := version.Get()
	require.Equal(t, "devel", got.Version)
	require.Equal(t, "unknown", got.Commit)
	require.Equal(t, runtime.Version(), got.Go)
	require.NotEmpty(t, got.Velero)
}
