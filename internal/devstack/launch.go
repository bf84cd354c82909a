package devstack

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Program is a program of the caller's own that runs beside the servers, such as an instance of `holdover serve`.
type Program struct{ p *process }

// Launch runs argv under the name, in a folder of its own in the stack's, with its output in a log there. It ends at the
// latest when this process does, in whatever way; in order it is the caller who ends it, before Close. The name must be
// a file name that the stack has not used.
func (s *Stack) Launch(name string, argv ...string) (*Program, error) {
	dir := filepath.Join(s.dir, "programs", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("devstack: folder of %s: %w", name, err)
	}
	p, err := launch(s.janitor, name, dir, dir+".log", nil, argv...)
	if err != nil {
		return nil, err
	}
	return &Program{p}, nil
}

// PID is its process id.
func (p *Program) PID() int { return p.p.cmd.Process.Pid }

// Log is the end of what it wrote, at most 4 KiB.
func (p *Program) Log() string { return p.p.log() }

// Ended is closed when it has gone.
func (p *Program) Ended() <-chan struct{} { return p.p.ended }

// Signal sends it a signal and waits for nothing.
func (p *Program) Signal(sig syscall.Signal) error {
	if err := p.p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("devstack: send %v to %s: %w", sig, p.p.name, err)
	}
	return nil
}

// Stop ends it by SIGTERM, and by SIGKILL when that takes longer than 30 s, which is an error. One that has gone by itself
// is an error too.
func (p *Program) Stop() error {
	if !p.p.alive() {
		return fmt.Errorf("devstack: %s has ended by itself (%s); the end of its log:\n%s", p.p.name, p.p.state, p.p.log())
	}
	return (&instance{name: p.p.name, proc: p.p}).end(syscall.SIGTERM)
}
