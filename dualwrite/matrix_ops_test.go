package dualwrite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// units is how an item stands.
type units struct {
	held, sold int64
	stock      int64 // what adjustments have added to what was loaded
}

// told is what a caller was told.
type told struct {
	err               error
	hold              holdover.Hold
	pending, replayed bool
	changed           int64 // by an adjustment
}

func (o told) String() string {
	return fmt.Sprintf("%s, pending %t, replayed %t, changed %d, error %v", o.hold.State, o.pending, o.replayed, o.changed, o.err)
}

func tell(res holdover.Result, err error) told {
	return told{err: err, hold: res.Hold, pending: res.Pending, replayed: res.Replayed}
}

// matrixOp is an operation on item 1, from a state that is settled.
type matrixOp struct {
	name string
	// calls are what it asks of the stores in redis, shadow, joint, mysql and
	// mysql-only: on the buyer's path, and after "|" when he has been answered.
	calls [5]string
	// needs are the stores (R, M) without which the buyer may go without an
	// answer, in the same stages.
	needs         [5]string
	load          [2]int64 // units at locations 1 and 2
	blind         [2]int64 // instead, where Redis decides alone: it takes location 1, whatever is there
	prepare       func(*testing.T, *world)
	do            func(context.Context, *world, *dualwrite.Facade) told
	yes           func(told) bool // an answer that says it is done
	before, after units           // without it, and with it
	halfway       []units         // besides, when nobody knows how far it came
	mayRefuse     bool            // if a store that it needs gives no answer: a unit is there only once what is due has ended
	late          bool            // it may work under the late token
	adjusts       bool            // it is an adjustment
	no            error           // it is refused, always
	takes         bool            // it takes units for the buyer who is told, and for nobody else
	ends          bool            // the token's hold has ended with it
	mute          bool            // nobody is told anything
}

