// Package openshift is a stand-in for the two controllers that make a DeploymentConfig work on OpenShift, the
// DeploymentConfig controller and the deployer controller, and for the deployer process that a rollout runs. It is for
// clusters of plain Kubernetes (a real kube-apiserver and kube-controller-manager) in tests; it is not OpenShift, and says
// so wherever it shows itself.
//
// It follows the originals to the letter, faults included, because the product has to live with those faults: a paused
// DeploymentConfig is not scaled, a DeploymentConfig whose only rollout failed stays at 0 pods whatever its replicas say,
// a ReplicationController made by hand is taken for the newest version. Read openshift-controller-manager,
// pkg/apps/deploymentconfig and pkg/apps/deployer, for the controllers; library-go, pkg/apps/appsutil, for the shape of a
// ReplicationController; oc, pkg/cli/deployer, for the deployer process. The conformance table in this package's tests is
// written against an interface, so that it runs beside any implementation.
//
// # What is here
//
//   - The DeploymentConfig API as a CRD (CRDs). See the head of the file for which behaviour of OpenShift's API server it
//     keeps. One thing more of it is done by the controller, because a schema cannot: a new DeploymentConfig loses every
//     lastTriggeredImage before anything else happens to it.
//   - Versions, ReplicationControllers, adoption and orphaning, triggers, cancellation, scaling, history, status.
//   - Deployer pods and the phases of a rollout.
//   - The deployer process, for the strategies Recreate and Rolling, with lifecycle-hook pods.
//   - The ServiceAccount `deployer` in each namespace, without which no deployer pod is admitted.
//
// # What is not
//
//   - ImageStreams and the image trigger controller. A test that wants a trigger resolved writes lastTriggeredImage (and
//     the container's image) itself, once status.observedGeneration says that the controller has seen the object.
//   - The subresources instantiate, rollback and log. A rollout is started by hand as the controller does it:
//     status.latestVersion + 1 through /status.
//   - The copies that the deployer makes of a ReplicationController's warning events, its output, and its --until option.
//   - The process of a Custom strategy: see deployer.work.
//
// # Deliberate differences
//
//   - OpenShift's API server stores objects in a form that knows no empty lists or maps; a CRD keeps them. Two pod
//     templates that differ only in that are the same here, as they are on OpenShift.
//   - Missing strategy parameters have the defaults that OpenShift's API server would have filled in.
//
// # The seam to a node
//
// Deployer pods and hook pods are real Pods. A node (a kubelet, or a stand-in) runs hook pods like any pod. For a deployer
// pod, that is a pod with the label openshift.io/deployer-pod-for.name whose container is called `deployment`, it only has
// to say Running: from then on the work is done here, and the pod's end, Succeeded or Failed, is written by this package.
// With Options.DeployersInPods the work is done in the pod, by cmd/deployer, and a real kubelet says how it ended.
package openshift
