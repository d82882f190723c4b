package cli

import (
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// refusal is the sentence in which a Kubernetes API server says what it refuses, whichever authorizer decided
// (k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage). The error's details name the
// resource only.
var refusal = regexp.MustCompile(`cannot (\S+) resource "([^"]+)" in API group "([^"]*)" (?:in the namespace "([^"]+)"|at the cluster scope)`)

// explain adds to a refusal by the API server what to do about it. The server's own sentence names the user, the verb,
// the resource and the scope.
func explain(err error, namespaces []string) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: log in to the cluster first, for example with `oc login`", err)
	case !apierrors.IsForbidden(err):
		return err
	}
	said := refusal.FindStringSubmatch(err.Error())
	if said == nil {
		return fmt.Errorf("%w: grant that right, or run this as a user who has it", err)
	}
	verb, resource, group, namespace := said[1], said[2], said[3], said[4]
	if group != "" {
		resource += "." + group
	}
	switch {
	case namespace != "":
		return fmt.Errorf("%w: grant the right to %s %s in namespace %s", err, verb, resource, namespace)
	case len(namespaces) == 0:
		return fmt.Errorf("%w: grant the right to %s %s in all namespaces, or name the namespaces to work in with --namespace", err, verb, resource)
	default:
		return fmt.Errorf("%w: grant the right to %s %s in all namespaces", err, verb, resource)
	}
}
