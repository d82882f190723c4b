package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// states is what a person would look at after a scenario that failed: restores, what the plugin logged, and the state of every
// object of the scene. The logs of the cluster's components follow when the cluster is stopped.
func (s *scene) states() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the test's own has ended
	defer cancel()
	var out strings.Builder
	for _, name := range s.restores {
		described, err := s.DescribeRestore(ctx, name)
		fmt.Fprintf(&out, "==== restore %s (%v)\n%s", name, err, described)
		logs, err := s.RestoreLogs(ctx, name)
		fmt.Fprintf(&out, "==== log of restore %s (%v)\n", name, err)
		for line := range strings.Lines(logs) {
			if strings.Contains(line, pluginBinary) || strings.Contains(line, "level=error") || strings.Contains(line, "level=warning") {
				out.WriteString(line)
			}
		}
	}
	fmt.Fprintf(&out, "==== objects of %s\n", s.ns)
	for _, list := range []client.ObjectList{
		&ocpappsv1.DeploymentConfigList{}, &corev1.ReplicationControllerList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.EventList{},
	} {
		s.list(ctx, &out, list, client.InNamespace(s.ns))
	}
	for _, name := range s.restores {
		s.list(ctx, &out, &velerov1.PodVolumeRestoreList{}, client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{velerov1.RestoreNameLabel: name})
	}
	return out.String()
}

func (s *scene) list(ctx context.Context, out *strings.Builder, list client.ObjectList, options ...client.ListOption) {
	if err := s.Client().List(ctx, list, options...); err != nil {
		fmt.Fprintln(out, err)
	}
	switch list := list.(type) {
	case *ocpappsv1.DeploymentConfigList:
		for i := range list.Items {
			dc := &list.Items[i]
			fmt.Fprintf(out, "DeploymentConfig %s: replicas %d, paused %v, latest version %d, ready %d\n  labels %v\n  annotations %v\n",
				dc.Name, dc.Spec.Replicas, dc.Spec.Paused, dc.Status.LatestVersion, dc.Status.ReadyReplicas, dc.Labels, dc.Annotations)
		}
	case *corev1.ReplicationControllerList:
		for i := range list.Items {
			rc := &list.Items[i]
			fmt.Fprintf(out, "ReplicationController %s: %s, replicas %d, ready %d\n",
				rc.Name, rc.Annotations[contract.DeploymentPhaseAnnotation], rc.Status.Replicas, rc.Status.ReadyReplicas)
		}
	case *corev1.PodList:
		for i := range list.Items {
			writePod(out, &list.Items[i])
		}
	case *corev1.PersistentVolumeClaimList:
		for i := range list.Items {
			fmt.Fprintf(out, "PersistentVolumeClaim %s: %s, volume %s\n", list.Items[i].Name, list.Items[i].Status.Phase, list.Items[i].Spec.VolumeName)
		}
	case *corev1.EventList:
		for i := range list.Items {
			e := &list.Items[i]
			fmt.Fprintf(out, "Event %s %s %s: %s: %s\n", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	case *velerov1.PodVolumeRestoreList:
		for i := range list.Items {
			r := &list.Items[i]
			fmt.Fprintf(out, "PodVolumeRestore %s: %s, volume %s of pod %s, %d of %d bytes, cancel %v, %s\n", r.Name, r.Status.Phase, r.Spec.Volume,
				r.Spec.Pod.Name, r.Status.Progress.BytesDone, r.Status.Progress.TotalBytes, r.Spec.Cancel, r.Status.Message)
		}
	}
}

func writePod(out *strings.Builder, pod *corev1.Pod) {
	fmt.Fprintf(out, "Pod %s: %s, going %v\n  labels %v\n", pod.Name, pod.Status.Phase, pod.DeletionTimestamp != nil, pod.Labels)
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			fmt.Fprintf(out, "  not %s: %s %s\n", condition.Type, condition.Reason, condition.Message)
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := status.State.Waiting; waiting != nil {
			fmt.Fprintf(out, "  container %s waits: %s %s\n", status.Name, waiting.Reason, waiting.Message)
		}
		if ended := status.State.Terminated; ended != nil {
			fmt.Fprintf(out, "  container %s ended with %d: %s %s\n", status.Name, ended.ExitCode, ended.Reason, ended.Message)
		}
	}
}
