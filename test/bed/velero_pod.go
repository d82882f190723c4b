package bed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Velero on a real node: the Deployment that `velero install` makes.

// veleroLabels are those of the server's pods.
var veleroLabels = client.MatchingLabels{"deploy": "velero"}

func (b *Bed) veleroDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.opts.VeleroNamespace, Name: "velero"}}
}

func (b *Bed) veleroPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.InNamespace(b.opts.VeleroNamespace), veleroLabels); err != nil {
		return nil, fmt.Errorf("list Velero's pods: %w", err)
	}
	return pods.Items, nil
}

func (b *Bed) scaleVelero(ctx context.Context, from, to int32) error {
	deployment := b.veleroDeployment()
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment); err != nil {
		return fmt.Errorf("get Velero's Deployment: %w", err)
	}
	if now := ptr.Deref(deployment.Spec.Replicas, 1); now != from {
		return fmt.Errorf("scale Velero to %d: it has %d replicas, not %d", to, now, from)
	}
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, to)
	if err := b.client.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("scale Velero to %d: %w", to, err)
	}
	return nil
}

func (b *Bed) startVeleroPod(ctx context.Context) error {
	if err := b.scaleVelero(ctx, 0, 1); err != nil {
		return err
	}
	return b.awaitVeleroPod(ctx)
}

func (b *Bed) stopVeleroPod(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.scaleVelero(ctx, 1, 0); err != nil {
		return err
	}
	return poll(ctx, "wait for the end of Velero's pod", func(ctx context.Context) error {
		pods, err := b.veleroPods(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("pod %s is there, %s", pods[0].Name, pods[0].Status.Phase)
		}
		return err
	})
}

func (b *Bed) replaceVeleroPod(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	pods, err := b.veleroPods(ctx)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return errors.New("restart Velero: it does not run")
	}
	if err := b.forgetLocation(ctx); err != nil {
		return err
	}
	for i := range pods {
		if err := client.IgnoreNotFound(b.client.Delete(ctx, &pods[i], client.GracePeriodSeconds(0))); err != nil {
			return fmt.Errorf("delete Velero's pod %s: %w", pods[i].Name, err)
		}
	}
	return b.awaitVeleroPod(ctx)
}

// AwaitVelero waits, on a bed with a real node, until Velero's Deployment has rolled out and its one pod serves: after
// `velero plugin add`, for example.
func (b *Bed) AwaitVelero(ctx context.Context) error {
	b.velero.change.Lock()
	defer b.velero.change.Unlock()
	if b.node == nil || b.opts.WithoutVelero {
		return errors.New("wait for Velero's pod: this bed has none")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return b.awaitVeleroPod(ctx)
}

func (b *Bed) awaitVeleroPod(ctx context.Context) error {
	if err := poll(ctx, "wait for Velero's pod", func(ctx context.Context) error {
		deployment := b.veleroDeployment()
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return err
		}
		if deployment.Status.ObservedGeneration < deployment.Generation || deployment.Status.UpdatedReplicas != 1 {
			return errors.New("its Deployment is being rolled out")
		}
		pods, err := b.veleroPods(ctx)
		if err != nil {
			return err
		}
		if len(pods) != 1 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		if !slices.ContainsFunc(pods[0].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("pod %s is not ready: %s", pods[0].Name, containerStates(&pods[0]))
		}
		return nil
	}); err != nil {
		return err
	}
	return poll(ctx, "wait for Velero", b.locationAvailable)
}

// containerStates says in one line how the containers of a pod are.
func containerStates(pod *corev1.Pod) string {
	states := []string{string(pod.Status.Phase)}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case status.State.Waiting != nil:
			states = append(states, fmt.Sprintf("%s waits: %s %s", status.Name, status.State.Waiting.Reason, status.State.Waiting.Message))
		case status.State.Terminated != nil:
			states = append(states, fmt.Sprintf("%s ended with %d: %s", status.Name, status.State.Terminated.ExitCode, status.State.Terminated.Message))
		}
	}
	return strings.Join(states, ", ")
}
