package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
)

// The requests that the plugin makes must follow the number of namespaces, not that of items: an estate of ten times as
// many DeploymentConfigs and pods in as many namespaces is restored with the same reads. Requests are counted where they
// arrive, in the API server's audit log.
func TestCostInRequests(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, bed.Options{ItemOperationSyncFrequency: 2 * time.Second})
	var few, many bill
	t.Run("5 DeploymentConfigs", func(t *testing.T) { few = estate{namespaces: 5, dcs: 1, replicas: 4}.restore(t, c) })
	t.Run("50 DeploymentConfigs", func(t *testing.T) { many = estate{namespaces: 5, dcs: 10, replicas: 4}.restore(t, c) })
	if t.Failed() {
		return
	}
	assert.Equal(t, few.execute, many.execute, "requests of phase one")
	assert.Equal(t, few.waiting, many.waiting, "requests of a poll in which all wait")
}

// estate is a number of applications of the same size.
type estate struct {
	namespaces, dcs, replicas int // dcs in each namespace, replicas of each
}

// bill is what the restore of an estate cost in requests of the plugin, each by verb and resource.
type bill struct {
	// execute are those of phase one.
	execute map[string]int
	// waiting are those of one poll in which every DeploymentConfig waits.
	waiting map[string]int
}

// restore takes an estate through backup, loss and restore, and asserts what does not depend on its size.
func (e estate) restore(t *testing.T, c *cluster) bill {
	t.Helper()
	s := newSceneIn(t, c)
	namespaces := e.deploy(s)
	backup, name := s.name("backup"), s.name("restore")
	began := time.Now()
	s.backupAs(backup, "--include-namespaces", strings.Join(namespaces, ","))
	t.Logf("backup of %d pods in %.1f s", e.pods(), time.Since(began).Seconds())
	s.lose(namespaces...)

	// The test plays a data mover, which has one DataDownload for each claim: file-system restores have ended when Velero
	// first asks for operations, so nothing would be left to wait for.
	downloads := e.startDownloads(s, name, namespaces)
	s.observe(namespaces...)
	began = time.Now()
	s.startRestore(name, backup)
	const wanted = 3
	s.until(restoreTime, func(context.Context) error {
		if _, polls := e.requests(s, began); len(polls) < wanted+1 { // the last one may not be complete
			return fmt.Errorf("%d polls so far", len(polls))
		}
		return nil
	})
	released := time.Now()
	for _, download := range downloads {
		target := download.Spec.TargetVolume
		require.NoError(t, s.node.Write(t.Context(), target.Namespace, target.PVC, s.data(target.Namespace+"/"+target.PVC)))
		s.patch(download, `{"status":{"phase":"Completed"}}`)
	}
	ended := s.awaitRestore(name)
	t.Logf("restore of %d pods in %.1f s, %.1f s of it after their data was in", e.pods(), time.Since(began).Seconds(), time.Since(released).Seconds())
	s.completed(ended, e.namespaces*e.dcs)

	execute, polls := e.requests(s, began) // before anything else of ours speaks to the API server
	e.assertEndState(s, ended, namespaces)
	require.Greater(t, len(polls), wanted)
	// The first poll is answered by the process of phase one, which knows the backup already.
	result := bill{execute: count(execute), waiting: count(reads(polls[1]))}
	t.Logf("phase one: %d requests: %v", len(execute), result.execute)
	t.Logf("a poll in which all wait: %d requests: %v", len(reads(polls[1])), result.waiting)

	assert.Empty(t, writes(execute), "phase one changes items, not the cluster")
	waiting := slices.DeleteFunc(slices.Clone(polls), func(poll []bed.AuditEvent) bool { return !poll[0].Time.Before(released) })
	assert.LessOrEqual(t, len(reads(polls[0])), len(reads(polls[1])), "the first poll: %v", count(polls[0]))
	complete := waiting[1 : len(waiting)-1] // those between two ticks of Velero's; the last may have been broken into by the release
	for i, poll := range complete {
		assert.Equal(t, result.waiting, count(poll), "poll %d while all wait", i+1)
	}
	apart := waiting[len(waiting)-1][0].Time.Sub(complete[0][0].Time) / time.Duration(len(complete))
	assert.Greater(t, apart, time.Second, "one pass answers for all operations of a poll, and polls are 2 s apart")
	e.assertMoving(t, polls[len(waiting)-1:], len(reads(polls[1])))
	e.assertWrites(t, writes(slices.Concat(polls...)))
	return result
}

func (e estate) pods() int { return e.namespaces * e.dcs * e.replicas }

// dcName is the name of one of the DeploymentConfigs of a namespace, and claimName that of its claim.
func dcName(i int) string    { return fmt.Sprintf("web-%02d", i) }
func claimName(i int) string { return fmt.Sprintf("data-%02d", i) }

// each calls do for each DeploymentConfig.
func (e estate) each(namespaces []string, do func(namespace string, i int)) {
	for _, namespace := range namespaces {
		for i := range e.dcs {
			do(namespace, i)
		}
	}
}

