package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

const postRestoreLong = `Finish a restore: bring its DeploymentConfigs back once the data of their pods is in and their hooks have run.

While a restore brings data, a DeploymentConfig is held at 0 replicas and its restored pods are detached from it. Velero
ends that by itself. Use this command where it could not: an exec hook had to be waited for, a volume restore failed and
has been put right, Velero was restarted in the middle, or the setting "resume" is "manual".

It deletes the detached pods, gives each DeploymentConfig the replicas and paused that it had, and waits until they are
there. Pods whose data is not in yet are waited for; pods whose data failed to come stay as they are. It may be run at any
time after the restore's end, and again: what is done is not done twice.

With --wait it may be run before the restore's end. It then waits for it, whatever phase the restore ends in, and for no
longer than the restore's item operation timeout. The Job that the plugin starts in Velero's namespace does so.

Exit codes:
  0  done, or nothing to do
  1  failed: the restore is unknown, or a DeploymentConfig could not be brought back. The others have been all the same
  2  wrong usage; nothing was tried
  3  not finished: the restore has not ended, time ran out, or the command was interrupted. Run it again later

With -o json and -o yaml:
  restore, namespace   name and namespace of the Restore
  results              one for each DeploymentConfig:
    namespace, name
    result             resumed, pods-deleted (it was not held), reattached (the restore did not bring it),
                       nothing-to-do (somebody else was faster), failed, not-finished, or planned (--dry-run)
    step               what would be done first (--dry-run)
    pods               detached pods, as last seen: initialized, total
    lostVolumes        volumes that were given up (--accept-data-loss)
    hooks              that an exec hook of its pods failed or may not have run
    message            how far it is or what is wrong, in words`

// postRestoreOptions are the flags of post-restore.
type postRestoreOptions struct {
	connection connection
	// veleroNamespace is where the Restore is. guessed: nobody has said so, it is Velero's default.
	veleroNamespace string
	guessed         bool
	namespaces      []string
	dryRun          bool
	timeout         time.Duration
	wait            bool
	deadline        time.Time
	job             string
	acceptDataLoss  bool
	format          format
}

func newPostRestore(s surroundings) *cobra.Command {
	o := &postRestoreOptions{format: newFormat(formatTable, formatJSON, formatYAML)}
	o.veleroNamespace, o.guessed = s.veleroNamespace()
	cmd := &cobra.Command{
		Use:   "post-restore RESTORE",
		Short: "Finish a restore: bring its DeploymentConfigs back",
		Long:  postRestoreLong,
		Example: "  # See what would be done\n" +
			"  " + binary + " post-restore my-restore --dry-run\n\n" +
			"  # Do it, under OADP\n" +
			"  " + binary + " post-restore my-restore --velero-namespace openshift-adp\n\n" +
			"  # In two namespaces only, which needs rights on these only\n" +
			"  " + binary + " post-restore my-restore -n shop,billing\n\n" +
			"  # Give up on the data of volumes that could not be restored\n" +
			"  " + binary + " post-restore my-restore -n shop --accept-data-loss",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one restore, not %d: %s post-restore RESTORE", len(args), binary)
			}
			return nil
		},
		// Whatever is wrong with the command line is found here, so that RunE only fails by what it meets.
		PreRunE: func(cmd *cobra.Command, args []string) error {
			o.guessed = o.guessed && !cmd.Flags().Changed("velero-namespace")
			return o.check(args[0], cmd.Flags().Changed("namespace"))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), s, args[0])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "work in these namespaces only (repeat it, or separate them by commas); all if not set")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print what would be done first to each DeploymentConfig, and change nothing")
	flags.BoolVar(&o.acceptDataLoss, "accept-data-loss", false, "bring a DeploymentConfig up although a volume restore of its pods failed or a pod cannot start")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to work and wait, above 0")
	flags.BoolVar(&o.wait, "wait", false, "wait for the restore to end first, for as long as its item operation timeout")
	flags.TimeVar(&o.deadline, "deadline", time.Time{}, []string{time.RFC3339},
		"with --wait: wait for the restore, and for data that comes later, until this time, such as 2026-01-31T18:00:00Z")
	flags.StringVar(&o.job, "job", "", "with --wait: the Job that this runs in, which is deleted an hour after success")
	flags.VarP(o.format, "output", "o", "how to print the result: "+o.format.choices())
	flags.StringVar(&o.veleroNamespace, "velero-namespace", o.veleroNamespace, "the namespace that Velero and the Restore are in")
	o.connection.addFlags(flags)
	names := completer{s, &o.connection}
	names.complete(cmd, o.format, "namespace", "velero-namespace")
	cmd.ValidArgsFunction = names.restores(&o.veleroNamespace)
	return cmd
}

