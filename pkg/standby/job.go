// Package standby makes sure of the Job that stands by for a restore: it waits for the restore to end and then runs phase
// two for whatever is still held.
//
// Phase two is an operation of the restore, which Velero drives (see pkg/postrestore). Two things are beyond an operation.
// Velero awaits exec hooks only after the operations (velero pkg/controller/restore_finalizer_controller.go), so what has
// one cannot be resumed by its operation. And a restore that is InProgress when Velero's server starts is marked Failed
// (pkg/cmd/server/server.go, markInProgressRestoresFailed): nobody polls its operations any more. The Job serves both. After a
// restore that has resumed everything it finds nothing to do.
//
// Build and Choose are pure. Keeper is the client around them.
package standby

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	veleroutil "github.com/vmware-tanzu/velero/pkg/util"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

const (
	// ContainerName of the Job's pod.
	ContainerName = "post-restore"
	// DefaultTimeout is Velero's own default for the item operation timeout (velero pkg/cmd/server/config,
	// defaultItemOperationTimeout). Velero writes the timeout that holds into the Restore's spec when it starts it.
	DefaultTimeout = 4 * time.Hour
	// KeptAfterSuccess is how long a Job that has succeeded stays, with its log. One that has failed stays until its Restore
	// is deleted.
	KeptAfterSuccess = time.Hour

	// afterDeadline is what the cluster's deadline of the Job is longer than that of the process in it. A pod that is ended
	// by the former is deleted, and its log with it; so the process must come to its own end first, which may take a whole
	// run of phase two (10 minutes by default) after the last moment at which the restore may end.
	afterDeadline = 15 * time.Minute
	// retries of a pod that was killed, whose node went, or whose image was not there at once: 10 s after the first failure,
	// then twice as long each time. The number is Kubernetes' default.
	retries = 6
	// grace is enough for the process, which ends at once when it is told to. The server's may be an hour.
	grace = 30
)

// Name returns the name of the Job of a restore: that of the restore after "post-restore-", with a part of the hash of
// its UID, because a Restore of the same name may come again while the Job of the first is still there.
//
// It is at most 63 characters long and a DNS label, since Kubernetes makes a label value and pod names of it. Velero's own rule for
// long names does that (velero pkg/label, GetValidName): their first 57 characters and 6 of the hash of the whole.
func Name(r *velerov1.Restore) string {
	sum := sha256.Sum256([]byte(r.UID))
	return label.GetValidName(fmt.Sprintf("post-restore-%s-%s", strings.ReplaceAll(r.Name, ".", "-"), hex.EncodeToString(sum[:3])))
}

// Timeout returns how long a restore's Job stands by, counted from the restore of the first DeploymentConfig: the item
// operation timeout of the Restore, after which Velero gives its operations up as well.
func Timeout(r *velerov1.Restore) time.Duration {
	if timeout := r.Spec.ItemOperationTimeout.Duration; timeout > 0 {
		return timeout
	}
	return DefaultTimeout
}

// Choose returns the Deployment that runs Velero, of those in its namespace that may: the one with the name that Velero
// itself relies on for its maintenance Jobs (velero pkg/repository/maintenance), or the only one that bears Velero's label.
// One at 0 replicas is none: the server then runs elsewhere, and the image of that Deployment may lack the plugin. Without
// one, reason says why.
func Choose(namespace string, candidates []appsv1.Deployment) (deployment *appsv1.Deployment, reason string) {
	var running []*appsv1.Deployment
	for i := range candidates {
		switch {
		case ptr.Deref(candidates[i].Spec.Replicas, 1) == 0:
		case candidates[i].Name == deploymentName:
			return &candidates[i], ""
		default:
			running = append(running, &candidates[i])
		}
	}
	switch {
	case len(running) == 1:
		return running[0], ""
	case len(running) > 1:
		return nil, fmt.Sprintf("namespace %s has %d Deployments labelled %s=%s, and none of them is named %[4]s",
			namespace, len(running), componentKey, deploymentName)
	case len(candidates) > 0:
		return nil, fmt.Sprintf("the Deployment %s/%s is at 0 replicas, so it does not run this Velero", namespace, candidates[0].Name)
	default:
		return nil, fmt.Sprintf("namespace %s has no Deployment %s to copy the pod from", namespace, deploymentName)
	}
}

const (
	deploymentName = "velero"
	// componentKey is the key of the label that `velero install`, OADP and the Helm chart, which may name it otherwise, put on
	// the Deployment, with the value "velero".
	componentKey = "component"
)

