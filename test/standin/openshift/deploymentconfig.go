package openshift

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configController stands in for the DeploymentConfig controller: it makes a ReplicationController for each version, counts
// the version up when a trigger says so, gives the replicas to the active ReplicationController, and reports. It leaves the
// rollout itself to the deployer.
type configController struct {
	api    client.Client // reads and writes at the API server
	cached client.Reader // reads what the informers hold; may lag behind
	events record.EventRecorder
}

// look is one look at the DeploymentConfig of that name. Each look takes one step; the write that it makes leads to the next.
func (c *configController) look(ctx context.Context, key types.NamespacedName, _ bool) error {
	dc := &ocpappsv1.DeploymentConfig{}
	if err := c.cached.Get(ctx, key, dc); err != nil {
		return client.IgnoreNotFound(err)
	}
	if isNew(dc) && forgetTriggeredImages(dc) {
		if err := c.api.Update(ctx, dc); err != nil {
			return fmt.Errorf("take the triggered images out of the new DeploymentConfig %s: %w", key, err)
		}
		return nil
	}
	if dc.Status.LatestVersion == 0 && !hasTrigger(dc, "") {
		return c.report(ctx, dc, nil, true)
	}

	var list corev1.ReplicationControllerList
	if err := c.cached.List(ctx, &list, client.InNamespace(dc.Namespace)); err != nil {
		return fmt.Errorf("list ReplicationControllers in %s: %w", dc.Namespace, err)
	}
	claims := newClaims(ctx, c.api, dc)
	rcs, err := claims.all(ctx, list.Items)
	if err != nil {
		return err
	}
	if dc.DeletionTimestamp != nil {
		return c.report(ctx, dc, rcs, true)
	}
	if dc.Spec.Paused {
		// Nothing below happens to a paused DeploymentConfig, and that includes scaling.
		c.prune(ctx, dc, rcs, "DeploymentCleanupFailed", "Couldn't clean up deployments: %v")
		return c.report(ctx, dc, rcs, true)
	}

	newest, isLatest := newestRollout(dc, rcs)
	if versionOf(newest) > dc.Status.LatestVersion {
		// A ReplicationController of a later version than ours: catch up, one at a time, as the API server demands.
		return c.countUp(ctx, dc, nil)
	}
	if !isLatest {
		if err := c.cancelUnfinished(ctx, dc, rcs, claims); err != nil {
			return err
		}
	}
	for _, container := range dc.Spec.Template.Spec.Containers {
		if strings.TrimSpace(container.Image) == "" {
			return c.report(ctx, dc, rcs, true)
		}
	}
	decision, cause, err := trigger(dc, newest, isLatest)
	if err != nil {
		return fmt.Errorf("triggers of DeploymentConfig %s: %w", key, err)
	}
	switch {
	case decision == triggerWaits:
		return c.report(ctx, dc, rcs, true)
	case decision == triggerFires:
		return c.countUp(ctx, dc, cause)
	case isLatest && !ended(newest):
		// The deployer is at work; two would fight over the replicas. The generation is not reported as observed.
		return c.report(ctx, dc, rcs, false)
	case isLatest:
		return c.scale(ctx, dc, rcs, claims)
	default:
		return c.create(ctx, dc, rcs, claims)
	}
}

// isNew says whether no controller has seen dc yet.
func isNew(dc *ocpappsv1.DeploymentConfig) bool {
	return dc.Generation <= 1 && dc.Status.ObservedGeneration == 0 && dc.Status.LatestVersion == 0
}

// forgetTriggeredImages takes every lastTriggeredImage out of dc and says whether there was one. OpenShift's API server does
// so at creation (openshift-apiserver pkg/apps/apiserver/registry/deployconfig, strategy PrepareForCreate), so that a
// restored DeploymentConfig waits for its images to be resolved in this cluster.
func forgetTriggeredImages(dc *ocpappsv1.DeploymentConfig) bool {
	found := false
	for i := range dc.Spec.Triggers {
		if params := dc.Spec.Triggers[i].ImageChangeParams; params != nil && params.LastTriggeredImage != "" {
			params.LastTriggeredImage = ""
			found = true
		}
	}
	return found
}

