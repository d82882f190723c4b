package restore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/builder"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/restore"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// volumeBackup is a PodVolumeBackup of the backup `backup`.
func volumeBackup(name, namespace, pod, volume, snapshot string) *velerov1.PodVolumeBackup {
	return builder.ForPodVolumeBackup(testkit.VeleroNamespace, name).
		Labels(map[string]string{velerov1.BackupNameLabel: "backup"}).
		PodNamespace(namespace).PodName(pod).Volume(volume).SnapshotID(snapshot).Result()
}

// download is a DataDownload of the restore r.
func download(name, namespace, claim string) *velerov2alpha1.DataDownload {
	return builder.ForDataDownload(testkit.VeleroNamespace, name).
		Labels(map[string]string{velerov1.RestoreNameLabel: "r"}).
		TargetVolume(velerov2alpha1.TargetVolumeSpec{Namespace: namespace, PVC: claim}).Result()
}

// notServed is what a list of a resource that the API server does not know answers.
func notServed(group, resource string) error {
	return apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Group: group, Resource: resource}, "", "", 0, true)
}

func failing(verb, kind string, err error) func(testkit.Request) error {
	return func(r testkit.Request) error {
		if r.Verb == verb && r.Kind == kind {
			return err
		}
		return nil
	}
}

func TestFilled(t *testing.T) {
	t.Parallel()
	pod := func() *testkit.Pod {
		return testkit.MakePod("shop", "web", 1).Named("web-1-x").EmptyDir("tmp").Claim("data", "web-data").Claim("logs", "web-logs")
	}
	tests := map[string]struct {
		pod     *testkit.Pod
		mapping []string
		objects []client.Object
		want    []disconnect.Filled
	}{
		"nothing":           {pod: pod()},
		"a PodVolumeBackup": {pod: pod(), objects: []client.Object{volumeBackup("p", "shop", "web-1-x", "data", "s")}, want: []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}}},
		"two of them, in the order of the pod's volumes": {
			pod: pod(), objects: []client.Object{volumeBackup("p", "shop", "web-1-x", "logs", "s"), volumeBackup("q", "shop", "web-1-x", "tmp", "s")},
			want: []disconnect.Filled{{Volume: "tmp", By: "PodVolumeBackup"}, {Volume: "logs", By: "PodVolumeBackup"}},
		},
		"a PodVolumeBackup without a snapshot brings nothing": {pod: pod(), objects: []client.Object{volumeBackup("p", "shop", "web-1-x", "data", "")}},
		"one of another pod": {pod: pod(), objects: []client.Object{volumeBackup("p", "shop", "web-1-y", "data", "s")}},
		"one of a pod of the same name in another namespace":      {pod: pod(), objects: []client.Object{volumeBackup("p", "blog", "web-1-x", "data", "s")}},
		"one of a volume that the pod does not have":              {pod: pod(), objects: []client.Object{volumeBackup("p", "shop", "web-1-x", "gone", "s")}},
		"a PodVolumeBackup is found by the namespace it was made": {pod: pod(), mapping: []string{"shop", "shop-dr"}, objects: []client.Object{volumeBackup("p", "shop", "web-1-x", "data", "s")}, want: []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}}},
		"one of another backup": {
			pod: pod(), objects: []client.Object{builder.ForPodVolumeBackup(testkit.VeleroNamespace, "p").Labels(map[string]string{velerov1.BackupNameLabel: "other"}).
				PodNamespace("shop").PodName("web-1-x").Volume("data").SnapshotID("s").Result()},
		},
		"one in another Velero's namespace": {
			pod: pod(), objects: []client.Object{builder.ForPodVolumeBackup("other-velero", "p").Labels(map[string]string{velerov1.BackupNameLabel: "backup"}).
				PodNamespace("shop").PodName("web-1-x").Volume("data").SnapshotID("s").Result()},
		},
		"an annotation of a very old backup": {
			pod: pod().Annotation("snapshot.velero.io/data", "s"), want: []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}},
		},
		"PodVolumeBackups win over annotations of very old backups": {
			pod: pod().Annotation("snapshot.velero.io/data", "s"), objects: []client.Object{volumeBackup("p", "shop", "web-1-x", "logs", "s")},
			want: []disconnect.Filled{{Volume: "logs", By: "PodVolumeBackup"}},
		},
		"the opt-in annotation alone brings nothing": {pod: pod().Annotation("backup.velero.io/backup-volumes", "data")},
		"a DataDownload": {pod: pod(), objects: []client.Object{download("d", "shop", "web-data")}, want: []disconnect.Filled{{Volume: "data", By: "DataDownload"}}},
		"a DataDownload into the target namespace": {pod: pod(), mapping: []string{"shop", "shop-dr"}, objects: []client.Object{download("d", "shop-dr", "web-data")}, want: []disconnect.Filled{{Volume: "data", By: "DataDownload"}}},
		"a DataDownload into the source namespace": {pod: pod(), mapping: []string{"shop", "shop-dr"}, objects: []client.Object{download("d", "shop", "web-data")}},
		"a DataDownload into another claim":        {pod: pod(), objects: []client.Object{download("d", "shop", "other")}},
		"a DataDownload of another restore": {
			pod: pod(), objects: []client.Object{builder.ForDataDownload(testkit.VeleroNamespace, "d").Labels(map[string]string{velerov1.RestoreNameLabel: "other"}).
				TargetVolume(velerov2alpha1.TargetVolumeSpec{Namespace: "shop", PVC: "web-data"}).Result()},
		},
		"one of each": {
			pod: pod(), objects: []client.Object{volumeBackup("p", "shop", "web-1-x", "data", "s"), download("d", "shop", "web-logs")},
			want: []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}, {Volume: "logs", By: "DataDownload"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := restore.NewCache(testkit.FakeClient(t, tc.objects...)).For(testkit.RestoreNamed("r").NamespaceMappings(tc.mapping...).Result())
			given := tc.pod.Obj()
			got, err := facts.Filled(t.Context(), given)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			require.Empty(t, cmp.Diff(tc.pod.Obj(), given), "the pod was changed")
		})
	}
}

