package bench

import (
	"os"
	"strconv"
	"strings"
)

// cpuTime is what this machine's cores have done since it started, in the
// kernel's ticks. A difference of two is how busy the cores were between them.
type cpuTime struct{ idle, all float64 }

// cpuNow reads the kernel's count; zero where it has none to read.
func cpuNow() (t cpuTime) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return parseCPU(first)
}

// parseCPU reads the line of all cores: user nice system idle iowait irq softirq
// steal; what follows is counted in user already.
func parseCPU(line string) (t cpuTime) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[0] != "cpu" {
		return t
	}
	for i, field := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return cpuTime{}
		}
		t.all += n
		if i == 3 || i == 4 { // a core that waits for the disk is free for others
			t.idle += n
		}
	}
	return t
}

func (t cpuTime) sub(before cpuTime) cpuTime {
	return cpuTime{t.idle - before.idle, t.all - before.all}
}
func (t cpuTime) add(more cpuTime) cpuTime { return cpuTime{t.idle + more.idle, t.all + more.all} }

// share is the part of the cores' time in which they had nothing to do; nil
// where that is not known.
func (t cpuTime) share() *float64 {
	if t.all <= 0 {
		return nil
	}
	return value(t.idle / t.all)
}
