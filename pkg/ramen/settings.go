package ramen

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// BackupSettings are those for backups of VRGs.
type BackupSettings struct {
	// MissingRecipe is the level at which the backup's log says that a Recipe did not come along: recipe.LevelError makes the
	// backup PartiallyFailed, recipe.LevelWarn does not.
	MissingRecipe recipe.Level
	// AdminNamespaces are those whose VRGs may bring Recipes of any namespace.
	AdminNamespaces []string
}

// DefaultBackupSettings returns the settings where nothing is set. The namespaces are those that Ramen uses for its own
// objects, upstream and on OpenShift.
func DefaultBackupSettings() BackupSettings {
	return BackupSettings{
		MissingRecipe:   recipe.LevelError,
		AdminNamespaces: []string{"ramen-ops", "ramen-system", "openshift-dr-ops", "openshift-dr-system"},
	}
}

// ParseBackupSettings reads the data of the ConfigMap (nil: none). Absent values get their defaults; an unknown or malformed
// one is an error that names it. An empty list of namespaces means that no namespace is one of administrators.
func ParseBackupSettings(data map[string]string) (BackupSettings, error) {
	settings := DefaultBackupSettings()
	if value, ok := data[contract.MissingRecipeSetting]; ok {
		if !slices.Contains([]recipe.Level{recipe.LevelError, recipe.LevelWarn}, recipe.Level(value)) {
			return DefaultBackupSettings(), fmt.Errorf("setting %s is %q: it is one of %q and %q",
				contract.MissingRecipeSetting, value, recipe.LevelError, recipe.LevelWarn)
		}
		settings.MissingRecipe = recipe.Level(value)
	}
	if value, ok := data[contract.AdminNamespacesSetting]; ok {
		settings.AdminNamespaces = nil
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				continue
			}
			if len(validation.IsDNS1123Label(name)) > 0 {
				return DefaultBackupSettings(), fmt.Errorf("setting %s is %q: %q cannot be the name of a namespace; separate names with commas",
					contract.AdminNamespacesSetting, value, name)
			}
			settings.AdminNamespaces = append(settings.AdminNamespaces, name)
		}
	}
	return settings, nil
}

// ReadBackupSettings returns the settings for a backup from the ConfigMap in its namespace, which is Velero's. With an error
// come the defaults, which are the strict side; a restore.InvalidSettingsError says that the settings are wrong, any other
// error that they could not be read.
func ReadBackupSettings(ctx context.Context, reader client.Reader, backup *velerov1.Backup) (BackupSettings, error) {
	var config restore.Config
	err := again(ctx, "the plugin's settings", func(ctx context.Context) error {
		var err error
		config, err = restore.ReadConfig(ctx, reader, backup.Namespace, contract.VRGBackupAction, restore.BackupKinds)
		return err
	})
	if err != nil {
		return DefaultBackupSettings(), err
	}
	settings, err := ParseBackupSettings(config.Data)
	if err != nil {
		return settings, &restore.InvalidSettingsError{Err: fmt.Errorf("settings for backups of VRGs (%s): %w", config.Source, err)}
	}
	return settings, nil
}
