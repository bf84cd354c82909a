package devstack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is one run of a server.
type process struct {
	name    string
	logPath string
	logFrom int64 // where this run's part of the log begins
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it has gone; state is set before
	state   string
}

// launch runs argv in the folder dir with its output appended to logPath, under the janitor's eye. stdin may be nil.
func launch(j *janitor, name, dir, logPath string, stdin io.Reader, argv ...string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("devstack: log of %s: %w", name, err)
	}
	defer log.Close()
	p := &process{name: name, logPath: logPath, ended: make(chan struct{}), cmd: exec.Command(argv[0], argv[1:]...)}
	if info, err := log.Stat(); err == nil {
		p.logFrom = info.Size()
	}
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = dir, stdin, log, log
	p.cmd.SysProcAttr = serverAttr()
	// The kernel's kill at our death is in truth a kill at the death of the thread that forked. A goroutine of its own
	// never runs on a thread that somebody locked, and only locked threads ever end.
	started := make(chan error)
	go func() { started <- p.cmd.Start() }()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("devstack: run %s: %w", name, err)
	}
	go p.wait()
	if err := j.watch(p.cmd.Process.Pid); err != nil {
		p.kill()
		<-p.ended
		return nil, err
	}
	return p, nil
}

// wait reaps the process. teststack knows this function's name, to tell it from a leak.
func (p *process) wait() {
	err := p.cmd.Wait()
	p.state = "exit status 0"
	if err != nil {
		p.state = err.Error()
	}
	close(p.ended)
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends the whole group: redis-server may have a child that rewrites the append-only file.
func (p *process) kill() {
	if p.alive() {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// waitEnded waits up to limit.
func (p *process) waitEnded(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// log returns the end of what this run wrote.
func (p *process) log() string {
	const most = 4096
	f, err := os.Open(p.logPath)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer f.Close()
	if _, err := f.Seek(p.logFrom, io.SeekStart); err != nil {
		return "(no log: " + err.Error() + ")"
	}
	text, _ := io.ReadAll(io.LimitReader(f, 1<<20))
	text = bytes.TrimSpace(text)
	if len(text) > most {
		text = append([]byte("..."), text[len(text)-most:]...)
	}
	return string(text)
}

// died describes the end of a process that should have gone on.
func (p *process) died() error {
	log := p.log()
	err := &startError{name: p.name, state: p.state, log: log}
	for _, sign := range []string{"Address already in use", "bind: ", "Bind on TCP/IP port", "Do you already have another"} {
		err.portTaken = err.portTaken || strings.Contains(log, sign)
	}
	return err
}

// startError is a server that ended while it was starting.
type startError struct {
	name, state, log string
	portTaken        bool
}

func (e *startError) Error() string {
	hint := ""
	if strings.Contains(e.log, "ermission denied") || strings.Contains(e.log, "rrcode: 13") || strings.Contains(e.log, "OS errno 13") {
		if _, err := os.Stat("/etc/apparmor.d/usr.sbin.mysqld"); err == nil {
			hint = "\nhint: the system's AppArmor profile keeps mysqld to its own folders: give a server of your own with --mysql-dsn, or run: sudo aa-complain /usr/sbin/mysqld"
		}
	}
	return fmt.Sprintf("devstack: %s ended while starting (%s); the end of its log:\n%s%s", e.name, e.state, e.log, hint)
}
