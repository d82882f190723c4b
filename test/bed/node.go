package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeOptions make a bed one with a real node: containerd, kubelet, kube-scheduler and kube-proxy, a provisioner of
// volumes, node-agent as a DaemonSet, and Velero as a Deployment. It takes Linux, root and some Debian packages, see
// NodeSupported.
//
// The node has no way out: what its pods run has to be in Images or come by ImportImage. Of images, the bed brings
// BoxImage and SleepImage; of storage classes, StorageClass, the default one.
type NodeOptions struct {
	// Images are known to the node from the beginning.
	Images []Image
}

const (
	// NodeName is the name of the real node.
	NodeName = "node"
	// StorageClass is the default storage class of a bed with a real node. Its volumes are folders of the node, made when a
	// pod first uses the claim and removed with it. A claim must ask for ReadWriteOnce, which on one node any number of pods can mount.
	StorageClass = "local-path"
)

// The node's network. Nobody outside sees it, so every bed has the same.
const (
	nodeIP     = "10.88.0.1"
	podNetwork = "10.88.0.0/24"
	firstPodIP = "10.88.0.10"
	serviceIP  = "10.96.0.1" // of the API server: the first of its --service-cluster-ip-range
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	provisioner      = "rancher.io/local-path"
	provisionerSpace = "local-path-storage"
)

// realNode is what a bed with a real node has more than others.
type realNode struct {
	binaries    NodeBinaries
	enclosure   *enclosure
	forwarders  []*forwarder
	cgroup      string // below the root of each hierarchy
	snapshotter string
	busybox     string            // its path
	commands    map[string]string // links to it in an image
}

// enclose makes the place where the node lives, in which everything else is then started, and makes the API server and the S3
// server reachable from here.
func (b *Bed) enclose(ctx context.Context) (err error) {
	for _, path := range []string{b.dir, b.binaries.Etcd, b.node.binaries.Kubelet} {
		for _, dir := range hidden {
			if within(path, dir) {
				return fmt.Errorf("a real node has its own %s and cannot use %s in it: move the repository, or set TMPDIR", dir, path)
			}
		}
	}
	if err := os.MkdirAll(b.path("node", "cni"), 0o755); err != nil {
		return err
	}
	if b.node.snapshotter, err = snapshotterFor(b.dir); err != nil {
		return err
	}
	if b.node.busybox, b.node.commands, err = busyboxCommands(ctx); err != nil {
		return err
	}
	if err := makeCgroups(b.node.cgroup); err != nil {
		return err
	}
	if b.node.enclosure, err = newEnclosure(ctx, b.crew, b.path("node"), b.environment()); err != nil {
		return err
	}
	for _, p := range []*port{b.apiServer, b.s3} {
		f, err := forward(p.address(), func(ctx context.Context) (net.Conn, error) { return b.node.enclosure.dial(ctx, p.address()) })
		if err != nil {
			return err
		}
		b.node.forwarders = append(b.node.forwarders, f)
	}
	return nil
}

// discard ends what enclose made, after the processes.
func (n *realNode) discard() error {
	var errs []error
	for _, f := range n.forwarders {
		errs = append(errs, f.close())
	}
	if n.enclosure != nil {
		errs = append(errs, n.enclosure.close())
	}
	return errors.Join(append(errs, removeCgroups(n.cgroup))...)
}

// startNode starts the node, with the images it needs, and returns when it is Ready.
func (b *Bed) startNode(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := b.startContainerd(groupCtx); err != nil {
			return err
		}
		for _, image := range slices.Concat(b.standardImages(), b.opts.Node.Images) {
			if err := b.ImportImage(groupCtx, image); err != nil {
				return err
			}
		}
		return b.startKubelet(groupCtx)
	})
	group.Go(func() error {
		return errors.Join(b.startScheduler(), b.startProxy(), b.startProvisioner(groupCtx))
	})
	return group.Wait()
}