// deploy creates the applications with their claims and returns their namespaces.
func (e estate) deploy(s *scene) []string {
	s.t.Helper()
	namespaces := []string{s.ns}
	for i := 1; i < e.namespaces; i++ {
		namespaces = append(namespaces, fmt.Sprintf("%s-%d", s.ns, i))
		s.createNamespace(namespaces[i])
	}
	began := time.Now()
	e.each(namespaces, func(namespace string, i int) {
		s.create(claim(namespace, claimName(i)), app{name: dcName(i), replicas: int32(e.replicas), claim: claimName(i)}.dc(namespace))
	})
	s.until(restoreTime, func(ctx context.Context) error {
		for _, namespace := range namespaces {
			if err := e.allReady(ctx, s.Client(), namespace); err != nil {
				return err
			}
		}
		return nil
	})
	s.t.Logf("%d DeploymentConfigs with %d pods in %d namespaces deployed in %.1f s", e.namespaces*e.dcs, e.pods(), e.namespaces, time.Since(began).Seconds())
	return namespaces
}

// allReady tells whether a namespace has exactly the pods of its DeploymentConfigs, all of them ready.
func (e estate) allReady(ctx context.Context, c client.Reader, namespace string) error {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{contract.DeploymentConfigLabel}); err != nil {
		return err
	}
	n := 0
	for i := range list.Items {
		if ready(&list.Items[i]) {
			n++
		}
	}
	if want := e.dcs * e.replicas; n != want || len(list.Items) != want {
		return fmt.Errorf("%s has %d pods, %d of them ready, want %d", namespace, len(list.Items), n, want)
	}
	return nil
}

// startDownloads makes the DataDownloads of a restore, one for each claim, as Velero does before it restores pods. Their
// data is in when their phase is Completed.
func (e estate) startDownloads(s *scene, restoreName string, namespaces []string) []*velerov2alpha1.DataDownload {
	s.t.Helper()
	var downloads []*velerov2alpha1.DataDownload
	e.each(namespaces, func(namespace string, i int) {
		download := &velerov2alpha1.DataDownload{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.VeleroNamespace(), GenerateName: restoreName + "-",
				Labels: map[string]string{velerov1.RestoreNameLabel: label.GetValidName(restoreName)},
			},
			Spec: velerov2alpha1.DataDownloadSpec{
				TargetVolume:          velerov2alpha1.TargetVolumeSpec{Namespace: namespace, PVC: claimName(i)},
				BackupStorageLocation: "default", SourceNamespace: namespace,
			},
		}
		s.create(download)
		downloads = append(downloads, download)
	})
	return downloads
}

// requests returns those of the plugin since a moment: of phase one, and of each poll of phase two. A poll begins by
// reading the plugin's ConfigMap.
func (e estate) requests(s *scene, since time.Time) (execute []bed.AuditEvent, polls [][]bed.AuditEvent) {
	s.t.Helper()
	events, err := s.AuditEvents(since)
	require.NoError(s.t, err)
	for _, event := range events {
		if !strings.HasPrefix(event.UserAgent, restore.UserAgent) {
			continue
		}
		if event.Resource == "configmaps" {
			polls = append(polls, nil)
		}
		if len(polls) == 0 {
			execute = append(execute, event)
		} else {
			polls[len(polls)-1] = append(polls[len(polls)-1], event)
		}
	}
	return execute, polls
}

func isRead(event bed.AuditEvent) bool {
	return event.Verb == "get" || event.Verb == "list" || event.Verb == "watch"
}

func reads(events []bed.AuditEvent) []bed.AuditEvent {
	return slices.DeleteFunc(slices.Clone(events), func(e bed.AuditEvent) bool { return !isRead(e) })
}

func writes(events []bed.AuditEvent) []bed.AuditEvent {
	return slices.DeleteFunc(slices.Clone(events), isRead)
}

// count counts requests by verb and resource.
func count(events []bed.AuditEvent) map[string]int {
	counts := map[string]int{}
	for _, e := range events {
		counts[e.Verb+" "+strings.Trim(e.Resource+"/"+e.Subresource, "/")]++
	}
	return counts
}

// assertMoving asserts the reads of the polls in which something moves: one look costs no more than one at which all wait.
func (e estate) assertMoving(t *testing.T, polls [][]bed.AuditEvent, atMost int) {
	t.Helper()
	for i, poll := range polls {
		looks := 0
		for _, event := range poll {
			if event.Resource == "deploymentconfigs" && event.Verb == "list" && event.Namespace == "" {
				looks++
			}
		}
		t.Logf("poll %d after the data was in: %d looks with %d reads, %d writes", i, looks, len(reads(poll)), len(writes(poll)))
		assert.LessOrEqual(t, len(reads(poll)), looks*atMost, "poll %d after the data was in: %v", i, count(poll))
	}
}

