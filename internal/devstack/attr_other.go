//go:build !linux

package devstack

import "syscall"

// ownSession keeps the terminal's signals away from the janitor.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// serverAttr keeps Ctrl-C away from a server.
func serverAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
