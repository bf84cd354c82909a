package legacyredis_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
	"holdover/legacyredis"
)

// TestLook: a refusal stands only when nothing of its items is due and the units
// are not there, at one moment and under the epoch.
func TestLook(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 0, item2: 5})
	held := func(of int64, ago time.Duration) holdover.Token {
		h := fact(holdover.NewToken(), holdover.StateHeld, line(of, 1))
		h.ExpiresAt = time.UnixMilli(r.redisNow()).Add(-ago)
		must[holdover.Hold](t)(r.Apply(ctx, h))
		return h.Token
	}
	held(item, -time.Hour)
	held(item2, time.Hour) // of an item that nobody asks for
	must[int](t)(r.Load(ctx, shop, map[int64]int64{item: 1}, true))
	q := request(holdover.NewToken(), line(item, 2))

	_, err := r.Look(ctx, 0, q, 10)
	var short *holdover.OutOfStockError
	if want := []holdover.Shortage{{Item: item, Group: group, Want: 2, Left: 1}}; !errors.As(err, &short) || !slices.Equal(short.Short, want) {
		t.Errorf("nothing due, one unit of two: %v, want %v", err, want)
	}
	must[int](t)(r.Load(ctx, shop, map[int64]int64{item: 2}, true))
	if due, err := r.Look(ctx, 0, q, 10); err != nil || len(due) != 0 {
		t.Errorf("the units are there: %v, %v, want neither a refusal nor a hold", due, err)
	}
	must[int](t)(r.Load(ctx, shop, map[int64]int64{item: 0}, true))
	minute, second := held(item, time.Minute), held(item, time.Second)
	r.unchanged("a look", func() {
		due := must[[]holdover.Hold](t)(r.Look(ctx, 0, q, 10))
		if len(due) != 2 || due[0].Token != minute || due[1].Token != second {
			t.Errorf("due are %+v, want %s and %s", due, minute, second)
		}
	})
	if due := must[[]holdover.Hold](t)(r.Look(ctx, 0, q, 1)); len(due) != 1 || due[0].Token != minute {
		t.Errorf("due are %+v, want the oldest alone", due)
	}
	r.setFence(8, holdover.StageRedis)
	_, err = r.Look(ctx, 7, q, 10)
	wantErr(t, "a look under an old epoch", err, holdover.ErrStale)
}

// BenchmarkSoldOut is 64 buyers that are refused an item. "look" is how a Path and
// a facade in stage redis refuse; "list and vote again" is what the look replaced.
func BenchmarkSoldOut(b *testing.B) {
	addr, db := teststack.FreshRedis(b)
	store, err := legacyredis.Open(b.Context(), legacyredis.Config{Pod: podA, Addr: addr, DB: db, OpTimeout: 10 * time.Second, TripTimeout: 20 * time.Second, GiveBackWindow: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Load(b.Context(), shop, map[int64]int64{item: 0}, true); err != nil {
		b.Fatal(err)
	}
	vote := func(q holdover.Request) error {
		_, err := store.Vote(b.Context(), holdover.Ticket{}, q)
		return err
	}
	for _, way := range []struct {
		name   string
		refuse func(holdover.Request) error
	}{
		{"list and vote again", func(q holdover.Request) error {
			_ = vote(q)
			if _, err := store.Due(b.Context(), 0, q.Shop, []int64{item}, 100); err != nil {
				return err
			}
			return vote(q)
		}},
		{"look", func(q holdover.Request) error {
			_ = vote(q)
			_, err := store.Look(b.Context(), 0, q, 100)
			return err
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetParallelism(32) // 64 callers on two processors
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := way.refuse(request(holdover.NewToken(), line(item, 1))); !errors.Is(err, holdover.ErrOutOfStock) {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refusals/s")
		})
	}
}
