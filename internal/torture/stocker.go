package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"holdover"
	"holdover/internal/httpapi"
)

// stocker changes the stock of one item while buyers buy it: it brings units and
// takes units away, by token, at any instance, and asks again with the same token
// until it is answered, as buyers do. The item has so much that nobody is ever
// refused for it: who was rightly refused is judged by the other items, and here
// that each change was made exactly once, in both stores.
type stocker struct {
	w     *world
	front shopFront
	seed  uint64
	trail *trail

	changed map[int64]int64 // by location: what was answered
	owed    []httpapi.AdjustmentRequest
	wrong   []string
}

// restocks says whether somebody changes stock in the schedule, and of which item.
func (f shopFront) restocks(s Schedule) (item int64, is bool) {
	return f.items[len(f.items)-1], !s.Linear && s.Stock == mixedStock
}

// run changes stock for the schedule's time.
func (k *stocker) run(ctx context.Context, s Schedule) {
	item, is := k.front.restocks(s)
	if !is {
		return
	}
	rng := rand.New(rand.NewPCG(k.seed, 0x73746f636b6572))
	changing, stop := context.WithTimeout(ctx, s.Lasts)
	defer stop()
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Lasts+finishTime)
	defer cancel()
	for wait(changing, between(rng, 60, 240)) {
		delta := 1 + rng.Int64N(5)
		if rng.IntN(2) == 0 {
			delta = -delta
		}
		r := httpapi.AdjustmentRequest{
			Token: holdover.NewToken().String(), ItemID: item, GroupID: 1 + rng.Int64N(k.front.groups), Delta: &delta,
			By: "torture", Reason: "a schedule",
		}
		if !k.persist(finishing, rng, r, maxTries) {
			k.owed = append(k.owed, r)
		}
	}
}

// settle asks for what was not answered, now that nothing is in the way.
func (k *stocker) settle(ctx context.Context) {
	rng := rand.New(rand.NewPCG(k.seed, 1))
	for _, r := range k.owed {
		if !k.persist(ctx, rng, r, maxTries) && ctx.Err() == nil {
			k.wrong = append(k.wrong, fmt.Sprintf("adjustment %s of item %d is not answered by a pod that is quiet", r.Token, r.ItemID))
		}
	}
}

// persist makes a change, and now and then asks for it once more. It says whether
// it was answered.
func (k *stocker) persist(ctx context.Context, rng *rand.Rand, r httpapi.AdjustmentRequest, tries int) bool {
	for try := range tries {
		units, clear, err := k.one(ctx, rng, r)
		if !clear {
			k.trail.note("adjustment %s by %+d: %v", r.Token, *r.Delta, err)
			if !wait(ctx, time.Duration(10+rng.IntN(30*(try+1)))*time.Millisecond) {
				return false
			}
			continue
		}
		k.trail.note("adjustment %s by %+d: %+d units, %v", r.Token, *r.Delta, units, err)
		k.changed[r.GroupID] += units
		if rng.IntN(3) == 0 {
			if again, clear, _ := k.one(ctx, rng, r); clear && again != units {
				k.wrong = append(k.wrong, fmt.Sprintf("adjustment %s of item %d was told to change %d units, and then %d", r.Token, r.ItemID, units, again))
			}
		}
		return true
	}
	return false
}

// one asks one instance. An answer that is a refusal is clear, and changed nothing.
func (k *stocker) one(ctx context.Context, rng *rand.Rand, r httpapi.AdjustmentRequest) (units int64, clear bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	raw, err := k.w.instances[rng.IntN(len(k.w.instances))].operator().Adjust(ctx, k.front.shop, r)
	if err != nil {
		return 0, false, err // the stock never runs out: a refusal would be wrong, and settle tells it
	}
	var done struct {
		Changed int64 `json:"changed"`
	}
	err = json.Unmarshal(raw, &done)
	return done.Changed, err == nil, err
}

// after is the shop with its stock as it was changed, on a pod that is quiet.
func (k *stocker) after(ctx context.Context, s Schedule, found *Found) shopFront {
	k.settle(ctx)
	for _, text := range k.wrong {
		found.DoubleClaims++
		found.say("%s", text)
	}
	f := k.front
	item, _ := f.restocks(s)
	f.stock = append([]holdover.Stock(nil), f.stock...)
	for i := range f.stock {
		if f.stock[i].Item == item {
			f.stock[i].Available += k.changed[f.stock[i].Group]
		}
	}
	return f
}
