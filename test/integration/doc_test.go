// Package integration runs the built plugin in a real Velero server against a real Kubernetes API: etcd, kube-apiserver,
// kube-controller-manager, S3, the Velero server and its CLI are the real programs. Two parts are stand-ins, named so:
// OpenShift's DeploymentConfig and deployer controllers (test/standin/openshift), and the node with its kubelet and
// node-agent (test/standin/node).
//
// Each test is a scenario: an application is backed up with `velero backup create`, lost, and restored with `velero restore
// create`. While it runs, a recorder follows every pod, DeploymentConfig and PodVolumeRestore of it, and at the end the
// invariants of the design are checked over all that happened, in the order in which it happened.
package integration
