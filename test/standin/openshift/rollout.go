package openshift

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// Names that OpenShift's controllers use and github.com/openshift/api does not spell (library-go pkg/apps/appsutil,
// const.go; oc pkg/cli/deployer).
const (
	deploymentConfigLabel = "deploymentconfig"
	deploymentLabel       = "deployment"
	podTypeLabel          = "openshift.io/deployer-pod.type"

	// replicasAnnotation is on a ReplicationController: what its finished rollout was to end with. Nothing reads it.
	replicasAnnotation = "openshift.io/deployment.replicas"
	// ignorePodAnnotation on a DeploymentConfig keeps its rollouts without a deployer pod, in phase New.
	ignorePodAnnotation = "deploy.openshift.io/deployer-pod.ignore"
	// sourceIDAnnotation and originalReplicasAnnotation are the marks of a rolling update under way, on the new and the old
	// ReplicationController. The second is never removed.
	sourceIDAnnotation         = "kubectl.kubernetes.io/update-source-id"
	originalReplicasAnnotation = "kubectl.kubernetes.io/original-replicas"

	reasonCancelledByNewer = "newer deployment was found running"
	reasonUnrelatedPod     = "unrelated pod with the same name as this deployment is already running"
	reasonNoDeployerPod    = "unable to create deployer pod"
	reasonDeployerPodGone  = "deployer pod no longer exists"

	deployerContainer = "deployment"
	hookContainer     = "lifecycle"

	// maxRolloutSeconds is how long a deployer pod may run where the strategy does not say.
	maxRolloutSeconds = int64(6 * 60 * 60)
	// strategyTimeoutSeconds is the timeoutSeconds of a strategy that does not say.
	strategyTimeoutSeconds = int64(10 * 60)
)

// controllerKind is what a DeploymentConfig is in the owner references of its ReplicationControllers.
var controllerKind = ocpappsv1.GroupVersion.WithKind("DeploymentConfig")

// configEncoder and configDecoder write and read the DeploymentConfig that each ReplicationController carries in an
// annotation: the one it was made from. Configs written before OpenShift had API groups are read as well.
var configEncoder, configDecoder = func() (runtime.Encoder, runtime.Decoder) {
	scheme := runtime.NewScheme()
	utilruntime.Must(ocpappsv1.Install(scheme))
	encoder := serializer.NewCodecFactory(scheme).LegacyCodec(ocpappsv1.GroupVersion)
	tolerant := runtime.NewScheme()
	utilruntime.Must(ocpappsv1.Install(tolerant))
	utilruntime.Must(ocpappsv1.DeprecatedInstallWithoutGroup(tolerant))
	return encoder, serializer.NewCodecFactory(tolerant).UniversalDecoder(ocpappsv1.GroupVersion)
}()

// encodeConfig returns dc as JSON, as the annotation openshift.io/encoded-deployment-config holds it.
func encodeConfig(dc *ocpappsv1.DeploymentConfig) (string, error) {
	data, err := runtime.Encode(configEncoder, dc)
	if err != nil {
		return "", fmt.Errorf("encode DeploymentConfig %s/%s: %w", dc.Namespace, dc.Name, err)
	}
	return string(data), nil
}

// decodeConfig returns the DeploymentConfig that rc was made from.
func decodeConfig(rc *corev1.ReplicationController) (*ocpappsv1.DeploymentConfig, error) {
	data, ok := rc.Annotations[ocpappsv1.DeploymentEncodedConfigAnnotation]
	if !ok {
		return nil, fmt.Errorf("ReplicationController %s/%s has no annotation %s", rc.Namespace, rc.Name, ocpappsv1.DeploymentEncodedConfigAnnotation)
	}
	obj, err := runtime.Decode(configDecoder, []byte(data))
	if err != nil {
		return nil, fmt.Errorf("decode annotation %s of ReplicationController %s/%s: %w", ocpappsv1.DeploymentEncodedConfigAnnotation, rc.Namespace, rc.Name, err)
	}
	dc, ok := obj.(*ocpappsv1.DeploymentConfig)
	if !ok {
		return nil, fmt.Errorf("annotation %s of ReplicationController %s/%s holds a %T", ocpappsv1.DeploymentEncodedConfigAnnotation, rc.Namespace, rc.Name, obj)
	}
	return dc, nil
}

