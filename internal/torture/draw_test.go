package torture

import (
	"slices"
	"testing"

	"holdover"
	"holdover/internal/mutants"
)

// The same seed draws the same schedule, in any order and any process.
func TestDrawFollowsFromTheSeed(t *testing.T) {
	const first = `schedule 5388655572385189: from mysql, 2000 ms of traffic, a short history
    859 ms  fault lock-wait for 1250 ms
   1018 ms  kill, through an operator
   1672 ms  restore, through an operator
`
	for range 3 {
		if got := Draw(seedOf(1, 0), "").String(); got != first {
			t.Errorf("drew\n%swant\n%s", got, first)
		}
		_ = Draw(seedOf(2, 7), "")
	}
	if seedOf(1, 0) == seedOf(1, 1) || seedOf(1, 0) == seedOf(2, 0) {
		t.Error("two schedules have one seed")
	}
}

// A campaign meets every fault and every step, in every stage, one fault at a
// time; and what is outside of the promises only where it is judged as such.
func TestDrawMeetsEverything(t *testing.T) {
	faults, steps, stages := map[Fault]int{}, map[string]int{}, map[holdover.Stage]int{}
	for n := range 1000 {
		s := Draw(seedOf(1, n), "")
		stages[s.Start]++
		count := 0
		for _, a := range s.Actions {
			if a.Fault != "" {
				faults[a.Fault]++
				count++
				if a.Fault == LoseRedis && s.Start != holdover.StageMySQL {
					t.Errorf("%s loses the truth", s)
				}
				if wire := a.Store != holdover.StoreNone; wire != slices.Contains([]Fault{Cut, CutOnce, Slow, HalfOpen, LostReplies, LostReply, LateRequests}, a.Fault) {
					t.Errorf("%s: a fault of a connection has a store, and only such a one", s)
				}
			} else {
				steps[a.Do]++
			}
		}
		if count != 1 {
			t.Errorf("%s has %d faults", s, count)
		}
		if !slices.IsSortedFunc(s.Actions, func(a, b Action) int { return int(a.At - b.At) }) {
			t.Errorf("%s is not in order", s)
		}
	}
	for _, f := range []Fault{KillInstance, PauseInstance, KillMySQL, PauseMySQL, KillRedis, PauseRedis, LoseRedis, Cut, CutOnce, Slow, HalfOpen,
		LostReplies, LostReply, LateRequests, LockWait, Connections, ReadOnly, ClientPause, FlagGone} {
		if faults[f] < 5 {
			t.Errorf("%s was drawn %d times of 1000", f, faults[f])
		}
	}
	for _, do := range []string{doKill, doRestore, doFlag} {
		if steps[do] < 100 {
			t.Errorf("%s was drawn %d times of 1000", do, steps[do])
		}
	}
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		if stages[stage] < 50 {
			t.Errorf("%s is the beginning of %d of 1000", stage, stages[stage])
		}
	}
}

func TestEveryMutantHasAnAim(t *testing.T) {
	if len(aims) != len(mutants.Names())+2 { // and aimRebuild, aimRetire
		t.Errorf("%d aims for %d mutants", len(aims), len(mutants.Names()))
	}
	for _, name := range mutants.Names() {
		if aims[name] == nil {
			t.Errorf("nothing is aimed at %s", name)
		} else if len(Draw(1, name).Actions) == 0 {
			t.Errorf("the aim at %s does nothing", name)
		}
	}
}
