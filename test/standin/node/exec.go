package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	certutil "k8s.io/client-go/util/cert"
	streaming "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

const (
	streamIdleTimeout     = 4 * time.Hour    // kubelet's --streaming-connection-idle-timeout
	streamCreationTimeout = 30 * time.Second // kubelet's default
	shutdownTimeout       = 5 * time.Second
)

// Exec is one command that was executed in a container, in the way of `kubectl exec`. Velero's exec hooks come this way.
type Exec struct {
	Namespace, Pod, Container string
	PodUID                    types.UID
	Command                   []string
	// Restored says whether the pod was made by a Velero restore (label velero.io/restore-name).
	Restored bool
	// Contents is what the command found in the pod's volumes when it started, by volume name: claims and emptyDirs.
	Contents map[string]string
	// Started and Ended are when; Ended is zero while the command runs.
	Started, Ended time.Time
	// ExitCode is valid once the command has ended; 137 if its container ended first.
	ExitCode int
	// PodThere says whether the container still ran when the command ended.
	PodThere bool
}

// Execs returns every command executed so far, oldest first.
func (n *Node) Execs() []Exec {
	n.mu.Lock()
	defer n.mu.Unlock()
	execs := make([]Exec, 0, len(n.execs))
	for _, e := range n.execs {
		c := *e
		c.Command, c.Contents = slices.Clone(e.Command), maps.Clone(e.Contents)
		execs = append(execs, c)
	}
	return execs
}

// execServer serves the endpoints of a kubelet that kube-apiserver turns pods/exec and pods/log into. It listens on the
// loopback interface and authenticates nobody: what it runs is nothing.
type execServer struct {
	node     *Node
	listener net.Listener
}

// Start serves until ctx is done (manager.Runnable).
func (e *execServer) Start(ctx context.Context) error {
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return errors.Join(fmt.Errorf("make the certificate of stand-in node %s: %w", e.node.opts.Name, err), e.listener.Close())
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return errors.Join(fmt.Errorf("load the certificate of stand-in node %s: %w", e.node.opts.Name, err), e.listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", e.exec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", e.exec)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", e.logs)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: streamCreationTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends commands that still run
		TLSConfig: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{pair},
			NextProtos:   []string{"http/1.1"}, // connections are upgraded, which HTTP/2 cannot
		},
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		// A context of its own: the one that ended must not cut the shutdown short.
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(shutdown)
	}()
	if err := server.ServeTLS(e.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve exec requests of stand-in node %s: %w", e.node.opts.Name, err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("shut down the exec server of stand-in node %s: %w", e.node.opts.Name, err)
	}
	return nil
}

func (e *execServer) exec(w http.ResponseWriter, r *http.Request) {
	options, err := streaming.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	container := r.PathValue("container")
	s, err := e.node.running(key, types.UID(r.PathValue("uid")), container)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // as a kubelet says it
		return
	}
	streaming.ServeExec(w, r, &executor{node: e.node, key: key, sandbox: s}, key.String(), s.uid, container,
		r.URL.Query()[corev1.ExecCommandParam], options, streamIdleTimeout, streamCreationTimeout,
		remotecommandconsts.SupportedStreamingProtocols)
}

func (e *execServer) logs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	if _, err := io.WriteString(w, "stand-in node: containers write no logs\n"); err != nil {
		return // the reader is gone
	}
}

// running returns the sandbox of a pod if the container runs in it. An empty uid matches any.
func (n *Node) running(pod types.NamespacedName, uid types.UID, name string) (*sandbox, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sandboxes[pod]
	if s == nil || uid != "" && s.uid != uid {
		return nil, fmt.Errorf("pod %s does not exist on node %s", pod, n.opts.Name)
	}
	if c := s.containers[name]; c == nil || !c.running() {
		return nil, fmt.Errorf("container not found (%q)", name)
	}
	return s, nil
}

// executor plays one command (streaming.Executor).
type executor struct {
	node    *Node
	key     types.NamespacedName
	sandbox *sandbox
}

// ExecInContainer takes as long and ends as the command says; its error, if any, carries the exit code.
func (e *executor) ExecInContainer(ctx context.Context, _ string, uid types.UID, container string, command []string,
	_ io.Reader, _, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	n := e.node
	takes, exit := outcome(command)
	record := &Exec{
		Namespace: e.key.Namespace, Pod: e.key.Name, PodUID: uid, Container: container,
		Command: slices.Clone(command), Started: time.Now(),
	}
	var err error
	if record.Restored, record.Contents, err = n.seenBy(ctx, e.key); err != nil {
		return err
	}
	n.mu.Lock()
	n.execs = append(n.execs, record)
	n.mu.Unlock()

	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.sandbox.ended:
		exit = exitKilled
	case <-ctx.Done():
		exit = exitKilled
	}
	_, gone := n.running(e.key, uid, container)
	n.mu.Lock()
	record.Ended, record.ExitCode, record.PodThere = time.Now(), int(exit), gone == nil
	n.mu.Unlock()
	if exit != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", exit), Code: int(exit)}
	}
	return nil
}

// seenBy returns what a command in a pod finds there.
func (n *Node) seenBy(ctx context.Context, key types.NamespacedName) (restored bool, contents map[string]string, err error) {
	var pod corev1.Pod
	if err := n.client.Get(ctx, key, &pod); err != nil {
		return false, nil, fmt.Errorf("get pod %s: %w", key, err)
	}
	contents = map[string]string{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if claimOf(&pod, v) == "" && v.EmptyDir == nil {
			continue
		}
		volume, err := n.volumeKey(ctx, n.client, &pod, v.Name)
		if err != nil {
			return false, nil, err
		}
		n.mu.Lock()
		contents[v.Name] = n.contents[volume]
		n.mu.Unlock()
	}
	return pod.Labels[velerov1.RestoreNameLabel] != "", contents, nil
}
