package standby

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

const (
	// apiTimeout bounds one attempt, which is at most five requests: Velero waits for it with an item in its hands.
	apiTimeout = 30 * time.Second
	// attempts of one process on errors that may pass. Each item of the restore would be another occasion.
	attempts = 3
)

// Standing says whether a Job stands by for a restore.
type Standing struct {
	// Job is its namespace and name; empty when there is none.
	Job types.NamespacedName
	// Created tells that this call has made it.
	Created bool
	// Reason says why none stands by, in words that a sentence can go on with.
	Reason string
	// Err is the error behind the reason, where the API server gave one.
	Err error
}

// Stands tells whether a Job stands by.
func (s Standing) Stands() bool { return s.Job.Name != "" }

// Keeper makes sure of the Jobs of restores. Safe for concurrent use.
type Keeper struct {
	client client.Client
	clock  clock.PassiveClock

	mu   sync.Mutex
	kept map[types.UID]*attempt
}

// attempt is what a process has found out about one restore.
type attempt struct {
	made     int
	standing Standing
	final    bool
}

// NewKeeper returns a Keeper.
func NewKeeper(c client.Client, clk clock.PassiveClock) *Keeper {
	return &Keeper{client: c, clock: clk, kept: map[types.UID]*attempt{}}
}

// Ensure makes sure of the Job of a restore, once a process: later calls get the same answer without a request, but for errors
// that may pass, which are tried again a few times. first is true when the answer is a new one, to be logged.
func (k *Keeper) Ensure(ctx context.Context, r *velerov1.Restore) (standing Standing, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept, ok := k.kept[r.UID]
	if !ok {
		kept = &attempt{}
		k.kept[r.UID] = kept
	}
	if kept.final || kept.made == attempts {
		return kept.standing, false
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	kept.made++
	kept.standing = k.ensure(ctx, r)
	kept.final = kept.standing.Err == nil || apierrors.IsForbidden(kept.standing.Err)
	return kept.standing, true
}

// ensure is one attempt.
func (k *Keeper) ensure(ctx context.Context, r *velerov1.Restore) Standing {
	name := types.NamespacedName{Namespace: r.Namespace, Name: Name(r)}
	switch standing, err := k.existing(ctx, r, name); {
	case err != nil:
		return none(err, "look for the Job %s", name)
	case standing != nil:
		return *standing
	}
	deployment, reason, err := k.deployment(ctx, r.Namespace)
	switch {
	case err != nil:
		return none(err, "find Velero's Deployment in namespace %s", r.Namespace)
	case reason != "":
		return Standing{Reason: reason}
	}
	settings, err := restore.ReadSettings(ctx, k.client, r)
	switch {
	case err != nil:
		return none(err, "read the settings")
	case settings.Resume == restore.ResumeManual:
		return Standing{Reason: "the settings leave phase two to a person"}
	}
	now := k.clock.Now()
	err = k.client.Create(ctx, Build(deployment, r, now, now.Add(Timeout(r))))
	switch {
	case apierrors.IsAlreadyExists(err): // another process was faster: it is the same Job
		return Standing{Job: name}
	case err != nil:
		return none(err, "create the Job %s", name)
	}
	return Standing{Job: name, Created: true}
}

// none is the standing after an error. A refusal by the API server says in its own words who lacks which right.
func none(err error, format string, args ...any) Standing {
	err = fmt.Errorf(format+": %w", append(args, err)...)
	return Standing{Err: err, Reason: err.Error()}
}

// existing returns the standing of a Job that is there, nil when there is none.
func (k *Keeper) existing(ctx context.Context, r *velerov1.Restore, name types.NamespacedName) (*Standing, error) {
	job := &batchv1.Job{}
	err := k.client.Get(ctx, name, job)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none, and that is no error
	case err != nil:
		return nil, err
	}
	standing := standingOf(r, job)
	return &standing, nil
}

// standingOf tells whether a Job of the right name stands by for the restore.
func standingOf(r *velerov1.Restore, job *batchv1.Job) Standing {
	name := client.ObjectKeyFromObject(job)
	switch {
	case !metav1.IsControlledBy(job, r):
		return Standing{Reason: fmt.Sprintf("the Job %s does not belong to this restore", name)}
	case job.DeletionTimestamp != nil:
		return Standing{Reason: fmt.Sprintf("the Job %s is being deleted", name)}
	case ended(job):
		return Standing{Reason: fmt.Sprintf("the Job %s has ended already, see its log", name)}
	default:
		return Standing{Job: name}
	}
}

func ended(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			return true
		}
	}
	return false
}

// deployment returns Velero's Deployment. The list is asked for only where none has the usual name.
func (k *Keeper) deployment(ctx context.Context, namespace string) (deployment *appsv1.Deployment, reason string, err error) {
	var candidates appsv1.DeploymentList
	named := appsv1.Deployment{}
	switch err := k.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: deploymentName}, &named); {
	case err == nil:
		candidates.Items = append(candidates.Items, named)
	case !apierrors.IsNotFound(err):
		return nil, "", err
	default:
		if err := k.client.List(ctx, &candidates, client.InNamespace(namespace), client.MatchingLabels{componentKey: deploymentName}); err != nil {
			return nil, "", err
		}
	}
	deployment, reason = Choose(namespace, candidates.Items)
	return deployment, reason, nil
}

// KeepForAnHour makes the cluster delete a Job when it has been finished for KeptAfterSuccess. The process in the Job calls
// it when it has succeeded: set from the beginning, the time would hold for a failure as well.
func KeepForAnHour(ctx context.Context, c client.Client, job types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	object := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	patch := fmt.Appendf(nil, `{"spec":{"ttlSecondsAfterFinished":%d}}`, int(KeptAfterSuccess.Seconds()))
	if err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("have the Job %s deleted in %s: %w", job, KeptAfterSuccess, err)
	}
	return nil
}
