package hooks_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
)

// The hooks of the tables. Those of the spec apply to every pod unless the case says otherwise.
func execIn(container string) velerov1.RestoreResourceHook {
	return velerov1.RestoreResourceHook{Exec: &velerov1.ExecRestoreHook{Container: container, Command: []string{"true"}}}
}

func initWith(names ...string) velerov1.RestoreResourceHook {
	hook := &velerov1.InitRestoreHook{}
	for _, name := range names {
		hook.InitContainers = append(hook.InitContainers, runtime.RawExtension{
			Raw: []byte(`{"name":"` + name + `","image":"example.com/init:1","command":["true"]}`),
		})
	}
	return velerov1.RestoreResourceHook{Init: hook}
}

func resource(name string, postHooks ...velerov1.RestoreResourceHook) velerov1.RestoreResourceHookSpec {
	return velerov1.RestoreResourceHookSpec{Name: name, PostHooks: postHooks}
}

func specOf(resources ...velerov1.RestoreResourceHookSpec) *velerov1.RestoreHooks {
	return &velerov1.RestoreHooks{Resources: resources}
}

func selecting(spec velerov1.RestoreResourceHookSpec, key, value string) velerov1.RestoreResourceHookSpec {
	spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	return spec
}

func inNamespaces(spec velerov1.RestoreResourceHookSpec, included, excluded []string) velerov1.RestoreResourceHookSpec {
	spec.IncludedNamespaces, spec.ExcludedNamespaces = included, excluded
	return spec
}

// pod is a detached pod of the DeploymentConfig web, restored from namespace shop into shop-dr.
func pod(edit ...func(*hooks.Pod)) hooks.Pod {
	p := hooks.Pod{
		TargetNamespace:     "shop-dr",
		LabelsBeforePlugins: map[string]string{"deployment": "web-3", "deploymentconfig": "web"},
		LabelsWhenCreated: map[string]string{
			"deploymentconfig": "web", "oadp.openshift.io/disconnected-from-dc": "r", "velero.io/restore-name": "r",
		},
		Containers: []corev1.Container{{Name: "web"}, {Name: "sidecar"}},
	}
	for _, e := range edit {
		e(&p)
	}
	return p
}

func annotated(annotations map[string]string) hooks.Pod {
	return pod(func(p *hooks.Pod) { p.Annotations = annotations })
}

