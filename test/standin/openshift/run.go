package openshift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// UserAgent is how the stand-in's requests are told apart in an API server's audit log.
	UserAgent = "openshift-standin"
	// resyncPeriod is after what time every object is looked at again though nothing has happened to it.
	resyncPeriod = 10 * time.Minute
	// deployerServiceAccount is what deployer pods run as.
	deployerServiceAccount = "deployer"
	// finishTimeout bounds the writing of a deployer pod's end.
	finishTimeout = 10 * time.Second
)

// Options says how the stand-in runs. The zero value is right for a cluster with a node that follows the seam described at
// the package.
type Options struct {
	// Log is told what the stand-in does, in detail at level Debug; nil: nobody.
	Log *slog.Logger
	// WithoutNode makes deployer pods run although no node takes them: the stand-in makes them Running itself. Hook pods and
	// the pods of a ReplicationController then stay Pending, so only rollouts to 0 replicas and without hooks come to an end.
	WithoutNode bool
	// DeployerImage is the image of deployer pods; empty: "openshift-deployer-standin". No code of it is relied upon, unless
	// DeployersInPods.
	DeployerImage string
	// DeployersInPods leaves the work to the deployer pods, as OpenShift does: for a cluster with a real node, where nobody but
	// kubelet can say how a pod ended. DeployerImage then runs Deploy, see cmd/deployer.
	DeployersInPods bool
	// DeployerPoll is how often a deployer asks for the replicas after it has scaled; 0: every second, like the original.
	DeployerPoll time.Duration
}

// Run stands in for OpenShift's DeploymentConfig controller, deployer controller and deployer processes in the cluster of
// cfg, until ctx ends; then it returns nil. It may be started and ended at any time: all state is in the cluster, and a
// deployer whose work was interrupted by the end of Run does it again.
//
// cfg needs the rights of an administrator. An error means that the stand-in never ran, or stopped: no DeploymentConfig API
// (see CRDs), or no way to read the cluster.
func Run(ctx context.Context, cfg *rest.Config, opts Options) error {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.DeployerImage == "" {
		opts.DeployerImage = "openshift-deployer-standin"
	}
	if opts.DeployerPoll == 0 {
		opts.DeployerPoll = time.Second
	}
	c, err := connect(cfg)
	if err != nil {
		return err
	}
	if _, err := c.api.RESTMapper().RESTMapping(controllerKind.GroupKind(), controllerKind.Version); err != nil {
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the cluster has no DeploymentConfig API, create the CRDs of this package first: %w", err)
		}
		return fmt.Errorf("look for the DeploymentConfig API: %w", err)
	}
	resync := resyncPeriod
	informers, err := cache.New(c.config, cache.Options{Scheme: c.scheme, Mapper: c.api.RESTMapper(), SyncPeriod: &resync})
	if err != nil {
		return fmt.Errorf("make a cache: %w", err)
	}
	broadcaster := c.broadcast(ctx)
	defer broadcaster.Shutdown()
	recorder := func(component string) record.EventRecorder {
		return broadcaster.NewRecorder(c.scheme, corev1.EventSource{Component: component})
	}
	if opts.DeployersInPods {
		if err := ensureDeployerRole(ctx, c.api); err != nil {
			return err
		}
	}

	s := &standin{opts: opts, api: c.api, informers: informers, recorder: recorder}
	return s.run(ctx)
}

// A connection is what the stand-in reads and writes a cluster with.
type connection struct {
	config *rest.Config
	scheme *runtime.Scheme
	api    client.Client
	kube   kubernetes.Interface // for events
}

func connect(cfg *rest.Config) (*connection, error) {
	c := &connection{config: rest.CopyConfig(cfg), scheme: runtime.NewScheme()}
	c.config.UserAgent = UserAgent
	c.config.QPS = -1 // no limit of ours: the API server has its own

	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, ocpappsv1.Install} {
		if err := add(c.scheme); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	var err error
	if c.api, err = client.New(c.config, client.Options{Scheme: c.scheme}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if c.kube, err = kubernetes.NewForConfig(c.config); err != nil {
		return nil, fmt.Errorf("make a client for events: %w", err)
	}
	return c, nil
}

// broadcast starts what writes events, until it is shut down.
func (c *connection) broadcast(ctx context.Context) record.EventBroadcaster {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: c.kube.CoreV1().Events("")})
	return broadcaster
}

// standin holds together the controllers of one Run.
type standin struct {
	opts      Options
	api       client.Client
	informers cache.Cache
	recorder  func(component string) record.EventRecorder
}

