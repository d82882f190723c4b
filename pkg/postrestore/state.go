// Package postrestore is phase two: once the data of detached pods is in and their hooks have run, it deletes the pods and
// gives their DeploymentConfig its replicas and paused back.
//
// Next is pure: it looks at one DeploymentConfig as it is now and returns one step. A step may be repeated at any time and
// by anyone, so phase two can be broken off anywhere and taken up again by another process. Runner is the only code that
// writes to applications. Driver answers Velero's polls; pkg/cli drives it for a person.
package postrestore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Options of phase two.
type Options struct {
	// StartTimeout is how long a pod may be unable to start before phase two gives up on it.
	StartTimeout time.Duration
	// AcceptDataLoss brings a DeploymentConfig up although a volume restore of its pods failed or a pod cannot start.
	AcceptDataLoss bool
	// Undriven says why nobody takes the steps of phase two by itself, empty where somebody does: Velero, or the person who
	// runs it now. Steps that write are then waits for a person.
	Undriven string
}

// State is what phase two knows of one DeploymentConfig. Next does not change it.
type State struct {
	// Name is the namespace and name of the DeploymentConfig.
	Name types.NamespacedName
	// DC is nil when the cluster has none of that name.
	DC *ocpappsv1.DeploymentConfig
	// HeldBy names another restore that holds the DeploymentConfig; empty when nobody does, or the one that phase two is run
	// for.
	HeldBy string
	// Controllers are the ReplicationControllers of the DeploymentConfig.
	Controllers []corev1.ReplicationController
	// Pods are the pods detached from it, by whichever restore.
	Pods []Pod
	// Restore is the restore that phase two is run for.
	Restore Restore
	// Now is the time of looking.
	Now time.Time
	Options
}

// Restore is what phase two knows of the restore it is run for.
type Restore struct {
	types.NamespacedName
	// UID of the Restore, empty when it does not exist any more.
	UID types.UID
	// Ended is true when the Restore is in a phase that it does not leave, or does not exist any more.
	Ended bool
	// Hooks is what Velero has written down of the restore's exec hooks, nil when it has not. It counts those of all pods.
	Hooks *velerov1.HookStatus
	// Bringing is true while the restore may still create the DeploymentConfig of a pod it has detached. Only who looks at a
	// restore from outside meets it so: its operations are asked for when it has created everything.
	Bringing bool
	// ByLabel is true when the restore or its backup chose items by label or policy: a DeploymentConfig that is not
	// there was then not meant to be.
	ByLabel bool
}

// Pod is a detached pod.
type Pod struct {
	*corev1.Pod
	// Volumes are the volume restores that bring its data.
	Volumes []VolumeRestore
	// ExecHooks are the exec hooks that Velero runs in it.
	ExecHooks []string
}

// VolumeRestore is a PodVolumeRestore or a DataDownload.
type VolumeRestore struct {
	// Object names it: kind and name.
	Object string
	// Volume names what it fills: a volume of the pod or a claim.
	Volume string
	// BeforeStart is true for a DataDownload: the pod's claim is bound, and the pod started, only when it has ended. A
	// PodVolumeRestore works inside the started pod.
	BeforeStart bool
	// Phase is how far it is.
	Phase VolumePhase
	// Message of a failed one.
	Message string
}

// VolumePhase is how far a volume restore is. Velero knows more phases; one that is not known here counts as pending.
type VolumePhase string

// The phases.
const (
	VolumePending   VolumePhase = "pending"
	VolumeCompleted VolumePhase = "completed"
	VolumeFailed    VolumePhase = "failed"
)

// count returns how many volume restores of the pod are in a phase.
func (p Pod) count(phase VolumePhase) int {
	n := 0
	for _, volume := range p.Volumes {
		if volume.Phase == phase {
			n++
		}
	}
	return n
}

// waitsForData tells whether data must come before the pod can start.
func (p Pod) waitsForData() bool {
	for _, volume := range p.Volumes {
		if volume.BeforeStart && volume.Phase == VolumePending {
			return true
		}
	}
	return false
}

// Initialized tells whether all init containers of the pod have ended well: the one in which Velero fills its volumes,
// and those of init hooks.
func (p Pod) Initialized() bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodInitialized {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// stuckReasons are the reasons for which a container waits that do not go away by themselves. CrashLoopBackOff counts
// for init containers only: an application may well crash until its neighbours are back.
var stuckReasons = map[string]bool{
	"ImagePullBackOff": true, "ErrImagePull": true, "InvalidImageName": true, "ErrImageNeverPull": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true, "CrashLoopBackOff": true,
}

// cannotStart returns why the pod cannot get Initialized, empty while there is hope: a pod that has ended, or one that
// has been refused by the scheduler or had a stuck init container for longer than the timeout.
func (p Pod) cannotStart(now time.Time, timeout time.Duration) string {
	if p.Status.Phase == corev1.PodFailed {
		return strings.TrimSuffix("it has failed: "+p.Status.Reason+" "+p.Status.Message, " ")
	}
	if now.Sub(p.CreationTimestamp.Time) < timeout {
		return ""
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("it is not scheduled: %s: %s", condition.Reason, condition.Message)
		}
	}
	for _, status := range p.Status.InitContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && stuckReasons[waiting.Reason] {
			return fmt.Sprintf("its init container %s waits: %s: %s", status.Name, waiting.Reason, waiting.Message)
		}
	}
	return ""
}

// rollout is a ReplicationController as the DeploymentConfig's controller sees it.
type rollout struct {
	*corev1.ReplicationController
	version int64
}

// latest returns the ReplicationController of the highest version, nil when there is none.
func (s State) latest() *rollout { return s.highest(func(*rollout) bool { return true }) }

// active returns the completed rollout of the highest version, nil when there is none: the one that the controller gives
// the DeploymentConfig's replicas (library-go appsutil, ActiveDeployment).
func (s State) active() *rollout {
	return s.highest(func(r *rollout) bool { return r.phase() == ocpappsv1.DeploymentStatusComplete })
}

func (s State) highest(matches func(*rollout) bool) *rollout {
	var highest *rollout
	for i := range s.Controllers {
		version, err := strconv.ParseInt(s.Controllers[i].Annotations[contract.LatestVersionAnnotation], 10, 64)
		if err != nil {
			continue
		}
		candidate := &rollout{ReplicationController: &s.Controllers[i], version: version}
		if matches(candidate) && (highest == nil || version > highest.version) {
			highest = candidate
		}
	}
	return highest
}

func (r *rollout) phase() ocpappsv1.DeploymentStatus {
	return ocpappsv1.DeploymentStatus(r.Annotations[contract.DeploymentPhaseAnnotation])
}

func (r *rollout) ended() bool {
	return r.phase() == ocpappsv1.DeploymentStatusComplete || r.phase() == ocpappsv1.DeploymentStatusFailed
}

// failedWhileHeld tells whether the rollout failed and was started while the DeploymentConfig was at 0: its controller
// writes down the replicas that the rollout is to end with (library-go appsutil, MakeDeployment).
func (r *rollout) failedWhileHeld() bool {
	return r.phase() == ocpappsv1.DeploymentStatusFailed && r.Annotations[contract.DesiredReplicasAnnotation] == "0"
}
