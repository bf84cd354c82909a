package mysqlpool

import (
	"testing"
	"time"

	"holdover"
)

func TestRecordDrill(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if last, passed, err := f.LastDrill(ctx); err != nil || !last.At.IsZero() || !passed.At.IsZero() {
		t.Fatalf("none yet: %+v, %+v, %v", last, passed, err)
	}
	good := holdover.Drill{By: "ada", Reason: "weekly", From: holdover.StageMySQL, Epoch: 6, KillMS: 65, RestoreMS: 41, Instances: 3, OK: true,
		At: time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)}
	bad := holdover.Drill{By: "bob", Reason: "again", From: holdover.StageShadow, Epoch: 9, KillMS: 2000, Instances: 3, Missing: "checkout-2", Problem: "checkout-2 did not acknowledge"}
	for _, d := range []holdover.Drill{bad, good, bad} {
		if err := f.RecordDrill(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	last, passed, err := f.LastDrill(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if passed.At.IsZero() || passed.At.Equal(good.At) || last.At.Before(passed.At) {
		t.Errorf("the times are not the server's: %s, %s", last.At, passed.At)
	}
	for _, c := range []struct{ got, want holdover.Drill }{{last, bad}, {passed, good}} {
		c.want.Pod, c.want.At = "pod-test", c.got.At
		if c.got != c.want {
			t.Errorf("got %+v, want %+v", c.got, c.want)
		}
	}
}
