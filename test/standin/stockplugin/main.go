// Command stockplugin is a STAND-IN for the openshift-velero-plugin that OADP installs beside ours: its actions on pods,
// DeploymentConfigs and ReplicationControllers under their registered names, faults included. The numbers D1, D2 … in the
// comments are those faults; a test beside ours shows what they do to a restore.
//
// Left out, as nothing here depends on it: the swap of registry hosts and pull secrets, MTC's stage pods, and the rule for
// backups that were made before OADP 1.3.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
	"github.com/vmware-tanzu/velero/pkg/util/podvolume"
)

// The names that the plugin registers. Velero does not start when another plugin registers one of them too.
const (
	podBackup  = "openshift.io/07-pod-backup-plugin"
	podRestore = "openshift.io/07-pod-restore-plugin"
	dcBackup   = "openshift.io/08-deploymentconfig-backup-plugin"
	dcRestore  = "openshift.io/08-deploymentconfig-restore-plugin"
	rcBackup   = "openshift.io/09-replicationcontroller-backup-plugin"
	rcRestore  = "openshift.io/09-replicationcontroller-restore-plugin"
)

// The strings that it writes and reads (its common/types.go).
const (
	disconnected     = "oadp.openshift.io/disconnected-from-dc"
	replicasModified = "oadp.openshift.io/replicas-modified"
	originalReplicas = "oadp.openshift.io/original-replicas"
	originalPaused   = "oadp.openshift.io/original-paused"
	includesFix      = "oadp.openshift.io/includes-dm-dc-fix"
	hasHooks         = "oadp.openshift.io/has-pod-restore-hooks"
	haveVolumes      = "oadp.openshift.io/pods-have-volumes"
	podLabels        = "oadp.openshift.io/pod-labels"
	pausedOwner      = "openshift.io/paused-owner-ref"
	buildName        = "openshift.io/build.name"
	execHook         = "post.hook.restore.velero.io/command"
	initHook         = "init.hook.restore.velero.io/container-image"
)

func main() {
	framework.NewServer().BindFlags(pflag.CommandLine).
		RegisterBackupItemAction(podBackup, make1("pods", backUpPod)).
		RegisterBackupItemAction(dcBackup, make1("deploymentconfigs", backUpDC)).
		RegisterBackupItemAction(rcBackup, make1("replicationcontrollers", backUpRC)).
		RegisterRestoreItemAction(podRestore, make2("pods", restorePod)).
		RegisterRestoreItemAction(dcRestore, make2("deploymentconfigs", restoreDC)).
		RegisterRestoreItemAction(rcRestore, make2("replicationcontrollers", restoreRC)).
		Serve()
}

type (
	backUp  func(runtime.Unstructured) (runtime.Unstructured, error)
	restore func(*velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error)
)

type backupAction struct {
	resource string
	do       backUp
}

func make1(resource string, do backUp) func(logrus.FieldLogger) (any, error) {
	return func(logrus.FieldLogger) (any, error) { return &backupAction{resource, do}, nil }
}

func (a *backupAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{a.resource}}, nil
}

func (a *backupAction) Execute(item runtime.Unstructured, _ *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
	changed, err := a.do(item)
	return changed, nil, err
}

type restoreAction struct {
	resource string
	do       restore
}

func make2(resource string, do restore) func(logrus.FieldLogger) (any, error) {
	return func(logrus.FieldLogger) (any, error) { return &restoreAction{resource, do}, nil }
}

func (a *restoreAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{a.resource}}, nil
}

func (a *restoreAction) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	return a.do(input)
}

// decode and encode are its JSON round trip through typed structs (D27).
func decode[T any](item runtime.Unstructured) (*T, error) {
	data, err := json.Marshal(item.UnstructuredContent())
	if err != nil {
		return nil, err
	}
	typed := new(T)
	return typed, json.Unmarshal(data, typed)
}

