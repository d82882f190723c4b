package disconnect_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func TestDeploymentConfigOf(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	tests := map[string]struct {
		pod  *testkit.Pod
		want string
	}{
		"a pod of version 1":                          {testkit.MakePod("shop", "web", 1), "web"},
		"a pod of version 7":                          {testkit.MakePod("shop", "web", 7), "web"},
		"by its labels alone":                         {testkit.MakePod("shop", "web", 1).Orphan().NoAnnotation("openshift.io/deployment-config.name"), "web"},
		"by its annotation and owner alone":           {testkit.MakePod("shop", "web", 1).NoLabel("deployment").NoLabel("deploymentconfig"), "web"},
		"one label is not enough":                     {testkit.MakePlainPod("shop", "p").Label("deploymentconfig", "web"), ""},
		"the other label is not enough":               {testkit.MakePlainPod("shop", "p").Label("deployment", "web-1"), ""},
		"an empty label is not enough":                {testkit.MakePlainPod("shop", "p").Label("deployment", "").Label("deploymentconfig", "web"), ""},
		"the annotation without an owner":             {testkit.MakePlainPod("shop", "p").Annotation("openshift.io/deployment-config.name", "web"), ""},
		"the annotation with a ReplicaSet as owner":   {testkit.MakePlainPod("shop", "p").Annotation("openshift.io/deployment-config.name", "web").Owner("apps/v1", "ReplicaSet", "web-1"), ""},
		"a standalone pod":                            {testkit.MakePlainPod("shop", "p"), ""},
		"a pod of a standalone ReplicationController": {testkit.MakePlainPod("shop", "p").Owner("v1", "ReplicationController", "rc"), ""},
		"backed up while detached by us":              {testkit.MakePod("shop", "web", 1).Detached(owner), "web"},
		"backed up while detached by us, all else gone": {
			testkit.MakePod("shop", "web", 1).Detached(owner).NoLabel("deploymentconfig").NoAnnotation("openshift.io/deployment-config.name"), "web",
		},
		"backed up while detached by the stock plugin": {testkit.MakePod("shop", "web", 1).DetachedByStock(owner), "web"},
		"detached, with only the label left":           {testkit.MakePlainPod("shop", "p").Label("oadp.openshift.io/disconnected-from-dc", "r").Label("deploymentconfig", "web"), "web"},
		"detached, but of nothing":                     {testkit.MakePlainPod("shop", "p").Label("oadp.openshift.io/disconnected-from-dc", "r"), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, disconnect.DeploymentConfigOf(tc.pod.Obj()))
		})
	}
}

