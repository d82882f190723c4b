package cli

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// at does something to the cluster when so much time has passed.
func at(t *testing.T, after time.Duration, do func(ctx context.Context) error) {
	t.Helper()
	time.AfterFunc(after, func() { assert.NoError(t, do(context.Background())) })
}

// enters changes the restore to a phase.
func (c *cluster) enters(phase velerov1.RestorePhase) func(context.Context) error {
	return func(ctx context.Context) error {
		r := &velerov1.Restore{}
		if err := c.client.Get(ctx, client.ObjectKey{Namespace: "velero", Name: "monday"}, r); err != nil {
			return err
		}
		r.Status.Phase = phase
		return c.client.Update(ctx, r)
	}
}

func (c *cluster) replicas(t *testing.T) int32 {
	t.Helper()
	dc := &ocpappsv1.DeploymentConfig{}
	require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, dc))
	return dc.Spec.Replicas
}

// events returns the messages of the events with a reason.
func (c *cluster) events(t *testing.T, reason string) []string {
	t.Helper()
	var list corev1.EventList
	require.NoError(t, c.client.List(t.Context(), &list))
	var messages []string
	for i := range list.Items {
		if list.Items[i].Reason == reason {
			messages = append(messages, list.Items[i].Message)
		}
	}
	return messages
}

func standbyJob() *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "post-restore-monday"}}
}

func TestWaitGoesOnWhateverPhaseTheRestoreEndsIn(t *testing.T) {
	t.Parallel()
	for _, phase := range []velerov1.RestorePhase{
		velerov1.RestorePhaseCompleted, velerov1.RestorePhasePartiallyFailed, velerov1.RestorePhaseFailed,
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, append(oneApplication(), restoreIn(""), standbyJob())...)
				at(t, time.Minute, c.enters(velerov1.RestorePhaseInProgress))
				at(t, 2*time.Minute, c.enters(velerov1.RestorePhaseFinalizing))
				at(t, 3*time.Minute-time.Second, func(context.Context) error {
					assert.Zero(t, c.replicas(t), "nothing is done before the end")
					return nil
				})
				at(t, 3*time.Minute, c.enters(phase))
				began := time.Now()
				got := c.run(t, "post-restore", "monday", "--wait", "--job=post-restore-monday")
				assert.Equal(t, ExitDone, got.code, got.errOut)
				assert.Less(t, time.Since(began), 3*time.Minute+10*time.Second)
				assert.Contains(t, got.out, "resumed")
				assert.EqualValues(t, 2, c.replicas(t))
				for _, now := range []string{"New", "InProgress", "Finalizing"} {
					assert.Equal(t, 1, strings.Count(got.errOut, "Restore velero/monday is "+now+": waiting for its end, until 2000-01-01T04:00:00Z at the latest\n"), got.errOut)
				}
				job := standbyJob()
				require.NoError(t, c.client.Get(t.Context(), client.ObjectKeyFromObject(job), job))
				assert.Equal(t, ptr.To[int32](3600), job.Spec.TTLSecondsAfterFinished, "it is deleted an hour after success")
			})
		})
	}
}

func TestWaitFindsNothingToDoAfterAGoodRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, restoreIn(velerov1.RestorePhaseInProgress), standbyJob())
		at(t, time.Minute, c.enters(velerov1.RestorePhaseCompleted))
		got := c.run(t, "post-restore", "monday", "--wait", "--job=post-restore-monday")
		assert.Equal(t, ExitDone, got.code, got.errOut)
		assert.Contains(t, got.errOut, "Nothing to do: nothing in the cluster is held for restore velero/monday.\n")
		assert.Equal(t, []string{"patch velero/post-restore-monday"}, c.writes)
	})
}

