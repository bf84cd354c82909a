package killswitch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/killswitch"
)

// follow is an instance that acknowledges each fence of the pod's Redis, until
// the test ends.
func (p pair) follow(t *testing.T, name string) {
	t.Helper()
	p.beat(t, name)
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; {
			if f, err := p.redis.Fence(ctx); err == nil {
				_ = p.redis.Heartbeat(ctx, holdover.Instance{Name: name, ID: name, Epoch: f.Epoch})
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
	})
	t.Cleanup(func() { stop(); following.Wait() })
}

// beat is one sign of life of an instance: without another it is one that hangs.
func (p pair) beat(t *testing.T, name string) {
	t.Helper()
	f, err := p.redis.Fence(t.Context())
	if err == nil {
		err = p.redis.Heartbeat(t.Context(), holdover.Instance{Name: name, ID: name, Epoch: f.Epoch})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// latched waits until a drill's latch is on.
func (p pair) latched(t *testing.T) holdover.Fence {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if f, err := p.redis.Fence(t.Context()); err == nil && f.Latched {
			return f
		}
	}
	t.Fatal("no latch after a minute")
	return holdover.Fence{}
}

func patient(c *killswitch.Config) { c.InstanceMaxAge = time.Minute }

func TestDrillIsUndoneAtOnceInEachStage(t *testing.T) {
	for from, to := range map[holdover.Stage]holdover.Stage{
		holdover.StageRedis: holdover.StageRedis, holdover.StageShadow: holdover.StageShadow,
		holdover.StageJoint: holdover.StageShadow, holdover.StageMySQL: holdover.StageShadow,
	} {
		t.Run(from.String(), func(t *testing.T) {
			p := stores(t, from)
			p.follow(t, "one")
			p.follow(t, "two")
			d, err := p.switchOf(t, patient).Drill(t.Context(), "ada", "weekly", 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Acks) != 2 || len(d.Missing) != 0 || len(d.RestoreMissing) != 0 || d.KillTook <= 0 || d.RestoreTook <= 0 || d.Interrupted || d.TakenOver != nil {
				t.Errorf("%+v", d)
			}
			if l := d.Tripped.To; l.Epoch != 5 || l.Stage != to || !l.Latched || !killswitch.IsDrill(l) {
				t.Errorf("the latch was %s", l)
			}
			p.agree(t, to.String()+" at epoch 6 (by ada: drill: weekly)")
		})
	}
	t.Run("mysql-only", func(t *testing.T) {
		p := stores(t, holdover.StageMySQLOnly)
		p.follow(t, "one")
		if _, err := p.switchOf(t, patient).Drill(t.Context(), "ada", "weekly", time.Second); !errors.Is(err, killswitch.ErrRefused) {
			t.Error(err)
		}
	})
	t.Run("nobody alive", func(t *testing.T) {
		p := stores(t, holdover.StageShadow)
		if _, err := p.switchOf(t).Drill(t.Context(), "ada", "weekly", time.Second); !errors.Is(err, killswitch.ErrRefused) {
			t.Error(err)
		}
		p.agree(t, "shadow at epoch 3 (by setup: test)")
	})
}

// An instance that hangs is named, also when it is too old to be waited for by
// the time that the waiting ends; the latch comes off all the same.
func TestDrillNamesWhoHangs(t *testing.T) {
	for name, maxAge := range map[string]time.Duration{"waited for": time.Minute, "aged out meanwhile": 400 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			p := stores(t, holdover.StageMySQL)
			p.follow(t, "one")
			sw := p.switchOf(t, func(c *killswitch.Config) { c.InstanceMaxAge = maxAge })
			p.beat(t, "hangs")
			d, err := sw.Drill(t.Context(), "ada", "weekly", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Missing) != 1 || d.Missing[0].Name != "hangs" || d.Missing[0].Epoch != 3 || len(d.Acks) != 1 {
				t.Errorf("%+v", d)
			}
			p.agree(t, "shadow at epoch 6 (by ada: drill: weekly)")
		})
	}
}

