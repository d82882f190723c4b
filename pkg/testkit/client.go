package testkit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// Logger returns a logger that writes to the test's output at debug level.
func Logger(t testing.TB) logrus.FieldLogger {
	t.Helper()
	log, _ := RecordingLogger(t)
	return log
}

// RecordingLogger returns a logger that writes to the test's output, and the record of its entries.
func RecordingLogger(t testing.TB) (logrus.FieldLogger, *logrustest.Hook) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(t.Output())
	log.SetLevel(logrus.DebugLevel)
	log.SetFormatter(&logrus.TextFormatter{DisableColors: true, DisableTimestamp: true})
	return log, logrustest.NewLocal(log)
}

// FakeClient returns controller-runtime's fake client over copies of the objects, with the binary's own scheme. Like a
// real server it keeps the status of DeploymentConfigs, pods and ReplicationControllers apart (use Status().Update),
// refuses a patch of another resourceVersion, and deletes an object with a finalizer only in part; unlike one it
// validates nothing and does not look at UID preconditions.
func FakeClient(t testing.TB, objs ...client.Object) client.WithWatch {
	t.Helper()
	copies := make([]client.Object, len(objs))
	for i, obj := range objs {
		copies[i] = obj.DeepCopyObject().(client.Object)
	}
	return fake.NewClientBuilder().WithScheme(Scheme(t)).WithObjects(copies...).
		WithStatusSubresource(&ocpappsv1.DeploymentConfig{}).Build()
}

// Scheme returns the binary's own scheme.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme, err := restore.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return scheme
}

// Request is one request to the API server.
type Request struct {
	// Verb is get, list, create, update, patch, delete or watch; "patch/status" and the like for a subresource.
	Verb string
	// Kind of the object, for lists that of the items.
	Kind string
	// Object is the key of what was sent or asked for; empty for a list.
	Object client.ObjectKey
	// Patch is the body of a patch.
	Patch string
	// DryRun tells that nothing is stored, Strict that unknown fields are refused: of a create or update.
	DryRun, Strict bool
	// Delete are the options of a deletion.
	Delete client.DeleteOptions
	// List are the options of a list.
	List client.ListOptions
}

// Writes tells whether the request changes something.
func (r Request) Writes() bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && !r.DryRun
}

// String is "<verb> <kind> <namespace>/<name>", the latter not for lists.
func (r Request) String() string {
	if r.Verb == "list" || r.Verb == "watch" {
		return r.Verb + " " + r.Kind
	}
	return fmt.Sprintf("%s %s %s", r.Verb, r.Kind, r.Object)
}

// Requests records the requests that pass through a client. Safe for concurrent use.
type Requests struct {
	mu   sync.Mutex
	all  []Request
	fail func(Request) error
}

// Record returns a client that passes everything on to c, and the record of it.
func Record(c client.WithWatch) (client.WithWatch, *Requests) {
	r := &Requests{}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := r.add(Request{Verb: "get", Kind: kindOf(c, obj), Object: key}); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			request := Request{Verb: "list", Kind: strings.TrimSuffix(kindOf(c, list), "List")}
			request.List.ApplyOptions(opts)
			if err := r.add(request); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			var options client.CreateOptions
			options.ApplyOptions(opts)
			request := Request{
				Verb: "create", Kind: kindOf(c, obj), Object: client.ObjectKeyFromObject(obj),
				DryRun: len(options.DryRun) > 0, Strict: options.FieldValidation == metav1.FieldValidationStrict,
			}
			if err := r.add(request); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			var options client.UpdateOptions
			options.ApplyOptions(opts)
			request := Request{
				Verb: "update", Kind: kindOf(c, obj), Object: client.ObjectKeyFromObject(obj),
				DryRun: len(options.DryRun) > 0, Strict: options.FieldValidation == metav1.FieldValidationStrict,
			}
			if err := r.add(request); err != nil {
				return err
			}
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			request := Request{Verb: "delete", Kind: kindOf(c, obj), Object: client.ObjectKeyFromObject(obj)}
			request.Delete.ApplyOptions(opts)
			if err := r.add(request); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := r.addPatch(c, "patch", obj, patch); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := r.addPatch(c, "patch/"+sub, obj, patch); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}), r
}

func kindOf(c client.Client, obj runtime.Object) string {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", obj)
	}
	return gvk.Kind
}

func (r *Requests) addPatch(c client.Client, verb string, obj client.Object, patch client.Patch) error {
	data, err := patch.Data(obj)
	if err != nil {
		return fmt.Errorf("read the patch: %w", err)
	}
	return r.add(Request{Verb: verb, Kind: kindOf(c, obj), Object: client.ObjectKeyFromObject(obj), Patch: string(data)})
}

func (r *Requests) add(request Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, request)
	if r.fail == nil {
		return nil
	}
	return r.fail(request)
}

// Fail makes requests for which fail returns an error fail with it, after they have been recorded; nil ends that.
func (r *Requests) Fail(fail func(Request) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = fail
}

// All returns the requests so far, in their order.
func (r *Requests) All() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.all...)
}

// Writes returns the requests so far that change something.
func (r *Requests) Writes() []Request {
	var writes []Request
	for _, request := range r.All() {
		if request.Writes() {
			writes = append(writes, request)
		}
	}
	return writes
}

// Of returns the requests so far of a verb and kind.
func (r *Requests) Of(verb, kind string) []Request {
	var found []Request
	for _, request := range r.All() {
		if request.Verb == verb && request.Kind == kind {
			found = append(found, request)
		}
	}
	return found
}

// Count returns how many requests there were so far by "<verb> <kind>".
func (r *Requests) Count() map[string]int {
	counts := map[string]int{}
	for _, request := range r.All() {
		counts[request.Verb+" "+request.Kind]++
	}
	return counts
}

// Reset forgets the requests so far.
func (r *Requests) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}
