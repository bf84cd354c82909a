package bench

import (
	"syscall"
	"time"
)

// threadSleep blocks the thread for d, which the kernel ends within some tens of
// microseconds. A signal may end it early: callers look at the clock.
func threadSleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
