package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	ocpappsv1 "github.com/openshift/api/apps/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
)

const (
	shop     = "shop" // the namespace, the application and the backup
	orders   = "orders"
	data     = "4711 orders"
	replicas = 2
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
	plugin string
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

// backUp deploys the shop, writes its data and backs it up.
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
	if err := s.node.Write(ctx, shop, orders, data); err != nil {
		return err
	}
	s.happened("DC", "%s runs with %d pods on the claim %s, which holds %q", shop, replicas, orders, data)
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
	narrator.stop()
	value, err := s.node.Read(ctx, shop, orders)
	if err != nil {
		return err
	}
	var r velerov1.Restore
	if err := s.Client().Get(ctx, client.ObjectKey{Namespace: s.VeleroNamespace(), Name: without}, &r); err != nil {
		return err
	}
	s.print("")
	s.say("The application runs, and its claim holds %q: the data is lost. The restore is %s, and will wait 4 hours for a pod that no longer exists.",
		value, r.Status.Phase)
	return nil
}

// restoreWith shows what happens with it, and checks the end.
func (s *story) restoreWith(ctx context.Context) error {
	done := s.during("The plugin is added and Velero restarted, as `velero plugin add` does")
	if err := s.AddPlugin(ctx, s.plugin); err != nil {
		return err
	}
	done()
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
	narrator.stop()
	if err := s.showRecords(ctx); err != nil {
		return err
	}
	return s.checkEnd(ctx, ended, narrator.outage(), running)
}

// lose deletes the namespace, and waits until it is gone. The workload goes first, at once: a namespace takes its time
// over pods that end gracefully.
func (s *story) lose(ctx context.Context) error {
	done := s.during("Namespace " + shop + " is deleted with all that is in it")
	for _, kind := range []client.Object{&ocpappsv1.DeploymentConfig{}, &corev1.ReplicationController{}, &corev1.Pod{}} {
		if err := s.Client().DeleteAllOf(ctx, kind, client.InNamespace(shop), client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("delete every %T in %s: %w", kind, shop, err)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	if err := s.Client().Delete(ctx, namespace); err != nil {
		return fmt.Errorf("delete namespace %s: %w", shop, err)
	}
	err := await(ctx, func(ctx context.Context) error {
		err := s.Client().Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return fmt.Errorf("namespace %s is still there", shop)
		}
	})
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

// checkEnd checks the end of the story. running says why the application does not run, if it does not.
func (s *story) checkEnd(ctx context.Context, ended *velerov1.Restore, outage time.Duration, running error) error {
	value, err := s.node.Read(ctx, shop, orders)
	if err != nil {
		return err
	}
	marks, err := s.marks(ctx)
	if err != nil {
		return err
	}
	s.print("")
	results := []bool{
		s.check(ended.Status.Phase == velerov1.RestorePhaseCompleted, "restore %s is %s", with, ended.Status.Phase),
		s.check(running == nil, "DeploymentConfig %s runs at its %d replicas", shop, replicas),
		s.check(len(marks) == 0, "no mark of the restore is left%s", strings.Join(append([]string{""}, marks...), " ")),
		s.check(value == data, "claim %s holds %q", orders, value),
		s.check(outage > 0, "%.1f s without a pod, of which the pods take %.0f s to end and to start", outage.Seconds(), (podEndsIn + podStartsIn).Seconds()),
	}
	s.print("")
	if slices.Contains(results, false) {
		return errors.Join(errors.New("the application is not back as it should be"), running)
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

// awaitNodeAgent waits until Velero takes the node for one that can back up volumes.
func (c *cluster) awaitNodeAgent(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) error {
		var agent appsv1.DaemonSet
		if err := c.Client().Get(ctx, client.ObjectKey{Namespace: c.VeleroNamespace(), Name: "node-agent"}, &agent); err != nil {
			return err
		}
		if agent.Status.NumberReady < 1 {
			return errors.New("node-agent is not ready")
		}
		return nil
	})
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

// application returns the objects of the shop, as `oc new-app` and `oc set volume` make them.
func application() []client.Object {
	labels := map[string]string{"app": shop}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: orders},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
		&ocpappsv1.DeploymentConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: shop, Labels: labels},
			Spec: ocpappsv1.DeploymentConfigSpec{
				Replicas: replicas,
				Selector: labels,
				Triggers: ocpappsv1.DeploymentTriggerPolicies{{Type: ocpappsv1.DeploymentTriggerOnConfigChange}},
				Strategy: ocpappsv1.DeploymentStrategy{Type: ocpappsv1.DeploymentStrategyTypeRecreate},
				Template: &corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						Containers: []corev1.Container{{
							Name: shop, Image: "registry.example/shop:1",
							VolumeMounts: []corev1.VolumeMount{{Name: orders, MountPath: "/var/lib/shop"}},
						}},
						Volumes: []corev1.Volume{{Name: orders, VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: orders},
						}}},
						TerminationGracePeriodSeconds: ptr.To[int64](5),
					},
				},
			},
		},
	}
}
