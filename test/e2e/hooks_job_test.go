package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/hooks"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// The Job that stands by for a restore brings applications back with no command typed: those with an exec hook, which Velero
// awaits only after the operations, and those of a restore that ended because Velero was restarted.

// note is a hook that appends the host name, which is the pod's name, to a file on the claim.
const note = "hostname >>/data/hooks"

// execHook is a hook of the Restore's spec for an application.
func execHook(a app, command string, change ...func(*velerov1.ExecRestoreHook)) velerov1.RestoreResourceHookSpec {
	exec := &velerov1.ExecRestoreHook{Container: "app", Command: []string{"sh", "-c", command}}
	for _, c := range change {
		c(exec)
	}
	return velerov1.RestoreResourceHookSpec{
		Name: a.name, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name}},
		PostHooks: []velerov1.RestoreResourceHook{{Exec: exec}},
	}
}

// startHooked starts a restore with hooks in its spec, for which Velero's command line has no flags, and returns its name.
func (s *scene) startHooked(hooks ...velerov1.RestoreResourceHookSpec) string {
	s.t.Helper()
	name := s.nextRestore()
	require.NoError(s.t, s.Client().Create(s.t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.VeleroNamespace(), Name: name},
		Spec: velerov1.RestoreSpec{
			BackupName: s.name, IncludedNamespaces: []string{"*"}, Hooks: velerov1.RestoreHooks{Resources: hooks},
		},
	}))
	return name
}

// jobs returns the Jobs of a restore, and jobPods their pods, the oldest first.
func (s *scene) jobs(ctx context.Context, name string) ([]batchv1.Job, error) {
	var list batchv1.JobList
	err := s.Client().List(ctx, &list, client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{velerov1.RestoreNameLabel: name})
	return list.Items, err
}

func (s *scene) jobPods(ctx context.Context, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := s.Client().List(ctx, &list, client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{velerov1.RestoreNameLabel: name},
		client.HasLabels{batchv1.JobNameLabel})
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return list.Items, err
}

// awaitJob waits until the one Job of a restore has ended in a way and returns it with the log of its last pod.
func (s *scene) awaitJob(name string, end batchv1.JobConditionType) (*batchv1.Job, string) {
	s.t.Helper()
	var job batchv1.Job
	s.until(soon, func(ctx context.Context) error {
		jobs, err := s.jobs(ctx, name)
		if err != nil {
			return err
		}
		if len(jobs) != 1 {
			return fmt.Errorf("restore %s has %d Jobs, want one", name, len(jobs))
		}
		job = jobs[0]
		for _, c := range job.Status.Conditions {
			if c.Type == end && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("Job %s is not %s: %+v", job.Name, end, job.Status)
	})
	pods, err := s.jobPods(s.t.Context(), name)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, pods, "a Job that has just ended has its pod")
	clients, err := kubernetes.NewForConfig(s.RESTConfig())
	require.NoError(s.t, err)
	last := pods[len(pods)-1]
	log, err := clients.CoreV1().Pods(last.Namespace).GetLogs(last.Name, &corev1.PodLogOptions{}).DoRaw(s.t.Context())
	require.NoError(s.t, err)
	return &job, string(log)
}

// jobRuns waits until the process in the Job waits for the restore, and returns its pod.
func (s *scene) jobRuns(name string) (pod corev1.Pod) {
	s.t.Helper()
	s.until(soon, func(ctx context.Context) error {
		pods, err := s.jobPods(ctx, name)
		if err != nil {
			return err
		}
		if len(pods) == 0 || pods[len(pods)-1].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the Job of restore %s has no running pod", name)
		}
		pod = pods[len(pods)-1]
		return nil
	})
	return pod
}

// resumedByJob asserts that an application is back, and that the Job was who ended well.
func (s *scene) resumedByJob(name string, apps ...app) string {
	s.t.Helper()
	job, log := s.awaitJob(name, batchv1.JobComplete)
	assert.Equal(s.t, ptr.To[int32](3600), job.Spec.TTLSecondsAfterFinished, "deleted an hour after success")
	assert.True(s.t, metav1.IsControlledBy(job, s.restoreNamed(name)), "deleted with its Restore")
	for _, a := range apps {
		assert.Contains(s.t, log, "resumed", "%s", a.name)
		s.back(name, a)
	}
	return log
}

func (s *scene) restoreNamed(name string) *velerov1.Restore {
	s.t.Helper()
	r := &velerov1.Restore{}
	require.NoError(s.t, s.Client().Get(s.t.Context(), client.ObjectKey{Namespace: s.VeleroNamespace(), Name: name}, r))
	return r
}

// hooked returns the names of the pods of an application in which the hook has left its note, as often as it has.
func (s *scene) hooked(a app) []string {
	s.t.Helper()
	return strings.Fields(s.in(&s.awaitPods(a)[0], "sh", "-c", "cat /data/hooks || true"))
}

