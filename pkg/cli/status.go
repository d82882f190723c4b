package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

// watchEvery is the pause between two looks of a watch. A look takes a handful of lists.
const watchEvery = 2 * time.Second

const statusLong = `Show every DeploymentConfig that a restore holds and every pod that a restore has detached, in the whole cluster.

For each there is the restore with its phase, how long it has been held, the replicas that it gets back, how many of its
detached pods have their data, and what it waits for: the same sentence that the restore's operation shows. Below the
table stands what does not fit together, and the command that helps.

All namespaces are shown, also without -A: what is held must not be overlooked because kubectl is set to another
namespace. With -n, rights in these namespaces and in Velero's are enough; what is held elsewhere is then not seen.

The age is not recorded with the hold. It is that of the DeploymentConfig or of its oldest detached pod, which the restore
has created; where the restore has patched a DeploymentConfig that was there, the time that its managed fields tell.

Columns and fields:
  phase      that of the Restore; "gone" when it does not exist any more
  replicas   those of the DeploymentConfig before it was held. Paused is shown with -o wide
  pods       detached pods: initialised, of all
  problems   restore-gone, restore-replaced (another one of that name), pods-without-deploymentconfig,
             record-unreadable, record-without-mark, held-without-pods
-o wide adds the time, the names of the pods and the command; -o json and -o yaml say all of it.

With --watch the table is drawn again every two seconds; where the output is no terminal, a line is printed for what has
changed. It goes on until it is interrupted, or until --timeout.

Exit codes:
  0  nothing is held
  1  failed: the cluster could not be looked at
  2  wrong usage
  3  something is held. With --watch: at the last look`

// statusOptions are the flags of status.
type statusOptions struct {
	connection      connection
	veleroNamespace string
	namespaces      []string
	all             bool
	watch           bool
	timeout         time.Duration
	format          format
}

func newStatus(s surroundings) *cobra.Command {
	o := &statusOptions{format: newFormat(formatTable, formatWide, formatJSON, formatYAML)}
	o.veleroNamespace, _ = s.veleroNamespace()
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what restores hold, and what each waits for",
		Long:  statusLong,
		Example: "  # Is anything held?\n" +
			"  " + binary + " status\n\n" +
			"  # In one namespace, with times, pods and commands\n" +
			"  " + binary + " status -n shop -o wide\n\n" +
			"  # Follow a restore\n" +
			"  " + binary + " status --watch\n\n" +
			"  # The restores that hold something, for a script\n" +
			"  " + binary + " status -o json | jq -r '.items[].restore.name' | sort -u",
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return o.check(cmd.Flags().Changed("namespace"))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&o.all, "all-namespaces", "A", false, "look in all namespaces, as without -n")
	flags.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "look in these namespaces only (repeat it, or separate them by commas)")
	flags.VarP(o.format, "output", "o", "how to print it: "+o.format.choices())
	flags.BoolVarP(&o.watch, "watch", "w", false, "look again every two seconds, and show what has changed")
	flags.DurationVar(&o.timeout, "timeout", 0, "with --watch: how long, 0 for until it is interrupted; otherwise how long to look, 1m if 0")
	flags.StringVar(&o.veleroNamespace, "velero-namespace", o.veleroNamespace,
		"the namespace of restores that did not mark what they hold with it: those of the openshift plugin")
	o.connection.addFlags(flags)
	completer{s, &o.connection}.complete(cmd, o.format, "namespace", "velero-namespace")
	return cmd
}

// check finds what is wrong with the command line.
func (o *statusOptions) check(inNamespaces bool) error {
	switch {
	case inNamespaces && o.all:
		return errors.New("both --namespace and --all-namespaces are set: choose one")
	case o.timeout < 0:
		return fmt.Errorf("--timeout is %s: it is a duration such as 10m, or 0", o.timeout)
	case o.timeout == 0 && !o.watch:
		o.timeout = time.Minute
	}
	var err error
	o.namespaces, err = checkNamespaces(o.namespaces, inNamespaces, o.veleroNamespace)
	return err
}

// run is the command. Its errors are exitErrors.
func (o *statusOptions) run(interrupt context.Context, s surroundings) error {
	ctx, cancel := interrupt, context.CancelFunc(func() {})
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(interrupt, o.timeout)
	}
	defer cancel()
	c, err := s.connect(&o.connection)
	if err != nil {
		return failed(err)
	}
	area := postrestore.Area{Namespaces: o.namespaces, VeleroNamespace: o.veleroNamespace}
	// The runner logs nothing while it only looks.
	runner := postrestore.NewRunner(c, s.clock, silent())
	look := func() (Status, error) {
		holdings, err := runner.Survey(ctx, area)
		return statusOf(holdings), err
	}
	if o.watch {
		return o.follow(ctx, s, look)
	}
	status, err := look()
	if err != nil {
		return failed(explain(err, o.namespaces))
	}
	if err := o.show(s, status); err != nil {
		return err
	}
	return status.verdict()
}

// show prints a status once.
func (o *statusOptions) show(s surroundings, status Status) error {
	if err := status.print(s.out, *o.format.value, s.clock.Now()); err != nil {
		return err
	}
	if *o.format.value != formatTable && *o.format.value != formatWide {
		return nil
	}
	if len(status.Items) == 0 {
		tell(s.errOut, "Nothing is held in %s.", where(o.namespaces))
	}
	for _, line := range status.advice() {
		tell(s.errOut, "%s", line)
	}
	return nil
}

