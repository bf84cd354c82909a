package dualwrite_test

import (
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// A grant that MySQL could not place leaves MySQL with more than Redis has. A
// later refusal by Redis alone has that for its evidence, whichever instance saw
// the grant; and no longer when the hold is over.
func TestDebtExplainsALaterRefusal(t *testing.T) {
	r, _ := observed(t, holdover.StageShadow, 1)
	r.load(t, r.shop, map[[2]int64]int64{{5, 1}: 3, {5, 2}: 0})
	debt := request(r.shop, holdover.NewToken(), holdover.Line{Item: 5, Group: 2, Quantity: 2})
	wantOK(t, "redis sees the sum", reserveOn(r.f, debt))
	eventually(t, "it is a debt", func() bool {
		_, owed, err := r.mysql.Levels(t.Context(), r.shop, []int64{4, 5})
		return err == nil && len(owed) == 1 && owed[5] == 2
	})

	seen := new(recorder)
	other := r.another(t, func(c *dualwrite.Config) {
		c.Observe, c.RecheckEvery, c.RecheckTries, c.LaneLag = seen.observe, 5*time.Millisecond, 10_000, 50*time.Millisecond
	})
	late := request(r.shop, holdover.NewToken(), holdover.Line{Item: 5, Group: 1, Quantity: 2})
	wantErr(t, "one is left in redis", reserveOn(other, late), holdover.ErrOutOfStock)
	o := seen.last(t, late.Token, 1)
	if o.Redis.Outcome != denied || o.MySQL.Outcome != granted || len(o.Evidence) != 1 || o.Evidence[0] != holdover.EvidenceOtherLocations {
		t.Fatalf("redis %s, mysql %s, evidence %v", o.Redis.Outcome, o.MySQL.Outcome, o.Evidence)
	}
	if s := o.Proof.Sides; len(s) != 1 || s[0].Redis != 1 || s[0].Owed != 2 {
		t.Errorf("proof %+v", o.Proof)
	}

	wantOK(t, "release", releaseOn(r.f, r.shop, debt.Token))
	eventually(t, "nothing is owed", func() bool {
		_, owed, err := r.mysql.Levels(t.Context(), r.shop, []int64{5})
		return err == nil && len(owed) == 0
	})
	wantOK(t, "reserve", reserveOn(other, request(r.shop, holdover.NewToken(), holdover.Line{Item: 5, Group: 1, Quantity: 3})))
}

// A debt lasts as long as its hold in Redis: an extension is an extension of it.
func TestDebtLastsAsLongAsItsHold(t *testing.T) {
	r, rec := observed(t, holdover.StageShadow, 1, still)
	r.load(t, r.shop, map[[2]int64]int64{{5, 1}: 3, {5, 2}: 0})
	q := request(r.shop, holdover.NewToken(), holdover.Line{Item: 5, Group: 2, Quantity: 1})
	q.TTL = 5 * time.Minute
	wantOK(t, "reserve", reserveOn(r.f, q))
	rec.last(t, q.Token, 1)
	owed := func() int64 {
		_, m, err := r.mysql.Levels(t.Context(), r.shop, []int64{5})
		if err != nil {
			t.Fatal(err)
		}
		return m[5]
	}
	if owed() != 1 {
		t.Fatal("no debt")
	}
	_, err := r.f.Extend(t.Context(), r.shop, q.Token, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the debt lasts as long as the hold", func() bool {
		return r.count(t, "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), expires_at) FROM holdover_debts WHERE token = ?", q.Token[:]) > 1800
	})
}
