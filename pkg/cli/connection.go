package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

const (
	// namespaceVariable is set in Velero's pod by `velero install` and by OADP, and read by Velero's own command line
	// (velero pkg/client/config.go).
	namespaceVariable = "VELERO_NAMESPACE"
	// namespaceFile tells a pod its own namespace.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// connection are the flags that say which cluster to talk to and as whom, by the rules and names of kubectl. Without
// any, that is the kubeconfig's current context or, in a pod, the cluster that the pod runs in.
type connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.kubeconfig, clientcmd.RecommendedConfigPathFlag, "", "path to the kubeconfig file to use")
	all := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&c.overrides, flags, clientcmd.ConfigOverrideFlags{
		CurrentContext: all.CurrentContext,
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Impersonate: all.AuthOverrideFlags.Impersonate, ImpersonateGroups: all.AuthOverrideFlags.ImpersonateGroups,
		},
	})
}

func (c *connection) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster to talk to (set --kubeconfig and --context, or run this in Velero's pod): %w", err)
	}
	return config, nil
}

// veleroNamespace returns the namespace that Velero runs in when no flag names it. guessed is true when nothing else
// does either, and it is Velero's default.
func (s surroundings) veleroNamespace() (namespace string, guessed bool) {
	if namespace = s.getenv(namespaceVariable); namespace != "" {
		return namespace, false
	}
	// Outside a pod there is no such file.
	if content, err := s.readFile(namespaceFile); err == nil {
		if namespace = strings.TrimSpace(string(content)); namespace != "" {
			return namespace, false
		}
	}
	return velerov1.DefaultNamespace, true
}

// checkNamespaces returns the namespaces of the flag --namespace, each once. An empty name is refused because it comes from
// an unset variable of a shell, and without it a command would work on the whole cluster. set tells whether the flag is.
func checkNamespaces(namespaces []string, set bool, veleroNamespace string) ([]string, error) {
	if set && len(namespaces) == 0 {
		return nil, errors.New("--namespace is empty: name a namespace, or leave it out to work in all")
	}
	for _, namespace := range append([]string{veleroNamespace}, namespaces...) {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return nil, fmt.Errorf("%q is not the name of a namespace: %s", namespace, strings.Join(problems, "; "))
		}
	}
	namespaces = slices.Sorted(slices.Values(namespaces))
	return slices.Compact(namespaces), nil
}
