package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// startTimeout bounds Start. Alone on two cores a bed takes about 8 seconds.
	startTimeout = 3 * time.Minute
	// pollInterval is how often a state is looked at that has to be waited for.
	pollInterval = 50 * time.Millisecond
)

// DefaultVeleroNamespace is where Velero's objects live unless Options says otherwise.
const DefaultVeleroNamespace = "velero"

// Options says what a bed consists of. The zero value is a control plane, S3 and Velero with the plugin for AWS only.
type Options struct {
	// CRDDirs are directories or files with CustomResourceDefinitions in YAML or JSON; CRDs are more of them. All are
	// created and Established before Velero starts, because its discovery is refreshed every 5 minutes only.
	CRDDirs []string
	CRDs    []*apiextensionsv1.CustomResourceDefinition

	// WithoutVelero leaves out S3 and Velero: etcd, kube-apiserver, kube-controller-manager and the CRDs above remain.
	WithoutVelero bool

	// Plugins are paths of plugin binaries. They are copied, so a later rebuild does not change a running bed.
	Plugins []string
	// Storage is a bed with Velero whose S3 server and bucket this one uses instead of its own, as two clusters do that share
	// a backup location. It must be stopped after this one. Neither may have a real node. Velero finds the backups of the
	// other cluster when it starts, and looks again every minute; CarryBackup does not wait for that. nil: an S3 server of
	// its own.
	Storage *Bed

	// VeleroServer is the path of another velero binary to use as server, as CLI and for `velero install`; empty: the one
	// of test/tools/velero.
	VeleroServer string
	// VeleroNamespace is Velero's namespace; empty: DefaultVeleroNamespace.
	VeleroNamespace string
	// ItemOperationSyncFrequency is how often Velero polls asynchronous operations; 0: Velero's default, 10 s.
	ItemOperationSyncFrequency time.Duration
	// VeleroArgs are further arguments of `velero server`.
	VeleroArgs []string
	// VeleroEnv are further KEY=value variables of the Velero server, and so of its plugins.
	VeleroEnv []string

	// Node makes the bed one with a real node; nil: pods are stored and never run, and Velero is a process.
	Node *NodeOptions

	// Log, if set, is told what happens while the bed starts and stops, one line a call, like testing.T.Logf.
	Log func(format string, args ...any)
	// KeepDir leaves the temporary directory in place on Stop, for a look at its logs.
	KeepDir bool
}

// Bed is a running test bed. All methods may be called from several goroutines at once.
type Bed struct {
	opts     Options
	dir      string
	binaries Binaries
	crew     *crew
	ca       *authority

	apiServer, metrics, s3 *port
	ports                  []*port

	held       *hold
	kubeconfig string
	config     *rest.Config
	client     client.Client

	kubeconfigs struct {
		sync.Mutex
		count int
	}
	velero veleroServer
	node   *realNode // nil: none

	stop sync.Once
}