// check finds what is wrong with the command line.
func (o *postRestoreOptions) check(name string, inNamespaces bool) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a Restore: %s", name, strings.Join(problems, "; "))
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout is %s: it is a duration above 0, such as 10m", o.timeout)
	}
	if !o.wait && (!o.deadline.IsZero() || o.job != "") {
		return errors.New("--deadline and --job go with --wait only")
	}
	var err error
	o.namespaces, err = checkNamespaces(o.namespaces, inNamespaces, o.veleroNamespace)
	return err
}

// run is the command. Its errors are exitErrors.
func (o *postRestoreOptions) run(interrupt context.Context, s surroundings, name string) error {
	c, err := s.connect(&o.connection)
	if err != nil {
		return failed(err)
	}
	p := newProgress(s)
	run := &phaseTwo{
		postRestoreOptions: o, client: c, progress: p, clock: s.clock,
		runner: postrestore.NewRunner(c, s.clock, p.logger()),
		key:    types.NamespacedName{Namespace: o.veleroNamespace, Name: name},
	}
	if o.wait {
		return run.afterRestore(interrupt, func() error { return o.now(interrupt, s, run) })
	}
	return o.now(interrupt, s, run)
}

// now runs phase two and prints how it ended.
func (o *postRestoreOptions) now(interrupt context.Context, s surroundings, run *phaseTwo) error {
	ctx, cancel := context.WithTimeout(interrupt, o.timeout)
	defer cancel()
	p := run.progress
	output, err := run.do(ctx)
	p.end()
	if output != nil {
		if err := output.print(s.out, *o.format.value); err != nil {
			return err
		}
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return err
	case err != nil && ctx.Err() != nil && postrestore.IsPassing(err):
		return notFinished(fmt.Errorf("%s: %w", o.ending(interrupt), err))
	case err != nil:
		return failed(explain(err, o.namespaces))
	}
	return o.verdict(interrupt, *output)
}

// ending says what ended a run that has not finished.
func (o *postRestoreOptions) ending(interrupt context.Context) string {
	if interrupt.Err() != nil {
		return "interrupted"
	}
	return fmt.Sprintf("time is up after %s", o.timeout)
}

// verdict turns the exit code into an error that says what it stands for. The table has said the rest.
func (o *postRestoreOptions) verdict(interrupt context.Context, output Output) error {
	of := fmt.Sprintf("of %d DeploymentConfigs of restore %s/%s", len(output.Results), output.Namespace, output.Restore)
	switch output.exitCode() {
	case ExitFailed:
		if o.dryRun {
			return failed(fmt.Errorf("%d %s cannot be brought back as things are: see step %q", output.stopped(), of, postrestore.Stop))
		}
		err := fmt.Sprintf("%d %s failed", output.count(Failed), of)
		if open := output.count(NotFinished); open > 0 {
			err += fmt.Sprintf(", and %d are not finished (%s)", open, o.ending(interrupt))
		}
		return failed(errors.New(err))
	case ExitNotFinished:
		return notFinished(fmt.Errorf("%s: %d %s are not finished. Nothing is lost: run this again", o.ending(interrupt), output.count(NotFinished), of))
	default:
		return nil
	}
}

// phaseTwo is one run of the command.
type phaseTwo struct {
	*postRestoreOptions
	client   client.Client
	runner   *postrestore.Runner
	progress *progress
	clock    clock.WithTicker
	key      types.NamespacedName
}

