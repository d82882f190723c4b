package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// Velero's object storage.
const (
	bucket       = "velero"
	bucketPrefix = "backups"
	location     = "default" // the BackupStorageLocation that `velero install` makes
	s3AccessKey  = "test-bed"
	s3SecretKey  = "test-bed-secret"
	s3Region     = "us-east-1"
)

// stopGrace is how long Velero has to end by itself.
const stopGrace = 5 * time.Second

// veleroServer is the running Velero, if any.
type veleroServer struct {
	change sync.Mutex // held by whoever starts or stops it, all the way

	mu      sync.Mutex
	process *process
	env     []string
}

// startS3 starts the S3 server. It checks signatures, unlike lighter ones. A folder of its directory is a bucket.
func (b *Bed) startS3() (*process, error) {
	for _, dir := range []string{b.ObjectDir(), b.path("object-metadata")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return b.crew.start("s3", b.binaries.VersityGW, []string{
		"--access=" + s3AccessKey,
		"--secret=" + s3SecretKey,
		"--region=" + s3Region,
		"--port=" + b.s3Listen(),
		"--quiet",
		"posix",
		"--sidecar=" + b.path("object-metadata"), // instead of extended attributes, which not every file system has
		filepath.Dir(b.ObjectDir()),
	}, b.environment())
}

// awaitS3 waits until the S3 server answers: Velero does not try again for a while when it does not.
func (b *Bed) awaitS3(ctx context.Context, p *process) error {
	return poll(ctx, "wait for the S3 server", func(ctx context.Context) error {
		if err := p.failure(); err != nil {
			return finalError{err}
		}
		connection, err := b.dial(ctx, b.s3.address())
		if err != nil {
			return err
		}
		return connection.Close()
	})
}

// dial connects to an address of 127.0.0.1 where the components run: behind a forwarder there may be nobody yet.
func (b *Bed) dial(ctx context.Context, address string) (net.Conn, error) {
	if b.node != nil {
		return b.node.enclosure.dial(ctx, address)
	}
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
}

// s3Listen is the address at which the S3 server listens.
func (b *Bed) s3Listen() string {
	if b.node == nil {
		return b.s3.address()
	}
	return ":" + strconv.Itoa(b.s3.number) // on the node, which nobody else sees, for pods too
}

// locationConfig says where the S3 server is: for Velero and, in links, for its CLI, which may run somewhere else.
func (b *Bed) locationConfig() string {
	config, here := "region="+s3Region+",s3ForcePathStyle=true", "http://"+b.s3.address()
	if b.node == nil {
		return config + ",s3Url=" + here
	}
	return config + ",s3Url=http://" + net.JoinHostPort(nodeIP, strconv.Itoa(b.s3.number)) + ",publicUrl=" + here
}

// ObjectDir is the directory that holds the objects of Velero's bucket as files. The archive of the backup x is
// backups/backups/x/x.tar.gz in it: the first `backups` is the location's prefix, the second is Velero's.
func (b *Bed) ObjectDir() string {
	if b.opts.Storage != nil {
		return b.opts.Storage.ObjectDir()
	}
	return b.path("objects", bucket)
}

// An installation is what `velero install` would create.
type installation struct {
	crds    []*apiextensionsv1.CustomResourceDefinition
	objects []*unstructured.Unstructured
}

// renderInstallation has Velero itself say what its installation consists of, so that the bed is installed as users install.
func (b *Bed) renderInstallation(ctx context.Context) (*installation, error) {
	credentials := fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n", s3AccessKey, s3SecretKey)
	if err := os.WriteFile(b.credentialsFile(), []byte(credentials), 0o600); err != nil {
		return nil, err
	}
	var images []string
	for _, plugin := range b.plugins() {
		images = append(images, pluginImage(plugin))
	}
	stdout, err := b.Velero(ctx, "install", "--dry-run", "--output=json",
		"--provider=aws", "--image="+veleroImage, "--plugins="+strings.Join(images, ","),
		"--bucket="+bucket, "--prefix="+bucketPrefix, "--secret-file="+b.credentialsFile(),
		"--backup-location-config="+b.locationConfig(),
		"--use-volume-snapshots=false", "--use-node-agent",
		// no test is to wait for room on the node
		"--velero-pod-cpu-request=0", "--velero-pod-mem-request=0", "--velero-pod-cpu-limit=0", "--velero-pod-mem-limit=0",
		"--node-agent-pod-cpu-request=0", "--node-agent-pod-mem-request=0", "--node-agent-pod-cpu-limit=0", "--node-agent-pod-mem-limit=0")
	if err != nil {
		return nil, err
	}
	var list unstructured.UnstructuredList
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		return nil, fmt.Errorf("decode the output of velero install: %w", err)
	}
	result := &installation{}
	for i := range list.Items {
		object := &list.Items[i]
		switch object.GetKind() {
		case "CustomResourceDefinition":
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd); err != nil {
				return nil, fmt.Errorf("decode the CustomResourceDefinition %s: %w", object.GetName(), err)
			}
			result.crds = append(result.crds, crd)
			continue
		case "Deployment":
			if err := b.adaptDeployment(object); err != nil {
				return nil, fmt.Errorf("adapt the Deployment %s: %w", object.GetName(), err)
			}
		}
		result.objects = append(result.objects, object)
	}
	return result, nil
}

