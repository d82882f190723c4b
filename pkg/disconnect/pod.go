package disconnect

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
)

// Verdict on an item of a restore.
type Verdict string

// The verdicts. Not every kind of item knows each of them.
const (
	// Untouched items are restored as they are.
	Untouched Verdict = "untouched"
	// Skipped items are not restored.
	Skipped Verdict = "skipped"
	// Refused items are not restored, and the restore reports an error: restoring would do harm, and passing over it in
	// silence too.
	Refused Verdict = "refused"
	// Detached pods are restored out of reach of their ReplicationController.
	Detached Verdict = "detached"
	// Held DeploymentConfigs are restored at 0 replicas with their originals recorded.
	Held Verdict = "held"
	// Released DeploymentConfigs are restored at their own replicas and paused, without the marks of another restore.
	Released Verdict = "released"
)

// Decision on an item: what becomes of it and why. Warn asks for the attention of whoever reads the restore's log.
type Decision struct {
	Verdict Verdict
	Reason  string
	Warn    bool
}

// Filled is a volume of a pod whose data this restore brings.
type Filled struct {
	// Volume is the name of the volume in the pod.
	Volume string
	// By names the Velero object that brings the data: ByPodVolumeBackup or ByDataDownload.
	By string
}

// What brings the data of a volume: a PodVolumeBackup through the pod that it was made of, a DataDownload into the claim.
const (
	ByPodVolumeBackup = "PodVolumeBackup"
	ByDataDownload    = "DataDownload"
)

// LiveDC is what a target namespace holds under the name of a DeploymentConfig, seen before this restore reached its
// DeploymentConfigs.
type LiveDC struct {
	// Exists is false when there is none, and when the cluster does not serve DeploymentConfigs.
	Exists bool
	// Replicas is spec.replicas.
	Replicas int32
	// Annotations hold the originals when another restore holds it.
	Annotations map[string]string
	// OfThisRestore is true when this restore itself created it.
	OfThisRestore bool
}

// runs tells whether it is there with pods to run.
func (l LiveDC) runs() bool { return l.Exists && l.Replicas > 0 }

// Scope tells whether the restore brings the DeploymentConfig of a pod.
type Scope struct {
	// Included is false when the DeploymentConfig is left out by resources or namespaces, in the backup or the restore,
	// or when the cluster does not serve DeploymentConfigs.
	Included bool
	// Uncertain is true when items are chosen by their labels: those of a DeploymentConfig are not known before it
	// arrives, and Velero restores pods first.
	Uncertain bool
	// Reason in words, for the log.
	Reason string
}

// PodFacts is what the decision on a pod rests on.
type PodFacts struct {
	// Pod as it stands in the backup. Velero strips owners from the item that actions work on.
	Pod *corev1.Pod
	// Filled are the volumes of this pod that the restore brings data for; FilledUnknown says why that could not be
	// found out.
	Filled        []Filled
	FilledUnknown string
	// Hooks that Velero will run in the pod if it is detached.
	Hooks hooks.Applied
	// DC is the live DeploymentConfig of the pod in the target namespace.
	DC LiveDC
	// Scope of this restore for the DeploymentConfig.
	Scope Scope
}

// DeploymentConfigOf returns the name of the DeploymentConfig that a pod belongs to, empty for other pods. pod must be as
// it stands in the backup or the cluster, with its owners.
//
// A DeploymentConfig's pod carries the labels `deployment` and `deploymentconfig`, or the annotation
// openshift.io/deployment-config.name with an owning ReplicationController (library-go appsutil, MakeDeployment). A pod
// that was backed up while it was detached is known by the marks of that.
func DeploymentConfigOf(pod *corev1.Pod) string {
	if pod.Labels[contract.DisconnectedLabel] != "" {
		if name := firstOf(pod.Annotations[contract.DeploymentConfigAnnotation], pod.Labels[contract.DeploymentConfigLabel],
			pod.Annotations[contract.PodDeploymentConfigAnnotation]); name != "" {
			return name
		}
	}
	if pod.Labels[contract.DeploymentLabel] != "" && pod.Labels[contract.DeploymentConfigLabel] != "" {
		return pod.Labels[contract.DeploymentConfigLabel]
	}
	if name := pod.Annotations[contract.PodDeploymentConfigAnnotation]; name != "" {
		for _, owner := range pod.OwnerReferences {
			if owner.Kind == "ReplicationController" {
				return name
			}
		}
	}
	return ""
}

// DecideWithoutDC decides on pods for which no DeploymentConfig has to be looked up. ok is false when one has to.
func DecideWithoutDC(pod *corev1.Pod) (decision Decision, ok bool) {
	if IsRolloutPod(pod) && !mountsClaim(pod) {
		return rolloutPodSkipped(pod), true
	}
	if name := pod.Annotations[contract.BuildAnnotation]; name != "" {
		return Decision{Verdict: Skipped, Reason: fmt.Sprintf("it is a pod of Build %s", name)}, true
	}
	if !IsRolloutPod(pod) && DeploymentConfigOf(pod) == "" {
		return Decision{Verdict: Untouched, Reason: "it is not a DeploymentConfig's pod"}, true
	}
	return Decision{}, false
}