func encode(typed any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(typed)
	if err != nil {
		return nil, err
	}
	item := &unstructured.Unstructured{}
	return item, json.Unmarshal(data, &item.Object)
}

// annotate returns the object's annotations with one more.
func annotate(annotations map[string]string, key, value string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations
}

func backUpPod(item runtime.Unstructured) (runtime.Unstructured, error) {
	pod, err := decode[corev1.Pod](item)
	if err != nil {
		return nil, err
	}
	pod.Annotations = annotate(pod.Annotations, includesFix, "true")
	return encode(pod)
}

// backUpDC looks at the live pods of the DeploymentConfig; the labels are those of the first one (D23).
func backUpDC(item runtime.Unstructured) (runtime.Unstructured, error) {
	dc, err := decode[ocpappsv1.DeploymentConfig](item)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := list(&pods, client.InNamespace(dc.Namespace), client.MatchingLabels(dc.Spec.Selector)); err != nil {
		return nil, err
	}
	hooks, volumes, first := false, false, ""
	for i := range pods.Items {
		hooks = hooks || hasAnnotationHook(&pods.Items[i])
		volumes = volumes || hasVolumes(&pods.Items[i])
	}
	if len(pods.Items) > 0 {
		var pairs []string
		for key, value := range pods.Items[0].Labels {
			pairs = append(pairs, key+"="+value)
		}
		first = strings.Join(pairs, ",")
	}
	for key, value := range map[string]string{
		includesFix: "true", hasHooks: strconv.FormatBool(hooks), haveVolumes: strconv.FormatBool(volumes), podLabels: first,
	} {
		dc.Annotations = annotate(dc.Annotations, key, value)
	}
	return encode(dc)
}

// backUpRC goes through a ReplicaSet, which loses the selector (D12).
func backUpRC(item runtime.Unstructured) (runtime.Unstructured, error) {
	rc, err := decode[appsv1.ReplicaSet](item)
	if err != nil {
		return nil, err
	}
	for _, owner := range rc.OwnerReferences {
		if owner.Kind != "DeploymentConfig" {
			continue
		}
		var dcs ocpappsv1.DeploymentConfigList
		if err := list(&dcs, client.InNamespace(rc.Namespace)); err != nil {
			return nil, err
		}
		for i := range dcs.Items {
			if dcs.Items[i].Name == owner.Name && dcs.Items[i].Spec.Paused {
				rc.Annotations = annotate(rc.Annotations, pausedOwner, "true")
			}
		}
	}
	return encode(rc)
}

func restorePod(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	pod, err := decode[corev1.Pod](input.Item)
	if err != nil {
		return nil, err
	}
	backed, err := decode[corev1.Pod](input.ItemFromBackup)
	if err != nil {
		return nil, err
	}
	output := velero.NewRestoreItemActionExecuteOutput(input.Item)
	if backed.Annotations[buildName] != "" {
		return output.WithoutRestore(), nil
	}
	pod.Spec.NodeSelector = nil // of every pod (D26)
	hooks := false
	if input.Restore.Spec.Hooks.Resources != nil { // only then are annotations looked at (D1)
		hooks = hasAnnotationHook(pod) || specHookApplies(input.Restore, pod.Namespace, pod.Labels)
	}
	volumes := hasVolumes(pod)
	if len(backed.OwnerReferences) > 0 && !volumes && !hooks {
		return output.WithoutRestore(), nil
	}
	if pod.Labels["deployment"] != "" && pod.Labels["deploymentconfig"] != "" && (volumes || hooks) {
		delete(pod.Labels, "deployment")
		delete(pod.Labels, "deploymentconfig") // so that hooks which select on it do not run (D3)
		pod.Labels[disconnected] = label.GetValidName(input.Restore.Name)
	}
	item, err := encode(pod)
	if err != nil {
		return nil, err
	}
	return velero.NewRestoreItemActionExecuteOutput(item), nil
}

