package openshift

import (
	"context"
	"errors"
	"fmt"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names that OpenShift gives to the rights of deployer pods, and to who has them.
const (
	deployerRole    = "system:deployer"
	deployerBinding = "system:deployers"
)

// Deploy is the deployer process: it takes the ReplicationController of that name to the replicas that it is to have, and
// returns when that is done, or an error when the rollout has failed. podName is whom its events are from. It needs the rights
// that Run gives to deployer pods.
func Deploy(ctx context.Context, cfg *rest.Config, namespace, name, podName string) error {
	if namespace == "" || name == "" {
		return errors.New("neither the name nor the namespace of the ReplicationController may be empty")
	}
	c, err := connect(cfg)
	if err != nil {
		return err
	}
	broadcaster := c.broadcast(ctx)
	defer broadcaster.Shutdown()
	d := &deployer{api: c.api, events: broadcaster.NewRecorder(c.scheme, corev1.EventSource{Component: podName}), poll: time.Second}
	return d.work(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: podName, Annotations: map[string]string{ocpappsv1.DeploymentAnnotation: name},
	}})
}

// ensureDeployerRole sees to the ClusterRole of deployer pods, which is there in every OpenShift. Its rights are those of
// OpenShift's (openshift/openshift-apiserver and kubernetes, bootstrappolicy) and `patch`, because this package patches where the
// original updates.
func ensureDeployerRole(ctx context.Context, api client.Client) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: deployerRole},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"replicationcontrollers"}, Verbs: []string{"delete", "get", "list", "watch", "update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"replicationcontrollers/scale"}, Verbs: []string{"get", "update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "list", "patch"}},
		},
	}
	if err := api.Create(ctx, role); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ClusterRole %s: %w", role.Name, err)
	}
	return nil
}

// ensureDeployerBinding sees to it that the deployer pods of a namespace have their rights.
func ensureDeployerBinding(ctx context.Context, api client.Client, namespace string) error {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployerBinding},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: deployerRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: deployerServiceAccount}},
	}
	if err := api.Create(ctx, binding); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create RoleBinding %s/%s: %w", namespace, binding.Name, err)
	}
	return nil
}
