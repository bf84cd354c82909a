package app

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/rollout"
)

// dump is all that Redis has, and back makes Redis what it was at a dump.
func (r *repairRig) dump(t *testing.T) map[string]string {
	t.Helper()
	keys, err := r.raw.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, key := range keys {
		all[key] = r.raw.Dump(t.Context(), key).Val()
	}
	return all
}

func (r *repairRig) back(t *testing.T, dump map[string]string) {
	t.Helper()
	err := r.raw.FlushDB(t.Context()).Err()
	for key, value := range dump {
		err = errors.Join(err, r.raw.Restore(t.Context(), key, 0, value).Err())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// latch is a kill that Redis has followed, as far as MySQL knows.
func (r *repairRig) latch(t *testing.T) {
	t.Helper()
	killed, err := r.Switch.Trip(t.Context(), "ada", "checkout errors")
	if err == nil {
		err = r.MySQL.NoteFollowed(t.Context(), killed.To.Epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.epoch = killed.To.Epoch
}

// refusesLost wants it named everywhere, and nothing changed; code is status' word.
func (r *repairRig) refusesLost(t *testing.T, name, code string) {
	t.Helper()
	before := r.image(t)
	if v, err := VerifyFor(t.Context(), r.cfg, r.Stores, VerifyOptions{}); !errors.Is(err, ErrRedisLost) || v.Clean || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "Bring back its own data") {
		t.Errorf("verify: clean %t, %v", v.Clean, err)
	}
	for _, dry := range []bool{true, false} {
		done, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "a test", DryRun: dry, Counters: true})
		if !errors.Is(err, ErrRedisLost) || done.Clean || done.Rebuild != "" || len(done.Repairs) > 0 || !strings.Contains(err.Error(), "--from-mysql") {
			t.Errorf("repair, dry %t: %+v %v", dry, done, err)
		}
	}
	if last, _, err := r.MySQL.LastVerified(t.Context()); err != nil || last.Clean || !strings.Contains(last.Summary, name) {
		t.Errorf("recorded: %+v %v", last, err)
	}
	if r.image(t) != before {
		t.Error("something was changed")
	}
	if code == "" {
		return
	}
	status := Status(t.Context(), r.Stores, rollout.Desired{Known: true, Stage: holdover.StageShadow})
	for _, verdict := range []httpapi.Verdict{status.Readiness.Forward, status.Readiness.Kill} {
		if !slices.ContainsFunc(verdict.Reasons, func(r httpapi.Reason) bool { return r.Code == code && strings.Contains(r.Do, "its own data") }) {
			t.Errorf("readiness says %+v, want %s", verdict, code)
		}
	}
	if !strings.Contains(status.Next, "nobody can reserve") || !strings.Contains(status.Next, "AOF, RDB or a replica") || !strings.Contains(status.Next, "--from-mysql") {
		t.Errorf("next: %s", status.Next)
	}
}

// TestRedisThatDecidesAndLostData: it comes back older than its fence, empty, or with
// the fence and without its last holds. It is never clean and nothing is repaired,
// latched or not, until it is what it was, or is given up.
func TestRedisThatDecidesAndLostData(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint} {
		for _, latched := range []bool{true, false} {
			name := stage.String()
			if latched {
				name += ", latched"
			}
			t.Run(name, func(t *testing.T) {
				r := newRepairRig(t, stage)
				stores := []holdover.Store{inRedis, inMySQL}
				if stage == holdover.StageRedis {
					stores = stores[:1]
				}
				kept := r.hold(t, 1, 2, stores...)
				older := r.dump(t)
				if latched {
					r.latch(t)
				} else {
					f := holdover.Fence{Pod: r.Name, Epoch: r.epoch + 1, Stage: stage, By: "ada", Reason: "restored"}
					if err := r.Redis.CompareAndSetFence(t.Context(), r.epoch, f); err != nil {
						t.Fatal(err)
					}
					if _, err := r.MySQL.RaiseFence(t.Context(), f); err != nil {
						t.Fatal(err)
					}
				}
				r.hold(t, 2, 3, stores...)
				own := r.dump(t)

				r.back(t, older)
				r.refusesLost(t, "older data", "redis-has-older-data")
				r.back(t, nil)
				r.refusesLost(t, "lost its data", "redis-lost-its-data")

				r.back(t, own)
				if v, err := VerifyFor(t.Context(), r.cfg, r.Stores, VerifyOptions{}); err != nil || (!v.Clean && stage != holdover.StageRedis) {
					t.Errorf("with its own data: %s %v", v.Summary(), err)
				}

				r.back(t, older)
				done, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "it is gone", FromMySQL: true})
				if err != nil || done.Rebuilt == nil || !done.Clean || !strings.Contains(done.Rebuild, "lost are") {
					t.Fatalf("given up: %+v %v", done, err)
				}
				f, err := r.Redis.Fence(t.Context())
				m, merr := r.MySQL.Fence(t.Context())
				if err != nil || merr != nil || f.Epoch != m.Epoch || f.Stage != m.Stage || f.Latched != latched {
					t.Errorf("redis is at %s, mysql at %s: %v %v", f, m, err, merr)
				}
				r.sums(t)
				there := r.raw.Exists(t.Context(), "hold:"+kept.Token.String()).Val()
				if want := int64(len(stores) - 1); there != want {
					t.Errorf("%d of the copied hold, want %d", there, want)
				}
			})
		}
	}
}

