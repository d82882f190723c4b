package openshift_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
)

// scene is where one row of the table plays: a namespace with the DeploymentConfig web.
type scene struct {
	*testing.T
	api    client.Client
	ns     string
	number int                  // of the step
	uids   map[string]types.UID // of pods that the row made, by name
}

// step does something or expects something.
type step func(*scene)

// state is what a fact is about: everything of the row's namespace, read at one moment.
type state struct {
	*scene
	dc     *ocpappsv1.DeploymentConfig // nil if there is none
	rcs    []corev1.ReplicationController
	pods   []corev1.Pod
	events []corev1.Event
}

// fact returns "" if it is so in a state, else what is so instead.
type fact func(*state) string

func newNamespace(t *testing.T, api client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "row-"}}
	require.NoError(t, api.Create(t.Context(), ns))
	return ns.Name
}

func (s *scene) read(ctx context.Context) (*state, error) {
	st := &state{scene: s, dc: &ocpappsv1.DeploymentConfig{}}
	if err := s.api.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "web"}, st.dc); apierrors.IsNotFound(err) {
		st.dc = nil
	} else if err != nil {
		return nil, err
	}
	var rcs corev1.ReplicationControllerList
	var pods corev1.PodList
	var events corev1.EventList
	for _, list := range []client.ObjectList{&rcs, &pods, &events} {
		if err := s.api.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			return nil, err
		}
	}
	st.rcs, st.pods, st.events = rcs.Items, pods.Items, events.Items
	return st, nil
}

func (s *state) rc(name string) corev1.ReplicationController {
	for _, rc := range s.rcs {
		if rc.Name == name {
			return rc
		}
	}
	return corev1.ReplicationController{}
}

func (s *state) pod(name string) *corev1.Pod {
	for i := range s.pods {
		if s.pods[i].Name == name {
			return &s.pods[i]
		}
	}
	return nil
}

// String shows a state to whoever has to find out why a row failed.
func (s *state) String() string {
	var b strings.Builder
	if s.dc != nil {
		status, _ := json.Marshal(s.dc.Status)
		fmt.Fprintf(&b, "DeploymentConfig: generation %d, status %s\n", s.dc.Generation, status)
	}
	for _, rc := range s.rcs {
		fmt.Fprintf(&b, "RC %s, %d pods\n", rcLine(rc), rc.Status.Replicas)
	}
	for _, pod := range s.pods {
		fmt.Fprintf(&b, "pod %s: %s, deleted %v", pod.Name, pod.Status.Phase, pod.DeletionTimestamp != nil)
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				fmt.Fprintf(&b, " (%s)", strings.TrimSpace(c.State.Terminated.Message))
			}
		}
		b.WriteString("\n")
	}
	for _, e := range s.events {
		if e.InvolvedObject.Kind == "DeploymentConfig" {
			fmt.Fprintf(&b, "event %s: %s\n", e.Reason, e.Message)
		}
	}
	return b.String()
}

func rcLine(rc corev1.ReplicationController) string {
	return fmt.Sprintf("%s:%d:%s", rc.Name, ptr.Deref(rc.Spec.Replicas, 1), rc.Annotations[ocpappsv1.DeploymentStatusAnnotation])
}

// missing returns what is not as the facts say.
func missing(st *state, facts []fact) string {
	var wrong []string
	for _, f := range facts {
		if is := f(st); is != "" {
			wrong = append(wrong, is)
		}
	}
	return strings.Join(wrong, "; ")
}

// until waits until all facts hold at the same time.
func until(facts ...fact) step {
	return func(s *scene) {
		s.Helper()
		var last *state
		err := wait.PollUntilContextTimeout(s.Context(), look, patience, true, func(ctx context.Context) (bool, error) {
			st, err := s.read(ctx)
			if err != nil {
				return false, err
			}
			last = st
			return missing(st, facts) == "", nil
		})
		if err != nil && last != nil {
			s.Fatalf("step %d: not in %s: %s\n%s", s.number, patience, missing(last, facts), last)
		}
		require.NoError(s, err)
	}
}

