package postrestore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// Scope says what a run of phase two looks at.
type Scope struct {
	// Owner is the restore whose marks are looked for. With an empty UID, marks of any restore of the name count.
	Owner disconnect.Owner
	// Hooks of the Restore's spec; nil when the Restore is gone.
	Hooks *velerov1.RestoreHooks
	// Restore is what is known of the restore.
	Restore Restore
	// Namespaces to look at; none means all of the cluster, which needs rights on all of it.
	Namespaces []string
	Options
}

// ScopeOf returns the scope of a restore. ended says that the Restore does not change any more.
func ScopeOf(r *velerov1.Restore, byLabel, ended bool, options Options) Scope {
	owner := disconnect.OwnerOf(r)
	return Scope{
		Owner: owner,
		Hooks: &r.Spec.Hooks,
		Restore: Restore{
			NamespacedName: owner.Restore, UID: owner.UID,
			Ended: ended, Hooks: r.Status.HookStatus, ByLabel: byLabel,
		},
		Options: options,
	}
}

// Look returns the state of every DeploymentConfig that the scope's restore holds or has detached pods of, in the order
// of their names. It lists each kind once, or once per namespace, never per DeploymentConfig, and writes nothing.
func (r *Runner) Look(ctx context.Context, scope Scope) ([]State, error) {
	l := look{reader: r.client, scope: scope, states: map[types.NamespacedName]*State{}}
	for _, step := range []func(context.Context) error{l.held, l.detached, l.unheld, l.controllers, l.volumes} {
		if err := within(ctx, step); err != nil {
			return nil, err
		}
	}
	now := r.clock.Now()
	states := make([]State, 0, len(l.states))
	for name, state := range l.states {
		state.Name, state.Restore, state.Options, state.Now = name, scope.Restore, scope.Options, now
		state.HeldBy = scope.otherHolder(state.DC)
		slices.SortFunc(state.Pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
		states = append(states, *state)
	}
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Name.String(), b.Name.String()) })
	return states, nil
}

// otherHolder names the restore that holds a DeploymentConfig, if it is not the scope's: in full where the marks tell, else
// by the value of the label.
func (s Scope) otherHolder(dc *ocpappsv1.DeploymentConfig) string {
	if dc == nil || dc.Labels[contract.ReplicasModifiedLabel] == "" || s.Owner.Marked(contract.ReplicasModifiedLabel, dc.Labels, dc.Annotations) {
		return ""
	}
	return cmp.Or(dc.Annotations[contract.RestoreAnnotation], dc.Labels[contract.ReplicasModifiedLabel])
}

// look gathers states step by step.
type look struct {
	reader client.Reader
	scope  Scope
	states map[types.NamespacedName]*State
	// marked are all held DeploymentConfigs in sight, whichever restore holds them.
	marked map[types.NamespacedName]*ocpappsv1.DeploymentConfig
}

// include makes sure of a state for a DeploymentConfig.
func (l *look) include(name types.NamespacedName) {
	if _, ok := l.states[name]; !ok {
		l.states[name] = &State{DC: l.marked[name]}
	}
}

// list calls List for each namespace of the scope, or once for the cluster.
func (l *look) list(ctx context.Context, list client.ObjectList, each func(), options ...client.ListOption) error {
	for _, namespace := range l.scope.namespaces() {
		if err := l.reader.List(ctx, list, append(options, client.InNamespace(namespace))...); err != nil {
			return err
		}
		each()
	}
	return nil
}

