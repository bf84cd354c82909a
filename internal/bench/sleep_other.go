//go:build !linux

package bench

import "time"

func threadSleep(d time.Duration) { time.Sleep(d) }