// countUp starts the next version. details, if any, say why.
func (c *configController) countUp(ctx context.Context, dc *ocpappsv1.DeploymentConfig, details *ocpappsv1.DeploymentDetails) error {
	next := dc.DeepCopy()
	next.Status.LatestVersion++
	if details != nil {
		next.Status.Details = details
	}
	if err := c.api.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("count DeploymentConfig %s/%s up to version %d: %w", dc.Namespace, dc.Name, next.Status.LatestVersion, err)
	}
	return nil
}

// cancelUnfinished asks every rollout that has not ended to stop, because a newer version is wanted, and returns an error as
// long as one has not stopped.
func (c *configController) cancelUnfinished(ctx context.Context, dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController, claims *claims) error {
	waiting := false
	for i, rc := range rcs {
		if ended(rc) {
			continue
		}
		waiting = true
		if cancelled(rc) {
			continue
		}
		updated, err := c.update(ctx, rc, claims, func(rc *corev1.ReplicationController) {
			rc.Annotations[ocpappsv1.DeploymentCancelledAnnotation] = "true"
			rc.Annotations[ocpappsv1.DeploymentStatusReasonAnnotation] = reasonCancelledByNewer
		})
		if err = client.IgnoreNotFound(err); err != nil && !errors.Is(err, errNotOurs) {
			c.events.Eventf(dc, corev1.EventTypeWarning, "DeploymentCancellationFailed",
				"Failed to cancel deployment %q superceded by version %d: %s", rc.Name, dc.Status.LatestVersion, err)
			return err
		}
		if updated != nil {
			rcs[i] = updated
			c.events.Eventf(dc, corev1.EventTypeNormal, "DeploymentCancelled", "Cancelled deployment %q superceded by version %d", rc.Name, dc.Status.LatestVersion)
		}
	}
	if waiting {
		c.events.Eventf(dc, corev1.EventTypeNormal, "DeploymentAwaitingCancellation",
			"Deployment of version %d awaiting cancellation of older running deployments", dc.Status.LatestVersion)
		return fmt.Errorf("DeploymentConfig %s/%s: an older rollout has not stopped yet", dc.Namespace, dc.Name)
	}
	return nil
}

// errNotOurs says that a ReplicationController has another owner by now.
var errNotOurs = errors.New("it belongs to another owner")

// update changes rc as the cache holds it, again on conflicts, unless it has another owner by now. It returns nil with an
// error.
func (c *configController) update(
	ctx context.Context, rc *corev1.ReplicationController, claims *claims, change func(*corev1.ReplicationController),
) (*corev1.ReplicationController, error) {
	var updated *corev1.ReplicationController
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fresh := &corev1.ReplicationController{}
		if err := c.cached.Get(ctx, client.ObjectKeyFromObject(rc), fresh); err != nil {
			return err
		}
		ours, err := claims.one(ctx, fresh)
		if err != nil {
			return err
		}
		if !ours {
			return fmt.Errorf("ReplicationController %s/%s: %w", rc.Namespace, rc.Name, errNotOurs)
		}
		change(fresh)
		if err := c.api.Update(ctx, fresh); err != nil {
			return err
		}
		updated = fresh
		return nil
	})
	return updated, err
}

