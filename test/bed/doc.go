// Package bed brings up what the tests of this module run against: a real Kubernetes control plane (etcd, kube-apiserver,
// kube-controller-manager), a real S3 server and a real Velero server with the plugins under test, all as processes of
// this user on free ports of 127.0.0.1. No root, no container engine and no network is needed.
//
// What is not here: a scheduler, nodes, kubelets, and OpenShift's own controllers. Pods are stored and never run; whoever
// needs them to run brings something that plays the node. The DeploymentConfig API is a CRD that the caller hands in.
//
// With [Options.Node] a bed has a real node: containers run, and Velero is a Deployment as in any cluster. That takes root
// and some packages, see [NodeSupported]. All of the bed then lives in Linux namespaces of its own (processes, mounts,
// network), with the API server and the S3 server forwarded to their usual addresses, so nothing changes for a test.
//
// A bed lives in one temporary directory and owns one process group a component. [Bed.Stop] ends both. A watchdog process
// does the same when the test binary dies without calling it (kill -9, a panic, a test timeout, Ctrl-C).
//
// The binaries come from the tools modules in test/tools and are built on first use, see [Tools].
package bed
