package openshift_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

// controllers is what the table is run against: an implementation of OpenShift's DeploymentConfig and deployer controllers
// and of the deployer process, by the seam to a node that the package openshift describes.
type controllers interface {
	// Start brings the controllers up in the cluster of cfg, for as long as the test runs.
	Start(t *testing.T, cfg *rest.Config)
}

// standin is the implementation of this module.
type standin struct{}

func (standin) Start(t *testing.T, cfg *rest.Config) {
	t.Helper()
	// Not t.Context(): that ends before the cleanups run, and so would the stand-in.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() { ended <- openshift.Run(ctx, cfg, openshift.Options{Log: log}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the stand-in did not end well: %v", err)
		}
	})
}

// TestMain lets more rows play at a time than there are processors: they wait, most of the time.
func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // or controller-runtime complains that nobody did
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("16") // a number
	}
	os.Exit(m.Run())
}

func TestStandInConforms(t *testing.T) { conform(t, standin{}, table(), ownTable()) }

const (
	// patience is how long a step may take to come true.
	patience = 45 * time.Second
	// silence is how long a state has to last to count as lasting. The controllers react within milliseconds.
	silence = 3 * time.Second
	// look is how often a step looks.
	look = 50 * time.Millisecond
)

// conform runs tables against one implementation, every row in a namespace of its own, side by side.
func conform(t *testing.T, impl controllers, tables ...map[string][]step) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	crds, err := openshift.CRDs()
	require.NoError(t, err)
	b := bed.ForTest(t, bed.Options{WithoutVelero: true, CRDs: crds})
	n, err := node.Run(t.Context(), b.RESTConfig(), node.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Stop()) })
	impl.Start(t, b.RESTConfig())

	// A group of its own: it ends before what it needs is torn down.
	t.Run("rows", func(t *testing.T) {
		for _, rows := range tables {
			for name, steps := range rows {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					s := &scene{T: t, api: b.Client(), ns: newNamespace(t, b.Client()), uids: map[string]types.UID{}}
					for i, step := range steps {
						s.number = i + 1
						step(s)
					}
				})
			}
		}
	})
}

