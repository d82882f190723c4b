// Package contract spells every name that leaves this binary: action names, labels, annotations, setting keys and log
// field keys. Nothing else in the project spells one, so that a rename is one line and its consequences are read here.
//
// Who relies on what is said at each name. Names marked "community" are those that the OADP community settled on: the
// openshift-velero-plugin writes them, OADP's dc-post-restore.sh and its documentation read them.
package contract

// Names of the actions, as Velero lists them in `velero plugin get`. Velero refuses to start when two binaries register
// the same kind and name, so the prefix is our own (velero pkg/plugin/clientmgmt/process/registry.go). The names also
// stand in restore operations that are stored with a backup: a rename makes the running operations of an upgrade fail.
const (
	PodRestoreAction                   = "oadp.openshift.io/pod-restore"
	DeploymentConfigRestoreAction      = "oadp.openshift.io/deploymentconfig-restore"
	ReplicationControllerRestoreAction = "oadp.openshift.io/replicationcontroller-restore"
)

// Labels. The value of each is Velero's label.GetValidName of the restore's name: the name itself up to 63 characters,
// else its first 57 followed by 6 hexadecimal digits of its sha256.
const (
	// DisconnectedLabel marks a pod that is detached from its ReplicationController. Community.
	DisconnectedLabel = "oadp.openshift.io/disconnected-from-dc"
	// ReplicasModifiedLabel marks a DeploymentConfig that is held. Community. A ReplicationController made while its
	// DeploymentConfig is held inherits it (library-go pkg/apps/appsutil/util.go, MakeDeployment), so never select
	// ReplicationControllers by it.
	ReplicasModifiedLabel = "oadp.openshift.io/replicas-modified"
)

// Annotations.
const (
	// OriginalReplicasAnnotation is on a held DeploymentConfig: spec.replicas before it was held, decimal. Community.
	OriginalReplicasAnnotation = "oadp.openshift.io/original-replicas"
	// OriginalPausedAnnotation is on a held DeploymentConfig: spec.paused before it was held, "true" or "false". Community.
	OriginalPausedAnnotation = "oadp.openshift.io/original-paused"
	// RestoreAnnotation is on held DeploymentConfigs and detached pods: "<velero namespace>/<restore name>" in full.
	// It tells two restores apart whose labels are the same: those of two Velero instances. Absent on what the
	// openshift-velero-plugin marked.
	RestoreAnnotation = "oadp.openshift.io/restore"
	// RestoreUIDAnnotation is on held DeploymentConfigs and detached pods: the UID of the Restore.
	RestoreUIDAnnotation = "oadp.openshift.io/restore-uid"
	// DeploymentConfigAnnotation is on a detached pod: the name of its DeploymentConfig.
	DeploymentConfigAnnotation = "oadp.openshift.io/deploymentconfig"
	// ResumeAnnotation on a Restore overrides the setting `resume` for that restore.
	ResumeAnnotation = "oadp.openshift.io/dc-resume"
	// StockBackupAnnotation is put on pods and DeploymentConfigs at backup by the openshift-velero-plugin (since
	// OADP 1.3). Where it stands, that plugin may hold the DeploymentConfig by its own rules. Community.
	StockBackupAnnotation = "oadp.openshift.io/includes-dm-dc-fix"
)

// Keys of the plugin's ConfigMap (labelled velero.io/plugin-config and
// `oadp.openshift.io/deploymentconfig-restore: RestoreItemAction`).
const (
	// ResumeSetting says who runs phase two: see the package settings of pkg/restore.
	ResumeSetting = "resume"
	// StartTimeoutSetting is a Go duration: how long a restored pod may be unable to start before phase two gives up on it.
	StartTimeoutSetting = "startTimeout"
)

// Names that OpenShift's DeploymentConfig and deployer controllers use (library-go pkg/apps/appsutil/const.go).
const (
	// DeploymentLabel is on a DeploymentConfig's pod and in its ReplicationController's selector: the name of that
	// ReplicationController. Without it no ReplicationController adopts the pod.
	DeploymentLabel = "deployment"
	// DeploymentConfigLabel is on a DeploymentConfig's pod: the name of the DeploymentConfig. `oc new-app` makes
	// Services that select on it.
	DeploymentConfigLabel = "deploymentconfig"
	// DeployerPodForLabel is on deployer pods and lifecycle-hook pods: the ReplicationController they roll out.
	DeployerPodForLabel = "openshift.io/deployer-pod-for.name"
	// PodDeploymentConfigAnnotation is on a DeploymentConfig's pods and ReplicationControllers: the name of the DeploymentConfig.
	PodDeploymentConfigAnnotation = "openshift.io/deployment-config.name"
	// PodDeploymentAnnotation is on a DeploymentConfig's pods: the name of the ReplicationController that made them. A pod
	// whose DeploymentConfig turns out not to be restored gets its label `deployment` back from here.
	PodDeploymentAnnotation = "openshift.io/deployment.name"
	// LatestVersionAnnotation is on a ReplicationController: the version of the DeploymentConfig it was made for, decimal.
	LatestVersionAnnotation = "openshift.io/deployment-config.latest-version"
	// DeploymentPhaseAnnotation is on a ReplicationController: New, Pending, Running, Complete or Failed.
	DeploymentPhaseAnnotation = "openshift.io/deployment.phase"
	// DesiredReplicasAnnotation is on a ReplicationController: the replicas that its rollout is to end with, decimal.
	DesiredReplicasAnnotation = "kubectl.kubernetes.io/desired-replicas"
	// BuildAnnotation is on build pods: the name of the Build (openshift/api build/v1).
	BuildAnnotation = "openshift.io/build.name"
)

// Log field keys. The fields `resource`, `name` and `namespace` must be strings: a Velero server panics on others.
const (
	LogAction    = "action"
	LogNamespace = "namespace"
	LogName      = "name"
	LogTarget    = "targetNamespace"
	LogRestore   = "restore"
	LogDecision  = "decision"
	LogReason    = "reason"
	LogOperation = "operationID"
)
