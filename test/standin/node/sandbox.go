package node

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/velero/pkg/restorehelper"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

const (
	// flash is how long a state shows that a kubelet passes through between two of its syncs: ErrImagePull before
	// ImagePullBackOff, Error before CrashLoopBackOff.
	flash = 100 * time.Millisecond

	// deployerContainer is the container of a deployer pod (lifecycle-hook pods have `lifecycle`). It is ended by the
	// stand-in for OpenShift's deployer, which knows when the rollout is done.
	deployerContainer = "deployment"

	exitKilled = 128 + 9 // what a container that was killed at the end of its grace period ends with
)

// sandbox is what a node knows of one pod that is not in the API: which containers run and since when. It is a state
// machine without a clock and without a client: advance brings it up to a moment, report puts it into a PodStatus.
type sandbox struct {
	uid        types.UID
	ip         string
	began      time.Time // volumes are mounted; zero before
	containers map[string]*container
	ending     time.Time // of a deleted pod: when its containers end
	grace      int64     // of a deleted pod, in seconds, as last seen
	killed     bool      // the grace period is too short for the containers to end by themselves
	stopped    bool      // no container runs, and none will
	foreign    bool      // someone else gave the pod a final phase, which is theirs to keep
	ended      chan struct{}
	uses       []*Use
}

type container struct {
	waiting  time.Time // since when its image cannot be pulled
	started  time.Time // of this run
	finished time.Time // of this run; zero while it runs
	exit     int32
	restarts int32
	last     *corev1.ContainerStateTerminated // the run before
}

// facts are what a pod's progress depends on outside of the pod.
type facts struct {
	mounted  bool // all its claims are bound
	restored bool // all PodVolumeRestores that its restore-wait container waits for are Completed
}

func newSandbox(pod *corev1.Pod, ip string, now time.Time) *sandbox {
	s := &sandbox{uid: pod.UID, ip: ip, containers: map[string]*container{}, ended: make(chan struct{})}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		s.containers[c.Name] = &container{}
	}
	if pod.Status.Phase == corev1.PodRunning { // the node was restarted: its containers lived on
		s.began = now
		for _, c := range pod.Spec.InitContainers {
			s.containers[c.Name].started = now
			if !isSidecar(&c) {
				s.containers[c.Name].finished = now
			}
		}
		for _, c := range pod.Spec.Containers {
			s.containers[c.Name].started = now
		}
	}
	return s
}

// plan says what becomes of a container once it is started.
type plan struct {
	unpullable bool
	endless    bool
	takes      time.Duration
	exit       int32
	again      func(exit int32) bool // whether it is started again after it ended so
}

var (
	exitRE  = regexp.MustCompile(`\bexit +(\d+)\b`)
	falseRE = regexp.MustCompile(`\bfalse\b`)
	sleepRE = regexp.MustCompile(`\bsleep +(\d+(?:\.\d+)?)\b`)
)

// outcome reads from a command how long it takes and what it ends with.
func outcome(command []string) (takes time.Duration, exit int32) {
	text := strings.Join(command, " ")
	if m := sleepRE.FindStringSubmatch(text); m != nil {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err == nil {
			takes = time.Duration(seconds * float64(time.Second))
		}
	}
	if m := exitRE.FindStringSubmatch(text); m != nil {
		if code, err := strconv.ParseUint(m[1], 10, 8); err == nil {
			return takes, int32(code)
		}
	}
	if falseRE.MatchString(text) {
		exit = 1
	}
	return takes, exit
}

