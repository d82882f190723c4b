package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

const (
	shop     = "shop" // the namespace, the application, its Service and the backup
	claim    = "orders"
	replicas = 2
	ordered  = 100
)

// Names of the two restores.
const (
	without = "shop-without"
	with    = "shop-with"
)

// Deadlines. On an idle machine each of these takes a few seconds.
const (
	soon        = time.Minute
	restoreTime = 2 * time.Minute
	pollEvery   = 100 * time.Millisecond
)

// story is what is told.
type story struct {
	*cluster
	*stage
	ground ground
	placed []string // orders
}

func (s *story) tell(ctx context.Context) error {
	for i, act := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"The application and its backup", s.backUp},
		{"Loss, and a restore with Velero alone", s.restoreWithout},
		{"Loss, and a restore with the plugin", s.restoreWith},
	} {
		s.act(i+1, act.title)
		if err := act.play(ctx); err != nil {
			return err
		}
	}
	return nil
}

// backUp deploys the shop, places its orders and backs it up.
func (s *story) backUp(ctx context.Context) error {
	s.start()
	for _, object := range application() {
		if err := s.Client().Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	if err := await(ctx, s.runs); err != nil {
		return err
	}
	s.happened("DC", "%s runs with %d pods on the claim %s", shop, replicas, claim)
	for i := range ordered {
		order := fmt.Sprintf("no. %d: %d cups of tea", i+1, i%7+1)
		// The first may come before the Service is ready, so it is tried again; the others need not be.
		if err := awaitIf(ctx, i == 0, func(ctx context.Context) error { return s.ground.place(ctx, order) }); err != nil {
			return fmt.Errorf("place order %d: %w", i+1, err)
		}
		s.placed = append(s.placed, order)
	}
	s.happened("Orders", "%d are placed %s; sha256 %s", ordered, s.ground.scene().way, digest(s.placed))
	s.command("velero", "backup", "create", shop, "--include-namespaces", shop, "--default-volumes-to-fs-backup")
	if err := s.CreateBackup(ctx, shop, "--include-namespaces", shop, "--default-volumes-to-fs-backup"); err != nil {
		return err
	}
	backup, err := s.WaitBackup(ctx, shop)
	if err != nil {
		return err
	}
	if backup.Status.Phase != velerov1.BackupPhaseCompleted {
		return fmt.Errorf("backup %s is %s", shop, backup.Status.Phase)
	}
	s.happened("Backup", "%s", backup.Status.Phase)
	return nil
}

// restoreWithout shows what happens without the plugin.
func (s *story) restoreWithout(ctx context.Context) error {
	if err := s.lose(ctx); err != nil {
		return err
	}
	narrator, err := s.restore(ctx, without)
	if err != nil {
		return err
	}
	defer narrator.stop()
	if err := await(ctx, s.runs); err != nil {
		return err
	}
	found, err := s.orders(ctx, narrator)
	if err != nil {
		return err
	}
	narrator.stop()
	out, err := s.Velero(ctx, "restore", "describe", without)
	if err != nil {
		return err
	}
	s.print("")
	s.command("velero", "restore", "describe", without)
	s.quote(chosen(out, "Phase:", "Estimated total items to be restored:", "kopia Restores"))
	var r velerov1.Restore
	if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.VeleroNamespace(), Name: without}, &r); err != nil {
		return err
	}
	if slices.Equal(found, s.placed) {
		return fmt.Errorf("restore %s is %s and all orders are back with Velero alone, so there is nothing to show here", without, r.Status.Phase)
	}
	s.print("")
	s.say("The application runs, with %d of its %d orders: data is lost. The restore is %s: it waits to fill a volume through a pod "+
		"that no longer exists, and will do so for 4 hours.", len(found), ordered, r.Status.Phase)
	return s.giveUp(ctx, without)
}