// newRollout returns the ReplicationController for the latest version of dc, at 0 replicas and in phase New.
//
// It inherits every label of the DeploymentConfig, markers of a restore in progress included. Its pods are told apart from
// those of other versions by the label `deployment` alone.
func newRollout(dc *ocpappsv1.DeploymentConfig) (*corev1.ReplicationController, error) {
	encoded, err := encodeConfig(dc)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", dc.Name, dc.Status.LatestVersion)
	version := strconv.FormatInt(dc.Status.LatestVersion, 10)
	correlation := map[string]string{deploymentConfigLabel: dc.Name, deploymentLabel: name}

	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: dc.Namespace,
			Name:      name,
			Labels:    with(dc.Labels, map[string]string{ocpappsv1.DeploymentConfigAnnotation: dc.Name}),
			Annotations: map[string]string{
				ocpappsv1.DeploymentConfigAnnotation:        dc.Name,
				ocpappsv1.DeploymentEncodedConfigAnnotation: encoded,
				ocpappsv1.DeploymentStatusAnnotation:        string(ocpappsv1.DeploymentStatusNew),
				ocpappsv1.DeploymentVersionAnnotation:       version,
				ocpappsv1.DesiredReplicasAnnotation:         strconv.Itoa(int(dc.Spec.Replicas)),
				replicasAnnotation:                          "0",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(dc, controllerKind)},
		},
		Spec: corev1.ReplicationControllerSpec{
			Replicas:        ptr.To[int32](0),
			MinReadySeconds: dc.Spec.MinReadySeconds,
			Selector:        with(dc.Spec.Selector, correlation),
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: with(dc.Spec.Template.Labels, correlation),
					Annotations: with(dc.Spec.Template.Annotations, map[string]string{
						ocpappsv1.DeploymentAnnotation:        name,
						ocpappsv1.DeploymentConfigAnnotation:  dc.Name,
						ocpappsv1.DeploymentVersionAnnotation: version,
					}),
				},
				Spec: *dc.Spec.Template.Spec.DeepCopy(),
			},
		},
	}
	for i := range rc.Spec.Template.Spec.Containers {
		container := &rc.Spec.Template.Spec.Containers[i]
		container.Image = strings.TrimSpace(container.Image)
	}
	if details := dc.Status.Details; details != nil && details.Message != "" {
		rc.Annotations[ocpappsv1.DeploymentStatusReasonAnnotation] = details.Message
	}
	if value, ok := dc.Annotations[ignorePodAnnotation]; ok {
		rc.Annotations[ignorePodAnnotation] = value
	}
	return rc, nil
}

// with returns a new map of base and, over it, more.
func with(base, more map[string]string) map[string]string {
	all := make(map[string]string, len(base)+len(more))
	maps.Copy(all, base)
	maps.Copy(all, more)
	return all
}

// without returns a new map of base and those of more whose keys base does not have.
func without(base, more map[string]string) map[string]string {
	return with(more, base)
}

// phaseOf returns how far the rollout of rc is; empty for a ReplicationController that says nothing of it.
func phaseOf(rc *corev1.ReplicationController) ocpappsv1.DeploymentStatus {
	return ocpappsv1.DeploymentStatus(rc.Annotations[ocpappsv1.DeploymentStatusAnnotation])
}

// ended says whether the rollout of rc is over, well or not.
func ended(rc *corev1.ReplicationController) bool {
	phase := phaseOf(rc)
	return phase == ocpappsv1.DeploymentStatusComplete || phase == ocpappsv1.DeploymentStatusFailed
}

// cancelled says whether somebody has asked for the rollout of rc to stop.
func cancelled(rc *corev1.ReplicationController) bool {
	return strings.EqualFold(rc.Annotations[ocpappsv1.DeploymentCancelledAnnotation], "true")
}

// phaseFollows says whether a rollout may go from one phase to the other: forward only, and never out of an end.
func phaseFollows(from, to ocpappsv1.DeploymentStatus) bool {
	order := []ocpappsv1.DeploymentStatus{
		ocpappsv1.DeploymentStatusNew, ocpappsv1.DeploymentStatusPending, ocpappsv1.DeploymentStatusRunning,
	}
	at := slices.Index(order, from)
	if at < 0 {
		return false
	}
	return to == ocpappsv1.DeploymentStatusFailed || to == ocpappsv1.DeploymentStatusComplete || slices.Index(order, to) > at
}

