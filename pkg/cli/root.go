// Package cli holds the commands that a person runs: over the same code as the plugin, in Velero's pod or elsewhere.
//
// Results go to stdout, progress and errors to stderr. The commands are thin: flags in, one call of pkg/postrestore, a
// pure function from its report to rows and exit code, rows out.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

// Exit codes of every command. They are part of the contract with scripts.
const (
	// ExitDone: done, or nothing to do.
	ExitDone = 0
	// ExitFailed: something failed.
	ExitFailed = 1
	// ExitUsage: the command line is wrong; nothing was tried.
	ExitUsage = 2
	// ExitNotFinished: time ran out, the command was interrupted, or the restore has not ended. To run it again may help.
	ExitNotFinished = 3
)

// binary is the name of this program: in Velero's pod it is /plugins/<binary>.
const binary = "velero-plugin-for-openshift-dr"

// Run runs the command line, without the program's name, and returns its exit code. SIGINT and SIGTERM end a command in
// order; a second one ends the process at once.
func Run(args []string, in io.Reader, out, errOut io.Writer) int {
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The commands get a context of their own: what broken-off requests return is the cause of theirs, which after a signal
	// is not context.Canceled.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	context.AfterFunc(signalled, func() {
		cancel()
		stop()
	})
	return execute(ctx, args, surroundings{
		in: in, out: out, errOut: errOut,
		getenv: os.Getenv, readFile: os.ReadFile, executable: os.Executable,
		clock: clock.RealClock{}, screen: screenOf(errOut), outScreen: screenOf(out),
		connect: func(c *connection) (client.Client, error) {
			config, err := c.config()
			if err != nil {
				return nil, err
			}
			return restore.NewClient(config)
		},
	})
}

// surroundings are what the commands take from the process and the machine they run in.
type surroundings struct {
	in          io.Reader
	out, errOut io.Writer
	getenv      func(key string) string
	readFile    func(path string) ([]byte, error)
	executable  func() (string, error) // path of this program
	clock       clock.WithTicker
	// screen is that of errOut, outScreen that of out.
	screen, outScreen screen
	connect           func(*connection) (client.Client, error)
}

// exitError is an error that ends the program with a code of its own. Every error of a command that ran is one; cobra's
// own errors are about the command line. One without a cause is told by its code alone: what there is to say was printed.
type exitError struct {
	code int
	err  error
}

// Error implements error.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

func failed(err error) error      { return &exitError{code: ExitFailed, err: err} }
func notFinished(err error) error { return &exitError{code: ExitNotFinished, err: err} }

// execute runs the command line and tells an error that ended it.
func execute(ctx context.Context, args []string, s surroundings) int {
	root := newRoot(s)
	root.SetArgs(append([]string{}, args...)) // not nil, for which cobra would take the process's own
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.errOut)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	exit, isExit := errors.AsType[*exitError](err)
	if !isExit {
		tell(s.errOut, "error: %v", err)
		tell(s.errOut, "Run '%s --help' for usage.", ran.CommandPath())
		return ExitUsage
	}
	if exit.err != nil {
		tell(s.errOut, "error: %v", err)
	}
	return exit.code
}

// tell writes a line to stderr. When that fails there is nobody left to tell it to.
func tell(errOut io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(errOut, format+"\n", args...)
}

func newRoot(s surroundings) *cobra.Command {
	root := &cobra.Command{
		Use:   binary,
		Short: "Velero plugin that brings OpenShift applications back after a disaster",
		Long: "This is a Velero plugin that brings OpenShift applications back after a disaster: it is installed with\n" +
			"`velero plugin add IMAGE`, and then Velero runs it in every restore. Run by hand it shows what restores hold, and\n" +
			"finishes a restore that Velero could not finish by itself.",
		Example: "  # Is anything held, and by what?\n" +
			"  " + binary + " status\n\n" +
			"  # Finish a restore by hand\n" +
			"  " + binary + " post-restore my-restore\n\n" +
			"  # In Velero's pod, where the program is\n" +
			"  kubectl -n velero exec deploy/velero -c velero -- " + contract.InstalledPath + " status",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newStatus(s), newPostRestore(s), newVersion(s), newInstall(s), newCompletion(s))
	return root
}
