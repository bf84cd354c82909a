package legacyredis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdover"
)

// transitions is exec() and fact() of the protocol's model as a table: a row
// per step, a column per state of the hold. A cell is the state afterwards,
// slash, the units missing from the counter (a hold has 3), and the error if
// there is one. A tilde is a tentative hold of attempt 1, a plus one of attempt
// 2; "held" is firm. "due" is firm and past its expiry; "tomb" is the end record
// of a hold that Redis never knew. A "part" is one unit of the three: its mark has
// given two back.
const transitions = `
step          none           held~           held           due           claiming           claimed           released          expired          tomb             claiming-part      claimed-part
vote-1        held~/3        held~/3         held/3         due/3         claiming/3         claimed/3!claimed released/0!ended  expired/0!ended  released/0!ended claiming/1         claimed/1!claimed
vote-2        held+/3        held/3          held/3         due/3         claiming/3         claimed/3!claimed released/0!ended  expired/0!ended  released/0!ended claiming/1         claimed/1!claimed
vote-other    held+/4        held~/3!reused  held/3!reused  due/3!reused  claiming/3!reused  claimed/3!reused  released/0!reused expired/0!reused released/0!ended claiming/1!reused  claimed/1!reused
copy          held/3         held/3          held/3         held/3        claiming/3         claimed/3!claimed released/0!ended  expired/0!ended  released/0!ended claiming/1         claimed/1!claimed
mark          none/0!unknown claiming/3      claiming/3     claiming/3    claiming/3         claimed/3         released/0!ended  expired/0!ended  released/0!ended claiming/1!reused  claimed/1!reused
mark-part     none/0!unknown claiming/1      claiming/1     claiming/1    claiming/3!reused  claimed/3!reused  released/0!ended  expired/0!ended  released/0!ended claiming/1         claimed/1
mark-more     none/0!unknown held~/3!invalid held/3!invalid due/3!invalid claiming/3!invalid claimed/3!invalid released/0!ended  expired/0!ended  released/0!ended claiming/1!invalid claimed/1!invalid
extend        none/0!unknown held~/3         held/3         held/3        claiming/3!pending claimed/3!claimed released/0!ended  expired/0!ended  released/0!ended claiming/1!pending claimed/1!claimed
release       released/0     released/0      released/0     released/0    claiming/3!pending claimed/3!claimed released/0        expired/0        released/0       claiming/1!pending claimed/1!claimed
expire        expired/0      held~/3         held/3         expired/0     claiming/3!pending claimed/3!claimed released/0        expired/0        released/0       claiming/1!pending claimed/1!claimed
fact-held     held/3         held/3          held/3         held/3        claiming/3         claimed/3         released/0        expired/0        released/0       claiming/1         claimed/1
fact-claimed  claimed/3      claimed/3       claimed/3      claimed/3     claimed/3          claimed/3         claimed/3         claimed/3        claimed/3        claimed/3          claimed/3
fact-part     claimed/1      claimed/1       claimed/1      claimed/1     claimed/1          claimed/1         claimed/1         claimed/1        claimed/1        claimed/1          claimed/1
fact-released released/0     released/0      released/0     released/0    released/0         claimed/3         released/0        expired/0        released/0       released/0         claimed/1
fact-expired  expired/0      expired/0       expired/0      expired/0     expired/0          claimed/3         released/0        expired/0        released/0       expired/0          claimed/1
fact-tomb     released/0     released/0      released/0     released/0    released/0         claimed/3         released/0        expired/0        released/0       released/0         claimed/1
give-back-1   none/0         none/0          held/3         due/3         claiming/3         claimed/3         released/0        expired/0        released/0       claiming/1         claimed/1
give-back-2   none/0         held~/3         held/3         due/3         claiming/3         claimed/3         released/0        expired/0        released/0       claiming/1         claimed/1
give-back-0   none/0         held~/3         held/3         due/3         claiming/3         claimed/3         released/0        expired/0        released/0       claiming/1         claimed/1
look-up       none/0         held~/3         held/3         due/3         claiming/3         claimed/3         released/0        expired/0        released/0       claiming/1         claimed/1
`

const (
	stockOfTable = 10
	tableEpoch   = 5
)

var errorCodes = map[string]error{
	"claimed": holdover.ErrAlreadyClaimed, "ended": holdover.ErrEnded, "reused": holdover.ErrTokenReused,
	"unknown": holdover.ErrUnknownHold, "pending": holdover.ErrClaimPending, "invalid": holdover.ErrInvalid,
}

// deciding are the steps that carry an epoch.
var deciding = []string{"vote-1", "vote-2", "vote-other", "copy", "mark", "mark-part", "extend", "release", "expire"}

