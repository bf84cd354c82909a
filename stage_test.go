package holdover_test

import (
	"errors"
	"slices"
	"testing"

	"holdover"
)

func TestToward(t *testing.T) {
	const (
		none   = holdover.StageUnknown
		redis  = holdover.StageRedis
		shadow = holdover.StageShadow
		joint  = holdover.StageJoint
		mysql  = holdover.StageMySQL
		only   = holdover.StageMySQLOnly
	)
	for _, c := range []struct{ from, desired, want holdover.Stage }{
		{redis, redis, redis}, {redis, shadow, shadow}, {redis, joint, shadow}, {redis, mysql, shadow}, {redis, only, shadow},
		{shadow, redis, redis}, {shadow, shadow, shadow}, {shadow, joint, joint}, {shadow, mysql, joint}, {shadow, only, joint},
		{joint, redis, shadow}, {joint, shadow, shadow}, {joint, joint, joint}, {joint, mysql, mysql}, {joint, only, mysql},
		{mysql, redis, joint}, {mysql, shadow, joint}, {mysql, joint, joint}, {mysql, mysql, mysql}, {mysql, only, only},
		{only, redis, mysql}, {only, shadow, mysql}, {only, joint, mysql}, {only, mysql, mysql}, {only, only, only},
		{none, mysql, none}, {mysql, none, mysql}, {none, none, none},
	} {
		if got := c.from.Toward(c.desired); got != c.want {
			t.Errorf("%s.Toward(%s) = %s, want %s", c.from, c.desired, got, c.want)
		}
	}
}

// Neighbouring stages share a deciding store: that is what makes a step safe.
func TestNeighboursShareATruth(t *testing.T) {
	deciding := map[holdover.Stage][]holdover.Store{
		holdover.StageRedis:     {holdover.StoreRedis},
		holdover.StageShadow:    {holdover.StoreRedis},
		holdover.StageJoint:     {holdover.StoreRedis, holdover.StoreMySQL},
		holdover.StageMySQL:     {holdover.StoreMySQL},
		holdover.StageMySQLOnly: {holdover.StoreMySQL},
	}
	stages := holdover.Stages()
	if len(stages) != len(deciding) || !slices.IsSorted(stages) {
		t.Fatalf("the stages are %v", stages)
	}
	for i, stage := range stages {
		if !slices.Contains(deciding[stage], stage.Truth()) {
			t.Errorf("the truth in %s is %s, which does not decide there", stage, stage.Truth())
		}
		if i == 0 {
			continue
		}
		shared := slices.ContainsFunc(deciding[stage], func(s holdover.Store) bool { return slices.Contains(deciding[stages[i-1]], s) })
		if !shared {
			t.Errorf("%s and %s share no deciding store", stages[i-1], stage)
		}
	}
}

func TestDual(t *testing.T) {
	for _, stage := range holdover.Stages() {
		want := stage != holdover.StageRedis && stage != holdover.StageMySQLOnly
		if stage.Dual() != want {
			t.Errorf("%s.Dual() = %v", stage, stage.Dual())
		}
	}
	if holdover.StageUnknown.Dual() {
		t.Error("the unknown stage writes both stores")
	}
}

func TestParseStage(t *testing.T) {
	for _, stage := range holdover.Stages() {
		if got, err := holdover.ParseStage(stage.String()); err != nil || got != stage {
			t.Errorf("ParseStage(%q) = %s, %v", stage, got, err)
		}
	}
	for _, name := range []string{"", "unknown", "Redis", "mysql ", "stage(9)", "mysqlonly"} {
		if got, err := holdover.ParseStage(name); !errors.Is(err, holdover.ErrInvalid) || got != holdover.StageUnknown {
			t.Errorf("ParseStage(%q) = %s, %v; want it refused", name, got, err)
		}
	}
	if got := holdover.Stage(200).String(); got != "stage(200)" {
		t.Errorf("a stage that this build does not know is called %q", got)
	}
}
