package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"a short text is one line":         {"tea for two", []string{"tea for two"}},
		"a long one breaks between words":  {"tea for two and two", []string{"tea for two", "and two"}},
		"a line may be as long as allowed": {"tea for twoo", []string{"tea for twoo"}},
		"a long word stays whole":          {"a word-of-15-runes here", []string{"a", "word-of-15-runes", "here"}},
		"letters count, not bytes":         {"thé thé thé", []string{"thé thé thé"}},
		"no text is an empty line":         {"", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, wrap(tc.text, 12))
		})
	}
}

// described is what `velero restore describe` prints, cut short.
const described = `Name:         shop
Namespace:    velero

Phase:                                 InProgress
Estimated total items to be restored:  16

Namespaces:
  Included:  all namespaces found in the backup

kopia Restores (specify --details for more information):
  New:  1

Restore Item Operations:
  Operation for deploymentconfigs.apps.openshift.io shop/shop:
    Phase:  Completed

HooksAttempted:   0
`

func TestPartsOfADescription(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{
		"Restore Item Operations:",
		"  Operation for deploymentconfigs.apps.openshift.io shop/shop:",
		"    Phase:  Completed",
	}, section(described, "Restore Item Operations:"))
	assert.Empty(t, section(described, "CSI Snapshot Restores:"))
	assert.Equal(t, []string{
		"Phase:                                 InProgress",
		"kopia Restores (specify --details for more information):",
		"  New:  1",
	}, chosen(described, "Phase:", "kopia Restores"))
}

func TestLinesAndTheirDigest(t *testing.T) {
	t.Parallel()
	assert.Empty(t, lines(""))
	assert.Equal(t, []string{"tea", "coffee"}, lines("tea\ncoffee\n"))
	assert.Equal(t, "662074c13506207b6d8fa11901a706fb829542f7dd7b2021b62b5fc9af9dd697", digest([]string{"tea", "coffee"}), "as sha256sum says of the file")
}

func TestColoursAreForTerminals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(path)
	require.NoError(t, err)
	s := newStage(out)
	s.opening(scene{real: "a cluster", standIns: "nothing"}, "No real node runs here.")
	s.act(1, "Loss")
	assert.False(t, s.check(false, "all is there"))
	assert.True(t, s.check(true, "nothing is there"))
	require.NoError(t, out.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "\x1b")
	for _, want := range []string{"No real node runs here.", "Real        a cluster.", "Stand-ins   nothing.", "1  Loss", "✗ all is there", "✓ nothing is there"} {
		assert.Equal(t, 1, strings.Count(string(text), want), want)
	}
}