func TestWaitHasADeadline(t *testing.T) {
	t.Parallel()
	timeout := func(r *velerov1.Restore) *velerov1.Restore {
		r.Spec.ItemOperationTimeout.Duration = time.Hour
		return r
	}
	for name, tc := range map[string]struct {
		restore *velerov1.Restore
		args    []string
		waits   time.Duration
		until   string
	}{
		"Velero's default":      {restore: restoreIn(velerov1.RestorePhaseInProgress), waits: 4 * time.Hour, until: "2000-01-01T04:00:00Z"},
		"that of the Restore":   {restore: timeout(restoreIn(velerov1.RestorePhaseInProgress)), waits: time.Hour, until: "2000-01-01T01:00:00Z"},
		"one that a flag gives": {restore: timeout(restoreIn(velerov1.RestorePhaseInProgress)), args: []string{"--deadline=2000-01-01T00:30:00Z"}, waits: 30 * time.Minute, until: "2000-01-01T00:30:00Z"},
		"one that has passed":   {restore: restoreIn(velerov1.RestorePhaseInProgress), args: []string{"--deadline=1999-12-31T00:00:00Z"}, until: "1999-12-31T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, append(oneApplication(), tc.restore, standbyJob())...)
				began := time.Now()
				got := c.run(t, append([]string{"post-restore", "monday", "--wait", "--job=post-restore-monday"}, tc.args...)...)
				assert.Equal(t, ExitNotFinished, got.code)
				assert.Equal(t, tc.waits, time.Since(began))
				assert.Contains(t, got.errOut, "error: time is up: restore velero/monday has not ended by "+tc.until+", it is InProgress. "+
					"What it holds stays held and nothing is lost. When it has ended, run: kubectl -n velero exec deploy/velero")
				assert.Equal(t, []string{"event"}, c.writes, "nothing is touched, and the Job stays")
				said := c.events(t, "ResumeFailed")
				require.Len(t, said, 1, "whoever looks at the DeploymentConfig sees it too")
				assert.Contains(t, said[0], "Restore monday does not resume it: its time is up: ")
				assert.Contains(t, said[0], "post-restore monday")
			})
		})
	}
}

// After a restart of Velero data may come after the restore's end.
func TestWaitGoesOnWaitingForDataUntilTheDeadline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"with a deadline":           {args: []string{"--deadline=2000-01-01T00:20:00Z"}, code: ExitDone},
		"without one, --timeout is": {code: ExitNotFinished},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, restoreIn(velerov1.RestorePhaseFailed), heldDC("shop", "web", "2"), rollout("shop", "web"), detachedPod("shop", "web", "a", false))
				at(t, 15*time.Minute, func(ctx context.Context) error {
					pod := &corev1.Pod{}
					if err := c.client.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "a"}, pod); err != nil {
						return err
					}
					pod.Status.Conditions[0].Status = corev1.ConditionTrue
					return c.client.Status().Update(ctx, pod)
				})
				got := c.run(t, append([]string{"post-restore", "monday", "--wait"}, tc.args...)...)
				assert.Equal(t, tc.code, got.code, got.errOut)
				time.Sleep(time.Hour) //nolint:forbidigo // of the bubble: what is still planned for the cluster comes to pass
			})
		})
	}
}

func TestWaitOutlivesAnAPIServerThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, append(oneApplication(), restoreIn(velerov1.RestorePhaseInProgress))...)
		end := time.Now().Add(10 * time.Minute)
		c.refuse = func(_ string, object any, _ string) error {
			if _, ok := object.(*velerov1.Restore); ok && time.Now().Before(end) {
				return apierrors.NewServiceUnavailable("etcd is away")
			}
			return nil
		}
		at(t, 11*time.Minute, c.enters(velerov1.RestorePhaseCompleted))
		got := c.run(t, "post-restore", "monday", "--wait")
		assert.Equal(t, ExitDone, got.code, got.errOut)
		assert.Equal(t, 1, strings.Count(got.errOut, "warning: not yet: get Restore velero/monday: etcd is away"), got.errOut)
	})
}

