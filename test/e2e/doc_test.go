// Package e2e takes applications through backup, loss and restore on a real node: containers run, bytes move, and what was written
// before the backup is read back after phase two, in every pod. The plugin comes as users bring it, in its image and by
// `velero plugin add`.
//
// All scenarios share one cluster. Those that leave others alone run side by side; those that take away what others
// stand on, such as Velero's pod, run one by one after them. At the end a table says how long each took, for how long its
// application had no pod to answer, and the SHA-256 of what was written and read.
//
// OpenShift's controllers are stand-ins (test/standin/openshift); their deployer pods are real. Where no real node can
// run, these tests are skipped and say why.
package e2e
