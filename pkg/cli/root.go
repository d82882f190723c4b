// Package cli holds the commands that a person runs: over the same code as the plugin, in Velero's pod or elsewhere.
package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// New returns the root command.
func New() *cobra.Command {
	return &cobra.Command{Use: "velero-plugin-for-openshift-dr"}
}

// Run runs the command line and returns its exit code.
func Run(args []string, in io.Reader, out, errOut io.Writer) int {
	root := New()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.Execute(); err != nil {
		return 1
	}
	return 0
}