func TestDecidePod(t *testing.T) {
	t.Parallel()
	included := disconnect.Scope{Included: true}
	excluded := disconnect.Scope{Reason: "the restore leaves out DeploymentConfigs"}
	live := disconnect.LiveDC{Exists: true, Replicas: 2}
	atZero := disconnect.LiveDC{Exists: true}
	claimPod := func() *testkit.Pod { return testkit.MakePod("shop", "web", 1).Claim("data", "web-data") }
	byBackup := []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}}
	tests := map[string]struct {
		pod   *testkit.Pod
		facts disconnect.PodFacts
		want  disconnect.Verdict
		warn  bool
		// says are parts of the reason.
		says []string
	}{
		// Rule 1
		"1, D20: a deployer pod is not restored, whatever waits for it": {
			pod: testkit.MakeDeployerPod("shop", "web", 1), want: disconnect.Skipped, says: []string{"deployer", "web-1"},
			facts: disconnect.PodFacts{Scope: included, Hooks: hooks.Applied{Exec: []string{"warm"}}},
		},
		"1, D20: a lifecycle-hook pod with a claim is not restored": {
			pod: testkit.MakeHookPod("shop", "web", 1, "pre").Claim("data", "web-data"), want: disconnect.Skipped, says: []string{"lifecycle-hook"},
			facts: disconnect.PodFacts{Scope: included},
		},
		"1, I2: nor one that its claim was backed up through, and that does not go by unseen": {
			pod: testkit.MakeHookPod("shop", "web", 10, "pre").Claim("data", "web-data"), want: disconnect.Refused, warn: true,
			says:  []string{"never restored", "the data of claim web-data was backed up through it", "while no rollout was running"},
			facts: disconnect.PodFacts{Scope: included, Filled: byBackup},
		},
		"1: a DataDownload needs no pod of its own": {
			pod: testkit.MakeHookPod("shop", "web", 1, "pre").Claim("data", "web-data"), want: disconnect.Skipped,
			facts: disconnect.PodFacts{Scope: included, Filled: []disconnect.Filled{{Volume: "data", By: disconnect.ByDataDownload}}},
		},
		"1: a lifecycle-hook pod of which it is not known whether data was backed up through it": {
			pod: testkit.MakeHookPod("shop", "web", 1, "pre").Claim("data", "web-data"), want: disconnect.Refused, warn: true, says: []string{"not known", "forbidden"},
			facts: disconnect.PodFacts{Scope: included, FilledUnknown: "list PodVolumeBackups: forbidden"},
		},
		"1, B34: a build pod is not restored": {
			pod: testkit.MakePlainPod("shop", "web-1-build").Annotation("openshift.io/build.name", "web-1"), want: disconnect.Skipped, says: []string{"Build web-1"},
			facts: disconnect.PodFacts{Scope: included},
		},
		"1 before 3: a deployer pod is not restored where DeploymentConfigs are left out": {
			pod: testkit.MakeDeployerPod("shop", "web", 1), want: disconnect.Skipped, facts: disconnect.PodFacts{Scope: excluded},
		},
		// Rule 2
		"2: a standalone pod is untouched": {
			pod: testkit.MakePlainPod("shop", "p").Claim("data", "c"), want: disconnect.Untouched, says: []string{"not a DeploymentConfig's pod"},
			facts: disconnect.PodFacts{Scope: included, Filled: byBackup},
		},
		"2: a StatefulSet's pod is untouched": {
			pod:   testkit.MakePlainPod("shop", "db-0").Claim("data", "c").Owner("apps/v1", "StatefulSet", "db"),
			facts: disconnect.PodFacts{Scope: included, Filled: byBackup, Hooks: hooks.Applied{Exec: []string{"h"}}}, want: disconnect.Untouched,
		},
		// Rule 3
		"3, D19: DeploymentConfigs are left out and it is not in the cluster": {
			pod: claimPod(), want: disconnect.Untouched, says: []string{"web is not in the cluster", "the restore leaves out DeploymentConfigs"},
			facts: disconnect.PodFacts{Scope: excluded, Filled: byBackup},
		},
		"3 before 6: the same without data": {
			pod: testkit.MakePod("shop", "web", 1), want: disconnect.Untouched, facts: disconnect.PodFacts{Scope: excluded},
		},
		"3: DeploymentConfigs are left out but it is in the cluster at 0, to be restored in place": {
			pod: claimPod(), want: disconnect.Detached, facts: disconnect.PodFacts{Scope: excluded, DC: atZero, Filled: byBackup},
		},
		"3: DeploymentConfigs are left out but it is live": {
			pod: claimPod(), want: disconnect.Skipped, warn: true, facts: disconnect.PodFacts{Scope: excluded, DC: live, Filled: byBackup},
		},
		// Rule 4
		"4, D14: it was live before with replicas": {
			pod: claimPod(), want: disconnect.Skipped, warn: true, says: []string{"web was live", "2 replicas", "scale it to 0"},
			facts: disconnect.PodFacts{Scope: included, DC: live, Filled: byBackup},
		},
		"4: it was live, nothing waits": {
			pod: claimPod(), want: disconnect.Skipped, warn: true, facts: disconnect.PodFacts{Scope: included, DC: live},
		},
		"4: it was live at 0 and data waits": {
			pod: claimPod(), want: disconnect.Detached, facts: disconnect.PodFacts{Scope: included, DC: atZero, Filled: byBackup},
		},
		"4: it was live at 0 and nothing waits": {
			pod: claimPod(), want: disconnect.Skipped, facts: disconnect.PodFacts{Scope: included, DC: atZero},
		},
		"4: this very restore brought it before its pods, and data waits": {
			pod: claimPod(), want: disconnect.Refused, warn: true, says: []string{"already runs", "--restore-resource-priorities"},
			facts: disconnect.PodFacts{Scope: included, Filled: byBackup, DC: disconnect.LiveDC{Exists: true, Replicas: 2, OfThisRestore: true}},
		},
		"4: this very restore brought it before its pods, nothing waits": {
			pod: claimPod(), want: disconnect.Skipped,
			facts: disconnect.PodFacts{Scope: included, DC: disconnect.LiveDC{Exists: true, Replicas: 2, OfThisRestore: true}},
		},
		"4: this very restore brought it at 0 before its pods": {
			pod: claimPod(), want: disconnect.Detached,
			facts: disconnect.PodFacts{Scope: included, Filled: byBackup, DC: disconnect.LiveDC{Exists: true, OfThisRestore: true}},
		},
		// Rule 5
		"5, B4: a PodVolumeBackup fills a claim": {
			pod: claimPod(), want: disconnect.Detached, says: []string{"a PodVolumeBackup fills claim web-data"},
			facts: disconnect.PodFacts{Scope: included, Filled: byBackup},
		},
		"5, B10: a DataDownload fills a claim": {
			pod: claimPod(), want: disconnect.Detached, says: []string{"a DataDownload fills claim web-data"},
			facts: disconnect.PodFacts{Scope: included, Filled: []disconnect.Filled{{Volume: "data", By: "DataDownload"}}},
		},
		"5, B8: an exec hook applies": {
			pod: testkit.MakePod("shop", "web", 1), want: disconnect.Detached, says: []string{"exec hook warm, cool"},
			facts: disconnect.PodFacts{Scope: included, Hooks: hooks.Applied{Exec: []string{"warm", "cool"}}},
		},
		"5: an init hook applies": {
			pod: testkit.MakePod("shop", "web", 1), want: disconnect.Detached, says: []string{"init hook fill"},
			facts: disconnect.PodFacts{Scope: included, Hooks: hooks.Applied{Init: []string{"fill"}}},
		},
		"5: every reason is named": {
			pod: claimPod().Claim("logs", "web-logs"), want: disconnect.Detached,
			says: []string{"PodVolumeBackup fills claim web-data", "DataDownload fills claim web-logs", "init hook i", "exec hook e"},
			facts: disconnect.PodFacts{
				Scope:  included,
				Filled: []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}, {Volume: "logs", By: "DataDownload"}},
				Hooks:  hooks.Applied{Init: []string{"i"}, Exec: []string{"e"}},
			},
		},
		"5: a pod of version 7 is detached as well (D30)": {
			pod: testkit.MakePod("shop", "web", 7).Claim("data", "web-data"), want: disconnect.Detached, facts: disconnect.PodFacts{Scope: included, Filled: byBackup},
		},
		"5, D21: what is not known is taken to be on its way, with a warning": {
			pod: claimPod(), want: disconnect.Detached, warn: true, says: []string{"taken to have data on its way", "the server is away"},
			facts: disconnect.PodFacts{Scope: included, FilledUnknown: "the server is away"},
		},
		"5: chosen by label, the DeploymentConfig may come": {
			pod: claimPod(), want: disconnect.Detached,
			facts: disconnect.PodFacts{Scope: disconnect.Scope{Included: true, Uncertain: true}, Filled: byBackup},
		},
		"5, D16: a pod backed up while detached, with data": {
			pod: claimPod().Detached(testkit.OwnerNamed("earlier")), want: disconnect.Detached, facts: disconnect.PodFacts{Scope: included, Filled: byBackup},
		},
		// Rule 6
		"6: nothing waits": {
			pod: claimPod(), want: disconnect.Skipped, says: []string{"no data and no hook waits", "web makes its own"}, facts: disconnect.PodFacts{Scope: included},
		},
		"6, D16: a pod backed up while detached, without data": {
			pod: claimPod().Detached(testkit.OwnerNamed("earlier")), want: disconnect.Skipped, facts: disconnect.PodFacts{Scope: included},
		},
		"6, D6: an emptyDir alone is no reason, and the log says what is lost": {
			pod: testkit.MakePod("shop", "web", 1).EmptyDir("tmp").EmptyDir("cache"), want: disconnect.Skipped, says: []string{"is not restored: cache, tmp"},
			facts: disconnect.PodFacts{Scope: included, Filled: []disconnect.Filled{{Volume: "tmp", By: "PodVolumeBackup"}, {Volume: "cache", By: "PodVolumeBackup"}}},
		},
		"6: a generic ephemeral volume alone is no reason": {
			pod: testkit.MakePod("shop", "web", 1).Ephemeral("scratch"), want: disconnect.Skipped, says: []string{"is not restored: scratch"},
			facts: disconnect.PodFacts{Scope: included, Filled: []disconnect.Filled{{Volume: "scratch", By: "PodVolumeBackup"}}},
		},
		"5 over 6: an emptyDir beside a claim": {
			pod: claimPod().EmptyDir("tmp"), want: disconnect.Detached, says: []string{"fills claim web-data"},
			facts: disconnect.PodFacts{Scope: included, Filled: []disconnect.Filled{{Volume: "tmp", By: "PodVolumeBackup"}, {Volume: "data", By: "PodVolumeBackup"}}},
		},
		"6: a filled volume that the pod does not have is no reason": {
			pod: claimPod(), want: disconnect.Skipped,
			facts: disconnect.PodFacts{Scope: included, Filled: []disconnect.Filled{{Volume: "other", By: "PodVolumeBackup"}}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.facts.Pod = tc.pod.Obj()
			before := tc.pod.Obj()
			got := disconnect.DecidePod(tc.facts)
			require.Equal(t, tc.want, got.Verdict, got.Reason)
			require.Equal(t, tc.warn, got.Warn, got.Reason)
			require.NotEmpty(t, got.Reason)
			for _, part := range tc.says {
				require.Contains(t, got.Reason, part)
			}
			require.Empty(t, cmp.Diff(before, tc.facts.Pod), "the pod was changed")
		})
	}
}