// create makes the ReplicationController of the latest version.
func (c *configController) create(ctx context.Context, dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController, claims *claims) error {
	rc, err := newRollout(dc)
	if err != nil {
		return fatalError{err}
	}
	err = c.api.Create(ctx, rc)
	if apierrors.IsAlreadyExists(err) {
		existing := &corev1.ReplicationController{}
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(rc), existing); err != nil {
			return fmt.Errorf("get ReplicationController %s/%s: %w", rc.Namespace, rc.Name, err)
		}
		// Why it cannot be adopted, if that was tried, the original loses as well: "already exists" is all a user reads.
		if ours, claimErr := claims.one(ctx, existing); ours && claimErr == nil {
			return fmt.Errorf("the cache does not show ReplicationController %s/%s yet", rc.Namespace, rc.Name)
		}
	}
	if err != nil {
		c.events.Eventf(dc, corev1.EventTypeWarning, "DeploymentCreationFailed", "Couldn't deploy version %d: %s", dc.Status.LatestVersion, err)
		reportErr := c.report(ctx, dc, rcs, true, condition(ocpappsv1.DeploymentProgressing, corev1.ConditionFalse,
			ocpappsv1.ReplicationControllerCreateErrorReason, err.Error()))
		return errors.Join(fmt.Errorf("create ReplicationController of DeploymentConfig %s/%s: %w", dc.Namespace, dc.Name, err), reportErr)
	}
	msg := fmt.Sprintf("Created new replication controller %q for version %d", rc.Name, dc.Status.LatestVersion)
	c.events.Event(dc, corev1.EventTypeNormal, "DeploymentCreated", msg)
	rcs = append(rcs, rc)
	c.prune(ctx, dc, rcs, "DeploymentCleanupFailed", "Couldn't clean up deployments: %v")
	return c.report(ctx, dc, rcs, true, condition(ocpappsv1.DeploymentProgressing, corev1.ConditionTrue,
		ocpappsv1.NewReplicationControllerCreatedReason, msg))
}

// scale gives the replicas of dc to its active ReplicationController and takes them from all others. With spec.test none has
// any.
func (c *configController) scale(ctx context.Context, dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController, claims *claims) error {
	active := activeRollout(rcs)
	for i, rc := range rcs {
		var want int32
		if rc == active && !dc.Spec.Test {
			want = dc.Spec.Replicas
		}
		have := ptr.Deref(rc.Spec.Replicas, 0)
		if want == have {
			continue
		}
		updated, err := c.update(ctx, rc, claims, func(rc *corev1.ReplicationController) { rc.Spec.Replicas = &want })
		if err != nil {
			err = fmt.Errorf("scale ReplicationController %s/%s from %d to %d: %w", rc.Namespace, rc.Name, have, want, err)
			c.events.Eventf(dc, corev1.EventTypeWarning, "ReplicationControllerScaleFailed",
				"Failed to scale replication controler %q from %d to %d: %v", rc.Name, have, want, err)
			return err
		}
		c.events.Eventf(dc, corev1.EventTypeNormal, "ReplicationControllerScaled", "Scaled replication controller %q from %d to %d", rc.Name, have, want)
		rcs[i] = updated
	}
	c.prune(ctx, dc, rcs, "ReplicationControllerCleanupFailed", "Couldn't clean up replication controllers: %v")
	return c.report(ctx, dc, rcs, true)
}

