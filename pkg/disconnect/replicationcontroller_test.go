package disconnect_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func TestDecideRC(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rc                   *testkit.RC
		exists, paused, held bool
		detached             int
		want                 disconnect.Verdict
		says                 string
	}{
		"a standalone one is untouched": {
			rc: testkit.MakePlainRC("shop", "rc"), exists: true, want: disconnect.Untouched, says: "not a DeploymentConfig's",
		},
		"B18, B19: a DeploymentConfig makes its own": {
			rc: testkit.MakeRC("shop", "web", 3), exists: true, want: disconnect.Skipped, says: "web makes its own",
		},
		"the one of an orphan is known by its annotation": {
			rc: testkit.MakeRC("shop", "web", 3).Orphan(), exists: true, want: disconnect.Skipped,
		},
		"without its DeploymentConfig nothing else runs the pods": {
			rc: testkit.MakeRC("shop", "web", 3), want: disconnect.Untouched, says: "web is not in the cluster",
		},
		"D35: not beside detached pods whose DeploymentConfig could not be restored": {
			rc: testkit.MakeRC("shop", "web", 3), detached: 2, want: disconnect.Skipped, says: "2 detached pods of DeploymentConfig web wait",
		},
		"the one of a paused DeploymentConfig runs its pods": {
			rc: testkit.MakeRC("shop", "web", 3), exists: true, paused: true, want: disconnect.Untouched, says: "web is paused",
		},
		"D11: the one of a held DeploymentConfig would start pods on half-restored volumes": {
			rc: testkit.MakeRC("shop", "web", 3), exists: true, held: true, want: disconnect.Skipped,
		},
		"D11: so would the one of a DeploymentConfig that is held paused": {
			rc: testkit.MakeRC("shop", "web", 3), exists: true, paused: true, held: true, want: disconnect.Skipped,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := disconnect.RCFacts{RC: tc.rc.Obj(), DCExists: tc.exists, DCPaused: tc.paused, DCHeld: tc.held, DetachedPods: tc.detached}
			got := disconnect.DecideRC(facts)
			require.Equal(t, tc.want, got.Verdict, got.Reason)
			require.False(t, got.Warn)
			require.Contains(t, got.Reason, tc.says)
			require.Empty(t, cmp.Diff(tc.rc.Obj(), facts.RC), "the ReplicationController was changed")
		})
	}
}