func TestDrillInterruptedRestores(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	p.beat(t, "hangs")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var drilling sync.WaitGroup
	var d killswitch.Drilled
	var err error
	sw := p.switchOf(t, patient)
	drilling.Go(func() { d, err = sw.Drill(ctx, "ada", "weekly", time.Minute) })
	p.latched(t)
	interrupt()
	drilling.Wait()
	if err != nil || !d.Interrupted {
		t.Errorf("%+v %v", d, err)
	}
	p.agree(t, "shadow at epoch 6 (by ada: drill: weekly)")
}

// A kill while a drill's latch is on takes a latch of its own, which the drill
// leaves alone; a second drill does not come in between.
func TestDrillLeavesAKillAlone(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	p.beat(t, "hangs")
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var drilling sync.WaitGroup
	var d killswitch.Drilled
	var err error
	first := p.switchOf(t, patient)
	drilling.Go(func() { d, err = first.Drill(ctx, "ada", "weekly", time.Minute) })
	latch := p.latched(t)

	if _, err := p.switchOf(t, patient).Drill(t.Context(), "ada", "weekly", time.Second); !errors.Is(err, killswitch.ErrRefused) || !strings.Contains(err.Error(), "drill: weekly") {
		t.Errorf("a second drill: %v", err)
	}
	if f, err := p.redis.Fence(t.Context()); err != nil || !f.Latched || f.Epoch != latch.Epoch {
		t.Errorf("the second drill moved the first one's latch: %v %v", f, err)
	}
	killed, kerr := p.switchOf(t).Trip(t.Context(), "bob", "checkout errors")
	if kerr != nil || killed.Already || killed.To.Epoch != latch.Epoch+2 {
		t.Errorf("the kill: %+v %v", killed, kerr)
	}
	if again, err := p.switchOf(t).Trip(t.Context(), "carl", "me too"); err != nil || !again.Already {
		t.Errorf("a second kill: %+v %v", again, err)
	}
	enough()
	drilling.Wait()
	if err != nil || d.TakenOver == nil || d.TakenOver.By != "bob" {
		t.Errorf("%+v %v", d, err)
	}
	p.agree(t, "shadow at epoch 7, latched (by bob: checkout errors)")
}

// Drills and kills at once: whoever was killed last stays killed.
func TestDrillsAndAKillAtOnce(t *testing.T) {
	p := stores(t, holdover.StageShadow)
	p.follow(t, "one")
	var all sync.WaitGroup
	passed := make(chan bool, 3)
	for range 3 {
		sw := p.switchOf(t, patient)
		all.Go(func() {
			d, err := sw.Drill(t.Context(), "ada", "weekly", 30*time.Second)
			if err != nil && !errors.Is(err, killswitch.ErrRefused) {
				t.Error(err)
			}
			passed <- err == nil && d.TakenOver == nil
		})
	}
	all.Wait()
	if f, err := p.redis.Fence(t.Context()); err != nil || f.Latched {
		t.Fatalf("after the drills: %v %v", f, err)
	}
	close(passed)
	through := 0
	for ok := range passed {
		if ok {
			through++
		}
	}
	if through == 0 {
		t.Error("no drill came through")
	}
	for range 3 {
		sw := p.switchOf(t, patient)
		all.Go(func() { _, _ = sw.Drill(t.Context(), "ada", "weekly", 30*time.Second) })
	}
	killer := p.switchOf(t)
	all.Go(func() {
		if _, err := killer.Trip(t.Context(), "bob", "checkout errors"); err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	if f, err := p.redis.Fence(t.Context()); err != nil || !f.Latched || f.By != "bob" {
		t.Errorf("the kill is gone: %v %v", f, err)
	}
}

// A trip that got half way is finished, and then taken off.
func TestDrillTakesOffWhatAFailedTripLeft(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 3), fenceAt(holdover.StageMySQL, 3))
	r.instances = []holdover.Instance{{Name: "one", ID: "1", Epoch: 100}}
	calls := 0
	r.refuse = func([]holdover.Hold) error {
		if calls++; calls <= 2 { // the call and its repetition
			return away(holdover.StoreRedis, true)
		}
		return nil
	}
	_, err := sw.Drill(t.Context(), "ada", "weekly", time.Second)
	if !errors.Is(err, holdover.ErrUnknownOutcome) || !strings.Contains(err.Error(), "was taken off again") {
		t.Error(err)
	}
	if r.fence.Latched || m.fence.Latched || r.fence.Epoch != m.fence.Epoch || r.fence.Epoch <= 3 {
		t.Errorf("redis has %s, mysql has %s", r.fence, m.fence)
	}
}