// verdict is what the command ends with. The table has said what is held.
func (s Status) verdict() error {
	if len(s.Items) == 0 {
		return nil
	}
	return notFinished(nil)
}

// follow looks again and again until ctx is done, and shows each look. Looks that fail for reasons that may pass are told
// and made again.
func (o *statusOptions) follow(ctx context.Context, s surroundings, look func() (Status, error)) error {
	view := o.view(s)
	var last Status
	for looked := false; ; {
		status, err := look()
		switch {
		case err == nil:
			last, looked = status, true
			err = view.show(status)
		case ctx.Err() != nil && looked:
			return last.verdict()
		case postrestore.IsPassing(err) && ctx.Err() == nil:
			view.note("cannot look at the cluster, trying again: " + oneLine(err.Error()))
			err = nil
		default:
			err = failed(explain(err, o.namespaces))
		}
		if err != nil {
			return err
		}
		timer := s.clock.NewTimer(watchEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			if !looked {
				return failed(errors.New("the cluster could not be looked at before the end"))
			}
			return last.verdict()
		case <-timer.C():
		}
	}
}

// view is how a watch shows what it finds.
type view interface {
	show(Status) error
	note(line string)
}

// view returns how to show a watch: drawn over on a terminal, as lines or documents elsewhere.
func (o *statusOptions) view(s surroundings) view {
	_, _, terminal := s.outScreen()
	switch format := *o.format.value; {
	case format == formatJSON, format == formatYAML:
		return &documents{s: s, format: format}
	case terminal:
		return &drawing{s: s, canvas: canvas{out: s.out, screen: s.outScreen}, where: where(o.namespaces)}
	default:
		return &changes{s: s, where: where(o.namespaces), said: map[string]string{}}
	}
}

// drawing draws a table over the last one, with the sentences below it, where there is room for them.
type drawing struct {
	s      surroundings
	canvas canvas
	where  string
	last   []string
}

func (d *drawing) show(status Status) error {
	d.last = []string{"Nothing is held in " + d.where + "."}
	if len(status.Items) > 0 {
		var b strings.Builder
		if err := printTable(&b, tableOf(status.Items, shortColumns(d.s.clock.Now())), false); err != nil {
			return err
		}
		d.last = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
	for _, item := range status.Items {
		d.last = append(d.last, item.key()+": "+oneLine(item.Message))
	}
	d.last = append(d.last, status.advice()...)
	return d.canvas.draw(d.head(), d.last)
}

func (d *drawing) head() string {
	return d.s.clock.Now().Format(time.TimeOnly) + "  what restores hold (Ctrl-C ends this)"
}

func (d *drawing) note(line string) {
	_ = d.canvas.draw(d.head(), append([]string{line}, d.last...)) // the next look meets the same error
}

// changes prints a line for what has changed since the last look.
type changes struct {
	s     surroundings
	where string
	said  map[string]string
	// shown is true once a look was shown.
	shown bool
}

func (c *changes) show(status Status) error {
	now := map[string]string{}
	for _, item := range status.Items {
		now[item.key()] = item.line()
	}
	var lines []string
	for name, line := range now {
		if c.said[name] != line {
			lines = append(lines, name+": "+line)
		}
	}
	for name := range c.said {
		if _, held := now[name]; !held {
			lines = append(lines, name+": not held any more")
		}
	}
	slices.Sort(lines)
	if len(now) == 0 && (len(c.said) > 0 || !c.shown) {
		lines = append(lines, "nothing is held in "+c.where)
	}
	c.said, c.shown = now, true
	for _, line := range lines {
		if _, err := fmt.Fprintf(c.s.out, "%s  %s\n", c.s.clock.Now().Format(time.TimeOnly), line); err != nil {
			return failed(fmt.Errorf("write what has changed: %w", err))
		}
	}
	return nil
}

func (c *changes) note(line string) { tell(c.s.errOut, "%s", line) }

// line says on one line how it is with a DeploymentConfig.
func (i StatusItem) line() string {
	sentences := []string{oneLine(i.Message)}
	for _, problem := range i.Problems {
		sentences = append(sentences, oneLine(problem.Message))
	}
	line := strings.Join(sentences, "; ")
	if i.Restore == nil {
		return line
	}
	return fmt.Sprintf("restore %s (%s): %s", i.Restore.Name, i.phase(), line)
}

// documents prints a whole document whenever it has changed.
type documents struct {
	s      surroundings
	format string
	last   string
}

func (d *documents) show(status Status) error {
	var b strings.Builder
	if err := encode(&b, d.format, status); err != nil {
		return err
	}
	if b.String() == d.last {
		return nil
	}
	separator := ""
	if d.last != "" && d.format == formatYAML {
		separator = "---\n"
	}
	d.last = b.String()
	if _, err := io.WriteString(d.s.out, separator+d.last); err != nil {
		return failed(fmt.Errorf("write what has changed: %w", err))
	}
	return nil
}

func (d *documents) note(line string) { tell(d.s.errOut, "%s", line) }

// where names the namespaces that are looked at.
func where(namespaces []string) string {
	switch len(namespaces) {
	case 0:
		return "the cluster"
	case 1:
		return "namespace " + namespaces[0]
	default:
		return "namespaces " + strings.Join(namespaces, ", ")
	}
}
