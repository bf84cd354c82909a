package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// instance is a server with a port and a folder of its own, which may stop and start again.
type instance struct {
	name    string // for messages: "redis-server of pod-a"
	dir     string // its working directory and data, inside the stack's folder
	logPath string
	janitor *janitor
	timeout time.Duration
	args    func(port int) []string
	// ready asks the server at port once: nil when it answers as ours.
	ready func(ctx context.Context, port int) error

	mu     sync.Mutex
	port   port
	proc   *process // nil: never started
	closed bool
}

// portTries bounds how many ports a first start tries.
const portTries = 20

// start runs program. The first start chooses the port, later ones keep it.
func (in *instance) start(ctx context.Context, program string, keepData bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.closed:
		return fmt.Errorf("devstack: %s: the stack is closed", in.name)
	case in.proc != nil && in.proc.alive():
		return fmt.Errorf("devstack: %s runs already: stop it first", in.name)
	}
	if !keepData {
		if err := os.RemoveAll(in.dir); err != nil {
			return fmt.Errorf("devstack: remove the data of %s: %w", in.name, err)
		}
	}
	if err := os.MkdirAll(in.dir, 0o700); err != nil {
		return fmt.Errorf("devstack: folder of %s: %w", in.name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, in.timeout, fmt.Errorf("no answer within %v", in.timeout))
	defer cancel()
	first := in.port.number == 0
	for try := 1; ; try++ {
		if first {
			in.port.release()
			var err error
			if in.port, err = claimPort(); err != nil {
				return err
			}
		}
		err := in.run(ctx, program)
		var dead *startError
		if err == nil || !errors.As(err, &dead) || !dead.portTaken || try == portTries {
			return err
		}
		// On a restart somebody without manners sits on our port; usually an outgoing connection, soon gone.
		if !first {
			sleep(ctx, 100*time.Millisecond)
		}
	}
}

// run starts one process and waits until it answers.
func (in *instance) run(ctx context.Context, program string) error {
	p, err := launch(in.janitor, in.name, in.dir, in.logPath, nil, append([]string{program}, in.args(in.port.number)...)...)
	if err != nil {
		return err
	}
	in.proc = p
	var last error
	for wait := 5 * time.Millisecond; ; wait = min(wait*3/2, 50*time.Millisecond) {
		if last = in.ready(ctx, in.port.number); last == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.died()
		default:
		}
		if !sleep(ctx, wait) {
			p.kill()
			p.waitEnded(10 * time.Second)
			return fmt.Errorf("devstack: start %s: %w (last try: %w); the end of its log:\n%s", in.name, context.Cause(ctx), last, p.log())
		}
	}
}

// sleep waits for d, and returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// stopLimit is how long a server may take for an orderly end; mysqld writes its dirty pages.
const stopLimit = 30 * time.Second

func (in *instance) stop(how syscall.Signal) error {
	switch how {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL:
	default:
		return fmt.Errorf("devstack: stop %s by %v: only SIGTERM, SIGINT and SIGKILL end a server; send others as signals", in.name, how)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.proc == nil || !in.proc.alive() {
		return fmt.Errorf("devstack: %s is not running", in.name)
	}
	return in.end(how)
}

// end brings the running process down. in.mu is held.
func (in *instance) end(how syscall.Signal) error {
	p := in.proc
	if how != syscall.SIGKILL {
		p.cmd.Process.Signal(how)
		p.cmd.Process.Signal(syscall.SIGCONT) // a hanging one would never see it
		if p.waitEnded(stopLimit) {
			return nil
		}
	}
	p.kill()
	if !p.waitEnded(stopLimit) {
		return fmt.Errorf("devstack: %s (pid %d) does not end, not even by SIGKILL", in.name, p.cmd.Process.Pid)
	}
	if how != syscall.SIGKILL {
		return fmt.Errorf("devstack: %s did not end within %v after %v and was killed; the end of its log:\n%s", in.name, stopLimit, how, p.log())
	}
	return nil
}

func (in *instance) signal(sig syscall.Signal) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.proc == nil || !in.proc.alive() {
		return fmt.Errorf("devstack: %s is not running", in.name)
	}
	if err := in.proc.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("devstack: send %v to %s: %w", sig, in.name, err)
	}
	return nil
}

// close ends the server for good; in order only when its data are kept.
func (in *instance) close(orderly bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	defer in.port.release()
	if in.proc == nil || !in.proc.alive() {
		return nil
	}
	if orderly {
		return in.end(syscall.SIGTERM)
	}
	return in.end(syscall.SIGKILL)
}
