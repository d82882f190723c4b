package disconnect_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func TestDecideDC(t *testing.T) {
	t.Parallel()
	owner, earlier := testkit.OwnerNamed("r"), testkit.OwnerNamed("earlier")
	web := func() *testkit.DC { return testkit.MakeDC("shop", "web").Replicas(3) }
	const stock = "oadp.openshift.io/includes-dm-dc-fix"
	hook := &ocpappsv1.LifecycleHook{}
	tests := map[string]struct {
		// backup is also the item, unless that is given.
		backup, item *testkit.DC
		live         disconnect.LiveDC
		update       bool
		detached     int
		want         disconnect.DCDecision
		warn         bool
		says         string
	}{
		// Held: pods wait for it.
		"detached pods wait: it is held with its originals": {
			backup: web(), detached: 2, says: "2 detached pods wait",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, Operation: true},
		},
		"originally paused: that is recorded, and it is held unpaused": {
			backup: web().Paused(), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3, Paused: true}, Operation: true},
		},
		"0 replicas in the backup and detached pods": {
			backup: web().Replicas(0), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Operation: true},
		},
		"D10: with a pre hook of Recreate it is held paused": {
			backup: web().PreHook(), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, HoldPaused: true, Operation: true},
		},
		"D10: with a mid hook of Recreate": {
			backup: web().Strategy(ocpappsv1.DeploymentStrategy{RecreateParams: &ocpappsv1.RecreateDeploymentStrategyParams{Mid: hook}}), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, HoldPaused: true, Operation: true},
		},
		"D10: with a post hook of Rolling": {
			backup: web().Strategy(ocpappsv1.DeploymentStrategy{RollingParams: &ocpappsv1.RollingDeploymentStrategyParams{Post: hook}}), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, HoldPaused: true, Operation: true},
		},
		"without hooks in its strategy it is not held paused": {
			backup: web().Strategy(ocpappsv1.DeploymentStrategy{
				RecreateParams: &ocpappsv1.RecreateDeploymentStrategyParams{}, RollingParams: &ocpappsv1.RollingDeploymentStrategyParams{},
			}), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, Operation: true},
		},
		"D16: backed up while held: the recorded originals are its values": {
			backup: web().Held(earlier, 5, true), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 5, Paused: true}, Operation: true},
		},
		"B21: a record that somebody has scaled past counts no more": {
			backup: web().Held(earlier, 5, true).Replicas(4), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 4}, Operation: true},
		},
		"D16: backed up while held, and another plugin has removed the record from the item": {
			backup: web().Held(earlier, 5, true), item: web().Replicas(0), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 5, Paused: true}, Operation: true},
		},
		"the stock plugin has held it before us: its record is kept": {
			backup: web().Annotation(stock, "true"), item: web().Annotation(stock, "true").HeldByStock(owner, 3, false), detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, Operation: true},
		},
		"backed up while held with half a record: it stays as it is, with a warning": {
			backup: web().Replicas(0).Annotation("oadp.openshift.io/original-replicas", "3"), detached: 1, warn: true, says: "oadp.openshift.io/original-paused is missing",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Operation: true},
		},

		// Held: nothing else would bring it back.
		"D8: no triggers and no pod waits: phase two starts its rollout": {
			backup: web().NoTriggers(), says: "nothing would start its first rollout",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, Operation: true},
		},
		"D9: an image trigger that is not automatic, also one that was resolved: the API server forgets that": {
			backup: web().Trigger(ocpappsv1.DeploymentTriggerPolicy{
				Type:              ocpappsv1.DeploymentTriggerOnImageChange,
				ImageChangeParams: &ocpappsv1.DeploymentTriggerImageChangeParams{LastTriggeredImage: "registry/web@sha256:1"},
			}),
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, Operation: true},
		},
		"an automatic image trigger starts its rollout when it is resolved": {
			backup: web().NoTriggers().ImageTrigger("", "web:latest", ""),
			want:   disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"no triggers, but paused: its ReplicationController is restored": {
			backup: web().NoTriggers().Paused(),
			want:   disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"no triggers, but 0 replicas": {
			backup: web().NoTriggers().Replicas(0),
			want:   disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"D33: no triggers, but a test: its pods run during rollouts only": {
			backup: web().NoTriggers().Test(),
			want:   disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"no triggers, but live": {
			backup: web().NoTriggers(), live: disconnect.LiveDC{Exists: true, Replicas: 3},
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},

		// Live before the restore.
		"D14: live with replicas and policy none": {
			backup: web(), live: disconnect.LiveDC{Exists: true, Replicas: 2}, says: "live before this restore with 2 replicas",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"D14: live with replicas and policy update": {
			backup: web(), live: disconnect.LiveDC{Exists: true, Replicas: 2}, update: true, detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"D14: live with policy update, and the stock plugin wants to hold it: that must not reach it": {
			backup: web().Annotation(stock, "true"), item: web().Annotation(stock, "true").HeldByStock(owner, 3, true),
			live: disconnect.LiveDC{Exists: true, Replicas: 2}, update: true, says: "marks of an earlier hold are removed",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Released}, Originals: disconnect.Originals{Replicas: 3, Paused: true}, Operation: true},
		},
		"live at 0 with policy none and pods detached from it": {
			backup: web(), live: disconnect.LiveDC{Exists: true}, detached: 2, says: "at 0 replicas and stays so; 2 detached pods",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Operation: true},
		},
		"live at 0 with policy none and no pods": {
			backup: web(), live: disconnect.LiveDC{Exists: true},
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"live at 0 with policy update and pods: it is held, or the update would start its pods": {
			backup: web(), live: disconnect.LiveDC{Exists: true}, update: true, detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 3}, Operation: true},
		},
		"live at 0 with policy update and no pods": {
			backup: web(), live: disconnect.LiveDC{Exists: true}, update: true, says: "no detached pod waits",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"D15: live and held by an earlier restore, policy update: its record is not overwritten": {
			backup: web(), live: disconnect.LiveDC{Exists: true, Annotations: web().Held(earlier, 7, true).Obj().Annotations}, update: true, detached: 1,
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: disconnect.Originals{Replicas: 7, Paused: true}, Operation: true},
		},
		"live and held with half a record, policy update: it stays as it is, with a warning": {
			backup: web(), live: disconnect.LiveDC{Exists: true, Annotations: map[string]string{"oadp.openshift.io/original-paused": "true"}}, update: true, detached: 1,
			warn: true, says: "oadp.openshift.io/original-replicas is missing",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Operation: true},
		},

		// No pod waits for it.
		"nothing waits for it": {
			backup: web().Paused(), says: "no detached pod waits",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}},
		},
		"D16: backed up while held, and nothing waits: it gets its own values": {
			backup: web().Held(earlier, 5, true), says: "marks of an earlier hold are removed",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Released}, Originals: disconnect.Originals{Replicas: 5, Paused: true}},
		},
		"D16: backed up while held by a restore of the same name": {
			backup: web().Held(owner, 5, false),
			want:   disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Released}, Originals: disconnect.Originals{Replicas: 5}, Operation: true},
		},
		"D17: backed up with marks but scaled by hand: the marks go, its replicas stay": {
			backup: web().Held(earlier, 5, true).Replicas(4),
			want:   disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Released}, Originals: disconnect.Originals{Replicas: 4}},
		},
		"backed up while held, half a record": {
			backup: web().Held(earlier, 5, true).Annotation("oadp.openshift.io/original-replicas", "x"), warn: true, says: "cannot be read",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Operation: true},
		},

		// The stock plugin.
		"backed up by the stock plugin: phase two looks, since that plugin may hold it after us": {
			backup: web().Annotation(stock, "true"),
			want:   disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Operation: true},
		},
		"held by the stock plugin before us, and no pod of ours waits: phase two finishes it": {
			backup: web().Annotation(stock, "true"), item: web().Annotation(stock, "true").HeldByStock(owner, 3, false), says: "another plugin holds it",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Operation: true},
		},
		"held by the stock plugin before us without its backup-time mark": {
			backup: web(), item: web().HeldByStock(owner, 3, false), says: "another plugin holds it",
			want: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Operation: true},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.item == nil {
				tc.item = tc.backup
			}
			facts := disconnect.DCFacts{
				Backup: tc.backup.Obj(), Item: tc.item.Obj(), Live: tc.live, Update: tc.update, DetachedPods: tc.detached, Owner: owner,
			}
			got := disconnect.DecideDC(facts)
			require.NotEmpty(t, got.Reason)
			require.Contains(t, got.Reason, tc.says)
			require.Equal(t, tc.warn, got.Warn, got.Reason)
			reason := got.Reason
			got.Reason, got.Warn = "", false
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision because %s (-want +got):\n%s", reason, diff)
			}
			require.Empty(t, cmp.Diff(tc.backup.Obj(), facts.Backup), "the DeploymentConfig as backed up was changed")
			require.Empty(t, cmp.Diff(tc.item.Obj(), facts.Item), "the item was changed")
		})
	}
}