func (s Scope) namespaces() []string {
	if len(s.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return s.Namespaces
}

// held finds the DeploymentConfigs that the restore holds.
func (l *look) held(ctx context.Context) error {
	l.marked = map[types.NamespacedName]*ocpappsv1.DeploymentConfig{}
	var list ocpappsv1.DeploymentConfigList
	err := l.list(ctx, &list, func() {
		for i := range list.Items {
			l.marked[client.ObjectKeyFromObject(&list.Items[i])] = list.Items[i].DeepCopy()
		}
	}, client.HasLabels{contract.ReplicasModifiedLabel})
	if err != nil && !restore.NotServed(err) {
		return fmt.Errorf("list held DeploymentConfigs: %w", err)
	}
	for name, dc := range l.marked {
		if l.scope.Owner.Marked(contract.ReplicasModifiedLabel, dc.Labels, dc.Annotations) {
			l.include(name)
		}
	}
	return nil
}

// detached finds the pods that the restore has detached, and those that other restores have detached from the same
// DeploymentConfigs: a DeploymentConfig is resumed when none of its detached pods is left (defect D15).
func (l *look) detached(ctx context.Context) error {
	byDC := map[types.NamespacedName][]Pod{}
	var list corev1.PodList
	err := l.list(ctx, &list, func() {
		for i := range list.Items {
			pod := list.Items[i].DeepCopy()
			name := types.NamespacedName{Namespace: pod.Namespace, Name: disconnect.DeploymentConfigOf(pod)}
			byDC[name] = append(byDC[name], Pod{Pod: pod})
			if l.scope.Owner.Marked(contract.DisconnectedLabel, pod.Labels, pod.Annotations) {
				l.include(name)
			}
		}
	}, client.HasLabels{contract.DisconnectedLabel})
	if err != nil {
		return fmt.Errorf("list detached pods: %w", err)
	}
	for name, state := range l.states {
		state.Pods = byDC[name]
		for i := range state.Pods {
			if state.Pods[i].ExecHooks, err = l.scope.execHooks(state.Pods[i].Pod); err != nil {
				return fmt.Errorf("find the exec hooks of pod %s/%s: %w", name.Namespace, state.Pods[i].Name, err)
			}
		}
	}
	return nil
}

// execHooks returns the exec hooks that Velero runs in a pod of this restore.
func (s Scope) execHooks(pod *corev1.Pod) ([]string, error) {
	if !s.Owner.Marked(contract.DisconnectedLabel, pod.Labels, pod.Annotations) {
		return nil, nil
	}
	found, err := hooks.Find(s.Hooks, hooks.Pod{
		TargetNamespace: pod.Namespace, Annotations: pod.Annotations,
		LabelsBeforePlugins: pod.Labels, LabelsWhenCreated: pod.Labels, Containers: pod.Spec.Containers,
	})
	return found.Exec, err
}

// inNamespaces calls read for each namespace that has a state which matches.
func (l *look) inNamespaces(matches func(*State) bool, read func(namespace string) error) error {
	namespaces := map[string]bool{}
	for name, state := range l.states {
		if matches(state) {
			namespaces[name.Namespace] = true
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		if err := read(namespace); err != nil {
			return err
		}
	}
	return nil
}

// unheld finds the DeploymentConfigs of detached pods that nobody holds.
func (l *look) unheld(ctx context.Context) error {
	return l.inNamespaces(func(s *State) bool { return s.DC == nil }, func(namespace string) error {
		var list ocpappsv1.DeploymentConfigList
		if err := l.reader.List(ctx, &list, client.InNamespace(namespace)); err != nil && !restore.NotServed(err) {
			return fmt.Errorf("list DeploymentConfigs in %s: %w", namespace, err)
		}
		for i := range list.Items {
			if state, ok := l.states[client.ObjectKeyFromObject(&list.Items[i])]; ok {
				state.DC = &list.Items[i]
			}
		}
		return nil
	})
}

// controllers finds the ReplicationControllers of held DeploymentConfigs. They carry their DeploymentConfig's name as a
// label, under the key of the annotation (library-go appsutil, MakeDeployment).
func (l *look) controllers(ctx context.Context) error {
	return l.inNamespaces(func(s *State) bool { _, held, _ := s.record(); return held }, func(namespace string) error {
		var list corev1.ReplicationControllerList
		if err := l.reader.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{contract.PodDeploymentConfigAnnotation}); err != nil {
			return fmt.Errorf("list ReplicationControllers in %s: %w", namespace, err)
		}
		for i := range list.Items {
			name := types.NamespacedName{Namespace: namespace, Name: disconnect.DeploymentConfigOfRC(&list.Items[i])}
			if state, ok := l.states[name]; ok {
				state.Controllers = append(state.Controllers, list.Items[i])
			}
		}
		return nil
	})
}

// volumes finds the volume restores of the detached pods: those of the restores that have detached them. Velero labels
// them with the restore's name by the same rule as detached pods are labelled by.
func (l *look) volumes(ctx context.Context) error {
	restores := map[string]bool{}
	for _, state := range l.states {
		for _, pod := range state.Pods {
			restores[pod.Labels[contract.DisconnectedLabel]] = true
		}
	}
	if len(restores) == 0 {
		return nil
	}
	of, err := labels.NewRequirement(velerov1.RestoreNameLabel, selection.In, slices.Sorted(maps.Keys(restores)))
	if err != nil {
		return fmt.Errorf("select the volume restores: %w", err)
	}
	options := []client.ListOption{
		client.InNamespace(l.scope.Owner.Restore.Namespace),
		client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*of)},
	}
	var inPods velerov1.PodVolumeRestoreList
	if err := l.reader.List(ctx, &inPods, options...); err != nil {
		return fmt.Errorf("list PodVolumeRestores in %s: %w", l.scope.Owner.Restore.Namespace, err)
	}
	var downloads velerov2alpha1.DataDownloadList
	if err := l.reader.List(ctx, &downloads, options...); err != nil && !restore.NotServed(err) {
		return fmt.Errorf("list DataDownloads in %s: %w", l.scope.Owner.Restore.Namespace, err)
	}
	for _, state := range l.states {
		for i := range state.Pods {
			state.Pods[i].Volumes = append(ofPod(state.Pods[i].Pod, inPods.Items), ofClaims(state.Pods[i].Pod, downloads.Items)...)
		}
	}
	return nil
}