// adaptDeployment makes the server's Deployment one for this bed, not started yet. Where the server is a process of the bed,
// its Deployment must exist all the same: actions read it, for example to find the image of the init container that
// restores volumes.
func (b *Bed) adaptDeployment(object *unstructured.Unstructured) error {
	if err := unstructured.SetNestedField(object.Object, int64(0), "spec", "replicas"); err != nil {
		return err
	}
	if b.node == nil {
		return nil
	}
	containers, found, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil || !found || len(containers) != 1 {
		return fmt.Errorf("it has not one container but %d (%w)", len(containers), err)
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return errors.New("its container is no object")
	}
	args, _, err := unstructured.NestedStringSlice(container, "args")
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedStringSlice(container, append(args, b.veleroArgs()...), "args"); err != nil {
		return err
	}
	env, _, err := unstructured.NestedSlice(container, "env")
	if err != nil {
		return err
	}
	for _, variable := range b.opts.VeleroEnv {
		name, value, _ := strings.Cut(variable, "=")
		env = append(env, map[string]any{"name": name, "value": value})
	}
	if err := unstructured.SetNestedSlice(container, env, "env"); err != nil {
		return err
	}
	return unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers")
}

// veleroArgs are those arguments of the server that do not depend on where it runs.
func (b *Bed) veleroArgs() []string {
	var args []string
	if b.opts.ItemOperationSyncFrequency > 0 {
		args = append(args, "--item-operation-sync-frequency="+b.opts.ItemOperationSyncFrequency.String())
	}
	return append(args, b.opts.VeleroArgs...)
}

// plugins are the paths of the plugins that Velero has from the beginning.
func (b *Bed) plugins() []string {
	return append([]string{b.binaries.VeleroPluginForAWS}, b.opts.Plugins...)
}

// veleroImage is the image of the server. Without a real node nobody pulls it.
const veleroImage = "test-bed.invalid/velero:bed"

// pluginImage is the image that brings the plugin with that path.
func pluginImage(plugin string) string { return "test-bed.invalid/" + filepath.Base(plugin) + ":bed" }

func (b *Bed) credentialsFile() string { return b.path("s3-credentials") }

// install applies the installation except its CRDs, and puts the plugins and the server's identity in place.
func (b *Bed) install(ctx context.Context, manifests *installation) error {
	for _, object := range manifests.objects {
		// `velero install` prints the namespace first, so what is in it finds it.
		if err := b.client.Patch(ctx, object, client.Apply, client.FieldOwner("test-bed"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if b.node != nil {
		return nil
	}
	kubeconfig, err := b.veleroKubeconfig(ctx)
	if err != nil {
		return err
	}
	b.velero.env = b.environment(append([]string{
		"KUBECONFIG=" + kubeconfig,
		"VELERO_NAMESPACE=" + b.opts.VeleroNamespace,
		"AWS_SHARED_CREDENTIALS_FILE=" + b.credentialsFile(),
	}, b.opts.VeleroEnv...)...)

	if err := os.Mkdir(b.pluginDir(), 0o700); err != nil {
		return err
	}
	for _, plugin := range b.plugins() {
		if err := copyPlugin(b.pluginDir(), plugin); err != nil {
			return fmt.Errorf("install the plugin %s: %w", filepath.Base(plugin), err)
		}
	}
	return nil
}

// copyPlugin copies a plugin's binary into dir. Two of one name are an error, not a silent replacement.
func copyPlugin(dir, plugin string) (err error) {
	content, err := os.ReadFile(plugin)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, filepath.Base(plugin)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

func (b *Bed) pluginDir() string { return b.path("plugins") }

// veleroKubeconfig lets the server be who it is in a cluster, the service account velero, so that it has that one's rights
// and the audit log shows its name.
func (b *Bed) veleroKubeconfig(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.opts.VeleroNamespace, Name: "velero"}}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(certificateLife / time.Second))},
	}
	if err := b.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("get a token for the service account %s/velero: %w", b.opts.VeleroNamespace, err)
	}
	return b.writeKubeconfig(&clientcmdapi.AuthInfo{Token: request.Status.Token})
}

