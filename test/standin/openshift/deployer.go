package openshift

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchInterval is how often this package asks for what the original's deployer watches.
const watchInterval = 100 * time.Millisecond

// deployer stands in for the process in the deployer pod: it takes one ReplicationController to the replicas that its
// annotation kubectl.kubernetes.io/desired-replicas asks for, and the older ones to 0. Where the original polls, it polls at
// the same pace, so that a rollout takes as long as it would.
type deployer struct {
	api    client.Client
	events record.EventRecorder
	// poll is how often the replicas are asked for after a scaling: 1 s in the original.
	poll time.Duration
}

// work is what happens in the container `deployment` of pod. It returns nil if the container ends with exit code 0.
//
// The container of a Custom strategy is the user's. As this package cannot run it, it is taken to do nothing, and to fail
// where its command says so.
func (d *deployer) work(ctx context.Context, pod *corev1.Pod) error {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Annotations[ocpappsv1.DeploymentAnnotation]}
	to := &corev1.ReplicationController{}
	if err := d.api.Get(ctx, key, to); err != nil {
		return fmt.Errorf("couldn't get deployment %s: %w", key.Name, err)
	}
	dc, err := decodeConfig(to)
	if err != nil {
		return fmt.Errorf("couldn't decode deployment config from deployment %s: %w", to.Name, err)
	}
	if custom := dc.Spec.Strategy.CustomParams; custom != nil && (custom.Image != "" || len(custom.Command) > 0) {
		if commandFails(custom.Command) {
			return fmt.Errorf("command %q failed", strings.Join(custom.Command, " "))
		}
		return nil
	}

	desired, err := strconv.ParseInt(to.Annotations[ocpappsv1.DesiredReplicasAnnotation], 10, 32)
	if err != nil {
		return fmt.Errorf("deployment %s has already run to completion", to.Name)
	}
	from, err := d.clear(ctx, to, dc)
	if err != nil {
		return err
	}
	switch dc.Spec.Strategy.Type {
	case ocpappsv1.DeploymentStrategyTypeRecreate:
		return d.recreate(ctx, dc, from, to, int32(desired))
	case ocpappsv1.DeploymentStrategyTypeRolling:
		return d.rolling(ctx, dc, from, to, int32(desired))
	default:
		return fmt.Errorf("unsupported strategy type: %s", dc.Spec.Strategy.Type)
	}
}

// commandFails says whether a command that is not run counts as failed, by the rule of the stand-in node.
func commandFails(command []string) bool {
	line := strings.Join(command, " ")
	if exit := exitCommand.FindStringSubmatch(line); exit != nil {
		return strings.Trim(exit[1], "0") != ""
	}
	return falseCommand.MatchString(line)
}

var (
	exitCommand  = regexp.MustCompile(`\bexit +(\d+)\b`)
	falseCommand = regexp.MustCompile(`\bfalse\b`)
)

// clear returns the ReplicationController that the rollout starts from, the newest other one whose rollout is Complete, or
// nil, and takes to 0 what is neither that nor to.
func (d *deployer) clear(ctx context.Context, to *corev1.ReplicationController, dc *ocpappsv1.DeploymentConfig) (*corev1.ReplicationController, error) {
	var list corev1.ReplicationControllerList
	if err := d.api.List(ctx, &list, client.InNamespace(to.Namespace), client.MatchingLabels{ocpappsv1.DeploymentConfigAnnotation: dc.Name}); err != nil {
		return nil, fmt.Errorf("couldn't get controllers in namespace %s: %w", to.Namespace, err)
	}
	var others []*corev1.ReplicationController
	for i := range list.Items {
		if list.Items[i].Name != to.Name {
			others = append(others, &list.Items[i])
		}
	}
	from := activeRollout(others)
	if versionOf(to) < versionOf(from) {
		return nil, fmt.Errorf("deployment %s is older than %s", to.Name, from.Name)
	}
	for _, rc := range others {
		if rc == from || ptr.Deref(rc.Spec.Replicas, 0) == 0 {
			continue
		}
		// Like the original, go on with the rollout if an older one cannot be scaled down.
		_ = d.scaleAndSettle(ctx, rc, 0, time.Second, 2*time.Minute)
	}
	return from, nil
}