// DecidePod decides what becomes of a pod. The rules are those of the design, in its order.
func DecidePod(f PodFacts) Decision {
	if decision, ok := DecideWithoutDC(f.Pod); ok {
		return decision
	}
	if IsRolloutPod(f.Pod) {
		return f.decideRolloutPod()
	}
	dc, reason := DeploymentConfigOf(f.Pod), f.reason()
	switch {
	case !f.Scope.Included && !f.DC.Exists:
		return Decision{Verdict: Untouched, Reason: fmt.Sprintf("its DeploymentConfig %s is not in the cluster and does not come with this restore: %s",
			dc, f.Scope.Reason)}
	case f.DC.runs() && f.DC.OfThisRestore && reason != "":
		return Decision{Verdict: Refused, Warn: true, Reason: fmt.Sprintf("its DeploymentConfig %s was restored before it and already runs, "+
			"so the pod's data cannot be brought in: restore pods before deploymentconfigs.apps.openshift.io (server flag --restore-resource-priorities)", dc)}
	case f.DC.runs() && !f.DC.OfThisRestore:
		return Decision{Verdict: Skipped, Warn: true, Reason: fmt.Sprintf("its DeploymentConfig %s was live before this restore with %d replicas "+
			"and owns the application: scale it to 0 first to restore its data in place", dc, f.DC.Replicas)}
	case reason != "":
		return Decision{Verdict: Detached, Reason: reason, Warn: f.FilledUnknown != ""}
	default:
		return Decision{Verdict: Skipped, Reason: fmt.Sprintf("no data and no hook waits for it: DeploymentConfig %s makes its own pods%s", dc, f.lost())}
	}
}

// IsRolloutPod tells whether a pod is a deployer or lifecycle-hook pod: one that a rollout made for its own purposes.
func IsRolloutPod(pod *corev1.Pod) bool { return pod.Labels[contract.DeployerPodForLabel] != "" }

func rolloutPodSkipped(pod *corev1.Pod) Decision {
	return Decision{Verdict: Skipped, Reason: "it is a deployer or lifecycle-hook pod of ReplicationController " + pod.Labels[contract.DeployerPodForLabel]}
}

// decideRolloutPod decides on a lifecycle-hook pod that mounts a claim. It is not restored: it would run its hook, and be
// taken for that of the next rollout (D20). But Velero backs a claim up through the first pod that mounts it, by name, and
// in a backup that was made during a rollout that may be this one. The data then has no way back, which must not go by
// unseen.
func (f PodFacts) decideRolloutPod() Decision {
	var claims []string
	for _, filled := range f.Filled {
		if claim := claimOf(f.Pod, filled.Volume); claim != "" && filled.By == ByPodVolumeBackup {
			claims = append(claims, claim)
		}
	}
	switch {
	case len(claims) > 0:
		return Decision{Verdict: Refused, Warn: true, Reason: fmt.Sprintf("it is a lifecycle-hook pod, which is never restored, and the data of claim %s "+
			"was backed up through it: restore from a backup that was made while no rollout was running", strings.Join(claims, ", "))}
	case f.FilledUnknown != "":
		return Decision{Verdict: Refused, Warn: true, Reason: "it is a lifecycle-hook pod, which is never restored, " +
			"and it is not known whether data was backed up through it: " + f.FilledUnknown}
	default:
		return rolloutPodSkipped(f.Pod)
	}
}

// mountsClaim tells whether any volume of the pod is a claim.
func mountsClaim(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// reason returns why the pod must be restored, empty when nothing asks for it.
func (f PodFacts) reason() string {
	var reasons []string
	for _, filled := range f.Filled {
		if claim := claimOf(f.Pod, filled.Volume); claim != "" {
			reasons = append(reasons, fmt.Sprintf("a %s fills claim %s", filled.By, claim))
		}
	}
	if f.FilledUnknown != "" {
		// Detaching is the side that loses nothing: data that comes finds its pod, and phase two sees the pod off.
		reasons = append(reasons, "it is taken to have data on its way: "+f.FilledUnknown)
	}
	if len(f.Hooks.Init) > 0 {
		reasons = append(reasons, "init hook "+strings.Join(f.Hooks.Init, ", "))
	}
	if len(f.Hooks.Exec) > 0 {
		reasons = append(reasons, "exec hook "+strings.Join(f.Hooks.Exec, ", "))
	}
	return strings.Join(reasons, "; ")
}

// lost says which backed-up volumes have no reason to restore a pod, because their content goes with a replaced pod.
func (f PodFacts) lost() string {
	var names []string
	for _, filled := range f.Filled {
		if claimOf(f.Pod, filled.Volume) == "" {
			names = append(names, filled.Volume)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf(" (backed-up content of volumes that live and die with a pod is not restored: %s)", strings.Join(names, ", "))
}

// claimOf returns the claim behind a volume of the pod, empty for a volume that is none. A generic ephemeral volume has a
// claim too, but that goes with its pod.
func claimOf(pod *corev1.Pod, volume string) string {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == volume && v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// LabelsWhenDetached returns the labels that an item will have once it is detached and created, apart from those that
// Velero adds to everything. labels are the item's now.
func LabelsWhenDetached(labels map[string]string, dc string, owner Owner) map[string]string {
	detached := map[string]string{}
	for key, value := range labels {
		if key != contract.DeploymentLabel {
			detached[key] = value
		}
	}
	detached[contract.DeploymentConfigLabel] = dc
	detached[contract.DisconnectedLabel] = owner.Label()
	return detached
}

// Detach takes a pod out of the reach of its ReplicationController, in place: the label `deployment` goes, which alone
// takes it out of the selector; `deploymentconfig` stays, or comes back where another plugin has removed it, because
// Services and the selectors of hooks use it (defect D3). The node selector goes, since projects inject that of the
// source cluster and the pod would wait for ever (BZ 1807112). All else stays.
func Detach(item *unstructured.Unstructured, dc string, owner Owner) {
	item.SetLabels(LabelsWhenDetached(item.GetLabels(), dc, owner))
	owner.mark(item, contract.DisconnectedLabel)
	setAnnotation(item, contract.DeploymentConfigAnnotation, dc)
	unstructured.RemoveNestedField(item.Object, "spec", "nodeSelector")
}

func firstOf(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}