// Start brings up a bed and returns when it can be used: the API server is ready, the controllers run, the CRDs are
// Established and, with Velero, its backup location is Available. ctx bounds the start only (at most startTimeout in any
// case, building the tools not counted); the bed then lives until Stop. On an error nothing is left behind, and the error
// holds the tail of the log of the component that failed.
func Start(ctx context.Context, opts Options) (*Bed, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if opts.Storage != nil && (opts.WithoutVelero || opts.Node != nil || opts.Storage.opts.WithoutVelero || opts.Storage.node != nil) {
		return nil, errors.New("start the test bed: two beds share an S3 server only if both have Velero and neither has a real node")
	}
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	if opts.VeleroNamespace == "" {
		opts.VeleroNamespace = DefaultVeleroNamespace
	}
	if err := opts.feasible(); err != nil {
		return nil, err
	}
	binaries, err := Tools(ctx)
	if err != nil {
		return nil, err
	}
	if opts.VeleroServer != "" {
		binaries.Velero = opts.VeleroServer
	}
	var node *realNode
	if opts.Node != nil {
		node = &realNode{}
		if node.binaries, err = NodeTools(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	sweep(os.TempDir(), opts.Log)
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the test bed: %w", err)
	}
	b := &Bed{opts: opts, dir: dir, binaries: binaries, node: node}
	if err := b.bringUp(ctx); err != nil {
		b.Stop()
		return nil, fmt.Errorf("start the test bed: %w", err)
	}
	return b, nil
}

func (b *Bed) bringUp(ctx context.Context) error {
	start := time.Now()
	lap := func(what string) { b.opts.Log("test bed: %s after %.1f s", what, time.Since(start).Seconds()) }

	if err := b.prepare(ctx); err != nil {
		return err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, path := range b.opts.CRDDirs {
		more, err := readCRDs(path)
		if err != nil {
			return fmt.Errorf("read CRDs: %w", err)
		}
		crds = append(crds, more...)
	}
	for _, crd := range b.opts.CRDs {
		crds = append(crds, crd.DeepCopy()) // the caller's stay as they are
	}
	apiServer, err := b.startAPIServer()
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	var manifests *installation
	if !b.opts.WithoutVelero { // needs no API server yet
		if b.opts.Storage == nil {
			storage, err := b.startS3()
			if err != nil {
				return err
			}
			group.Go(func() error { return b.awaitS3(groupCtx, storage) })
		}
		group.Go(func() (err error) {
			manifests, err = b.renderInstallation(groupCtx)
			return err
		})
	}
	group.Go(func() error { return b.awaitAPIServer(groupCtx, apiServer) })
	if err := group.Wait(); err != nil {
		return err
	}
	lap("etcd and kube-apiserver ready")
	if manifests != nil {
		crds = append(crds, manifests.crds...)
	}

	controllers, err := b.startControllerManager()
	if err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	group.Go(func() error { return b.awaitControllers(groupCtx, controllers) })
	group.Go(func() error { return b.InstallCRDs(groupCtx, crds) })
	if b.node != nil {
		group.Go(func() error { return b.startNode(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	lap("controllers, CRDs and nodes ready")
	if b.opts.WithoutVelero {
		return nil
	}
	if err := b.install(ctx, manifests); err != nil {
		return err
	}
	if err := b.StartVelero(ctx); err != nil {
		return err
	}
	if b.node != nil {
		if err := b.awaitNodeAgent(ctx); err != nil {
			return err
		}
	}
	lap("Velero ready")
	return nil
}

// feasible says in one line why there can be no such bed on this machine; nil: nothing is known against it.
func (o *Options) feasible() error {
	if o.Node == nil {
		return enoughRoom(os.TempDir(), roomForBed)
	}
	if err := NodeSupported(); err != nil {
		return err
	}
	for i := range o.Node.Images {
		if err := o.Node.Images[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// What a bed takes of the disk, in bytes: databases and logs; and, with a real node, images and the file systems of
// containers, which may be copies.
const (
	roomForBed  = 512 << 20
	roomForNode = 3 << 30
)

// enoughRoom is nil if so many bytes are free in the file system of dir.
func enoughRoom(dir string, needed uint64) error {
	free, err := freeBytes(dir)
	if err != nil {
		return fmt.Errorf("find the free space for a test bed in %s: %w", dir, err)
	}
	if free < needed {
		return fmt.Errorf("a test bed needs %d MiB of disk and %s has %d: make room, or set TMPDIR", needed>>20, dir, free>>20)
	}
	return nil
}

// prepare makes what the components need: folders, keys, ports and the administrator's configuration; the watchdog; and the
// place for a real node.
func (b *Bed) prepare(ctx context.Context) (err error) {
	if !b.opts.KeepDir {
		if b.held, err = holdDir(b.dir); err != nil {
			return err
		}
	}
	for _, folder := range []string{"logs", "tmp", "home"} {
		if err := os.Mkdir(b.path(folder), 0o700); err != nil {
			return err
		}
	}
	removed := b.dir
	if b.opts.KeepDir {
		removed = ""
	}
	var cgroup string
	if b.node != nil {
		cgroup = filepath.Base(b.dir)
		b.node.cgroup = cgroup
	}
	dog, err := startWatchdog(removed, cgroup)
	if err != nil {
		return err
	}
	b.crew = newCrew(b.path("logs"), dog)
	own := []**port{&b.apiServer, &b.metrics}
	if b.opts.Storage != nil {
		b.s3 = b.opts.Storage.s3
	} else {
		own = append(own, &b.s3)
	}
	for _, p := range own {
		if *p, err = reservePort(); err != nil {
			return err
		}
		b.ports = append(b.ports, *p)
	}
	if b.ca, err = writePKI(b.path("pki")); err != nil {
		return err
	}
	if err := b.makeAdministrator(); err != nil {
		return err
	}
	if b.node == nil {
		return nil
	}
	return b.enclose(ctx)
}

// ForTest is Start for a single test: it fails the test when the bed does not come up, stops the bed when the test ends, and
// prints Logs if the test has failed by then.
func ForTest(t testing.TB, opts Options) *Bed {
	t.Helper()
	if opts.Log == nil {
		opts.Log = t.Logf
	}
	b, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.Logs())
		}
		b.Stop()
	})
	return b
}

// Stop kills every process of the bed and removes its directory. It may be called more than once, also while another
// method runs. What could not be cleaned up is told to Options.Log.
func (b *Bed) Stop() {
	b.stop.Do(func() {
		var errs []error
		if b.crew != nil {
			errs = append(errs, b.crew.close())
		}
		if b.node != nil {
			errs = append(errs, b.node.discard())
		}
		if b.opts.KeepDir {
			b.opts.Log("test bed: its logs are kept in %s", b.path("logs"))
		} else {
			errs = append(errs, b.removeDir())
		}
		if b.crew != nil {
			errs = append(errs, b.crew.watchdog.end())
		}
		for _, p := range b.ports {
			errs = append(errs, p.release())
		}
		if b.held != nil {
			errs = append(errs, b.held.release())
		}
		if err := errors.Join(errs...); err != nil {
			b.opts.Log("test bed: stop: %v", err)
		}
	})
}

// removeDir removes the bed's directory. Killed grandchildren (plugins) die at their own time and may write until then, so it
// tries again for a while.
func (b *Bed) removeDir() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return poll(ctx, "remove "+b.dir, func(context.Context) error { return os.RemoveAll(b.dir) })
}

// Dir is the bed's temporary directory.
func (b *Bed) Dir() string { return b.dir }

// Client reads and writes as the administrator (group system:masters). It does not cache. Its scheme knows the
// types of client-go, apiextensions, Velero (v1 and v2alpha1) and apps.openshift.io/v1.
func (b *Bed) Client() client.Client { return b.client }

// RESTConfig is the administrator's configuration: a new copy at each call, without a client-side rate limit. Set UserAgent
// on it to find one's own requests in AuditEvents.
func (b *Bed) RESTConfig() *rest.Config { return rest.CopyConfig(b.config) }

// Kubeconfig is the path of the administrator's kubeconfig.
func (b *Bed) Kubeconfig() string { return b.kubeconfig }

// VeleroNamespace is the namespace of Velero's objects.
func (b *Bed) VeleroNamespace() string { return b.opts.VeleroNamespace }

func (b *Bed) path(elements ...string) string {
	return filepath.Join(append([]string{b.dir}, elements...)...)
}

// environment is that of every child: nothing of the caller's that could lead it astray (another kubeconfig, a proxy, cloud
// credentials), and temporary files where Stop finds them. Velero keeps credentials in TMPDIR.
func (b *Bed) environment(more ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH") + ":" + systemFolders,
		"HOME=" + b.path("home"),
		"TMPDIR=" + b.path("tmp"),
	}
	if dir, ok := os.LookupEnv("GOCOVERDIR"); ok { // for a plugin built with -cover
		env = append(env, "GOCOVERDIR="+dir)
	}
	return append(env, more...)
}

// poll calls check until it returns nil or a final error, or ctx ends; then the error says what it was waiting for and what
// check said last.
func poll(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		var end finalError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &end):
			return fmt.Errorf("%s: %w", what, end.error)
		case last == nil || ctx.Err() == nil:
			last = err // not what only says that time ran out, if there is better
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// A finalError ends poll.
type finalError struct{ error }