// raw is a DeploymentConfig with fields that the pinned type does not know.
func raw(metadata, spec map[string]any) map[string]any {
	dc := map[string]any{
		"apiVersion": "apps.openshift.io/v1", "kind": "DeploymentConfig", "tomorrowsTop": "kept",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "finalizers": []any{"example.com/keep"}},
		"spec": map[string]any{
			"tomorrowsField": []any{int64(1), "two"}, "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "new": true}}}},
		},
	}
	maps.Copy(dc["metadata"].(map[string]any), metadata)
	maps.Copy(dc["spec"].(map[string]any), spec)
	return dc
}

func TestApply(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	held := func(originals disconnect.Originals, paused bool) disconnect.DCDecision {
		return disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: originals, HoldPaused: paused}
	}
	released := func(originals disconnect.Originals) disconnect.DCDecision {
		return disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Released}, Originals: originals}
	}
	marks := func(replicas, paused string, more map[string]any) map[string]any {
		annotations := map[string]any{
			"oadp.openshift.io/original-replicas": replicas, "oadp.openshift.io/original-paused": paused,
			"oadp.openshift.io/restore": "openshift-adp/r", "oadp.openshift.io/restore-uid": "uid-of-r",
		}
		maps.Copy(annotations, more)
		return annotations
	}
	label := func(more ...string) map[string]any {
		labels := map[string]any{"oadp.openshift.io/replicas-modified": "r"}
		for _, key := range more {
			labels[key] = "web"
		}
		return labels
	}
	tests := map[string]struct {
		decision   disconnect.DCDecision
		item, want map[string]any
	}{
		"held: replicas, mark and originals change, nothing else": {
			decision: held(disconnect.Originals{Replicas: 3}, false),
			item:     raw(map[string]any{"labels": map[string]any{"app": "web"}, "annotations": map[string]any{"a": "b"}}, map[string]any{"replicas": int64(3)}),
			want:     raw(map[string]any{"labels": label("app"), "annotations": marks("3", "false", map[string]any{"a": "b"})}, map[string]any{"replicas": int64(0)}),
		},
		"held: an originally paused one is unpaused": {
			decision: held(disconnect.Originals{Replicas: 3, Paused: true}, false),
			item:     raw(nil, map[string]any{"replicas": int64(3), "paused": true}),
			want:     raw(map[string]any{"labels": label(), "annotations": marks("3", "true", nil)}, map[string]any{"replicas": int64(0), "paused": false}),
		},
		"held: with lifecycle hooks it is paused": {
			decision: held(disconnect.Originals{Replicas: 3}, true),
			item:     raw(nil, map[string]any{"replicas": int64(3)}),
			want:     raw(map[string]any{"labels": label(), "annotations": marks("3", "false", nil)}, map[string]any{"replicas": int64(0), "paused": true}),
		},
		"held: absent replicas are written": {
			decision: held(disconnect.Originals{}, false), item: raw(nil, nil),
			want: raw(map[string]any{"labels": label(), "annotations": marks("0", "false", nil)}, map[string]any{"replicas": int64(0)}),
		},
		"held: marks of an earlier restore are replaced": {
			decision: held(disconnect.Originals{Replicas: 5}, false),
			item: raw(map[string]any{
				"labels":      map[string]any{"oadp.openshift.io/replicas-modified": "earlier"},
				"annotations": map[string]any{"oadp.openshift.io/original-replicas": "5", "oadp.openshift.io/original-paused": "false", "oadp.openshift.io/restore": "openshift-adp/earlier", "oadp.openshift.io/restore-uid": "old"},
			}, map[string]any{"replicas": int64(0)}),
			want: raw(map[string]any{"labels": label(), "annotations": marks("5", "false", nil)}, map[string]any{"replicas": int64(0)}),
		},
		"released: its own values come back and the marks go": {
			decision: released(disconnect.Originals{Replicas: 5, Paused: true}),
			item: raw(map[string]any{
				"labels": label("app"), "annotations": marks("5", "true", map[string]any{"a": "b"}),
			}, map[string]any{"replicas": int64(0), "paused": false}),
			want: raw(map[string]any{"labels": map[string]any{"app": "web"}, "annotations": map[string]any{"a": "b"}}, map[string]any{"replicas": int64(5), "paused": true}),
		},
		"released: nothing is left where there were only marks": {
			decision: released(disconnect.Originals{Replicas: 5}),
			item:     raw(map[string]any{"labels": label(), "annotations": marks("5", "false", nil)}, map[string]any{"replicas": int64(0)}),
			want:     raw(map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}}, map[string]any{"replicas": int64(5)}),
		},
		"untouched: nothing changes": {
			decision: disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Untouched}, Originals: disconnect.Originals{Replicas: 9, Paused: true}},
			item:     raw(map[string]any{"labels": label()}, map[string]any{"replicas": int64(3)}),
			want:     raw(map[string]any{"labels": label()}, map[string]any{"replicas": int64(3)}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			item := (&unstructured.Unstructured{Object: tc.item}).DeepCopy()
			require.NoError(t, tc.decision.Apply(item, owner))
			if diff := cmp.Diff(tc.want, item.Object); diff != "" {
				t.Errorf("item (-want +got):\n%s", diff)
			}
			again := item.DeepCopy()
			require.NoError(t, tc.decision.Apply(again, owner))
			require.Empty(t, cmp.Diff(item.Object, again.Object), "applied twice is not the same as once")
		})
	}
}