// recreate takes from to 0 and then to to desired, with the hooks pre, mid and post around it. If there is a from, to is
// first tried with one pod. from may be nil.
func (d *deployer) recreate(ctx context.Context, dc *ocpappsv1.DeploymentConfig, from, to *corev1.ReplicationController, desired int32) error {
	params := ptr.Deref(dc.Spec.Strategy.RecreateParams, ocpappsv1.RecreateDeploymentStrategyParams{})
	timeout := seconds(params.TimeoutSeconds, strategyTimeoutSeconds)
	if rolling := dc.Spec.Strategy.RollingParams; rolling != nil && rolling.TimeoutSeconds != nil {
		// The first rollout of a Rolling strategy comes here, with its own timeout.
		timeout = seconds(rolling.TimeoutSeconds, strategyTimeoutSeconds)
	}

	if err := d.hook(ctx, params.Pre, dc, to, "pre"); err != nil {
		return err
	}
	if from != nil {
		if _, err := d.scaleOnce(ctx, from, 0, timeout); err != nil {
			return fmt.Errorf("couldn't scale %s to 0: %w", from.Name, err)
		}
		if err := d.awaitNoPods(ctx, from, seconds(params.TimeoutSeconds, strategyTimeoutSeconds)); err != nil {
			return err
		}
	}
	if err := d.hook(ctx, params.Mid, dc, to, "mid"); err != nil {
		return err
	}
	if desired > 0 {
		accepted := false
		if from != nil {
			one, err := d.scaleOnce(ctx, to, 1, timeout)
			if err != nil {
				return fmt.Errorf("couldn't scale %s to 1: %w", to.Name, err)
			}
			if err := d.awaitAvailable(ctx, one, timeout); err != nil {
				return fmt.Errorf("update acceptor rejected %s: %w", to.Name, err)
			}
			to, accepted = one, true
		}
		if ptr.Deref(to.Spec.Replicas, -1) != desired {
			scaled, err := d.scaleOnce(ctx, to, desired, timeout)
			if err != nil {
				return fmt.Errorf("couldn't scale %s to %d: %w", to.Name, desired, err)
			}
			to = scaled
		}
		if !accepted {
			if err := d.awaitAvailable(ctx, to, timeout); err != nil {
				return fmt.Errorf("update acceptor rejected %s: %w", to.Name, err)
			}
		}
	}
	return d.hook(ctx, params.Post, dc, to, "post")
}

// rolling takes to up and from down in turns, within the bounds of the strategy. Without a from it is like recreate.
func (d *deployer) rolling(ctx context.Context, dc *ocpappsv1.DeploymentConfig, from, to *corev1.ReplicationController, desired int32) error {
	params := ptr.Deref(dc.Spec.Strategy.RollingParams, ocpappsv1.RollingDeploymentStrategyParams{})
	if err := d.hook(ctx, params.Pre, dc, to, "pre"); err != nil {
		return err
	}
	if from == nil {
		if err := d.recreate(ctx, dc, nil, to, desired); err != nil {
			return err
		}
		return d.hook(ctx, params.Post, dc, to, "post")
	}
	if err := d.rollOver(ctx, dc, from, to, desired); err != nil {
		return err
	}
	return d.hook(ctx, params.Post, dc, to, "post")
}

