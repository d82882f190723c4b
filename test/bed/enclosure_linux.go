package bed

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An enclosure is where the processes of a bed with a real node live: namespaces of their own for process numbers, mounts
// and network. It is there for the end as much as for the work: when its first process ends, for whatever reason, the
// kernel kills every other one in it, containers and all, and then takes down the mounts and interfaces, which nothing
// else uses. So a crash in the middle leaves no more than files and empty cgroups. As the mounts are not seen outside,
// whoever removes the files cannot run into one.
//
// Inside, the folders /var/lib/kubelet, /var/lib/containerd, /var/lib/volumes and /var/log/pods are in the bed's directory;
// the rest of /var/lib, /var/log and /run is empty at first and forgotten in the end.
type enclosure struct {
	first *process
	// alive is one end of a pipe. When it closes, the first process ends: the kernel closes it should this process die.
	alive *os.File
	net   *os.File // the network namespace
}

// enclosureScript is the first process. See the file for its arguments.
//
//go:embed enclosure.sh
var enclosureScript string

// hidden are the folders whose content is not seen inside, see enclosure.sh.
var hidden = []string{"/run", "/var/run", "/var/lib", "/var/log"}

// newEnclosure makes an enclosure whose folders are in dir, and has the crew start its processes in it from now on.
func newEnclosure(ctx context.Context, c *crew, dir string, env []string) (_ *enclosure, err error) {
	stdin, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	e := &enclosure{alive: alive}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	ready := filepath.Join(dir, "ready")
	cmd := c.command("/bin/sh", "-c", enclosureScript, "enclosure", dir, nodeIP+"/24", ready)
	cmd.Env = env
	cmd.Stdin = stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
	}
	e.first, err = c.begin("enclosure", cmd)
	if err := errors.Join(err, stdin.Close()); err != nil {
		return nil, err
	}
	if err := poll(ctx, "wait for the node's namespaces", func(context.Context) error {
		if err := e.first.failure(); err != nil {
			return finalError{err}
		}
		_, err := os.Stat(ready)
		return err
	}); err != nil {
		return nil, err
	}
	pid := strconv.Itoa(e.first.cmd.Process.Pid)
	if e.net, err = os.Open(filepath.Join("/proc", pid, "ns", "net")); err != nil {
		return nil, fmt.Errorf("find the node's network: %w", err)
	}
	c.enter = []string{"nsenter", "--target=" + pid, "--mount", "--net", "--pid", "--"}
	return e, nil
}

// dial connects from inside. address holds an IP, not a name.
func (e *enclosure) dial(ctx context.Context, address string) (net.Conn, error) {
	type result struct {
		net.Conn
		error
	}
	done := make(chan result, 1)
	go func() {
		// A socket belongs to the network that its thread is in when it makes it. The thread is never unlocked, so it ends with
		// this goroutine, and no other one is ever run in the wrong network.
		runtime.LockOSThread()
		if err := unix.Setns(int(e.net.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{error: fmt.Errorf("enter the node's network: %w", err)}
			return
		}
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.Conn, r.error
}

// close gives up what this process holds of the enclosure, which ends it.
func (e *enclosure) close() error {
	err := e.alive.Close()
	if e.net != nil {
		err = errors.Join(err, e.net.Close())
	}
	return err
}

// NodeSupported says in one line why a bed with a real node cannot run on this machine, and what to do; nil: it can.
func NodeSupported() error {
	if os.Geteuid() != 0 {
		return errors.New("a real node needs root: run as root, as in a container or virtual machine of one's own")
	}
	for _, program := range []string{"containerd", "ctr", "containerd-shim-runc-v2", "runc", "nft", "ip", "mount", "nsenter", "busybox"} {
		if _, err := lookPath(program); err != nil {
			return fmt.Errorf("a real node needs %s, which is not installed: run scripts/node-packages.sh", program)
		}
	}
	if _, err := networkPlugins(); err != nil {
		return err
	}
	if _, err := cgroupRoots(); err != nil {
		return err
	}
	for _, dir := range hidden {
		if within(os.TempDir(), dir) {
			return fmt.Errorf("a real node has its own %s, and the folder for temporary files, %s, is in it: set TMPDIR", dir, os.TempDir())
		}
	}
	if top, err := repositoryTop(); err == nil { // from elsewhere, Tools says so
		for _, dir := range hidden {
			if within(top, dir) {
				return fmt.Errorf("a real node has its own %s, and this repository, %s, is in it: move it", dir, top)
			}
		}
	}
	if err := enoughRoom(os.TempDir(), roomForNode); err != nil {
		return err
	}
	return tryEnclosure()
}

// trialScript does, in namespaces of its own, a bit of all that a node's programs do there.
const trialScript = `
set -eu
mount -n --make-rprivate /
mount -n -t tmpfs tmpfs /run
mount -t proc proc /proc
ip link add cni0 type bridge
ip link add veth0 type veth peer name veth1
nft add table ip test-bed
`

// tryEnclosure says why this machine does not let us do what a node does, though we are root: a container mostly may not.
func tryEnclosure() error {
	const remedy = "use a privileged container or a virtual machine"
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", trialScript)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":"+systemFolders)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return fmt.Errorf("a real node needs mounts and interfaces, and this machine gives none (%s): %s", oneLine(string(out)), remedy)
	case err != nil:
		return fmt.Errorf("a real node needs namespaces of its own, and this machine gives none (%w): %s", err, remedy)
	}
	name := fmt.Sprintf("dr-test-bed-trial-%d", os.Getpid())
	if err := errors.Join(makeCgroups(name), removeCgroups(name)); err != nil {
		return fmt.Errorf("a real node needs cgroups of its own, and this machine gives none (%s): %s", oneLine(err.Error()), remedy)
	}
	return nil
}

// oneLine puts what was printed into one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// snapshotterFor says how containerd is to keep the file systems of containers that are in dir. An overlay cannot lie on an
// overlay, as the root of a container mostly is; copies can.
func snapshotterFor(dir string) (string, error) {
	const overlay = 0x794c7630 // OVERLAYFS_SUPER_MAGIC of linux/magic.h
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return "", fmt.Errorf("find the file system of %s: %w", dir, err)
	}
	if fs.Type == overlay {
		return "native", nil
	}
	return "overlayfs", nil
}