// What is held reads back as it was decided (I2: a recorded original survives).
func TestApplyIsReadBackByRecorded(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	for _, originals := range []disconnect.Originals{{}, {Replicas: 1}, {Replicas: 3, Paused: true}, {Paused: true}} {
		item := testkit.Unstructured(testkit.MakeDC("shop", "web").Obj())
		require.NoError(t, disconnect.DCDecision{Decision: disconnect.Decision{Verdict: disconnect.Held}, Originals: originals}.Apply(item, owner))
		got, ok, err := disconnect.Recorded(item.GetAnnotations())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, originals, got)
		require.True(t, owner.Marked("oadp.openshift.io/replicas-modified", item.GetLabels(), item.GetAnnotations()))
	}
}

func TestApplyFailsOnASpecThatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, verdict := range []disconnect.Verdict{disconnect.Held, disconnect.Released} {
		item := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}, "spec": "garbage"}}
		err := disconnect.DCDecision{Decision: disconnect.Decision{Verdict: verdict}, HoldPaused: true}.Apply(item, testkit.OwnerNamed("r"))
		require.ErrorContains(t, err, "set spec.replicas", verdict)
	}
}

func TestMapTriggers(t *testing.T) {
	t.Parallel()
	imageTrigger := func(namespace any) map[string]any {
		from := map[string]any{"kind": "ImageStreamTag", "name": "web:latest"}
		if namespace != nil {
			from["namespace"] = namespace
		}
		return map[string]any{"type": "ImageChange", "tomorrowsField": "kept", "imageChangeParams": map[string]any{"automatic": true, "from": from}}
	}
	configChange := map[string]any{"type": "ConfigChange"}
	of := func(triggers ...any) map[string]any { return raw(nil, map[string]any{"triggers": triggers}) }
	mapping := map[string]string{"shop": "shop-dr", "images": "images-dr"}
	tests := map[string]struct {
		mapping map[string]string
		// backup is also the item, unless that is given.
		backup, item, want map[string]any
		changed            bool
	}{
		"D13: each trigger follows the mapping of its own namespace": {
			mapping: mapping, backup: of(configChange, imageTrigger("shop"), imageTrigger("images")),
			want: of(configChange, imageTrigger("shop-dr"), imageTrigger("images-dr")), changed: true,
		},
		"a namespace that is not mapped stays": {
			mapping: mapping, backup: of(imageTrigger("openshift")), want: of(imageTrigger("openshift")),
		},
		"D13: the DeploymentConfig's namespace is not mapped, the trigger's is": {
			mapping: map[string]string{"images": "images-dr"}, backup: of(imageTrigger("images")), want: of(imageTrigger("images-dr")), changed: true,
		},
		"a trigger on its own namespace, which it does not name, stays": {
			mapping: mapping, backup: of(imageTrigger(nil)), want: of(imageTrigger(nil)),
		},
		"no mapping changes nothing": {
			backup: of(imageTrigger("shop")), want: of(imageTrigger("shop")),
		},
		"no mapping leaves another plugin's change alone": {
			backup: of(imageTrigger("shop")), item: of(imageTrigger("elsewhere")), want: of(imageTrigger("elsewhere")),
		},
		"D13: another plugin's wrong namespace is put right": {
			mapping: mapping, backup: of(imageTrigger("images")), item: of(imageTrigger("shop-dr")), want: of(imageTrigger("images-dr")), changed: true,
		},
		"D13: another plugin's wrong change of an unmapped namespace is put right": {
			mapping: mapping, backup: of(imageTrigger("openshift")), item: of(imageTrigger("shop-dr")), want: of(imageTrigger("openshift")), changed: true,
		},
		"D13: a namespace that another plugin has emptied is put right": {
			mapping: mapping, backup: of(imageTrigger("images")), item: of(imageTrigger("")), want: of(imageTrigger("images-dr")), changed: true,
		},
		"a namespace that is no text in the backup stays": {
			mapping: mapping, backup: of(imageTrigger(int64(7))), want: of(imageTrigger(int64(7))),
		},
		"a namespace that another plugin has garbled is put right": {
			mapping: mapping, backup: of(imageTrigger("images")), item: of(imageTrigger(int64(7))), want: of(imageTrigger("images-dr")), changed: true,
		},
		"another plugin's right change stays": {
			mapping: mapping, backup: of(imageTrigger("images")), item: of(imageTrigger("images-dr")), want: of(imageTrigger("images-dr")),
		},
		"no triggers": {mapping: mapping, backup: raw(nil, nil), want: raw(nil, nil)},
		"triggers that another plugin has removed": {
			mapping: mapping, backup: of(imageTrigger("shop")), item: raw(nil, nil), want: raw(nil, nil),
		},
		"triggers that another plugin has added cannot be told apart, and stay": {
			mapping: mapping, backup: of(imageTrigger("shop")), item: of(configChange, imageTrigger("shop")), want: of(configChange, imageTrigger("shop")),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.item == nil {
				tc.item = tc.backup
			}
			backup, item := (&unstructured.Unstructured{Object: tc.backup}).DeepCopy(), (&unstructured.Unstructured{Object: tc.item}).DeepCopy()
			changed, err := disconnect.MapTriggers(item, backup, tc.mapping)
			require.NoError(t, err)
			require.Equal(t, tc.changed, changed)
			if diff := cmp.Diff(tc.want, item.Object); diff != "" {
				t.Errorf("item (-want +got):\n%s", diff)
			}
			require.Empty(t, cmp.Diff(tc.backup, backup.Object), "the item as backed up was changed")
		})
	}
}

