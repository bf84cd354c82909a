package torture

import "syscall"

// processAttr keeps Ctrl-C away from an instance, and has the kernel kill it
// when we die.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