// lasting watches for a while that all facts hold.
func lasting(facts ...fact) step {
	return func(s *scene) {
		s.Helper()
		err := wait.PollUntilContextTimeout(s.Context(), look, silence, true, func(ctx context.Context) (bool, error) {
			st, err := s.read(ctx)
			if err != nil {
				return false, err
			}
			if wrong := missing(st, facts); wrong != "" {
				return false, fmt.Errorf("step %d: does not last: %s\n%s", s.number, wrong, st)
			}
			return false, nil
		})
		if !wait.Interrupted(err) {
			s.Fatal(err)
		}
	}
}

// check looks once.
func check(facts ...fact) step {
	return func(s *scene) {
		s.Helper()
		st, err := s.read(s.Context())
		require.NoError(s, err)
		if wrong := missing(st, facts); wrong != "" {
			s.Fatalf("step %d: %s\n%s", s.number, wrong, st)
		}
	}
}

// --- making things ---

// web returns the DeploymentConfig of the table: strategy Recreate, a config change trigger.
func web(replicas int32) *ocpappsv1.DeploymentConfig {
	return &ocpappsv1.DeploymentConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web", "team": "shop"}},
		Spec: ocpappsv1.DeploymentConfigSpec{
			Replicas: replicas,
			Selector: map[string]string{"app": "web"},
			Triggers: ocpappsv1.DeploymentTriggerPolicies{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}},
			Strategy: ocpappsv1.DeploymentStrategy{
				Type:           ocpappsv1.DeploymentStrategyTypeRecreate,
				RecreateParams: &ocpappsv1.RecreateDeploymentStrategyParams{TimeoutSeconds: ptr.To[int64](60)},
			},
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers:                    []corev1.Container{{Name: "web", Image: "registry/web"}},
				},
			},
		},
	}
}

type variation func(*ocpappsv1.DeploymentConfig)

func create(dc *ocpappsv1.DeploymentConfig, variations ...variation) step {
	return func(s *scene) {
		dc.Namespace = s.ns
		for _, vary := range variations {
			vary(dc)
		}
		require.NoError(s, s.api.Create(s.Context(), dc))
	}
}

func paused(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Paused = true }

func notReady(dc *ocpappsv1.DeploymentConfig) {
	dc.Spec.Template.Annotations = map[string]string{node.ReadyAnnotation: "false"}
}

func rolling(dc *ocpappsv1.DeploymentConfig) {
	quarter := intstr.FromString("25%")
	dc.Spec.Strategy = ocpappsv1.DeploymentStrategy{
		Type: ocpappsv1.DeploymentStrategyTypeRolling,
		RollingParams: &ocpappsv1.RollingDeploymentStrategyParams{
			TimeoutSeconds: ptr.To[int64](60), IntervalSeconds: ptr.To[int64](1), UpdatePeriodSeconds: ptr.To[int64](1),
			MaxSurge: &quarter, MaxUnavailable: &quarter,
		},
	}
}

func timeout(seconds int64) variation {
	return func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Strategy.RecreateParams.TimeoutSeconds = &seconds }
}

// triggers replaces the triggers; without any there are none.
func triggers(types ...ocpappsv1.DeploymentTriggerType) variation {
	return func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Triggers = ocpappsv1.DeploymentTriggerPolicies{}
		for _, of := range types {
			trigger := ocpappsv1.DeploymentTriggerPolicy{Type: of}
			if of == ocpappsv1.DeploymentTriggerOnImageChange {
				trigger.ImageChangeParams = &ocpappsv1.DeploymentTriggerImageChangeParams{
					Automatic: true, ContainerNames: []string{"web"}, From: corev1.ObjectReference{Kind: "ImageStreamTag", Name: "web:1"},
				}
			}
			dc.Spec.Triggers = append(dc.Spec.Triggers, trigger)
		}
	}
}

func hook(command []string, policy ocpappsv1.LifecycleHookFailurePolicy) *ocpappsv1.LifecycleHook {
	return &ocpappsv1.LifecycleHook{FailurePolicy: policy, ExecNewPod: &ocpappsv1.ExecNewPodHook{ContainerName: "web", Command: command}}
}

