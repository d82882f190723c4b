// Package e2e takes applications through backup, loss and restore on a real node: containers run, bytes move, and what was written
// before the backup is read back afterwards. The plugin comes as users bring it, in its image and by `velero plugin add`.
//
// OpenShift's controllers are stand-ins (test/standin/openshift); their deployer pods are real. Where no real node can
// run, these tests are skipped and say why.
package e2e