// orders returns what the shop has, once it can be asked. The narrator hears the answer too.
func (s *story) orders(ctx context.Context, n *narrator) (found []string, err error) {
	err = await(ctx, func(ctx context.Context) (err error) {
		found, err = s.ground.orders(ctx)
		return err
	})
	if err == nil && s.ground.scene().serves {
		n.answered(len(found))
	}
	return found, err
}

// restoreWith shows what happens with it, and checks the end.
func (s *story) restoreWith(ctx context.Context) error {
	if err := s.addPlugin(ctx); err != nil {
		return err
	}
	if err := s.lose(ctx); err != nil {
		return err
	}
	narrator, err := s.restore(ctx, with)
	if err != nil {
		return err
	}
	defer narrator.stop()
	ended, err := s.awaitRestore(ctx)
	if err != nil {
		return err
	}
	running := await(ctx, s.runs)
	found, err := s.orders(ctx, narrator)
	if err != nil {
		return errors.Join(err, running)
	}
	narrator.stop()
	if err := s.showRecords(ctx); err != nil {
		return err
	}
	return s.checkEnd(ctx, &ending{restore: ended, orders: found, outage: narrator.outage(), running: running})
}

// addPlugin installs the plugin, and with that restarts Velero.
func (s *story) addPlugin(ctx context.Context) error {
	what := "The plugin is added and Velero restarted, as `velero plugin add` does"
	if added := s.ground.scene().added; len(added) > 0 {
		s.command(added...)
		what = "Velero restarts with the plugin"
	}
	done := s.during(what)
	if err := s.ground.addPlugin(ctx); err != nil {
		return err
	}
	done()
	return nil
}

// giveUp ends a restore that hangs, and deletes it. What it waits for is cancelled first, because a restore that hangs while Velero is
// restarted comes to its end twice, in the old server and in the new one; and one that ends after its claims are gone keeps Velero from
// finishing any other restore for ten minutes (restore_finalizer_controller.go, patchDynamicPVWithVolumeInfo).
func (s *story) giveUp(ctx context.Context, name string) error {
	var pending velerov1.PodVolumeRestoreList
	if err := s.Client().List(ctx, &pending, client.InNamespace(s.VeleroNamespace()), client.MatchingLabels{velerov1.RestoreNameLabel: name}); err != nil {
		return fmt.Errorf("list the PodVolumeRestores of restore %s: %w", name, err)
	}
	cancelled := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, velerov1.PodVolumeRestorePhaseCanceled))
	for i := range pending.Items {
		if err := s.Client().Patch(ctx, &pending.Items[i], cancelled); err != nil {
			return fmt.Errorf("cancel PodVolumeRestore %s: %w", pending.Items[i].Name, err)
		}
	}
	ended, err := s.WaitRestore(ctx, name)
	if err != nil {
		return err
	}
	s.say("Its volume restore is cancelled, and so it ends: %s.", ended.Status.Phase)
	s.command("velero", "restore", "delete", name, "--confirm")
	if _, err := s.Velero(ctx, "restore", "delete", name, "--confirm"); err != nil {
		return err
	}
	return s.awaitGone(ctx, ended)
}

// awaitGone waits until an object is no more.
func (s *story) awaitGone(ctx context.Context, object client.Object) error {
	return await(ctx, func(ctx context.Context) error {
		err := s.Client().Get(ctx, client.ObjectKeyFromObject(object), object)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return fmt.Errorf("%T %s is still there", object, object.GetName())
		}
	})
}

