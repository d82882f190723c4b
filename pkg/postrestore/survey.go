package postrestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/standby"
)

// Area is what a survey looks at.
type Area struct {
	// Namespaces to look at; none means all of the cluster, which needs rights on all of it.
	Namespaces []string
	// VeleroNamespace is where the Restores are whose marks do not say so: those of the openshift-velero-plugin.
	VeleroNamespace string
}

// Survey returns everything in the area that carries a mark of any restore, in the order of names. It lists each kind
// once a namespace of the area, or once for the cluster, and what is Velero's once for each Velero; what nothing needs is
// not listed. It writes nothing. A list that is refused is an error: a gap would look like "nothing is held".
func (r *Runner) Survey(ctx context.Context, area Area) ([]Holding, error) {
	s := survey{
		reader: r.client, area: area, now: r.clock.Now(),
		dcs: map[types.NamespacedName]*ocpappsv1.DeploymentConfig{}, found: map[types.NamespacedName]*State{},
		veleros: map[string]*instance{},
	}
	for _, step := range []func(context.Context) error{s.deploymentConfigs, s.pods, s.controllers, s.velero, s.volumes} {
		if err := within(ctx, step); err != nil {
			return nil, err
		}
	}
	holdings := make([]Holding, 0, len(s.found))
	for name, state := range s.found {
		holding, err := s.holding(name, *state)
		if err != nil {
			return nil, err
		}
		holdings = append(holdings, holding)
	}
	slices.SortFunc(holdings, func(a, b Holding) int { return cmp.Compare(a.Name.String(), b.Name.String()) })
	return holdings, nil
}

// survey gathers step by step.
type survey struct {
	reader  client.Reader
	area    Area
	now     time.Time
	dcs     map[types.NamespacedName]*ocpappsv1.DeploymentConfig
	found   map[types.NamespacedName]*State
	veleros map[string]*instance
}

// instance is what is known of one Velero, by its namespace.
type instance struct {
	restores velerov1.RestoreList
	backups  velerov1.BackupList
	volumes  velerov1.PodVolumeRestoreList
	claims   velerov2alpha1.DataDownloadList
	// jobs that stand by, or did, for its restores.
	jobs batchv1.JobList
	// config of the plugin, or what is wrong with it.
	config    restore.Config
	configErr error
}

// list calls List once for each namespace of the area, and each for what it brought. What the API server does not know
// is not there.
func (s *survey) list(ctx context.Context, what string, list client.ObjectList, each func(), options ...client.ListOption) error {
	for _, namespace := range (Scope{Namespaces: s.area.Namespaces}).namespaces() {
		if err := s.listIn(ctx, what, namespace, list, options...); err != nil {
			return err
		}
		each()
	}
	return nil
}

func (s *survey) listIn(ctx context.Context, what, namespace string, list client.ObjectList, options ...client.ListOption) error {
	err := s.reader.List(ctx, list, append(options, client.InNamespace(namespace))...)
	switch {
	case err == nil, restore.NotServed(err):
		return nil
	case namespace == metav1.NamespaceAll:
		return fmt.Errorf("list %s: %w", what, err)
	default:
		return fmt.Errorf("list %s in %s: %w", what, namespace, err)
	}
}

// deploymentConfigs lists all of them, not only those that are labelled: pods lead to some that nobody holds, and a record
// without its label is found in no other way.
func (s *survey) deploymentConfigs(ctx context.Context) error {
	var list ocpappsv1.DeploymentConfigList
	return s.list(ctx, "DeploymentConfigs", &list, func() {
		for i := range list.Items {
			dc := list.Items[i].DeepCopy()
			name := client.ObjectKeyFromObject(dc)
			s.dcs[name] = dc
			if isHeld(dc) || hasRecord(dc) {
				s.found[name] = &State{DC: dc}
			}
		}
	})
}

func isHeld(dc *ocpappsv1.DeploymentConfig) bool {
	return dc != nil && dc.Labels[contract.ReplicasModifiedLabel] != ""
}

func hasRecord(dc *ocpappsv1.DeploymentConfig) bool {
	_, recorded, err := disconnect.Recorded(dc.Annotations)
	return recorded || err != nil
}

func (s *survey) pods(ctx context.Context) error {
	var list corev1.PodList
	return s.list(ctx, "detached pods", &list, func() {
		for i := range list.Items {
			pod := list.Items[i].DeepCopy()
			name := types.NamespacedName{Namespace: pod.Namespace, Name: disconnect.DeploymentConfigOf(pod)}
			if s.found[name] == nil {
				s.found[name] = &State{DC: s.dcs[name]}
			}
			s.found[name].Pods = append(s.found[name].Pods, Pod{Pod: pod})
		}
	}, client.HasLabels{contract.DisconnectedLabel})
}

