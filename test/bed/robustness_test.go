package bed

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// orphanVariable makes the test binary start a bed and wait to be killed, see TestWatchdog. Its value says which.
const orphanVariable = "TEST_BED_ORPHAN"

// startOnly is a value of it that makes the test binary start a bed with a real node which cannot be, and say why.
const startOnly = "start only"

func TestMain(m *testing.M) {
	switch kind := os.Getenv(orphanVariable); kind {
	case "":
	case startOnly:
		_, err := Start(context.Background(), Options{Node: &NodeOptions{}})
		fmt.Println(err)
		os.Exit(0)
	default:
		beOrphaned(kind)
	}
	os.Exit(m.Run())
}

// beOrphaned starts a bed with everything, prints its directory and waits until it is killed.
func beOrphaned(kind string) {
	opts := Options{VeleroNamespace: "openshift-adp"}
	if kind == "node" {
		opts.Node = &NodeOptions{}
	}
	b, err := Start(context.Background(), opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(b.Dir())
	<-time.After(startTimeout) // longer than the test waits; the watchdog cleans up after this too
	os.Exit(1)
}

// startOrphan starts such a test binary, with its own folder for temporary files.
func startOrphan(t *testing.T, kind string) (cmd *exec.Cmd, stdout io.Reader, tmp string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	t.Cleanup(cancel)
	tmp, err := os.MkdirTemp("", "orphan-") //nolint:usetesting // the folder of t.TempDir has too long a name for the sockets in it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(tmp)) })
	cmd = exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), orphanVariable+"="+kind, "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	ownProcessGroup(cmd)
	stdout, err = cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, stdout, tmp
}

func TestWatchdog(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "interrupted": syscall.SIGINT} {
		t.Run("a test binary that is "+name+" leaves nothing", func(t *testing.T) {
			t.Parallel()
			cmd, stdout, _ := startOrphan(t, "plain")
			dir := firstLine(t, stdout)
			require.NotEmpty(t, processesOf(t, dir))

			require.NoError(t, signalGroup(cmd.Process.Pid, signal))
			require.Error(t, cmd.Wait())
			requireGone(t, dir)
		})
	}
}

// TestWatchdogOfNode kills test binaries whose bed has a real node: one when all is up, pods included, and others in the
// middle of the start.
func TestWatchdogOfNode(t *testing.T) {
	requireNode(t)
	for name, tc := range map[string]struct {
		signal syscall.Signal
		when   string // a log appears; empty: all is up
	}{
		"killed when all is up":                {syscall.SIGKILL, ""},
		"interrupted when all is up":           {syscall.SIGINT, ""},
		"killed when the node's place is made": {syscall.SIGKILL, "enclosure.log"},
		"killed while images are imported":     {syscall.SIGKILL, "containerd.log"},
		"killed while the node comes up":       {syscall.SIGKILL, "kubelet.log"},
	} {
		t.Run("a test binary that is "+name+" leaves nothing", func(t *testing.T) {
			before := machineState(t)
			cmd, stdout, tmp := startOrphan(t, "node")
			if tc.when == "" {
				firstLine(t, stdout)
			} else {
				awaitFile(t, filepath.Join(tmp, "dr-test-bed-*", "logs", tc.when))
			}
			require.NotEmpty(t, processesOf(t, tmp))

			begin := time.Now()
			require.NoError(t, signalGroup(cmd.Process.Pid, tc.signal))
			require.Error(t, cmd.Wait())
			requireGone(t, tmp+string(filepath.Separator)+"dr-test-bed-")
			ctx, cancel := context.WithTimeout(t.Context(), killTimeout)
			defer cancel()
			require.NoError(t, poll(ctx, "wait for the bed's directory to be gone", func(context.Context) error {
				left, err := os.ReadDir(tmp)
				if err == nil && len(left) > 0 {
					err = fmt.Errorf("left: %v", left)
				}
				return err
			}))
			t.Logf("gone after %.1f s", time.Since(begin).Seconds())
			assert.Equal(t, before, machineState(t))
		})
	}
}