const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "` + containerdSocket + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + SleepImage + `"
  # what a container without CAP_SYS_RESOURCE, as CI has, may not set
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %q
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`

const networkConfig = `{"cniVersion": "1.0.0", "name": "test-bed", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {
    "type": "host-local",
    "ranges": [[{"subnet": "` + podNetwork + `", "rangeStart": "` + firstPodIP + `", "gateway": "` + nodeIP + `"}]],
    "routes": [{"dst": "0.0.0.0/0"}]
  }
}]}
`

func (b *Bed) startContainerd(ctx context.Context) error {
	plugins, err := networkPlugins()
	if err != nil {
		return err
	}
	program, err := lookPath("containerd")
	if err != nil {
		return err
	}
	config := b.path("node", "containerd.toml")
	if err := errors.Join(
		os.WriteFile(b.path("node", "cni", "10-test-bed.conflist"), []byte(networkConfig), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, containerdConfig, b.node.snapshotter, plugins, b.path("node", "cni")), 0o600),
	); err != nil {
		return err
	}
	p, err := b.crew.start("containerd", program, []string{"--config=" + config}, b.environment())
	if err != nil {
		return err
	}
	return poll(ctx, "wait for containerd", func(ctx context.Context) error {
		if err := p.failure(); err != nil {
			return finalError{err}
		}
		_, err := b.ctr(ctx, "version")
		return err
	})
}

// ctr runs containerd's own client on the images and containers of kubelet.
func (b *Bed) ctr(ctx context.Context, args ...string) (string, error) {
	program, err := lookPath("ctr")
	if err != nil {
		return "", err
	}
	return b.crew.run(ctx, b.environment(), program, append([]string{"--address=" + containerdSocket, "--namespace=k8s.io"}, args...)...)
}

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: ` + nodeIP + `
readOnlyPort: 0
healthzPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %q}
# whoever has a certificate of the bed is its administrator
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://` + containerdSocket + `
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
# what a container without CAP_SYS_RESOURCE, as CI has, may set
oomScoreAdj: 0
maxOpenFiles: 20000
makeIPTablesUtilChains: false
resolvConf: ""
# the disk is the machine's, and not this node's to clean up
evictionHard: {memory.available: 100Mi, nodefs.available: "1%%", imagefs.available: "1%%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
# the defaults make a test wait
syncFrequency: 10s
nodeStatusUpdateFrequency: 5s
`

func (b *Bed) startKubelet(ctx context.Context) error {
	kubeconfig, err := b.KubeconfigFor("system:node:"+NodeName, "system:nodes")
	if err != nil {
		return err
	}
	config := b.path("node", "kubelet.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeletConfig, b.path("pki", caFile), b.node.cgroup), 0o600); err != nil {
		return err
	}
	p, err := b.crew.start("kubelet", b.node.binaries.Kubelet, []string{
		"--config=" + config,
		"--kubeconfig=" + kubeconfig,
		"--hostname-override=" + NodeName,
		"--node-ip=" + nodeIP,
		"--volume-plugin-dir=/var/lib/kubelet/volume-plugins",
	}, b.environment())
	if err != nil {
		return err
	}
	return poll(ctx, "wait for the node to be Ready", func(ctx context.Context) error {
		if err := p.failure(); err != nil {
			return finalError{err}
		}
		node := &corev1.Node{}
		if err := b.client.Get(ctx, client.ObjectKey{Name: NodeName}, node); err != nil {
			return err
		}
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		if i < 0 || node.Status.Conditions[i].Status != corev1.ConditionTrue {
			return fmt.Errorf("its conditions are %v", node.Status.Conditions)
		}
		return nil
	})
}

// startScheduler starts the scheduler as the user to whom Kubernetes gives the rights for it.
func (b *Bed) startScheduler() error {
	kubeconfig, err := b.KubeconfigFor("system:kube-scheduler")
	if err != nil {
		return err
	}
	_, err = b.crew.start("kube-scheduler", b.node.binaries.KubeScheduler, []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0", // nobody asks for its health: its work shows it
	}, b.environment())
	return err
}

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
bindAddress: 127.0.0.1
hostnameOverride: ` + NodeName + `
clusterCIDR: ` + podNetwork + `
clientConnection: {kubeconfig: %q}
# the machine's, and not this node's to set
conntrack: {maxPerCore: 0}
`

func (b *Bed) startProxy() error {
	kubeconfig, err := b.KubeconfigFor("system:kube-proxy")
	if err != nil {
		return err
	}
	config := b.path("node", "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, proxyConfig, kubeconfig), 0o600); err != nil {
		return err
	}
	_, err = b.crew.start("kube-proxy", b.node.binaries.KubeProxy, []string{"--config=" + config}, b.environment())
	return err
}

// What the provisioner runs in a pod of its own to make and to remove a volume's folder, which is in VOL_DIR.
const (
	provisionerConfig = `{"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/var/lib/volumes"]}]}`
	setupVolume       = "#!/bin/sh\nset -eu\nmkdir -m 0777 -p \"$VOL_DIR\"\n"
	teardownVolume    = "#!/bin/sh\nset -eu\nrm -rf \"$VOL_DIR\"\n"
	provisionerPod    = `apiVersion: v1
