package bed

import (
	"context"
	"testing"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultVeleroNamespace is where Velero's objects live unless Options says otherwise.
const DefaultVeleroNamespace = "velero"

// Options says what a bed consists of. The zero value is a control plane, S3 and Velero with the plugin for AWS only.
type Options struct {
	// CRDDirs are directories (or files) with CustomResourceDefinitions in YAML or JSON; CRDs are more of them. All are
	// created and Established before Velero starts, because its discovery is refreshed every 5 minutes only.
	CRDDirs []string
	CRDs    []*apiextensionsv1.CustomResourceDefinition

	// WithoutVelero leaves out S3 and Velero: etcd, kube-apiserver, kube-controller-manager and the CRDs above remain.
	WithoutVelero bool

	// Plugins are paths of plugin binaries. They are copied, so a later rebuild does not change a running bed.
	Plugins []string
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

	// Log, if set, is told what happens while the bed starts and stops, one line a call, like testing.T.Logf.
	Log func(format string, args ...any)
	// KeepDir leaves the temporary directory in place on Stop, for a look at its logs.
	KeepDir bool
}

// Bed is a running test bed. All methods may be called from several goroutines, except that the methods which start or
// stop Velero exclude one another.
type Bed struct{}

// Start brings up a bed and returns when it can be used: the API server is ready, the controllers run, the CRDs are
// Established and, with Velero, its backup location is Available. ctx bounds the start only (at most startTimeout in any
// case); the bed then lives until Stop. On an error nothing is left behind, and the error holds the tail of the log of the
// component that failed.
func Start(ctx context.Context, opts Options) (*Bed, error) { panic("not yet") }

// ForTest is Start for a single test: it fails the test when the bed does not come up, stops the bed when the test ends, and
// prints Logs if the test has failed by then.
func ForTest(t testing.TB, opts Options) *Bed { panic("not yet") }

// Stop kills every process of the bed and removes its directory. It may be called more than once, also while another
// method runs.
func (b *Bed) Stop() {}

// Dir is the bed's temporary directory.
func (b *Bed) Dir() string { panic("not yet") }

// Client reads and writes as the administrator (group system:masters). It does not cache. Its scheme knows the
// types of client-go, apiextensions, Velero (v1 and v2alpha1) and apps.openshift.io/v1.
func (b *Bed) Client() client.Client { panic("not yet") }

// RESTConfig is the administrator's configuration: a new copy at each call, without a client-side rate limit. Set UserAgent
// on it to find one's own requests in AuditEvents.
func (b *Bed) RESTConfig() *rest.Config { panic("not yet") }

// Kubeconfig is the path of the administrator's kubeconfig.
func (b *Bed) Kubeconfig() string { panic("not yet") }

// KubeconfigFor makes a kubeconfig for a user (with a client certificate) and returns its path. Such a user has the
// rights that RBAC gives to its name and groups: none to begin with.
func (b *Bed) KubeconfigFor(user string, groups ...string) (string, error) { panic("not yet") }

// VeleroNamespace is the namespace of Velero's objects.
func (b *Bed) VeleroNamespace() string { panic("not yet") }

// Velero runs the Velero CLI as the administrator and returns its standard output. It is killed after cliTimeout, or
// earlier with ctx. The error carries the command line and standard error.
func (b *Bed) Velero(ctx context.Context, args ...string) (stdout string, err error) {
	panic("not yet")
}

// CreateBackup runs `velero backup create name args…` and returns once the Backup exists.
func (b *Bed) CreateBackup(ctx context.Context, name string, args ...string) error { panic("not yet") }

// WaitBackup waits until the Backup has ended, well or not, and returns it. Without a deadline in ctx it waits waitTimeout.
// The error says in which phase the Backup was when time ran out.
func (b *Bed) WaitBackup(ctx context.Context, name string) (*velerov1.Backup, error) {
	panic("not yet")
}

// Backup is CreateBackup and WaitBackup. A Backup that ended Failed or PartiallyFailed is no error: look at its phase.
func (b *Bed) Backup(ctx context.Context, name string, args ...string) (*velerov1.Backup, error) {
	panic("not yet")
}

// CreateRestore runs `velero restore create name args…` (args name the backup: --from-backup) and returns once the Restore exists.
func (b *Bed) CreateRestore(ctx context.Context, name string, args ...string) error { panic("not yet") }

// WaitRestore is WaitBackup for a Restore.
func (b *Bed) WaitRestore(ctx context.Context, name string) (*velerov1.Restore, error) {
	panic("not yet")
}

// Restore is CreateRestore and WaitRestore, see Backup.
func (b *Bed) Restore(ctx context.Context, name string, args ...string) (*velerov1.Restore, error) {
	panic("not yet")
}

// DescribeBackup is what `velero backup describe name --details` prints.
func (b *Bed) DescribeBackup(ctx context.Context, name string) (string, error) { panic("not yet") }

// DescribeRestore is what `velero restore describe name --details` prints.
func (b *Bed) DescribeRestore(ctx context.Context, name string) (string, error) { panic("not yet") }

// BackupLogs is the log of an ended backup, plugins' lines included.
func (b *Bed) BackupLogs(ctx context.Context, name string) (string, error) { panic("not yet") }

// RestoreLogs is the log of an ended restore, plugins' lines included.
func (b *Bed) RestoreLogs(ctx context.Context, name string) (string, error) { panic("not yet") }

// StopVelero ends the Velero server and its plugins with SIGTERM, and with SIGKILL what has not gone after some seconds.
func (b *Bed) StopVelero(ctx context.Context) error { panic("not yet") }

// StartVelero starts the Velero server after StopVelero and waits until it has validated its backup location anew.
func (b *Bed) StartVelero(ctx context.Context) error { panic("not yet") }

// RestartVelero kills the Velero server and its plugins with SIGKILL, as when its node dies, and starts it again.
func (b *Bed) RestartVelero(ctx context.Context) error { panic("not yet") }

// VeleroLog is everything that the Velero server has logged so far, over all its starts.
func (b *Bed) VeleroLog() string { panic("not yet") }

// ObjectDir is the directory that holds the objects of Velero's bucket as files: backups/<name>/<name>.tar.gz and so on
// below its folder `backups`.
func (b *Bed) ObjectDir() string { panic("not yet") }

// Logs is the last lines of the log of every component, for a test that failed.
func (b *Bed) Logs() string { panic("not yet") }

// AuditEvent is one request that the API server has answered, or, for a watch that goes on, begun to answer.
type AuditEvent struct {
	Time        time.Time // when the request arrived
	UserAgent   string
	User        string // the authenticated user, or whom it impersonates
	Verb        string // get, list, watch, create, update, patch, delete, deletecollection
	APIGroup    string
	Resource    string // empty for a request that is not for a resource, as /apis or /version
	Subresource string
	Namespace   string
	Name        string
	URI         string
	Code        int // HTTP status
}

// AuditEvents are the requests that arrived at or after since, in the order in which they were answered.
func (b *Bed) AuditEvents(since time.Time) ([]AuditEvent, error) { panic("not yet") }