// A name of more than 63 characters stands cut in Velero's labels.
func TestFactsOfLongNames(t *testing.T) {
	t.Parallel()
	long, label := fmt.Sprintf("%064d", 0), fmt.Sprintf("%057d", 0)+"60e05b"
	backup := builder.ForPodVolumeBackup(testkit.VeleroNamespace, "p").Labels(map[string]string{velerov1.BackupNameLabel: label}).
		PodNamespace("shop").PodName("web-1-x7k2p").Volume("data").SnapshotID("s").Result()
	data := builder.ForDataDownload(testkit.VeleroNamespace, "d").Labels(map[string]string{velerov1.RestoreNameLabel: label}).
		TargetVolume(velerov2alpha1.TargetVolumeSpec{Namespace: "shop", PVC: "web-logs"}).Result()
	facts := restore.NewCache(testkit.FakeClient(t, backup, data)).For(testkit.RestoreNamed(long).Backup(long).Result())
	got, err := facts.Filled(t.Context(), testkit.MakePod("shop", "web", 1).Claim("data", "web-data").Claim("logs", "web-logs").Obj())
	require.NoError(t, err)
	require.Equal(t, []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}, {Volume: "logs", By: "DataDownload"}}, got)
}

// The cost of a restore depends on namespaces, not on items.
func TestFactsAreListedOnce(t *testing.T) {
	t.Parallel()
	c, requests := testkit.Record(testkit.FakeClient(t, builder.ForBackup(testkit.VeleroNamespace, "backup").Result()))
	cache := restore.NewCache(c)
	r := testkit.RestoreNamed("r").Result()
	var items sync.WaitGroup
	for i := range 200 {
		namespace := fmt.Sprintf("shop-%d", i%5)
		items.Go(func() {
			facts := cache.For(r.DeepCopy()) // each call of Velero brings its own copy
			pod := testkit.MakePod(namespace, fmt.Sprintf("web-%d", i), 1).Claim("data", "c").Obj()
			_, err := facts.Filled(t.Context(), pod)
			errs := []error{err}
			_, err = facts.DCsBefore(t.Context(), namespace)
			errs = append(errs, err)
			_, err = facts.DetachedPods(t.Context(), namespace)
			errs = append(errs, err)
			_, err = facts.DCsAfter(t.Context(), namespace)
			errs = append(errs, err)
			_, err = facts.Scope(t.Context())
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Error(err)
			}
		})
	}
	items.Wait()
	require.Equal(t, map[string]int{
		"list PodVolumeBackup": 1, "list DataDownload": 1, "get Backup": 1, "list DeploymentConfig": 10, "list Pod": 5,
	}, requests.Count())
}

