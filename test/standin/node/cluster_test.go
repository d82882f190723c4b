package node_test

import (
	"testing"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
)

// cluster is a real control plane for a node to join.
type cluster = bed.Bed

func startCluster(t *testing.T) *cluster {
	t.Helper()
	return bed.ForTest(t, bed.Options{WithoutVelero: true, Log: t.Logf})
}