// Build returns the Job of a restore. Its pod is that of Velero's Deployment, with the init containers that bring the plugin
// and everything by which a cluster's administrators have made that pod fit for their cluster, but for the server itself.
// The deployment is not changed. The Job waits for the restore until the deadline; now and the deadline
// are of one clock.
//
// Labels are not the server's: its Services and Velero's own commands would take the pod for a server. Velero's maintenance
// Jobs draw the same line (velero pkg/repository/maintenance, buildJob).
func Build(deployment *appsv1.Deployment, r *velerov1.Restore, now, deadline time.Time) *batchv1.Job {
	labels := map[string]string{
		velerov1.RestoreNameLabel: label.GetValidName(r.Name),
		velerov1.RestoreUIDLabel:  string(r.UID),
		// A backup of Velero's own namespace must not bring it back: that restore is not this one.
		velerov1.ExcludeFromBackupLabel: "true",
	}
	name := Name(r)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{ownerOf(r)},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:          ptr.To[int32](retries),
			ActiveDeadlineSeconds: new(int64((deadline.Sub(now) + afterDeadline) / time.Second)),
			PodFailurePolicy:      failurePolicy(),
			// No ttlSecondsAfterFinished: it would hold for a failure as well, whose log must stay. The process sets it when it
			// has succeeded.
			Template: template(deployment, labels, arguments(r, name, deadline)),
		},
	}
}

// arguments are the command line of the Job. The deadline is a time and not a duration: a pod that replaces another one goes
// on with what is left.
func arguments(r *velerov1.Restore, job string, deadline time.Time) []string {
	return []string{
		"post-restore", r.Name, "--velero-namespace=" + r.Namespace,
		"--wait", "--deadline=" + deadline.UTC().Format(time.RFC3339), "--job=" + job,
	}
}

// ownerOf makes the cluster delete the Job with its Restore. It does not block the deletion of the Restore, which would take
// a right that an OpenShift cluster does not give to everyone.
func ownerOf(r *velerov1.Restore) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: velerov1.SchemeGroupVersion.String(), Kind: "Restore", Name: r.Name, UID: r.UID, Controller: new(true),
	}
}

// failurePolicy ends the Job when its process has said that it failed or was started wrongly: to say so again would not help.
// What ended a pod from outside does not count as a failure of it.
func failurePolicy() *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: new(ContainerName), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
				Values: []int32{1, 2}, // pkg/cli: ExitFailed and ExitUsage
			},
		},
		{
			Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			},
		},
	}}
}

func template(deployment *appsv1.Deployment, labels map[string]string, args []string) corev1.PodTemplateSpec {
	from := deployment.Spec.Template.DeepCopy()
	spec := from.Spec
	spec.Containers = []corev1.Container{container(server(spec.Containers), args)}
	spec.RestartPolicy = corev1.RestartPolicyNever // each attempt is a pod of its own, and keeps its log
	spec.TerminationGracePeriodSeconds = ptr.To[int64](grace)
	// Where Velero runs the images are there, and a registry that a disaster has taken away must not keep the Job from
	// starting. Velero's maintenance Jobs do the same.
	for i := range spec.InitContainers {
		spec.InitContainers[i].ImagePullPolicy = corev1.PullIfNotPresent
	}
	spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	// Affinity stays, but this is about spreading the server's replicas.
	spec.TopologySpreadConstraints = nil
	for i := range spec.Volumes {
		if spec.Volumes[i].PersistentVolumeClaim != nil {
			// The process reads nothing from it, and a claim that one node alone may mount would keep the pod from starting.
			spec.Volumes[i].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
	}
	podLabels := maps.Clone(labels)
	for _, key := range veleroutil.ThirdPartyLabels {
		if value, ok := from.Labels[key]; ok {
			podLabels[key] = value
		}
	}
	annotations := map[string]string{}
	for _, key := range veleroutil.ThirdPartyAnnotations {
		if value, ok := from.Annotations[key]; ok {
			annotations[key] = value
		}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels, Annotations: annotations}, Spec: spec}
}

// server returns the container of Velero's server. The Deployments of `velero install` and OADP have one container only.
func server(containers []corev1.Container) corev1.Container {
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == deploymentName }); i >= 0 {
		return containers[i]
	}
	return containers[0]
}

// container makes the server's container one of the plugin: same image, environment, mounts and security context.
func container(c corev1.Container, args []string) corev1.Container {
	c.Name = ContainerName
	c.Command, c.Args = []string{contract.InstalledPath}, args
	c.Ports = nil
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
	c.ResizePolicy, c.RestartPolicy, c.RestartPolicyRules = nil, nil, nil
	// The end of the log is what `kubectl describe pod` shows of a failure.
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	c.Resources = corev1.ResourceRequirements{Requests: requests(c.Resources.Limits), Limits: c.Resources.Limits}
	return c
}

// requests of a process that mostly waits. The limits stay the server's, which quotas and limit ranges of the namespace allow.
func requests(limits corev1.ResourceList) corev1.ResourceList {
	requests := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	for name, limit := range limits {
		request, ok := requests[name]
		if ok && request.Cmp(limit) > 0 {
			requests[name] = limit
		}
	}
	return requests
}
