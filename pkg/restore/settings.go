package restore

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework/common"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Resume says who runs phase two and how.
type Resume string

// The ways to resume.
const (
	// ResumeReplace deletes the detached pods and lets the DeploymentConfig make its own. The default.
	ResumeReplace Resume = "replace"
	// ResumeManual leaves phase two to a person.
	ResumeManual Resume = "manual"
)

// DefaultStartTimeout is how long a restored pod may be unable to start before phase two gives up on it. It covers a
// registry that answers late and a node that an autoscaler adds.
const DefaultStartTimeout = 5 * time.Minute

// Settings of the plugin for one restore.
type Settings struct {
	Resume       Resume
	StartTimeout time.Duration
}

// ParseSettings reads the settings from the data of the plugin's ConfigMap (nil: none) and the annotations of the
// Restore, which win. Absent values get their defaults. An unknown or malformed one is an error that names it: to guess
// could delete pods that a person wanted to keep.
func ParseSettings(data, restoreAnnotations map[string]string) (Settings, error) {
	settings := Settings{Resume: ResumeReplace, StartTimeout: DefaultStartTimeout}
	for _, source := range []struct {
		values    map[string]string
		key, name string
	}{
		{data, contract.ResumeSetting, "setting " + contract.ResumeSetting},
		{restoreAnnotations, contract.ResumeAnnotation, "annotation " + contract.ResumeAnnotation + " of the Restore"},
	} {
		value, ok := source.values[source.key]
		if !ok {
			continue
		}
		if !slices.Contains([]Resume{ResumeReplace, ResumeManual}, Resume(value)) {
			return Settings{}, fmt.Errorf("%s is %q: it is one of %q and %q", source.name, value, ResumeReplace, ResumeManual)
		}
		settings.Resume = Resume(value)
	}
	if value, ok := data[contract.StartTimeoutSetting]; ok {
		timeout, err := time.ParseDuration(value)
		if err != nil || timeout <= 0 {
			return Settings{}, fmt.Errorf("setting %s is %q: it is a duration above 0, such as 5m", contract.StartTimeoutSetting, value)
		}
		settings.StartTimeout = timeout
	}
	return settings, nil
}

// ReadSettings returns the settings for a restore from the plugin's ConfigMap in the namespace of the Restore, which is
// Velero's, and from the Restore's annotations.
func ReadSettings(ctx context.Context, reader client.Reader, restore *velerov1.Restore) (Settings, error) {
	config, err := ReadConfig(ctx, reader, restore.Namespace, contract.DeploymentConfigRestoreAction, RestoreKinds)
	if err != nil {
		return Settings{}, err
	}
	settings, err := ParseSettings(config.Data, restore.Annotations)
	if err != nil {
		return Settings{}, &InvalidSettingsError{Err: fmt.Errorf("settings for Restore %s/%s (%s): %w", restore.Namespace, restore.Name, config.Source, err)}
	}
	return settings, nil
}

// Kinds are the values that the label of an action's name can have on its ConfigMap: the kind of the action in either version.
type Kinds [2]common.PluginKind

// The kinds of ours.
var (
	BackupKinds  = Kinds{common.PluginKindBackupItemAction, common.PluginKindBackupItemActionV2}   //nolint:gochecknoglobals // Go has no constant arrays
	RestoreKinds = Kinds{common.PluginKindRestoreItemAction, common.PluginKindRestoreItemActionV2} //nolint:gochecknoglobals // Go has no constant arrays
)

// Config is what the ConfigMap of an action holds.
type Config struct {
	// Data of the ConfigMap, nil where there is none.
	Data map[string]string
	// Source names the ConfigMap, or says that there is none. For messages.
	Source string
}

// ReadConfig returns the settings of an action from its ConfigMap in Velero's namespace. There may be at most one, as for
// Velero's own plugins (pkg/plugin/framework/common/plugin_config.go), labelled for either version of the kind: of more,
// the error is an InvalidSettingsError. Any other error is one of the API.
func ReadConfig(ctx context.Context, reader client.Reader, namespace, action string, kinds Kinds) (Config, error) {
	isOfAction, err := labels.NewRequirement(action, selection.In, []string{string(kinds[0]), string(kinds[1])})
	if err != nil {
		return Config{}, fmt.Errorf("select the plugin's ConfigMap: %w", err)
	}
	isConfig, err := labels.NewRequirement(contract.PluginConfigLabel, selection.Exists, nil)
	if err != nil {
		return Config{}, fmt.Errorf("select the plugin's ConfigMap: %w", err)
	}
	selector := labels.NewSelector().Add(*isConfig, *isOfAction)
	var maps corev1.ConfigMapList
	if err := reader.List(ctx, &maps, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return Config{}, fmt.Errorf("list the plugin's ConfigMap in %s: %w", namespace, err)
	}
	switch len(maps.Items) {
	case 0:
		return Config{Source: "no ConfigMap of the plugin"}, nil
	case 1:
		return Config{Data: maps.Items[0].Data, Source: fmt.Sprintf("ConfigMap %s/%s", maps.Items[0].Namespace, maps.Items[0].Name)}, nil
	default:
		return Config{}, &InvalidSettingsError{Err: fmt.Errorf("%d ConfigMaps in %s carry the labels %s: keep one", len(maps.Items), namespace, selector)}
	}
}

// InvalidSettingsError says that settings are wrong, as opposed to not readable at the moment.
type InvalidSettingsError struct{ Err error }

// Error implements error.
func (e *InvalidSettingsError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InvalidSettingsError) Unwrap() error { return e.Err }
