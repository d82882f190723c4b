package openshift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hook runs a lifecycle hook, if there is one, to its end. when is pre, mid or post. The error ends the rollout: it is nil
// for a hook that failed and may.
//
// failurePolicy Retry is for the kubelet to keep: the pod restarts its container until it succeeds. A pod that fails all
// the same, at its deadline, aborts the rollout.
func (d *deployer) hook(
	ctx context.Context, hook *ocpappsv1.LifecycleHook, dc *ocpappsv1.DeploymentConfig, rc *corev1.ReplicationController, when string,
) error {
	if hook == nil {
		return nil
	}
	var err error
	switch {
	case len(hook.TagImages) > 0:
		// There are no ImageStreams here to tag.
		d.events.Eventf(dc, corev1.EventTypeNormal, "Started", "Running %s-hook (TagImages) for rc %s/%s", when, rc.Namespace, rc.Name)
		err = tagImages(hook, rc)
	case hook.ExecNewPod != nil:
		d.events.Eventf(dc, corev1.EventTypeNormal, "Started", "Running %s-hook (%q) for rc %s/%s",
			when, strings.Join(hook.ExecNewPod.Command, " "), rc.Namespace, rc.Name)
		err = d.execNewPod(ctx, hook, dc, rc, when)
	}
	switch {
	case ctx.Err() != nil:
		// The deployer was stopped; what the hook did is nobody's business any more.
		return ctx.Err()
	case err == nil:
		d.events.Eventf(dc, corev1.EventTypeNormal, "Completed", "The %s-hook for rc %s/%s completed successfully", when, rc.Namespace, rc.Name)
		return nil
	case hook.FailurePolicy == ocpappsv1.LifecycleHookFailurePolicyIgnore:
		d.events.Eventf(dc, corev1.EventTypeWarning, "Failed", "The %s-hook failed: %v (ignore), rollout of %s/%s will continue", when, err, rc.Namespace, rc.Name)
		return nil
	case hook.FailurePolicy == ocpappsv1.LifecycleHookFailurePolicyAbort, hook.FailurePolicy == ocpappsv1.LifecycleHookFailurePolicyRetry:
		d.events.Eventf(dc, corev1.EventTypeWarning, "Failed", "The %s-hook failed: %v, aborting rollout of %s/%s", when, err, rc.Namespace, rc.Name)
		return fmt.Errorf("%s hook failed: the %s hook failed: %w, aborting rollout of %s/%s", when, when, err, rc.Namespace, rc.Name)
	default:
		return fmt.Errorf("%s hook failed: %w", when, err)
	}
}

// tagImages returns an error if a container whose image is to be tagged does not exist.
func tagImages(hook *ocpappsv1.LifecycleHook, rc *corev1.ReplicationController) error {
	var errs []error
	for _, tag := range hook.TagImages {
		if containerOf(rc, tag.ContainerName) == nil {
			errs = append(errs, fmt.Errorf("unable to find image for container %q, container could not be found", tag.ContainerName))
		}
	}
	return errors.Join(errs...)
}

// execNewPod makes the hook's pod and waits for its end, for as long as the pod lives: its activeDeadlineSeconds is what is
// left of the deployer's. A pod of that name that exists is taken for the hook's, and its end for the hook's end.
func (d *deployer) execNewPod(
	ctx context.Context, hook *ocpappsv1.LifecycleHook, dc *ocpappsv1.DeploymentConfig, rc *corev1.ReplicationController, when string,
) error {
	own := &corev1.Pod{}
	if err := d.api.Get(ctx, types.NamespacedName{Namespace: rc.Namespace, Name: deployerPodName(rc.Name)}, own); err != nil {
		return err
	}
	started := time.Now()
	if own.Status.StartTime != nil {
		started = own.Status.StartTime.Time
	}
	pod, err := hookPod(hook, dc, rc, when, time.Since(started))
	if err != nil {
		return err
	}
	if err := d.api.Create(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("couldn't create lifecycle pod for %s: %w", rc.Name, err)
	}
	key := client.ObjectKeyFromObject(pod)
	var seen types.UID
	// No deadline but the deployer pod's own: ctx has that.
	err = wait.PollUntilContextCancel(ctx, watchInterval, true, func(ctx context.Context) (bool, error) {
		// Into a new object, so that nothing is left of the last one.
		pod = &corev1.Pod{}
		err := d.api.Get(ctx, key, pod)
		if apierrors.IsNotFound(err) || (err == nil && seen != "" && pod.UID != seen) {
			return false, fmt.Errorf("%s: pod/%s[%s] unexpectedly deleted", when, key.Name, key.Namespace)
		}
		if err != nil {
			return false, err
		}
		seen = pod.UID
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
	})
	if err != nil {
		return err
	}
	if pod.Status.Phase == corev1.PodFailed {
		return errors.New(pod.Status.Message)
	}
	return nil
}

