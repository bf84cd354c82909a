package dualwrite_test

import (
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// Redis ended it and MySQL never heard, in joint and in mysql, where Redis decides
// ends too: MySQL's own reaper finds it after its time, and nobody is told.
func TestBrokenLostEndAfterShadow(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			deaf := new(atomic.Bool)
			r, rec := observed(t, stage, 5, func(c *dualwrite.Config) {
				c.MySQL, c.ReaperGrace = deafMySQL{c.MySQL, holdover.StateReleased, deaf}, 300*time.Millisecond
			})
			q := r.one()
			q.TTL = 200 * time.Millisecond
			wantOK(t, "reserve", reserveOn(r.f, q))
			rec.last(t, q.Token, 1)
			deaf.Store(true)
			wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
			rec.last(t, q.Token, 2)
			deaf.Store(false)
			eventually(t, "MySQL's reaper finds it", func() bool {
				if err := r.f.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				return r.mysqlState(t, q.Token) != "held"
			})
			time.Sleep(300 * time.Millisecond)
			told := false
			for _, o := range rec.of(q.Token) {
				t.Logf("%s %s/%s %v %s; mysql %s", o.Op, o.Redis.Outcome, o.MySQL.Outcome, o.Evidence, o.MySQL.Err, r.mysqlState(t, q.Token))
				told = told || o.Redis.Outcome != o.MySQL.Outcome
			}
			if !told {
				t.Error("mysql kept the units of a released hold to its expiry, and every observation of it is a match")
			}
		})
	}
}
