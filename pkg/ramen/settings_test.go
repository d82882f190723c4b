package ramen_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// namespaces are those where nothing is set: of Ramen's operands and its operator, upstream and on OpenShift.
var namespaces = []string{"ramen-ops", "ramen-system", "openshift-dr-ops", "openshift-dr-system"}

func TestParseBackupSettings(t *testing.T) {
	t.Parallel()
	defaults := ramen.BackupSettings{MissingRecipe: recipe.LevelError, AdminNamespaces: namespaces}
	tests := map[string]struct {
		data map[string]string
		want ramen.BackupSettings
		// fails is the error; the defaults come with it.
		fails string
	}{
		"nothing is set":               {want: defaults},
		"an empty ConfigMap":           {data: map[string]string{}, want: defaults},
		"unknown settings are not us":  {data: map[string]string{"other": "x"}, want: defaults},
		"missingRecipe: warn":          {data: map[string]string{"missingRecipe": "warn"}, want: ramen.BackupSettings{MissingRecipe: recipe.LevelWarn, AdminNamespaces: namespaces}},
		"missingRecipe: error":         {data: map[string]string{"missingRecipe": "error"}, want: defaults},
		"a level that is none of ours": {data: map[string]string{"missingRecipe": "info"}, want: defaults, fails: `setting missingRecipe is "info": it is one of "error" and "warn"`},
		"capitals":                     {data: map[string]string{"missingRecipe": "Warn"}, want: defaults, fails: `setting missingRecipe is "Warn": it is one of "error" and "warn"`},
		"an empty level":               {data: map[string]string{"missingRecipe": ""}, want: defaults, fails: `setting missingRecipe is "": it is one of "error" and "warn"`},
		"other namespaces":             {data: map[string]string{"adminNamespaces": " dr , ,dr-ops,\n"}, want: ramen.BackupSettings{MissingRecipe: recipe.LevelError, AdminNamespaces: []string{"dr", "dr-ops"}}},
		"no namespaces":                {data: map[string]string{"adminNamespaces": ""}, want: ramen.BackupSettings{MissingRecipe: recipe.LevelError}},
		"a pattern is no namespace": {
			data: map[string]string{"adminNamespaces": "dr,dr-*"}, want: defaults,
			fails: `setting adminNamespaces is "dr,dr-*": "dr-*" cannot be the name of a namespace; separate names with commas`,
		},
		"spaces do not separate": {
			data: map[string]string{"adminNamespaces": "dr ops", "missingRecipe": "warn"}, want: defaults,
			fails: `setting adminNamespaces is "dr ops": "dr ops" cannot be the name of a namespace; separate names with commas`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ramen.ParseBackupSettings(tc.data)
			if tc.fails != "" {
				require.EqualError(t, err, tc.fails)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func config(name, missing string, labels ...string) client.Object {
	return builder.ForConfigMap(testkit.VeleroNamespace, name).ObjectMeta(builder.WithLabels(labels...)).Data("missingRecipe", missing).Result()
}

const vrgBackup = "oadp.openshift.io/volumereplicationgroup-backup"

func TestReadBackupSettings(t *testing.T) {
	t.Parallel()
	warn := ramen.BackupSettings{MissingRecipe: recipe.LevelWarn, AdminNamespaces: namespaces}
	tests := map[string]struct {
		objects []client.Object
		want    ramen.BackupSettings
		fails   []string
	}{
		"no ConfigMap":                    {want: ramen.DefaultBackupSettings()},
		"labelled for BackupItemAction":   {objects: []client.Object{config("c", "warn", "velero.io/plugin-config", "", vrgBackup, "BackupItemAction")}, want: warn},
		"labelled for BackupItemActionV2": {objects: []client.Object{config("c", "warn", "velero.io/plugin-config", "", vrgBackup, "BackupItemActionV2")}, want: warn},
		"labelled for a restore":          {objects: []client.Object{config("c", "warn", "velero.io/plugin-config", "", vrgBackup, "RestoreItemAction")}, want: ramen.DefaultBackupSettings()},
		"two of them": {objects: []client.Object{
			config("c", "warn", "velero.io/plugin-config", "", vrgBackup, "BackupItemAction"), config("d", "warn", "velero.io/plugin-config", "", vrgBackup, "BackupItemActionV2"),
		}, want: ramen.DefaultBackupSettings(), fails: []string{"2 ConfigMaps in openshift-adp", vrgBackup, "keep one"}},
		"a wrong value": {
			objects: []client.Object{config("c", "later", "velero.io/plugin-config", "", vrgBackup, "BackupItemAction")}, want: ramen.DefaultBackupSettings(),
			fails: []string{"settings for backups of VRGs (ConfigMap openshift-adp/c): ", `"later"`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ramen.ReadBackupSettings(t.Context(), testkit.FakeClient(t, tc.objects...), testkit.BackupNamed("b").Result())
			if len(tc.fails) == 0 {
				require.NoError(t, err)
			}
			for _, part := range tc.fails {
				var invalid *restore.InvalidSettingsError
				require.ErrorAs(t, err, &invalid)
				require.ErrorContains(t, err, part)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestSettingsThatCannotBeReadAreNotWrong(t *testing.T) {
	t.Parallel()
	c, requests := testkit.Record(testkit.FakeClient(t))
	requests.Fail(func(testkit.Request) error { return apierrors.NewUnauthorized("expired") })
	got, err := ramen.ReadBackupSettings(t.Context(), c, testkit.BackupNamed("b").Result())
	require.ErrorContains(t, err, "list the plugin's ConfigMap in openshift-adp")
	require.True(t, apierrors.IsUnauthorized(err))
	var invalid *restore.InvalidSettingsError
	require.NotErrorAs(t, err, &invalid)
	require.Equal(t, ramen.DefaultBackupSettings(), got)
	require.Len(t, requests.All(), 1)
}
