// Package recipe is the shell of what becomes of a Recipe of Ramen in backups and restores.
package recipe

import (
	"context"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/ramen"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
)

var _ biav2.BackupItemAction = (*BackupAction)(nil)

// BackupAction brings the CRD of Recipes into the backup of a Recipe: Velero leaves it out where the backup excludes cluster
// resources, and where the Recipe is there only as an additional item (velero pkg/backup/backup.go, backupItemBlock).
type BackupAction struct {
	log     logrus.FieldLogger
	backups *ramen.Backups
}

// NewBackup returns the action. backups are shared with the other actions of the process.
func NewBackup(log logrus.FieldLogger, backups *ramen.Backups) *BackupAction {
	return &BackupAction{log: log.WithField(contract.LogAction, contract.RecipeBackupAction), backups: backups}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *BackupAction) Name() string { return contract.RecipeBackupAction }

// AppliesTo selects Ramen's Recipes by their full name: IBM Fusion has others.
func (a *BackupAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{contract.RecipeCRD}}, nil
}

// Execute decides on one Recipe. Whatever is wrong with the CRD, it returns no error: that would drop the Recipe from the backup.
func (a *BackupAction) Execute(source runtime.Unstructured, backup *velerov1.Backup) (
	runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error,
) {
	if err := item.CheckBackup(source, backup); err != nil {
		return nil, nil, "", nil, err
	}
	if recipe.MadeByRamen(backup) {
		return source, nil, "", nil, nil
	}
	archived := item.View(source)
	log := a.log.WithFields(logrus.Fields{
		contract.LogResource: contract.RecipeCRD, contract.LogNamespace: archived.GetNamespace(), contract.LogName: archived.GetName(),
		contract.LogBackup: backup.Name,
	})
	if a.backups.Archived(backup, archived) {
		log.Warn(recipe.ChangedDuringBackup(archived))
	}
	decision := recipe.DecideRecipeBackup(archived, backup, a.backups.CRD(context.Background(), backup, contract.RecipeCRD))
	item.Say(log.WithField(contract.LogDecision, string(decision.Outcome)), decision.Level, decision.Reason)
	edited := item.Edit(source)
	if err := decision.Apply(edited); err != nil {
		log.Error(err.Error())
	}
	return edited, ramen.Items(decision.CRDs, decision.Recipes), "", nil, nil
}

// Progress is never asked: the action starts no operation.
func (a *BackupAction) Progress(operationID string, _ *velerov1.Backup) (velero.OperationProgress, error) {
	return velero.OperationProgress{}, biav2.InvalidOperationIDError(operationID)
}

// Cancel is never asked: the action starts no operation.
func (a *BackupAction) Cancel(string, *velerov1.Backup) error { return nil }