// prepare brings the token into a state.
func (r *rig) prepare(token holdover.Token, state string, epoch holdover.Epoch) {
	r.t.Helper()
	ctx := r.t.Context()
	vote := func() {
		_, err := r.Vote(ctx, holdover.Ticket{Epoch: epoch, Attempt: 1}, request(token, line(item, 3)))
		if err != nil {
			r.t.Fatal(err)
		}
	}
	apply := func(s holdover.State, change func(*holdover.Hold)) {
		h := fact(token, s, line(item, 3))
		if change != nil {
			change(&h)
		}
		if _, err := r.Apply(ctx, h); err != nil {
			r.t.Fatal(err)
		}
	}
	switch state {
	case "none":
	case "held~":
		vote()
	case "held":
		apply(holdover.StateHeld, nil)
	case "due":
		apply(holdover.StateHeld, func(h *holdover.Hold) { h.ExpiresAt = time.UnixMilli(1) })
	case "claiming":
		vote()
		if _, err := r.Mark(ctx, epoch, 0, token, nil); err != nil {
			r.t.Fatal(err)
		}
	case "claiming-part":
		vote()
		if _, err := r.Mark(ctx, epoch, 0, token, []holdover.Line{line(item, 1)}); err != nil {
			r.t.Fatal(err)
		}
	case "claimed":
		apply(holdover.StateClaimed, nil)
	case "claimed-part":
		apply(holdover.StateClaimed, func(h *holdover.Hold) { h.Claimed = []holdover.Line{line(item, 1)} })
	case "released", "expired":
		vote()
		how := must[holdover.State](r.t)(holdover.ParseState(state))
		apply(how, nil)
	case "tomb":
		apply(holdover.StateReleased, func(h *holdover.Hold) { h.Lines, h.Shop = nil, 0 })
	default:
		r.t.Fatalf("no way to prepare %q", state)
	}
}

// take runs one step of the table.
func (r *rig) take(token holdover.Token, step string, epoch holdover.Epoch) error {
	r.t.Helper()
	ctx := r.t.Context()
	three := line(item, 3)
	switch step {
	case "vote-1", "vote-2":
		_, err := r.Vote(ctx, holdover.Ticket{Epoch: epoch, Attempt: holdover.Attempt(step[5] - '0')}, request(token, three))
		return err
	case "vote-other":
		_, err := r.Vote(ctx, holdover.Ticket{Epoch: epoch, Attempt: 2}, request(token, line(item, 4)))
		return err
	case "copy":
		_, err := r.Copy(ctx, epoch, fact(token, holdover.StateHeld, three))
		return err
	case "mark":
		_, err := r.Mark(ctx, epoch, 0, token, nil)
		return err
	case "mark-part", "mark-more":
		part := line(item, 1)
		if step == "mark-more" {
			part.Quantity = 4
		}
		_, err := r.Mark(ctx, epoch, 0, token, []holdover.Line{part})
		return err
	case "extend":
		_, err := r.Extend(ctx, epoch, 0, token, time.Minute, 100*365*24*time.Hour)
		return err
	case "fact-part":
		h := fact(token, holdover.StateClaimed, three)
		h.Claimed = []holdover.Line{line(item, 1)}
		_, err := r.Apply(ctx, h)
		return err
	case "release":
		_, err := r.End(ctx, epoch, 0, token, holdover.StateReleased)
		return err
	case "expire":
		_, err := r.End(ctx, epoch, 0, token, holdover.StateExpired)
		return err
	case "fact-held", "fact-claimed", "fact-released", "fact-expired":
		_, err := r.Apply(ctx, fact(token, must[holdover.State](r.t)(holdover.ParseState(step[5:])), three))
		return err
	case "fact-tomb":
		_, err := r.Apply(ctx, holdover.Hold{Token: token, State: holdover.StateReleased})
		return err
	case "give-back-0", "give-back-1", "give-back-2":
		_, err := r.GiveBack(ctx, token, holdover.Attempt(step[10]-'0'))
		return err
	case "look-up":
		_, err := r.Lookup(ctx, token)
		return err
	default:
		r.t.Fatalf("no step %q", step)
		return nil
	}
}

// cell describes a token as the table does.
func (r *rig) cell(token holdover.Token, stock int64) string {
	r.t.Helper()
	h := must[holdover.Hold](r.t)(r.Lookup(r.t.Context(), token))
	state := h.State.String()
	switch {
	case h.State == holdover.StateHeld && !h.Firm && h.Attempt == 1:
		state += "~"
	case h.State == holdover.StateHeld && !h.Firm && h.Attempt == 2:
		state += "+"
	case h.State == holdover.StateHeld && !h.ExpiresAt.After(time.UnixMilli(r.redisNow())):
		state = "due"
	}
	return fmt.Sprintf("%s/%d", state, stock-r.counter(item))
}

// indexed says in which index of live holds the token is.
func (r *rig) indexed(token holdover.Token) string {
	r.t.Helper()
	var found []string
	for _, index := range []string{"holds", "claiming"} {
		if r.raw.ZScore(r.t.Context(), index, token.String()).Err() == nil {
			found = append(found, index)
		}
	}
	return strings.Join(found, "+")
}

