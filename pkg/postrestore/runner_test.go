package postrestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// heldWeb is a held DeploymentConfig as OpenShift leaves it: rolled out to 0 replicas while held.
func heldWeb(replicas int32, paused bool) *testkit.DC {
	return testkit.MakeDC("shop", "web").Held(testkit.OwnerNamed("r"), replicas, paused).LatestVersion(1)
}

func heldRC(dc string) *testkit.RC { return testkit.MakeRC("shop", dc, 1).Replicas(0).Desired(0) }

// readyPod is a detached pod whose data is in.
func readyPod(name string) *testkit.Pod { return detached(name).InitializedTrue() }

func TestPassBringsADeploymentConfigBack(t *testing.T) {
	t.Parallel()
	hooked := func() *testkit.DC {
		return testkit.MakeDC("shop", "web").PreHook().Held(testkit.OwnerNamed("r"), 2, false).Paused()
	}
	scale, status := "patch DeploymentConfig shop/web", "patch/status DeploymentConfig shop/web"
	tests := map[string]struct {
		objects  []client.Object
		replicas int32
		paused   bool
		// writes are what is written, in order; events apart.
		writes []string
		events []string
		says   string
	}{
		"with two detached pods": {
			objects:  []client.Object{heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj(), readyPod("b").Obj()},
			replicas: 2, writes: []string{"delete Pod shop/a", "delete Pod shop/b", scale, scale}, says: "back at 2 replicas",
		},
		"D7: originally paused": {
			objects:  []client.Object{heldWeb(2, true).Obj(), heldRC("web").Obj(), readyPod("a").Obj()},
			replicas: 2, paused: true, writes: []string{"delete Pod shop/a", scale, scale}, says: "back at 2 replicas, paused",
		},
		"D7: scaled and paused in one patch by the OADP script": {
			objects:  []client.Object{heldWeb(2, true).Replicas(2).Paused().Obj(), heldRC("web").Obj()},
			replicas: 2, paused: true, writes: []string{scale, scale},
		},
		"D8: without triggers": {
			objects:  []client.Object{heldWeb(2, false).NoTriggers().LatestVersion(0).Obj(), readyPod("a").Obj()},
			replicas: 2, writes: []string{"delete Pod shop/a", scale, status, scale},
		},
		"D10: held paused for its lifecycle hooks": {
			objects:  []client.Object{hooked().Obj(), readyPod("a").Obj()},
			replicas: 2, writes: []string{"delete Pod shop/a", scale, scale},
		},
		"the rollout failed while held": {
			objects:  []client.Object{heldWeb(2, false).Obj(), heldRC("web").Phase(ocpappsv1.DeploymentStatusFailed).Obj()},
			replicas: 2, writes: []string{scale, status, scale},
		},
		"at 0 replicas originally": {
			objects:  []client.Object{heldWeb(0, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj()},
			replicas: 0, writes: []string{"delete Pod shop/a", scale},
		},
		"D33: test: true": {
			objects: []client.Object{heldWeb(2, false).Test().Obj(), heldRC("web").Obj()}, replicas: 2, writes: []string{scale, scale},
		},
		"D37: replicas of an autoscaler": {
			objects: []client.Object{heldWeb(2, false).Replicas(5).Obj(), testkit.MakeRC("shop", "web", 1).Replicas(5).Obj()}, replicas: 5, writes: []string{scale},
		},
		"D15: held by an earlier restore, which is taken over before the last pod that leads to it is deleted": {
			objects: []client.Object{
				testkit.MakeDC("shop", "web").Held(testkit.OwnerNamed("earlier"), 2, true).Obj(), heldRC("web").Obj(), readyPod("a").Obj(),
			},
			replicas: 2, paused: true, writes: []string{scale, "delete Pod shop/a", scale, scale}, says: "back at 2 replicas, paused",
		},
		"D37: replicas of an autoscaler, paused by the OADP script": {
			objects: []client.Object{heldWeb(2, true).Replicas(5).Paused().Obj(), heldRC("web").Obj()}, replicas: 5, paused: true, writes: []string{scale, scale},
		},
		"D15: pods of an earlier restore as well": {
			objects: []client.Object{
				heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj(),
				testkit.MakePod("shop", "web", 1).Named("b").Detached(testkit.OwnerNamed("earlier")).InitializedTrue().Obj(),
			},
			replicas: 2, writes: []string{"delete Pod shop/a", "delete Pod shop/b", scale, scale},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.objects...)
			result := w.result(w.pass(scope()), "web")
			require.Equal(t, postrestore.Done, result.Step.Action, result.Sentence())
			require.Equal(t, postrestore.Finish, result.Did)
			require.True(t, result.Held)
			require.True(t, result.Ended())
			require.False(t, result.Failed())
			require.Contains(t, result.Sentence(), tc.says)
			require.Equal(t, tc.writes, w.writes())
			require.ElementsMatch(t, []string{"HeldForRestore web", "ResumedAfterRestore web"}, w.events())

			dc := w.dc("web")
			require.Equal(t, tc.replicas, dc.Spec.Replicas)
			require.Equal(t, tc.paused, dc.Spec.Paused)
			require.Empty(t, w.pods())
			w.requireUnmarked() // I3

			w.requests.Reset()
			w.pass(scope())
			require.Empty(t, w.requests.Writes(), "I4: phase two run again changes nothing")
		})
	}
}