func planFor(pod *corev1.Pod, c *corev1.Container, init bool, f facts, o Options) plan {
	takes, exit := outcome(slices.Concat(c.Command, c.Args))
	p := plan{unpullable: strings.Contains(c.Image, "missing"), takes: takes, exit: exit}
	onFailure := func(exit int32) bool { return exit != 0 }
	never := func(int32) bool { return false }
	switch {
	case init && isSidecar(c):
		p.endless, p.takes = exit == 0, takes+o.Complete
		p.again = func(int32) bool { return true }
	case init:
		p.takes, p.again = takes+o.Init, onFailure
		if c.Name == restorehelper.WaitInitContainer {
			p = plan{unpullable: p.unpullable, endless: !f.restored, again: onFailure}
		}
		if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
			p.again = never
		}
	case pod.Labels[contract.DeployerPodForLabel] != "" && c.Name == deployerContainer:
		p.endless, p.again = true, never
	default:
		p.takes += o.Complete
		switch pod.Spec.RestartPolicy {
		case corev1.RestartPolicyNever:
			p.again = never
		case corev1.RestartPolicyOnFailure:
			p.again = onFailure
		default:
			p.endless = exit == 0
			p.again = func(int32) bool { return true }
		}
	}
	return p
}

// isSidecar reports whether an init container runs beside the main ones.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// alarm is the next moment at which something happens by itself; zero if nothing does.
type alarm struct{ at time.Time }

func (a *alarm) set(t time.Time) {
	if a.at.IsZero() || t.Before(a.at) {
		a.at = t
	}
}

// advance brings the sandbox up to now and returns when to look again; zero: only when the pod or the facts change.
func (s *sandbox) advance(pod *corev1.Pod, f facts, o Options, now time.Time) time.Time {
	var next alarm
	s.foreign = s.foreign || !s.stopped && final(pod.Status.Phase)
	if !pod.DeletionTimestamp.IsZero() {
		s.terminate(pod, o, now, &next)
	} else if !s.stopped && !s.foreign {
		s.progress(pod, f, o, now, &next)
	}
	if s.foreign {
		s.stop(now, 0)
	}
	return next.at
}

func final(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// terminate waits for the containers of a deleted pod to end, for as long as its grace period allows.
func (s *sandbox) terminate(pod *corev1.Pod, o Options, now time.Time, next *alarm) {
	if s.stopped {
		return
	}
	grace := ptr.Deref(pod.DeletionGracePeriodSeconds, 0)
	if s.ending.IsZero() || grace < s.grace { // a second delete may shorten it
		takes, within := duration(pod, TerminatesAnnotation, o.Terminate), time.Duration(grace)*time.Second
		if !s.running() {
			takes = 0
		}
		s.killed, s.grace = takes > within, grace
		s.ending = now.Add(min(takes, within))
	}
	if now.Before(s.ending) {
		next.set(s.ending)
		return
	}
	exit := int32(0)
	if s.killed {
		exit = exitKilled
	}
	s.stop(now, exit)
}

func (s *sandbox) running() bool {
	for _, c := range s.containers {
		if c.running() {
			return true
		}
	}
	return false
}

// stop ends every container that runs.
func (s *sandbox) stop(now time.Time, exit int32) {
	if s.stopped {
		return
	}
	s.stopped = true
	close(s.ended)
	for _, c := range s.containers {
		if c.running() {
			c.finished, c.exit = now, exit
		}
	}
	for _, u := range s.uses {
		u.To = now
	}
}

// progress starts and ends containers in their order.
func (s *sandbox) progress(pod *corev1.Pod, f facts, o Options, now time.Time, next *alarm) {
	if s.began.IsZero() {
		if !f.mounted {
			return
		}
		s.began = now
	}
	if start := s.began.Add(duration(pod, StartsAnnotation, o.Start)); now.Before(start) {
		next.set(start)
		return
	}
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		c, p := s.containers[spec.Name], planFor(pod, spec, true, f, o)
		c.run(p, o, now, next)
		if isSidecar(spec) && !c.started.IsZero() || c.succeeded() {
			continue
		}
		if c.over(p) {
			s.stop(now, 0)
		}
		return
	}
	over := true
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		c, p := s.containers[spec.Name], planFor(pod, spec, false, f, o)
		c.run(p, o, now, next)
		over = over && c.over(p)
	}
	if over {
		s.stop(now, 0)
	}
}

func (c *container) running() bool   { return !c.started.IsZero() && c.finished.IsZero() }
func (c *container) succeeded() bool { return !c.finished.IsZero() && c.exit == 0 }
func (c *container) over(p plan) bool {
	return !c.finished.IsZero() && !p.again(c.exit)
}

