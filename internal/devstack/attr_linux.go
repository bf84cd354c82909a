package devstack

import "syscall"

// ownSession keeps the terminal's signals away from the janitor.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// serverAttr keeps Ctrl-C away from a server, and has the kernel kill it when we die: that covers the moment between its
// start and the janitor's knowing of it.
func serverAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