// matrixOps is every operation.
func matrixOps() []matrixOp {
	const r, m, rm, none = "R", "M", "RM", ""
	held := func(o told) bool { return o.err == nil && o.hold.State == holdover.StateHeld }
	reserve := func(ctx context.Context, w *world, f *dualwrite.Facade) told {
		return tell(f.Reserve(ctx, request(w.shop, w.token, line(1, 1))))
	}
	claim := func(ctx context.Context, w *world, f *dualwrite.Facade) told {
		return tell(f.Claim(ctx, w.shop, w.token))
	}
	claimed := func(o told) bool {
		return o.err == nil && (o.pending && o.hold.State == holdover.StateClaiming || o.hold.State == holdover.StateClaimed)
	}
	mine := func(t *testing.T, w *world) { w.hold(t, w.token, 1) }
	due := func(t *testing.T, w *world) { // somebody else's, and its time has passed
		w.others = []holdover.Token{holdover.NewToken()}
		w.hold(t, w.others[0], 1)
		w.later(t, 2*time.Hour)
	}
	adjust := func(by int64) func(context.Context, *world, *dualwrite.Facade) told {
		return func(ctx context.Context, w *world, f *dualwrite.Facade) told {
			done, err := f.Adjust(ctx, holdover.Adjustment{Token: w.token, Shop: w.shop, Item: 1, Group: 1, Delta: by, Reason: "test", By: "ada"})
			return told{err: err, changed: done.Changed, replayed: done.Replayed}
		}
	}
	return []matrixOp{
		{
			name:  "reserve",
			calls: [5]string{"R.Vote", "R.Vote | M.Apply", "R.Vote M.Vote", "M.Vote R.Copy", "M.Vote"},
			needs: [5]string{r, r, rm, m, m},
			load:  [2]int64{2, 0}, after: units{held: 1}, do: reserve, yes: held, takes: true,
		},
		{
			name:  "reserve again",
			calls: [5]string{"R.Vote", "R.Vote | M.Apply", "R.Vote M.Vote", "M.Vote R.Copy", "M.Vote"},
			needs: [5]string{r, r, rm, m, m},
			load:  [2]int64{2, 0}, before: units{held: 1}, after: units{held: 1}, prepare: mine, do: reserve,
			yes: func(o told) bool { return held(o) && o.replayed },
		},
		{
			name:  "reserve too many",
			calls: [5]string{"R.Vote R.Look", "R.Vote R.Look | M.Probe", "R.Vote R.Look | M.Probe", "M.Vote M.Due M.Probe | R.Counters", "M.Vote M.Due M.Probe"},
			needs: [5]string{r, r, rm, m, m},
			load:  [2]int64{1, 0}, before: units{held: 1}, after: units{held: 1}, no: holdover.ErrOutOfStock, do: reserve,
			prepare: func(t *testing.T, w *world) {
				w.others = []holdover.Token{holdover.NewToken()}
				w.hold(t, w.others[0], 1)
			},
		},
		{
			name: "reserve what is due",
			calls: [5]string{
				"R.Vote R.Look R.End R.Vote",
				"R.Vote R.Look R.End R.Vote | M.Apply M.Apply",
				"R.Vote R.Look M.Journal R.End M.Apply R.Vote M.Vote",
				"M.Vote M.Due R.End M.Apply M.Vote R.Copy",
				"M.Vote M.Due M.End M.Vote",
			},
			needs: [5]string{r, r, rm, m, m},
			load:  [2]int64{1, 0}, after: units{held: 1}, prepare: due, do: reserve, yes: held, mayRefuse: true, takes: true,
		},
		{
			name: "reserve anywhere", // one of two locations, and the first has none
			calls: [5]string{
				"R.Vote",
				"R.Vote | M.Apply",
				"M.Probe R.Vote M.Vote",
				"M.Vote M.Due M.Probe M.Probe M.Vote R.Copy",
				"M.Vote M.Due M.Probe M.Probe M.Vote",
			},
			needs: [5]string{r, r, rm, m, m},
			load:  [2]int64{0, 2}, blind: [2]int64{2, 0}, after: units{held: 1}, yes: held, takes: true,
			do: func(ctx context.Context, w *world, f *dualwrite.Facade) told {
				q := request(w.shop, w.token)
				q.Choices = []holdover.Choice{{Item: 1, Groups: []int64{1, 2}, Quantity: 1}}
				return tell(f.Reserve(ctx, q))
			},
		},
		{
			name: "claim",
			calls: [5]string{
				"R.Mark M.Apply | R.Apply",
				"R.Mark M.Apply | R.Apply",
				"R.Mark M.Apply | R.Apply",
				"R.Mark M.Apply | R.Apply",
				"M.Claim",
			},
			needs: [5]string{r, r, r, none, m},
			load:  [2]int64{2, 0}, before: units{held: 1}, after: units{sold: 1}, prepare: mine, do: claim, yes: claimed, ends: true,
		},
		{
			name: "claim a part", // one unit of three
			calls: [5]string{
				"R.Mark M.Apply | R.Apply",
				"R.Mark M.Apply | R.Apply",
				"R.Mark M.Apply | R.Apply",
				"R.Mark M.Apply | R.Apply",
				"M.Claim",
			},
			needs: [5]string{r, r, r, none, m},
			load:  [2]int64{4, 0}, before: units{held: 3}, after: units{sold: 1}, yes: claimed, ends: true,
			prepare: func(t *testing.T, w *world) { w.hold(t, w.token, 3) },
			do: func(ctx context.Context, w *world, f *dualwrite.Facade) told {
				return tell(f.Claim(ctx, w.shop, w.token, line(1, 1)))
			},
		},
		{
			name: "claim late", // it has expired, and its unit is there
			calls: [5]string{
				"R.Mark R.Lookup R.Lookup R.Vote R.Mark M.Apply | R.Apply",
				"R.Mark R.Lookup R.Lookup R.Vote R.Mark M.Apply | M.Apply R.Apply",
				"R.Mark R.Lookup R.Lookup R.Vote M.Vote R.Mark M.Apply | R.Apply",
				"R.Mark M.Lookup M.Lookup M.Vote R.Copy R.Mark M.Apply | R.Apply",
				"M.Claim M.Lookup M.Lookup M.Vote M.Claim",
			},
			needs: [5]string{r, r, rm, m, m},
			load:  [2]int64{2, 0}, after: units{sold: 1}, halfway: []units{{held: 1}}, do: claim, yes: claimed, ends: true, late: true,
			prepare: func(t *testing.T, w *world) {
				w.hold(t, w.token, 1)
				w.later(t, 2*time.Hour)
				w.settle(t, true)
			},
		},
		{
			name: "release",
			calls: [5]string{
				"R.End",
				"R.End | M.Apply",
				"R.End M.Apply",
				"R.End M.Apply",
				"M.End",
			},
			needs: [5]string{r, r, r, none, m},
			load:  [2]int64{2, 0}, before: units{held: 1}, prepare: mine, ends: true,
			do: func(ctx context.Context, w *world, f *dualwrite.Facade) told {
				return tell(f.Release(ctx, w.shop, w.token))
			},
			yes: func(o told) bool { return o.err == nil && o.hold.State == holdover.StateReleased },
		},
		{
			name: "extend",
			calls: [5]string{
				"R.Extend R.Vote",
				"R.Extend R.Vote | M.Apply",
				"R.Extend M.Apply R.Vote",
				"R.Extend M.Apply",
				"M.Extend",
			},
			needs: [5]string{r, r, rm, m, m},
			load:  [2]int64{2, 0}, before: units{held: 1}, after: units{held: 1}, prepare: mine,
			do: func(ctx context.Context, w *world, f *dualwrite.Facade) told {
				return tell(f.Extend(ctx, w.shop, w.token, 3*time.Hour))
			},
			yes: func(o told) bool { return held(o) && time.Until(o.hold.ExpiresAt) > 150*time.Minute },
		},
		{
			name: "expire", // by the sweep
			calls: [5]string{
				"R.Due R.End R.Marked",
				"R.Due R.End M.Due R.Marked | M.Apply",
				"R.Due M.Journal R.End M.Apply M.Due R.Marked",
				"M.Due R.End M.Apply R.Due R.Marked",
				"M.Due M.End",
			},
			load: [2]int64{2, 0}, before: units{held: 1}, prepare: due, mute: true,
			do: func(ctx context.Context, w *world, f *dualwrite.Facade) told { return told{err: f.SweepOnce(ctx)} },
		},
		{
			name: "add stock",
			calls: [5]string{
				"M.AdjustmentOf M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.AdjustmentOf M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.AdjustmentOf M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.AdjustmentOf M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.Adjust",
			},
			needs: [5]string{m, m, m, m, m},
			load:  [2]int64{2, 0}, after: units{stock: 3}, adjusts: true, do: adjust(3), yes: func(o told) bool { return o.err == nil && o.changed == 3 },
		},
		{
			name: "take stock away",
			calls: [5]string{
				"M.AdjustmentOf M.Probe R.LowerFor M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.AdjustmentOf M.Probe R.LowerFor M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.AdjustmentOf M.Probe R.LowerFor M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.AdjustmentOf M.Probe R.LowerFor M.Adjust R.SettleAdjustment M.AdjustmentSettled",
				"M.Adjust",
			},
			needs: [5]string{rm, rm, rm, rm, m},
			load:  [2]int64{2, 0}, after: units{stock: -1}, adjusts: true, do: adjust(-1), yes: func(o told) bool { return o.err == nil && o.changed == -1 },
		},
	}
}