// Whoever has changed an object since it was looked at wins.
func TestWritesAreConditionalOnWhatWasLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, true).Obj(), heldRC("web").Obj(), readyPod("a").Obj(), testkit.MakeDC("shop", "api").Held(testkit.OwnerNamed("r"), 1, false).NoTriggers().Obj())
	w.pass(scope())
	deletes, patches := w.requests.Of("delete", "Pod"), append(w.requests.Of("patch", "DeploymentConfig"), w.requests.Of("patch/status", "DeploymentConfig")...)
	require.Len(t, deletes, 1)
	require.NotNil(t, deletes[0].Delete.Preconditions)
	require.NotNil(t, deletes[0].Delete.Preconditions.UID)
	require.Equal(t, types.UID("pod-shop-a"), *deletes[0].Delete.Preconditions.UID)
	require.Nil(t, deletes[0].Delete.GracePeriodSeconds, "the pod's own grace period counts")
	require.Len(t, patches, 5)
	for _, patch := range patches {
		var body struct {
			Metadata struct{ ResourceVersion string }
		}
		require.NoError(t, json.Unmarshal([]byte(patch.Patch), &body))
		require.NotEmpty(t, body.Metadata.ResourceVersion, patch.Patch)
	}
}

// D7: replicas and paused never go into one patch, and the marks go with the last one.
func TestPatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, true).ResourceVersion("1").Obj(), heldRC("web").Obj())
	w.pass(scope())
	patches := w.requests.Of("patch", "DeploymentConfig")
	require.Len(t, patches, 2)
	require.JSONEq(t, `{"metadata":{"resourceVersion":"1"},"spec":{"replicas":2}}`, patches[0].Patch)
	require.JSONEq(t, `{"metadata":{"resourceVersion":"2","labels":{"oadp.openshift.io/replicas-modified":null},"annotations":{
		"oadp.openshift.io/original-replicas":null,"oadp.openshift.io/original-paused":null,
		"oadp.openshift.io/restore":null,"oadp.openshift.io/restore-uid":null}},"spec":{"paused":true}}`, patches[1].Patch)
}

func TestAConflictIsTriedAgain(t *testing.T) {
	t.Parallel()
	log, entries := testkit.RecordingLogger(t)
	w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj())
	w.runner = postrestore.NewRunner(w.client, w.clock, log)
	// Somebody changes the DeploymentConfig between every look and the patch.
	touches := 0
	w.requests.Fail(func(r testkit.Request) error {
		if r.String() == "patch DeploymentConfig shop/web" {
			touches++
			dc := w.dc("web")
			dc.Annotations["touched"] = strconv.Itoa(touches)
			return w.base.Update(t.Context(), dc)
		}
		return nil
	})
	result := w.result(w.pass(scope()), "web")
	require.Equal(t, postrestore.Scale, result.Step.Action)
	require.True(t, apierrors.IsConflict(result.Retrying), result.Retrying)
	require.NoError(t, result.Err)
	require.False(t, result.Ended())
	require.False(t, result.Failed())
	require.Contains(t, result.Sentence(), "scaling to 2 replicas: not yet: ")
	require.Zero(t, w.dc("web").Spec.Replicas)
	require.Greater(t, touches, 1, "the same pass tries again")
	for _, entry := range entries.AllEntries() {
		require.GreaterOrEqual(t, entry.Level, logrus.InfoLevel, "nobody needs to be warned of it: %s", entry.Message)
	}

	w.requests.Fail(nil)
	require.Equal(t, postrestore.Done, w.result(w.pass(scope()), "web").Step.Action)
}

func TestARefusalFailsOneAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	owner := testkit.OwnerNamed("r")
	w := newWorld(t,
		heldWeb(2, false).Obj(), heldRC("web").Obj(),
		testkit.MakeDC("shop", "db").Held(owner, 1, false).Obj(), testkit.MakeDC("shop", "api").Held(owner, 1, false).Obj(),
	)
	w.requests.Fail(func(r testkit.Request) error {
		if r.String() == "patch DeploymentConfig shop/db" {
			return forbidden("patch", "deploymentconfigs")
		}
		return nil
	})
	report := w.pass(scope())
	require.Len(t, report.Results, 3)
	db := w.result(report, "db")
	require.True(t, db.Failed())
	require.True(t, db.Ended())
	require.True(t, apierrors.IsForbidden(db.Err), db.Err)
	require.Contains(t, db.Sentence(), "scaling to 1 replica: patch DeploymentConfig shop/db: ")
	require.Contains(t, db.Sentence(), "velero may not patch deploymentconfigs")
	for _, name := range []string{"web", "api"} {
		require.Equal(t, postrestore.Done, w.result(report, name).Step.Action, name)
	}
	require.True(t, report.Ended())
	require.Contains(t, w.events(), "ResumeFailed db")
	require.Contains(t, w.dc("db").Annotations, "oadp.openshift.io/original-replicas", "it stays held")
}

func TestPassingErrorsAndOthers(t *testing.T) {
	t.Parallel()
	resource, kind := schema.GroupResource{Resource: "deploymentconfigs"}, schema.GroupKind{Kind: "DeploymentConfig"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"conflict":               {apierrors.NewConflict(resource, "web", errors.New("x")), true},
		"server timeout":         {apierrors.NewServerTimeout(resource, "patch", 1), true},
		"too many requests":      {apierrors.NewTooManyRequests("slow down", 1), true},
		"internal error":         {apierrors.NewInternalError(errors.New("webhook is away")), true},
		"service unavailable":    {apierrors.NewServiceUnavailable("x"), true},
		"gone in the meantime":   {apierrors.NewNotFound(resource, "web"), true},
		"no connection":          {errors.New("dial tcp: connection refused"), true},
		"deadline":               {context.DeadlineExceeded, true},
		"forbidden":              {forbidden("patch", "deploymentconfigs"), false},
		"forbidden, wrapped":     {fmt.Errorf("patch: %w", forbidden("patch", "deploymentconfigs")), false},
		"unauthorized":           {apierrors.NewUnauthorized("who are you"), false},
		"invalid":                {apierrors.NewInvalid(kind, "web", nil), false},
		"bad request":            {apierrors.NewBadRequest("what"), false},
		"method not supported":   {apierrors.NewMethodNotSupported(resource, "patch"), false},
		"invalid settings":       {&restore.InvalidSettingsError{Err: errors.New("x")}, false},
		"invalid settings below": {fmt.Errorf("read: %w", &restore.InvalidSettingsError{Err: errors.New("x")}), false},
	} {
		require.Equal(t, tc.want, postrestore.IsPassing(tc.err), name)
	}
}

