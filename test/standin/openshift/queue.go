package openshift

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// workers is how many objects each controller looks at at the same time.
	workers = 5
	// maxRetries is how often a failed look at an object is repeated, after 5 ms, 10 ms, 20 ms … 82 s. Then the object is left
	// alone until something about it changes. (controller-runtime's own controllers never give up.)
	maxRetries = 15
	// lookTimeout bounds one look at an object.
	lookTimeout = 30 * time.Second
)

// fatalError is an error that no repetition cures.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// loop is the work queue of one controller.
type loop struct {
	name  string
	log   *slog.Logger
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// look brings the object of that name one step on. dropping says that an error will be among the last to be retried.
	look func(ctx context.Context, key types.NamespacedName, dropping bool) error
	// gaveUp is told the error after which the object is left alone. It may be nil.
	gaveUp func(ctx context.Context, key types.NamespacedName, err error)
}

func newLoop(name string, log *slog.Logger) *loop {
	return &loop{
		name: name,
		log:  log.With("controller", name),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName](),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: name},
		),
	}
}

// add asks for a look at the object of that name.
func (l *loop) add(namespace, name string) {
	l.queue.Add(types.NamespacedName{Namespace: namespace, Name: name})
}

// addObject asks for a look at obj.
func (l *loop) addObject(obj client.Object) { l.add(obj.GetNamespace(), obj.GetName()) }

// run works off the queue until ctx ends, and returns when the last look has.
func (l *loop) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, l.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	wg.Wait()
}

func (l *loop) next(ctx context.Context) bool {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)

	lookCtx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	retries := l.queue.NumRequeues(key)
	err := l.look(lookCtx, key, retries >= maxRetries-2)
	_, fatal := errors.AsType[fatalError](err)
	switch {
	case err == nil || ctx.Err() != nil:
		l.queue.Forget(key)
	case !fatal && retries < maxRetries:
		l.log.Debug("will look again", "object", key.String(), "error", err)
		l.queue.AddRateLimited(key)
	default:
		l.log.Error("gave up", "object", key.String(), "error", err)
		if l.gaveUp != nil {
			l.gaveUp(lookCtx, key, err)
		}
		l.queue.Forget(key)
	}
	return true
}