func TestFactsOfTwoRestoresAreApart(t *testing.T) {
	t.Parallel()
	cache := restore.NewCache(testkit.FakeClient(t, download("d", "shop", "web-data")))
	pod := testkit.MakePod("shop", "web", 1).Claim("data", "web-data").Obj()
	for name, want := range map[string]int{"r": 1, "s": 0} {
		got, err := cache.For(testkit.RestoreNamed(name).Result()).Filled(t.Context(), pod)
		require.NoError(t, err)
		require.Len(t, got, want, name)
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	t.Parallel()
	away := apierrors.NewServiceUnavailable("etcd is away")
	tests := map[string]struct {
		verb, kind string
		ask        func(context.Context, *restore.Facts) error
		says       string
	}{
		"PodVolumeBackups": {"list", "PodVolumeBackup", func(ctx context.Context, f *restore.Facts) error {
			_, err := f.Filled(ctx, testkit.MakePod("shop", "web", 1).Obj())
			return err
		}, "list PodVolumeBackups of backup backup in openshift-adp"},
		"DataDownloads": {"list", "DataDownload", func(ctx context.Context, f *restore.Facts) error {
			_, err := f.Filled(ctx, testkit.MakePod("shop", "web", 1).Obj())
			return err
		}, "list DataDownloads of restore r in openshift-adp"},
		"DeploymentConfigs before": {"list", "DeploymentConfig", func(ctx context.Context, f *restore.Facts) error {
			_, err := f.DCsBefore(ctx, "shop")
			return err
		}, "list DeploymentConfigs in shop"},
		"DeploymentConfigs after": {"list", "DeploymentConfig", func(ctx context.Context, f *restore.Facts) error {
			_, err := f.DCsAfter(ctx, "shop")
			return err
		}, "list DeploymentConfigs in shop"},
		"detached pods": {"list", "Pod", func(ctx context.Context, f *restore.Facts) error {
			_, err := f.DetachedPods(ctx, "shop")
			return err
		}, "list detached pods in shop"},
		"the backup": {"get", "Backup", func(ctx context.Context, f *restore.Facts) error {
			_, err := f.Scope(ctx)
			return err
		}, "get Backup openshift-adp/backup"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, requests := testkit.Record(testkit.FakeClient(t, builder.ForBackup(testkit.VeleroNamespace, "backup").Result()))
			facts := restore.NewCache(c).For(testkit.RestoreNamed("r").Result())
			requests.Fail(failing(tc.verb, tc.kind, away))
			err := tc.ask(t.Context(), facts)
			require.ErrorContains(t, err, tc.says)
			require.ErrorIs(t, err, away)
			requests.Fail(nil)
			require.NoError(t, tc.ask(t.Context(), facts), "the next item asks again")
			require.NoError(t, tc.ask(t.Context(), facts))
			require.Len(t, requests.Of(tc.verb, tc.kind), 2, "what was read is kept")
		})
	}
}