kind: Pod
metadata: {name: helper-pod}
spec: {containers: [{name: helper-pod, image: "` + BoxImage + `"}]}
`
)

// startProvisioner starts the provisioner of volumes. Of its manifest remains what it reads, as it runs as a process.
func (b *Bed) startProvisioner(ctx context.Context) error {
	const account, settings = "local-path-provisioner-service-account", "local-path-config"
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: provisionerSpace, Name: name} }
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: provisionerSpace}},
		&corev1.ServiceAccount{ObjectMeta: meta(account)},
		&corev1.ConfigMap{ObjectMeta: meta(settings), Data: map[string]string{
			"config.json": provisionerConfig, "setup": setupVolume, "teardown": teardownVolume, "helperPod.yaml": provisionerPod,
		}},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{
				"storageclass.kubernetes.io/is-default-class": "true",
				// Velero's file-system backup takes volumes of type local, and passes over those of type hostPath.
				"defaultVolumeType": "local",
			}},
			Provisioner:       provisioner,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
			ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		},
	} {
		if err := b.client.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s for the provisioner: %w", object, object.GetName(), err)
		}
	}
	config := b.path("node", "provisioner.json")
	if err := os.WriteFile(config, []byte(provisionerConfig), 0o600); err != nil {
		return err
	}
	_, err := b.crew.start("local-path-provisioner", b.node.binaries.LocalPathProvisioner, []string{
		"start",
		"--config=" + config,
		"--kubeconfig=" + b.kubeconfig,
		"--namespace=" + provisionerSpace,
		"--service-account-name=" + account,
		"--configmap-name=" + settings,
		"--helper-image=" + BoxImage,
	}, b.environment())
	return err
}

// standardImages are those that the bed brings.
func (b *Bed) standardImages() []Image {
	images := []Image{b.Box(SleepImage, "/bin/sleep", "2147483647"), b.Box(BoxImage, "/bin/sh")}
	if b.opts.WithoutVelero {
		return images
	}
	images = append(images, Image{Reference: veleroImage, Entrypoint: []string{"/velero"}, Files: map[string]string{
		"/velero":                b.binaries.Velero,
		"/velero-helper":         b.node.binaries.VeleroHelper,
		"/velero-restore-helper": b.node.binaries.VeleroRestoreHelper,
	}})
	for _, plugin := range b.plugins() {
		name := filepath.Base(plugin)
		image := b.Box(pluginImage(plugin), "/bin/cp", "/plugins/"+name, "/target/")
		image.Files["/plugins/"+name] = plugin
		images = append(images, image)
	}
	return images
}

// awaitNodeAgent waits until Velero can read and write volumes on the node.
func (b *Bed) awaitNodeAgent(ctx context.Context) error {
	key := client.ObjectKey{Namespace: b.opts.VeleroNamespace, Name: "node-agent"}
	return poll(ctx, "wait for node-agent", func(ctx context.Context) error {
		agent := &appsv1.DaemonSet{}
		if err := b.client.Get(ctx, key, agent); err != nil {
			return err
		}
		if agent.Status.NumberReady < 1 {
			return fmt.Errorf("%d of %d pods are ready", agent.Status.NumberReady, agent.Status.DesiredNumberScheduled)
		}
		return nil
	})
}

// Exec runs a command in a container of a pod on the real node, with stdin unless that is nil, and returns its standard
// output. An empty container is the pod's first or default one. Without a deadline in ctx it takes at most waitTimeout. The error
// carries standard error.
func (b *Bed) Exec(ctx context.Context, pod client.ObjectKey, container string, stdin io.Reader, command ...string) (string, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	clientset, err := kubernetes.NewForConfig(b.config)
	if err != nil {
		return "", err
	}
	request := clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true,
		}, clientgoscheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(b.config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var out, errOut strings.Builder
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &errOut}); err != nil {
		return out.String(), fmt.Errorf("run %q in pod %s: %w\n%s", command, pod, err, errOut.String())
	}
	return out.String(), nil
}

// DialNode connects over TCP as a process on the real node does, so that pods and Services can be reached. The address holds an
// IP, not a name: nothing resolves names there.
func (b *Bed) DialNode(ctx context.Context, address string) (net.Conn, error) {
	if b.node == nil {
		return nil, fmt.Errorf("connect to %s: this bed has no real node", address)
	}
	return b.node.enclosure.dial(ctx, address)
}