// versionOf returns the version that rc was made for, or -1 if it does not say (or nil).
func versionOf(rc *corev1.ReplicationController) int64 {
	if rc == nil {
		return -1
	}
	version, err := strconv.ParseInt(rc.Annotations[ocpappsv1.DeploymentVersionAnnotation], 10, 64)
	if err != nil {
		return -1
	}
	return version
}

// newestFirst sorts rcs by version, in place.
func newestFirst(rcs []*corev1.ReplicationController) {
	slices.SortStableFunc(rcs, func(a, b *corev1.ReplicationController) int {
		switch va, vb := versionOf(a), versionOf(b); {
		case va > vb:
			return -1
		case va < vb:
			return 1
		default:
			return 0
		}
	})
}

// newestRollout returns the ReplicationController of the highest version, and whether that is the version dc is at. At
// version 0 there is none, whatever is in rcs: a ReplicationController made by hand before the first rollout is not looked
// at. The slice is sorted in place.
func newestRollout(dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController) (*corev1.ReplicationController, bool) {
	if dc.Status.LatestVersion == 0 || len(rcs) == 0 {
		return nil, false
	}
	newestFirst(rcs)
	return rcs[0], versionOf(rcs[0]) == dc.Status.LatestVersion
}

// activeRollout returns the ReplicationController that is to have the replicas: the newest whose rollout is Complete, or
// nil. A newer one that failed does not count.
func activeRollout(rcs []*corev1.ReplicationController) *corev1.ReplicationController {
	var active *corev1.ReplicationController
	for _, rc := range rcs {
		if phaseOf(rc) == ocpappsv1.DeploymentStatusComplete && versionOf(rc) > max(versionOf(active), 0) {
			active = rc
		}
	}
	return active
}

// prunable returns those of rcs that count against dc's revision history limit, oldest first: all that are older than the
// active one or, as long as there is none, all but the latest version.
func prunable(dc *ocpappsv1.DeploymentConfig, rcs []*corev1.ReplicationController) []*corev1.ReplicationController {
	oldestFirst := slices.Clone(rcs)
	newestFirst(oldestFirst)
	slices.Reverse(oldestFirst)
	active := activeRollout(oldestFirst)
	return slices.DeleteFunc(oldestFirst, func(rc *corev1.ReplicationController) bool {
		if active == nil {
			return versionOf(rc) == dc.Status.LatestVersion
		}
		return versionOf(rc) >= versionOf(active)
	})
}

// rollingBounds returns by how many pods a rolling update of desired replicas may go over and under them.
func rollingBounds(params *ocpappsv1.RollingDeploymentStrategyParams, desired int32) (surge, unavailable int32, err error) {
	quarter := intstr.FromString("25%")
	maxSurge, maxUnavailable := &quarter, &quarter
	if params != nil {
		maxSurge, maxUnavailable = params.MaxSurge, params.MaxUnavailable
	}
	up, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(maxSurge, intstr.FromInt32(0)), int(desired), true)
	if err != nil {
		return 0, 0, fmt.Errorf("maxSurge: %w", err)
	}
	down, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(maxUnavailable, intstr.FromInt32(0)), int(desired), false)
	if err != nil {
		return 0, 0, fmt.Errorf("maxUnavailable: %w", err)
	}
	if up == 0 && down == 0 {
		// Rounding may leave no room to move at all; then one pod may be missing.
		down = 1
	}
	return int32(up), int32(down), nil
}

// podName returns the name of a pod that works for rc: "<rc>-<suffix>", shortened with a hash where that is no name.
func podName(rc, suffix string) string {
	name := rc + "-" + suffix
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(rc)) // a hash never fails
	return fmt.Sprintf("%s-%08x-%s", rc[:validation.DNS1123SubdomainMaxLength-len(suffix)-10], sum.Sum32(), suffix)
}

// deployerPodName returns the name of the pod that rolls out rc.
func deployerPodName(rc string) string { return podName(rc, "deploy") }
