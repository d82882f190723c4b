package openshift_test

import (
	"context"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

// ownTable is what the stand-in does in place of OpenShift's API server, and of what it cannot run.
func ownTable() map[string][]step {
	return map[string][]step{
		"a new one forgets the images that have triggered it": {
			create(web(1), triggers("ConfigChange", "ImageChange"), func(dc *ocpappsv1.DeploymentConfig) {
				dc.Spec.Triggers[1].ImageChangeParams.LastTriggeredImage = "registry/web@sha256:elsewhere"
			}),
			until(observed(), triggeredImage(1, "")),
			lasting(rcs(), version(0)),
			patchJSON(`[{"op":"add","path":"/spec/triggers/1/imageChangeParams/lastTriggeredImage","value":"registry/web@sha256:here"}]`),
			until(rcs("web-1:1:Complete"), triggeredImage(1, "registry/web@sha256:here")),
		},
		"empty lists and maps in the template are no change": {
			create(web(1)),
			until(rcs("web-1:1:Complete"), ready(1)),
			patchJSON(`[{"op":"add","path":"/spec/template/spec/volumes","value":[]},{"op":"add","path":"/spec/template/metadata/annotations","value":{}}]`),
			until(observed()),
			lasting(rcs("web-1:1:Complete"), version(1)),
		},
		"a Rolling strategy without parameters": {
			create(web(2), func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Strategy = ocpappsv1.DeploymentStrategy{} }),
			until(rcs("web-1:2:Complete"), ready(2)),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:0:Complete", "web-2:2:Complete"), ready(2)),
		},
		"a Recreate strategy without parameters": {
			create(web(1), func(dc *ocpappsv1.DeploymentConfig) { dc.Spec.Strategy.RecreateParams = nil }),
			until(rcs("web-1:1:Complete"), ready(1)),
			patchStatus(`{"status":{"latestVersion":2}}`),
			until(rcs("web-1:0:Complete", "web-2:1:Complete"), ready(1)),
		},
		"a Custom strategy is taken to do nothing": {
			create(web(1), custom("true")),
			until(rcs("web-1:1:Complete"), ready(1)),
		},
		"a Custom strategy whose command fails": {
			create(web(1), custom("exit 3")),
			until(rcs("web-1:0:Failed"), deployer("web-1", corev1.PodFailed)),
		},
		"a hook that tags images": {
			create(web(0), func(dc *ocpappsv1.DeploymentConfig) {
				dc.Spec.Strategy.RecreateParams.Post = &ocpappsv1.LifecycleHook{
					FailurePolicy: ocpappsv1.LifecycleHookFailurePolicyAbort,
					TagImages:     []ocpappsv1.TagImageHook{{ContainerName: "web", To: corev1.ObjectReference{Kind: "ImageStreamTag", Name: "web:good"}}},
				}
			}),
			until(rcs("web-1:0:Complete")),
		},
		"a deployer pod past its deadline": {
			create(web(1), notReady, func(dc *ocpappsv1.DeploymentConfig) {
				seconds := int64(2)
				dc.Spec.Strategy.ActiveDeadlineSeconds = &seconds
			}),
			until(rcs("web-1:0:Failed"), pod("web-1-deploy", func(p corev1.Pod) string { return same("reason", p.Status.Reason, "DeadlineExceeded") })),
		},
	}
}

func custom(script string) variation {
	return func(dc *ocpappsv1.DeploymentConfig) {
		dc.Spec.Strategy = ocpappsv1.DeploymentStrategy{
			Type:         ocpappsv1.DeploymentStrategyTypeCustom,
			CustomParams: &ocpappsv1.CustomDeploymentStrategyParams{Image: "registry/deployer", Command: []string{"sh", "-c", script}},
		}
	}
}

func triggeredImage(i int, want string) fact {
	return dcFact(func(dc *ocpappsv1.DeploymentConfig) string {
		return same("lastTriggeredImage", dc.Spec.Triggers[i].ImageChangeParams.LastTriggeredImage, want)
	})
}

// TestRun is about Run itself: what it says where it cannot work, that it can be stopped and started again, and that it can
// do without a node.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	b := bed.ForTest(t, bed.Options{WithoutVelero: true})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	err := openshift.Run(ctx, b.RESTConfig(), openshift.Options{})
	require.ErrorContains(t, err, "the cluster has no DeploymentConfig API, create the CRDs of this package first")

	crds, err := openshift.CRDs()
	require.NoError(t, err)
	for _, crd := range crds {
		require.NoError(t, b.Client().Create(ctx, crd))
	}
	s := &scene{T: t, api: b.Client(), ns: newNamespace(t, b.Client()), uids: map[string]types.UID{}}
	require.Eventually(t, func() bool {
		dc := web(0)
		dc.Namespace = s.ns
		return b.Client().Create(ctx, dc) == nil
	}, patience, look, "the CRD is not served")

	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- openshift.Run(ctx, b.RESTConfig(), openshift.Options{WithoutNode: true, DeployerPoll: look})
		}()
		return func() {
			cancel()
			require.NoError(t, <-ended)
		}
	}
	stop := start()
	until(rcs("web-1:0:Complete"), deployer("web-1", corev1.PodSucceeded), observed())(s)
	// No node: the rollout to 1 replica cannot end, and Run is stopped in the middle of it.
	patch(`{"spec":{"replicas":1}}`)(s)
	until(rcs("web-1:1:Complete"))(s)
	patchStatus(`{"status":{"latestVersion":2}}`)(s)
	until(rcs("web-1:0:Complete", "web-2:1:Running"))(s)
	stop()
	check(rcs("web-1:0:Complete", "web-2:1:Running"), deployer("web-2", corev1.PodRunning))(s)

	stop = start()
	defer stop()
	patch(`{"spec":{"replicas":0}}`)(s)
	patchRC("web-2", `{"metadata":{"annotations":{"openshift.io/deployment.cancelled":"true"}}}`)(s)
	until(rcs("web-1:0:Complete", "web-2:0:Failed"), noPod("web-2-deploy"))(s)
	patchStatus(`{"status":{"latestVersion":3}}`)(s)
	until(rcs("web-1:0:Complete", "web-2:0:Failed", "web-3:0:Complete"))(s)
}
