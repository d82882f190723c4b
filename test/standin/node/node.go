// Package node is a STAND-IN for one node of a cluster: its kubelet, the scheduler, a provisioner of volumes and Velero's
// node-agent. It lets a test bed that has a real kube-apiserver, kube-controller-manager and Velero server, but no
// container runtime, take pods through their life as a real node would, in milliseconds and without root.
//
// What it is: the API side of a node. It writes the same status fields, in the same order, as kubelet 1.34 and
// Velero 1.18's node-agent do, because those are what controllers, Velero's server and our plugin decide on. What it is
// not: nothing is executed, pulled, mounted or copied. In place of the files of a volume it keeps one string, its
// contents, that a PodVolumeBackup copies and a PodVolumeRestore writes back.
//
// The seam is [Run]: a bed with a real node simply does not call it.
//
// What a test can say through the objects themselves:
//   - an image whose name contains "missing" cannot be pulled;
//   - a container whose command or arguments contain "exit N" or "false" ends with that code, "sleep N" takes N seconds;
//   - the annotations [ReadyAnnotation], [StartsAnnotation] and [TerminatesAnnotation] on a pod.
//
// Not simulated, as nothing here needs it: resources, taints, affinity between pods, probes, lifecycle handlers of
// containers, activeDeadlineSeconds, readiness gates, a second node, termination messages.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

const (
	// DefaultName is the name of the Node object.
	DefaultName = "standin-node"

	// ReadyAnnotation on a pod: "false" keeps its running containers from being ready. It may change at any time.
	ReadyAnnotation = "standin.test/ready"
	// StartsAnnotation on a pod is a Go duration that replaces Options.Start.
	StartsAnnotation = "standin.test/starts"
	// TerminatesAnnotation on a pod is a Go duration that replaces Options.Terminate.
	TerminatesAnnotation = "standin.test/terminates"

	// heartbeat is how often lease and status of the Node are renewed. kube-controller-manager takes a node for lost
	// after 50 s (--node-monitor-grace-period).
	heartbeat = 10 * time.Second
	// startTimeout bounds what Run waits for.
	startTimeout = time.Minute
	// writeTimeout bounds one pass of a reconciler, and so each of its API calls.
	writeTimeout = 15 * time.Second
)

// Options says what the node is called and how long things take on it. The zero value is usable: durations of 0 stand
// for the default given; use a nanosecond for "at once".
type Options struct {
	// Name of the Node object; DefaultName.
	Name string
	// Labels are added to those every kubelet sets (kubernetes.io/hostname, os, arch).
	Labels map[string]string
	// VeleroNamespace is where Velero's server lives. The CRDs of PodVolumeBackup and PodVolumeRestore must be, or
	// become, served within a minute. Empty: no node-agent.
	VeleroNamespace string

	// Start is the time from a pod's arrival on the node to the start of its first container; 100 ms.
	Start time.Duration
	// Init is how long an init container runs; 50 ms. Velero's restore-wait runs for as long as its volumes need.
	Init time.Duration
	// Complete is how long the containers run that end by themselves; 100 ms.
	Complete time.Duration
	// Terminate is how long the containers of a deleted pod take to end; 200 ms. Never longer than the grace period.
	Terminate time.Duration
	// Backoff is the pause before a failed container is started again (kubelet: 10 s and more); 1 s.
	Backoff time.Duration
	// Backup and Restore are how long a PodVolumeBackup and a PodVolumeRestore are InProgress; 100 ms and 200 ms.
	Backup, Restore time.Duration

	// Log receives what the controllers report; nil drops it.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = DefaultName
	}
	for d, def := range map[*time.Duration]time.Duration{
		&o.Start:     100 * time.Millisecond,
		&o.Init:      50 * time.Millisecond,
		&o.Complete:  100 * time.Millisecond,
		&o.Terminate: 200 * time.Millisecond,
		&o.Backoff:   time.Second,
		&o.Backup:    100 * time.Millisecond,
		&o.Restore:   200 * time.Millisecond,
	} {
		if *d == 0 {
			*d = def
		}
	}
	return o
}

// Node is a running stand-in. All methods may be called from any goroutine.
type Node struct {
	opts   Options
	client client.Client // reads from the cache, writes to the API server
	reader client.Reader // reads from the API server
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of the manager; read after done is closed

	mu        sync.Mutex // guards what follows
	sandboxes map[types.NamespacedName]*sandbox
	lastIP    uint16
	contents  map[string]string // by volume key, see volumeKey
	uses      map[types.NamespacedName][]*Use
	execs     []*Exec
	transfers map[types.UID]time.Time // when a PodVolumeBackup or PodVolumeRestore became InProgress
	controls  map[types.NamespacedName]control
}