// A restore that can't be made says that the pod stays latched, and the command.
func TestDrillSaysWhatStaysLatched(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageShadow, 3), fenceAt(holdover.StageShadow, 3))
	r.instances = []holdover.Instance{{Name: "one", ID: "1", Epoch: 100}}
	m.failing = func(int) error { return errors.New("read-only") }
	_, err := sw.Drill(t.Context(), "ada", "weekly", time.Second)
	if err == nil || !strings.Contains(err.Error(), "STAYS LATCHED in shadow") || !strings.Contains(err.Error(), "holdover restore --pod p --reason TEXT") {
		t.Error(err)
	}
	if !r.fence.Latched {
		t.Error("it is not latched")
	}
}

// TestDrillLeavesAKillAloneThatTalksLikeOne: a person's kill is one, whatever its words.
func TestDrillLeavesAKillAloneThatTalksLikeOne(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	p.beat(t, "hangs") // so that the drill waits
	sw := p.switchOf(t, patient)
	done := make(chan killswitch.Drilled, 1)
	go func() {
		d, err := sw.Drill(t.Context(), "ada", "weekly", 2*time.Second)
		if err != nil {
			t.Error(err)
		}
		done <- d
	}()
	p.latched(t)
	tripped, err := sw.Trip(t.Context(), "bob", "drill: went wrong")
	if err != nil || tripped.Already {
		t.Fatalf("the kill: already %t, %v", tripped.Already, err)
	}
	d := <-done
	if d.TakenOver == nil || d.TakenOver.By != "bob" {
		t.Errorf("taken over by %v", d.TakenOver)
	}
	if f, err := p.redis.Fence(t.Context()); err != nil || !f.Latched || f.By != "bob" || f.Reason != "kill: went wrong" {
		t.Errorf("redis is at %v by %s: %s (%v)", f, f.By, f.Reason, err)
	}
}

// TestDrillCountsWhoHungBefore: an instance that fell silent shortly before the
// drill, and did not say goodbye, has not acknowledged it.
func TestDrillCountsWhoHungBefore(t *testing.T) {
	p := stores(t, holdover.StageShadow)
	p.beat(t, "hung")
	p.follow(t, "follows")
	const maxAge = 500 * time.Millisecond
	sw := p.switchOf(t, func(c *killswitch.Config) { c.InstanceMaxAge = maxAge })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // by Redis's clock
		alive, err := p.redis.Instances(t.Context(), maxAge)
		if err != nil || time.Now().After(deadline) {
			t.Fatal(alive, err)
		}
		if len(alive) == 1 && alive[0].Name == "follows" {
			break
		}
	}
	d, err := sw.Drill(t.Context(), "ada", "weekly", 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Missing) != 1 || d.Missing[0].Name != "hung" {
		t.Errorf("missing %v, want the one that hung", d.Missing)
	}
}

// TestDrillOfARedisWithOlderData: Redis comes back, as it was before the drill. The
// drill does not say that somebody else moved the pod: its own latch is in MySQL.
func TestDrillOfARedisWithOlderData(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	p.beat(t, "hangs")
	sw := p.switchOf(t, patient)
	before, err := p.redis.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		d, err := sw.Drill(t.Context(), "ada", "weekly", 2*time.Second)
		if d.TakenOver != nil {
			t.Errorf("taken over by %v", d.TakenOver)
		}
		done <- err
	}()
	latch := p.latched(t)
	if err := errors.Join(p.redis.DropFence(t.Context(), latch.Epoch), p.redis.CompareAndSetFence(t.Context(), 0, before)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, killswitch.ErrRefused) || !strings.Contains(err.Error(), "STAYS LATCHED") || !strings.Contains(err.Error(), "older data") {
		t.Errorf("told %v", err)
	}
}