func hooks(when string, command []string, policy ocpappsv1.LifecycleHookFailurePolicy) variation {
	return func(dc *ocpappsv1.DeploymentConfig) {
		params := dc.Spec.Strategy.RecreateParams
		*map[string]**ocpappsv1.LifecycleHook{"pre": &params.Pre, "mid": &params.Mid, "post": &params.Post}[when] = hook(command, policy)
	}
}

// createPod makes a pod as Velero would restore it: without an owner, with its labels, all but `deployment` if rc is empty.
func createPod(name, rc string, variations ...func(*corev1.Pod)) step {
	return func(s *scene) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.ns, Name: name,
				Labels:      map[string]string{"app": "web", "deploymentconfig": "web"},
				Annotations: map[string]string{ocpappsv1.DeploymentAnnotation: rc, ocpappsv1.DeploymentConfigAnnotation: "web"},
			},
			Spec: *web(0).Spec.Template.Spec.DeepCopy(),
		}
		if rc != "" {
			pod.Labels["deployment"] = rc
		}
		for _, vary := range variations {
			vary(pod)
		}
		require.NoError(s, s.api.Create(s.Context(), pod))
		s.uids[name] = pod.UID
	}
}

// createRC makes a version by hand, without an owner.
func createRC(name string, version, replicas int32, phase string, variations ...func(*scene, *corev1.ReplicationController)) step {
	return func(s *scene) {
		st, err := s.read(s.Context())
		require.NoError(s, err)
		dc := st.dc
		if dc == nil {
			dc = web(0)
		}
		dc = dc.DeepCopy()
		dc.SetGroupVersionKind(ocpappsv1.GroupVersion.WithKind("DeploymentConfig"))
		encoded, err := json.Marshal(dc)
		require.NoError(s, err)
		template := dc.Spec.Template.DeepCopy()
		template.Labels["deploymentconfig"], template.Labels["deployment"] = "web", name
		rc := &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.ns, Name: name,
				Labels: map[string]string{"app": "web", ocpappsv1.DeploymentConfigAnnotation: "web"},
				Annotations: map[string]string{
					ocpappsv1.DeploymentConfigAnnotation:        "web",
					ocpappsv1.DeploymentVersionAnnotation:       strconv.Itoa(int(version)),
					ocpappsv1.DeploymentStatusAnnotation:        phase,
					ocpappsv1.DeploymentEncodedConfigAnnotation: string(encoded),
				},
			},
			Spec: corev1.ReplicationControllerSpec{
				Replicas: &replicas,
				Selector: map[string]string{"app": "web", "deploymentconfig": "web", "deployment": name},
				Template: template,
			},
		}
		for _, vary := range variations {
			vary(s, rc)
		}
		require.NoError(s, s.api.Create(s.Context(), rc))
	}
}

func ownedByAnother(s *scene, rc *corev1.ReplicationController) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "owner"}}
	require.NoError(s, s.api.Create(s.Context(), owner))
	rc.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
}

// --- changing things ---

func (s *scene) web() *ocpappsv1.DeploymentConfig {
	return &ocpappsv1.DeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "web"}}
}

func patch(merge string) step {
	return func(s *scene) {
		s.Helper()
		require.NoError(s, s.api.Patch(s.Context(), s.web(), client.RawPatch(types.MergePatchType, []byte(merge))))
	}
}

func patchJSON(operations string) step {
	return func(s *scene) {
		s.Helper()
		require.NoError(s, s.api.Patch(s.Context(), s.web(), client.RawPatch(types.JSONPatchType, []byte(operations))))
	}
}

func patchStatus(merge string) step {
	return func(s *scene) {
		s.Helper()
		require.NoError(s, s.api.Status().Patch(s.Context(), s.web(), client.RawPatch(types.MergePatchType, []byte(merge))))
	}
}

