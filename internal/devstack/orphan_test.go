package devstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childMode, in the environment, makes the test binary a program that starts a stack and then ends badly.
const childMode = "HOLDOVER_DEVSTACK_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		child(mode)
	}
	os.Exit(m.Run())
}

func child(mode string) {
	s, err := Start(context.Background(), Config{Pods: []string{"pod-a", "pod-b"}, Keep: mode == "keep", StartTimeout: 3 * time.Minute})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("dir", s.Dir())
	fmt.Println("janitor", s.janitor.cmd.Process.Pid)
	for _, pid := range s.pids() {
		fmt.Println("pid", pid)
	}
	s.SignalRedis("pod-b", syscall.SIGSTOP) // a hanging server has to go too
	fmt.Println("ready")
	switch mode {
	case "panic":
		panic("on purpose")
	case "exit":
		os.Exit(0)
	}
	select {} // until the parent's signal
}

// pids are the servers'.
func (s *Stack) pids() (pids []int) {
	instances := []*instance{s.mysql}
	for _, in := range s.redis {
		instances = append(instances, in)
	}
	for _, in := range instances {
		in.mu.Lock()
		pids = append(pids, in.proc.cmd.Process.Pid)
		in.mu.Unlock()
	}
	return pids
}

// running tells whether the process exists; a zombie that nobody has reaped yet does not count.
func running(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// TestNothingIsLeftBehind ends a program that has a stack, in each way that gives it no chance to clean up.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, mode := range []string{"SIGKILL", "SIGINT", "panic", "exit", "no janitor", "keep"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), childMode+"="+mode)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			var dir string
			var janitor int
			var pids []int
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "ready" {
				key, value, _ := strings.Cut(lines.Text(), " ")
				number, _ := strconv.Atoi(value)
				switch key {
				case "dir":
					dir = value
				case "janitor":
					janitor = number
				case "pid":
					pids = append(pids, number)
				default:
					t.Errorf("the child says: %s", lines.Text())
				}
			}
			if dir == "" || janitor == 0 || len(pids) != 3 {
				t.Fatalf("the child started nothing: %q, %d, %v", dir, janitor, pids)
			}
			defer os.RemoveAll(dir)
			switch mode {
			case "SIGKILL", "keep":
				cmd.Process.Kill()
			case "SIGINT":
				cmd.Process.Signal(os.Interrupt)
			case "no janitor":
				if _, err := os.Stat("/proc/self"); err != nil {
					t.Skip("only Linux kills the children of a dead process")
				}
				syscall.Kill(janitor, syscall.SIGKILL)
				cmd.Process.Kill()
			}
			cmd.Wait()
			began := time.Now()
			left := append([]int{janitor}, pids...)
			for {
				var still []int
				for _, pid := range left {
					if running(pid) {
						still = append(still, pid)
					}
				}
				if left = still; len(left) == 0 {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatalf("processes %v still run (janitor is %d)", left, janitor)
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("all gone after %v", time.Since(began))
			_, err = os.Stat(dir)
			kept := mode == "keep" || mode == "no janitor"
			if kept != (err == nil) {
				t.Errorf("the folder: %v; it should be there: %v", err, kept)
			}
		})
	}
}
