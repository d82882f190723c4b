// Package volumereplicationgroup is the shell of what comes with a VolumeReplicationGroup (VRG) of Ramen through backup and
// restore: its Recipe, and the CRDs of both.
package volumereplicationgroup

import (
	"context"
	"errors"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

var _ biav2.BackupItemAction = (*BackupAction)(nil)

// BackupAction brings the Recipe of a VRG, and its CRD, into the VRG's backup and records both on the archived VRG.
type BackupAction struct {
	log     logrus.FieldLogger
	backups *ramen.Backups
}

// NewBackup returns the action. backups are shared with the other actions of the process.
func NewBackup(log logrus.FieldLogger, backups *ramen.Backups) *BackupAction {
	return &BackupAction{log: log.WithField(contract.LogAction, contract.VRGBackupAction), backups: backups}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *BackupAction) Name() string { return contract.VRGBackupAction }

// AppliesTo selects VRGs by their full name.
func (a *BackupAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{contract.VRGCRD}}, nil
}

// Execute decides on one VRG. Whatever is wrong with its Recipe, it returns no error: that would drop the VRG from the backup.
// An Error line in the backup's log makes the backup PartiallyFailed, and the VRG stays in it.
func (a *BackupAction) Execute(source runtime.Unstructured, backup *velerov1.Backup) (
	runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error,
) {
	if err := item.CheckBackup(source, backup); err != nil {
		return nil, nil, "", nil, err
	}
	known := recipe.BackupFacts{VRG: item.View(source), Backup: backup}
	if !known.Concerned() {
		return source, nil, "", nil, nil
	}
	log := a.log.WithFields(logrus.Fields{
		contract.LogResource: contract.VRGCRD, contract.LogNamespace: known.VRG.GetNamespace(), contract.LogName: known.VRG.GetName(),
		contract.LogBackup: backup.Name,
	})
	a.gather(log, &known)
	decision := recipe.DecideBackup(known)
	item.Say(log.WithField(contract.LogDecision, string(decision.Outcome)), decision.Level, decision.Reason)
	for _, warning := range decision.Warnings {
		log.Warn(warning)
	}
	edited := item.Edit(source)
	if err := decision.Apply(edited); err != nil {
		log.Error(err.Error())
	}
	return edited, ramen.Items(decision.CRDs, decision.Recipes), "", nil, nil
}

// gather reads what the decision rests on. Errors are part of it, but for settings that cannot be used: their defaults are the
// strict side.
func (a *BackupAction) gather(log logrus.FieldLogger, known *recipe.BackupFacts) {
	ctx := context.Background() // every read has its own deadline
	settings, err := a.backups.Settings(ctx, known.Backup)
	var invalid *restore.InvalidSettingsError
	switch {
	case errors.As(err, &invalid):
		log.Error("The defaults are used: " + err.Error())
	case err != nil:
		log.Warn("The defaults are used: " + err.Error())
	}
	known.AdminNamespaces, known.Missing = settings.AdminNamespaces, settings.MissingRecipe
	if key, ok := known.Lookup(); ok {
		a.backups.Look(ctx, known, key)
	}
}

// Progress is never asked: the action starts no operation.
func (a *BackupAction) Progress(operationID string, _ *velerov1.Backup) (velero.OperationProgress, error) {
	return velero.OperationProgress{}, biav2.InvalidOperationIDError(operationID)
}

// Cancel is never asked: the action starts no operation.
func (a *BackupAction) Cancel(string, *velerov1.Backup) error { return nil }
