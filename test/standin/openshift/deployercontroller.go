package openshift

import (
	"context"
	"errors"
	"fmt"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deployerController stands in for the deployer controller: it makes the deployer pod of each new ReplicationController and
// lets the phase of the rollout follow that of the pod. It never touches replicas, except to hold spec.test to its word.
type deployerController struct {
	api    client.Client // reads and writes at the API server
	cached client.Reader // reads what the informers hold; may lag behind
	events record.EventRecorder
	image  string // of deployer pods
}

// actionableError is an error about which a user can do something, and so is told about in the end.
type actionableError struct{ error }

func (e actionableError) Unwrap() error { return e.error }

// look is one look at the ReplicationController of that name. It moves the rollout on by one phase at most.
func (c *deployerController) look(ctx context.Context, key types.NamespacedName, dropping bool) error {
	rc := &corev1.ReplicationController{}
	if err := c.cached.Get(ctx, key, rc); err != nil {
		return client.IgnoreNotFound(err)
	}
	phase := phaseOf(rc)
	next := phase
	notes := with(rc.Annotations, nil)

	pod := &corev1.Pod{}
	err := c.cached.Get(ctx, types.NamespacedName{Namespace: rc.Namespace, Name: deployerPodName(rc.Name)}, pod)
	switch {
	case apierrors.IsNotFound(err):
		pod, err = nil, nil
	case err != nil:
		return fmt.Errorf("get deployer pod of %s: %w", key, err)
	default:
		next = c.phaseByPod(rc, pod, notes)
	}

	switch phase {
	case ocpappsv1.DeploymentStatusNew:
		if next, err = c.start(ctx, rc, pod, next, notes); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
	case ocpappsv1.DeploymentStatusPending, ocpappsv1.DeploymentStatusRunning:
		switch {
		case pod != nil:
			err = c.tendPods(ctx, rc)
		case cancelled(rc):
			// We have deleted the pod ourselves.
			next = ocpappsv1.DeploymentStatusFailed
		case phase == ocpappsv1.DeploymentStatusPending && !dropping:
			// The pod may not have reached the cache yet.
			err = fmt.Errorf("deployer pod %s of %s is not there", deployerPodName(rc.Name), key)
		default:
			next = ocpappsv1.DeploymentStatusFailed
			notes[ocpappsv1.DeploymentStatusReasonAnnotation] = reasonDeployerPodGone
			c.event(rc, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Deployer pod %q has gone missing", deployerPodName(rc.Name)))
		}
	case ocpappsv1.DeploymentStatusFailed:
		// Once more: a hook pod may have been made after the first time.
		err = c.tendPods(ctx, rc)
	}
	if err != nil {
		return err
	}
	return c.proceed(ctx, rc, phase, next, notes)
}

// start handles a rollout in phase New: it sees to it that there is a deployer pod, and returns the next phase, or "" if
// nothing is to be done.
func (c *deployerController) start(
	ctx context.Context, rc *corev1.ReplicationController, pod *corev1.Pod, byPod ocpappsv1.DeploymentStatus, notes map[string]string,
) (ocpappsv1.DeploymentStatus, error) {
	if cancelled(rc) {
		// Pending, so that the DeploymentConfig controller still counts it as running until its pods are gone.
		return ocpappsv1.DeploymentStatusPending, c.deletePods(ctx, rc)
	}
	dc, err := decodeConfig(rc)
	if err != nil {
		return "", err
	}
	if limit := startTimeout(dc); limit > 0 && time.Since(rc.CreationTimestamp.Time) > limit {
		notes[ocpappsv1.DeploymentStatusReasonAnnotation] = reasonNoDeployerPod
		c.event(rc, corev1.EventTypeWarning, "RolloutTimeout", fmt.Sprintf(
			"Rollout for \"%s/%s\" failed to create deployer pod (timeoutSeconds: %ds)", rc.Namespace, rc.Name, int64(limit.Seconds())))
		return ocpappsv1.DeploymentStatusFailed, nil
	}
	next := ocpappsv1.DeploymentStatusPending
	switch {
	case pod == nil:
		if _, ignore := rc.Annotations[ignorePodAnnotation]; ignore {
			return "", nil
		}
		pod = deployerPod(rc, dc, c.image)
		if err := c.api.Create(ctx, pod); err != nil {
			c.event(rc, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("Error creating deployer pod: %v", err))
			return "", actionableError{fmt.Errorf("couldn't create deployer pod for \"%s/%s\": %w", rc.Namespace, rc.Name, err)}
		}
	case pod.Annotations[ocpappsv1.DeploymentAnnotation] != rc.Name:
		notes[ocpappsv1.DeploymentStatusReasonAnnotation] = reasonUnrelatedPod
		c.event(rc, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("Error creating deployer pod since another pod with the same name (%q) exists", pod.Name))
		return ocpappsv1.DeploymentStatusFailed, nil
	case phaseFollows(ocpappsv1.DeploymentStatusPending, byPod):
		// A pod of that name that says it is ours is taken for ours, wherever it came from.
		next = byPod
	}
	notes[ocpappsv1.DeploymentPodAnnotation] = pod.Name
	notes[ocpappsv1.DeployerPodCreatedAtAnnotation] = pod.CreationTimestamp.String()
	if pod.Status.StartTime != nil {
		notes[ocpappsv1.DeployerPodStartedAtAnnotation] = pod.Status.StartTime.String()
	}
	return next, nil
}

// phaseByPod returns the phase of a rollout whose deployer pod is pod, and notes in the annotations what its end means.
func (c *deployerController) phaseByPod(rc *corev1.ReplicationController, pod *corev1.Pod, notes map[string]string) ocpappsv1.DeploymentStatus {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		for _, status := range pod.Status.ContainerStatuses {
			if status.State.Terminated != nil {
				notes[ocpappsv1.DeployerPodCompletedAtAnnotation] = status.State.Terminated.FinishedAt.String()
				break
			}
		}
	}
	switch pod.Status.Phase {
	case corev1.PodPending:
		return ocpappsv1.DeploymentStatusPending
	case corev1.PodRunning:
		return ocpappsv1.DeploymentStatusRunning
	case corev1.PodFailed:
		return ocpappsv1.DeploymentStatusFailed
	case corev1.PodSucceeded:
		if cancelled(rc) {
			// Meant to take the cancellation back, the original takes it off a copy that is not written.
			delete(rc.Annotations, ocpappsv1.DeploymentStatusReasonAnnotation)
			delete(rc.Annotations, ocpappsv1.DeploymentCancelledAnnotation)
			c.event(rc, corev1.EventTypeWarning, "FailedCancellation", "Succeeded before cancel recorded")
		}
		// After a rolling update the desired count is gone already, so this notes an empty one.
		notes[replicasAnnotation] = notes[ocpappsv1.DesiredReplicasAnnotation]
		delete(notes, ocpappsv1.DesiredReplicasAnnotation)
		return ocpappsv1.DeploymentStatusComplete
	default:
		return ocpappsv1.DeploymentStatusNew
	}
}

// proceed writes the next phase of rc, with these annotations, if it may follow.
func (c *deployerController) proceed(
	ctx context.Context, rc *corev1.ReplicationController, from, to ocpappsv1.DeploymentStatus, notes map[string]string,
) error {
	if !phaseFollows(from, to) {
		return nil
	}
	notes[ocpappsv1.DeploymentStatusAnnotation] = string(to)
	rc.Annotations = notes
	if ended(rc) && ptr.Deref(rc.Spec.Replicas, 0) != 0 {
		if dc, err := decodeConfig(rc); err == nil && dc.Spec.Test {
			rc.Spec.Replicas = ptr.To[int32](0)
		}
	}
	if err := c.api.Update(ctx, rc); err != nil {
		return fmt.Errorf("couldn't update rollout status for \"%s/%s\" to %s: %w", rc.Namespace, rc.Name, to, err)
	}
	if cancelled(rc) && to == ocpappsv1.DeploymentStatusFailed {
		c.event(rc, corev1.EventTypeNormal, "RolloutCancelled", fmt.Sprintf("Rollout for \"%s/%s\" cancelled", rc.Namespace, rc.Name))
	}
	return nil
}

// tendPods deletes the deployer and hook pods of a cancelled rollout, and makes those of any other the property of its
// ReplicationController, so that they go when it goes: the deployer makes its hook pods without an owner.
func (c *deployerController) tendPods(ctx context.Context, rc *corev1.ReplicationController) error {
	if cancelled(rc) {
		return c.deletePods(ctx, rc)
	}
	pods, err := c.pods(ctx, rc)
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods {
		pod := &pods[i]
		if len(pod.OwnerReferences) > 0 {
			continue
		}
		before := pod.DeepCopy()
		pod.OwnerReferences = ownedBy(rc)
		if err := c.api.Patch(ctx, pod, client.StrategicMergeFrom(before)); err != nil {
			errs = append(errs, fmt.Errorf("set owner of pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// deletePods deletes the deployer and hook pods of rc.
func (c *deployerController) deletePods(ctx context.Context, rc *corev1.ReplicationController) error {
	pods, err := c.pods(ctx, rc)
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods {
		if err := client.IgnoreNotFound(c.api.Delete(ctx, &pods[i])); err != nil {
			errs = append(errs, fmt.Errorf("delete pod %s/%s: %w", pods[i].Namespace, pods[i].Name, err))
		}
	}
	if len(errs) > 0 {
		return actionableError{fmt.Errorf("couldn't clean up all deployer pods for \"%s/%s\": %w", rc.Namespace, rc.Name, errors.Join(errs...))}
	}
	return nil
}

func (c *deployerController) pods(ctx context.Context, rc *corev1.ReplicationController) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.cached.List(ctx, &list, client.InNamespace(rc.Namespace), client.MatchingLabels{ocpappsv1.DeployerPodForDeploymentLabel: rc.Name}); err != nil {
		return nil, fmt.Errorf("list deployer pods of %s/%s: %w", rc.Namespace, rc.Name, err)
	}
	return list.Items, nil
}

// gaveUp tells the user of an error that will not be retried.
func (c *deployerController) gaveUp(ctx context.Context, key types.NamespacedName, err error) {
	if _, actionable := errors.AsType[actionableError](err); !actionable {
		return
	}
	rc := &corev1.ReplicationController{}
	if c.cached.Get(ctx, key, rc) == nil {
		c.event(rc, corev1.EventTypeWarning, "FailedRetry", fmt.Sprintf("Stop retrying: %v", err))
	}
}

// event records an event on the DeploymentConfig of rc, or on rc if it does not say which that is.
func (c *deployerController) event(rc *corev1.ReplicationController, eventType, reason, message string) {
	if dc, err := decodeConfig(rc); err == nil {
		c.events.Event(dc, eventType, reason, message)
		return
	}
	c.events.Event(rc, eventType, reason, message)
}

// startTimeout returns how long a rollout may be without a deployer pod before it fails; 0 is for ever.
func startTimeout(dc *ocpappsv1.DeploymentConfig) time.Duration {
	var given *int64
	switch strategy := dc.Spec.Strategy; strategy.Type {
	case ocpappsv1.DeploymentStrategyTypeRolling:
		if strategy.RollingParams != nil {
			given = strategy.RollingParams.TimeoutSeconds
		}
	case ocpappsv1.DeploymentStrategyTypeRecreate:
		if strategy.RecreateParams != nil {
			given = strategy.RecreateParams.TimeoutSeconds
		}
	case ocpappsv1.DeploymentStrategyTypeCustom:
	default:
		return 0
	}
	return time.Duration(ptr.Deref(given, strategyTimeoutSeconds)) * time.Second
}

// ownedBy returns the owner reference of pods that work for rc. It is no controller reference.
func ownedBy(rc *corev1.ReplicationController) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ReplicationController", Name: rc.Name, UID: rc.UID}}
}

// deployerPod returns the pod that rolls out rc, which was made from dc.
func deployerPod(rc *corev1.ReplicationController, dc *ocpappsv1.DeploymentConfig, image string) *corev1.Pod {
	strategy, template := dc.Spec.Strategy, rc.Spec.Template.Spec
	container := corev1.Container{
		Name:                     deployerContainer,
		Image:                    image,
		ImagePullPolicy:          corev1.PullIfNotPresent,
		Resources:                strategy.Resources,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if custom := strategy.CustomParams; custom != nil {
		// Of whatever type the strategy is.
		if custom.Image != "" {
			container.Image = custom.Image
		}
		container.Command = custom.Command
		container.Env = append(container.Env, custom.Environment...)
	}
	container.Env = append(container.Env, rolloutEnv(rc)...)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       rc.Namespace,
			Name:            deployerPodName(rc.Name),
			OwnerReferences: ownedBy(rc),
			Labels:          without(map[string]string{ocpappsv1.DeployerPodForDeploymentLabel: rc.Name}, strategy.Labels),
			Annotations: without(map[string]string{
				ocpappsv1.DeploymentAnnotation:       rc.Name,
				ocpappsv1.DeploymentConfigAnnotation: rc.Annotations[ocpappsv1.DeploymentConfigAnnotation],
			}, strategy.Annotations),
		},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{container},
			ActiveDeadlineSeconds:         new(ptr.Deref(strategy.ActiveDeadlineSeconds, maxRolloutSeconds)),
			DNSPolicy:                     template.DNSPolicy,
			DNSConfig:                     template.DNSConfig,
			EnableServiceLinks:            template.EnableServiceLinks,
			ImagePullSecrets:              template.ImagePullSecrets,
			Tolerations:                   template.Tolerations,
			NodeSelector:                  template.NodeSelector,
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            deployerServiceAccount,
			TerminationGracePeriodSeconds: ptr.To[int64](10),
			ShareProcessNamespace:         new(false),
		},
	}
}

// rolloutEnv tells the container of a deployer or hook pod which rollout it works for.
func rolloutEnv(rc *corev1.ReplicationController) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "OPENSHIFT_DEPLOYMENT_NAME", Value: rc.Name},
		{Name: "OPENSHIFT_DEPLOYMENT_NAMESPACE", Value: rc.Namespace},
	}
}
