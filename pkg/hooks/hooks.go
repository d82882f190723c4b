// Package hooks answers which restore hooks Velero will run in a pod.
//
// Velero decides that in an internal package (internal/hook/item_hook_handler.go of v1.18.3), so its rules stand here a
// second time; each rule names the function it follows. The same answer serves phase one (is there a reason to restore
// this pod?) and phase two (must the restore end before this pod may go?).
package hooks

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
)

// Annotations by which a pod asks for a restore hook. Velero does not export them (item_hook_handler.go).
const (
	ExecCommandAnnotation   = "post.hook.restore.velero.io/command"
	ExecContainerAnnotation = "post.hook.restore.velero.io/container"
	InitImageAnnotation     = "init.hook.restore.velero.io/container-image"
)

// FromAnnotation is the name Velero's logs give to a hook that a pod's annotations ask for.
const FromAnnotation = "<from-annotation>"

// Applied names the hooks that Velero will run in one pod. A nil slice means none.
type Applied struct {
	// Init are the hooks that become init containers: they have run when the pod is Initialized.
	Init []string
	// Exec are the hooks that Velero runs inside a container, in the background from the pod's creation on. Velero
	// waits for them only when the restore finalizes, after the restore's operations.
	Exec []string
}

// Any tells whether Velero will run any hook in the pod.
func (a Applied) Any() bool { return len(a.Init)+len(a.Exec) > 0 }

// Pod is what Velero looks at to decide on hooks.
type Pod struct {
	// TargetNamespace is the namespace the pod is restored into: hooks are matched on it, not on the namespace of the
	// backup (velero issue 4720).
	TargetNamespace string
	// Annotations of the pod. They win over the Restore's spec.
	Annotations map[string]string
	// LabelsBeforePlugins are the labels that the selectors of init hooks are matched on: Velero's own action adds init
	// hooks, and it runs before any plugin.
	LabelsBeforePlugins map[string]string
	// LabelsWhenCreated are the labels that the selectors of exec hooks are matched on: those of the created pod.
	LabelsWhenCreated map[string]string
	// Containers of the pod, without init containers.
	Containers []corev1.Container
}

// Find returns the restore hooks that Velero will run in pod, given the hooks of the Restore's spec (nil: none).
// It fails where Velero fails too: on a label selector that cannot be parsed.
func Find(spec *velerov1.RestoreHooks, pod Pod) (Applied, error) {
	var found Applied
	execByAnnotation, initByAnnotation := byAnnotations(pod, &found)
	if spec == nil {
		return found, nil
	}
	for i := range spec.Resources {
		hook := &spec.Resources[i]
		matches, err := selectorOf(hook)
		if err != nil {
			return Applied{}, err
		}
		for _, post := range hook.PostHooks {
			if !initByAnnotation && addsContainers(post.Init) && matches(pod.TargetNamespace, pod.LabelsBeforePlugins) {
				found.Init = append(found.Init, hook.Name)
			}
			if !execByAnnotation && canRun(post.Exec, pod) && matches(pod.TargetNamespace, pod.LabelsWhenCreated) {
				found.Exec = append(found.Exec, hook.Name)
			}
		}
	}
	return found, nil
}

// byAnnotations adds the hooks that the pod's annotations ask for and tells which kinds of hook of the Restore's spec are
// therefore not looked at. An annotation that is present but empty asks for nothing
// (getPodExecRestoreHookFromAnnotations, getInitContainerFromAnnotation).
func byAnnotations(pod Pod, found *Applied) (execWins, initWins bool) {
	if pod.Annotations[ExecCommandAnnotation] != "" {
		execWins = true
		if hasContainer(pod, pod.Annotations[ExecContainerAnnotation]) {
			found.Exec = append(found.Exec, FromAnnotation)
		}
	}
	if pod.Annotations[InitImageAnnotation] != "" {
		initWins = true
		found.Init = append(found.Init, FromAnnotation)
	}
	return execWins, initWins
}

// selectorOf returns the test that a pod must pass for the hook to apply. The hook's included and excluded resources are
// not looked at: Velero always compares with pods (GetRestoreHooksFromSpec).
func selectorOf(hook *velerov1.RestoreResourceHookSpec) (func(namespace string, podLabels map[string]string) bool, error) {
	namespaces := collections.NewIncludesExcludes().Includes(hook.IncludedNamespaces...).Excludes(hook.ExcludedNamespaces...)
	selector := labels.Everything()
	if hook.LabelSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(hook.LabelSelector); err != nil {
			return nil, fmt.Errorf("label selector of restore hook %q: %w", hook.Name, err)
		}
	}
	return func(namespace string, podLabels map[string]string) bool {
		return namespaces.ShouldInclude(namespace) && selector.Matches(labels.Set(podLabels))
	}, nil
}

func addsContainers(hook *velerov1.InitRestoreHook) bool {
	return hook != nil && len(hook.InitContainers) > 0
}

func canRun(hook *velerov1.ExecRestoreHook, pod Pod) bool {
	return hook != nil && hasContainer(pod, hook.Container)
}

// hasContainer tells whether an exec hook for the named container can run: Velero discards hooks for a container that
// the pod does not have; no name means the first one (GroupRestoreExecHooks, DefaultWaitExecHookHandler.HandleHooks).
func hasContainer(pod Pod, name string) bool {
	if name == "" {
		return len(pod.Containers) > 0
	}
	for i := range pod.Containers {
		if pod.Containers[i].Name == name {
			return true
		}
	}
	return false
}
