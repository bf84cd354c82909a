//go:build !linux

package torture

import "syscall"

// processAttr keeps Ctrl-C away from an instance.
func processAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