// refused expects the API server not to take a status, for that reason.
func refused(merge, reason string) step {
	return func(s *scene) {
		s.Helper()
		err := s.api.Status().Patch(s.Context(), s.web(), client.RawPatch(types.MergePatchType, []byte(merge)))
		require.ErrorContains(s, err, reason)
	}
}

func patchRC(name, merge string) step {
	return func(s *scene) {
		s.Helper()
		rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
		require.NoError(s, s.api.Patch(s.Context(), rc, client.RawPatch(types.MergePatchType, []byte(merge))))
	}
}

func patchPod(name, merge string) step {
	return func(s *scene) {
		s.Helper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
		require.NoError(s, s.api.Patch(s.Context(), pod, client.RawPatch(types.MergePatchType, []byte(merge))))
	}
}

// patchPods patches all pods of the DeploymentConfig.
func patchPods(merge string) step {
	return func(s *scene) {
		s.Helper()
		var list corev1.PodList
		require.NoError(s, s.api.List(s.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{"deploymentconfig": "web"}))
		for _, pod := range list.Items {
			patchPod(pod.Name, merge)(s)
		}
	}
}

func deletePod(name string) step {
	return func(s *scene) {
		s.Helper()
		require.NoError(s, s.api.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}))
	}
}

func deleteDC() step {
	return func(s *scene) {
		s.Helper()
		require.NoError(s, s.api.Delete(s.Context(), s.web(), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
}

func scale(replicas int32) step {
	return func(s *scene) {
		s.Helper()
		body := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		require.NoError(s, s.api.SubResource("scale").Update(s.Context(), s.web(), client.WithSubResourceBody(body)))
	}
}

// --- facts ---

// none is the value of an annotation that is not there.
const none = "<none>"

func same(what string, got, want any) string {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Sprintf("%s: want %v, got %v", what, want, got)
	}
	return ""
}

// rcs says which ReplicationControllers there are, as "name:replicas asked for:phase".
func rcs(want ...string) fact {
	return func(s *state) string {
		got := []string{}
		for _, rc := range s.rcs {
			got = append(got, rcLine(rc))
		}
		slices.Sort(got)
		return same("RCs", got, append([]string{}, want...))
	}
}

// ready says how many pods of the DeploymentConfig are ready and not being deleted.
func ready(want int) fact {
	return func(s *state) string {
		got := 0
		for _, pod := range s.pods {
			if pod.Labels["deploymentconfig"] == "web" && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				got++
			}
		}
		return same("ready pods", got, want)
	}
}

func dcFact(f func(*ocpappsv1.DeploymentConfig) string) fact {
	return func(s *state) string {
		if s.dc == nil {
			return "no DeploymentConfig"
		}
		return f(s.dc)
	}
}

func version(want int64) fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		return same("latestVersion", dc.Status.LatestVersion, want)
	})
}

func observed() fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		return same("observedGeneration", dc.Status.ObservedGeneration, dc.Generation)
	})
}

func notObserved() fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		if dc.Status.ObservedGeneration == dc.Generation {
			return "the generation is observed"
		}
		return ""
	})
}

func counters(replicas, updated, available, readyReplicas, unavailable int32) fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		st := dc.Status
		return same("replicas, updated, available, ready, unavailable",
			[]int32{st.Replicas, st.UpdatedReplicas, st.AvailableReplicas, st.ReadyReplicas, st.UnavailableReplicas},
			[]int32{replicas, updated, available, readyReplicas, unavailable})
	})
}

func condition(of, status, reason string) fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		for _, c := range dc.Status.Conditions {
			if string(c.Type) == of {
				return same("condition "+of, string(c.Status)+" "+c.Reason, status+" "+reason)
			}
		}
		return "no condition " + of
	})
}

func message(of, want string) fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		for _, c := range dc.Status.Conditions {
			if string(c.Type) == of {
				return same("message of "+of, c.Message, want)
			}
		}
		return "no condition " + of
	})
}

func cause(want string) fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		if dc.Status.Details == nil {
			return "no cause"
		}
		return same("cause", dc.Status.Details.Message, want)
	})
}

