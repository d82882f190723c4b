package postrestore

import (
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// The fake client accepts no managed fields but its own, so this looks at what it would return.
func TestSince(t *testing.T) {
	t.Parallel()
	epoch := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) metav1.Time { return metav1.NewTime(epoch.Add(time.Duration(minutes) * time.Minute)) }
	noted := func(minutes int, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "velero-server", Time: new(at(minutes)), FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	const label = `{"f:metadata":{"f:labels":{"f:oadp.openshift.io/replicas-modified":{}}}}`
	dc := func(held bool, entries ...metav1.ManagedFieldsEntry) *ocpappsv1.DeploymentConfig {
		dc := &ocpappsv1.DeploymentConfig{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(-600), ManagedFields: entries}}
		if held {
			dc.Labels = map[string]string{contract.ReplicasModifiedLabel: "r"}
		}
		return dc
	}
	pods := []Pod{
		{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: at(9)}}},
		{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", CreationTimestamp: at(7)}}},
	}
	for name, tc := range map[string]struct {
		state State
		want  metav1.Time
		from  SinceSource
	}{
		"when the label was first set": {
			State{DC: dc(true, noted(3, `{"f:spec":{}}`), noted(8, label), noted(5, label), metav1.ManagedFieldsEntry{}), Pods: pods}, at(5), SinceManagedFields,
		},
		"what came with the backup, and whoever took it over": {
			State{DC: dc(true, noted(-700, label), metav1.ManagedFieldsEntry{Manager: "velero-plugin-for-openshift-dr", Time: new(at(5)), FieldsV1: &metav1.FieldsV1{Raw: []byte(label)}}), Pods: pods},
			at(-600), SinceCreation,
		},
		"nothing is noted of the label":       {State{DC: dc(true, noted(3, `{"f:spec":{}}`), noted(4, `not JSON`)), Pods: pods}, at(-600), SinceCreation},
		"pods of a DeploymentConfig not held": {State{DC: dc(false), Pods: pods}, at(7), SinceCreation},
		"pods alone":                          {State{Pods: pods}, at(7), SinceCreation},
		"a record without its label":          {State{DC: dc(false)}, at(-600), SinceCreation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, from := since(tc.state)
			require.Equal(t, tc.want.Time, got)
			require.Equal(t, tc.from, from)
		})
	}
}