func TestFind(t *testing.T) {
	t.Parallel()
	fromAnnotation := []string{"<from-annotation>"}
	tests := map[string]struct {
		spec *velerov1.RestoreHooks
		pod  hooks.Pod
		want hooks.Applied
	}{
		"no spec and no annotations is no hook":       {pod: pod()},
		"a spec without resources is no hook":         {spec: specOf(), pod: pod()},
		"a resource without post hooks is no hook":    {spec: specOf(resource("empty")), pod: pod()},
		"a post hook of neither kind is no hook":      {spec: specOf(resource("neither", velerov1.RestoreResourceHook{})), pod: pod()},
		"an init hook without containers is no hook":  {spec: specOf(resource("none", initWith())), pod: pod()},
		"an exec hook of the spec applies":            {spec: specOf(resource("warm", execIn(""))), pod: pod(), want: hooks.Applied{Exec: []string{"warm"}}},
		"an init hook of the spec applies":            {spec: specOf(resource("fill", initWith("a"))), pod: pod(), want: hooks.Applied{Init: []string{"fill"}}},
		"an init hook of two containers is one hook":  {spec: specOf(resource("fill", initWith("a", "b"))), pod: pod(), want: hooks.Applied{Init: []string{"fill"}}},
		"a hook of both kinds counts as each of them": {spec: specOf(resource("both", initWith("a"), execIn(""))), pod: pod(), want: hooks.Applied{Init: []string{"both"}, Exec: []string{"both"}}},
		"hooks of several resources keep their order": {
			spec: specOf(resource("first", execIn("")), resource("second", execIn("web")), resource("third", execIn("sidecar"))),
			pod:  pod(), want: hooks.Applied{Exec: []string{"first", "second", "third"}},
		},

		// Annotations win, each kind for itself (GroupRestoreExecHooks, HandleRestoreHooks).
		"D1: an annotation hook applies without any hook in the spec": {
			pod: annotated(map[string]string{"post.hook.restore.velero.io/command": "true"}), want: hooks.Applied{Exec: fromAnnotation},
		},
		"an exec annotation wins over exec hooks of the spec": {
			spec: specOf(resource("warm", execIn(""))),
			pod:  annotated(map[string]string{"post.hook.restore.velero.io/command": `["true"]`}), want: hooks.Applied{Exec: fromAnnotation},
		},
		"an exec annotation leaves init hooks of the spec": {
			spec: specOf(resource("fill", initWith("a"), execIn(""))),
			pod:  annotated(map[string]string{"post.hook.restore.velero.io/command": "true"}),
			want: hooks.Applied{Init: []string{"fill"}, Exec: fromAnnotation},
		},
		"an init annotation wins over init hooks of the spec and leaves exec hooks": {
			spec: specOf(resource("fill", initWith("a"), execIn(""))),
			pod:  annotated(map[string]string{"init.hook.restore.velero.io/container-image": "example.com/init:1"}),
			want: hooks.Applied{Init: fromAnnotation, Exec: []string{"fill"}},
		},
		"an init annotation needs no command": {
			pod: annotated(map[string]string{"init.hook.restore.velero.io/container-image": "example.com/init:1"}), want: hooks.Applied{Init: fromAnnotation},
		},
		"an init command without an image is no hook": {
			pod: annotated(map[string]string{"init.hook.restore.velero.io/command": "true"}),
		},
		"D2: an empty command is no hook": {
			pod: annotated(map[string]string{"post.hook.restore.velero.io/command": ""}),
		},
		"D2: an empty command does not win over the spec": {
			spec: specOf(resource("warm", execIn(""))),
			pod:  annotated(map[string]string{"post.hook.restore.velero.io/command": "", "init.hook.restore.velero.io/container-image": ""}),
			want: hooks.Applied{Exec: []string{"warm"}},
		},
		"a container annotation alone is no hook": {
			pod: annotated(map[string]string{"post.hook.restore.velero.io/container": "web"}),
		},
		"a backup hook is no restore hook": {
			pod: annotated(map[string]string{"post.hook.backup.velero.io/command": "true", "pre.hook.backup.velero.io/command": "true"}),
		},

		// Containers (GroupRestoreExecHooks, HandleHooks).
		"an exec annotation for another container of the pod applies": {
			pod:  annotated(map[string]string{"post.hook.restore.velero.io/command": "true", "post.hook.restore.velero.io/container": "sidecar"}),
			want: hooks.Applied{Exec: fromAnnotation},
		},
		"an exec annotation for a container that is not there is discarded, and the spec's hooks with it": {
			spec: specOf(resource("warm", execIn(""))),
			pod:  annotated(map[string]string{"post.hook.restore.velero.io/command": "true", "post.hook.restore.velero.io/container": "gone"}),
		},
		"an exec hook for a container that is not there is discarded": {
			spec: specOf(resource("warm", execIn("gone"), execIn("web"))), pod: pod(), want: hooks.Applied{Exec: []string{"warm"}},
		},
		"a pod without containers has no exec hook": {
			spec: specOf(resource("warm", execIn(""))), pod: pod(func(p *hooks.Pod) { p.Containers = nil }),
		},

		// Namespaces: the target's (velero issue 4720).
		"D4: the target namespace is matched": {
			spec: specOf(inNamespaces(resource("warm", execIn(""), initWith("a")), []string{"shop-dr"}, nil)), pod: pod(),
			want: hooks.Applied{Exec: []string{"warm"}, Init: []string{"warm"}},
		},
		"D4: the source namespace is not matched": {
			spec: specOf(inNamespaces(resource("warm", execIn(""), initWith("a")), []string{"shop"}, nil)), pod: pod(),
		},
		"an excluded target namespace has no hooks": {
			spec: specOf(inNamespaces(resource("warm", execIn("")), nil, []string{"shop-dr"})), pod: pod(),
		},
		"exclusion of the source namespace says nothing": {
			spec: specOf(inNamespaces(resource("warm", execIn("")), nil, []string{"shop"})), pod: pod(),
			want: hooks.Applied{Exec: []string{"warm"}},
		},
		"exclusion wins over inclusion": {
			spec: specOf(inNamespaces(resource("warm", execIn("")), []string{"shop-dr"}, []string{"shop-dr"})), pod: pod(),
		},
		"a glob of namespaces is matched": {
			spec: specOf(inNamespaces(resource("yes", execIn("")), []string{"shop-*"}, nil), inNamespaces(resource("no", execIn("")), []string{"*-test"}, nil)), pod: pod(),
			want: hooks.Applied{Exec: []string{"yes"}},
		},
		"a glob of excluded namespaces is matched": {
			spec: specOf(inNamespaces(resource("warm", execIn("")), []string{"*"}, []string{"*-dr"})), pod: pod(),
		},

		// Labels: those of the created pod for exec hooks, those before plugins for init hooks.
		"D3: an exec hook that selects on deploymentconfig applies to a detached pod": {
			spec: specOf(selecting(resource("warm", execIn("")), "deploymentconfig", "web")), pod: pod(),
			want: hooks.Applied{Exec: []string{"warm"}},
		},
		"D3: an exec hook that selects on deployment does not apply to a detached pod": {
			spec: specOf(selecting(resource("warm", execIn("")), "deployment", "web-3")), pod: pod(),
		},
		"an init hook that selects on deployment applies: Velero adds it before plugins": {
			spec: specOf(selecting(resource("fill", initWith("a")), "deployment", "web-3")), pod: pod(),
			want: hooks.Applied{Init: []string{"fill"}},
		},
		"an exec hook that selects on Velero's own label applies: it is there when the pod is created": {
			spec: specOf(selecting(resource("warm", execIn(""), initWith("a")), "velero.io/restore-name", "r")), pod: pod(),
			want: hooks.Applied{Exec: []string{"warm"}},
		},
		"a selector by expression is evaluated": {
			spec: specOf(velerov1.RestoreResourceHookSpec{
				Name: "warm", PostHooks: []velerov1.RestoreResourceHook{execIn("")},
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "deploymentconfig", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}},
			}), pod: pod(),
		},
		"an empty selector selects every pod": {
			spec: specOf(velerov1.RestoreResourceHookSpec{Name: "warm", PostHooks: []velerov1.RestoreResourceHook{execIn("")}, LabelSelector: &metav1.LabelSelector{}}),
			pod:  pod(), want: hooks.Applied{Exec: []string{"warm"}},
		},
		"a pod without labels is not selected by a label": {
			spec: specOf(selecting(resource("warm", execIn(""), initWith("a")), "app", "web")),
			pod:  pod(func(p *hooks.Pod) { p.LabelsBeforePlugins, p.LabelsWhenCreated = nil, nil }),
		},

		// Resources are never looked at (GetRestoreHooksFromSpec).
		"D5: included resources other than pods are ignored": {
			spec: specOf(velerov1.RestoreResourceHookSpec{Name: "warm", IncludedResources: []string{"deployments"}, PostHooks: []velerov1.RestoreResourceHook{execIn("")}}),
			pod:  pod(), want: hooks.Applied{Exec: []string{"warm"}},
		},
		"D5: excluded pods are ignored": {
			spec: specOf(velerov1.RestoreResourceHookSpec{Name: "warm", ExcludedResources: []string{"pods"}, PostHooks: []velerov1.RestoreResourceHook{execIn("")}}),
			pod:  pod(), want: hooks.Applied{Exec: []string{"warm"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			specBefore, labelsBefore, annotationsBefore := tc.spec.DeepCopy(), maps.Clone(tc.pod.LabelsWhenCreated), maps.Clone(tc.pod.Annotations)
			got, err := hooks.Find(tc.spec, tc.pod)
			require.NoError(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("hooks (-want +got):\n%s", diff)
			}
			require.Equal(t, len(tc.want.Init)+len(tc.want.Exec) > 0, got.Any())
			require.Empty(t, cmp.Diff(specBefore, tc.spec), "the spec was changed")
			require.Empty(t, cmp.Diff(labelsBefore, tc.pod.LabelsWhenCreated), "the labels were changed")
			require.Empty(t, cmp.Diff(annotationsBefore, tc.pod.Annotations), "the annotations were changed")
		})
	}
}

func TestFindFailsOnASelectorThatVeleroCannotReadEither(t *testing.T) {
	t.Parallel()
	spec := specOf(resource("good", execIn("")), velerov1.RestoreResourceHookSpec{
		Name: "bad", PostHooks: []velerov1.RestoreResourceHook{execIn("")},
		LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Contains", Values: []string{"web"}}}},
	})
	got, err := hooks.Find(spec, pod())
	require.ErrorContains(t, err, `label selector of restore hook "bad"`)
	require.False(t, got.Any(), "an error comes without hooks")
}