func TestDeletingPods(t *testing.T) {
	t.Parallel()
	objects := func() []client.Object {
		return []client.Object{heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj(), readyPod("b").Obj()}
	}
	podA := func(err error) func(testkit.Request) error {
		return func(r testkit.Request) error {
			if r.String() == "delete Pod shop/a" {
				return err
			}
			return nil
		}
	}
	t.Run("one is gone already", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, objects()...)
		w.requests.Fail(func(r testkit.Request) error {
			if r.String() != "delete Pod shop/a" {
				return nil
			}
			return errors.Join(w.base.Delete(t.Context(), readyPod("a").Obj()), apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a"))
		})
		require.Equal(t, postrestore.Done, w.result(w.pass(scope()), "web").Step.Action)
	})
	t.Run("one is refused: it fails, the other is deleted, nothing is scaled", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, objects()...)
		w.requests.Fail(podA(forbidden("delete", "pods")))
		result := w.result(w.pass(scope()), "web")
		require.True(t, apierrors.IsForbidden(result.Err))
		require.ErrorContains(t, result.Err, "delete pod shop/a")
		require.Equal(t, []string{"a"}, w.pods())
		require.Zero(t, w.dc("web").Spec.Replicas)
	})
	t.Run("a refusal counts more than what may pass", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, objects()...)
		w.requests.Fail(func(r testkit.Request) error {
			switch r.String() {
			case "delete Pod shop/a":
				return apierrors.NewServiceUnavailable("x")
			case "delete Pod shop/b":
				return forbidden("delete", "pods")
			}
			return nil
		})
		require.True(t, apierrors.IsForbidden(w.result(w.pass(scope()), "web").Err))
	})
	t.Run("one conflicts: another pod of that name is there now", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, objects()...)
		w.requests.Fail(podA(apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("the UID in the precondition does not match"))))
		result := w.result(w.pass(scope()), "web")
		require.True(t, apierrors.IsConflict(result.Retrying))
		require.False(t, result.Ended())
	})
	t.Run("B12: not scaled before they are gone, and not deleted twice", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Finalizer("example.com/keep").Obj())
		start := w.clock.Now()
		result := w.result(w.pass(scope()), "web")
		require.Equal(t, postrestore.WaitShortly, result.Step.Action)
		require.Equal(t, postrestore.DeletePods, result.Did)
		require.False(t, result.Ended())
		require.Equal(t, []string{"delete Pod shop/a"}, w.writes())
		require.InDelta(t, 5*time.Second, w.clock.Since(start), float64(time.Second), "a pass ends with its budget")
	})
	t.Run("I2: a pod whose data is on its way is not deleted", func(t *testing.T) {
		t.Parallel()
		pod := detached("a").InitializedFalse().Obj()
		w := newWorld(t, heldWeb(2, false).Obj(), pod, podVolumeRestore("p", pod, "data", velerov1.PodVolumeRestorePhaseInProgress))
		result := w.result(w.pass(scope()), "web")
		require.Equal(t, postrestore.Wait, result.Step.Action)
		require.Empty(t, w.writes())
		require.Len(t, w.requests.Of("list", "Pod"), 1, "nothing moves, so one look is enough")
	})
	t.Run("a failed volume is given up when that is asked for", func(t *testing.T) {
		t.Parallel()
		pod := detached("a").InitializedFalse().Obj()
		w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj(), pod, podVolumeRestore("p", pod, "data", velerov1.PodVolumeRestorePhaseFailed))
		stopped := w.result(w.pass(scope()), "web")
		require.True(t, stopped.Failed())
		require.Empty(t, stopped.LostVolumes)
		require.Empty(t, w.writes())
		result := w.result(w.pass(scope(func(s *postrestore.Scope) { s.AcceptDataLoss = true })), "web")
		require.Equal(t, postrestore.Done, result.Step.Action)
		require.Equal(t, []string{"a/data"}, result.LostVolumes, "the last report names it still")
	})
}

func TestAPodThatDidNotComeFromADeploymentConfigInTheClusterIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, readyPod("a").Obj())
	result := w.result(w.pass(scope()), "web")
	require.True(t, result.Failed())
	require.False(t, result.Exists)
	require.False(t, result.Held)
	require.Equal(t, []string{"a"}, w.pods())
	require.Empty(t, w.requests.Writes(), "there is no DeploymentConfig to write an event on")
}