// rollOver is the rolling update proper.
func (d *deployer) rollOver(ctx context.Context, dc *ocpappsv1.DeploymentConfig, from, to *corev1.ReplicationController, desired int32) error {
	params := ptr.Deref(dc.Spec.Strategy.RollingParams, ocpappsv1.RollingDeploymentStrategyParams{})
	timeout := seconds(params.TimeoutSeconds, strategyTimeoutSeconds)
	interval := seconds(params.IntervalSeconds, 1)
	settle := seconds(params.UpdatePeriodSeconds, 1)

	if err := d.annotate(ctx, to, map[string]any{sourceIDAnnotation: fmt.Sprintf("%s:%s", from.Name, from.UID)}); err != nil {
		return err
	}
	if _, marked := from.Annotations[originalReplicasAnnotation]; !marked {
		if err := d.annotate(ctx, from, map[string]any{originalReplicasAnnotation: strconv.Itoa(int(ptr.Deref(from.Spec.Replicas, 1)))}); err != nil {
			return err
		}
	}
	surge, unavailable, err := rollingBounds(dc.Spec.Strategy.RollingParams, desired)
	if err != nil {
		return err
	}
	minAvailable := max(0, desired-unavailable)

	oldReplicas, newReplicas := ptr.Deref(from.Spec.Replicas, 1), ptr.Deref(to.Spec.Replicas, 1)
	deadline := time.Now().Add(timeout)
	for newReplicas != desired || oldReplicas != 0 {
		progress := false

		room := desired + surge - oldReplicas - newReplicas
		if oldReplicas == 0 {
			room = desired - newReplicas
		}
		if room > 0 && newReplicas != desired {
			if newReplicas, err = d.scaleSettleAndRead(ctx, to, min(newReplicas+room, desired), interval, timeout); err != nil {
				return err
			}
			progress = true
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		if oldReplicas > 0 {
			available, err := d.availablePods(ctx, to, dc.Spec.MinReadySeconds)
			if err != nil {
				return err
			}
			spare := oldReplicas + newReplicas - minAvailable - (newReplicas - available)
			if spare > 0 {
				want := max(0, oldReplicas-spare)
				if newReplicas == desired && available == desired {
					want = 0
				}
				if oldReplicas, err = d.scaleSettleAndRead(ctx, from, want, interval, timeout); err != nil {
					return err
				}
				progress = true
			}
		}
		switch {
		case progress:
			deadline = time.Now().Add(timeout)
		case time.Now().After(deadline):
			return errors.New("timed out waiting for any update progress to be made")
		}
	}

	if err := d.annotate(ctx, to, map[string]any{sourceIDAnnotation: nil, ocpappsv1.DesiredReplicasAnnotation: nil}); err != nil {
		return err
	}
	return await(ctx, interval, timeout, func(ctx context.Context) (bool, error) {
		rc, err := d.fresh(ctx, to)
		if err != nil {
			return false, err
		}
		return rc.Status.ObservedGeneration >= rc.Generation && rc.Status.Replicas == ptr.Deref(rc.Spec.Replicas, 1), nil
	})
}

// scaleOnce asks for replicas and waits for them to be there. If they are not in time, it goes on: the original drops that
// error. It returns rc as it then is.
func (d *deployer) scaleOnce(
	ctx context.Context, rc *corev1.ReplicationController, replicas int32, timeout time.Duration,
) (*corev1.ReplicationController, error) {
	if ptr.Deref(rc.Spec.Replicas, -1) == replicas && rc.Status.Replicas == replicas {
		return rc, nil
	}
	before, err := d.fresh(ctx, rc)
	if err != nil {
		return nil, err
	}
	if before.Status.Replicas == replicas {
		// The original looks at what there is, not at what was asked for, and leaves it.
		return before, nil
	}
	if err := d.scale(ctx, rc, replicas); err != nil {
		return nil, err
	}
	err = await(ctx, d.poll, timeout, func(ctx context.Context) (bool, error) {
		fresh, err := d.fresh(ctx, rc)
		return err == nil && fresh.Status.Replicas == replicas, err
	})
	if ctx.Err() != nil {
		return nil, err
	}
	return d.fresh(ctx, rc)
}

// scale asks for replicas. The original reads, updates and fails the rollout after five conflicts in a row, which a busy
// machine gets to; a patch has none.
func (d *deployer) scale(ctx context.Context, rc *corev1.ReplicationController, replicas int32) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	return d.api.SubResource("scale").Patch(ctx, rc.DeepCopy(), patch, client.WithSubResourceBody(&autoscalingv1.Scale{}))
}

