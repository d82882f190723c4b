// Package recipes runs the built plugin in two real clusters that share one S3 store, as in a disaster: Recipes and
// VolumeReplicationGroups are backed up with `velero backup create` in the cluster east and restored with `velero restore
// create` in the cluster west. etcd, kube-apiserver, kube-controller-manager, S3, the Velero servers and their CLI are the
// real programs, and the Recipe CRD is the one that Ramen uses. The CRD of the VolumeReplicationGroup is Ramen's if it lies
// beside the repository, else a stand-in. Ramen itself does not run.
//
// West is brought into the state that a test asks for: without Ramen's CRDs, with one of them, with older ones. A name with T
// and a number follows a public report: TVelero is one of github.com/vmware-tanzu/velero, T alone one of
// github.com/RamenDR/ramen (an issue, a pull request or a commit).
package recipes
