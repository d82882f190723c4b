package restore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func TestParseSettings(t *testing.T) {
	t.Parallel()
	defaults := restore.Settings{Resume: restore.ResumeReplace, StartTimeout: 5 * time.Minute}
	tests := map[string]struct {
		data, annotations map[string]string
		want              restore.Settings
		// fails is part of the error.
		fails string
	}{
		"nothing is set":                      {want: defaults},
		"an empty ConfigMap":                  {data: map[string]string{}, want: defaults},
		"unknown settings are not ours":       {data: map[string]string{"other": "x"}, annotations: map[string]string{"other": "x"}, want: defaults},
		"resume: manual":                      {data: map[string]string{"resume": "manual"}, want: restore.Settings{Resume: restore.ResumeManual, StartTimeout: 5 * time.Minute}},
		"the annotation alone":                {annotations: map[string]string{"oadp.openshift.io/dc-resume": "manual"}, want: restore.Settings{Resume: restore.ResumeManual, StartTimeout: 5 * time.Minute}},
		"the annotation wins":                 {data: map[string]string{"resume": "manual"}, annotations: map[string]string{"oadp.openshift.io/dc-resume": "replace"}, want: defaults},
		"a start timeout":                     {data: map[string]string{"startTimeout": "90s"}, want: restore.Settings{Resume: restore.ResumeReplace, StartTimeout: 90 * time.Second}},
		"an unknown resume":                   {data: map[string]string{"resume": "later"}, fails: `setting resume is "later": it is one of "replace" and "manual"`},
		"a resume in capitals":                {data: map[string]string{"resume": "Manual"}, fails: `setting resume is "Manual"`},
		"an empty resume":                     {data: map[string]string{"resume": ""}, fails: `setting resume is ""`},
		"a wrong ConfigMap under the winner":  {data: map[string]string{"resume": "later"}, annotations: map[string]string{"oadp.openshift.io/dc-resume": "manual"}, fails: `setting resume is "later"`},
		"an unknown annotation":               {annotations: map[string]string{"oadp.openshift.io/dc-resume": "later"}, fails: `annotation oadp.openshift.io/dc-resume of the Restore is "later"`},
		"a start timeout without a unit":      {data: map[string]string{"startTimeout": "90"}, fails: `setting startTimeout is "90": it is a duration above 0, such as 5m`},
		"a start timeout of 0":                {data: map[string]string{"startTimeout": "0s"}, fails: `setting startTimeout is "0s"`},
		"a negative start timeout":            {data: map[string]string{"startTimeout": "-5m"}, fails: `setting startTimeout is "-5m"`},
		"the annotation sets no startTimeout": {annotations: map[string]string{"startTimeout": "x"}, want: defaults},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := restore.ParseSettings(tc.data, tc.annotations)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestReadSettings(t *testing.T) {
	t.Parallel()
	const action = "oadp.openshift.io/deploymentconfig-restore"
	config := func(namespace, name, resume string, labels ...string) client.Object {
		return builder.ForConfigMap(namespace, name).ObjectMeta(builder.WithLabels(labels...)).Data("resume", resume).Result()
	}
	v2 := []string{"velero.io/plugin-config", "", action, "RestoreItemActionV2"}
	manual := restore.Settings{Resume: restore.ResumeManual, StartTimeout: 5 * time.Minute}
	defaults := restore.Settings{Resume: restore.ResumeReplace, StartTimeout: 5 * time.Minute}
	tests := map[string]struct {
		objects    []client.Object
		annotation string
		want       restore.Settings
		fails      []string
	}{
		"no ConfigMap":                                {want: defaults},
		"labelled for RestoreItemAction":              {objects: []client.Object{config("openshift-adp", "c", "manual", "velero.io/plugin-config", "", action, "RestoreItemAction")}, want: manual},
		"labelled for RestoreItemActionV2":            {objects: []client.Object{config("openshift-adp", "c", "manual", v2...)}, want: manual},
		"labelled for another kind":                   {objects: []client.Object{config("openshift-adp", "c", "manual", "velero.io/plugin-config", "", action, "BackupItemAction")}, want: defaults},
		"labelled for another action":                 {objects: []client.Object{config("openshift-adp", "c", "manual", "velero.io/plugin-config", "", "velero.io/change-storage-class", "RestoreItemAction")}, want: defaults},
		"without the label of a plugin configuration": {objects: []client.Object{config("openshift-adp", "c", "manual", action, "RestoreItemAction")}, want: defaults},
		"in another namespace":                        {objects: []client.Object{config("shop", "c", "manual", v2...)}, want: defaults},
		"the annotation of the Restore wins":          {objects: []client.Object{config("openshift-adp", "c", "replace", v2...)}, annotation: "manual", want: manual},
		"the annotation of the Restore alone":         {annotation: "manual", want: manual},
		"two ConfigMaps, one for each version": {
			objects: []client.Object{config("openshift-adp", "c", "manual", v2...), config("openshift-adp", "d", "manual", "velero.io/plugin-config", "", action, "RestoreItemAction")},
			fails:   []string{"2 ConfigMaps in openshift-adp", action, "keep one"},
		},
		"a wrong value names the ConfigMap": {
			objects: []client.Object{config("openshift-adp", "c", "later", v2...)}, fails: []string{"Restore openshift-adp/r", "ConfigMap openshift-adp/c", `"later"`},
		},
		"a wrong annotation": {annotation: "later", fails: []string{"no ConfigMap of the plugin", "oadp.openshift.io/dc-resume", `"later"`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testkit.RestoreNamed("r").Result()
			if tc.annotation != "" {
				metav1.SetMetaDataAnnotation(&r.ObjectMeta, "oadp.openshift.io/dc-resume", tc.annotation)
			}
			got, err := restore.ReadSettings(t.Context(), testkit.FakeClient(t, tc.objects...), r)
			if len(tc.fails) == 0 {
				require.NoError(t, err)
			}
			for _, part := range tc.fails {
				var invalid *restore.InvalidSettingsError
				require.ErrorAs(t, err, &invalid)
				require.ErrorContains(t, err, part)
				require.ErrorIs(t, err, invalid.Unwrap())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// Settings that cannot be read now are not wrong settings: the operation must not fail over them.
func TestReadSettingsTellsAPassingErrorFromWrongSettings(t *testing.T) {
	t.Parallel()
	c, requests := testkit.Record(testkit.FakeClient(t))
	requests.Fail(func(testkit.Request) error { return apierrors.NewServiceUnavailable("etcd is away") })
	_, err := restore.ReadSettings(t.Context(), c, testkit.RestoreNamed("r").Result())
	require.ErrorContains(t, err, "list the plugin's ConfigMap in openshift-adp")
	require.True(t, apierrors.IsServiceUnavailable(err))
	var invalid *restore.InvalidSettingsError
	require.NotErrorAs(t, err, &invalid)
	require.Equal(t, map[string]int{"list ConfigMap": 1}, requests.Count())
}