// table is what OpenShift does with DeploymentConfigs. Its rows are those that a restore depends on and those that make the
// implementation the whole it has to be. The DeploymentConfig is called web, its ReplicationControllers are written as
// "name:replicas asked for:phase".
func table() map[string][]step {
	return map[string][]step{
		// --- versions, names, marks ---
		"the first version": {
			create(web(2)),
			until(rcs("web-1:2:Complete"), ready(2), deployer("web-1", corev1.PodSucceeded), version(1), observed(),
				condition("Available", "True", ""), condition("Progressing", "True", "NewReplicationControllerAvailable"),
				counters(2, 2, 2, 2, 0), cause("config change")),
			check(marksOfRC("web-1", 1), marksOfPods("web-1", 1), marksOfDeployer("web-1")),
		},
		"a new template makes a new version": {
			create(web(2)),
			until(rcs("web-1:2:Complete"), ready(2)),
			patch(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`),
			until(rcs("web-1:0:Complete", "web-2:2:Complete"), ready(2), version(2), observed()),
			check(marksOfRC("web-2", 2), marksOfPods("web-2", 2)),
		},
		"a rolling update leaves its mark on the old version and no count on the new": {
			create(web(2), rolling),
			until(rcs("web-1:2:Complete"), ready(2)),
			patch(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`),
			until(rcs("web-1:0:Complete", "web-2:2:Complete"), ready(2)),
			check(annotation("web-1", "kubectl.kubernetes.io/original-replicas", "2"), annotation("web-1", "openshift.io/deployment.replicas", "2"),
				annotation("web-2", "openshift.io/deployment.replicas", ""), annotation("web-2", "kubectl.kubernetes.io/update-source-id", none),
				annotation("web-2", "kubectl.kubernetes.io/desired-replicas", none)),
		},
		"what is not in the template makes no new version": {
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(1)),
			patch(`{"metadata":{"labels":{"l":"new"},"annotations":{"a":"b"}},"spec":{"minReadySeconds":1,"strategy":{"labels":{"x":"y"}}}}`),
			until(observed()),
			lasting(rcs("web-1:1:Complete"), version(1)),
		},
		"a ReplicationController edited by hand makes no new version": {
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(1)),
			patchRC("web-1", `{"spec":{"template":{"metadata":{"annotations":{"hand":"made"}}}}}`),
			lasting(rcs("web-1:1:Complete"), version(1)),
		},
		"a status at creation is dropped": {
			create(web(1), func(dc *ocpappsv1.DeploymentConfig) { dc.Status.LatestVersion = 7 }),
			until(rcs("web-1:1:Complete"), version(1)),
		},
		"latestVersion goes up by one and never down": {
			create(web(0)),
			until(rcs("web-1:0:Complete"), version(1), observed()),
			refused(`{"status":{"latestVersion":3}}`, "can only be incremented by 1"),
			refused(`{"status":{"latestVersion":0}}`, "cannot be decremented"),
		},
		"latestVersion counted up by hand makes a version": {
			create(web(1)),
			until(rcs("web-1:1:Complete")),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:0:Complete", "web-2:1:Complete"), ready(1)),
		},
		"old versions are deleted over the limit": {
			create(web(0), func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.RevisionHistoryLimit = ptr.To[int32](1) }),
			until(rcs("web-1:0:Complete")),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:0:Complete", "web-2:0:Complete")),
			patchStatus(`{"status":{"latestVersion":3}}`),
			until(rcs("web-2:0:Complete", "web-3:0:Complete")),
		},
		"the deployer pod carries the strategy's labels and annotations, its own win": {
			create(web(0), func(dc *ocpappsv1.DeploymentConfig) {
				dc.Spec.Strategy.Labels = map[string]string{"x": "y", ocpappsv1.DeployerPodForDeploymentLabel: "other"}
				dc.Spec.Strategy.Annotations = map[string]string{"x": "y"}
			}),
			until(rcs("web-1:0:Complete")),
			check(marksOfDeployer("web-1"), pod("web-1-deploy", func(p corev1.Pod) string {
				if p.Labels["x"] != "y" || p.Annotations["x"] != "y" {
					return fmt.Sprintf("labels %v, annotations %v", p.Labels, p.Annotations)
				}
				return ""
			})),
		},
		"without an image nothing is rolled out": {
			create(web(1), func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Template.Spec.Containers[0].Image = " " }),
			until(observed()),
			lasting(rcs(), version(0)),
		},

		// --- what a restore meets ---
		"a pod that comes back with its label deployment is deleted if the version is the same": {
			createPod("old-1", "web-1"),
			createPod("old-3", "web-3"),
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(2), noPod("old-1"), sameUID("old-3")),
			lasting(sameUID("old-3"), ready(2)),
		},
		"a pod without the label deployment is not touched": {
			createPod("detached", ""),
			create(web(0)),
			until(rcs("web-1:0:Complete"), deployer("web-1", corev1.PodSucceeded)),
			lasting(sameUID("detached"), rcs("web-1:0:Complete")),
		},
		"a held one that gets its replicas is scaled": {
			create(web(0)),
			until(rcs("web-1:0:Complete")),
			patch(`{"spec":{"replicas":2}}`),
			until(rcs("web-1:2:Complete"), ready(2), observed(), counters(2, 2, 2, 2, 0)),
		},
		"replicas and paused in one patch: no pods, for ever": {
			create(web(0)),
			until(rcs("web-1:0:Complete")),
			patch(`{"spec":{"replicas":2,"paused":true}}`),
			until(observed()),
			lasting(rcs("web-1:0:Complete"), ready(0)),
			patch(`{"spec":{"paused":false}}`),
			until(rcs("web-1:2:Complete"), ready(2)),
			patch(`{"spec":{"paused":true}}`),
			lasting(rcs("web-1:2:Complete"), ready(2)),
		},
		"a paused one is not rolled out, nor scaled": {
			create(web(2), paused),
			until(observed()),
			lasting(rcs(), version(0)),
			patch(`{"spec":{"paused":false}}`),
			until(rcs("web-1:2:Complete"), ready(2)),
			patch(`{"spec":{"paused":true}}`),
			patch(`{"spec":{"replicas":1,"template":{"metadata":{"annotations":{"a":"b"}}}}}`),
			until(observed()),
			lasting(rcs("web-1:2:Complete"), version(1), ready(2)),
		},
		"a paused one adopts the ReplicationController that comes back, which runs its pods": {
			create(web(2), paused),
			until(observed()),
			createRC("web-3", 3, 2, "Complete"),
			until(ownedByDC("web-3"), ready(2)),
			lasting(rcs("web-3:2:Complete"), version(0)),
		},
		"no triggers: nothing until latestVersion is counted up": {
			create(web(1), triggers()),
			until(observed()),
			lasting(rcs(), version(0)),
			patchStatus(`{"status":{"latestVersion":1}}`),
			until(rcs("web-1:1:Complete"), ready(1)),
			patch(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`),
			until(observed()),
			lasting(rcs("web-1:1:Complete"), version(1)),
		},
		"triggers left out mean a config change trigger": {
			create(web(0), func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Triggers = nil }),
			until(rcs("web-1:0:Complete")),
		},
		"test: no replicas but during the rollout": {
			create(web(2), hooks("post", []string{"sleep", "2"}, "Abort"), func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Test = true }),
			until(deployer("web-1", corev1.PodRunning)),
			until(ready(2)),
			until(rcs("web-1:0:Complete"), ready(0)),
			patch(`{"spec":{"replicas":3}}`),
			until(observed()),
			lasting(rcs("web-1:0:Complete")),
		},
		"hand-over: a finished version made by hand keeps its pods": {
			createPod("kept-a", ""),
			createPod("kept-b", ""),
			create(web(0)),
			until(rcs("web-1:0:Complete"), ready(2)),
			patch(`{"spec":{"replicas":2,"paused":true}}`),
			until(observed()),
			patchPod("kept-a", `{"metadata":{"labels":{"deployment":"web-2"}}}`),
			patchPod("kept-b", `{"metadata":{"labels":{"deployment":"web-2"}}}`),
			createRC("web-2", 2, 2, "Complete"),
			until(ownedByRC("kept-a", "web-2"), ownedByRC("kept-b", "web-2")),
			patch(`{"spec":{"paused":false}}`),
			until(version(2), observed(), counters(2, 2, 2, 2, 0), ownedByDC("web-2")),
			lasting(rcs("web-1:0:Complete", "web-2:2:Complete"), sameUID("kept-a"), sameUID("kept-b"), ready(2)),
			patch(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`),
			until(rcs("web-1:0:Complete", "web-2:0:Complete", "web-3:2:Complete"), ready(2), noPod("kept-a")),
		},
		"several versions made by hand are caught up with one by one": {
			create(web(1)),
			until(rcs("web-1:1:Complete")),
			createRC("web-4", 4, 1, "Complete"),
			until(version(4), rcs("web-1:0:Complete", "web-4:1:Complete"), ready(1)),
		},

		// --- image triggers ---
		"an image trigger that is not resolved defers the first version": {
			create(web(1), triggers("ConfigChange", "ImageChange")),
			until(observed()),
			lasting(rcs(), version(0)),
			patch(`{"spec":{"triggers":[{"type":"ConfigChange"},{"type":"ImageChange","imageChangeParams":{"automatic":true,"from":{"kind":"ImageStreamTag","name":"web:1"},"lastTriggeredImage":"registry/web@sha256:1"}}]}}`),
			until(rcs("web-1:1:Complete"), ready(1)),
		},
		"an image trigger that is not automatic does so as well": {
			create(web(1), triggers("ImageChange"), func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Triggers[0].ImageChangeParams.Automatic = false }),
			until(observed()),
			lasting(rcs(), version(0)),
		},
		"a new image with an image trigger makes a new version": {
			create(web(1), triggers("ImageChange")),
			until(observed()),
			patch(`{"spec":{"triggers":[{"type":"ImageChange","imageChangeParams":{"automatic":true,"from":{"kind":"ImageStreamTag","name":"web:1"},"lastTriggeredImage":"registry/web@sha256:1"}}]}}`),
			until(rcs("web-1:1:Complete")),
			patch(`{"spec":{"template":{"metadata":{"annotations":{"no":"image"}}}}}`),
			until(observed()),
			lasting(version(1)),
			patchJSON(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry/web@sha256:2"}]`),
			until(rcs("web-1:0:Complete", "web-2:1:Complete"), cause("image change")),
		},

		// --- failed and cancelled rollouts ---
		"a first rollout that fails while held: 0 pods whatever the replicas, until a new version": {
			create(web(0), hooks("pre", []string{"sh", "-c", "false"}, "Abort")),
			until(rcs("web-1:0:Failed"), deployer("web-1", corev1.PodFailed), podPhase("web-1-hook-pre", corev1.PodFailed),
				condition("Progressing", "False", "ProgressDeadlineExceeded")),
			patch(`{"spec":{"replicas":1}}`),
			until(observed()),
			lasting(rcs("web-1:0:Failed"), ready(0), version(1)),
			patchJSON(`[{"op":"replace","path":"/spec/strategy/recreateParams/pre/execNewPod/command","value":["true"]}]`),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:0:Failed", "web-2:1:Complete"), ready(1)),
		},
		"a later rollout that fails leaves the replicas to the last good version": {
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(1)),
			patch(`{"spec":{"strategy":{"recreateParams":{"pre":{"failurePolicy":"Abort","execNewPod":{"containerName":"web","command":["false"]}}}}}}`),
			until(observed()),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:1:Complete", "web-2:0:Failed"), ready(1)),
			patch(`{"spec":{"replicas":2}}`),
			until(rcs("web-1:2:Complete", "web-2:0:Failed"), ready(2)),
		},
		"pods that do not become ready in time fail the rollout and are taken away": {
			create(web(1), notReady, timeout(2)),
			until(rcs("web-1:1:Running")),
			until(rcs("web-1:0:Failed"), deployer("web-1", corev1.PodFailed)),
		},
		"a rollout cancelled by a user": {
			create(web(1), notReady),
			until(rcs("web-1:1:Running"), deployer("web-1", corev1.PodRunning)),
			patchRC("web-1", `{"metadata":{"annotations":{"openshift.io/deployment.cancelled":"true"}}}`),
			until(rcs("web-1:0:Failed"), noPod("web-1-deploy"), condition("Progressing", "False", "RolloutCancelled")),
			lasting(version(1)),
		},
		"a newer version cancels the rollout under way": {
			create(web(1), notReady),
			until(rcs("web-1:1:Running"), deployer("web-1", corev1.PodRunning)),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:0:Failed", "web-2:1:Running"), annotation("web-1", "openshift.io/deployment.status-reason", "newer deployment was found running"), noPod("web-1-deploy")),
		},
		"a changed template during a rollout cancels it too": {
			create(web(1), notReady),
			until(rcs("web-1:1:Running"), deployer("web-1", corev1.PodRunning)),
			patch(`{"spec":{"template":{"metadata":{"annotations":{"standin.test/ready":null,"a":"b"}}}}}`),
			until(rcs("web-1:0:Failed", "web-2:1:Complete"), ready(1)),
		},
		"a deployer pod deleted while it works fails the rollout": {
			create(web(1), notReady),
			until(rcs("web-1:1:Running"), deployer("web-1", corev1.PodRunning)),
			deletePod("web-1-deploy"),
			until(rcs("web-1:0:Failed"), noPod("web-1-deploy")),
		},
		"a pod that happens to have the deployer pod's name fails the rollout": {
			createPod("web-1-deploy", "web-9"),
			create(web(0)),
			until(rcs("web-1:0:Failed"), annotation("web-1", "openshift.io/deployment.status-reason", "unrelated pod with the same name as this deployment is already running")),
		},
		"a deployer pod that came back from elsewhere is taken for this version's": {
			createPod("web-1-deploy", "web-1", func(p *corev1.Pod) {
				p.Labels = map[string]string{ocpappsv1.DeployerPodForDeploymentLabel: "web-1"}
				p.Spec.RestartPolicy = corev1.RestartPolicyNever
				p.Spec.Containers[0].Command = []string{"true"}
			}),
			until(podPhase("web-1-deploy", corev1.PodSucceeded)),
			create(web(0)),
			// Its end is this rollout's end, though nothing was rolled out.
			until(rcs("web-1:0:Complete"), sameUID("web-1-deploy")),
		},
		"without deployer pods nothing is rolled out": {
			create(web(1), func(dc *ocpappsv1.DeploymentConfig) {
				dc.Annotations = map[string]string{"deploy.openshift.io/deployer-pod.ignore": "yes"}
			}),
			until(rcs("web-1:0:New")),
			lasting(rcs("web-1:0:New"), noPod("web-1-deploy")),
		},

		// --- scaling and rollouts ---
		"scaling waits until the rollout under way ends": {
			create(web(1), notReady),
			until(rcs("web-1:1:Running"), deployer("web-1", corev1.PodRunning)),
			patch(`{"spec":{"replicas":3}}`),
			lasting(rcs("web-1:1:Running"), notObserved()),
			patchPods(`{"metadata":{"annotations":{"standin.test/ready":null}}}`),
			until(rcs("web-1:3:Complete"), observed()),
		},
		"an RC scaled by hand is scaled back": {
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(1)),
			patchRC("web-1", `{"spec":{"replicas":3}}`),
			until(event("ReplicationControllerScaled")),
			until(rcs("web-1:1:Complete"), ready(1)),
		},
		"the scale subresource": {
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(1)),
			scale(2),
			until(rcs("web-1:2:Complete"), ready(2)),
		},

		// --- lifecycle hooks ---
		"hooks held at 0 run all the same": {
			create(web(0), hooks("pre", []string{"true"}, "Abort"), hooks("mid", []string{"true"}, "Abort"), hooks("post", []string{"true"}, "Abort")),
			until(rcs("web-1:0:Complete"), podPhase("web-1-hook-pre", corev1.PodSucceeded), podPhase("web-1-hook-mid", corev1.PodSucceeded), podPhase("web-1-hook-post", corev1.PodSucceeded)),
			check(marksOfHook("web-1", "pre"), marksOfHook("web-1", "mid"), marksOfHook("web-1", "post"), inOrder("web-1-hook-pre", "web-1-hook-mid", "web-1-hook-post")),
		},
		"hooks held at 0 and paused do not run": {
			create(web(0), paused, hooks("pre", []string{"true"}, "Abort")),
			until(observed()),
			lasting(rcs(), noPod("web-1-deploy"), noPod("web-1-hook-pre")),
			patch(`{"spec":{"replicas":1,"paused":false}}`),
			until(rcs("web-1:1:Complete"), ready(1), podPhase("web-1-hook-pre", corev1.PodSucceeded)),
		},
		"a hook that fails and may": {
			create(web(1), hooks("pre", []string{"false"}, "Ignore")),
			until(rcs("web-1:1:Complete"), ready(1), podPhase("web-1-hook-pre", corev1.PodFailed)),
		},
		"a hook that is retried restarts in its pod": {
			create(web(1), hooks("pre", []string{"false"}, "Retry")),
			until(pod("web-1-hook-pre", func(p corev1.Pod) string {
				if p.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 {
					return fmt.Sprintf("restart policy %s, %+v", p.Spec.RestartPolicy, p.Status.ContainerStatuses)
				}
				return ""
			})),
			check(rcs("web-1:0:Running")),
		},
		"a post hook that fails makes the rollout Failed and takes the pods away": {
			create(web(1), hooks("post", []string{"false"}, "Abort")),
			until(podPhase("web-1-hook-post", corev1.PodFailed)),
			until(rcs("web-1:0:Failed"), ready(0)),
		},
		"hooks of a Rolling strategy": {
			create(web(1), rolling, func(dc *ocpappsv1.DeploymentConfig) {
				dc.Spec.Strategy.RollingParams.Pre = hook([]string{"true"}, "Abort")
				dc.Spec.Strategy.RollingParams.Post = hook([]string{"true"}, "Abort")
			}),
			until(rcs("web-1:1:Complete"), podPhase("web-1-hook-pre", corev1.PodSucceeded), podPhase("web-1-hook-post", corev1.PodSucceeded)),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:0:Complete", "web-2:1:Complete"), podPhase("web-2-hook-pre", corev1.PodSucceeded), podPhase("web-2-hook-post", corev1.PodSucceeded)),
		},
		"a hook for a container that does not exist": {
			create(web(0), func(dc *ocpappsv1.DeploymentConfig) {
				h := hook([]string{"true"}, "Abort")
				h.ExecNewPod.ContainerName = "other"
				dc.Spec.Strategy.RecreateParams.Pre = h
			}),
			until(rcs("web-1:0:Failed"), noPod("web-1-hook-pre")),
		},
		"a hook pod of the same name that has ended is taken for this hook's": {
			createPod("web-1-hook-pre", "other", func(p *corev1.Pod) {
				p.Spec.RestartPolicy = corev1.RestartPolicyNever
				p.Spec.Containers[0].Command = []string{"true"}
			}),
			until(podPhase("web-1-hook-pre", corev1.PodSucceeded)),
			create(web(0), hooks("pre", []string{"false"}, "Abort")),
			until(rcs("web-1:0:Complete"), sameUID("web-1-hook-pre")),
		},

		// --- ownership ---
		"an orphan with the DeploymentConfig's label is adopted": {
			createRC("web-1", 1, 0, "Complete"),
			create(web(2)),
			until(ownedByDC("web-1"), version(1), rcs("web-1:2:Complete"), ready(2)),
		},
		"an RC whose label goes is let go, and stands in the way of another": {
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(1)),
			patchRC("web-1", `{"metadata":{"labels":{"openshift.io/deployment-config.name":"other"}}}`),
			until(owned("web-1", "")),
			until(condition("Progressing", "False", "ReplicationControllerCreateError"), event("DeploymentCreationFailed"),
				message("Progressing", `replicationcontrollers "web-1" already exists`)),
		},
		"an RC that belongs to another is not taken": {
			createRC("web-1", 1, 1, "Complete", ownedByAnother),
			create(web(1)),
			until(version(1), condition("Progressing", "False", "ReplicationControllerCreateError")),
			lasting(rcs("web-1:1:Complete")),
		},
		"with the DeploymentConfig go its RCs, their pods and its deployer pods": {
			create(web(1), hooks("pre", []string{"true"}, "Abort")),
			until(rcs("web-1:1:Complete"), ready(1)),
			deleteDC(),
			until(rcs(), ready(0), noPod("web-1-deploy"), noPod("web-1-hook-pre")),
		},
		"an RC inherits the labels of the DeploymentConfig as they are then": {
			create(web(0), func(dc *ocpappsv1.DeploymentConfig) { dc.Labels["held"] = "yes" }),
			until(rcs("web-1:0:Complete")),
			patch(`{"metadata":{"labels":{"held":null}}}`),
			lasting(func(s *state) string {
				if got := s.rc("web-1").Labels["held"]; got != "yes" {
					return fmt.Sprintf("label held is %q", got)
				}
				return ""
			}),
		},
	}
}