// Run starts a node against the API server of cfg and returns once the Node object is Ready and its controllers work.
// The node lives until ctx is done or [Node.Stop] is called; it leaves its objects behind, as a machine that is switched
// off does. At most one node may run per API server and name; any number of API servers can be served by one process.
func Run(ctx context.Context, cfg *rest.Config, opts Options) (*Node, error) {
	opts = opts.withDefaults()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, velerov1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme of stand-in node %s: %w", opts.Name, err)
		}
	}
	cfg = rest.AddUserAgent(cfg, "standin-node")
	cfg.QPS = -1 // no client-side limit: a kubelet's share of a test must not depend on how many pods the test has

	handler := slog.DiscardHandler // logr.Discard would be taken for "not set"
	if opts.Log != nil {
		handler = opts.Log.Handler()
	}
	mgr, err := manager.New(cfg, manager.Options{
		Scheme:                 scheme,
		Logger:                 logr.FromSlogHandler(handler),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  cacheOptions(opts),
		Controller: config.Controller{
			SkipNameValidation:      new(true), // several nodes in one process
			MaxConcurrentReconciles: 8,
			ReconciliationTimeout:   writeTimeout,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare stand-in node %s: %w", opts.Name, err)
	}

	n := &Node{
		opts:      opts,
		client:    mgr.GetClient(),
		reader:    mgr.GetAPIReader(),
		done:      make(chan struct{}),
		sandboxes: map[types.NamespacedName]*sandbox{},
		contents:  map[string]string{},
		uses:      map[types.NamespacedName][]*Use{},
		transfers: map[types.UID]time.Time{},
		controls:  map[types.NamespacedName]control{},
	}
	startCtx, cancelStart := context.WithTimeout(ctx, startTimeout)
	defer cancelStart()
	if err := n.setup(startCtx, mgr); err != nil {
		return nil, fmt.Errorf("set up stand-in node %s: %w", opts.Name, err)
	}

	ctx, n.cancel = context.WithCancel(ctx)
	go func() {
		defer close(n.done)
		n.err = mgr.Start(ctx)
		cancelStart() // nothing to wait for any more
	}()
	if !mgr.GetCache().WaitForCacheSync(startCtx) {
		return nil, errors.Join(fmt.Errorf("start stand-in node %s: its caches did not fill within %s", opts.Name, startTimeout), n.Stop())
	}
	return n, nil
}

// setup registers every concern with the manager and brings the Node object up.
func (n *Node) setup(ctx context.Context, mgr manager.Manager) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for exec requests: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener has a TCP address

	steps := []func() error{
		func() error { return mgr.Add(&execServer{node: n, listener: listener}) },
		func() error { return n.createStorageClasses(ctx) },
		func() error { return n.beat(ctx, port) },
		func() error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				wait.UntilWithContext(ctx, func(ctx context.Context) {
					ctx, cancel := context.WithTimeout(ctx, writeTimeout)
					defer cancel()
					if err := n.beat(ctx, port); err != nil && ctx.Err() == nil {
						mgr.GetLogger().Error(err, "heartbeat") // the next one may get through
					}
				}, heartbeat)
				return nil
			}))
		},
		func() error { return n.addScheduler(mgr) },
		func() error { return n.addProvisioner(mgr) },
		func() error { return n.addKubelet(mgr) },
		func() error { return n.addNodeAgent(ctx, mgr) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	return nil
}

// Stop ends the node and waits until it has ended. It returns what ended it before, if anything did.
func (n *Node) Stop() error {
	n.cancel()
	<-n.done // bounded by the manager's graceful shutdown timeout
	if n.err != nil {
		return fmt.Errorf("stand-in node %s: %w", n.opts.Name, n.err)
	}
	return nil
}

// Name is the name of the Node object.
func (n *Node) Name() string { return n.opts.Name }

func cacheOptions(opts Options) cache.Options {
	var o cache.Options
	if opts.VeleroNamespace != "" {
		inVelero := cache.ByObject{Namespaces: map[string]cache.Config{opts.VeleroNamespace: {}}}
		o.ByObject = map[client.Object]cache.ByObject{
			&velerov1.PodVolumeBackup{}:  inVelero,
			&velerov1.PodVolumeRestore{}: inVelero,
		}
	}
	return o
}

// beat creates or refreshes the Node and its Lease, as a kubelet does every few seconds.
func (n *Node) beat(ctx context.Context, port int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.opts.Name, Labels: map[string]string{
		corev1.LabelHostname:   n.opts.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}}}
	maps.Copy(node.Labels, n.opts.Labels)
	err := n.reader.Get(ctx, client.ObjectKeyFromObject(node), node)
	if apierrors.IsNotFound(err) {
		err = n.client.Create(ctx, node)
	}
	if err != nil {
		return fmt.Errorf("create Node %s: %w", node.Name, err)
	}

	old := node.DeepCopy()
	now := metav1.Now()
	conditions := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "stand-in, no container runs here"},
	}
	for i := range conditions {
		conditions[i].LastHeartbeatTime, conditions[i].LastTransitionTime = now, now
		for _, c := range old.Status.Conditions {
			if c.Type == conditions[i].Type && c.Status == conditions[i].Status {
				conditions[i].LastTransitionTime = c.LastTransitionTime
			}
		}
	}
	node.Status.Conditions = conditions
	// An address of the type Hostname would be preferred by kube-apiserver and resolved through DNS.
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("1000"),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		OperatingSystem: "linux", Architecture: "amd64", OSImage: "stand-in",
		KubeletVersion: "v1.34.0", ContainerRuntimeVersion: "standin://0",
	}
	if err := n.client.Status().Patch(ctx, node, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("refresh the status of Node %s: %w", node.Name, err)
	}
	return n.renewLease(ctx, node)
}

func (n *Node) renewLease(ctx context.Context, node *corev1.Node) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name}}
	err := n.reader.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get the Lease of Node %s: %w", node.Name, err)
	}
	missing := apierrors.IsNotFound(err)
	lease.Spec.HolderIdentity = &node.Name
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](40)
	lease.Spec.RenewTime = new(metav1.NowMicro())
	if missing {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		err = n.client.Create(ctx, lease)
		if apierrors.IsNotFound(err) {
			return nil // a young API server has not made its namespace kube-node-lease yet; the next beat will do
		}
	} else {
		err = n.client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("renew the Lease of Node %s: %w", node.Name, err)
	}
	return nil
}