// run brings a container whose turn it is up to now.
func (c *container) run(p plan, o Options, now time.Time, next *alarm) {
	if c.started.IsZero() {
		if p.unpullable {
			c.pull(now, next)
			return
		}
		c.started = now
	}
	if c.running() && !p.endless {
		if end := c.started.Add(p.takes); now.Before(end) {
			next.set(end)
		} else {
			c.finished, c.exit = now, p.exit
		}
	}
	if !c.finished.IsZero() && p.again(c.exit) {
		c.restart(p, o, now, next)
	}
}

// pull fails.
func (c *container) pull(now time.Time, next *alarm) {
	if c.waiting.IsZero() {
		c.waiting = now
	}
	if backoff := c.waiting.Add(flash); now.Before(backoff) {
		next.set(backoff)
	}
}

// restart starts a container that has ended once more, when it is time. A kubelet does so at once the first time and backs
// off from then on.
func (c *container) restart(p plan, o Options, now time.Time, next *alarm) {
	again := c.finished.Add(flash)
	if c.restarts > 0 {
		if now.Before(again) {
			next.set(again) // Error becomes CrashLoopBackOff
		}
		again = c.finished.Add(max(o.Backoff, flash))
	}
	if now.Before(again) {
		next.set(again)
		return
	}
	c.last = c.terminated()
	c.started, c.finished, c.exit = now, time.Time{}, 0
	c.restarts++
	if !p.endless {
		next.set(now.Add(max(p.takes, time.Millisecond)))
	}
}

func (c *container) terminated() *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: c.exit, Reason: "Completed", StartedAt: stamp(c.started), FinishedAt: stamp(c.finished),
	}
	if c.exit != 0 {
		t.Reason = "Error"
	}
	return t
}

// report writes what the sandbox is into the status of its pod, in the words of kubelet 1.34
// (pkg/kubelet/kubelet_pods.go, pkg/kubelet/status/generate.go). Fields and conditions of others stay as they are.
func (s *sandbox) report(pod *corev1.Pod, f facts, o Options, hostIP string, now time.Time) {
	if s.foreign {
		return
	}
	status := &pod.Status
	if status.StartTime == nil {
		status.StartTime = new(stamp(now))
	}
	status.HostIP, status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	if !s.began.IsZero() {
		status.PodIP, status.PodIPs = s.ip, []corev1.PodIP{{IP: s.ip}}
	}
	status.InitContainerStatuses = s.statuses(pod, pod.Spec.InitContainers, true, f, o, now)
	status.ContainerStatuses = s.statuses(pod, pod.Spec.Containers, false, f, o, now)
	status.Phase = s.phase(pod, f, o)

	if s.stopped && !pod.DeletionTimestamp.IsZero() && !final(status.Phase) {
		status.Phase = corev1.PodFailed // containers that never ran
	}
	for _, c := range s.conditions(pod) {
		setCondition(status, c, now)
	}
}

func (s *sandbox) statuses(pod *corev1.Pod, specs []corev1.Container, init bool, f facts, o Options, now time.Time) []corev1.ContainerStatus {
	all := make([]corev1.ContainerStatus, 0, len(specs))
	for i := range specs {
		spec := &specs[i]
		c, p := s.containers[spec.Name], planFor(pod, spec, init, f, o)
		st := corev1.ContainerStatus{
			Name: spec.Name, Image: spec.Image, RestartCount: c.restarts, Started: new(c.running()),
			LastTerminationState: corev1.ContainerState{Terminated: c.last},
		}
		if !c.started.IsZero() {
			st.ImageID = "standin://" + spec.Image
			st.ContainerID = fmt.Sprintf("standin://%s/%s/%d", s.uid, spec.Name, c.restarts)
		}
		switch {
		case c.running():
			st.State.Running = &corev1.ContainerStateRunning{StartedAt: stamp(c.started)}
			st.Ready = isSidecar(spec) || !init && pod.Annotations[ReadyAnnotation] != "false"
		case c.finished.IsZero():
			st.State.Waiting = c.waitingState(spec, len(pod.Spec.InitContainers) > 0, now)
		case !s.stopped && c.backsOff(p, now):
			st.LastTerminationState.Terminated = c.terminated()
			st.State.Waiting = &corev1.ContainerStateWaiting{
				Reason:  "CrashLoopBackOff",
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", o.Backoff, spec.Name, pod.Name, pod.Namespace, pod.UID),
			}
		default:
			st.State.Terminated = c.terminated()
			st.State.Terminated.ContainerID = st.ContainerID
			st.Ready = init && c.exit == 0
		}
		all = append(all, st)
	}
	return all
}