func pod(name string, f func(corev1.Pod) string) fact {
	return func(s *state) string {
		p := s.pod(name)
		if p == nil {
			return "no pod " + name
		}
		if wrong := f(*p); wrong != "" {
			return "pod " + name + ": " + wrong
		}
		return ""
	}
}

func podPhase(name string, want corev1.PodPhase) fact {
	return pod(name, func(p corev1.Pod) string { return same("phase", p.Status.Phase, want) })
}

func deployer(rc string, want corev1.PodPhase) fact { return podPhase(rc+"-deploy", want) }

func noPod(name string) fact {
	return func(s *state) string {
		if s.pod(name) != nil {
			return "pod " + name + " is there"
		}
		return ""
	}
}

// sameUID says that a pod which the row made is still that pod, and not about to go.
func sameUID(name string) fact {
	return func(s *state) string {
		return pod(name, func(p corev1.Pod) string {
			if p.DeletionTimestamp != nil {
				return "is being deleted"
			}
			return same("UID", p.UID, s.uids[name])
		})(s)
	}
}

func ownedByRC(name, rc string) fact {
	return pod(name, func(p corev1.Pod) string {
		owner := metav1.GetControllerOf(&p)
		if owner == nil {
			return "no owner"
		}
		return same("owner", owner.Name, rc)
	})
}

// owned says which DeploymentConfig controls an RC; "" for none.
func owned(rc, want string) fact {
	return func(s *state) string {
		got := s.rc(rc)
		owner := ""
		if ref := metav1.GetControllerOf(&got); ref != nil {
			owner = ref.Name
		}
		return same("owner of "+rc, owner, want)
	}
}

func ownedByDC(rc string) fact { return owned(rc, "web") }

func annotation(rc, key, want string) fact {
	return func(s *state) string {
		got, ok := s.rc(rc).Annotations[key]
		if !ok {
			got = none
		}
		return same(rc+": "+key, got, want)
	}
}

func event(reason string) fact {
	return func(s *state) string {
		for _, e := range s.events {
			if e.Reason == reason && e.InvolvedObject.Kind == "DeploymentConfig" && e.InvolvedObject.Name == "web" {
				return ""
			}
		}
		return "no event " + reason
	}
}

// marksOfRC says that an RC has the names, labels, annotations, selector and owner of a version of the DeploymentConfig.
func marksOfRC(name string, version int) fact {
	return func(s *state) string {
		rc := s.rc(name)
		v := strconv.Itoa(version)
		labels := map[string]string{"openshift.io/deployment-config.name": "web"}
		maps.Copy(labels, s.dc.Labels)
		podLabels := map[string]string{"app": "web", "deploymentconfig": "web", "deployment": name}
		podAnnotations := map[string]string{
			"openshift.io/deployment.name": name, "openshift.io/deployment-config.name": "web", "openshift.io/deployment-config.latest-version": v,
		}
		maps.Copy(podAnnotations, s.dc.Spec.Template.Annotations)
		annotations := map[string]string{}
		var encoded ocpappsv1.DeploymentConfig
		for k, value := range rc.Annotations {
			switch k {
			case "openshift.io/encoded-deployment-config":
				if err := json.Unmarshal([]byte(value), &encoded); err != nil {
					return err.Error()
				}
			case "openshift.io/deployer-pod.created-at", "openshift.io/deployer-pod.completed-at":
				annotations[k] = "(a time)"
			case "openshift.io/deployer-pod.started-at":
				// There only if the deployer controller looked again between the pod's start and the write of its name.
			default:
				annotations[k] = value
			}
		}
		return join(
			same("labels", rc.Labels, labels),
			same("selector", rc.Spec.Selector, podLabels),
			same("template labels", rc.Spec.Template.Labels, podLabels),
			same("template annotations", rc.Spec.Template.Annotations, podAnnotations),
			same("annotations", annotations, map[string]string{
				"openshift.io/deployment-config.name":           "web",
				"openshift.io/deployment-config.latest-version": v,
				"openshift.io/deployment.phase":                 "Complete",
				"openshift.io/deployment.replicas":              strconv.Itoa(int(s.dc.Spec.Replicas)),
				"openshift.io/deployment.status-reason":         "config change",
				"openshift.io/deployer-pod.name":                name + "-deploy",
				"openshift.io/deployer-pod.created-at":          "(a time)",
				"openshift.io/deployer-pod.completed-at":        "(a time)",
			}),
			same("encoded kind", encoded.APIVersion+" "+encoded.Kind, "apps.openshift.io/v1 DeploymentConfig"),
			same("encoded version", encoded.Status.LatestVersion, int64(version)),
			same("encoded template", encoded.Spec.Template, s.dc.Spec.Template),
			same("owners", rc.OwnerReferences, []metav1.OwnerReference{*metav1.NewControllerRef(s.dc, ocpappsv1.GroupVersion.WithKind("DeploymentConfig"))}),
		)
	}
}