// StartVelero starts the Velero server after StopVelero and waits until it has validated its backup location, which it does
// when its controllers run.
func (b *Bed) StartVelero(ctx context.Context) error {
	b.velero.change.Lock()
	defer b.velero.change.Unlock()
	return b.startVelero(ctx)
}

func (b *Bed) startVelero(ctx context.Context) error {
	if b.opts.WithoutVelero {
		return errors.New("start Velero: this bed is one without Velero")
	}
	if b.runningVelero() != nil {
		return errors.New("start Velero: it runs already")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.forgetLocation(ctx); err != nil {
		return err
	}
	if b.node != nil {
		return b.startVeleroPod(ctx)
	}
	args := []string{
		"server",
		"--namespace=" + b.opts.VeleroNamespace,
		"--plugin-dir=" + b.pluginDir(),
		"--metrics-address=" + b.metrics.address(),
		"--profiler-address=", // none: its default is a fixed port
	}
	p, err := b.crew.start("velero", b.binaries.Velero, append(args, b.veleroArgs()...), b.velero.env)
	if err != nil {
		return err
	}
	b.velero.mu.Lock()
	b.velero.process = p
	b.velero.mu.Unlock()
	return poll(ctx, "wait for Velero", func(ctx context.Context) error {
		if err := p.failure(); err != nil {
			return finalError{err}
		}
		return b.locationAvailable(ctx)
	})
}

// forgetLocation removes what an earlier server found out about the backup location: it says nothing about the next one.
func (b *Bed) forgetLocation(ctx context.Context) error {
	bsl := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: b.opts.VeleroNamespace, Name: location}}
	if err := b.client.Patch(ctx, bsl, client.RawPatch(client.Merge.Type(), []byte(`{"status":null}`))); err != nil {
		return fmt.Errorf("forget the state of the BackupStorageLocation %s: %w", location, err)
	}
	return nil
}

// locationAvailable is nil when a server has validated the backup location.
func (b *Bed) locationAvailable(ctx context.Context) error {
	bsl := &velerov1.BackupStorageLocation{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: b.opts.VeleroNamespace, Name: location}, bsl); err != nil {
		return err
	}
	if bsl.Status.Phase != velerov1.BackupStorageLocationPhaseAvailable {
		return fmt.Errorf("the BackupStorageLocation %s is %q %s", location, bsl.Status.Phase, bsl.Status.Message)
	}
	return nil
}

// StopVelero ends the Velero server and its plugins with SIGTERM, and with SIGKILL what has not gone after some seconds. On a
// real node it scales Velero's Deployment to 0.
func (b *Bed) StopVelero(ctx context.Context) error {
	b.velero.change.Lock()
	defer b.velero.change.Unlock()
	return b.stopVelero(ctx, stopGrace)
}

// RestartVelero kills the Velero server and its plugins with SIGKILL, as when its node dies, and starts it again. On a real
// node it deletes the pod at once, and Velero's Deployment makes another.
func (b *Bed) RestartVelero(ctx context.Context) error {
	b.velero.change.Lock()
	defer b.velero.change.Unlock()
	if b.node != nil {
		return b.replaceVeleroPod(ctx)
	}
	if err := b.stopVelero(ctx, 0); err != nil {
		return err
	}
	return b.startVelero(ctx)
}

func (b *Bed) stopVelero(ctx context.Context, grace time.Duration) error {
	if b.node != nil {
		return b.stopVeleroPod(ctx)
	}
	p := b.runningVelero()
	if p == nil {
		return errors.New("stop Velero: it does not run")
	}
	b.velero.mu.Lock()
	b.velero.process = nil // first, so that no waiting test takes its end for a crash
	b.velero.mu.Unlock()
	return p.stop(ctx, grace)
}

func (b *Bed) runningVelero() *process {
	b.velero.mu.Lock()
	defer b.velero.mu.Unlock()
	return b.velero.process
}