func TestWaitEndsAtOnce(t *testing.T) {
	t.Parallel()
	manual := func(phase velerov1.RestorePhase, value string) *velerov1.Restore {
		r := restoreIn(phase)
		r.Annotations = map[string]string{contract.ResumeAnnotation: value}
		return r
	}
	for name, tc := range map[string]struct {
		restore   *velerov1.Restore
		refuse    func(verb string, object any, namespace string) error
		args      []string
		interrupt time.Duration
		code      int
		errOut    string
		writes    bool
	}{
		"without the right to read the restore": {
			restore: restoreIn(velerov1.RestorePhaseInProgress), code: ExitFailed, errOut: "grant the right to get restores.velero.io in namespace velero\n",
			refuse: func(verb string, object any, namespace string) error {
				if _, ok := object.(*velerov1.Restore); ok {
					return forbidden(verb, "velero.io", "restores", namespace)
				}
				return nil
			},
		},
		"when it is interrupted, as by the deletion of its pod": {
			restore: restoreIn(velerov1.RestorePhaseInProgress), interrupt: time.Minute, code: ExitNotFinished,
			errOut: "error: interrupted: restore velero/monday has not ended, it is InProgress. When it has, run: kubectl -n velero exec",
		},
		"in the Job of a restore that is left to a person meanwhile": {
			restore: manual(velerov1.RestorePhaseCompleted, "manual"), args: []string{"--job=post-restore-monday"}, code: ExitDone, writes: true,
			errOut: "The settings leave restore velero/monday to a person (resume: manual). When it may go on, run: kubectl",
		},
		"in the Job, with settings that nobody understands": {
			restore: manual(velerov1.RestorePhaseCompleted, "later"), args: []string{"--job=post-restore-monday"}, code: ExitFailed, errOut: `is "later"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, append(oneApplication(), tc.restore, standbyJob())...)
				c.refuse = tc.refuse
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.interrupt > 0 {
					time.AfterFunc(tc.interrupt, cancel)
				}
				got := c.runIn(ctx, surroundings{getenv: inVelerosPod}, append([]string{"post-restore", "monday", "--wait"}, tc.args...)...)
				assert.Equal(t, tc.code, got.code, got.errOut)
				assert.Contains(t, got.errOut, tc.errOut)
				if tc.writes {
					assert.Equal(t, []string{"patch velero/post-restore-monday"}, c.writes)
				} else {
					assert.Empty(t, c.writes)
				}
			})
		})
	}
}

// A person has come to put things right: what the settings say of other restores does not stop them.
func TestWaitByAPersonDoesNotMindTheSettings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := restoreIn(velerov1.RestorePhaseCompleted)
		r.Annotations = map[string]string{contract.ResumeAnnotation: "manual"}
		c := newCluster(t, append(oneApplication(), r)...)
		got := c.run(t, "post-restore", "monday", "--wait")
		assert.Equal(t, ExitDone, got.code, got.errOut)
		assert.EqualValues(t, 2, c.replicas(t))
	})
}

// The Restore expires, or somebody deletes it, while it is waited for.
func TestWaitForARestoreThatIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, append(oneApplication(), restoreIn(velerov1.RestorePhaseInProgress))...)
		at(t, time.Minute, func(ctx context.Context) error { return c.client.Delete(ctx, restoreIn("")) })
		got := c.run(t, "post-restore", "monday", "--wait")
		assert.Equal(t, ExitDone, got.code, got.errOut)
		assert.Contains(t, got.errOut, "Restore velero/monday does not exist any more")
		assert.EqualValues(t, 2, c.replicas(t))
	})
}

func TestAJobThatFailsStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, append(oneApplication(), failedVolume("shop", "web-3-a", "data"), restoreIn(velerov1.RestorePhasePartiallyFailed), standbyJob())...)
		got := c.run(t, "post-restore", "monday", "--wait", "--job=post-restore-monday")
		assert.Equal(t, ExitFailed, got.code, got.errOut)
		assert.NotContains(t, c.writes, "patch velero/post-restore-monday")
	})
}

func TestAJobThatCannotBeMarkedIsDoneAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, append(oneApplication(), restoreIn(velerov1.RestorePhaseCompleted))...)
		got := c.run(t, "post-restore", "monday", "--wait", "--job=post-restore-monday")
		assert.Equal(t, ExitDone, got.code, got.errOut)
		assert.Contains(t, got.errOut, "warning: have the Job velero/post-restore-monday deleted in 1h0m0s: ")
	})
}

func TestFlagsOfWaiting(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--deadline=2026-01-31T18:00:00Z"}, {"--job=x"}, {"--wait", "--deadline=tomorrow"},
	} {
		c := newCluster(t)
		got := c.run(t, append([]string{"post-restore", "monday"}, args...)...)
		assert.Equal(t, ExitUsage, got.code, args)
	}
}