func (s *survey) some(test func(*State) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s.found)), test)
}

func (s *survey) controllers(ctx context.Context) error {
	if !s.some(func(state *State) bool { return isHeld(state.DC) }) {
		return nil
	}
	var list corev1.ReplicationControllerList
	return s.list(ctx, "ReplicationControllers", &list, func() {
		for i := range list.Items {
			name := types.NamespacedName{Namespace: list.Items[i].Namespace, Name: disconnect.DeploymentConfigOfRC(&list.Items[i])}
			if state, ok := s.found[name]; ok {
				state.Controllers = append(state.Controllers, *list.Items[i].DeepCopy())
			}
		}
	}, client.HasLabels{contract.PodDeploymentConfigAnnotation})
}

// velero finds out, for each Velero that a mark names, its Restores, its settings and, where a DeploymentConfig is missing,
// the Backups, which tell whether it was meant to come.
func (s *survey) velero(ctx context.Context) error {
	for _, state := range s.found {
		for _, m := range s.marksOf(*state) {
			s.veleros[m.restore.Namespace] = &instance{}
		}
	}
	alone := s.some(func(state *State) bool { return state.DC == nil })
	for _, namespace := range slices.Sorted(maps.Keys(s.veleros)) {
		v := s.veleros[namespace]
		if err := s.listIn(ctx, "Restores", namespace, &v.restores); err != nil {
			return err
		}
		if alone {
			if err := s.listIn(ctx, "Backups", namespace, &v.backups); err != nil {
				return err
			}
		}
		if len(v.restores.Items) == 0 {
			continue
		}
		v.config, v.configErr = restore.ReadConfig(ctx, s.reader, namespace, contract.DeploymentConfigRestoreAction, restore.RestoreKinds)
		if err := s.listIn(ctx, "Jobs", namespace, &v.jobs, client.HasLabels{velerov1.RestoreUIDLabel}); err != nil {
			return err
		}
		if wrong := new(restore.InvalidSettingsError); v.configErr != nil && !errors.As(v.configErr, &wrong) {
			return v.configErr
		}
	}
	return nil
}

// volumes lists what brings the data of detached pods.
func (s *survey) volumes(ctx context.Context) error {
	if !s.some(func(state *State) bool { return len(state.Pods) > 0 }) {
		return nil
	}
	for _, namespace := range slices.Sorted(maps.Keys(s.veleros)) {
		v := s.veleros[namespace]
		if err := s.listIn(ctx, "PodVolumeRestores", namespace, &v.volumes, client.HasLabels{velerov1.RestoreNameLabel}); err != nil {
			return err
		}
		if err := s.listIn(ctx, "DataDownloads", namespace, &v.claims, client.HasLabels{velerov1.RestoreNameLabel}); err != nil {
			return err
		}
	}
	return nil
}

// mark is what labels and annotations say about whose an object is.
type mark struct {
	// restore is the full name, or the namespace that was asked for and the value of the label: those of a name that is not
	// too long for a label are the same.
	restore types.NamespacedName
	uid     types.UID
}

// marksOf returns the marks that lead to a restore, the holder's first.
func (s *survey) marksOf(state State) []mark {
	var marks []mark
	add := func(labelKey string, obj client.Object) {
		m := mark{restore: types.NamespacedName{Namespace: s.area.VeleroNamespace, Name: obj.GetLabels()[labelKey]}}
		if namespace, name, ok := strings.Cut(obj.GetAnnotations()[contract.RestoreAnnotation], "/"); ok {
			m.restore = types.NamespacedName{Namespace: namespace, Name: name}
			m.uid = types.UID(obj.GetAnnotations()[contract.RestoreUIDAnnotation])
		}
		if m.restore.Name != "" {
			marks = append(marks, m)
		}
	}
	if state.DC != nil && (isHeld(state.DC) || hasRecord(state.DC)) {
		add(contract.ReplicasModifiedLabel, state.DC)
	}
	pods := slices.Clone(state.Pods)
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		add(contract.DisconnectedLabel, pod.Pod)
	}
	return marks
}

// find returns the Restore that a mark names, also one whose name was too long for the label. It may be another one of
// the same name: see mark.madeBy.
func (s *survey) find(m mark) *velerov1.Restore {
	restores := s.veleros[m.restore.Namespace].restores.Items
	for i := range restores {
		owner := disconnect.OwnerOf(&restores[i])
		if owner.Restore == m.restore || owner.Label() == m.restore.Name {
			return &restores[i]
		}
	}
	return nil
}

func (m mark) madeBy(r *velerov1.Restore) bool { return r != nil && (m.uid == "" || m.uid == r.UID) }