func eachTransition(t *testing.T, visit func(step, from, cell string)) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(transitions), "\n")
	states := strings.Fields(lines[0])
	for _, text := range lines[1:] {
		cells := strings.Fields(text)
		if len(cells) != len(states) {
			t.Fatalf("row %s has %d cells, want %d", cells[0], len(cells), len(states))
		}
		for i := 1; i < len(cells); i++ {
			visit(cells[0], states[i], cells[i])
		}
	}
}

// Every step in every state, and once more: a repeated step changes nothing.
func TestTransitions(t *testing.T) {
	r := newRig(t)
	r.setFence(tableEpoch, holdover.StageJoint)
	eachTransition(t, func(step, from, cell string) {
		t.Run(step+" on "+from, func(t *testing.T) {
			r.t = t
			must[int](t)(r.Load(t.Context(), shop, map[int64]int64{item: stockOfTable}, true))
			token := holdover.NewToken()
			r.prepare(token, from, tableEpoch)
			want, code, fails := strings.Cut(cell, "!")
			for _, time := range []string{"first", "repeated"} {
				err := r.take(token, step, tableEpoch)
				switch {
				case time == "repeated" && strings.HasPrefix(step, "vote-other") && from == "none":
				case !fails && err != nil:
					t.Errorf("%s: %v", time, err)
				case fails && !errors.Is(err, errorCodes[code]):
					t.Errorf("%s: error is %v, want %v", time, err, errorCodes[code])
				}
				if got := r.cell(token, stockOfTable); got != want {
					t.Errorf("%s: %s, want %s", time, got, want)
				}
			}
			state, _, _ := strings.Cut(want, "/")
			index := map[string]string{"held~": "holds", "held+": "holds", "held": "holds", "due": "holds", "claiming": "claiming"}[state]
			if got := r.indexed(token); got != index {
				t.Errorf("it is in index %q, want %q", got, index)
			}
			r.raw.FlushDB(t.Context())
			r.setFence(tableEpoch, holdover.StageJoint)
		})
	})
}

// Pitfall 37 and rule 1: another epoch is refused by every deciding step in
// every state, with the fence that is there, and nothing is written. Facts,
// give-backs and look-ups carry no epoch.
func TestStaleEpochRefused(t *testing.T) {
	for name, asked := range map[string]holdover.Epoch{"older": tableEpoch - 1, "newer": tableEpoch + 1} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setFence(tableEpoch, holdover.StageMySQL)
			r.load(map[int64]int64{item: 100})
			for _, from := range []string{"none", "held~", "held", "due", "claiming", "claimed", "released", "expired", "tomb", "claiming-part", "claimed-part"} {
				for _, step := range deciding {
					token := holdover.NewToken()
					r.prepare(token, from, tableEpoch)
					r.unchanged(step+" on "+from, func() {
						err := r.take(token, step, asked)
						var stale *holdover.StaleError
						if !errors.As(err, &stale) {
							t.Fatalf("%s on %s: error is %v, want stale", step, from, err)
						}
						if stale.Asked != asked || stale.Fence.Epoch != tableEpoch || stale.Fence.Stage != holdover.StageMySQL || stale.Store != holdover.StoreRedis {
							t.Errorf("%s on %s: %+v does not say what is there", step, from, stale)
						}
					})
				}
				must[int](t)(r.Load(t.Context(), shop, map[int64]int64{item: 100}, true))
			}
		})
	}
}

// Data loss: without a fence every deciding step is refused, and afterwards
// with a fence the missing counter is "not loaded", never zero.
func TestDataLossIsNamed(t *testing.T) {
	r := newRig(t)
	r.setFence(tableEpoch, holdover.StageShadow)
	r.load(map[int64]int64{item: 10})
	token := holdover.NewToken()
	r.prepare(token, "held~", tableEpoch)

	if err := r.raw.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.unchanged("steps after the loss", func() {
		for _, step := range deciding {
			wantErr(t, step+" without a fence", r.take(token, step, tableEpoch), holdover.ErrNoFence)
		}
		_, err := r.Fence(t.Context())
		wantErr(t, "reading the fence", err, holdover.ErrNoFence)
		_, err = r.RaiseFence(t.Context(), holdover.Fence{Epoch: 9, Stage: holdover.StageShadow})
		wantErr(t, "raising the fence", err, holdover.ErrNoFence)
	})

	r.setFence(tableEpoch, holdover.StageShadow)
	r.unchanged("steps without a counter", func() {
		for _, step := range []string{"vote-1", "copy", "fact-held", "fact-claimed"} {
			err := r.take(token, step, tableEpoch)
			wantErr(t, step+" without a counter", err, holdover.ErrNotLoaded)
			if err != nil && !strings.Contains(err.Error(), itoa(item)) {
				t.Errorf("%s: %q does not name the item", step, err)
			}
		}
		_, err := r.Counters(t.Context(), shop, []int64{item})
		wantErr(t, "reading the counter", err, holdover.ErrNotLoaded)
	})
}