// prune deletes the oldest ReplicationControllers over the revision history limit, except those with replicas, which still
// count. What goes wrong is an event of that reason and nothing more.
func (c *configController) prune(ctx context.Context, dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController, eventReason, format string) {
	if dc.Spec.RevisionHistoryLimit == nil {
		return
	}
	candidates := prunable(dc, rcs)
	excess := len(candidates) - int(*dc.Spec.RevisionHistoryLimit)
	var errs []error
	for i := range excess {
		if ptr.Deref(candidates[i].Spec.Replicas, 0) != 0 {
			continue
		}
		if err := client.IgnoreNotFound(c.api.Delete(ctx, candidates[i], client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		c.events.Eventf(dc, corev1.EventTypeWarning, eventReason, format, err)
	}
}

// triggerDecision is what the triggers of a DeploymentConfig say.
type triggerDecision int

const (
	triggerSilent triggerDecision = iota // nothing: go on
	triggerFires                         // a new version is wanted
	triggerWaits                         // no version yet: an image trigger is not resolved
)

// trigger decides whether a new version is wanted, and why. newest and isLatest are newestRollout's answer.
func trigger(dc *ocpappsv1.DeploymentConfig, newest *corev1.ReplicationController, isLatest bool) (triggerDecision, *ocpappsv1.DeploymentDetails, error) {
	onImage, onConfig := hasTrigger(dc, ocpappsv1.DeploymentTriggerOnImageChange), hasTrigger(dc, ocpappsv1.DeploymentTriggerOnConfigChange)
	configChange := &ocpappsv1.DeploymentDetails{
		Message: "config change",
		Causes:  []ocpappsv1.DeploymentCause{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}},
	}
	switch {
	case dc.Status.LatestVersion == 0 && onImage && !imagesResolved(dc):
		return triggerWaits, nil, nil
	case dc.Status.LatestVersion == 0 && (onImage || onConfig):
		return triggerFires, configChange, nil
	case !isLatest:
		return triggerSilent, nil, nil
	}
	if onImage {
		if images := changedImages(dc, newest); len(images) > 0 {
			details := &ocpappsv1.DeploymentDetails{Message: "image change"}
			for _, image := range images {
				details.Causes = append(details.Causes, ocpappsv1.DeploymentCause{
					Type:         ocpappsv1.DeploymentTriggerOnImageChange,
					ImageTrigger: &ocpappsv1.DeploymentCauseImageTrigger{From: corev1.ObjectReference{Kind: "DockerImage", Name: image}},
				})
			}
			return triggerFires, details, nil
		}
	}
	if onConfig {
		same, err := sameTemplate(dc, newest)
		if err != nil {
			return triggerSilent, nil, err
		}
		if !same {
			return triggerFires, configChange, nil
		}
	}
	return triggerSilent, nil, nil
}

// hasTrigger says whether dc has a trigger of that type; of the empty type: any that the controller knows.
func hasTrigger(dc *ocpappsv1.DeploymentConfig, of ocpappsv1.DeploymentTriggerType) bool {
	if of == "" {
		return hasTrigger(dc, ocpappsv1.DeploymentTriggerOnConfigChange) || hasTrigger(dc, ocpappsv1.DeploymentTriggerOnImageChange)
	}
	return slices.ContainsFunc(dc.Spec.Triggers, func(t ocpappsv1.DeploymentTriggerPolicy) bool { return t.Type == of })
}

// imagesResolved says whether every image trigger has named an image before.
func imagesResolved(dc *ocpappsv1.DeploymentConfig) bool {
	return !slices.ContainsFunc(dc.Spec.Triggers, func(t ocpappsv1.DeploymentTriggerPolicy) bool {
		return t.Type == ocpappsv1.DeploymentTriggerOnImageChange && (t.ImageChangeParams == nil || t.ImageChangeParams.LastTriggeredImage == "")
	})
}

// changedImages returns the images in dc's template that no container of rc runs.
func changedImages(dc *ocpappsv1.DeploymentConfig, rc *corev1.ReplicationController) []string {
	var changed []string
	for _, container := range dc.Spec.Template.Spec.Containers {
		if !slices.ContainsFunc(rc.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Image == container.Image }) {
			changed = append(changed, container.Image)
		}
	}
	return changed
}

// sameTemplate says whether dc's pod template is the one that rc was made from. What counts is the DeploymentConfig that rc
// carries, not rc's own template: editing an RC by hand starts no rollout. Both sides go through the codec, which makes them
// equal where OpenShift's API server would not have told them apart.
func sameTemplate(dc *ocpappsv1.DeploymentConfig, rc *corev1.ReplicationController) (bool, error) {
	was, err := decodeConfig(rc)
	if err != nil {
		return false, err
	}
	encoded, err := encodeConfig(dc)
	if err != nil {
		return false, err
	}
	is, err := decodeConfig(&corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{ocpappsv1.DeploymentEncodedConfigAnnotation: encoded},
	}})
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(is.Spec.Template, was.Spec.Template), nil
}