// do finds the restore, plans, and runs phase two. The output is what is known in the end;
// beside an error it may be nil.
func (p *phaseTwo) do(ctx context.Context) (*Output, error) {
	scope, exists, err := p.scope(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := p.runner.Plan(ctx, scope)
	if err != nil {
		return nil, err
	}
	if len(plan.Results) == 0 {
		return p.nothing(ctx, exists)
	}
	if !exists {
		if p.guessed {
			// To take it for expired, and its hooks for done, the namespace must be the right one.
			return nil, fmt.Errorf("no Restore %s, though something is held for a restore of that name: say where Velero runs with --velero-namespace", p.key)
		}
		p.progress.note(fmt.Sprintf("Restore %s does not exist any more; what it holds is finished all the same", p.key))
	}
	planned := outputOf(p.key, plan, true)
	if p.dryRun {
		return &planned, nil
	}
	_ = planned.print(p.progress.canvas.out, formatTable) // to stderr, where an error can be told to nobody
	return p.drive(ctx, scope, plan)
}

// drive runs phase two and shows how far it is.
func (p *phaseTwo) drive(ctx context.Context, scope postrestore.Scope, plan postrestore.Report) (*Output, error) {
	looked, lookErr := false, errors.New("no answer")
	report, err := p.runner.Run(ctx, scope, func(report postrestore.Report, err error) {
		if err == nil {
			looked = true
		} else {
			lookErr = err
		}
		p.progress.observe(report, err)
	})
	if !looked {
		// The run has no report of its own, and an empty one would pass for "done": the plan is what is known.
		report = plan
		if err == nil {
			err = fmt.Errorf("the cluster could not be looked at: %w", lookErr)
		}
	}
	output := outputOf(p.key, report, false)
	return &output, err
}

// scope returns what to look at. exists is false when there is no such Restore: its marks are looked for all the same,
// since Velero deletes an expired Restore and leaves what it restored.
func (p *phaseTwo) scope(ctx context.Context) (scope postrestore.Scope, exists bool, err error) {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: p.key.Name}}
	err = p.client.Get(ctx, p.key, r)
	exists = err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return postrestore.Scope{}, false, fmt.Errorf("get Restore %s: %w", p.key, err)
	case exists && !postrestore.Ended(r.Status.Phase) && !p.wait:
		phase := r.Status.Phase
		if phase == "" {
			phase = velerov1.RestorePhaseNew
		}
		return postrestore.Scope{}, true, notFinished(fmt.Errorf("restore %s has not ended: it is %s, and data may be on its way or hooks be running. "+
			"Velero finishes it by itself as far as it can; run this when `velero restore get %s -n %s` shows Completed, PartiallyFailed or Failed",
			p.key, phase, p.key.Name, p.key.Namespace))
	}
	options := postrestore.Options{StartTimeout: p.startTimeout(ctx, r), AcceptDataLoss: p.acceptDataLoss}
	if exists {
		brought, err := restore.NewCache(p.client).For(r).Scope(ctx)
		if err != nil && !apierrors.IsNotFound(err) {
			return postrestore.Scope{}, true, err
		}
		scope = postrestore.ScopeOf(r, brought.Uncertain, postrestore.Ended(r.Status.Phase), options)
	} else {
		owner := postrestore.OwnerOf(p.key.Namespace, p.key.Name)
		scope = postrestore.Scope{Owner: owner, Restore: postrestore.Restore{NamespacedName: p.key, Ended: true}, Options: options}
	}
	scope.Namespaces = p.namespaces
	return scope, exists, nil
}

// startTimeout reads the one setting that matters here. Whatever is wrong with the settings does not stop a person who
// has come to put things right.
func (p *phaseTwo) startTimeout(ctx context.Context, r *velerov1.Restore) time.Duration {
	settings, err := restore.ReadSettings(ctx, p.client, r)
	if err != nil {
		p.progress.note(fmt.Sprintf("warning: %v; going on with %s %s", err, contract.StartTimeoutSetting, restore.DefaultStartTimeout))
		return restore.DefaultStartTimeout
	}
	return settings.StartTimeout
}

// nothing says that nothing is held: of a restore that exists, this is good news; of an unknown one, most likely a slip of
// the pen, and the names that do hold something help.
func (p *phaseTwo) nothing(ctx context.Context, exists bool) (*Output, error) {
	where := where(p.namespaces)
	if exists {
		p.progress.note(fmt.Sprintf("Nothing to do: nothing in %s is held for restore %s.", where, p.key))
		return &Output{Restore: p.key.Name, Namespace: p.key.Namespace, Results: []OutputResult{}}, nil
	}
	holding, err := p.holding(ctx)
	if err != nil {
		return nil, err
	}
	others := "no other restore holds anything there either"
	if len(holding) > 0 {
		others = "these restores hold something: " + strings.Join(holding, ", ")
	}
	return nil, fmt.Errorf("there is no Restore %s, and nothing in %s is held for it; %s. See also --velero-namespace", p.key, where, others)
}

// holding returns the restores that hold something in sight: by namespace and name where the marks tell, else by the
// value of the label.
func (p *phaseTwo) holding(ctx context.Context) ([]string, error) {
	namespaces := p.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var found []string
	for label, kind := range map[string]schema.GroupVersionKind{
		contract.ReplicasModifiedLabel: ocpappsv1.GroupVersion.WithKind("DeploymentConfigList"),
		contract.DisconnectedLabel:     corev1.SchemeGroupVersion.WithKind("PodList"),
	} {
		for _, namespace := range namespaces {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			if err := p.client.List(ctx, list, client.InNamespace(namespace), client.HasLabels{label}); err != nil && !restore.NotServed(err) {
				return nil, fmt.Errorf("list what other restores hold: %w", err)
			}
			for i := range list.Items {
				name := list.Items[i].Annotations[contract.RestoreAnnotation]
				if name == "" {
					name = list.Items[i].Labels[label]
				}
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