// of returns the mark by which phase two is run, and the Restore of that name: the first whose Restore exists, else the
// first. The mark is zero when none names a restore.
func (s *survey) of(state State) (mark, *velerov1.Restore) {
	marks := s.marksOf(state)
	for _, m := range marks {
		if r := s.find(m); m.madeBy(r) {
			return m, r
		}
	}
	if len(marks) == 0 {
		return mark{}, nil
	}
	return marks[0], s.find(marks[0])
}

// holding says everything about one DeploymentConfig.
func (s *survey) holding(name types.NamespacedName, state State) (Holding, error) {
	m, r := s.of(state)
	scope := Scope{
		Owner: disconnect.Owner{Restore: m.restore}, Restore: Restore{NamespacedName: m.restore, Ended: true},
		Options: Options{StartTimeout: restore.DefaultStartTimeout, Undriven: restoreIsGone(m.restore)},
	}
	if m.madeBy(r) {
		scope = s.scopeOf(r)
		m.restore = scope.Owner.Restore
	}
	if err := s.complete(name, &state, scope); err != nil {
		return Holding{}, err
	}
	h := Holding{
		Name: name, Exists: state.DC != nil, Held: isHeld(state.DC), Pods: state.Pods, Step: Next(state),
		Restore: HoldingRestore{NamespacedName: m.restore, Exists: m.madeBy(r)}, undriven: state.Undriven != "",
	}
	if h.Restore.Exists {
		h.Restore.Phase = cmp.Or(r.Status.Phase, velerov1.RestorePhaseNew)
	}
	if state.DC != nil {
		if originals, recorded, err := disconnect.Recorded(state.DC.Annotations); err == nil && recorded {
			h.Originals = &originals
		}
	}
	h.Since, h.SinceFrom = since(state)
	h.Problems = problems(state, h, r)
	h.Command = command(state, h, r)
	return h, nil
}

// scopeOf returns the scope that phase two of a Restore has, and why nobody takes its steps.
func (s *survey) scopeOf(r *velerov1.Restore) Scope {
	v := s.veleros[r.Namespace]
	options := Options{StartTimeout: restore.DefaultStartTimeout}
	settings, err := restore.ParseSettings(v.config.Data, r.Annotations)
	err = cmp.Or(v.configErr, err)
	if err == nil {
		options.StartTimeout = settings.StartTimeout
	}
	switch {
	case Ended(r.Status.Phase) && !v.atWork(r):
		options.Undriven = restoreHasEnded(r)
	case err != nil:
		options.Undriven = err.Error()
	case settings.Resume == restore.ResumeManual:
		options.Undriven = manual
	}
	var backup *velerov1.Backup
	for i := range v.backups.Items {
		if v.backups.Items[i].Name == r.Spec.BackupName {
			backup = &v.backups.Items[i]
		}
	}
	scope := ScopeOf(r, restore.ScopeOf(r, backup).Uncertain, Ended(r.Status.Phase), options)
	scope.Restore.Bringing = r.Status.Phase == "" || r.Status.Phase == velerov1.RestorePhaseNew || r.Status.Phase == velerov1.RestorePhaseInProgress
	return scope
}

// atWork tells whether a Job stands by for a restore that has not ended itself.
func (v *instance) atWork(r *velerov1.Restore) bool {
	return slices.ContainsFunc(v.jobs.Items, func(job batchv1.Job) bool {
		return job.Name == standby.Name(r) && !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget)
		})
	})
}

// complete adds to a state what Next needs.
func (s *survey) complete(name types.NamespacedName, state *State, scope Scope) error {
	state.Name, state.Restore, state.Options, state.Now = name, scope.Restore, scope.Options, s.now
	state.HeldBy = scope.otherHolder(state.DC)
	slices.SortFunc(state.Pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	for i := range state.Pods {
		pod := &state.Pods[i]
		var err error
		if pod.ExecHooks, err = scope.execHooks(pod.Pod); err != nil {
			return fmt.Errorf("find the exec hooks of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		for _, namespace := range slices.Sorted(maps.Keys(s.veleros)) {
			v := s.veleros[namespace]
			pod.Volumes = append(pod.Volumes, ofPod(pod.Pod, v.volumes.Items)...)
			pod.Volumes = append(pod.Volumes, ofClaims(pod.Pod, ofRestore(pod.Labels[contract.DisconnectedLabel], v.claims.Items))...)
		}
	}
	return nil
}

// ofRestore returns the DataDownloads of a restore, by its label: of another one, they may well be into the same claim.
func ofRestore(restoreLabel string, downloads []velerov2alpha1.DataDownload) []velerov2alpha1.DataDownload {
	return slices.DeleteFunc(slices.Clone(downloads), func(d velerov2alpha1.DataDownload) bool { return d.Labels[velerov1.RestoreNameLabel] != restoreLabel })
}