// ofPod returns the PodVolumeRestores of a pod. One of an earlier pod of the same name has another UID.
func ofPod(pod *corev1.Pod, restores []velerov1.PodVolumeRestore) []VolumeRestore {
	var found []VolumeRestore
	for i := range restores {
		of := restores[i].Spec.Pod
		if of.Namespace != pod.Namespace || of.Name != pod.Name || (of.UID != "" && of.UID != pod.UID) {
			continue
		}
		found = append(found, VolumeRestore{
			Object: "PodVolumeRestore " + restores[i].Name, Volume: restores[i].Spec.Volume,
			Phase: phaseOf(string(restores[i].Status.Phase)), Message: restores[i].Status.Message,
		})
	}
	return found
}

// ofClaims returns the DataDownloads into the claims of a pod.
func ofClaims(pod *corev1.Pod, downloads []velerov2alpha1.DataDownload) []VolumeRestore {
	var found []VolumeRestore
	for i := range downloads {
		target := downloads[i].Spec.TargetVolume
		for j := range pod.Spec.Volumes {
			claim := pod.Spec.Volumes[j].PersistentVolumeClaim
			if claim == nil || claim.ClaimName != target.PVC || pod.Namespace != target.Namespace {
				continue
			}
			found = append(found, VolumeRestore{
				Object: "DataDownload " + downloads[i].Name, Volume: target.PVC, BeforeStart: true,
				Phase: phaseOf(string(downloads[i].Status.Phase)), Message: downloads[i].Status.Message,
			})
		}
	}
	return found
}

// phaseOf reads the phase of a PodVolumeRestore or DataDownload: both kinds use the same words, of which only these
// three are final.
func phaseOf(phase string) VolumePhase {
	switch phase {
	case string(velerov1.PodVolumeRestorePhaseCompleted):
		return VolumeCompleted
	case string(velerov1.PodVolumeRestorePhaseFailed), string(velerov1.PodVolumeRestorePhaseCanceled):
		return VolumeFailed
	default:
		return VolumePending
	}
}
