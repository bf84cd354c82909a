package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/killswitch"
	"holdover/mysqlpool"
	"holdover/rollout"
)

// drillRig is a pod in a stage with both stores in step, a clean verification and
// one instance that follows.
func drillRig(t *testing.T, stages ...holdover.Stage) (Config, *Stores) {
	t.Helper()
	c := newConfig(t)
	c.Timing.Heartbeat, c.Timing.Call = 10*time.Second, 10*time.Second // the machine may be busy
	s := newStores(t, c)
	fences(t, s, stages...)
	drillFollow(t, s, "one")
	id, err := s.Redis.Identity(t.Context())
	if err == nil {
		err = s.MySQL.RecordVerified(t.Context(), holdover.Verified{Pod: s.Name, Epoch: holdover.Epoch(len(stages)), RedisID: id, Clean: true, Summary: "clean", By: "test"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// drillFollow is an instance that acknowledges each fence, until the test ends.
func drillFollow(t *testing.T, s *Stores, name string) {
	t.Helper()
	drillBeat(t, s, name)
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if f, err := s.Redis.Fence(ctx); err == nil {
				_ = s.Redis.Heartbeat(ctx, holdover.Instance{Name: name, ID: name, Epoch: f.Epoch})
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { stop(); following.Wait() })
}

func drillBeat(t *testing.T, s *Stores, name string) {
	t.Helper()
	f, err := s.Redis.Fence(t.Context())
	if err == nil {
		err = s.Redis.Heartbeat(t.Context(), holdover.Instance{Name: name, ID: name, Epoch: f.Epoch})
	}
	if err != nil {
		t.Fatal(err)
	}
}

var drillStages = []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL}

func drillOptions(wants holdover.Stage) DrillOptions {
	return DrillOptions{By: "ada", Reason: "weekly", Desired: rollout.Desired{Known: true, Stage: wants}, Dwell: 30 * time.Second}
}

func TestDrillInEachStage(t *testing.T) {
	for i, next := range []string{
		"stays in redis, as the flag says", "stays in shadow, as the flag says",
		"shadow -> joint, at the earliest in 30s", "shadow -> joint -> mysql, at the earliest in 1m0s (30s in each stage)",
	} {
		stage := drillStages[i]
		t.Run(stage.String(), func(t *testing.T) {
			_, s := drillRig(t, drillStages[:i+1]...)
			o := drillOptions(stage)
			o.DryRun = true
			would, err := Drill(t.Context(), s, o)
			if real := strings.Contains(would.Would, "kill in earnest"); err != nil || real != (stage > holdover.StageShadow) || !strings.Contains(would.Would, next) {
				t.Errorf("%+v %v", would, err)
			}
			if f, err := s.Redis.Fence(t.Context()); err != nil || f.Epoch != holdover.Epoch(i+1) {
				t.Errorf("a dry run changed the fence: %v %v", f, err)
			}
			d, err := Drill(t.Context(), s, drillOptions(stage))
			if err != nil {
				t.Fatal(err)
			}
			if !d.OK || !d.Restored || !d.Recorded || len(d.Acknowledged) != 1 || d.KillMS <= 0 || d.From.Stage != stage || !strings.Contains(d.Next, next) {
				t.Errorf("%+v", d)
			}
			status := Status(t.Context(), s, drillOptions(stage).Desired)
			last := status.Drilled.Last
			if last == nil || status.Drilled.Passed == nil || !last.OK || last.By != "ada" || last.Reason != "weekly" || last.From != stage || last.Instances != 1 || last.KillMS != int64(d.KillMS+0.5) {
				t.Fatalf("%+v", status.Drilled)
			}
			if status.Agreed.Latched || status.Agreed.Stage != min(stage, holdover.StageShadow) || !strings.HasPrefix(status.Agreed.Reason, killswitch.DrillPrefix) {
				t.Errorf("%s", status.Agreed)
			}
			if n := len(status.Warnings); n == 0 || !strings.Contains(status.Warnings[n-1].Text, "from "+stage.String()) || !strings.Contains(status.Warnings[n-1].Text, "1 instance") {
				t.Errorf("%+v", status.Warnings)
			}
		})
	}
}

// TestDrillIsRefused: while a kill would lose something, and where there is nothing
// to rehearse.
func TestDrillIsRefused(t *testing.T) {
	refused := func(t *testing.T, s *Stores, code string) {
		t.Helper()
		before, err := s.MySQL.Fence(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, dry := range []bool{true, false} {
			o := drillOptions(holdover.StageMySQL)
			o.DryRun = dry
			d, err := Drill(t.Context(), s, o)
			if !errors.Is(err, ErrDrillRefused) || len(d.Reasons) == 0 {
				t.Fatalf("%+v %v", d, err)
			}
			found := false
			for _, why := range d.Reasons {
				found = found || why.Code == code
			}
			if !found {
				t.Errorf("want the reason %s, got %+v", code, d.Reasons)
			}
		}
		if after, err := s.MySQL.Fence(t.Context()); err != nil || after.Epoch != before.Epoch {
			t.Errorf("the fence moved: %v %v", after, err)
		}
		if last, _, err := s.MySQL.LastDrill(t.Context()); err != nil || !last.At.IsZero() {
			t.Errorf("it was recorded: %+v %v", last, err)
		}
	}
	t.Run("a hold that only MySQL knows", func(t *testing.T) {
		_, s := drillRig(t, drillStages...)
		if _, err := s.MySQL.ImportStock(t.Context(), []mysqlpool.StockRow{{Shop: 1, Item: 1, Group: 1, Available: 10}}); err != nil {
			t.Fatal(err)
		}
		request := holdover.Request{Shop: 1, Token: holdover.NewToken(), Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}, TTL: time.Hour}
		if _, err := s.MySQL.Vote(t.Context(), holdover.Ticket{Epoch: 4, Attempt: 1}, request, true); err != nil {
			t.Fatal(err)
		}
		refused(t, s, "unmirrored")
	})
	t.Run("never verified", func(t *testing.T) {
		s := newStores(t, newConfig(t))
		fences(t, s, drillStages...)
		drillFollow(t, s, "one")
		refused(t, s, "never-verified")
	})
	t.Run("latched", func(t *testing.T) {
		_, s := drillRig(t, drillStages...)
		if _, err := s.Switch.Trip(t.Context(), "bob", "checkout errors"); err != nil {
			t.Fatal(err)
		}
		refused(t, s, "latched")
	})
	t.Run("mysql-only", func(t *testing.T) {
		_, s := drillRig(t, append(slices.Clone(drillStages), holdover.StageMySQLOnly)...)
		refused(t, s, "redis-retired")
	})
	t.Run("nobody alive", func(t *testing.T) {
		s := newStores(t, newConfig(t))
		fences(t, s, holdover.StageRedis, holdover.StageShadow)
		refused(t, s, "nobody-alive")
	})
}

// TestDrillFails: an instance that hangs is named, the pod is restored all the
// same, and what is kept says that it did not pass.
func TestDrillFails(t *testing.T) {
	_, s := drillRig(t, drillStages...)
	drillBeat(t, s, "hangs")
	d, err := Drill(t.Context(), s, drillOptions(holdover.StageMySQL))
	if !errors.Is(err, ErrDrillFailed) || !strings.Contains(err.Error(), "hangs (hangs) is at epoch 4") {
		t.Fatalf("%+v %v", d, err)
	}
	if d.OK || !d.Restored || !d.Recorded || len(d.Missing) != 1 || d.To.Latched || d.To.Stage != holdover.StageShadow {
		t.Errorf("%+v", d)
	}
	if f, err := s.Redis.Fence(t.Context()); err != nil || f.Latched {
		t.Errorf("%v %v", f, err)
	}
	last, passed, err := s.MySQL.LastDrill(t.Context())
	if err != nil || last.OK || last.Instances != 2 || !strings.Contains(last.Missing, "hangs") || !passed.At.IsZero() {
		t.Errorf("%+v %+v %v", last, passed, err)
	}
}

// TestDrillInterrupted: Ctrl-C between the trip and the restore.
func TestDrillInterrupted(t *testing.T) {
	_, s := drillRig(t, drillStages...)
	drillBeat(t, s, "hangs")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() { // ends with the latch, or with the test's stores
		for ctx.Err() == nil {
			if f, err := s.Redis.Fence(ctx); err == nil && f.Latched {
				interrupt()
			}
		}
	}()
	d, err := Drill(ctx, s, drillOptions(holdover.StageMySQL))
	if !errors.Is(err, ErrDrillFailed) || !strings.Contains(d.Problem, "interrupted") || !d.Restored || !d.Recorded {
		t.Errorf("%+v %v", d, err)
	}
	if f, err := s.Redis.Fence(t.Context()); err != nil || f.Latched {
		t.Errorf("%v %v", f, err)
	}
}

// TestDrillMaxAge: with a bound each step forward asks for a drill that passed and
// is young enough; the way back never does.
func TestDrillMaxAge(t *testing.T) {
	c, s := drillRig(t, drillStages[:2]...)
	ask := func(maxAge time.Duration) (forward *dualwrite.Reason) {
		t.Helper()
		c.Rollout.DrillMaxAge = maxAge
		bound := newStores(t, c)
		a := bound.Facade.Assess(t.Context())
		for _, why := range a.Back.Reasons {
			if why.Code == dualwrite.CodeDrill {
				t.Errorf("the way back waits for a drill: %+v", why)
			}
		}
		for _, why := range a.Forward.Reasons {
			if why.Code == dualwrite.CodeDrill {
				forward = &why
			}
		}
		return forward
	}
	if why := ask(0); why != nil {
		t.Errorf("without a bound: %+v", why)
	}
	if why := ask(time.Hour); why == nil || !strings.Contains(why.Text, "no drill of the kill switch has passed yet") || why.Do != "holdover drill --pod pod-a --reason TEXT" {
		t.Errorf("never drilled: %+v", why)
	}
	failed := holdover.Drill{By: "ada", Reason: "weekly", From: holdover.StageShadow, Instances: 2, Missing: "two", Problem: "two did not acknowledge"}
	if err := s.MySQL.RecordDrill(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	if why := ask(time.Hour); why == nil || !strings.Contains(why.Text, "failed: two did not acknowledge") {
		t.Errorf("one that failed: %+v", why)
	}
	if _, err := Drill(t.Context(), s, drillOptions(holdover.StageShadow)); err != nil {
		t.Fatal(err)
	}
	if why := ask(time.Hour); why != nil {
		t.Errorf("drilled: %+v", why)
	}
	if why := ask(time.Nanosecond); why == nil || why.Number <= 0 || !strings.Contains(why.Text, "and may be 1ns") {
		t.Errorf("too old: %+v", why)
	}
}

// TestDrillVoidsAGo: a drill gives the pod another epoch, so that a go that was
// signed does not count any more; that is said before, after, and by status.
func TestDrillVoidsAGo(t *testing.T) {
	c, _ := drillRig(t, drillStages[:2]...)
	c.Rollout.RequireSignoff = true
	s := newStores(t, c)
	o := drillOptions(holdover.StageShadow)
	o.DryRun = true
	if would, err := Drill(t.Context(), s, o); err != nil || would.VoidGo != nil || strings.Contains(would.Would, "void") {
		t.Errorf("nobody has signed: %+v %v", would, err)
	}
	err := s.MySQL.SignOff(t.Context(), holdover.SignOff{Pod: s.Name, Stage: holdover.StageShadow, Epoch: 2, Digest: "d", Verdict: "pass", Decision: mysqlpool.DecisionGo, As: "eve", Note: "n", From: time.Now().Add(-time.Hour), To: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	would, err := Drill(t.Context(), s, o)
	if err != nil || would.VoidGo == nil || would.VoidGo.As != "eve" || would.VoidGo.Epoch != 2 || !strings.Contains(would.Would, "the go of eve for shadow at epoch 2 (signed at ") || !strings.Contains(would.Would, "would be void by the drill") {
		t.Errorf("%+v %v", would, err)
	}
	d, err := Drill(t.Context(), s, drillOptions(holdover.StageShadow))
	if err != nil || d.VoidGo == nil || !strings.Contains(d.Next, "the go of eve for shadow at epoch 2") || !strings.Contains(d.Next, "sign again") {
		t.Errorf("%+v %v", d, err)
	}
	forward := Status(t.Context(), s, o.Desired).Readiness.Forward
	i := slices.IndexFunc(forward.Reasons, func(r httpapi.Reason) bool { return r.Code == codeNoSignoff })
	if i < 0 || !strings.Contains(forward.Reasons[i].Text, "the go of eve is about shadow at epoch 2 and void: the drill of ada at ") {
		t.Errorf("%+v", forward.Reasons)
	}
}
