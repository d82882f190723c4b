package disconnect_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

const (
	mark          = "oadp.openshift.io/replicas-modified"
	restoreKey    = "oadp.openshift.io/restore"
	restoreUIDKey = "oadp.openshift.io/restore-uid"
)

// The expected labels were computed with sha256sum: 57 characters of the name and the first 6 digits (B13).
func TestLabelOfALongRestoreName(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ restore, want string }{
		"63 characters stay":        {strings.Repeat("a", 63), strings.Repeat("a", 63)},
		"64 characters are cut":     {strings.Repeat("a", 64), strings.Repeat("a", 57) + "ffe054"},
		"73 characters are cut":     {strings.Repeat("a", 73), strings.Repeat("a", 57) + "0e058e"},
		"253 characters are cut":    {strings.Repeat("a", 253), strings.Repeat("a", 57) + "32859a"},
		"a dot at position 57 ends": {strings.Repeat("a", 56) + "." + strings.Repeat("b", 20), strings.Repeat("a", 56) + "." + "ec85e3"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, testkit.OwnerNamed(tc.restore).Label())
		})
	}
}

func TestMarked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	twin := disconnect.Owner{Restore: types.NamespacedName{Namespace: "other-velero", Name: "r"}, UID: "uid-of-r"}
	anyOf := testkit.OwnerNamed("r")
	anyOf.UID = ""
	tests := map[string]struct {
		owner               disconnect.Owner
		labels, annotations map[string]string
		want                bool
	}{
		"all three marks": {
			testkit.OwnerNamed("r"), map[string]string{mark: "r"}, map[string]string{restoreKey: "openshift-adp/r", restoreUIDKey: "uid-of-r"}, true,
		},
		"the label alone, as the stock plugin leaves it": {testkit.OwnerNamed("r"), map[string]string{mark: "r"}, nil, true},
		"no label":                                            {testkit.OwnerNamed("r"), nil, map[string]string{restoreKey: "openshift-adp/r", restoreUIDKey: "uid-of-r"}, false},
		"another restore's label":                             {testkit.OwnerNamed("r"), map[string]string{mark: "s"}, nil, false},
		"the label under another key":                         {testkit.OwnerNamed("r"), map[string]string{"oadp.openshift.io/disconnected-from-dc": "r"}, nil, false},
		"a restore of the same name in another Velero":        {twin, map[string]string{mark: "r"}, map[string]string{restoreKey: "openshift-adp/r"}, false},
		"an earlier restore of the same name":                 {testkit.OwnerNamed("r"), map[string]string{mark: "r"}, map[string]string{restoreUIDKey: "uid-of-earlier"}, false},
		"an earlier one, when any of the name is asked for":   {anyOf, map[string]string{mark: "r"}, map[string]string{restoreUIDKey: "uid-of-earlier"}, true},
		"another Velero's, when any of the name is asked for": {anyOf, map[string]string{mark: "r"}, map[string]string{restoreKey: "other-velero/r"}, false},
		"a name of 64 characters by its cut label": {
			testkit.OwnerNamed(long), map[string]string{mark: strings.Repeat("a", 57) + "ffe054"}, map[string]string{restoreKey: "openshift-adp/" + long}, true,
		},
		"a name of 64 characters by its uncut label": {testkit.OwnerNamed(long), map[string]string{mark: long}, nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.owner.Marked(mark, tc.labels, tc.annotations))
		})
	}
}

func TestOwnerOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, testkit.OwnerNamed("r"), disconnect.OwnerOf(testkit.RestoreNamed("r").Result()))
}

func TestRecorded(t *testing.T) {
	t.Parallel()
	const replicas, paused = "oadp.openshift.io/original-replicas", "oadp.openshift.io/original-paused"
	tests := map[string]struct {
		annotations map[string]string
		want        disconnect.Originals
		ok          bool
		// fails is part of the error: it names the annotation.
		fails string
	}{
		"nothing recorded":                {annotations: map[string]string{"app": "web"}},
		"no annotations":                  {},
		"replicas and paused":             {annotations: map[string]string{replicas: "3", paused: "true"}, want: disconnect.Originals{Replicas: 3, Paused: true}, ok: true},
		"0 replicas":                      {annotations: map[string]string{replicas: "0", paused: "false"}, ok: true},
		"the most replicas there can be":  {annotations: map[string]string{replicas: "2147483647", paused: "false"}, want: disconnect.Originals{Replicas: 2147483647}, ok: true},
		"one too many":                    {annotations: map[string]string{replicas: "2147483648", paused: "false"}, fails: replicas + ` is "2147483648"`},
		"negative replicas":               {annotations: map[string]string{replicas: "-1", paused: "false"}, fails: replicas + ` is "-1"`},
		"half-written, replicas only":     {annotations: map[string]string{replicas: "3"}, fails: paused + " is missing"},
		"half-written, paused only":       {annotations: map[string]string{paused: "false"}, fails: replicas + " is missing"},
		"empty replicas":                  {annotations: map[string]string{replicas: "", paused: "false"}, fails: replicas + ` is ""`},
		"empty paused":                    {annotations: map[string]string{replicas: "3", paused: ""}, fails: paused + ` is ""`},
		"replicas in words":               {annotations: map[string]string{replicas: "three", paused: "false"}, fails: replicas + ` is "three"`},
		"replicas with a fraction":        {annotations: map[string]string{replicas: "3.0", paused: "false"}, fails: replicas + ` is "3.0"`},
		"paused in words":                 {annotations: map[string]string{replicas: "3", paused: "yes"}, fails: paused + ` is "yes"`},
		"null, as a broken script writes": {annotations: map[string]string{replicas: "null", paused: "null"}, fails: replicas + ` is "null"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := maps.Clone(tc.annotations)
			got, ok, err := disconnect.Recorded(tc.annotations)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				require.False(t, ok)
			} else {
				require.NoError(t, err)
				require.Equal(t, tc.ok, ok)
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, before, tc.annotations, "the annotations were changed")
		})
	}
}

// Phase two removes what phase one writes, no less and no more.
func TestKeysOfMarksAreComplete(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, []string{mark}, disconnect.HeldLabels)
	require.ElementsMatch(t, []string{
		restoreKey, restoreUIDKey, "oadp.openshift.io/original-replicas", "oadp.openshift.io/original-paused",
	}, disconnect.HeldAnnotations)
	require.ElementsMatch(t, []string{"oadp.openshift.io/disconnected-from-dc"}, disconnect.DetachedLabels)
	require.ElementsMatch(t, []string{restoreKey, restoreUIDKey, "oadp.openshift.io/deploymentconfig"}, disconnect.DetachedAnnotations)
}
