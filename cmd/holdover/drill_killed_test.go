package main

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/devstack"
	"holdover/internal/teststack"
	"holdover/killswitch"
)

// process is a command of the site as a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *lockedBuffer
}

func (s *site) process(args ...string) *process {
	s.t.Helper()
	path, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{s.t, exec.Command(path, append(args, "--config", s.file)...), &lockedBuffer{}}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

// ends waits until the process has ended and checks its exit code and words.
func (p *process) ends(code int, texts ...string) {
	p.t.Helper()
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("%v: exit %d, want %d:\n%s", p.cmd.Args[1:], got, code, p.out)
	}
	for _, text := range texts {
		if !strings.Contains(p.out.String(), text) {
			p.t.Errorf("%v says nothing of %q:\n%s", p.cmd.Args[1:], text, p.out)
		}
	}
}

// hang makes an instance that lives and stays at the epoch of now, until it is
// stopped: a drill waits for it as long as it waits.
func (s *site) hang(name string) (stop func()) {
	s.t.Helper()
	c, err := (&configFlags{Config: s.file}).load(&env{ctx: s.t.Context(), stderr: &lockedBuffer{}})
	if err != nil {
		s.t.Fatal(err)
	}
	stores, err := app.OpenStores(s.t.Context(), c, c.Pods[0])
	if err != nil {
		s.t.Fatal(err)
	}
	instance := holdover.Instance{Name: name, ID: name, Epoch: s.agreed().Agreed.Epoch}
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; {
			_ = stores.Redis.Heartbeat(ctx, instance)
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		beating.Wait()
		_ = stores.Redis.Forget(context.Background(), name)
		_ = stores.Close(context.Background())
	})
	s.t.Cleanup(stop)
	return stop
}

// drillable waits until everybody has acknowledged and a drill is not refused.
func (s *site) drillable() {
	s.t.Helper()
	eventually(s.t, "a drill is possible", func() bool { return s.agreed().Readiness.Back.OK })
}

// latched waits for a latch by somebody.
func (s *site) latched(by string) holdover.Fence {
	s.t.Helper()
	var f holdover.Fence
	eventually(s.t, "the pod is latched by "+by, func() bool {
		f = *s.agreed().Agreed
		return f.Latched && f.By == by
	})
	return f
}

// TestDrillOfOthers: real processes. A second drill beside one that is under way is
// told to wait, and a kill takes the latch over, which the drill does not open.
// A drill that is killed leaves its latch, and one command ends it.
func TestDrillOfOthers(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a").stocked()
	s.serve("checkout-1").ready()
	s.flag("shadow")
	s.reach(holdover.StageShadow, 1)
	drill := []string{"drill", "--by", "ada", "--reason", "weekly"}

	stop := s.hang("hangs")
	s.drillable()
	first := s.process(drill...)
	latch := s.latched("ada")
	s.process("kill", "--by", "bob", "--reason", "checkout errors").ends(0, "KILLED  pod pod-a: shadow -> shadow, latched at epoch "+strconv.FormatUint(uint64(latch.Epoch+2), 10))
	first.ends(3, "somebody else moved the pod meanwhile", "LATCHED by bob: checkout errors")
	if f := s.agreed().Agreed; !f.Latched || f.By != "bob" || f.Epoch != latch.Epoch+2 {
		t.Fatalf("after the drill: %s", f)
	}
	s.want(3, []string{"the kill switch is latched by bob: checkout errors"}, drill...)
	s.want(0, []string{"the latch is off"}, "restore", "--by", "bob", "--reason", "gone")
	stop()

	stop = s.hang("hangs")
	s.drillable()
	killed := s.process(append(drill, "--json")...)
	s.latched("ada")
	second := []string{"NO DRILL", "a drill by ada is under way since ", "weekly", "wait: it takes its latch off itself"}
	if a := s.want(3, second, "drill", "--by", "eve", "--reason", "me too"); strings.Contains(a.out+a.stderr, "holdover restore") {
		t.Errorf("the second one is told to restore:\n%s%s", a.out, a.stderr)
	}
	s.want(0, []string{"next       Latched in shadow: a drill by ada is under way since ", "back       no; a drill by ada"}, "status")
	killed.kill()
	stop()
	f := s.agreed().Agreed
	if !f.Latched || !killswitch.IsDrill(*f) {
		t.Fatalf("the drill had ended before it was killed: %s\n%s", f, killed.out)
	}

	// Some minutes later.
	raw := redis.NewClient(&redis.Options{Addr: s.pods[0].redis, DB: s.pods[0].db})
	defer raw.Close()
	if err := raw.HSet(t.Context(), "fence", "at_ms", time.Now().Add(-2*killswitch.LongestDrill).UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, append(drill, "--dry-run")} {
		a := s.run(append(args, "--pod", "pod-a")...)
		for _, text := range []string{"the latch is left over from a drill by ada of ", "its command has ended", "holdover restore --pod pod-a --reason TEXT"} {
			if !strings.Contains(a.out, text) {
				t.Errorf("%v says nothing of %q:\n%s", args, text, a.out)
			}
		}
	}
	s.want(0, []string{"the latch is off"}, "restore", "--pod", "pod-a", "--reason", "its drill was killed")
	if f := s.agreed().Agreed; f.Latched {
		t.Errorf("%s", f)
	}
}

// TestDrillAllGoesOn: a pod that can't be opened keeps no other from its drill, nor
// from its verification.
func TestDrillAllGoesOn(t *testing.T) {
	stack, err := devstack.Start(t.Context(), devstack.Config{Pods: []string{"pod-a", "pod-b"}, StartTimeout: 3 * time.Minute})
	must(t, err)
	t.Cleanup(func() { must(t, stack.Close()) })
	at := func(pod, shops string) place {
		return place{name: pod, shops: shops, redis: stack.RedisAddr(pod), dsn: stack.MySQLDSN(pod)}
	}
	s := siteAt(t, at("pod-a", "1-99"), at("pod-b", "100-199")).stocked()
	s.serve("checkout-1").ready()
	s.flag("shadow")
	s.reach(holdover.StageShadow, 1)
	s.drillable()
	raw := redis.NewClient(&redis.Options{Addr: stack.RedisAddr("pod-b")})
	defer raw.Close()
	host, port, _ := strings.Cut(stack.RedisAddr("pod-a"), ":")
	must(t, raw.Do(t.Context(), "REPLICAOF", host, port).Err()) // a pod's Redis is none that follows another
	drill := []string{"drill", "--all", "--by", "ada", "--reason", "weekly"}
	if a := s.want(1, []string{"DRILLED  pod pod-a", "pod pod-b", "it is a replica"}, drill...); strings.Contains(a.out, "pod-b") {
		t.Errorf("pod-b is drilled:\n%s", a.out)
	}
	var all struct {
		OK   bool
		Pods []podResult[app.DrilledPod]
	}
	s.object(1, &all, drill...)
	if len(all.Pods) != 2 || all.OK || !all.Pods[0].OK || !all.Pods[0].Result.OK || all.Pods[1].OK || all.Pods[1].Pod != "pod-b" || all.Pods[1].Err == "" {
		t.Errorf("%+v", all)
	}
	for _, args := range [][]string{{}, {"--store", "mysql"}, {"--repair", "--dry-run"}} {
		s.want(1, []string{"pod pod-a: ", "pod pod-b", "it is a replica"}, append([]string{"verify", "--all"}, args...)...)
	}
}
