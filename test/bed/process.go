package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	ended   chan struct{} // closed when the process has ended and was reaped
	waitErr error         // how it ended; read after ended is closed
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

	mu      sync.Mutex
	running []*process
	closed  bool
}

// errStopped is the answer to whoever starts something on a bed that was stopped.
var errStopped = errors.New("the test bed was stopped")

// start runs a program with exactly the given environment. Standard output and error are appended to <name>.log.
func (c *crew) start(name, program string, args, env []string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errStopped
	}
	p := &process{name: name, logPath: filepath.Join(c.logDir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close() // the child has its own descriptor
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = env
	p.cmd.Dir = filepath.Dir(c.logDir)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	ownProcessGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.running = append(c.running, p)
	if err := c.watchdog.tell("add", p.cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, signalGroup(p.cmd.Process.Pid, syscall.SIGKILL))
	}
	go func() {
		p.waitErr = p.cmd.Wait()
		if p.waitErr == nil {
			p.waitErr = errors.New("exit status 0")
		}
		close(p.ended)
	}()
	return p, nil
}

// stop ends a process and its children: with SIGTERM when it is given time, and with SIGKILL what is left then.
func (c *crew) stop(ctx context.Context, p *process, grace time.Duration) error {
	group := p.cmd.Process.Pid
	if grace > 0 {
		if err := signalGroup(group, syscall.SIGTERM); err != nil {
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
	// Also when the process itself has gone: a child of it may have stayed.
	if err := signalGroup(group, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(killTimeout):
		return fmt.Errorf("%s (process %d) is still there %s after SIGKILL", p.name, group, killTimeout)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.running {
		if other == p {
			c.running = append(c.running[:i], c.running[i+1:]...)
			break
		}
	}
	return c.watchdog.tell("drop", group) // its number may be given to a stranger from now on
}

// close kills all that runs, at once, and lets nothing be started any more.
func (c *crew) close() error {
	c.mu.Lock()
	c.closed = true
	running := append([]*process(nil), c.running...)
	c.mu.Unlock()
	errs := make([]error, len(running))
	var wait sync.WaitGroup
	for i, p := range running {
		wait.Go(func() { errs[i] = c.stop(context.Background(), p, 0) })
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
// folder in $1; told `end`, it leaves all alone. The second rm is for files that a dying process still wrote.
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
[ -z "$1" ] || rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
`

// startWatchdog starts one that removes dir, unless dir is empty.
func startWatchdog(dir string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "watchdog", dir)
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
