package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
)

// originalsOfOne are the originals of an application of one replica.
var originalsOfOne = disconnect.Originals{Replicas: 1}

// storable is the length of a restore's name that the bed's S3 server can store the files of, with some to spare: it keeps an
// object as a file of its name, `restore-<name>-itemoperations.json.gz` the longest of them, under a longer name while it is
// replaced, and file systems end at 255 bytes. Velero replaces that file when an operation takes more than one poll.
const storable = 180

// Report B13: the name of a restore longer than 63 characters was no valid label, so nothing was restored or nothing found
// afterwards. Labels must follow Velero's own rule, and the full name must be on the objects.
func TestB13_NamesOfRestores(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 1, claim: "data"})
	backup := s.backup(allVolumes)
	long := func(length int) string { return s.ns + "-" + strings.Repeat("a", length-len(s.ns)-1) }
	at57 := func(character string) string { return long(56) + character + strings.Repeat("b", 13) }
	for _, tc := range []struct{ what, restore, target string }{
		{"of 63 characters", long(63), "63"},
		{"of 64 characters", long(64), "64"},
		{"as long as the bed can store", long(storable), "long"},
		{"with a dash at position 57", at57("-"), "dash"},
		{"with a dot at position 57", at57("."), "dot"},
	} {
		s.row("B13 a name "+tc.what, func(s *scene) {
			target := *s
			target.ns, target.record = s.ns+"-"+tc.target, nil
			target.observe(target.ns)
			s.t.Cleanup(target.end)
			restore := target.restoreAs(tc.restore, backup, "--namespace-mappings", s.ns+":"+target.ns)
			s.completed(restore, 1)
			target.markedInFull(restore)
			s.resumed(restore.Name, target.ns, "web", 1, false)
			value, err := s.node.Read(s.t.Context(), target.ns, "data")
			require.NoError(s.t, err)
			assert.Equal(s.t, s.data("data"), value)
		})
	}
	s.row("B13 a name of 253 characters", func(s *scene) {
		target := *s
		target.ns, target.record = s.ns+"-253", nil
		target.observe(target.ns)
		s.t.Cleanup(target.end)
		// The bed's S3 server cannot store the files of such a restore, so Velero stops at its operations, or a phase later when
		// the first poll already finds them done, and can never end it. The test ends it in Velero's place, again if a poll on
		// its way sets the phase back; the marks, and phase two by hand, are as with any other.
		name := long(253)
		target.startRestore(name, backup, "--namespace-mappings", s.ns+":"+target.ns)
		var restore *velerov1.Restore
		s.until(restoreTime, func(ctx context.Context) (err error) {
			if restore, err = s.restoreOf(ctx, name); err != nil {
				return err
			}
			switch restore.Status.Phase {
			case velerov1.RestorePhaseWaitingForPluginOperations, velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed,
				velerov1.RestorePhaseFinalizing, velerov1.RestorePhaseFinalizingPartiallyFailed:
				s.patch(restore, fmt.Sprintf(`{"status":{"phase":%q}}`, velerov1.RestorePhasePartiallyFailed))
			case velerov1.RestorePhasePartiallyFailed:
				if run := s.postRestore(name); run.code != 0 {
					return fmt.Errorf("post-restore: %+v", run)
				}
				return nil
			}
			return fmt.Errorf("the restore is %q", restore.Status.Phase)
		})
		target.markedInFull(restore)
		target.resumed(name, target.ns, "web", 1, false)
	})
}

// markedInFull asserts that everything that carried a mark in the scene's namespace while recorded carried the label of
// Velero's own rule and the full name.
func (s *scene) markedInFull(restore *velerov1.Restore) {
	s.t.Helper()
	marked := 0
	for _, v := range s.record.SoFar() {
		for _, key := range []string{contract.ReplicasModifiedLabel, contract.DisconnectedLabel} {
			value := v.Object.GetLabels()[key]
			if value == "" || v.Object.GetNamespace() != s.ns {
				continue
			}
			marked++
			assert.Equal(s.t, label.GetValidName(restore.Name), value)
			assert.Equal(s.t, restore.Namespace+"/"+restore.Name, v.Object.GetAnnotations()[contract.RestoreAnnotation])
			assert.Equal(s.t, string(restore.UID), v.Object.GetAnnotations()[contract.RestoreUIDAnnotation])
		}
	}
	assert.Positive(s.t, marked)
}

// restoreOf returns a Restore as it is now.
func (s *scene) restoreOf(ctx context.Context, name string) (*velerov1.Restore, error) {
	var restore velerov1.Restore
	err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.VeleroNamespace(), Name: name}, &restore)
	return &restore, err
}