// resumedEvent returns the message of the event on a DeploymentConfig that phase two is done with it.
func (s *scene) resumedEvent(a app) string {
	s.t.Helper()
	var list corev1.EventList
	require.NoError(s.t, s.Client().List(s.t.Context(), &list, client.InNamespace(s.ns)))
	for i := range list.Items {
		if list.Items[i].InvolvedObject.Name == a.name && list.Items[i].Reason == postrestore.ResumedReason {
			return list.Items[i].Message
		}
	}
	return ""
}

// jobAfterHooks: a hook of the Restore's spec and one of an annotation, which has two pods to run in. Nobody types a command.
func jobAfterHooks(s *scene) {
	slow := "sleep 3; " + note
	annotation, err := json.Marshal([]string{"sh", "-c", slow})
	require.NoError(s.t, err)
	spec := app{name: "spec", replicas: 1}
	annotated := app{name: "annotated", replicas: 2, annotations: map[string]string{hooks.ExecCommandAnnotation: string(annotation)}}
	s.deploy(spec)
	s.deploy(annotated)
	s.backup(allVolumes)
	s.lose()
	began := time.Now()
	timeline := s.follow(began, spec)
	name := s.startHooked(execHook(spec, slow))
	s.jobRuns(name)
	s.t.Logf("the waiting process: %s", jobMemory(name))
	restored := s.awaitRestore(name)
	s.completed(restored, 2)
	if assert.NotNil(s.t, restored.Status.HookStatus) {
		assert.Equal(s.t, velerov1.HookStatus{HooksAttempted: 3}, *restored.Status.HookStatus)
	}
	jobs, err := s.jobs(s.t.Context(), name)
	require.NoError(s.t, err)
	require.Len(s.t, jobs, 1)
	assert.Contains(s.t, s.details(name), "; then the Job "+s.VeleroNamespace()+"/"+jobs[0].Name+" goes on")

	log := s.resumedByJob(name, spec, annotated)
	s.t.Logf("the Job's log:\n%s", log)
	for _, a := range []app{spec, annotated} {
		assert.ElementsMatch(s.t, s.detachedEver(a), s.hooked(a), "the hook of %s ran once in each restored pod", a.name)
		assert.Equal(s.t, fmt.Sprintf("Resumed after restore %s: back at %s", name, map[int32]string{1: "1 replica", 2: "2 replicas"}[a.replicas]), s.resumedEvent(a))
	}
	s.t.Logf("timeline, in seconds from the creation of the Restore:\n%s", timeline())
	s.t.Logf("requests for the Restore by the Job: %d in %.0f s", s.looksAt(name, began), time.Since(began).Seconds())
}

// jobAfterFailedHook: the hook fails, with onError Fail. The restore has partially failed; the application is back all the same, and the
// table and the event say so.
func jobAfterFailedHook(s *scene) {
	a := app{name: "web", replicas: 1}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	name := s.startHooked(execHook(a, note+"; exit 1", func(h *velerov1.ExecRestoreHook) { h.OnError = velerov1.HookErrorModeFail }))
	restored := s.awaitRestore(name)
	require.Equal(s.t, velerov1.RestorePhasePartiallyFailed, restored.Status.Phase)
	if assert.NotNil(s.t, restored.Status.HookStatus) {
		assert.Equal(s.t, velerov1.HookStatus{HooksAttempted: 1, HooksFailed: 1}, *restored.Status.HookStatus)
	}
	log := s.resumedByJob(name, a)
	assert.Equal(s.t, s.detachedEver(a), s.hooked(a), "it ran once")
	const told = "1 of 1 exec hook of the restore failed"
	assert.Contains(s.t, log, told)
	assert.Contains(s.t, s.resumedEvent(a), told)
}

// jobAfterReadiness: the hook waits until the restored pod is ready, which takes longer than the operations.
func jobAfterReadiness(s *scene) {
	a := app{name: "web", replicas: 1, change: func(pod *corev1.PodTemplateSpec) {
		pod.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 12; touch /tmp/ready; exec sleep 100000"}
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", "/tmp/ready"}}},
		}
	}}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	name := s.startHooked(execHook(a, "cat /tmp/ready && "+note, func(h *velerov1.ExecRestoreHook) { h.WaitForReady = new(true) }))
	s.completed(s.awaitRestore(name), 1)
	s.resumedByJob(name, a)
	assert.Equal(s.t, s.detachedEver(a), s.hooked(a), "it ran once")
}