func TestReattach(t *testing.T) {
	t.Parallel()
	byLabel := func(s *postrestore.Scope) { s.Restore.ByLabel = true }
	t.Run("pods become what they were", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, testkit.MakePod("shop", "web", 3).Named("a").Detached(testkit.OwnerNamed("r")).Obj())
		result := w.result(w.pass(scope(byLabel)), "web")
		require.Equal(t, postrestore.Done, result.Step.Action)
		require.Equal(t, postrestore.Reattach, result.Did)
		w.requireUnmarked()
		pod := &corev1.Pod{}
		require.NoError(t, w.base.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "a"}, pod))
		want := testkit.MakePod("shop", "web", 3).Obj()
		require.Equal(t, want.Labels, pod.Labels)
		require.Equal(t, want.Annotations, pod.Annotations)
		require.Equal(t, []string{"patch Pod shop/a"}, w.writes())
		require.Contains(t, w.requests.Writes()[0].Patch, `"uid":"pod-shop-a"`, "another pod of that name is left alone")
		w.requests.Reset()
		w.pass(scope(byLabel))
		require.Empty(t, w.requests.Writes(), "I4")
	})
	t.Run("a pod that does not know its ReplicationController loses the marks only", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, testkit.MakePod("shop", "web", 3).Named("a").NoAnnotation("openshift.io/deployment.name").Detached(testkit.OwnerNamed("r")).Obj())
		w.pass(scope(byLabel))
		w.requireUnmarked()
	})
	t.Run("one is gone, one is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, readyPod("a").Obj(), readyPod("b").Obj())
		w.requests.Fail(func(r testkit.Request) error {
			switch r.String() {
			case "patch Pod shop/a":
				return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")
			case "patch Pod shop/b":
				return forbidden("patch", "pods")
			}
			return nil
		})
		result := w.result(w.pass(scope(byLabel)), "web")
		require.True(t, apierrors.IsForbidden(result.Err))
		require.ErrorContains(t, result.Err, "reattach pod shop/b")
		require.NotContains(t, result.Err.Error(), "shop/a")
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	failedPod := func() client.Object { return detached("a").Phase(corev1.PodFailed, "Evicted", "").Obj() }
	t.Run("say what, why and what to run", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, heldWeb(2, false).Obj(), failedPod())
		w.pass(scope())
		var list corev1.EventList
		require.NoError(t, w.base.List(t.Context(), &list))
		require.Len(t, list.Items, 2)
		byReason := map[string]corev1.Event{}
		for _, event := range list.Items {
			byReason[event.Reason] = event
			require.Equal(t, corev1.ObjectReference{
				APIVersion: "apps.openshift.io/v1", Kind: "DeploymentConfig", Namespace: "shop", Name: "web", UID: "dc-shop-web", ResourceVersion: "999",
			}, event.InvolvedObject)
			require.Equal(t, "r", event.Labels[velerov1.RestoreNameLabel])
			require.Equal(t, "shop", event.Namespace)
			require.Equal(t, w.clock.Now(), event.FirstTimestamp.UTC())
		}
		require.Equal(t, corev1.EventTypeNormal, byReason["HeldForRestore"].Type)
		require.Contains(t, byReason["HeldForRestore"].Message, "restore r")
		require.Equal(t, corev1.EventTypeWarning, byReason["ResumeFailed"].Type)
		for _, part := range []string{"restore r", "pod a cannot start", "kubectl -n openshift-adp exec deploy/velero -c velero -- /plugins/velero-plugin-for-openshift-dr post-restore r"} {
			require.Contains(t, strings.ToLower(byReason["ResumeFailed"].Message), strings.ToLower(part))
		}
	})
	t.Run("do not promise what nobody does", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, heldWeb(2, false).Obj(), readyPod("a").Obj())
		_, err := w.runner.Hold(t.Context(), scope(func(s *postrestore.Scope) { s.Undriven = "resume: manual" }))
		require.NoError(t, err)
		var list corev1.EventList
		require.NoError(t, w.base.List(t.Context(), &list))
		require.Len(t, list.Items, 1)
		require.Equal(t, "Held at 0 replicas by restore r, until a person resumes it", list.Items[0].Message)
	})
	t.Run("are not written again by the next poll, which asks once what is there", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, heldWeb(2, false).Obj(), failedPod())
		w.pass(scope())
		w.requests.Reset()
		w.pass(scope())
		require.Empty(t, w.requests.Writes())
		require.Len(t, w.requests.Of("list", "Event"), 1)
	})
	t.Run("have a name made from what they say", func(t *testing.T) {
		t.Parallel()
		names := map[string]bool{}
		for range 2 {
			w := newWorld(t, heldWeb(2, false).Obj(), failedPod())
			w.pass(scope())
			for _, request := range w.requests.Of("create", "Event") {
				names[request.Object.Name] = true
			}
		}
		require.Len(t, names, 2, "two runs write the same two: %v", names)
	})
	t.Run("of a DeploymentConfig with the longest name have a valid one", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("w", 253)
		w := newWorld(t, testkit.MakeDC("shop", long).Held(testkit.OwnerNamed("r"), 0, false).Obj())
		w.pass(scope())
		created := w.requests.Of("create", "Event")
		require.NotEmpty(t, created)
		for _, request := range created {
			require.LessOrEqual(t, len(request.Object.Name), 253)
		}
	})
	t.Run("that are there already are no error", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj())
		w.requests.Fail(failing("create", "Event", apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, "x")))
		require.Equal(t, postrestore.Done, w.result(w.pass(scope()), "web").Step.Action)
	})
	t.Run("that are forbidden do not fail phase two", func(t *testing.T) {
		t.Parallel()
		log, entries := testkit.RecordingLogger(t)
		w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj())
		w.runner = postrestore.NewRunner(w.client, w.clock, log)
		w.requests.Fail(func(r testkit.Request) error {
			if r.Kind == "Event" {
				return forbidden(r.Verb, "events")
			}
			return nil
		})
		require.Equal(t, postrestore.Done, w.result(w.pass(scope()), "web").Step.Action)
		w.requireUnmarked()
		var warnings []string
		for _, entry := range entries.AllEntries() {
			if entry.Level.String() == "warning" {
				warnings = append(warnings, entry.Message)
			}
		}
		require.Contains(t, warnings, "Events of the restore cannot be listed: some may be written twice")
		require.Contains(t, warnings, "Event cannot be written")
	})
}

func TestPlanAndHoldTakeNoStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj(), testkit.MakePod("shop", "db", 1).Named("b").Detached(testkit.OwnerNamed("r")).InitializedTrue().Obj())
	plan, err := w.runner.Plan(t.Context(), scope())
	require.NoError(t, err)
	require.Empty(t, w.requests.Writes())
	require.Equal(t, postrestore.DeletePods, w.result(plan, "web").Step.Action)
	require.True(t, w.result(plan, "db").Failed())
	require.False(t, plan.Ended())

	held, err := w.runner.Hold(t.Context(), scope())
	require.NoError(t, err)
	require.Equal(t, plan, held)
	require.Empty(t, w.writes())
	require.Equal(t, []string{"HeldForRestore web"}, w.events())

	w.requests.Fail(failing("list", "Event", forbidden("list", "events")))
	held, err = w.runner.Hold(t.Context(), scope())
	require.NoError(t, err, "events that cannot be listed are warned about, as in a pass")
	require.Equal(t, plan, held)
	w.requests.Fail(failing("list", "Pod", forbidden("list", "pods")))
	_, err = w.runner.Hold(t.Context(), scope())
	require.True(t, apierrors.IsForbidden(err))
	_, err = w.runner.Plan(t.Context(), scope())
	require.True(t, apierrors.IsForbidden(err))
}

