package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// completionTimeout bounds what is asked of the cluster while a person waits at a prompt.
const completionTimeout = 2 * time.Second

func newCompletion(s surroundings) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print what makes a shell complete the commands, flags and names",
		Long: "Print a script that makes a shell complete the commands of this program, their flags, and the names of restores and\n" +
			"namespaces, which it asks the cluster for. Where that takes longer than two seconds or is refused, it completes no\n" +
			"names and says nothing.",
		Example: "  # bash, with the package bash-completion: in this shell, and in every new one\n" +
			"  source <(" + binary + " completion bash)\n" +
			"  " + binary + " completion bash > ~/.local/share/bash-completion/completions/" + binary + "\n\n" +
			"  # zsh, in a folder of $fpath\n" +
			"  " + binary + " completion zsh > \"${fpath[1]}/_" + binary + "\"\n\n" +
			"  # fish\n" +
			"  " + binary + " completion fish > ~/.config/fish/completions/" + binary + ".fish",
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			switch root := cmd.Root(); args[0] {
			case "bash":
				err = root.GenBashCompletionV2(s.out, true)
			case "zsh":
				err = root.GenZshCompletion(s.out)
			default:
				err = root.GenFishCompletion(s.out, true)
			}
			if err != nil {
				return failed(fmt.Errorf("write the script for %s: %w", args[0], err))
			}
			return nil
		},
	}
}

// completer asks the cluster for names while a person types. It never says what went wrong: that would stand in the middle of
// the command line.
type completer struct {
	s          surroundings
	connection *connection
}

// finder finds names in a cluster.
type finder func(context.Context, client.Client) ([]cobra.Completion, error)

// names returns what find finds, without files, which are never meant.
func (c completer) names(cmd *cobra.Command, find finder) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx := cmp.Or(cmd.Context(), context.Background())
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	cluster, err := c.s.connect(c.connection)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, err := find(ctx, cluster)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	slices.Sort(found)
	return found, cobra.ShellCompDirectiveNoFileComp
}

// restores completes the one argument of a command: the name of a Restore, described by its phase.
func (c completer) restores(veleroNamespace *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.names(cmd, func(ctx context.Context, cluster client.Client) ([]cobra.Completion, error) {
			var list velerov1.RestoreList
			if err := cluster.List(ctx, &list, client.InNamespace(*veleroNamespace)); err != nil {
				return nil, err
			}
			found := make([]cobra.Completion, 0, len(list.Items))
			for i := range list.Items {
				phase := cmp.Or(list.Items[i].Status.Phase, velerov1.RestorePhaseNew)
				found = append(found, cobra.CompletionWithDesc(list.Items[i].Name, string(phase)))
			}
			return found, nil
		})
	}
}

// namespaces completes a flag of one or more namespaces, separated by commas.
func (c completer) namespaces(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	return c.names(cmd, func(ctx context.Context, cluster client.Client) ([]cobra.Completion, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
		if err := cluster.List(ctx, list); err != nil {
			return nil, err
		}
		found := make([]cobra.Completion, 0, len(list.Items))
		for i := range list.Items {
			if !slices.Contains(strings.Split(before, ","), list.Items[i].Name) {
				found = append(found, before+list.Items[i].Name)
			}
		}
		return found, nil
	})
}

// complete registers what the flags of a command are completed with. A flag that it does not have is a mistake of ours.
func (c completer) complete(cmd *cobra.Command, format format, namespaceFlags ...string) {
	functions := map[string]cobra.CompletionFunc{"output": cobra.FixedCompletions(format.allowed, cobra.ShellCompDirectiveNoFileComp)}
	for _, flag := range namespaceFlags {
		functions[flag] = c.namespaces
	}
	for flag, function := range functions {
		if err := cmd.RegisterFlagCompletionFunc(flag, function); err != nil {
			panic(err)
		}
	}
}