// assertWrites asserts that phase two writes what it must and no more: one deletion a detached pod; for a DeploymentConfig
// one patch that scales and one that ends the hold, and an event each for held and resumed. A patch that came too late is
// refused by the API server, as it is to be, and repeated.
func (e estate) assertWrites(t *testing.T, events []bed.AuditEvent) {
	t.Helper()
	late := slices.DeleteFunc(slices.Clone(events), func(e bed.AuditEvent) bool { return e.Code != 409 })
	t.Logf("phase two: %d writes: %v; %d more were refused as too late", len(events)-len(late), count(slices.DeleteFunc(slices.Clone(events), func(e bed.AuditEvent) bool { return e.Code == 409 })), len(late))
	perObject := map[string]int{}
	for _, event := range events {
		switch {
		case event.Code < 300:
			perObject[event.Verb+" "+event.Resource+" "+event.Namespace+"/"+event.Name]++
		default:
			assert.Equal(t, "patch deploymentconfigs", event.Verb+" "+event.Resource, "refused with %d: %s", event.Code, event.URI)
			assert.Equal(t, 409, event.Code, event.URI)
		}
	}
	kinds := map[string][]int{} // how often for each object, by verb and resource
	for _, object := range slices.Sorted(maps.Keys(perObject)) {
		kind := object[:strings.LastIndex(object, " ")]
		kinds[kind] = append(kinds[kind], perObject[object])
	}
	assert.Equal(t, repeat(1, e.pods()), kinds["delete pods"], "deletions of each pod")
	assert.Equal(t, repeat(2, e.namespaces*e.dcs), kinds["patch deploymentconfigs"], "patches of each DeploymentConfig")
	assert.Equal(t, 2*e.namespaces*e.dcs, count(events)["create events"], "events")
	assert.ElementsMatch(t, []string{"delete pods", "patch deploymentconfigs", "create events"}, slices.Collect(maps.Keys(kinds)), "kinds of writes")
}

func repeat(value, times int) []int { return slices.Repeat([]int{value}, times) }

// assertEndState asserts that every application is back, with its data and without a mark.
func (e estate) assertEndState(s *scene, ended *velerov1.Restore, namespaces []string) {
	s.t.Helper()
	for _, namespace := range namespaces {
		s.until(soon, func(ctx context.Context) error { return e.allReady(ctx, s.Client(), namespace) })
		s.unmarked(namespace)
	}
	e.each(namespaces, func(namespace string, i int) {
		assert.EqualValues(s.t, e.replicas, s.dc(namespace, dcName(i)).Spec.Replicas)
		value, err := s.node.Read(s.t.Context(), namespace, claimName(i))
		require.NoError(s.t, err)
		assert.Equal(s.t, s.data(namespace+"/"+claimName(i)), value)
	})
	s.resumed(ended.Name, namespaces[0], dcName(0), e.replicas, false)
}

// An application whose pods end within a second and start within two is without a pod for less than 8 s, at Velero's
// default poll interval of 10 s: deletion, the wait for it and the scale fall into one poll. With a step a poll it would be
// 20 s. Not parallel: it is a measurement.
func TestOutageAtDefaultPollInterval(t *testing.T) {
	const most = 8 * time.Second
	s := newSceneIn(t, ownCluster(t, bed.Options{}))
	s.deploy(app{name: "web", replicas: 1, claim: "data", podAnnotations: map[string]string{
		node.TerminatesAnnotation: "1s", node.StartsAnnotation: "2s",
	}})
	backup := s.backup(allVolumes)
	s.lose()
	clock := newOutageClock(t, s)
	began := time.Now()
	ended := s.restore(backup)
	s.awaitPods(s.ns, "web", 1)
	outage := clock.outage(t)
	t.Logf("without a pod for %.1f s, of a restore of %.1f s", outage.Seconds(), time.Since(began).Seconds())
	assert.Less(t, outage, most)
	assert.Greater(t, outage, 3*time.Second, "a pod that ends in 1 s and one that starts in 2 s: less would mean that the measurement is wrong")
	s.completed(ended, 1)
	s.resumed(ended.Name, s.ns, "web", 1, false)
	s.hasData(s.ns, "data")
}

// outageClock follows the pods of an application by a watch of its own and notes when each event arrives.
type outageClock struct {
	stop func()
	done chan struct{}
	// deleted is when the deletion of the first detached pod began, ready when the first new pod was ready.
	deleted, ready time.Time
}

func newOutageClock(t *testing.T, s *scene) *outageClock {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.watching.Watch(ctx, &corev1.PodList{}, client.InNamespace(s.ns))
	require.NoError(t, err)
	c := &outageClock{stop: cancel, done: make(chan struct{})}
	t.Cleanup(cancel)
	go func() {
		defer close(c.done)
		defer w.Stop()
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Labels[contract.DeploymentConfigLabel] == "" {
				continue
			}
			detached := pod.Labels[contract.DisconnectedLabel] != ""
			switch {
			case detached && pod.DeletionTimestamp != nil && c.deleted.IsZero():
				c.deleted = time.Now()
			case !detached && ready(pod) && c.ready.IsZero():
				c.ready = time.Now()
			}
		}
	}()
	return c
}

func (c *outageClock) outage(t *testing.T) time.Duration {
	t.Helper()
	c.stop()
	<-c.done
	require.False(t, c.deleted.IsZero(), "no detached pod was deleted")
	require.False(t, c.ready.IsZero(), "no pod of the DeploymentConfig got ready")
	return c.ready.Sub(c.deleted)
}