func restoreDC(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	dc, err := decode[ocpappsv1.DeploymentConfig](input.Item)
	if err != nil {
		return nil, err
	}
	if mapping := input.Restore.Spec.NamespaceMapping; len(mapping) > 0 {
		for i := range dc.Spec.Triggers {
			if params := dc.Spec.Triggers[i].ImageChangeParams; params != nil && mapping[params.From.Namespace] != "" {
				params.From.Namespace = mapping[dc.Namespace] // not its own (D13)
			}
		}
	}
	parsed, _ := labels.ConvertSelectorToLabelsMap(dc.Annotations[podLabels])
	disconnect := dc.Annotations[includesFix] != "" &&
		(dc.Annotations[haveVolumes] == "true" || dc.Annotations[hasHooks] == "true" || specHookApplies(input.Restore, dc.Namespace, parsed))
	if dc.Spec.Replicas > 0 && disconnect {
		dc.Annotations = annotate(dc.Annotations, originalReplicas, strconv.Itoa(int(dc.Spec.Replicas)))
		dc.Annotations = annotate(dc.Annotations, originalPaused, strconv.FormatBool(dc.Spec.Paused))
		dc.Spec.Replicas, dc.Spec.Paused = 0, false
		if dc.Labels == nil {
			dc.Labels = map[string]string{}
		}
		dc.Labels[replicasModified] = label.GetValidName(input.Restore.Name)
	}
	item, err := encode(dc)
	if err != nil {
		return nil, err
	}
	return velero.NewRestoreItemActionExecuteOutput(item), nil
}

func restoreRC(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	output := velero.NewRestoreItemActionExecuteOutput(input.Item)
	backed, err := decode[metav1.PartialObjectMetadata](input.ItemFromBackup)
	if err != nil {
		return nil, err
	}
	for _, owner := range backed.OwnerReferences {
		if owner.Kind == "DeploymentConfig" && backed.Annotations[pausedOwner] == "" {
			return output.WithoutRestore(), nil
		}
	}
	item := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(input.Item.UnstructuredContent())}
	annotations := item.GetAnnotations()
	delete(annotations, pausedOwner)
	item.SetAnnotations(annotations)
	return velero.NewRestoreItemActionExecuteOutput(item), nil
}

// hasVolumes counts every volume that could be backed up, emptyDirs and those opted out included (D6).
func hasVolumes(pod *corev1.Pod) bool {
	included, optedOut := podvolume.GetVolumesByPod(pod, true, false, nil)
	return len(included)+len(optedOut) > 0
}

// hasAnnotationHook takes an annotation for a hook also when it is empty (D2).
func hasAnnotationHook(pod *corev1.Pod) bool {
	_, exec := pod.Annotations[execHook]
	_, init := pod.Annotations[initHook]
	return exec || init
}

// specHookApplies compares the source namespace (D4), the hook's resources with the word "pods" (D5), and the labels
// before any is removed.
func specHookApplies(r *velerov1.Restore, namespace string, podLabels map[string]string) bool {
	for _, hook := range r.Spec.Hooks.Resources {
		selector := labels.Everything()
		if hook.LabelSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(hook.LabelSelector); err != nil {
				continue
			}
		}
		namespaces := collections.NewIncludesExcludes().Includes(hook.IncludedNamespaces...).Excludes(hook.ExcludedNamespaces...)
		resources := collections.NewIncludesExcludes().Includes(hook.IncludedResources...).Excludes(hook.ExcludedResources...)
		if len(hook.PostHooks) > 0 && namespaces.ShouldInclude(namespace) && resources.ShouldInclude("pods") && selector.Matches(labels.Set(podLabels)) {
			return true
		}
	}
	return false
}

// list lists through a client made for the purpose, as the plugin does.
func list(into client.ObjectList, options ...client.ListOption) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := ocpappsv1.Install(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.List(ctx, into, options...); err != nil {
		return fmt.Errorf("list %T: %w", into, err)
	}
	return nil
}
