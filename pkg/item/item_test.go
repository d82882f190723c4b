package item_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	u, none, r := &unstructured.Unstructured{}, (*unstructured.Unstructured)(nil), &velerov1.Restore{}
	require.NoError(t, item.Check(&velero.RestoreItemActionExecuteInput{Item: u, ItemFromBackup: u, Restore: r}))
	for name, input := range map[string]*velero.RestoreItemActionExecuteInput{
		"no input":                    nil,
		"no item":                     {ItemFromBackup: u, Restore: r},
		"no original":                 {Item: u, Restore: r},
		"no restore":                  {Item: u, ItemFromBackup: u},
		"a nil pointer as the item":   {Item: none, ItemFromBackup: u, Restore: r},
		"a nil pointer as original":   {Item: u, ItemFromBackup: none, Restore: r},
		"nil pointers and no restore": {Item: none, ItemFromBackup: none},
	} {
		require.ErrorIs(t, item.Check(input), item.ErrIncomplete, name)
	}
}

func TestCheckBackup(t *testing.T) {
	t.Parallel()
	u, backup := &unstructured.Unstructured{}, &velerov1.Backup{}
	require.NoError(t, item.CheckBackup(u, backup))
	require.ErrorIs(t, item.CheckBackup(nil, backup), item.ErrIncompleteBackup)
	require.ErrorIs(t, item.CheckBackup((*unstructured.Unstructured)(nil), backup), item.ErrIncompleteBackup)
	require.ErrorIs(t, item.CheckBackup(u, nil), item.ErrIncompleteBackup)
}

func TestSay(t *testing.T) {
	t.Parallel()
	for level, want := range map[recipe.Level]logrus.Level{
		recipe.LevelError: logrus.ErrorLevel, recipe.LevelWarn: logrus.WarnLevel, recipe.LevelInfo: logrus.InfoLevel,
		recipe.LevelDebug: logrus.DebugLevel, "": logrus.DebugLevel,
	} {
		log, entries := testkit.RecordingLogger(t)
		item.Say(log, level, "why")
		require.Len(t, entries.AllEntries(), 1)
		require.Equal(t, want, entries.LastEntry().Level)
		require.Equal(t, "why", entries.LastEntry().Message, "velero backup describe shows nothing else")
	}
}

func TestReadAndEditLeaveTheItemAlone(t *testing.T) {
	t.Parallel()
	source := testkit.Unstructured(testkit.MakePod("shop", "web", 1).Claim("data", "c").Obj())
	before := source.DeepCopy()
	pod, err := item.Read[corev1.Pod](source)
	require.NoError(t, err)
	pod.Labels["deployment"], pod.Spec.Volumes[0].Name = "changed", "changed"
	edited := item.Edit(source)
	require.Empty(t, cmp.Diff(before, edited))
	edited.SetName("changed")
	edited.Object["spec"].(map[string]any)["volumes"].([]any)[0].(map[string]any)["name"] = "changed"
	require.Empty(t, cmp.Diff(before, source))
}

func TestReadNamesTheTypeItCannotRead(t *testing.T) {
	t.Parallel()
	_, err := item.Read[corev1.Pod](&unstructured.Unstructured{Object: map[string]any{"spec": "x"}})
	require.ErrorContains(t, err, "read the item as *v1.Pod")
}

func TestLogDecision(t *testing.T) {
	t.Parallel()
	for want, decision := range map[logrus.Level]disconnect.Decision{
		logrus.DebugLevel: {Verdict: disconnect.Untouched, Reason: "why"},
		logrus.InfoLevel:  {Verdict: disconnect.Detached, Reason: "why"},
		logrus.WarnLevel:  {Verdict: disconnect.Untouched, Reason: "why", Warn: true},
	} {
		log, entries := testkit.RecordingLogger(t)
		item.LogDecision(log, decision)
		require.Len(t, entries.AllEntries(), 1)
		require.Equal(t, want, entries.LastEntry().Level)
		require.Equal(t, logrus.Fields{"decision": string(decision.Verdict), "reason": "why"}, entries.LastEntry().Data)
	}
}
