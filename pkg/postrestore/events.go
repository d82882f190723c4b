package postrestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// Reasons of the events on a DeploymentConfig.
const (
	// HeldReason: it is held at 0 replicas for a restore.
	HeldReason = "HeldForRestore"
	// ResumedReason: it has its replicas and paused back.
	ResumedReason = "ResumedAfterRestore"
	// FailedReason: phase two has stopped.
	FailedReason = "ResumeFailed"
)

// note is an event to be written.
type note struct {
	kind, reason, message string
}

// eventLog are the events of a restore that are in the cluster, by namespace and name.
type eventLog struct {
	mu    sync.Mutex
	known map[string]bool
}

// knownEvents lists the events of the scope's restore, so that a poll does not try to write each again. Where they cannot
// be listed, that is logged: phase two does not depend on it.
func (r *Runner) knownEvents(ctx context.Context, scope Scope) *eventLog {
	events := &eventLog{known: map[string]bool{}}
	for _, namespace := range scope.namespaces() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("EventList"))
		if err := within(ctx, func(ctx context.Context) error {
			return r.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{velerov1.RestoreNameLabel: scope.Owner.Label()})
		}); err != nil {
			r.log.WithError(fmt.Errorf("list events: %w", err)).Warn("Events of the restore cannot be listed: some may be written twice")
			return events
		}
		for i := range list.Items {
			events.known[list.Items[i].Namespace+"/"+list.Items[i].Name] = true
		}
	}
	return events
}

// record writes an event on the DeploymentConfig unless it is there already. Its name is made from what it says, so that
// a step that is repeated by another process writes it once. An event that cannot be written is logged: phase two does
// not depend on it.
func (r *Runner) record(ctx context.Context, log logrus.FieldLogger, state State, events *eventLog, n note) {
	dc := state.DC
	sum := sha256.Sum256([]byte(string(dc.UID) + state.Restore.String() + n.reason + n.message))
	name := fmt.Sprintf("%.200s.%s", dc.Name, hex.EncodeToString(sum[:8]))
	events.mu.Lock()
	known := events.known[dc.Namespace+"/"+name]
	events.known[dc.Namespace+"/"+name] = true
	events.mu.Unlock()
	if known {
		return
	}
	now := metav1.NewTime(r.clock.Now())
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: dc.Namespace, Name: name,
			Labels: map[string]string{velerov1.RestoreNameLabel: labelOf(state.Restore)},
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: ocpappsv1.GroupVersion.String(), Kind: "DeploymentConfig",
			Namespace: dc.Namespace, Name: dc.Name, UID: dc.UID, ResourceVersion: dc.ResourceVersion,
		},
		Type: n.kind, Reason: n.reason, Message: n.message,
		Source:         corev1.EventSource{Component: restore.UserAgent},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	err := within(ctx, func(ctx context.Context) error { return r.client.Create(ctx, event) })
	if err != nil && !apierrors.IsAlreadyExists(err) {
		log.WithError(err).Warn("Event cannot be written")
	}
}