func TestWhatIsNotServedIsNotThere(t *testing.T) {
	t.Parallel()
	c, requests := testkit.Record(testkit.FakeClient(t, volumeBackup("p", "shop", "web-1-x7k2p", "data", "s")))
	facts := restore.NewCache(c).For(testkit.RestoreNamed("r").Result())

	requests.Fail(failing("list", "DataDownload", notServed("velero.io", "datadownloads")))
	filled, err := facts.Filled(t.Context(), testkit.MakePod("shop", "web", 1).Claim("data", "web-data").Obj())
	require.NoError(t, err)
	require.Equal(t, []disconnect.Filled{{Volume: "data", By: "PodVolumeBackup"}}, filled)

	requests.Fail(failing("list", "DeploymentConfig", notServed("apps.openshift.io", "deploymentconfigs")))
	dcs, err := facts.DCsBefore(t.Context(), "shop")
	require.NoError(t, err)
	require.False(t, dcs.Served)
	require.Nil(t, dcs.Get("web"))
	_, err = facts.DCsBefore(t.Context(), "shop")
	require.NoError(t, err)
	require.Len(t, requests.Of("list", "DeploymentConfig"), 1, "the answer is kept")

	requests.Fail(failing("list", "PodVolumeBackup", notServed("velero.io", "podvolumebackups")))
	_, err = restore.NewCache(c).For(testkit.RestoreNamed("r").Result()).Filled(t.Context(), testkit.MakePod("shop", "web", 1).Obj())
	require.Error(t, err, "every Velero serves PodVolumeBackups: then something else is wrong")
}

func TestDCsBeforeAreThoseBeforeTheRestoreReachedItsOwn(t *testing.T) {
	t.Parallel()
	c := testkit.FakeClient(t, testkit.MakeDC("shop", "old").Obj(), testkit.MakeDC("blog", "other").Obj())
	facts := restore.NewCache(c).For(testkit.RestoreNamed("r").Result())
	before, err := facts.DCsBefore(t.Context(), "shop")
	require.NoError(t, err)
	require.True(t, before.Served)
	require.NotNil(t, before.Get("old"))
	require.Nil(t, before.Get("other"), "that is in another namespace")

	require.NoError(t, c.Create(t.Context(), testkit.MakeDC("shop", "web").Obj()))
	again, err := facts.DCsBefore(t.Context(), "shop")
	require.NoError(t, err)
	require.Nil(t, again.Get("web"), "the restore has brought it")
	after, err := facts.DCsAfter(t.Context(), "shop")
	require.NoError(t, err)
	require.NotNil(t, after.Get("web"))
}

func TestLive(t *testing.T) {
	t.Parallel()
	later, sooner := metav1.NewTime(testkit.Epoch.Add(time.Minute)), metav1.NewTime(testkit.Epoch.Add(-time.Minute))
	tests := map[string]struct {
		dc      *testkit.DC
		started bool
		want    disconnect.LiveDC
	}{
		"none": {started: true},
		"one from before": {
			dc: testkit.MakeDC("shop", "web").Replicas(2).Annotation("a", "b").Created(sooner), started: true,
			want: disconnect.LiveDC{Exists: true, Replicas: 2, Annotations: map[string]string{"a": "b"}},
		},
		"one of this restore": {
			dc: testkit.MakeDC("shop", "web").Label("velero.io/restore-name", "r").Created(later), started: true,
			want: disconnect.LiveDC{Exists: true, Replicas: 1, OfThisRestore: true},
		},
		"one of this restore, made in the second it started": {
			dc: testkit.MakeDC("shop", "web").Label("velero.io/restore-name", "r"), started: true,
			want: disconnect.LiveDC{Exists: true, Replicas: 1, OfThisRestore: true},
		},
		"one that an earlier restore of the same name has brought": {
			dc: testkit.MakeDC("shop", "web").Label("velero.io/restore-name", "r").Created(sooner), started: true,
			want: disconnect.LiveDC{Exists: true, Replicas: 1},
		},
		"one that another restore has brought since": {
			dc: testkit.MakeDC("shop", "web").Label("velero.io/restore-name", "s").Created(later), started: true,
			want: disconnect.LiveDC{Exists: true, Replicas: 1},
		},
		"a restore whose start is not known has brought nothing yet": {
			dc:   testkit.MakeDC("shop", "web").Label("velero.io/restore-name", "r").Created(later),
			want: disconnect.LiveDC{Exists: true, Replicas: 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testkit.RestoreNamed("r").Result()
			if !tc.started {
				r.Status.StartTimestamp = nil
			}
			facts := restore.NewCache(testkit.FakeClient(t)).For(r)
			if tc.dc == nil {
				require.Equal(t, tc.want, facts.Live(nil))
				return
			}
			require.Equal(t, tc.want, facts.Live(tc.dc.Obj()))
		})
	}
}

