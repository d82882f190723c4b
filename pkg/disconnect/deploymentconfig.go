package disconnect

import (
	"fmt"
	"slices"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// DCFacts is what the decision on a DeploymentConfig rests on.
type DCFacts struct {
	// Backup is the DeploymentConfig as it stands in the backup; Item as it is now, after the actions of other plugins.
	Backup, Item *ocpappsv1.DeploymentConfig
	// Live is what the target namespace held under its name before this restore.
	Live LiveDC
	// Update is true when the restore's existingResourcePolicy makes Velero patch existing objects.
	Update bool
	// DetachedPods of this DeploymentConfig in the target namespace, by this restore or an earlier one.
	DetachedPods int
	// Owner is this restore.
	Owner Owner
}

// DCDecision is a Decision on a DeploymentConfig.
type DCDecision struct {
	Decision
	// Originals are recorded when it is held, and given back when it is released.
	Originals Originals
	// HoldPaused is true when it must be held paused as well.
	HoldPaused bool
	// Operation is true when phase two must look at it.
	Operation bool
}

// DecideDC decides what becomes of a DeploymentConfig.
func DecideDC(f DCFacts) DCDecision {
	decision := f.decide()
	// The openshift-velero-plugin may still hold it after us, by its own rules. Phase two finds out.
	decision.Operation = decision.Operation || f.Backup.Annotations[contract.StockBackupAnnotation] != "" ||
		f.Owner.Marked(contract.ReplicasModifiedLabel, f.Item.Labels, f.Item.Annotations)
	return decision
}

func (f DCFacts) decide() DCDecision {
	switch {
	case f.Live.runs():
		return f.leaveLive(fmt.Sprintf("it was live before this restore with %d replicas", f.Live.Replicas))
	case f.Live.Exists && !f.Update:
		return DCDecision{
			Decision: Decision{Verdict: Untouched, Reason: fmt.Sprintf("it was in the cluster at 0 replicas and stays so; "+
				"%d detached pods go when their data is in", f.DetachedPods)},
			Operation: f.DetachedPods > 0,
		}
	case f.DetachedPods > 0:
		return f.hold(fmt.Sprintf("%d detached pods wait for data or hooks", f.DetachedPods))
	case f.Live.Exists:
		return f.leaveLive("it was in the cluster at 0 replicas and no detached pod waits for it")
	case f.neverRollsOut():
		return f.hold("nothing would start its first rollout, which phase two does")
	default:
		return f.release("no detached pod waits for it")
	}
}

// hold records the originals and says how to hold. A record that cannot be read is left as it is: phase two names it.
func (f DCFacts) hold(reason string) DCDecision {
	originals, err := f.originals()
	decision := DCDecision{
		Decision:   Decision{Verdict: Held, Reason: reason},
		Originals:  originals,
		HoldPaused: hasLifecycleHook(f.Backup),
		Operation:  true,
	}
	if err != nil {
		decision.Verdict, decision.Warn = Untouched, true
		decision.Reason = unreadableRecord(err)
	}
	return decision
}

func unreadableRecord(err error) string {
	return fmt.Sprintf("it was backed up while held and its record cannot be read, so it stays as it is: %v", err)
}

// neverRollsOut tells whether the DeploymentConfig would stay at 0 pods for good once it is created: its pods and
// ReplicationControllers are left to it, and nothing starts its first rollout (D8, D9). A paused one has its
// ReplicationController restored.
func (f DCFacts) neverRollsOut() bool {
	originals, err := f.originals()
	if err != nil || originals.Replicas == 0 || originals.Paused || f.Backup.Spec.Test {
		return false
	}
	triggers := slices.Clone(f.Backup.Spec.Triggers)
	for i, trigger := range triggers {
		if trigger.ImageChangeParams != nil {
			// OpenShift's API server clears it when a DeploymentConfig is created (deployconfig strategy, PrepareForCreate).
			params := *trigger.ImageChangeParams
			params.LastTriggeredImage = ""
			triggers[i].ImageChangeParams = &params
		}
	}
	return NothingRollsOut(triggers)
}

// NothingRollsOut tells whether no trigger starts a DeploymentConfig's first rollout, ever. The controller never does
// without triggers (DeploymentConfigController.Handle), and not before all image triggers are resolved (triggerActivated),
// which one that is not automatic never is by itself (D9). An absent list counts as an empty one: should the API server
// fill it with a config change trigger, the controller starts the rollout before us, and that is as well.
func NothingRollsOut(triggers ocpappsv1.DeploymentTriggerPolicies) bool {
	starts := false
	for _, trigger := range triggers {
		params := trigger.ImageChangeParams
		if trigger.Type == ocpappsv1.DeploymentTriggerOnImageChange && params != nil && !params.Automatic && params.LastTriggeredImage == "" {
			return true
		}
		starts = starts || trigger.Type == ocpappsv1.DeploymentTriggerOnConfigChange || trigger.Type == ocpappsv1.DeploymentTriggerOnImageChange
	}
	return !starts
}

// originals returns the values that the DeploymentConfig is to have in the end. A recorded original is never overwritten:
// that of the live object wins, then that of the item, which another plugin or an earlier restore has left at 0.
func (f DCFacts) originals() (Originals, error) {
	if f.Live.Exists {
		if recorded, ok, err := Recorded(f.Live.Annotations); ok || err != nil {
			return recorded, err
		}
	}
	for _, dc := range []*ocpappsv1.DeploymentConfig{f.Item, f.Backup} {
		if dc.Spec.Replicas != 0 {
			continue
		}
		if recorded, ok, err := Recorded(dc.Annotations); ok || err != nil {
			return recorded, err
		}
	}
	return Originals{Replicas: f.Backup.Spec.Replicas, Paused: f.Backup.Spec.Paused}, nil
}

// leaveLive keeps a live DeploymentConfig out of every hold, also of that of another plugin: under the policy update,
// Velero would patch it into the live object (defect D14).
func (f DCFacts) leaveLive(reason string) DCDecision {
	if f.Update {
		return f.release(reason)
	}
	return DCDecision{Decision: Decision{Verdict: Untouched, Reason: reason}}
}

// release gives a DeploymentConfig that carries marks its own values. What this restore's own hold by another plugin has
// set is left to phase two, unless the object is live: then it must not reach it.
func (f DCFacts) release(reason string) DCDecision {
	marked := f.Item.Labels[contract.ReplicasModifiedLabel] != ""
	_, recorded, err := Recorded(f.Item.Annotations)
	switch {
	case !marked && !recorded && err == nil:
		return DCDecision{Decision: Decision{Verdict: Untouched, Reason: reason}}
	case f.Backup.Labels[contract.ReplicasModifiedLabel] == "" && !f.Live.Exists:
		return DCDecision{
			Decision:  Decision{Verdict: Untouched, Reason: reason + "; another plugin holds it, phase two looks at that"},
			Operation: true,
		}
	}
	originals, err := f.originals()
	if err != nil {
		return DCDecision{
			Decision:  Decision{Verdict: Untouched, Warn: true, Reason: unreadableRecord(err)},
			Operation: true,
		}
	}
	return DCDecision{
		Decision:  Decision{Verdict: Released, Reason: reason + "; marks of an earlier hold are removed and its own values given back"},
		Originals: originals,
	}
}

// hasLifecycleHook tells whether a rollout runs a pod before, between or after (library-go appsutil; deployer). Such a
// pod may mount the volumes that are still empty, and a failed one leaves the DeploymentConfig at 0 pods for good (D10).
func hasLifecycleHook(dc *ocpappsv1.DeploymentConfig) bool {
	if p := dc.Spec.Strategy.RecreateParams; p != nil && (p.Pre != nil || p.Mid != nil || p.Post != nil) {
		return true
	}
	p := dc.Spec.Strategy.RollingParams
	return p != nil && (p.Pre != nil || p.Post != nil)
}

// Apply carries the decision out on the item, in place. Untouched items are not changed.
func (d DCDecision) Apply(item *unstructured.Unstructured, owner Owner) error {
	switch d.Verdict {
	case Held:
		if err := setScale(item, 0, d.HoldPaused); err != nil {
			return err
		}
		owner.mark(item, contract.ReplicasModifiedLabel)
		for key, value := range d.Originals.Annotations() {
			setAnnotation(item, key, value)
		}
	case Released:
		if err := setScale(item, d.Originals.Replicas, d.Originals.Paused); err != nil {
			return err
		}
		removeKeys(item, HeldLabels, HeldAnnotations)
	default: // the item stays as it is
	}
	return nil
}

// setScale sets replicas and paused. An absent paused that is to be false stays absent: what is not set is not ours.
func setScale(item *unstructured.Unstructured, replicas int32, paused bool) error {
	if err := unstructured.SetNestedField(item.Object, int64(replicas), "spec", "replicas"); err != nil {
		return fmt.Errorf("set spec.replicas: %w", err)
	}
	if _, set, _ := unstructured.NestedFieldNoCopy(item.Object, "spec", "paused"); !set && !paused {
		return nil
	}
	if err := unstructured.SetNestedField(item.Object, paused, "spec", "paused"); err != nil {
		return fmt.Errorf("set spec.paused: %w", err)
	}
	return nil
}

// MapTriggers makes the image triggers of a DeploymentConfig follow the restore's namespace mapping, in place: a trigger
// that names a mapped namespace gets that namespace's target, whatever the mapping of the DeploymentConfig itself is
// (defect D13: the openshift-velero-plugin gives it the latter). It tells whether it changed anything.
//
// The names are read from the item as it stands in the backup, so that a wrong change by a plugin that ran before is
// put right too.
func MapTriggers(item, fromBackup *unstructured.Unstructured, mapping map[string]string) (bool, error) {
	if len(mapping) == 0 {
		return false, nil
	}
	before, triggers := triggersOf(fromBackup), triggersOf(item)
	if len(triggers) != len(before) {
		return false, nil
	}
	changed := false
	for i := range triggers {
		source, from := triggerFrom(before[i])["namespace"], triggerFrom(triggers[i])
		namespace, ok := source.(string)
		if !ok || namespace == "" || from == nil {
			continue
		}
		if mapped, ok := mapping[namespace]; ok {
			namespace = mapped
		}
		if from["namespace"] != namespace {
			from["namespace"] = namespace
			changed = true
		}
	}
	if !changed {
		return false, nil
	}
	return true, unstructured.SetNestedSlice(item.Object, triggers, "spec", "triggers")
}

// triggersOf returns a copy of the triggers. A DeploymentConfig that was written from a typed one has `triggers: null`.
func triggersOf(dc *unstructured.Unstructured) []any {
	field, _, _ := unstructured.NestedFieldCopy(dc.Object, "spec", "triggers")
	triggers, _ := field.([]any)
	return triggers
}

// triggerFrom returns what an image trigger refers to, not copied; nil for other triggers and for one that cannot be
// read, which is left as it is.
func triggerFrom(trigger any) map[string]any {
	fields, _ := trigger.(map[string]any)
	field, _, _ := unstructured.NestedFieldNoCopy(fields, "imageChangeParams", "from")
	from, _ := field.(map[string]any)
	return from
}

// TargetNamespace returns the namespace that a restore with this mapping (spec.namespaceMapping, nil: none) puts items of a
// source namespace into.
func TargetNamespace(mapping map[string]string, source string) string {
	if target, ok := mapping[source]; ok {
		return target
	}
	return source
}