func (s *standin) run(ctx context.Context) error {
	configs := newLoop("deploymentconfig", s.opts.Log)
	configs.look = (&configController{api: s.api, cached: s.informers, events: s.recorder("deploymentconfig-controller")}).look

	rollouts := newLoop("deployer", s.opts.Log)
	controller := &deployerController{api: s.api, cached: s.informers, events: s.recorder("deployer-controller"), image: s.opts.DeployerImage}
	rollouts.look, rollouts.gaveUp = controller.look, controller.gaveUp

	processes := newLoop("deployer-process", s.opts.Log)
	host := &processHost{standin: s, ctx: ctx, running: map[types.UID]context.CancelFunc{}}
	processes.look = host.look
	if s.opts.DeployersInPods {
		processes.look = func(context.Context, types.NamespacedName, bool) error { return nil }
	}

	accounts := newLoop("serviceaccount", s.opts.Log)
	accounts.look = s.ensureServiceAccount

	if err := s.wire(ctx, configs, rollouts, processes, accounts); err != nil {
		return err
	}
	// The cache is stopped last, or looks that are under way would wait on it.
	cacheCtx, stopCache := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCache()
	cacheEnded := make(chan error, 1)
	go func() { cacheEnded <- s.informers.Start(cacheCtx) }()
	if !s.informers.WaitForCacheSync(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		return errors.New("the cache could not be filled")
	}
	s.opts.Log.Info("the stand-in for OpenShift's DeploymentConfig and deployer controllers runs")
	var wg sync.WaitGroup
	for _, l := range []*loop{configs, rollouts, processes, accounts} {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
	host.wait()
	stopCache()
	return <-cacheEnded
}

// wire says which events lead to a look at what. It is deliberately as sparing as the original: a ReplicationController
// that appears, for one, does not make the DeploymentConfig controller look; its first change does.
func (s *standin) wire(ctx context.Context, configs, rollouts, processes, accounts *loop) error {
	configOf := func(rc *corev1.ReplicationController) {
		if name := rc.Annotations[ocpappsv1.DeploymentConfigAnnotation]; name != "" {
			configs.add(rc.Namespace, name)
		}
	}
	rolloutOf := func(pod *corev1.Pod) {
		if name := pod.Annotations[ocpappsv1.DeploymentAnnotation]; name != "" {
			rollouts.add(pod.Namespace, name)
		}
	}
	process := func(pod *corev1.Pod) {
		if isDeployerPod(pod) {
			processes.addObject(pod)
		}
	}
	rollout := func(rc *corev1.ReplicationController) {
		if _, ok := rc.Annotations[ocpappsv1.DeploymentConfigAnnotation]; ok {
			rollouts.addObject(rc)
		}
	}
	sources := []struct {
		of       client.Object
		handlers toolscache.ResourceEventHandler
	}{
		{&ocpappsv1.DeploymentConfig{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { on(obj, func(dc *ocpappsv1.DeploymentConfig) { configs.addObject(dc) }) },
			UpdateFunc: func(_, obj any) { on(obj, func(dc *ocpappsv1.DeploymentConfig) { configs.addObject(dc) }) },
			DeleteFunc: func(obj any) { on(obj, func(dc *ocpappsv1.DeploymentConfig) { configs.addObject(dc) }) },
		}},
		{&corev1.ReplicationController{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { on(obj, rollout) },
			UpdateFunc: func(old, obj any) {
				if changed(old, obj) {
					on(obj, configOf)
				}
				on(obj, rollout)
			},
			DeleteFunc: func(obj any) { on(obj, configOf) },
		}},
		{&corev1.Pod{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { on(obj, process) },
			UpdateFunc: func(old, obj any) {
				if changed(old, obj) {
					on(obj, rolloutOf)
				}
				on(obj, process)
			},
			DeleteFunc: func(obj any) { on(obj, rolloutOf); on(obj, process) },
		}},
		{&corev1.Namespace{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { on(obj, func(ns *corev1.Namespace) { accounts.add("", ns.Name) }) },
		}},
		{&corev1.ServiceAccount{}, toolscache.ResourceEventHandlerFuncs{
			DeleteFunc: func(obj any) {
				on(obj, func(account *corev1.ServiceAccount) { accounts.add("", account.Namespace) })
			},
		}},
	}
	for _, source := range sources {
		informer, err := s.informers.GetInformer(ctx, source.of, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", source.of, err)
		}
		if _, err := informer.AddEventHandler(source.handlers); err != nil {
			return fmt.Errorf("watch %T: %w", source.of, err)
		}
	}
	return nil
}

// on calls f with the object of an event, also where that is the last known state of one that has gone.
func on[T client.Object](obj any, f func(T)) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if typed, ok := obj.(T); ok {
		f(typed)
	}
}