func TestDetachedPods(t *testing.T) {
	t.Parallel()
	mine, other := testkit.OwnerNamed("r"), testkit.OwnerNamed("s")
	twin := testkit.OwnerNamed("r")
	twin.Restore.Namespace = "other-velero"
	facts := restore.NewCache(testkit.FakeClient(t,
		testkit.MakePod("shop", "web", 1).Named("a").Detached(mine).Obj(),
		testkit.MakePod("shop", "web", 1).Named("b").Detached(mine).Obj(),
		testkit.MakePod("shop", "db", 1).Named("c").DetachedByStock(mine).Label("deploymentconfig", "db").Obj(),
		testkit.MakePod("shop", "web", 1).Named("d").Detached(other).Obj(),
		testkit.MakePod("shop", "web", 1).Named("e").Detached(twin).Obj(),
		testkit.MakePod("shop", "web", 1).Named("f").Obj(),
		testkit.MakePod("blog", "web", 1).Named("g").Detached(mine).Obj(),
	)).For(testkit.RestoreNamed("r").Result())
	got, err := facts.DetachedPods(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"web": 4, "db": 1}, got, "whichever restore has detached them")
}

func TestTargetNamespace(t *testing.T) {
	t.Parallel()
	facts := restore.NewCache(testkit.FakeClient(t)).For(testkit.RestoreNamed("r").NamespaceMappings("shop", "shop-dr").Result())
	require.Equal(t, "shop-dr", facts.TargetNamespace("shop"))
	require.Equal(t, "blog", facts.TargetNamespace("blog"))
	require.Equal(t, "shop-dr", facts.TargetNamespace("shop-dr"))
}

func TestScope(t *testing.T) {
	t.Parallel()
	r := testkit.RestoreNamed("r").Result()
	scope, err := restore.NewCache(testkit.FakeClient(t, builder.ForBackup(testkit.VeleroNamespace, "backup").ExcludedResources("dc").Result())).For(r).Scope(t.Context())
	require.NoError(t, err)
	require.False(t, scope.Included)

	scope, err = restore.NewCache(testkit.FakeClient(t)).For(r).Scope(t.Context())
	require.ErrorContains(t, err, "get Backup openshift-adp/backup")
	require.True(t, apierrors.IsNotFound(err))
	require.Equal(t, disconnect.Scope{Included: true}, scope, "a backup that cannot be read is taken to hold DeploymentConfigs")
}

func TestFirst(t *testing.T) {
	t.Parallel()
	cache := restore.NewCache(testkit.FakeClient(t))
	facts := cache.For(testkit.RestoreNamed("r").Result())
	require.True(t, facts.First("a"))
	require.False(t, facts.First("a"))
	require.True(t, facts.First("b"))
	require.True(t, cache.For(testkit.RestoreNamed("s").Result()).First("a"), "another restore has its own")

	var asked sync.WaitGroup
	first := make(chan bool, 50)
	for range 50 {
		asked.Go(func() { first <- facts.First("c") })
	}
	asked.Wait()
	close(first)
	n := 0
	for yes := range first {
		if yes {
			n++
		}
	}
	require.Equal(t, 1, n)
}

// A caller that changes its Restore afterwards does not change the facts.
func TestFactsKeepTheirOwnCopyOfTheRestore(t *testing.T) {
	t.Parallel()
	r := testkit.RestoreNamed("r").NamespaceMappings("shop", "shop-dr").Result()
	facts := restore.NewCache(testkit.FakeClient(t)).For(r)
	r.Spec.NamespaceMapping["shop"] = "elsewhere"
	require.Equal(t, "shop-dr", facts.TargetNamespace("shop"))
}

func TestRequestsHaveADeadline(t *testing.T) {
	t.Parallel()
	var deadline time.Time
	c := interceptor.NewClient(testkit.FakeClient(t), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			deadline, _ = ctx.Deadline()
			return c.List(ctx, list, opts...)
		},
	})
	_, err := restore.NewCache(c).For(testkit.RestoreNamed("r").Result()).DCsBefore(t.Context(), "shop")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(30*time.Second), deadline, 10*time.Second)
}