// waitingState says why a container has not been started yet.
func (c *container) waitingState(spec *corev1.Container, inits bool, now time.Time) *corev1.ContainerStateWaiting {
	switch {
	case c.waiting.IsZero() && inits:
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	case c.waiting.IsZero():
		return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	case now.Before(c.waiting.Add(flash)):
		return &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "manifest for " + spec.Image + " not found"}
	}
	return &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q", spec.Image)}
}

// backsOff reports whether a container that ended waits for more than the first restart.
func (c *container) backsOff(p plan, now time.Time) bool {
	return c.restarts > 0 && p.again(c.exit) && !now.Before(c.finished.Add(flash))
}

// phase is kubelet's getPhase: Pending while an init container or the first run of a container is outstanding.
func (s *sandbox) phase(pod *corev1.Pod, f facts, o Options) corev1.PodPhase {
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		c := s.containers[spec.Name]
		if c.succeeded() || isSidecar(spec) && !c.started.IsZero() {
			continue
		}
		if c.over(planFor(pod, spec, true, f, o)) {
			return corev1.PodFailed
		}
		return corev1.PodPending
	}
	failed := false
	for i := range pod.Spec.Containers {
		c := s.containers[pod.Spec.Containers[i].Name]
		if c.started.IsZero() {
			return corev1.PodPending
		}
		failed = failed || c.exit != 0
	}
	switch {
	case !s.stopped: // progress stops the sandbox when the last container is over
		return corev1.PodRunning
	case failed:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// conditions derives the pod conditions that a kubelet owns from the statuses already in the pod.
func (s *sandbox) conditions(pod *corev1.Pod) []corev1.PodCondition {
	status := &pod.Status
	condition := func(t corev1.PodConditionType, ok bool, reason, message string) corev1.PodCondition {
		if ok {
			return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue}
		}
		return corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	var incomplete, unready []string
	for _, c := range status.InitContainerStatuses {
		if !c.Ready {
			incomplete = append(incomplete, c.Name)
		}
	}
	for _, c := range status.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	initialized := condition(corev1.PodInitialized, len(incomplete) == 0,
		"ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %v", incomplete))
	reason, message := "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", unready)
	switch status.Phase {
	case corev1.PodSucceeded:
		reason, message = "PodCompleted", ""
		initialized = corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, Reason: "PodCompleted"}
	case corev1.PodFailed:
		reason, message = "PodFailed", ""
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
	}
	return []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, !s.began.IsZero() && !s.stopped, "", ""),
		initialized,
		condition(corev1.PodReady, len(unready) == 0 && len(incomplete) == 0, reason, message),
		condition(corev1.ContainersReady, len(unready) == 0 && len(incomplete) == 0, reason, message),
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
}

// setCondition adds or replaces a condition; the time of its transition changes only with its status.
func setCondition(status *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = stamp(now)
	i := slices.IndexFunc(status.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, c)
		return
	}
	old := status.Conditions[i]
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.ObservedGeneration, c.LastProbeTime = old.ObservedGeneration, old.LastProbeTime
	status.Conditions[i] = c
}

// stamp is a time as the API keeps it, in whole seconds, so that what was written equals what is read.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// duration is the value of a pod's annotation, or def where there is none that can be read.
func duration(pod *corev1.Pod, annotation string, def time.Duration) time.Duration {
	if d, err := time.ParseDuration(pod.Annotations[annotation]); err == nil && d >= 0 {
		return d
	}
	return def
}