// hookPod returns the pod of a hook: the image, environment, working directory, resources and security context of the
// container that it names, and of the pod's volumes those that it names. elapsed is how long the deployer has run.
func hookPod(
	hook *ocpappsv1.LifecycleHook, dc *ocpappsv1.DeploymentConfig, rc *corev1.ReplicationController, when string, elapsed time.Duration,
) (*corev1.Pod, error) {
	exec, strategy, template := hook.ExecNewPod, dc.Spec.Strategy, rc.Spec.Template.Spec
	base := containerOf(rc, exec.ContainerName)
	if base == nil {
		return nil, fmt.Errorf("no container named '%s' found in rc template", exec.ContainerName)
	}
	env := map[string]corev1.EnvVar{}
	for _, v := range slices.Concat(base.Env, exec.Env) {
		env[v.Name] = v
	}
	// Ordered, unlike the original's: nothing depends on its chance order.
	merged := make([]corev1.EnvVar, 0, len(env)+2)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		merged = append(merged, env[name])
	}
	var volumes []corev1.Volume
	for _, volume := range template.Volumes {
		if slices.Contains(exec.Volumes, volume.Name) {
			volumes = append(volumes, volume)
		}
	}
	var mounts []corev1.VolumeMount
	for _, m := range base.VolumeMounts {
		if slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			mounts = append(mounts, corev1.VolumeMount{Name: m.Name, ReadOnly: m.ReadOnly, MountPath: m.MountPath, SubPath: m.SubPath})
		}
	}
	restart := corev1.RestartPolicyNever
	if hook.FailurePolicy == ocpappsv1.LifecycleHookFailurePolicyRetry {
		restart = corev1.RestartPolicyOnFailure
	}
	kind := "hook-" + when
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   rc.Namespace,
			Name:        podName(rc.Name, kind),
			Labels:      without(map[string]string{ocpappsv1.DeployerPodForDeploymentLabel: rc.Name, podTypeLabel: kind}, strategy.Labels),
			Annotations: without(map[string]string{ocpappsv1.DeploymentAnnotation: rc.Name}, strategy.Annotations),
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:            hookContainer,
				Image:           base.Image,
				ImagePullPolicy: base.ImagePullPolicy,
				Command:         exec.Command,
				WorkingDir:      base.WorkingDir,
				Env:             append(merged, rolloutEnv(rc)...),
				Resources:       base.Resources,
				VolumeMounts:    mounts,
				SecurityContext: base.SecurityContext.DeepCopy(),
			}},
			SecurityContext:               template.SecurityContext.DeepCopy(),
			Volumes:                       volumes,
			ActiveDeadlineSeconds:         new(ptr.Deref(strategy.ActiveDeadlineSeconds, maxRolloutSeconds) - int64(elapsed.Seconds())),
			NodeSelector:                  template.NodeSelector,
			RestartPolicy:                 restart,
			ImagePullSecrets:              slices.Clone(template.ImagePullSecrets),
			TerminationGracePeriodSeconds: ptr.To[int64](10),
		},
	}, nil
}

// containerOf returns the container of that name in rc's pod template, or nil.
func containerOf(rc *corev1.ReplicationController, name string) *corev1.Container {
	for i := range rc.Spec.Template.Spec.Containers {
		if container := &rc.Spec.Template.Spec.Containers[i]; container.Name == name {
			return container
		}
	}
	return nil
}

// mergePatch returns content as a JSON merge patch.
func mergePatch(content any) (client.Patch, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return client.RawPatch(types.MergePatchType, data), nil
}
