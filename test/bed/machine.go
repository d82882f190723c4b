package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// What a real node takes from the machine.

// systemFolders hold programs that are root's, which a shell that is not a login shell may not have in its PATH.
const systemFolders = "/usr/local/sbin:/usr/sbin:/sbin"

// lookPath is exec.LookPath, which looks into systemFolders too.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	for _, dir := range filepath.SplitList(systemFolders) {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, program))
	}
	return path, err
}

// networkPlugins is the folder of the CNI plugins: the first is Debian's, the second everybody else's.
func networkPlugins() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("a real node needs CNI plugins, which are not installed: run scripts/node-packages.sh")
}

// busyboxCommands is the path of busybox and, for an image that has it at /bin/busybox, a link for each of its commands.
func busyboxCommands(ctx context.Context) (path string, links map[string]string, err error) {
	if path, err = lookPath("busybox"); err != nil {
		return "", nil, err
	}
	out, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return "", nil, fmt.Errorf("ask busybox for its commands: %w", err)
	}
	links = map[string]string{}
	for name := range strings.FieldsSeq(string(out)) {
		if name != "busybox" {
			links["/bin/"+name] = "busybox"
		}
	}
	return path, links, nil
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
