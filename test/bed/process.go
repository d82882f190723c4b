package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killTimeout is how long the kernel may take to end a process after SIGKILL: it is done at once unless the machine
// itself is stuck.
const killTimeout = 10 * time.Second

// A process is one component of a bed, in a process group of its own together with the children it starts (Velero starts
// its plugins).
type process struct {
	name    string
	cmd     *exec.Cmd
	logPath string

	// ended is closed when the process has ended, was reaped, and its children were killed. Read the rest only then.
	ended      chan struct{}
	waitErr    error // how it ended, never nil
	cleanupErr error
}

// failure is an error when the process has ended, with the tail of its log, else nil. For loops that wait for a component
// to become ready: they need not wait for one that is gone.
func (p *process) failure() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended (%w); its log ends with\n%s", p.name, p.waitErr, tail(p.logPath))
	default:
		return nil
	}
}

// A crew starts the processes of one bed and sees to it that none outlives it.
type crew struct {
	logDir   string
	watchdog *watchdog
	// enter is a command that runs the command after it where the bed's processes live, see enclosure; empty: right here.
	// It is set before anything else is started.
	enter []string

	mu      sync.Mutex
	running map[*process]bool
	closed  bool
}

func newCrew(logDir string, dog *watchdog) *crew {
	return &crew{logDir: logDir, watchdog: dog, running: map[*process]bool{}}
}

// errStopped is the answer to whoever starts something on a bed that was stopped.
var errStopped = errors.New("the test bed was stopped")

// start runs a program with exactly the given environment. Standard output and error are appended to <name>.log.
func (c *crew) start(name, program string, args, env []string) (*process, error) {
	cmd := c.command(program, args...)
	cmd.Env = env
	ownProcessGroup(cmd)
	return c.begin(name, cmd)
}

// command is a program with arguments, to be run where the bed's processes live.
func (c *crew) command(program string, args ...string) *exec.Cmd {
	line := slices.Concat(c.enter, []string{program}, args)
	return exec.Command(line[0], line[1:]...)
}

// begin starts a command that has a process group of its own.
func (c *crew) begin(name string, cmd *exec.Cmd) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errStopped
	}
	p := &process{name: name, cmd: cmd, logPath: filepath.Join(c.logDir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd.Dir = filepath.Dir(c.logDir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.running[p] = true
	err = c.watchdog.tell("add", p.cmd.Process.Pid)
	go c.await(p)
	if err != nil {
		return nil, errors.Join(err, p.signal(syscall.SIGKILL))
	}
	return p, nil
}

// run runs a program to its end, or until ctx ends, and returns what it wrote to standard output. The error carries standard error.
func (c *crew) run(ctx context.Context, env []string, program string, args ...string) (string, error) {
	line := slices.Concat(c.enter, []string{program}, args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = env
	cmd.Dir = filepath.Dir(c.logDir)
	cmd.WaitDelay = time.Second
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, errOut.String())
	}
	return out.String(), nil
}

// await sees a process off, however it ends. What is left of its group then are its children; they have nobody else. The
// group's number may be given to a stranger soon, so nobody signals it after that.
func (c *crew) await(p *process) {
	p.waitErr = p.cmd.Wait()
	if p.waitErr == nil {
		p.waitErr = errors.New("exit status 0")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.cleanupErr = errors.Join(signalGroup(p.cmd.Process.Pid, syscall.SIGKILL), c.watchdog.tell("drop", p.cmd.Process.Pid))
	delete(c.running, p)
	close(p.ended)
}

// signal signals a process and its children, if it has not ended.
func (p *process) signal(signal syscall.Signal) error {
	select {
	case <-p.ended:
		return nil
	default:
		return signalGroup(p.cmd.Process.Pid, signal)
	}
}

// stop ends a process and its children: with SIGTERM when it is given time, and with SIGKILL what is left then.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if grace > 0 {
		if err := p.signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.ended:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return p.cleanupErr
	case <-time.After(killTimeout):
		return fmt.Errorf("%s (process %d) is still there %s after SIGKILL", p.name, p.cmd.Process.Pid, killTimeout)
	}
}

// close kills all that runs, at once, and lets nothing be started any more.
func (c *crew) close() error {
	c.mu.Lock()
	c.closed = true
	running := slices.Collect(maps.Keys(c.running))
	c.mu.Unlock()
	errs := make([]error, len(running))
	var wait sync.WaitGroup
	for i, p := range running {
		wait.Go(func() { errs[i] = p.stop(context.Background(), 0) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// A watchdog is a small process that cleans up when this one dies without doing so itself, whatever it dies of: its standard
// input is a pipe that the kernel closes then. (PR_SET_PDEATHSIG would not do: it is tied to the thread that started the
// child, does not reach grandchildren, and leaves the files.)
type watchdog struct {
	mu  sync.Mutex
	in  io.WriteCloser
	cmd *exec.Cmd
}

// watchdogScript keeps the set of process groups it is told of. At the end of its input it kills them and removes the
// folder in $1; told `end`, it leaves all alone. The second rm is for files that a dying process still wrote. $2 names the
// bed's cgroups, if it has any: a cgroup can be removed once its last process has gone, which may take a moment.
const watchdogScript = `
groups=
while read -r op group; do
  case $op in
    add) groups="$groups $group" ;;
    drop) kept=; for g in $groups; do [ "$g" = "$group" ] || kept="$kept $g"; done; groups=$kept ;;
    end) exit 0 ;;
  esac
done
for g in $groups; do kill -s KILL -- "-$g"; done
tries=50
while [ -n "$2" ] && [ "$tries" -gt 0 ]; do
  left=
  for cgroup in "/sys/fs/cgroup/$2" "/sys/fs/cgroup/"*"/$2"; do
    [ ! -d "$cgroup" ] || find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || left=yes
  done
  [ -n "$left" ] || break
  tries=$((tries - 1)); sleep 0.2
done
[ -z "$1" ] || rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
`

// startWatchdog starts one that removes the cgroups of that name and the folder dir; empty: there is none.
func startWatchdog(dir, cgroup string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "watchdog", dir, cgroup)
	cmd.Dir = "/"
	ownProcessGroup(cmd) // Ctrl-C on the terminal is not for it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{in: in, cmd: cmd}, nil
}

func (w *watchdog) tell(op string, group int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := fmt.Fprintln(w.in, op, group); err != nil {
		return fmt.Errorf("tell the watchdog of process group %d: %w", group, err)
	}
	return nil
}

// end dismisses the watchdog.
func (w *watchdog) end() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := fmt.Fprintln(w.in, "end")
	return errors.Join(err, w.in.Close(), w.cmd.Wait())
}
