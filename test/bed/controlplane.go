package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
)

// administrators is the group to which the API server allows everything.
const administrators = "system:masters"

// auditPolicy logs every request once, when it is answered; a watch when its answer begins and again when it ends.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// startAPIServer starts etcd and the API server. The latter tries to reach etcd for a while, so neither waits for the other.
func (b *Bed) startAPIServer() (*process, error) {
	etcd, err := reservePort()
	if err != nil {
		return nil, err
	}
	b.ports = append(b.ports, etcd)
	etcdURL := "http://" + etcd.address()
	if _, err := b.crew.start("etcd", b.binaries.Etcd, []string{
		"--data-dir=" + b.path("etcd"),
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		// a single member: nobody connects
		"--listen-peer-urls=http://127.0.0.1:0",
		// its data need not survive the machine
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, b.environment()); err != nil {
		return nil, err
	}
	policy := b.path("audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--secure-port=" + strconv.Itoa(b.apiServer.number),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + b.path("pki", serverCertFile),
		"--tls-private-key-file=" + b.path("pki", serverKeyFile),
		"--client-ca-file=" + b.path("pki", caFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + b.path("pki", serviceKeyFile),
		"--service-account-key-file=" + b.path("pki", serviceKeyPublic),
		"--authorization-mode=Node,RBAC",
		// node-agent's pods are privileged
		"--allow-privileged=true",
		// no test is to wait for another's requests
		"--enable-priority-and-fairness=false",
		"--audit-log-path=" + b.path(auditLog),
		"--audit-policy-file=" + policy,
		"--audit-log-maxsize=" + auditLogMaxSize,
	}
	if b.node == nil {
		args = append(args,
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			// nothing here reaches the API server through its Service
			"--endpoint-reconciler-type=none")
	} else {
		args = append(args,
			"--bind-address=0.0.0.0", // of the node, which nobody else sees
			"--advertise-address="+nodeIP,
			"--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate="+b.path("pki", kubeletCertFile),
			"--kubelet-client-key="+b.path("pki", kubeletKeyFile))
	}
	return b.crew.start("kube-apiserver", b.binaries.KubeAPIServer, args, b.environment())
}

func (b *Bed) awaitAPIServer(ctx context.Context, p *process) error {
	clientset, err := kubernetes.NewForConfig(b.config)
	if err != nil {
		return err
	}
	return poll(ctx, "wait for kube-apiserver", func(ctx context.Context) error {
		if err := p.failure(); err != nil {
			return finalError{err}
		}
		return clientset.RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).Do(ctx).Error()
	})
}

// startControllerManager starts all controllers that are on by default. No kubelet sends heartbeats here, so a Node's word
// that it is ready is believed for longer than a bed lives; the node lifecycle controller runs nevertheless, for it takes
// the taint not-ready from a Node that says so.
func (b *Bed) startControllerManager() (*process, error) {
	credentials, err := b.ca.client("system:kube-controller-manager", administrators)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := b.writeKubeconfig(&clientcmdapi.AuthInfo{
		ClientCertificateData: credentials.cert, ClientKeyData: credentials.key,
	})
	if err != nil {
		return nil, err
	}
	return b.crew.start("kube-controller-manager", b.binaries.KubeControllerManager, []string{
		"--kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + b.path("pki", serviceKeyFile),
		"--root-ca-file=" + b.path("pki", caFile),
		"--leader-elect=false",
		// nobody asks for its health: its work shows it
		"--secure-port=0",
		// the default of 20 a second makes deletions of namespaces slow
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--node-startup-grace-period=9000h",
		"--node-monitor-grace-period=8999h",
	}, b.environment())
}

// awaitControllers waits for the first thing that the controllers make and that others need.
func (b *Bed) awaitControllers(ctx context.Context, p *process) error {
	return poll(ctx, "wait for kube-controller-manager to make the service account default/default", func(ctx context.Context) error {
		if err := p.failure(); err != nil {
			return finalError{err}
		}
		return b.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{})
	})
}

// makeAdministrator makes the client, the configuration and the kubeconfig of the administrator.
func (b *Bed) makeAdministrator() error {
	credentials, err := b.ca.client("administrator", administrators)
	if err != nil {
		return err
	}
	if b.kubeconfig, err = b.writeKubeconfig(&clientcmdapi.AuthInfo{
		ClientCertificateData: credentials.cert, ClientKeyData: credentials.key,
	}); err != nil {
		return err
	}
	b.config = &rest.Config{
		Host:            b.apiURL(),
		UserAgent:       "test-bed",
		QPS:             -1, // no limit
		WarningHandler:  rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CAData: b.ca.pem, CertData: credentials.cert, KeyData: credentials.key},
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, velerov1.AddToScheme, velerov2alpha1.AddToScheme, ocpappsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	// The client asks the API server for its resources at the first use of each kind, not now.
	if b.client, err = client.New(b.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make the administrator's client: %w", err)
	}
	return nil
}

func (b *Bed) apiURL() string { return "https://" + b.apiServer.address() }

// KubeconfigFor makes a kubeconfig for a user (with a client certificate) and returns its path. Such a user has the
// rights that RBAC gives to its name and groups: none to begin with.
func (b *Bed) KubeconfigFor(user string, groups ...string) (string, error) {
	credentials, err := b.ca.client(user, groups...)
	if err != nil {
		return "", err
	}
	return b.writeKubeconfig(&clientcmdapi.AuthInfo{ClientCertificateData: credentials.cert, ClientKeyData: credentials.key})
}

// writeKubeconfig writes a kubeconfig with the given credentials to a new file.
func (b *Bed) writeKubeconfig(credentials *clientcmdapi.AuthInfo) (string, error) {
	b.kubeconfigs.Lock()
	b.kubeconfigs.count++
	path := b.path("kubeconfigs", strconv.Itoa(b.kubeconfigs.count)+".yaml")
	b.kubeconfigs.Unlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	const name = "test-bed"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: b.apiURL(), CertificateAuthorityData: b.ca.pem}
	config.AuthInfos[name] = credentials
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	return path, nil
}