// lose deletes the namespace, and waits until it is gone. The workload goes first, at once: a namespace takes its time
// over pods that end gracefully.
func (s *story) lose(ctx context.Context) error {
	done := s.during("Namespace " + shop + " is deleted with all that is in it")
	for _, kind := range []client.Object{
		&ocpappsv1.DeploymentConfig{}, &corev1.ReplicationController{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{},
	} {
		if err := s.Client().DeleteAllOf(ctx, kind, client.InNamespace(shop), client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("delete every %T in %s: %w", kind, shop, err)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	if err := s.Client().Delete(ctx, namespace); err != nil {
		return fmt.Errorf("delete namespace %s: %w", shop, err)
	}
	err := s.awaitGone(ctx, namespace)
	done()
	return err
}

// restore starts a restore and follows it.
func (s *story) restore(ctx context.Context, name string) (*narrator, error) {
	s.command("velero", "restore", "create", name, "--from-backup", shop)
	s.start()
	narrator, err := s.follow(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.CreateRestore(ctx, name, "--from-backup", shop); err != nil {
		narrator.stop()
		return nil, err
	}
	return narrator, nil
}

// awaitRestore waits for the end of the restore with the plugin, and shows what `velero restore describe` says of its
// operation while it is waited for.
func (s *story) awaitRestore(ctx context.Context) (*velerov1.Restore, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	told := make(chan struct{})
	telling, stopTelling := context.WithCancel(ctx)
	go func() {
		defer close(told)
		s.tellOperation(telling)
	}()
	ended, err := s.WaitRestore(ctx, with)
	stopTelling()
	<-told
	return ended, err
}

var sentence = regexp.MustCompile(`Progress description:\s*(.*)`)

// tellOperation tells each new sentence of the operation until ctx ends. Velero stores it after each poll.
func (s *story) tellOperation(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		out, err := s.DescribeRestore(ctx, with)
		if err != nil {
			continue // it is not described yet, or the time is up
		}
		if found := sentence.FindStringSubmatch(out); len(found) == 2 && found[1] != last {
			last = found[1]
			s.happened("Operation", "%s", last)
		}
	}
}

// showRecords shows what stays to be read afterwards: the operation and the events.
func (s *story) showRecords(ctx context.Context) error {
	out, err := s.DescribeRestore(ctx, with)
	if err != nil {
		return err
	}
	s.print("")
	s.command("velero", "restore", "describe", with, "--details")
	s.quote(section(out, "Restore Item Operations:"))
	var events corev1.EventList
	if err := s.Client().List(ctx, &events, client.InNamespace(shop)); err != nil {
		return fmt.Errorf("list the events in %s: %w", shop, err)
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	s.print("")
	s.say("Events of the DeploymentConfig:")
	for i := range events.Items {
		if e := &events.Items[i]; e.Source.Component == restore.UserAgent {
			s.quote(wrap(e.Reason+": "+e.Message, width-5))
		}
	}
	return nil
}

// section returns a section of a description: its first line and the indented ones that follow.
func section(text, title string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if line == title || len(lines) > 0 && strings.HasPrefix(line, " ") {
			lines = append(lines, line)
		} else if len(lines) > 0 {
			break
		}
	}
	return lines
}

// chosen returns the lines of a description that begin with one of the given words, and those that are indented below them.
func chosen(text string, beginnings ...string) []string {
	var found []string
	below := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		begins := slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(line, b) })
		below = begins || below && strings.HasPrefix(line, "  ")
		if below {
			found = append(found, line)
		}
	}
	return found
}

// digest is the sha256 of orders, a line each, in hexadecimal.
func digest(orders []string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(orders, "\n")+"\n")))
}

// ending is how the story has ended.
type ending struct {
	restore *velerov1.Restore
	orders  []string
	outage  time.Duration
	running error // why the application does not run; nil: it does
}

func (s *story) checkEnd(ctx context.Context, end *ending) error {
	marks, err := s.marks(ctx)
	if err != nil {
		return err
	}
	s.print("")
	results := []bool{
		s.check(end.restore.Status.Phase == velerov1.RestorePhaseCompleted, "restore %s is %s", with, end.restore.Status.Phase),
		s.check(end.running == nil, "DeploymentConfig %s runs at its %d replicas", shop, replicas),
		s.check(len(marks) == 0, "no mark of the restore is left%s", strings.Join(append([]string{""}, marks...), " ")),
		s.check(slices.Equal(end.orders, s.placed), "%d orders are read %s; sha256 %s", len(end.orders), s.ground.scene().way, digest(end.orders)),
		s.check(end.outage > 0, "%.1f s from the end of the first restored pod to a new one that is ready", end.outage.Seconds()),
	}
	s.print("")
	if slices.Contains(results, false) {
		return errors.Join(errors.New("the application is not back as it should be"), end.running)
	}
	return nil
}

