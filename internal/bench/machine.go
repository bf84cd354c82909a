package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// describeMachine reads what the kernel tells; what it does not tell stays empty.
func describeMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: runtime.GOARCH, Kernel: runtime.GOOS}
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		m.CPU = name
	}
	kb, _ := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	m.MemoryMB = kb / 1024
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = runtime.GOOS + " " + strings.TrimSpace(string(release))
	}
	return m
}

// field finds "name : value" in a file of /proc.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
