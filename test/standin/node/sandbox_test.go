package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/velero/pkg/restorehelper"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		command   []string
		wantTakes time.Duration
		wantExit  int32
	}{
		"nothing":                       {},
		"a plain command":               {command: []string{"/bin/reindex", "--all"}},
		"false":                         {command: []string{"/bin/false"}, wantExit: 1},
		"exit":                          {command: []string{"sh", "-c", "exit 3"}, wantExit: 3},
		"exit 0 is a success":           {command: []string{"sh", "-c", "exit 0"}},
		"sleep in one word of a script": {command: []string{"sh", "-c", "sleep 2; exit 7"}, wantTakes: 2 * time.Second, wantExit: 7},
		"sleep as words":                {command: []string{"sleep", "0.5"}, wantTakes: 500 * time.Millisecond},
		"words that only contain them":  {command: []string{"falsehood", "sleepy 3", "exited 4"}},
		"exit wins over false":          {command: []string{"sh", "-c", "false || exit 0"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takes, exit := outcome(tc.command)
			assert.Equal(t, tc.wantTakes, takes)
			assert.Equal(t, tc.wantExit, exit)
		})
	}
}

// play advances a sandbox from alarm to alarm for the given time and returns what its pod looks like then.
func play(s *sandbox, pod *corev1.Pod, f facts, from time.Time, forTime time.Duration) time.Time {
	o, until := Options{}.withDefaults(), from.Add(forTime)
	for now := from; ; {
		next := s.advance(pod, f, o, now)
		s.report(pod, f, o, "127.0.0.1", now)
		if next.IsZero() || next.After(until) {
			return until
		}
		now = next
	}
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	start := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		}
		change(p)
		return p
	}
	mounted := facts{mounted: true}

	t.Run("nothing starts before the volumes are there", func(t *testing.T) {
		t.Parallel()
		p := pod(func(*corev1.Pod) {})
		s := newSandbox(p, "10.0.0.1", start)
		now := play(s, p, facts{}, start, time.Hour)
		assert.Equal(t, corev1.PodPending, p.Status.Phase)
		assert.Equal(t, "ContainerCreating", p.Status.ContainerStatuses[0].State.Waiting.Reason)
		play(s, p, mounted, now, time.Second)
		assert.Equal(t, corev1.PodRunning, p.Status.Phase)
	})
	t.Run("restore-wait ends when the volumes are restored, not before", func(t *testing.T) {
		t.Parallel()
		p := pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: restorehelper.WaitInitContainer, Image: "i", Args: []string{"restore-uid"}}}
		})
		s := newSandbox(p, "10.0.0.1", start)
		now := play(s, p, mounted, start, time.Hour)
		require.NotNil(t, p.Status.InitContainerStatuses[0].State.Running)
		play(s, p, facts{mounted: true, restored: true}, now, time.Second)
		assert.Equal(t, corev1.PodRunning, p.Status.Phase)
		assert.Equal(t, "Completed", p.Status.InitContainerStatuses[0].State.Terminated.Reason)
	})
	t.Run("a sidecar does not hold up the others", func(t *testing.T) {
		t.Parallel()
		p := pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		})
		play(newSandbox(p, "10.0.0.1", start), p, mounted, start, time.Second)
		assert.Equal(t, corev1.PodRunning, p.Status.Phase)
		assert.NotNil(t, p.Status.InitContainerStatuses[0].State.Running)
		assert.True(t, p.Status.InitContainerStatuses[0].Ready)
	})
	t.Run("a container that fails is restarted, with pauses", func(t *testing.T) {
		t.Parallel()
		p := pod(func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"false"} })
		s := newSandbox(p, "10.0.0.1", start)
		play(s, p, mounted, start, 750*time.Millisecond)
		assert.Equal(t, corev1.PodRunning, p.Status.Phase)
		assert.Equal(t, "CrashLoopBackOff", p.Status.ContainerStatuses[0].State.Waiting.Reason)
		assert.EqualValues(t, 1, p.Status.ContainerStatuses[0].RestartCount)
	})
	t.Run("OnFailure runs until it succeeds", func(t *testing.T) {
		t.Parallel()
		p := pod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure })
		play(newSandbox(p, "10.0.0.1", start), p, mounted, start, time.Second)
		assert.Equal(t, corev1.PodSucceeded, p.Status.Phase)
	})
	t.Run("a second delete shortens the grace period", func(t *testing.T) {
		t.Parallel()
		p := pod(func(p *corev1.Pod) { p.Annotations = map[string]string{TerminatesAnnotation: "20s"} })
		s := newSandbox(p, "10.0.0.1", start)
		now := play(s, p, mounted, start, time.Second)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(now)), ptr.To[int64](30)
		now = play(s, p, mounted, now, time.Second)
		require.False(t, s.stopped)
		p.DeletionGracePeriodSeconds = ptr.To[int64](1)
		play(s, p, mounted, now, time.Second)
		require.True(t, s.stopped)
		assert.EqualValues(t, exitKilled, p.Status.ContainerStatuses[0].State.Terminated.ExitCode)
	})
	t.Run("a restarted node takes its running pods over", func(t *testing.T) {
		t.Parallel()
		p := pod(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i"}} })
		now := play(newSandbox(p, "10.0.0.1", start), p, mounted, start, time.Minute)
		s := newSandbox(p, "10.0.0.2", now)
		assert.True(t, s.running())
		play(s, p, mounted, now, time.Minute)
		assert.Equal(t, corev1.PodRunning, p.Status.Phase)
		assert.Zero(t, p.Status.ContainerStatuses[0].RestartCount)
	})
}