// jobPodKilled: the pod of the Job is killed while it waits for the restore, and the one that replaces it in the middle of its work.
func jobPodKilled(s *scene) {
	a := app{name: "web", replicas: 1, change: func(pod *corev1.PodTemplateSpec) {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](6) // `sleep` does not hear SIGTERM: time to kill in
	}}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	name := s.startHooked(execHook(a, "sleep 20; "+note))
	kill := func() {
		pod := s.jobRuns(name)
		require.NoError(s.t, s.Client().Delete(s.t.Context(), &pod, client.GracePeriodSeconds(0)))
	}
	kill()
	s.awaitRestore(name)
	s.until(soon, func(ctx context.Context) error {
		pods, err := s.pods(ctx, a)
		if err == nil && (len(pods) != 1 || pods[0].DeletionTimestamp == nil) {
			err = fmt.Errorf("the detached pod of %s is not being deleted", a.name)
		}
		return err
	})
	kill()
	s.resumedByJob(name)
	s.back(name, a)
	assert.Equal(s.t, s.detachedEver(a), s.hooked(a), "it ran once")
}

// jobAfterGoodRestore: nothing waits for the restore's end, so the Job finds nothing to do.
func jobAfterGoodRestore(s *scene) {
	a := app{name: "web", replicas: 1}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	restored := s.restore()
	s.completed(restored, 1)
	log := s.resumedByJob(restored.Name)
	assert.Contains(s.t, log, "Nothing to do: nothing in the cluster is held for restore "+s.VeleroNamespace()+"/"+restored.Name)
	s.back(restored.Name, a)
}

// veleroLostFinalizing: Velero's pod is deleted while the restore finalizes, which is when hooks are waited for. Velero does not
// know of them afterwards, and ends the restore. The application is back; that nobody knows how its hook ended is told.
func veleroLostFinalizing(s *scene) {
	a := app{name: "web", replicas: 1}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	name := s.startHooked(execHook(a, "sleep 30; "+note))
	s.awaitPhase(name, velerov1.RestorePhaseFinalizing)
	s.replaceVelero()
	s.awaitRestore(name)
	log := s.resumedByJob(name, a)
	assert.LessOrEqual(s.t, len(s.hooked(a)), 1, "it has not run twice")
	const told = "whether its exec hook (web) has run to its end is not known"
	assert.Contains(s.t, log, told)
	assert.Contains(s.t, s.resumedEvent(a), told)
}

// follow notes when what happens to the scene's first restore, its Job and an application. It returns what gives the lines so far.
func (s *scene) follow(began time.Time, a app) func() string {
	ctx, cancel := context.WithCancel(s.t.Context())
	var mu sync.Mutex
	var lines []string
	seen := map[string]bool{}
	first := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if line := fmt.Sprintf(format, args...); !seen[line] {
			seen[line] = true
			lines = append(lines, fmt.Sprintf("%6.1f  %s", time.Since(began).Seconds(), line))
		}
	}
	var following sync.WaitGroup
	following.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			s.lookForTimeline(ctx, a, first)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return func() string {
		cancel()
		following.Wait()
		return strings.Join(lines, "\n")
	}
}

func (s *scene) lookForTimeline(ctx context.Context, a app, first func(string, ...any)) {
	name := s.name + "-1"
	r := &velerov1.Restore{}
	if s.Client().Get(ctx, client.ObjectKey{Namespace: s.VeleroNamespace(), Name: name}, r) != nil {
		return // not yet, or no more
	}
	first("restore %s", r.Status.Phase)
	if pods, err := s.jobPods(ctx, name); err == nil {
		for i := range pods {
			first("the Job's pod %s", pods[i].Status.Phase)
		}
	}
	if jobs, err := s.jobs(ctx, name); err == nil && len(jobs) == 1 && jobs[0].Status.Succeeded > 0 {
		first("the Job is complete")
	}
	pods, err := s.pods(ctx, a)
	if err != nil {
		return
	}
	for i := range pods {
		kind := "own"
		if pods[i].Labels[contract.DisconnectedLabel] != "" {
			kind = "detached"
		}
		first("%s: %s pod created", a.name, kind)
		for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady} {
			if hasCondition(&pods[i], condition) {
				first("%s: %s pod %s", a.name, kind, condition)
			}
		}
		if pods[i].DeletionTimestamp != nil {
			first("%s: %s pod is being deleted", a.name, kind)
		}
	}
}

// looksAt counts the requests for the Restore by name, which of the plugin only its Job makes.
func (s *scene) looksAt(name string, since time.Time) int {
	s.t.Helper()
	events, err := s.AuditEvents(since)
	require.NoError(s.t, err)
	n := 0
	for _, e := range events {
		if strings.HasPrefix(e.UserAgent, restore.UserAgent) && e.Verb == "get" && e.Resource == "restores" && e.Name == name {
			n++
		}
	}
	return n
}

// jobMemory returns what the kernel says of the memory of the process in the Job of a restore.
func jobMemory(name string) string {
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is a good one
	for _, process := range processes {
		command, err := os.ReadFile(process)
		if err != nil || !strings.Contains(string(command), "post-restore\x00"+name+"\x00") {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(process), "status"))
		if err != nil {
			continue
		}
		var said []string
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") || strings.HasPrefix(line, "Threads") {
				said = append(said, strings.Join(strings.Fields(line), " "))
			}
		}
		return strings.Join(said, ", ")
	}
	return "not found"
}