func TestRun(t *testing.T) {
	t.Parallel()
	ignore := func(postrestore.Report, error) {}
	t.Run("goes on until nothing more will happen by itself", func(t *testing.T) {
		t.Parallel()
		pod := detached("a").InitializedFalse().Obj()
		pvr := podVolumeRestore("p", pod, "data", velerov1.PodVolumeRestorePhaseInProgress)
		w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj(), pod, pvr)
		rounds := 0
		report, err := w.runner.Run(t.Context(), scope(), func(report postrestore.Report, err error) {
			require.NoError(t, err)
			if rounds++; rounds == 3 { // the data arrives
				require.Equal(t, postrestore.Wait, w.result(report, "web").Step.Action)
				found := &velerov1.PodVolumeRestore{}
				require.NoError(t, w.base.Get(t.Context(), client.ObjectKeyFromObject(pvr), found))
				found.Status.Phase = velerov1.PodVolumeRestorePhaseCompleted
				require.NoError(t, w.base.Update(t.Context(), found))
				started := &corev1.Pod{}
				require.NoError(t, w.base.Get(t.Context(), client.ObjectKeyFromObject(pod), started))
				started.Status.Conditions = readyPod("a").Obj().Status.Conditions
				require.NoError(t, w.base.Status().Update(t.Context(), started))
			}
		})
		require.NoError(t, err)
		require.True(t, report.Ended())
		require.Equal(t, postrestore.Done, w.result(report, "web").Step.Action)
		require.EqualValues(t, 2, w.dc("web").Spec.Replicas)
	})
	t.Run("ends with its context, and reports what was known", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(t, heldWeb(2, false).Obj(), detached("a").InitializedFalse().Obj())
		report, err := w.runner.Run(ctx, scope(), func(postrestore.Report, error) { cancel() })
		require.NoError(t, err)
		require.Equal(t, postrestore.Wait, w.result(report, "web").Step.Action)
		require.False(t, report.Ended())
	})
	t.Run("tries again what may pass", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj())
		w.requests.Fail(failing("list", "Pod", apierrors.NewServiceUnavailable("etcd is away")))
		failures := 0
		report, err := w.runner.Run(t.Context(), scope(), func(_ postrestore.Report, err error) {
			if err == nil {
				return
			}
			require.True(t, apierrors.IsServiceUnavailable(err))
			if failures++; failures == 3 {
				w.requests.Fail(nil)
			}
		})
		require.NoError(t, err)
		require.Equal(t, 3, failures)
		require.Equal(t, postrestore.Done, w.result(report, "web").Step.Action)
	})
	t.Run("two failed looks in a row do not make what is held look done", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(t, heldWeb(2, false).Obj(), detached("a").InitializedFalse().Obj())
		failures := 0
		report, err := w.runner.Run(ctx, scope(), func(_ postrestore.Report, err error) {
			w.requests.Fail(failing("list", "Pod", apierrors.NewServiceUnavailable("etcd is away")))
			if err != nil {
				if failures++; failures == 2 {
					cancel()
				}
			}
		})
		require.NoError(t, err)
		require.Equal(t, postrestore.Wait, w.result(report, "web").Step.Action)
	})
	t.Run("gives up what will not pass", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, heldWeb(2, false).Obj())
		w.requests.Fail(failing("list", "Pod", forbidden("list", "pods")))
		_, err := w.runner.Run(t.Context(), scope(), ignore)
		require.True(t, apierrors.IsForbidden(err))
		require.ErrorContains(t, err, "list detached pods")
	})
	t.Run("has nothing to do", func(t *testing.T) {
		t.Parallel()
		report, err := newWorld(t).runner.Run(t.Context(), scope(), ignore)
		require.NoError(t, err)
		require.Empty(t, report.Results)
		require.True(t, report.Ended())
	})
}

func TestPassReportsWhatWasKnownWhenALookFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heldWeb(2, false).Obj(), heldRC("web").Obj(), readyPod("a").Obj())
	looks := 0
	w.requests.Fail(func(r testkit.Request) error {
		if r.String() == "list Pod" {
			if looks++; looks == 2 {
				return apierrors.NewServiceUnavailable("etcd is away")
			}
		}
		return nil
	})
	report, err := w.runner.Pass(t.Context(), scope(), 5*time.Second)
	require.True(t, apierrors.IsServiceUnavailable(err))
	require.Equal(t, postrestore.DeletePods, w.result(report, "web").Did)
}

// A DeploymentConfig that was at 0 before has no mark: when its pods are gone, nothing shows it any more.
func TestPodsOfADeploymentConfigThatWasAtZeroAreSeenOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.MakeDC("shop", "web").Replicas(0).Obj(), readyPod("a").Obj())
	before := w.dc("web")
	result := w.result(w.pass(scope()), "web")
	require.Equal(t, postrestore.Done, result.Step.Action)
	require.Equal(t, "its detached pods are gone and nothing holds it", result.Sentence())
	require.False(t, result.Held)
	require.Empty(t, w.pods())
	require.Equal(t, before, w.dc("web"), "it stays as it was")
	require.Empty(t, w.events())
}

func TestManyDeploymentConfigsSideBySide(t *testing.T) {
	t.Parallel()
	var objects []client.Object
	for i := range 50 {
		name := fmt.Sprintf("web-%d", i)
		objects = append(objects, testkit.MakeDC("shop", name).Held(testkit.OwnerNamed("r"), 4, false).Obj())
		for j := range 4 {
			objects = append(objects, testkit.MakePod("shop", name, 1).Named(fmt.Sprintf("%s-%d", name, j)).Detached(testkit.OwnerNamed("r")).InitializedTrue().Obj())
		}
	}
	w := newWorld(t, objects...)
	report := w.pass(scope())
	require.Len(t, report.Results, 50)
	require.True(t, report.Ended())
	require.Empty(t, w.pods())
	w.requireUnmarked()
	require.LessOrEqual(t, len(w.requests.Of("list", "Pod")), 5, "looks: delete, scale, finish, and at most two waits")
	require.Len(t, w.requests.Of("delete", "Pod"), 200)
	require.Len(t, w.requests.Of("patch", "DeploymentConfig"), 100)
}