// marks returns what of the restore's marks is left on the DeploymentConfig and its pods.
func (s *story) marks(ctx context.Context) ([]string, error) {
	var dcs ocpappsv1.DeploymentConfigList
	var pods corev1.PodList
	if err := errors.Join(s.Client().List(ctx, &dcs, client.InNamespace(shop)), s.Client().List(ctx, &pods, client.InNamespace(shop))); err != nil {
		return nil, fmt.Errorf("look for marks in %s: %w", shop, err)
	}
	var left []string
	look := func(object client.Object) {
		for _, key := range slices.Concat(disconnect.HeldLabels, disconnect.DetachedLabels, disconnect.HeldAnnotations, disconnect.DetachedAnnotations) {
			_, label := object.GetLabels()[key]
			if _, annotation := object.GetAnnotations()[key]; label || annotation {
				left = append(left, object.GetName()+": "+key)
			}
		}
	}
	for i := range dcs.Items {
		look(&dcs.Items[i])
	}
	for i := range pods.Items {
		look(&pods.Items[i])
	}
	return left, nil
}

// runs tells whether the shop is at its replicas, by pods of its own.
func (s *story) runs(ctx context.Context) error {
	var dc ocpappsv1.DeploymentConfig
	if err := s.Client().Get(ctx, client.ObjectKey{Namespace: shop, Name: shop}, &dc); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := s.Client().List(ctx, &pods, client.InNamespace(shop), client.MatchingLabels{"app": shop}); err != nil {
		return err
	}
	n := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		if ready(pod) && pod.DeletionTimestamp == nil && metav1.GetControllerOf(pod) != nil {
			n++
		}
	}
	if dc.Spec.Replicas != replicas || n != replicas || len(pods.Items) != replicas {
		return fmt.Errorf("DeploymentConfig %s is at %d replicas with %d pods, %d of them ready and its own", shop, dc.Spec.Replicas, len(pods.Items), n)
	}
	return nil
}

// await calls check until it returns nil or the time is up; then it returns what check said last.
func await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// awaitIf is await, or calls check once.
func awaitIf(ctx context.Context, waits bool, check func(context.Context) error) error {
	if !waits {
		return check(ctx)
	}
	return await(ctx, check)
}

// application returns the objects of the shop, as `oc new-app`, `oc set volume` and `oc set probe` make them.
func application() []client.Object {
	labels := map[string]string{"app": shop}
	meta := metav1.ObjectMeta{Namespace: shop, Name: shop, Labels: labels}
	port := intstr.FromString("http")
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}},
		&corev1.Service{
			ObjectMeta: meta,
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{contract.DeploymentConfigLabel: shop},
				Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: port}},
			},
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: claim},
			Spec: corev1.PersistentVolumeClaimSpec{
				// of one node, as here, any number of pods may share it
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
		&ocpappsv1.DeploymentConfig{
			ObjectMeta: meta,
			Spec: ocpappsv1.DeploymentConfigSpec{
				Replicas: replicas,
				Selector: labels,
				Triggers: ocpappsv1.DeploymentTriggerPolicies{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}},
				Strategy: ocpappsv1.DeploymentStrategy{Type: ocpappsv1.DeploymentStrategyTypeRecreate},
				Template: &corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						Containers: []corev1.Container{{
							Name: shop, Image: shopImage,
							Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
							ReadinessProbe: &corev1.Probe{
								ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: port}},
								PeriodSeconds: 1,
							},
							VolumeMounts: []corev1.VolumeMount{{Name: claim, MountPath: "/var/lib/orders"}},
						}},
						Volumes: []corev1.Volume{{Name: claim, VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
						}}},
						TerminationGracePeriodSeconds: ptr.To[int64](5),
					},
				},
			},
		},
	}
}
