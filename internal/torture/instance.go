package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdover"
	"holdover/internal/faults"
	"holdover/internal/httpapi"
)

// operatorToken opens the operator routes of the instances, which listen on
// loopback and end with this process.
const operatorToken = "torture"

// wires are one client's ways to the two stores.
type wires struct {
	redis, mysql *faults.Proxy
}

func (w wires) to(store holdover.Store) *faults.Proxy {
	if store == holdover.StoreMySQL {
		return w.mysql
	}
	return w.redis
}

func (w wires) close() error {
	var errs []error
	for _, p := range []*faults.Proxy{w.redis, w.mysql} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// instance is one `holdover serve` as a process, which may end and start again
// on the same address.
type instance struct {
	name    string
	program string
	args    []string
	addr    string
	logPath string
	client  *http.Client
	wires   wires

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has gone
	state string
}

// freeAddr finds a loopback port that nobody has now. Instances keep theirs over
// a new start, so it can't be chosen by them.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start runs the process and returns; awaitReady waits for it.
func (in *instance) start() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	log, err := os.OpenFile(in.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of %s: %w", in.name, err)
	}
	defer log.Close()
	cmd := exec.Command(in.program, in.args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, processAttr()
	cmd.Env = append(os.Environ(), "HOLDOVER_OPERATOR_TOKEN="+operatorToken)
	// The kernel ends it when the thread that started it does, and only threads
	// that somebody locked end early: a goroutine of its own has none.
	started := make(chan error)
	go func() { started <- cmd.Start() }()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", in.name, err)
	}
	ended := make(chan struct{})
	in.cmd, in.ended = cmd, ended
	go func() {
		err := cmd.Wait()
		in.mu.Lock()
		in.state = fmt.Sprint(err)
		in.mu.Unlock()
		close(ended)
	}()
	return nil
}

// alive reports whether the process runs (or is paused).
func (in *instance) alive() bool {
	in.mu.Lock()
	ended := in.ended
	in.mu.Unlock()
	if ended == nil {
		return false
	}
	select {
	case <-ended:
		return false
	default:
		return true
	}
}

func (in *instance) signal(sig syscall.Signal) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cmd == nil {
		return fmt.Errorf("%s was never started", in.name)
	}
	return in.cmd.Process.Signal(sig)
}

// kill ends the process and waits until it is gone.
func (in *instance) kill() error {
	in.mu.Lock()
	cmd, ended := in.cmd, in.ended
	in.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", in.name, err)
	}
	<-ended
	in.client.CloseIdleConnections()
	return nil
}

const readyTime = 60 * time.Second

func (in *instance) awaitReady(ctx context.Context) error {
	return await(ctx, readyTime, in.name+" is ready", func() (bool, error) {
		if !in.alive() {
			in.mu.Lock()
			defer in.mu.Unlock()
			return false, fmt.Errorf("%s ended (%s): see %s", in.name, in.state, in.logPath)
		}
		once, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(once, http.MethodGet, "http://"+in.addr+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := in.client.Do(req)
		if err != nil {
			return false, nil // not listening yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
}

// operator asks the instance's operator routes.
func (in *instance) operator() *httpapi.Client {
	return &httpapi.Client{BaseURL: "http://" + in.addr, Token: operatorToken, HTTP: in.client, Timeout: 10 * time.Second}
}

// logTail is the end of what the instance has logged.
func (in *instance) logTail(lines int) string {
	text, err := os.ReadFile(in.logPath)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// await asks until the answer is yes, and says what it waited for when it is
// not in time.
func await(ctx context.Context, limit time.Duration, what string, yes func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: not within %s", what, limit))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := yes()
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