// firstLine reads what an orphan prints when its bed is up: the bed's directory.
func firstLine(t *testing.T, stdout io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// awaitFile waits for a file of which it is known what its path looks like.
func awaitFile(t *testing.T, pattern string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	require.NoError(t, poll(ctx, "wait for "+pattern, func(context.Context) error {
		found, err := filepath.Glob(pattern)
		if err == nil && len(found) == 0 {
			err = errors.New("it is not there")
		}
		return err
	}))
}

func TestBareBeds(t *testing.T) {
	t.Parallel()
	widgets := crd("widgets.test.example.com")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gadgets.yaml"), []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.test.example.com}
spec:
  group: test.example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`), 0o600))
	for i := range 2 { // side by side in one process
		t.Run(fmt.Sprintf("bed %d", i), func(t *testing.T) {
			t.Parallel()
			b := ForTest(t, Options{WithoutVelero: true, CRDs: []*apiextensionsv1.CustomResourceDefinition{widgets}, CRDDirs: []string{dir}})
			for _, name := range []string{"WidgetList", "GadgetList"} {
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(schema.GroupVersionKind{Group: "test.example.com", Version: "v1", Kind: name})
				require.NoError(t, b.Client().List(t.Context(), list))
			}
			assert.Empty(t, strangers(t, b.Dir()), "nothing listens where others can reach it")
			require.ErrorContains(t, b.StartVelero(t.Context()), "without Velero")

			t.Run("a user has the rights that RBAC gives", func(t *testing.T) {
				path, err := b.KubeconfigFor("alice", "shopkeepers")
				require.NoError(t, err)
				config, err := clientcmd.BuildConfigFromFlags("", path)
				require.NoError(t, err)
				alice, err := client.New(config, client.Options{})
				require.NoError(t, err)
				key := client.ObjectKey{Namespace: "default", Name: "kube-root-ca.crt"}
				err = alice.Get(t.Context(), key, &corev1.ConfigMap{})
				require.True(t, apierrors.IsForbidden(err), "%v", err)

				role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
				require.NoError(t, b.Client().Create(t.Context(), &rbacv1.ClusterRoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: "shopkeepers"},
					RoleRef:    role,
					Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "shopkeepers"}},
				}))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				require.NoError(t, poll(ctx, "wait for the rights", func(ctx context.Context) error {
					return alice.Get(ctx, key, &corev1.ConfigMap{})
				}))
			})
			t.Run("an administrator may act as someone else, and the audit log says so", func(t *testing.T) {
				begin := time.Now()
				config := b.RESTConfig()
				config.Impersonate.UserName = "bob"
				config.UserAgent = "bob's tool"
				bob, err := client.New(config, client.Options{})
				require.NoError(t, err)
				err = bob.List(t.Context(), &corev1.SecretList{}, client.InNamespace("default"))
				require.True(t, apierrors.IsForbidden(err), "%v", err)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				require.NoError(t, poll(ctx, "wait for the audit log", func(context.Context) error {
					events, err := b.AuditEvents(begin)
					if err != nil {
						return finalError{err}
					}
					if !slices.ContainsFunc(events, func(e AuditEvent) bool {
						return e.User == "bob" && e.UserAgent == "bob's tool" && e.Verb == "list" && e.Resource == "secrets" &&
							e.Namespace == "default" && e.Code == 403
					}) {
						return fmt.Errorf("not among %d events", len(events))
					}
					return nil
				}))
			})
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	t.Run("when the Velero server ends, with its log", func(t *testing.T) {
		t.Parallel()
		var log []string
		_, err := Start(t.Context(), Options{
			VeleroArgs: []string{"--no-such-flag"},
			Log:        func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) },
		})
		require.ErrorContains(t, err, "unknown flag: --no-such-flag")
		require.NotContains(t, strings.Join(log, "\n"), "stop:", "the clean-up has no complaint")
	})
	t.Run("when the context ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := Start(ctx, Options{WithoutVelero: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("when a folder of CRDs has none", func(t *testing.T) {
		t.Parallel()
		_, err := Start(t.Context(), Options{WithoutVelero: true, CRDDirs: []string{t.TempDir()}})
		require.ErrorContains(t, err, "no CustomResourceDefinition")
	})
}

// TestNodeIsNotSupported starts beds with a real node on machines that cannot have one: each says so in one line, and leaves nothing.
func TestNodeIsNotSupported(t *testing.T) {
	requireNode(t)
	binary := filepath.Join(t.TempDir(), "bed.test")
	copyFile(t, os.Args[0], binary)
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(binary)), 0o755)) // everybody may run it
	const elsewhere = ": use a privileged container or a virtual machine"
	nobody := []string{"setpriv", "--reuid=65534", "--clear-groups"}
	without := func(capability string) []string { return []string{"setpriv", "--bounding-set=-" + capability} }
	for name, tc := range map[string]struct {
		machine []string // runs a command on such a machine
		env     string
		want    string
	}{
		"without root":          {nobody, "", "a real node needs root: run as root, as in a container or virtual machine of one's own"},
		"without containerd":    {nil, "PATH=/nowhere", "a real node needs containerd, which is not installed: run scripts/node-packages.sh"},
		"without network":       {without("net_admin"), "", "a real node needs mounts and interfaces, and this machine gives none (RTNETLINK answers: Operation not permitted)" + elsewhere},
		"without namespaces":    {without("sys_admin"), "", "a real node needs namespaces of its own, and this machine gives none (fork/exec /bin/sh: operation not permitted)" + elsewhere},
		"without cgroups":       {inMounts("mount -n -t tmpfs tmpfs /sys/fs/cgroup"), "", "a real node needs cgroups, and none are mounted at /sys/fs/cgroup"},
		"without disk":          {inMounts(`mount -n -t tmpfs -o size=1m tmpfs "$TMPDIR"`), "", "a test bed needs 3072 MiB of disk and %s has 1: make room, or set TMPDIR"},
		"with its files hidden": {nil, "TMPDIR=/var/lib", "a real node has its own /var/lib, and the folder for temporary files, /var/lib, is in it: set TMPDIR"},
	} {
		t.Run("on a machine "+name, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			line := slices.Concat([]string{"env", orphanVariable + "=" + startOnly, "TMPDIR=" + tmp}, tc.machine, []string{"env", "-S", tc.env, binary})
			out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, strings.ReplaceAll(tc.want, "%s", tmp)+"\n", string(out))
			left, err := os.ReadDir(tmp)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// inMounts is a command that runs the command after it in mounts of its own, after a script that changes them.
func inMounts(script string) []string {
	return []string{"unshare", "--mount", "sh", "-c", "set -e; " + script + `; exec "$@"`, "sh"}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o755))
}

func TestNoFreePort(t *testing.T) {
	t.Parallel()
	taken, err := reservePort()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.release()) })
	_, err = reservePortBetween(taken.number, taken.number)
	require.Error(t, err)
	want := fmt.Sprintf("find a free port of 127.0.0.1 between %d and %[1]d: listen udp4 %s: bind: address already in use", taken.number, taken.address())
	assert.Equal(t, want, err.Error())
}

func TestNoFreePortForAServer(t *testing.T) {
	t.Parallel()
	server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	address, ok := server.Addr().(*net.TCPAddr)
	require.True(t, ok)
	_, err = reservePortBetween(address.Port, address.Port)
	require.ErrorContains(t, err, fmt.Sprintf("listen tcp4 127.0.0.1:%d: bind: address already in use", address.Port))
	again, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", address.String())
	require.NoError(t, err, "what could not be had whole is given back")
	require.NoError(t, again.Close())
}

func TestNoDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, enoughRoom(dir, 1<<20))
	err := enoughRoom(dir, 1<<62)
	require.ErrorContains(t, err, "a test bed needs 4398046511104 MiB of disk and "+dir+" has ")
	require.ErrorContains(t, err, ": make room, or set TMPDIR")
	require.ErrorContains(t, enoughRoom(filepath.Join(dir, "nowhere"), 1), "no such file or directory")
}

func TestAnImageThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nowhere := filepath.Join(dir, "nowhere")
	for name, tc := range map[string]struct {
		image Image
		want  string
	}{
		"an archive that is not there": {Image{Archive: nowhere}, "stat " + nowhere + ": no such file or directory"},
		"an archive that is a folder":  {Image{Archive: dir}, dir + " is no file"},
		"a program that is not there":  {Image{Files: map[string]string{"/a": os.Args[0], "/b": nowhere}}, "stat " + nowhere + ": no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.image.Reference = "shop:1"
			b := &Bed{node: &realNode{}} // nothing of it is used
			err := b.ImportImage(t.Context(), tc.image)
			require.EqualError(t, err, "make the image shop:1: "+tc.want)
			if NodeSupported() != nil {
				return
			}
			_, err = Start(t.Context(), Options{Node: &NodeOptions{Images: []Image{tc.image}}})
			require.EqualError(t, err, "make the image shop:1: "+tc.want, "it is said before anything is started")
		})
	}
	_, err := new(Bed).DialNode(t.Context(), "10.96.0.1:443")
	require.EqualError(t, err, "connect to 10.96.0.1:443: this bed has no real node")
	require.EqualError(t, new(Bed).ImportImage(t.Context(), Image{Reference: "shop:1"}), "import the image shop:1: this bed has no real node")
}

// TestStaleRun is about runs that were killed together with their watchdog.
func TestStaleRun(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	newDir := func(name string) string {
		dir := filepath.Join(parent, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "log"), []byte("of it"), 0o600))
		return dir
	}
	begin := func(dir string) *exec.Cmd {
		sleep := exec.CommandContext(t.Context(), "sleep", "30")
		sleep.Dir = dir
		require.NoError(t, sleep.Start())
		return sleep
	}
	stale, used, kept, foreign := newDir(dirPrefix+"1"), newDir(dirPrefix+"2"), newDir(dirPrefix+"3"), newDir("other")
	require.NoError(t, os.WriteFile(filepath.Join(stale, holdFile), nil, 0o600)) // whoever held it has died
	require.NoError(t, os.WriteFile(filepath.Join(foreign, holdFile), nil, 0o600))
	held, err := holdDir(used)
	require.NoError(t, err)
	released, err := holdDir(kept)
	require.NoError(t, err)
	require.NoError(t, released.release())
	left, busy := begin(stale), begin(used)

	var log []string
	sweep(parent, func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) })
	assert.Equal(t, []string{"test bed: removed what a killed run had left in " + stale}, log)
	require.EqualError(t, left.Wait(), "signal: killed")
	assert.NoDirExists(t, stale)
	for _, dir := range []string{used, kept, foreign} {
		assert.FileExists(t, filepath.Join(dir, "log"))
	}
	require.NoError(t, busy.Process.Signal(syscall.SIGTERM), "so is what is used")
	require.EqualError(t, busy.Wait(), "signal: terminated")

	require.NoError(t, held.release())
	log = nil
	sweep(parent, func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) })
	assert.Empty(t, log, "what was given up is kept, not stale")
}

func TestToolsAreBuiltOnce(t *testing.T) {
	t.Parallel()
	first, err := Tools(t.Context())
	require.NoError(t, err)
	begin := time.Now()
	second, err := Tools(t.Context())
	require.NoError(t, err)
	t.Logf("second call: %s", time.Since(begin).Round(time.Millisecond))
	require.Zero(t, second.Built)
	first.Built = 0
	require.Equal(t, first, second)
	for _, path := range []string{
		second.Etcd, second.KubeAPIServer, second.KubeControllerManager, second.Velero, second.VeleroPluginForAWS, second.VersityGW,
	} {
		require.FileExists(t, path)
	}
}

// crd is a namespaced resource without a schema.
func crd(name string) *apiextensionsv1.CustomResourceDefinition {
	plural, group, _ := strings.Cut(name, ".")
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: strings.ToUpper(plural[:1]) + plural[1:len(plural)-1]},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

// strangers are the addresses other than loopback ones at which processes of the bed in dir listen for TCP connections.
func strangers(t *testing.T, dir string) []string {
	t.Helper()
	mine := map[string]bool{} // inodes of sockets
	for pid := range processesOf(t, dir) {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		require.NoError(t, err)
		for _, descriptor := range descriptors {
			target, err := os.Readlink(descriptor)
			if err != nil { // closed meanwhile
				continue
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				mine[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	require.NotEmpty(t, mine)
	const listening = "0A"
	var found []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(table)
		require.NoError(t, err)
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line) // sl local_address rem_address st … inode is the tenth
			if len(fields) < 10 || fields[3] != listening || !mine[fields[9]] {
				continue
			}
			if ip := localIP(t, fields[1]); !ip.IsLoopback() {
				found = append(found, fields[1]+" "+ip.String())
			}
		}
	}
	return found
}

// localIP decodes an address of /proc/net/tcp: 32-bit words in the machine's byte order, in hexadecimal.
func localIP(t *testing.T, address string) net.IP {
	t.Helper()
	digits, _, _ := strings.Cut(address, ":")
	var ip net.IP
	for ; len(digits) >= 8; digits = digits[8:] {
		word, err := strconv.ParseUint(digits[:8], 16, 32)
		require.NoError(t, err)
		ip = binary.NativeEndian.AppendUint32(ip, uint32(word))
	}
	return ip
}