// An item is not lost over a trigger that nobody can read: no panic, no error, no change.
func TestMapTriggersLeavesMalformedTriggersAlone(t *testing.T) {
	t.Parallel()
	good := map[string]any{"type": "ImageChange", "imageChangeParams": map[string]any{"from": map[string]any{"namespace": "shop"}}}
	malformed := map[string]any{
		"a trigger that is text":         []any{"ConfigChange"},
		"a trigger that is null":         []any{nil},
		"params that are text":           []any{map[string]any{"imageChangeParams": "x"}},
		"from that is a list":            []any{map[string]any{"imageChangeParams": map[string]any{"from": []any{}}}},
		"triggers that are text":         "x",
		"triggers that are an object":    map[string]any{"type": "ConfigChange"},
		"triggers that are null":         nil,
		"an empty list":                  []any{},
		"a nested list in place of them": []any{[]any{"x"}},
	}
	for name, triggers := range malformed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, pair := range [][2]any{{triggers, triggers}, {[]any{good}, triggers}, {triggers, []any{good}}} {
				backup := (&unstructured.Unstructured{Object: raw(nil, map[string]any{"triggers": pair[0]})}).DeepCopy()
				item := (&unstructured.Unstructured{Object: raw(nil, map[string]any{"triggers": pair[1]})}).DeepCopy()
				before := item.DeepCopy()
				changed, err := disconnect.MapTriggers(item, backup, map[string]string{"shop": "shop-dr"})
				require.NoError(t, err)
				require.False(t, changed)
				require.Empty(t, cmp.Diff(before.Object, item.Object))
			}
		})
	}
}
