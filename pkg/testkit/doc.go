// Package testkit builds what tests need: DeploymentConfigs, their pods and ReplicationControllers as OpenShift makes
// them, items as Velero hands them to actions, and clients that count requests. Backups, Restores and volume backups are
// built with Velero's own pkg/builder.
//
// Everything it returns is the caller's own: no two calls share memory. Nothing here calls the code under test to make
// up what is expected of it: the marks of a hold are spelled out a second time.
package testkit

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Epoch is when every object of this package was created, and a good time for a fake clock to start from.
var Epoch = metav1.NewTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)) //nolint:gochecknoglobals // Go has no constants of this type