func TestDecideWithoutDCAsksForADeploymentConfigOnlyWhereThereIsOne(t *testing.T) {
	t.Parallel()
	_, ok := disconnect.DecideWithoutDC(testkit.MakePod("shop", "web", 1).Obj())
	require.False(t, ok, "a DeploymentConfig's pod needs it to be looked up")
	for _, pod := range []*corev1.Pod{testkit.MakePlainPod("shop", "p").Obj(), testkit.MakeDeployerPod("shop", "web", 1).Obj()} {
		_, ok := disconnect.DecideWithoutDC(pod)
		require.True(t, ok, pod.Name)
	}
}

func TestDetach(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	marked := map[string]any{
		"oadp.openshift.io/restore": "openshift-adp/r", "oadp.openshift.io/restore-uid": "uid-of-r", "oadp.openshift.io/deploymentconfig": "web",
	}
	with := func(m map[string]any, more map[string]any) map[string]any {
		all := maps.Clone(m)
		maps.Copy(all, more)
		return all
	}
	spec := func(more map[string]any) map[string]any {
		return with(map[string]any{
			"containers": []any{map[string]any{"name": "web", "unknownToThisVersion": true}}, "tomorrowsField": map[string]any{"a": int64(1)},
			"affinity": map[string]any{"nodeAffinity": map[string]any{}}, "tolerations": []any{map[string]any{"operator": "Exists"}},
		}, more)
	}
	tests := map[string]struct{ item, want map[string]any }{
		"the label deployment and the node selector go, all else stays": {
			item: map[string]any{
				"apiVersion": "v1", "kind": "Pod",
				"metadata": map[string]any{
					"name": "web-3-x", "namespace": "shop", "finalizers": []any{"example.com/keep"}, "tomorrowsMetadata": "kept",
					"labels":      map[string]any{"app": "web", "deployment": "web-3", "deploymentconfig": "web"},
					"annotations": map[string]any{"openshift.io/deployment.name": "web-3", "backup.velero.io/backup-volumes": "data"},
				},
				"spec": spec(map[string]any{"nodeSelector": map[string]any{"zone": "source"}}),
			},
			want: map[string]any{
				"apiVersion": "v1", "kind": "Pod",
				"metadata": map[string]any{
					"name": "web-3-x", "namespace": "shop", "finalizers": []any{"example.com/keep"}, "tomorrowsMetadata": "kept",
					"labels":      map[string]any{"app": "web", "deploymentconfig": "web", "oadp.openshift.io/disconnected-from-dc": "r"},
					"annotations": with(marked, map[string]any{"openshift.io/deployment.name": "web-3", "backup.velero.io/backup-volumes": "data"}),
				},
				"spec": spec(nil),
			},
		},
		"D3: the label deploymentconfig comes back where the stock plugin has removed it": {
			item: map[string]any{
				"metadata": map[string]any{"name": "p", "labels": map[string]any{"oadp.openshift.io/disconnected-from-dc": "r"}},
				"spec":     map[string]any{},
			},
			want: map[string]any{
				"metadata": map[string]any{
					"name": "p", "labels": map[string]any{"deploymentconfig": "web", "oadp.openshift.io/disconnected-from-dc": "r"}, "annotations": marked,
				},
				"spec": map[string]any{},
			},
		},
		"D16: the marks of an earlier restore are replaced": {
			item: map[string]any{"metadata": map[string]any{
				"labels":      map[string]any{"oadp.openshift.io/disconnected-from-dc": "earlier"},
				"annotations": map[string]any{"oadp.openshift.io/restore": "openshift-adp/earlier", "oadp.openshift.io/restore-uid": "old", "oadp.openshift.io/deploymentconfig": "web"},
			}},
			want: map[string]any{"metadata": map[string]any{
				"labels": map[string]any{"deploymentconfig": "web", "oadp.openshift.io/disconnected-from-dc": "r"}, "annotations": marked,
			}},
		},
		"a pod without labels or annotations gets them": {
			item: map[string]any{"metadata": map[string]any{"name": "p"}},
			want: map[string]any{"metadata": map[string]any{
				"name": "p", "labels": map[string]any{"deploymentconfig": "web", "oadp.openshift.io/disconnected-from-dc": "r"}, "annotations": marked,
			}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			item := (&unstructured.Unstructured{Object: tc.item}).DeepCopy()
			disconnect.Detach(item, "web", owner)
			if diff := cmp.Diff(tc.want, item.Object); diff != "" {
				t.Errorf("detached pod (-want +got):\n%s", diff)
			}
			again := item.DeepCopy()
			disconnect.Detach(again, "web", owner)
			require.Empty(t, cmp.Diff(item.Object, again.Object), "detached twice is not the same as once")
		})
	}
}

func TestLabelsWhenDetachedAreThoseOfTheDetachedPod(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	for name, labels := range map[string]map[string]string{
		"none":     nil,
		"plain":    {"app": "web"},
		"attached": {"app": "web", "deployment": "web-1", "deploymentconfig": "web"},
		"detached": {"oadp.openshift.io/disconnected-from-dc": "earlier"},
	} {
		item := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
		item.SetLabels(labels)
		disconnect.Detach(item, "web", owner)
		require.Equal(t, item.GetLabels(), disconnect.LabelsWhenDetached(labels, "web", owner), name)
	}
}
