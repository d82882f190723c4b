package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/history"
)

var owner = testkit.OwnerNamed("back")

// at is what is known a number of seconds after the beginning.
type at struct {
	second  int
	object  client.Object
	deleted bool
}

func historyOf(events ...at) []history.Version {
	var versions []history.Version
	for i, e := range events {
		versions = append(versions, history.Version{
			Revision: int64(i + 1), At: testkit.Epoch.Add(time.Duration(e.second) * time.Second), Deleted: e.deleted, Object: e.object,
		})
	}
	return versions
}

func restored() *testkit.Pod { return testkit.MakePod("shop", "web", 3).Detached(owner) }

func made(name string) *testkit.Pod { return testkit.MakePod("shop", "web", 1).Named(name) }

func isReady(pod *testkit.Pod) client.Object {
	return pod.Condition(corev1.PodReady, corev1.ConditionTrue, "", "").Obj()
}

func filling(phase velerov1.PodVolumeRestorePhase) client.Object {
	return &velerov1.PodVolumeRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "back-x"},
		Spec:       velerov1.PodVolumeRestoreSpec{Pod: corev1.ObjectReference{UID: restored().Obj().UID}},
		Status:     velerov1.PodVolumeRestoreStatus{Phase: phase},
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	held := testkit.MakeDC("shop", "web").Held(owner, 2, false)
	for name, tc := range map[string]struct {
		events []at
		want   []string
	}{
		"held, filled, deleted, scaled": {events: []at{
			{object: restored().Obj()},
			{object: held.Obj()},
			{object: filling(velerov1.PodVolumeRestorePhaseInProgress)},
			{object: filling(velerov1.PodVolumeRestorePhaseCompleted)},
			{object: restored().Terminating().Obj()},
			{object: restored().Terminating().Obj(), deleted: true},
			{object: testkit.MakeDC("shop", "web").Replicas(2).Obj()},
		}},
		"a pod that is detached beside replicas": {
			events: []at{{object: restored().Obj()}, {object: testkit.MakeDC("shop", "web").Replicas(2).Obj()}},
			want:   []string{"I1: pod shop/web-3-x7k2p was detached while its DeploymentConfig had 2 replicas (revision 2)"},
		},
		"a pod that is deleted while its volume is filled": {
			events: []at{
				{object: restored().Obj()},
				{object: filling(velerov1.PodVolumeRestorePhaseInProgress)},
				{object: restored().Terminating().Obj()},
				{object: restored().Terminating().Obj(), deleted: true},
			},
			want: []string{`I2: detached pod shop/web-3-x7k2p was deleted while back-x was "InProgress"`},
		},
		"a record that is overwritten": {
			events: []at{{object: held.Obj()}, {object: testkit.MakeDC("shop", "web").Held(owner, 0, false).Obj()}},
			want:   []string{"I2: the recorded original of shop/web went from 2/false to 0/false"},
		},
		"a record of another DeploymentConfig of the name": {events: []at{
			{object: held.Obj()}, {object: held.Obj(), deleted: true}, {object: testkit.MakeDC("shop", "web").Held(owner, 1, false).Obj()},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, history.Violations(historyOf(tc.events...)))
		})
	}
}

func TestBeside(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events   []at
		beside   []string
		detached bool
	}{
		"one after the other": {
			events:   []at{{object: restored().Obj()}, {object: restored().Obj(), deleted: true}, {object: made("web-1-a").Obj()}},
			detached: true,
		},
		"a new one while a detached one is going": {
			events: []at{
				{object: restored().Obj()},
				{object: restored().Terminating().Obj()},
				{object: made("web-1-a").Obj()},
				{object: isReady(made("web-1-a"))},
				{object: restored().Terminating().Obj(), deleted: true},
			},
			beside: []string{"web-1-a"}, detached: true,
		},
		"none was detached":                    {events: []at{{object: made("web-1-a").Obj()}}},
		"one of another DeploymentConfig":      {events: []at{{object: restored().Obj()}, {object: testkit.MakePod("shop", "db", 1).Obj()}}, detached: true},
		"one of its name in another namespace": {events: []at{{object: restored().Obj()}, {object: testkit.MakePod("bank", "web", 1).Obj()}}, detached: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beside, detached := history.Beside(historyOf(tc.events...), types.NamespacedName{Namespace: "shop", Name: "web"})
			assert.Equal(t, tc.beside, beside)
			assert.Equal(t, tc.detached, detached)
		})
	}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []at
		want   time.Duration
		ok     bool
	}{
		"from the restored pod's end to the new one": {
			events: []at{
				{second: 0, object: restored().Obj()},
				{second: 5, object: isReady(restored())},
				{second: 11, object: isReady(restored().Terminating())},
				{second: 12, object: isReady(restored().Terminating()), deleted: true},
				{second: 13, object: made("web-1-a").Obj()},
				{second: 14, object: isReady(made("web-1-a"))},
				{second: 14, object: made("web-1-b").Obj()},
				{second: 17, object: isReady(made("web-1-b"))},
			},
			want: 3 * time.Second, ok: true,
		},
		"a restored pod that went before it was ready": {
			events: []at{
				{second: 0, object: restored().Obj()},
				{second: 4, object: restored().Terminating().Obj()},
				{second: 6, object: isReady(made("web-1-a"))},
				{second: 6, object: isReady(made("web-1-b"))},
			},
			want: 2 * time.Second, ok: true,
		},
		"a restored pod that is not ready for a while": {
			events: []at{
				{second: 0, object: isReady(restored())},
				{second: 1, object: restored().Obj()},
				{second: 4, object: isReady(restored())},
				{second: 9, object: isReady(made("web-1-a"))},
				{second: 9, object: isReady(made("web-1-b"))},
			},
			want: 3 * time.Second, ok: true,
		},
		"not all are back": {
			events: []at{{second: 0, object: isReady(restored())}, {second: 1, object: restored().Obj(), deleted: true}, {second: 3, object: isReady(made("web-1-a"))}},
		},
		"none was restored": {
			events: []at{{second: 0, object: isReady(made("web-1-a"))}, {second: 1, object: isReady(made("web-1-b"))}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := history.Outage(historyOf(tc.events...), types.NamespacedName{Namespace: "shop", Name: "web"}, 2)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.ok, ok)
		})
	}
}