// changed says whether an update event is more than the periodic repetition.
func changed(old, obj any) bool {
	a, okA := old.(client.Object)
	b, okB := obj.(client.Object)
	return okA && okB && a.GetResourceVersion() != b.GetResourceVersion()
}

// ensureServiceAccount sees to the ServiceAccount of deployer pods, as OpenShift does in each namespace.
func (s *standin) ensureServiceAccount(ctx context.Context, key types.NamespacedName, _ bool) error {
	ns := &corev1.Namespace{}
	if err := s.informers.Get(ctx, key, ns); err != nil {
		return client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp != nil {
		return nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: deployerServiceAccount}}
	if err := s.api.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ServiceAccount %s/%s: %w", ns.Name, deployerServiceAccount, err)
	}
	if s.opts.DeployersInPods {
		return ensureDeployerBinding(ctx, s.api, ns.Name)
	}
	return nil
}

// isDeployerPod says whether the work in pod is done by this package.
func isDeployerPod(pod *corev1.Pod) bool {
	_, labelled := pod.Labels[ocpappsv1.DeployerPodForDeploymentLabel]
	return labelled && len(pod.Spec.Containers) == 1 && pod.Spec.Containers[0].Name == deployerContainer
}

// processHost runs the deployer processes: one for each deployer pod that is Running, from then until it ends or its pod is
// deleted.
type processHost struct {
	*standin
	ctx context.Context //nolint:containedctx // the lifetime of the processes, which outlast the look that starts them

	mu      sync.Mutex
	running map[types.UID]context.CancelFunc
	wg      sync.WaitGroup
}

// look starts or stops the process of the deployer pod of that name.
func (h *processHost) look(ctx context.Context, key types.NamespacedName, _ bool) error {
	pod := &corev1.Pod{}
	if err := h.informers.Get(ctx, key, pod); apierrors.IsNotFound(err) {
		h.stopGone(ctx)
		return nil
	} else if err != nil {
		return fmt.Errorf("get pod %s: %w", key, err)
	}
	if pod.DeletionTimestamp != nil {
		h.stop(pod.UID)
		return nil
	}
	if pod.Status.Phase == corev1.PodPending && h.opts.WithoutNode {
		before := pod.DeepCopy()
		now := metav1.Now()
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
		if err := client.IgnoreNotFound(h.api.Status().Patch(ctx, pod, client.MergeFrom(before))); err != nil {
			return fmt.Errorf("make deployer pod %s Running: %w", key, err)
		}
		return nil
	}
	if pod.Status.Phase == corev1.PodRunning {
		h.start(pod)
	}
	return nil
}

func (h *processHost) start(pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.running[pod.UID]; ok || h.ctx.Err() != nil {
		return
	}
	deadline := time.Duration(maxRolloutSeconds) * time.Second
	if pod.Spec.ActiveDeadlineSeconds != nil {
		deadline = time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second
	}
	started := metav1.Now()
	if pod.Status.StartTime != nil {
		started = *pod.Status.StartTime
	}
	ctx, cancel := context.WithDeadline(h.ctx, started.Add(deadline))
	h.running[pod.UID] = cancel
	h.wg.Go(func() {
		defer cancel()
		h.runProcess(ctx, pod, started)
	})
}

// runProcess does the work of the deployer in pod and writes the pod's end: also that of a deleted pod, whose deployer is
// killed and so Failed, but not when Run itself ends. The pod stays in h.running, so that a late event of it does not start
// its deployer again; stopGone clears it out.
func (h *processHost) runProcess(ctx context.Context, pod *corev1.Pod, started metav1.Time) {
	log := h.opts.Log.With("pod", pod.Namespace+"/"+pod.Name)
	d := &deployer{api: h.api, events: h.recorder(pod.Name), poll: h.opts.DeployerPoll}
	err := d.work(ctx, pod)
	if h.ctx.Err() != nil {
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		err = errors.New("signal: terminated")
	}
	log.Info("deployer ended", "error", err)
	writeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := d.finish(writeCtx, pod, started, err); err != nil {
		log.Error("the deployer pod does not show its end", "error", err)
	}
}

func (h *processHost) stop(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel, ok := h.running[uid]; ok {
		cancel()
	}
}

// stopGone stops the processes of pods that no longer exist.
func (h *processHost) stopGone(ctx context.Context) {
	var list corev1.PodList
	if err := h.informers.List(ctx, &list, client.HasLabels{ocpappsv1.DeployerPodForDeploymentLabel}); err != nil {
		return // the next event of any deployer pod leads here again
	}
	exists := make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		exists[list.Items[i].UID] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, cancel := range h.running {
		if !exists[uid] {
			cancel()
			delete(h.running, uid)
		}
	}
}

func (h *processHost) wait() { h.wg.Wait() }
