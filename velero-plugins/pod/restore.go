// Package pod is the shell of phase one for pods: it gathers what is known of a pod, lets pkg/disconnect decide, and
// carries the decision out.
package pod

import (
	"context"

	"github.com/cockroachdb/errors"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/label"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/item"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

var _ riav2.RestoreItemAction = (*RestoreAction)(nil)

// RestoreAction leaves out, detaches or passes pods. Velero makes one for each plugin process; it holds no state of its
// own beside the facts of the restore.
type RestoreAction struct {
	log    logrus.FieldLogger
	facts  *restore.Cache
	driver *postrestore.Driver
}

// New returns the action. facts are shared with the other actions of the process; driver answers for its operations.
func New(log logrus.FieldLogger, facts *restore.Cache, driver *postrestore.Driver) *RestoreAction {
	return &RestoreAction{log: log.WithField(contract.LogAction, contract.PodRestoreAction), facts: facts, driver: driver}
}

// Name is never asked for over the wire: Velero knows the action by the name it is registered under.
func (a *RestoreAction) Name() string { return contract.PodRestoreAction }

// AppliesTo selects all pods: a pod that was detached when it was backed up lacks the labels of the others.
func (a *RestoreAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{kuberesource.Pods.String()}}, nil
}

// Execute decides on one pod. It returns an error, and thereby drops the pod, only where restoring it could destroy data:
// when it cannot be known whether its DeploymentConfig is live.
func (a *RestoreAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	if err := item.Check(input); err != nil {
		return nil, errors.Wrap(err, contract.PodRestoreAction)
	}
	output := velero.NewRestoreItemActionExecuteOutput(input.Item)
	pod, err := item.Read[corev1.Pod](input.ItemFromBackup)
	if err != nil {
		a.log.WithError(err).Warn("pod cannot be read and is passed to Velero as it is")
		return output, nil
	}
	log := a.log.WithFields(logrus.Fields{contract.LogNamespace: pod.Namespace, contract.LogName: pod.Name, contract.LogRestore: input.Restore.Name})
	decision, ok := disconnect.DecideWithoutDC(pod)
	var known disconnect.PodFacts
	if !ok {
		if known, err = a.gather(log, pod, input); err != nil {
			return nil, errors.Wrapf(err, "decide on pod %s/%s", pod.Namespace, pod.Name)
		}
		decision = disconnect.DecidePod(known)
	}
	item.LogDecision(log, decision)
	switch decision.Verdict {
	case disconnect.Refused:
		return nil, errors.Newf("pod %s/%s is not restored: %s", pod.Namespace, pod.Name, decision.Reason)
	case disconnect.Skipped:
		return output.WithoutRestore(), nil
	case disconnect.Detached:
		dc := disconnect.DeploymentConfigOf(pod)
		edited := item.Edit(input.Item)
		disconnect.Detach(edited, dc, disconnect.OwnerOf(input.Restore))
		output.UpdatedItem = edited
		operation := a.operation(input.Restore, pod.Namespace, dc, known.Scope)
		if operation != "" {
			a.driver.StandBy(a.log, input.Restore)
		}
		return output.WithOperationID(operation), nil
	default:
		return output, nil
	}
}

// gather reads what the decision on a DeploymentConfig's pod rests on.
func (a *RestoreAction) gather(log logrus.FieldLogger, pod *corev1.Pod, input *velero.RestoreItemActionExecuteInput) (disconnect.PodFacts, error) {
	ctx := context.Background()
	facts := a.facts.For(input.Restore)
	known := disconnect.PodFacts{Pod: pod}
	var err error
	if known.Filled, err = facts.Filled(ctx, pod); err != nil {
		known.FilledUnknown = err.Error()
	}
	if disconnect.IsRolloutPod(pod) {
		return known, nil
	}
	dc, target := disconnect.DeploymentConfigOf(pod), facts.TargetNamespace(pod.Namespace)

	dcs, err := facts.DCsBefore(ctx, target)
	if err != nil {
		return known, err
	}
	known.DC = facts.Live(dcs.Get(dc))
	if known.Scope, err = facts.Scope(ctx); err != nil {
		log.WithError(err).Warn("the backup cannot be read: it is taken to hold DeploymentConfigs")
	}
	if !dcs.Served {
		known.Scope = disconnect.Scope{Reason: "the cluster does not serve DeploymentConfigs"}
	}
	known.Hooks, err = hooksOf(pod, dc, target, input)
	return known, err
}

// hooksOf returns the hooks that Velero will run in the pod if it is detached. Velero's own action for init hooks has run
// on the labels of the backup; exec hooks are matched on the labels of the created pod.
func hooksOf(pod *corev1.Pod, dc, target string, input *velero.RestoreItemActionExecuteInput) (hooks.Applied, error) {
	now := item.View(input.Item)
	created := disconnect.LabelsWhenDetached(now.GetLabels(), dc, disconnect.OwnerOf(input.Restore))
	created[velerov1.RestoreNameLabel] = label.GetValidName(input.Restore.Name)
	created[velerov1.BackupNameLabel] = label.GetValidName(input.Restore.Spec.BackupName)
	return hooks.Find(&input.Restore.Spec.Hooks, hooks.Pod{
		TargetNamespace:     target,
		Annotations:         now.GetAnnotations(),
		LabelsBeforePlugins: pod.Labels,
		LabelsWhenCreated:   created,
		Containers:          pod.Spec.Containers,
	})
}

// operation returns the ID of an operation where no DeploymentConfig's own will look after the detached pod, else an
// empty one. One operation for each such DeploymentConfig, and one for each restore, are enough.
func (a *RestoreAction) operation(r *velerov1.Restore, namespace, dc string, scope disconnect.Scope) string {
	facts := a.facts.For(r)
	target := facts.TargetNamespace(namespace)
	switch {
	case !scope.Included && facts.First("operation/"+target+"/"+dc):
		// The restore brings no DeploymentConfigs; the one in the cluster is at 0.
		return postrestore.OperationFor(r, target, dc)
	case scope.Included && scope.Uncertain && facts.First("operation"):
		return postrestore.OperationForPods(r)
	default:
		return ""
	}
}

// Progress tells how far the operation is. See postrestore.Driver.
func (a *RestoreAction) Progress(operationID string, r *velerov1.Restore) (velero.OperationProgress, error) {
	return a.driver.Progress(a.log, operationID, r)
}

// Cancel leaves everything as it is and says what to run.
func (a *RestoreAction) Cancel(operationID string, r *velerov1.Restore) error {
	return a.driver.Cancel(a.log, operationID, r)
}

// AreAdditionalItemsReady is never asked: the action returns no additional items.
func (a *RestoreAction) AreAdditionalItemsReady([]velero.ResourceIdentifier, *velerov1.Restore) (bool, error) {
	return true, nil
}
