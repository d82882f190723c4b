package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/version"
)

func newVersion(s surroundings) *cobra.Command {
	format := newFormat(formatText, formatJSON, formatYAML)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin, and the Go release and Velero library it is built with",
		Long: "Print the version and commit of this plugin, and the Go release and the version of Velero's library that it is\n" +
			"built with. It needs no cluster.",
		Example: "  " + binary + " version\n\n" +
			"  # Of the one that is installed\n" +
			"  kubectl -n velero exec deploy/velero -c velero -- " + contract.InstalledPath + " version\n\n" +
			"  " + binary + " version -o json",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info := version.Get()
			if *format.value != formatText {
				return encode(s.out, *format.value, info)
			}
			if _, err := fmt.Fprintf(s.out, "Version:  %s\nCommit:   %s\nGo:       %s\nVelero:   %s\n", info.Version, info.Commit, info.Go, info.Velero); err != nil {
				return failed(fmt.Errorf("write the version: %w", err))
			}
			return nil
		},
	}
	cmd.Flags().VarP(format, "output", "o", "how to print it: "+format.choices())
	completer{}.complete(cmd, format)
	return cmd
}
