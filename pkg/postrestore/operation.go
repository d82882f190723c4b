package postrestore

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"
)

// Operation IDs are stored with the backup and read by whatever version of the plugin answers the next poll, so they
// carry a version of their own.
const (
	dcOperation   = "dc/v1"
	podsOperation = "pods/v1"
)

// OperationFor returns the ID of the operation that is phase two of one DeploymentConfig, named by its target namespace.
func OperationFor(restore *velerov1.Restore, namespace, name string) string {
	return strings.Join([]string{dcOperation, string(restore.UID), namespace, name}, "/")
}

// OperationForPods returns the ID of the operation that looks after detached pods whose DeploymentConfig did not come.
func OperationForPods(restore *velerov1.Restore) string {
	return podsOperation + "/" + string(restore.UID)
}

// operation is a parsed ID. DC is nil for that of the pods.
type operation struct {
	dc *types.NamespacedName
}

// parseOperation reads an ID of this restore. Anything else is an error: Velero then fails the operation for good.
func parseOperation(id string, restore *velerov1.Restore) (operation, error) {
	parts := strings.Split(id, "/")
	if len(parts) < 3 || parts[2] != string(restore.UID) {
		return operation{}, invalid(id, restore)
	}
	switch kind := parts[0] + "/" + parts[1]; {
	case kind == dcOperation && len(parts) == 5 && parts[3] != "" && parts[4] != "":
		return operation{dc: &types.NamespacedName{Namespace: parts[3], Name: parts[4]}}, nil
	case kind == podsOperation && len(parts) == 3:
		return operation{}, nil
	default:
		return operation{}, invalid(id, restore)
	}
}

func invalid(id string, restore *velerov1.Restore) error {
	return fmt.Errorf("%w: it is not one of restore %s/%s (uid %s)", riav2.InvalidOperationIDError(id), restore.Namespace, restore.Name, restore.UID)
}