func marksOfPods(rc string, version int) fact {
	return func(s *state) string {
		found := 0
		var wrong []string
		for _, p := range s.pods {
			if p.Labels["deployment"] != rc {
				continue
			}
			found++
			wrong = append(wrong,
				same("labels of "+p.Name, p.Labels, map[string]string{"app": "web", "deploymentconfig": "web", "deployment": rc}),
				same("deployment.name of "+p.Name, p.Annotations["openshift.io/deployment.name"], rc),
				same("deployment-config.name of "+p.Name, p.Annotations["openshift.io/deployment-config.name"], "web"),
				same("latest-version of "+p.Name, p.Annotations["openshift.io/deployment-config.latest-version"], strconv.Itoa(version)))
		}
		if found == 0 {
			wrong = append(wrong, "no pods of "+rc)
		}
		return join(wrong...)
	}
}

func marksOfDeployer(rc string) fact {
	return func(s *state) string {
		return pod(rc+"-deploy", func(p corev1.Pod) string {
			return join(
				same("label", p.Labels["openshift.io/deployer-pod-for.name"], rc),
				same("deployment.name", p.Annotations["openshift.io/deployment.name"], rc),
				same("deployment-config.name", p.Annotations["openshift.io/deployment-config.name"], "web"),
				same("container", p.Spec.Containers[0].Name, "deployment"),
				same("environment", p.Spec.Containers[0].Env, []corev1.EnvVar{
					{Name: "OPENSHIFT_DEPLOYMENT_NAME", Value: rc}, {Name: "OPENSHIFT_DEPLOYMENT_NAMESPACE", Value: s.ns},
				}),
				same("service account", p.Spec.ServiceAccountName, "deployer"),
				same("restart policy", p.Spec.RestartPolicy, corev1.RestartPolicyNever),
				same("deadline", ptr.Deref(p.Spec.ActiveDeadlineSeconds, 0), int64(21600)),
				same("owners", p.OwnerReferences, []metav1.OwnerReference{{APIVersion: "v1", Kind: "ReplicationController", Name: rc, UID: s.rc(rc).UID}}),
			)
		})(s)
	}
}

func marksOfHook(rc, when string) fact {
	return func(s *state) string {
		return pod(rc+"-hook-"+when, func(p corev1.Pod) string {
			return join(
				same("labels", p.Labels, map[string]string{"openshift.io/deployer-pod-for.name": rc, "openshift.io/deployer-pod.type": "hook-" + when}),
				same("deployment.name", p.Annotations["openshift.io/deployment.name"], rc),
				same("container", p.Spec.Containers[0].Name, "lifecycle"),
				same("image", p.Spec.Containers[0].Image, "registry/web"),
			)
		})(s)
	}
}

// inOrder says that pods were made one after another.
func inOrder(names ...string) fact {
	return func(s *state) string {
		var last time.Time
		for _, name := range names {
			p := s.pod(name)
			if p == nil {
				return "no pod " + name
			}
			if p.CreationTimestamp.Time.Before(last) {
				return name + " came too early"
			}
			last = p.CreationTimestamp.Time
		}
		return ""
	}
}

func join(wrong ...string) string {
	return strings.Join(slices.DeleteFunc(wrong, func(s string) bool { return s == "" }), "; ")
}
