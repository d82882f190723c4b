package openshift

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// report writes the status of dc if it has changed. observed says whether this look has done what the current generation
// asks for. further conditions replace those that follow from rcs.
func (c *configController) report(
	ctx context.Context, dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController, observed bool,
	further ...ocpappsv1.DeploymentCondition,
) error {
	status := statusOf(dc, rcs, observed)
	for _, cond := range further {
		setCondition(&status, cond)
	}
	if reflect.DeepEqual(status, dc.Status) {
		return nil
	}
	changed := dc.DeepCopy()
	changed.Status = status
	if err := c.api.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("update status of DeploymentConfig %s/%s: %w", dc.Namespace, dc.Name, err)
	}
	return nil
}

// statusOf returns what there is to say about dc with these ReplicationControllers.
func statusOf(dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController, observed bool) ocpappsv1.DeploymentConfigStatus {
	newest, isLatest := newestRollout(dc, rcs)
	if !isLatest {
		newest = nil
	}
	status := ocpappsv1.DeploymentConfigStatus{
		LatestVersion:      dc.Status.LatestVersion,
		ObservedGeneration: dc.Status.ObservedGeneration,
		Details:            dc.Status.Details,
		Conditions:         slices.Clone(dc.Status.Conditions),
	}
	if observed {
		status.ObservedGeneration = dc.Generation
	}
	var wanted int32
	for _, rc := range rcs {
		wanted += ptr.Deref(rc.Spec.Replicas, 0)
		status.Replicas += rc.Status.Replicas
		status.ReadyReplicas += rc.Status.ReadyReplicas
		status.AvailableReplicas += rc.Status.AvailableReplicas
	}
	status.UnavailableReplicas = max(0, wanted-status.AvailableReplicas)
	if newest != nil {
		status.UpdatedReplicas = newest.Status.Replicas
	}

	var mayMiss int32
	if dc.Spec.Strategy.Type == ocpappsv1.DeploymentStrategyTypeRolling {
		// Like the original, take a bound that is no number for 0: the API server has refused it.
		_, mayMiss, _ = rollingBounds(dc.Spec.Strategy.RollingParams, dc.Spec.Replicas)
	}
	if status.AvailableReplicas > 0 && status.AvailableReplicas >= dc.Spec.Replicas-mayMiss {
		setCondition(&status, condition(ocpappsv1.DeploymentAvailable, corev1.ConditionTrue, "", "Deployment config has minimum availability."))
	} else {
		setCondition(&status, condition(ocpappsv1.DeploymentAvailable, corev1.ConditionFalse, "", "Deployment config does not have minimum availability."))
	}
	if newest != nil {
		setProgress(&status, dc.Status, newest)
	}
	return status
}

// setProgress sets the condition Progressing of status by the rollout of the latest version. was is the status before.
func setProgress(status *ocpappsv1.DeploymentConfigStatus, was ocpappsv1.DeploymentConfigStatus, latest *corev1.ReplicationController) {
	about := func(value corev1.ConditionStatus, reason ocpappsv1.DeploymentConditionReason, format string, args ...any) {
		setCondition(status, condition(ocpappsv1.DeploymentProgressing, value, reason, fmt.Sprintf(format, args...)))
	}
	switch phaseOf(latest) {
	case ocpappsv1.DeploymentStatusPending:
		about(corev1.ConditionUnknown, "", "replication controller %q is waiting for pod %q to run", latest.Name, deployerPodName(latest.Name))
	case ocpappsv1.DeploymentStatusRunning:
		moreNew := status.UpdatedReplicas > was.UpdatedReplicas
		fewerOld := status.Replicas-status.UpdatedReplicas < was.Replicas-was.UpdatedReplicas
		if moreNew || fewerOld {
			// Taken out first, so that its transition time says when there was progress last.
			status.Conditions = slices.DeleteFunc(status.Conditions, ofType(ocpappsv1.DeploymentProgressing))
			about(corev1.ConditionTrue, ocpappsv1.ReplicationControllerUpdatedReason, "replication controller %q is progressing", latest.Name)
		}
	case ocpappsv1.DeploymentStatusFailed:
		if cancelled(latest) {
			about(corev1.ConditionFalse, ocpappsv1.RolloutCancelledReason, "rollout of replication controller %q was cancelled", latest.Name)
		} else {
			about(corev1.ConditionFalse, ocpappsv1.ProgressDeadlineExceededReason, "replication controller %q has failed progressing", latest.Name)
		}
	case ocpappsv1.DeploymentStatusComplete:
		about(corev1.ConditionTrue, ocpappsv1.NewReplicationControllerAvailableReason, "replication controller %q successfully rolled out", latest.Name)
	}
}

func condition(
	of ocpappsv1.DeploymentConditionType, value corev1.ConditionStatus, reason ocpappsv1.DeploymentConditionReason, message string,
) ocpappsv1.DeploymentCondition {
	now := metav1.Now()
	return ocpappsv1.DeploymentCondition{
		Type: of, Status: value, Reason: string(reason), Message: message,
		LastUpdateTime: now, LastTransitionTime: now,
	}
}

// setCondition puts cond last in status, unless one of its type says the same already: then that stays, message and all.
func setCondition(status *ocpappsv1.DeploymentConfigStatus, cond ocpappsv1.DeploymentCondition) {
	if i := slices.IndexFunc(status.Conditions, ofType(cond.Type)); i >= 0 {
		old := status.Conditions[i]
		if old.Status == cond.Status && old.Reason == cond.Reason {
			return
		}
		if old.Status == cond.Status {
			cond.LastTransitionTime = old.LastTransitionTime
		}
	}
	status.Conditions = append(slices.DeleteFunc(status.Conditions, ofType(cond.Type)), cond)
}

func ofType(wanted ocpappsv1.DeploymentConditionType) func(ocpappsv1.DeploymentCondition) bool {
	return func(cond ocpappsv1.DeploymentCondition) bool { return cond.Type == wanted }
}
