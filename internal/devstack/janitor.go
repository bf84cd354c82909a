package devstack

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
)

// janitorScript reads orders from the parent. At the end of input, which the kernel brings about however the parent ends,
// it kills the servers and removes the folder. A pid may have been given to somebody else by then: a server of ours still
// has its working directory in our folder. (Not the command line: redis-server rewrites its own.)
const janitorScript = `
trap '' HUP INT TERM QUIT
dir= pids= keep=
while read -r order value; do
	case $order in
	dir) dir=$value ;;
	keep) keep=1 ;;
	pid) pids="$pids $value" ;;
	dismissed) exit 0 ;;
	esac
done
ours() {
	if [ -d /proc/self ]; then
		case $(readlink "/proc/$1/cwd" 2>/dev/null) in "$dir"/*) return 0 ;; esac
		return 1
	fi
	case $(ps -o comm= -p "$1" 2>/dev/null) in *redis* | *mysqld* | *mariadbd*) return 0 ;; esac
	return 1
}
tries=0 left=1
while [ -n "$left" ] && [ $tries -lt 300 ]; do
	left=
	for pid in $pids; do
		if ours "$pid"; then
			left=1
			kill -KILL "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null
		fi
	done
	tries=$((tries + 1))
	[ -z "$left" ] || sleep 0.1
done
[ -n "$keep" ] || [ -z "$dir" ] || rm -rf "$dir"
`

// janitor is the process that cleans up when this one can't.
type janitor struct {
	cmd *exec.Cmd

	mu sync.Mutex
	in io.WriteCloser
}

func newJanitor(dir string, keep bool) (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript)
	cmd.Dir = "/"
	cmd.SysProcAttr = ownSession()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("devstack: pipe to the janitor: %w", err)
	}
	// Its output goes to /dev/null: a process that outlives a test must not hold the test's output open.
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("devstack: start the janitor (/bin/sh): %w", err)
	}
	j := &janitor{cmd: cmd, in: in}
	orders := "dir " + dir + "\n"
	if keep {
		orders += "keep 1\n"
	}
	if err := j.order(orders); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	return j, nil
}

func (j *janitor) order(line string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := io.WriteString(j.in, line); err != nil {
		return fmt.Errorf("devstack: the janitor process has ended, servers would be left behind if this program were killed: %w", err)
	}
	return nil
}

// watch tells the janitor of a new server.
func (j *janitor) watch(pid int) error { return j.order(fmt.Sprintf("pid %d\n", pid)) }

// dismiss ends the janitor when there is nothing left to do for it.
func (j *janitor) dismiss() error {
	err := j.order("dismissed\n")
	j.mu.Lock()
	j.in.Close()
	j.mu.Unlock()
	if waitErr := j.cmd.Wait(); err == nil && waitErr != nil {
		err = fmt.Errorf("devstack: janitor: %w", waitErr)
	}
	return err
}
