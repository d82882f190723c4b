// Package disconnect decides what phase one does to an item of a restore: to a pod, a DeploymentConfig or a
// ReplicationController. It is pure: functions over what is known return a decision with its reason, and functions that
// carry a decision out edit the item's unstructured content in place, so that fields that this binary does not know stay
// as they are.
//
// Phase one in short: a DeploymentConfig whose pods carry data or hooks is held at 0 replicas, and its restored pods are
// detached from their ReplicationController, so that neither it nor the rollout that the DeploymentConfig starts can
// delete or duplicate them. Phase two is in pkg/postrestore.
package disconnect