// TestRedisForgotHolds: it was restarted with the agreed fence, and without a hold
// that it had granted since. A leftover of MySQL in a Redis that was not restarted
// is repaired as ever.
func TestRedisForgotHolds(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	r.latch(t) // shadow: Redis decides
	id, err := r.Redis.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cleanOf := func(id string) {
		t.Helper()
		if err := r.MySQL.RecordVerified(t.Context(), holdover.Verified{Pod: r.Name, Epoch: r.epoch, RedisID: id, Clean: true, Summary: "clean", By: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	cleanOf(id)
	r.hold(t, 1, 1, inMySQL)
	if done := r.repair(t, false, false); !done.Clean || len(done.Repairs) != 1 {
		t.Errorf("the same Redis: %+v", done)
	}

	older := r.dump(t)
	told := r.hold(t, 2, 3, inRedis, inMySQL)
	r.back(t, older)
	cleanOf("the process before")
	r.refusesLost(t, "does not know 1 or more holds", "")

	cleanOf("the process before")
	done, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "it is gone", FromMySQL: true})
	if err != nil || !done.Clean || len(done.Repairs) != 1 || done.Repairs[0].Outcome != compare.RepairDone {
		t.Fatalf("given up: %+v %v", done, err)
	}
	r.sums(t)
	if state := r.raw.HGet(t.Context(), "hold:"+told.Token.String(), "state").Val(); state != "held" {
		t.Errorf("a hold that a buyer has is %q", state)
	}
	if again := r.repair(t, false, false); !again.Clean {
		t.Errorf("once given up: %+v", again)
	}
}

// TestDrillLatchIsToldFromAKill: whose it is, whether it goes by itself, and the one
// command when its drill has died.
func TestDrillLatchIsToldFromAKill(t *testing.T) {
	const pod = "pod-a"
	latch := holdover.Fence{Pod: pod, Epoch: 4, Stage: holdover.StageShadow, Latched: true, By: "ada", Reason: "drill: weekly", At: time.Now()}
	look := func(a dualwrite.Assessment) (dualwrite.Reason, dualwrite.Reason) {
		tellDrill(pod, &a)
		if len(a.Warnings) != 1 {
			t.Fatalf("%+v", a.Warnings)
		}
		return a.Warnings[0], a.Back.Reasons[0]
	}
	for age, want := range map[time.Duration][2]string{
		3 * time.Second: {"a drill by ada is under way since ", "wait: it takes its latch off itself"},
		5 * time.Minute: {"the latch is left over from a drill by ada of ", "holdover restore --pod pod-a --reason TEXT"},
	} {
		a := dualwrite.Assessment{Survey: dualwrite.Survey{Agreed: latch, At: latch.At.Add(age)}, Back: dualwrite.Readiness{Reasons: []dualwrite.Reason{{Code: "latched", Text: "the kill switch is latched", Do: "restore"}}}}
		warning, back := look(a)
		if !strings.Contains(warning.Text, want[0]) || !strings.Contains(warning.Text, "weekly") || !strings.Contains(warning.Text, age.String()) || !strings.HasPrefix(warning.Do, want[1]) {
			t.Errorf("%s: %+v", age, warning)
		}
		if back.Code != "latched" || back.Text != warning.Text || back.Do != warning.Do {
			t.Errorf("%s: readiness says %+v", age, back)
		}
	}
	latch.Reason = "checkout errors"
	a := dualwrite.Assessment{Survey: dualwrite.Survey{Agreed: latch, At: latch.At.Add(time.Hour)}}
	if tellDrill(pod, &a); len(a.Warnings) != 0 {
		t.Errorf("a kill's latch: %+v", a.Warnings)
	}
}