// scaleAndSettle asks for replicas until it is heard, and waits until they are there or someone asks for others.
func (d *deployer) scaleAndSettle(ctx context.Context, rc *corev1.ReplicationController, replicas int32, interval, timeout time.Duration) error {
	if err := d.scale(ctx, rc, replicas); err != nil {
		return fmt.Errorf("scale %s to %d: %w", rc.Name, replicas, err)
	}
	err := await(ctx, interval, timeout, func(ctx context.Context) (bool, error) {
		fresh, err := d.fresh(ctx, rc)
		if err != nil {
			return false, err
		}
		asked := ptr.Deref(fresh.Spec.Replicas, 1)
		return asked != replicas || fresh.Status.Replicas == replicas, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s to have %d replicas: %w", rc.Name, replicas, err)
	}
	return nil
}

// scaleSettleAndRead is scaleAndSettle, and returns how many replicas rc is then asked to have.
func (d *deployer) scaleSettleAndRead(ctx context.Context, rc *corev1.ReplicationController, replicas int32, interval, timeout time.Duration) (int32, error) {
	if err := d.scaleAndSettle(ctx, rc, replicas, interval, timeout); err != nil {
		return 0, err
	}
	fresh, err := d.fresh(ctx, rc)
	if err != nil {
		return 0, err
	}
	return ptr.Deref(fresh.Spec.Replicas, 1), nil
}

// awaitAvailable waits until all replicas of rc are available.
func (d *deployer) awaitAvailable(ctx context.Context, rc *corev1.ReplicationController, timeout time.Duration) error {
	err := await(ctx, watchInterval, timeout, func(ctx context.Context) (bool, error) {
		fresh, err := d.fresh(ctx, rc)
		if err != nil {
			return false, err
		}
		if fresh.UID != rc.UID {
			return false, fmt.Errorf("replicationcontrollers '%s/%s' no longer exists, expected UID %q, got UID %q", rc.Namespace, rc.Name, rc.UID, fresh.UID)
		}
		return fresh.Status.AvailableReplicas == ptr.Deref(fresh.Spec.Replicas, 1), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("pods for rc '%s/%s' took longer than %.f seconds to become available", rc.Namespace, rc.Name, timeout.Seconds())
	}
	return err
}

// awaitNoPods waits until no pod of rc runs any more. If one still does when time is up, the rollout goes on all the same.
func (d *deployer) awaitNoPods(ctx context.Context, rc *corev1.ReplicationController, timeout time.Duration) error {
	err := await(ctx, d.poll, timeout, func(ctx context.Context) (bool, error) {
		pods, err := d.podsOf(ctx, rc)
		runs := slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
		})
		// An error is no end of the wait: there will be another look.
		return err == nil && !runs, nil
	})
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// availablePods counts the pods of rc that have been ready for minReadySeconds and are not being deleted.
func (d *deployer) availablePods(ctx context.Context, rc *corev1.ReplicationController, minReadySeconds int32) (int32, error) {
	pods, err := d.podsOf(ctx, rc)
	if err != nil {
		return 0, err
	}
	var count int32
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, cond := range pod.Status.Conditions {
			since := cond.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second)
			if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue && (minReadySeconds == 0 || since.Before(time.Now())) {
				count++
			}
		}
	}
	return count, nil
}

func (d *deployer) podsOf(ctx context.Context, rc *corev1.ReplicationController) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := d.api.List(ctx, &list, client.InNamespace(rc.Namespace), client.MatchingLabels(rc.Spec.Selector)); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", rc.Name, err)
	}
	return list.Items, nil
}

// annotate sets annotations of rc at the API server; a nil value removes one.
func (d *deployer) annotate(ctx context.Context, rc *corev1.ReplicationController, annotations map[string]any) error {
	patch, err := mergePatch(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	if err := d.api.Patch(ctx, rc.DeepCopy(), patch); err != nil {
		return fmt.Errorf("annotate %s: %w", rc.Name, err)
	}
	return nil
}

// fresh reads rc at the API server.
func (d *deployer) fresh(ctx context.Context, rc *corev1.ReplicationController) (*corev1.ReplicationController, error) {
	fresh := &corev1.ReplicationController{}
	if err := d.api.Get(ctx, client.ObjectKeyFromObject(rc), fresh); err != nil {
		return nil, fmt.Errorf("get deployment %s: %w", rc.Name, err)
	}
	return fresh, nil
}

// await asks at once and then at each interval whether the wait is over, for at most timeout.
func await(ctx context.Context, interval, timeout time.Duration, over wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, interval, timeout, true, over)
}

// pause lets some time pass, or less if ctx ends. The rolling update's updatePeriodSeconds is just that, not a wait for
// anything.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func seconds(given *int64, otherwise int64) time.Duration {
	return time.Duration(ptr.Deref(given, otherwise)) * time.Second
}

// finish writes the end of a deployer pod: Succeeded if err is nil, else Failed with err as its container's last words.
func (d *deployer) finish(ctx context.Context, pod *corev1.Pod, started metav1.Time, err error) error {
	terminated := &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: started, FinishedAt: metav1.Now()}
	phase, reason, message := corev1.PodSucceeded, "", ""
	if err != nil {
		phase = corev1.PodFailed
		terminated.ExitCode, terminated.Reason, terminated.Message = 1, "Error", "error: "+err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
		}
	}
	changed := pod.DeepCopy()
	changed.Status.Phase, changed.Status.Reason, changed.Status.Message = phase, reason, message
	changed.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  pod.Spec.Containers[0].Name,
		Image: pod.Spec.Containers[0].Image,
		State: corev1.ContainerState{Terminated: terminated},
	}}
	for i := range changed.Status.Conditions {
		if cond := &changed.Status.Conditions[i]; cond.Type == corev1.PodReady || cond.Type == corev1.ContainersReady {
			cond.Status, cond.Reason, cond.LastTransitionTime = corev1.ConditionFalse, "PodCompleted", metav1.Now()
		}
	}
	if err := d.api.Status().Patch(ctx, changed, client.MergeFrom(pod)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the end of deployer pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
