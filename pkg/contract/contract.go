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

	VRGBackupAction    = "oadp.openshift.io/volumereplicationgroup-backup"
	RecipeBackupAction = "oadp.openshift.io/recipe-backup"
	VRGRestoreAction   = "oadp.openshift.io/volumereplicationgroup-restore"
	// VRGRestoreGateAction must sort after VRGRestoreAction: Velero runs the actions of one binary in the order of their
	// names, and only a second action on an item sees what the first one's additional items came to (velero
	// pkg/plugin/framework/common/server_mux.go, pkg/restore/restore.go).
	VRGRestoreGateAction = "oadp.openshift.io/volumereplicationgroup-restore-gate"
	RecipeRestoreAction  = "oadp.openshift.io/recipe-restore"
	// RecipeRestoreGateAction sorts after RecipeRestoreAction for the same reason: a Recipe can be held against its CRD only
	// where that is served.
	RecipeRestoreGateAction = "oadp.openshift.io/recipe-restore-gate"
	CRDRestoreAction        = "oadp.openshift.io/customresourcedefinition-restore"
)

// InstalledPath is where the binary is in Velero's pod: every plugin's init container copies into the volume that the server
// mounts at /plugins, its default plugin directory. Commands that are told to a person name it, and so does the Job of
// pkg/standby.
const InstalledPath = "/plugins/velero-plugin-for-openshift-dr"

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

// Annotations of Recipes that travel with their VolumeReplicationGroup (VRG).
const (
	// RecipeBundleAnnotation is on a VRG in a backup: what was found of its Recipe, as pkg/recipe.Record. The backup action
	// writes it, the restore actions read it and take it away.
	RecipeBundleAnnotation = "oadp.openshift.io/recipe-bundle"
	// RecipeProvenanceAnnotation stays on a restored VRG: in short, from which backup and cluster it and its Recipe came.
	RecipeProvenanceAnnotation = "oadp.openshift.io/recipe-provenance"
	// VRGRestoreAnnotation on a Restore overrides the setting `vrgRestore` for that restore.
	VRGRestoreAnnotation = "oadp.openshift.io/vrg-restore"
	// RecipeBundleRestoredAnnotation marks a VRG on its way from VRGRestoreAction to VRGRestoreGateAction: its additional
	// items have been restored. It never reaches the cluster.
	RecipeBundleRestoredAnnotation = "oadp.openshift.io/recipe-bundle-restored"
)

// PluginConfigLabel is on the ConfigMap that holds the settings of an action, beside a label of the action's name (velero
// pkg/plugin/framework/common/plugin_config.go).
const PluginConfigLabel = "velero.io/plugin-config"

// Names of Ramen (github.com/RamenDR/ramen api/v1alpha1, github.com/RamenDR/recipe api/v1alpha1). Always in full: IBM Fusion
// has Recipes of another group, which are never touched.
const (
	// RamenGroup is the API group of VRGs and Recipes, RamenVersion the only version of either that was ever published.
	RamenGroup   = "ramendr.openshift.io"
	RamenVersion = "v1alpha1"

	VRGKind        = "VolumeReplicationGroup"
	VRGResource    = "volumereplicationgroups"
	VRGCRD         = VRGResource + "." + RamenGroup
	RecipeKind     = "Recipe"
	RecipeResource = "recipes"
	RecipeCRD      = RecipeResource + "." + RamenGroup

	// CreatedByRamenLabel with the value "true" is on the Backups and Restores that Ramen makes itself, on hub-managed VRGs and
	// on the copies of Recipes that the hub hands out (internal/controller/kubeobjects/velero/requests.go, mw_util.go).
	CreatedByRamenLabel = "ramendr.openshift.io/created-by-ramen"
	// VRGFinalizer keeps a VRG until Ramen has seen to its deletion. A VRG whose Recipe is missing is never seen to, and can
	// then not be deleted (Ramen issue 922).
	VRGFinalizer = "volumereplicationgroups.ramendr.openshift.io/vrg-protection"
	// DRPCAnnotationPrefix begins the annotations of VRGs that a DRPlacementControl of the hub manages.
	DRPCAnnotationPrefix = "drplacementcontrol.ramendr.openshift.io/"
	// BuiltInRecipe is the name of a Recipe that is part of Ramen: there is no object of it, and one would be ignored.
	BuiltInRecipe = "vm-recipe"
)

// CustomResourceDefinitions, as Velero and the API server name them.
const (
	CRDGroup    = "apiextensions.k8s.io"
	CRDVersion  = "v1"
	CRDKind     = "CustomResourceDefinition"
	CRDResource = "customresourcedefinitions"
)

// Keys of the ConfigMap for backups of VRGs (labelled velero.io/plugin-config and
// `oadp.openshift.io/volumereplicationgroup-backup: BackupItemAction`).
const (
	// MissingRecipeSetting is `error` or `warn`: at which level the backup's log says that a Recipe did not come along.
	MissingRecipeSetting = "missingRecipe"
	// AdminNamespacesSetting is a list of namespaces with commas: VRGs in them may bring Recipes of any namespace.
	AdminNamespacesSetting = "adminNamespaces"
)

// Keys of the ConfigMap for restores of VRGs (labelled velero.io/plugin-config and
// `oadp.openshift.io/volumereplicationgroup-restore: RestoreItemAction`).
const (
	// VRGRestoreSetting is `guard`, `as-is`, `failover` or `skip`: what becomes of a VRG.
	VRGRestoreSetting = "vrgRestore"
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
	LogResource  = "resource"
	LogNamespace = "namespace"
	LogName      = "name"
	LogTarget    = "targetNamespace"
	LogRestore   = "restore"
	LogBackup    = "backup"
	LogRecipe    = "recipe"
	LogDecision  = "decision"
	LogReason    = "reason"
	LogOperation = "operationID"
	LogJob       = "job"
)
