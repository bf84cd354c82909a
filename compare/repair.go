package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"holdover"
)

// RedisRepair is what Repair reads and changes in the pod's Redis.
type RedisRepair interface {
	RedisState
	// Fence is the pod's, as Redis has it.
	Fence(ctx context.Context) (holdover.Fence, error)
	// Apply carries a fact; see dualwrite's stores.
	Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error)
	// ApplyAt is Apply under the epoch: *StaleError in another one.
	ApplyAt(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Hold, error)
	// Vote asks for a grant under the epoch.
	Vote(ctx context.Context, t holdover.Ticket, r holdover.Request) (holdover.Grant, error)
	// Drop removes a held hold that is still as given, and gives its units back,
	// under the epoch.
	Drop(ctx context.Context, e holdover.Epoch, h holdover.Hold) (bool, error)
	// ShiftCounter moves a counter that is still at from, or makes a missing one,
	// under the epoch.
	ShiftCounter(ctx context.Context, e holdover.Epoch, shop, item int64, missing bool, from, units int64) (bool, error)
}

// MySQLRepair is what Repair reads and changes in the pod's MySQL.
type MySQLRepair interface {
	MySQLState
	// Fence is the pod's, as MySQL has it.
	Fence(ctx context.Context) (holdover.Fence, error)
	// Apply carries a fact; see dualwrite's stores.
	Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error)
}

// RepairConfig says what may be repaired. Zero fields mean the default.
type RepairConfig struct {
	// Verify is how the differences were found; Pod is required.
	Verify VerifyConfig
	// Fence is what is agreed: its stage says which store is right, and a repair
	// ends when the pod has left its epoch. Required.
	Fence holdover.Fence
	// DryRun plans and changes nothing.
	DryRun bool
	// Counters lets counters be set where Redis decides: somebody else may have
	// sold the units that are missing there. In mysql they are set without it.
	Counters bool
	// Audit is told of each repair before it is made, and the function that it
	// returns of how it ended. A repair that can't be recorded is not made.
	Audit func(ctx context.Context, r Repaired) (ended func(ctx context.Context, outcome string) error, err error)
}

// Repaired is one difference and what was done about it, or would be.
type Repaired struct {
	Kind  DifferenceKind `json:"kind"`
	Token string         `json:"token,omitempty"`
	Shop  int64          `json:"shop_id,omitempty"`
	Item  int64          `json:"item_id,omitempty"`
	Group int64          `json:"group_id,omitempty"`
	// Store is the one that is changed, Action what is done there; none when the
	// difference is left as it is.
	Store  holdover.Store `json:"store"`
	Action string         `json:"action,omitempty"`
	Before string         `json:"before"`
	After  string         `json:"after,omitempty"` // what it becomes
	// Outcome is "would", "done", "left" or "failed", and why.
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

// The outcomes.
const (
	RepairWould  = "would"
	RepairDone   = "done"
	RepairLeft   = "left"
	RepairFailed = "failed"
)

// Subject names what is repaired: the token, or shop and item.
func (r Repaired) Subject() string {
	switch {
	case r.Token != "":
		return "hold " + r.Token
	case r.Group != 0:
		return fmt.Sprintf("shop %d, item %d at group %d", r.Shop, r.Item, r.Group)
	default:
		return fmt.Sprintf("shop %d, item %d", r.Shop, r.Item)
	}
}

func (r Repaired) String() string {
	text := fmt.Sprintf("%s: %s: %s", r.Outcome, r.Kind, r.Subject())
	if r.Action != "" {
		text += fmt.Sprintf(": %s in %s: %s -> %s", r.Action, r.Store, r.Before, r.After)
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// Repair brings the store that follows to where the deciding one is, for each
// difference that v found to stand still, and that is still there: holds by
// token, then counters. Buyers go on; every step is one that the stores repeat
// safely. What is not repaired is in the answer too, with why. An error means
// that a store stopped answering, or, with holdover.ErrStale, that the pod moved to
// another epoch, where another store may be right: what was done is in the answer.
func Repair(ctx context.Context, redis RedisRepair, mysql MySQLRepair, v Verification, cfg RepairConfig) ([]Repaired, error) {
	checked, err := cfg.Verify.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Fence.Stage == holdover.StageUnknown || cfg.Fence.Epoch == 0 {
		return nil, &holdover.InvalidError{Field: "repair fence", Value: cfg.Fence.String(), Problem: "names no stage and epoch"}
	}
	checked.Truth = cfg.Fence.Stage.Truth()
	r := &repairer{cfg: cfg, redis: redis, mysql: mysql, truth: checked.Truth, v: newVerifier(redis, mysql, checked), mended: map[itemKey]bool{}}
	r.v.pace.rows = true
	if err := errors.Join(r.current(ctx), r.v.readLag(ctx)); err != nil {
		return nil, fmt.Errorf("repair pod %s: %w", checked.Pod, err)
	}
	all := v.all
	if all == nil {
		all = v.Differences
	}
	counters := map[itemKey]Difference{}
	for _, d := range all { // counters are looked at as if these were repaired
		if token, err := holdover.ParseToken(d.Token); err == nil {
			r.v.holds[token] = &holdLooks{}
		}
	}
	for _, d := range all {
		switch d.Kind {
		case DiffCounter, DiffCounterMissing:
			counters[itemKey{d.Shop, d.Item}] = d
			continue
		case DiffLedgerMissing, DiffConservation, DiffJournal, DiffLines:
			r.left(d, leftAlone[d.Kind])
			continue
		}
		if err := r.hold(ctx, d); err != nil {
			return r.done, fmt.Errorf("repair pod %s: %w", checked.Pod, err)
		}
	}
	if err := r.counters(ctx, counters); err != nil {
		return r.done, fmt.Errorf("repair pod %s: %w", checked.Pod, err)
	}
	return r.done, nil
}

// leftAlone says what to do about differences that no repair by token can mend.
var leftAlone = map[DifferenceKind]string{
	DiffLedgerMissing: "import the item's stock, or wait until its holds end",
	DiffConservation:  "MySQL's own sums are wrong: see `holdover verify --store mysql`",
	DiffJournal:       "the instances carry it over: see what their logs say",
	DiffLines:         "one token stands for two carts: both end by their time to live, or by hand",
}

type repairer struct {
	cfg    RepairConfig
	redis  RedisRepair
	mysql  MySQLRepair
	truth  holdover.Store
	v      *verifier
	done   []Repaired
	mended map[itemKey]bool // items of holds that were repaired
}

func (r *repairer) left(d Difference, why string) {
	r.done = append(r.done, Repaired{Kind: d.Kind, Token: d.Token, Shop: d.Shop, Item: d.Item, Group: d.Group, Before: before(d), Outcome: RepairLeft, Why: why})
}

func before(d Difference) string { return fmt.Sprintf("%s in redis, %s in mysql", d.Redis, d.MySQL) }

// plan is one step in one store; without do the difference is left.
type plan struct {
	store         holdover.Store
	action, after string
	do            func(context.Context) error
	left          string
}

// hold looks at both sides anew and repairs what is still as it was found.
func (r *repairer) hold(ctx context.Context, d Difference) error {
	token, err := holdover.ParseToken(d.Token)
	if err != nil {
		return err
	}
	inRedis, err := r.v.lookup(ctx, "redis", r.redis.Lookup, token)
	if err != nil {
		return err
	}
	inMySQL, err := r.v.lookup(ctx, "mysql", r.mysql.Lookup, token)
	if err != nil {
		return err
	}
	inRedis.Token, inMySQL.Token = token, token
	kind, text := r.v.judge(inRedis, inMySQL)
	if kind != d.Kind || r.v.lag.has(token) {
		r.left(d, "it has changed since it was found")
		return nil
	}
	if r.cfg.Fence.Stage == holdover.StageRedis {
		r.left(d, "in redis MySQL is left alone, and gets its holds anew in shadow")
		return nil
	}
	err = r.carryOut(ctx, holdDifference(kind, text, inRedis, inMySQL), r.plan(kind, inRedis, inMySQL))
	for _, h := range []holdover.Hold{inRedis, inMySQL} {
		for _, l := range h.Lines {
			r.mended[itemKey{h.Shop, l.Item}] = true
		}
	}
	return err
}

func (r *repairer) plan(kind DifferenceKind, inRedis, inMySQL holdover.Hold) plan {
	switch kind {
	case DiffOnlyInRedis, DiffPreDual:
		return r.planOnlyInRedis(inRedis, inMySQL)
	case DiffOnlyInMySQL:
		return r.planOnlyInMySQL(inRedis, inMySQL)
	case DiffNotFirm:
		return r.toMySQL("confirm the hold", inRedis, holdover.StateHeld)
	case DiffExpiry:
		if inRedis.ExpiresAt.After(inMySQL.ExpiresAt) {
			return r.toMySQL("extend to "+inRedis.ExpiresAt.Format(time.RFC3339), inRedis, holdover.StateHeld)
		}
		return r.toRedis("extend to "+inMySQL.ExpiresAt.Format(time.RFC3339), inMySQL)
	default: // ended differently
		if inMySQL.State == holdover.StateClaimed {
			return r.toRedis("claim, as the ledger has it", inMySQL)
		}
		return plan{left: "redis says claimed, and the ledger has no entry for it: look at the buyer's order"}
	}
}

func (r *repairer) planOnlyInRedis(inRedis, inMySQL holdover.Hold) plan {
	switch {
	case inMySQL.State == holdover.StateClaimed, inMySQL.State.Ended() && (inRedis.State == holdover.StateClaiming || r.truth == holdover.StoreMySQL):
		return r.toRedis("end as mysql did", inMySQL)
	case inMySQL.State.Ended():
		return plan{left: "mysql has ended it, and gives a token that ended no units again: it leaves redis when its time is over, at " + inRedis.ExpiresAt.Format(time.RFC3339)}
	case inRedis.State == holdover.StateClaiming:
		return plan{store: holdover.StoreMySQL, action: "roll the marked claim forward", after: "claimed", do: func(ctx context.Context) error {
			fact := inRedis
			fact.State = holdover.StateClaimed
			known, err := r.mysql.Apply(ctx, fact)
			if err != nil {
				return err
			}
			if len(known.Lines) == 0 {
				known.Shop, known.Lines, known.Claimed = inRedis.Shop, inRedis.Lines, inRedis.Claimed
			}
			_, err = r.redis.Apply(ctx, known) // the ledger was written: a fact in any epoch
			return err
		}}
	case r.truth == holdover.StoreRedis && !inRedis.Firm:
		return plan{left: "nobody may have been told of it yet"}
	case r.truth == holdover.StoreRedis:
		return r.toMySQL("grant what redis has granted", inRedis, holdover.StateHeld)
	case inRedis.Firm && inRedis.ExpiresAt.After(time.Now()):
		// A buyer may have been told, and MySQL have lost it: it is asked for the units.
		return r.toMySQL("honour a hold that only redis knows", inRedis, holdover.StateHeld)
	}
	return plan{store: holdover.StoreRedis, action: "drop a hold that mysql does not know", after: "unknown", do: func(ctx context.Context) error {
		if done, err := r.redis.Drop(ctx, r.cfg.Fence.Epoch, inRedis); err != nil || !done {
			return errors.Join(err, unless(done || err != nil, errMoved))
		}
		// Its buyer may have asked again in this moment, and MySQL granted it anew: a
		// fact, also when a kill came since.
		now, err := r.mysql.Lookup(ctx, inRedis.Token)
		if err != nil || now.State != holdover.StateHeld {
			return err
		}
		_, err = r.redis.Apply(ctx, now)
		return err
	}}
}

func (r *repairer) planOnlyInMySQL(inRedis, inMySQL holdover.Hold) plan {
	switch {
	case inRedis.State.Ended():
		return r.toMySQL("end as redis did", inRedis, inRedis.State)
	case !inMySQL.Firm:
		return plan{left: "nobody may have been told of it yet"}
	case r.truth == holdover.StoreMySQL:
		return r.toRedis("copy the hold", inMySQL)
	case !inMySQL.ExpiresAt.After(time.Now()):
		return plan{left: "its time is over: it ends by itself"}
	}
	return plan{store: holdover.StoreRedis, action: "ask for the units of a hold that only mysql knows", after: "held", do: func(ctx context.Context) error {
		_, err := r.redis.Vote(ctx, holdover.Ticket{Epoch: r.cfg.Fence.Epoch, Attempt: holdover.Attempt(rand.Uint64() | 1)},
			holdover.Request{Shop: inMySQL.Shop, Token: inMySQL.Token, Lines: inMySQL.Lines, TTL: max(time.Until(inMySQL.ExpiresAt), time.Second)})
		if err != nil {
			return err
		}
		_, err = r.redis.ApplyAt(ctx, r.cfg.Fence.Epoch, inMySQL)
		return err
	}}
}

// toMySQL carries what a buyer was told by Redis: a fact, in whatever stage it gets
// there.
func (r *repairer) toMySQL(action string, h holdover.Hold, state holdover.State) plan {
	h.State, h.Firm = state, true
	return plan{store: holdover.StoreMySQL, action: action, after: state.String(), do: func(ctx context.Context) error {
		_, err := r.mysql.Apply(ctx, h)
		return err
	}}
}

// toRedis carries what MySQL has, under the epoch in which that is what counts.
func (r *repairer) toRedis(action string, h holdover.Hold) plan {
	return plan{store: holdover.StoreRedis, action: action, after: h.State.String(), do: func(ctx context.Context) error {
		_, err := r.redis.ApplyAt(ctx, r.cfg.Fence.Epoch, h)
		return err
	}}
}

// errMoved: the store had changed by the time of the step, which did nothing.
var errMoved = errors.New("it moved meanwhile: nothing was changed")

func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// current is nil while both stores are at the epoch that is repaired for.
func (r *repairer) current(ctx context.Context) error {
	for _, read := range []func(context.Context) (holdover.Fence, error){r.mysql.Fence, r.redis.Fence} {
		var now holdover.Fence
		err := r.v.call(ctx, "read the fence", func(ctx context.Context) (err error) {
			now, err = read(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if now.Epoch != r.cfg.Fence.Epoch {
			return r.moved(now)
		}
	}
	return nil
}

func (r *repairer) moved(now holdover.Fence) error {
	if now.Epoch < r.cfg.Fence.Epoch {
		return fmt.Errorf("a store is still at %s, and the pod at %s: repair when it has followed: %w", now, r.cfg.Fence, holdover.ErrStale)
	}
	return fmt.Errorf("the pod moved to %s, and this repair was for %s: run it again: %w", now, r.cfg.Fence, holdover.ErrStale)
}

// carryOut records and makes one repair. A refusal of the store is an outcome; a
// store that gives no answer, or a pod that has moved, is an error.
func (r *repairer) carryOut(ctx context.Context, d Difference, p plan) error {
	if p.do == nil {
		r.left(d, p.left)
		return nil
	}
	out := Repaired{Kind: d.Kind, Token: d.Token, Shop: d.Shop, Item: d.Item, Group: d.Group, Store: p.store, Action: p.action, Before: before(d), After: p.after}
	if r.cfg.DryRun {
		out.Outcome = RepairWould
		r.done = append(r.done, out)
		return nil
	}
	ended := func(context.Context, string) error { return nil }
	if r.cfg.Audit != nil {
		var err error
		if ended, err = r.cfg.Audit(ctx, out); err != nil {
			return fmt.Errorf("%s is not repaired, since it can't be recorded: %w", out.Subject(), err)
		}
	}
	err := r.current(ctx)
	if err == nil {
		// It was recorded: it is carried through also when its caller leaves now.
		step, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.v.cfg.CallTimeout)
		err = p.do(step)
		cancel()
	}
	if stale := (*holdover.StaleError)(nil); errors.As(err, &stale) {
		err = r.moved(stale.Fence)
	}
	ends := errors.Is(err, holdover.ErrStale) || errors.Is(err, holdover.ErrNoFence) || err != nil && holdover.NoAnswer(err)
	out.Outcome = RepairDone
	switch {
	case err == nil:
	case errors.Is(err, holdover.ErrStale):
		out.Outcome, out.Why = RepairLeft, err.Error()
	case errors.Is(err, holdover.ErrOutOfStock):
		out.Outcome, out.Why = RepairLeft, fmt.Sprintf("%s has no units for it: %v", p.store, err)
	case errors.Is(err, errMoved):
		out.Outcome, out.Why = RepairLeft, errMoved.Error()
	default:
		out.Outcome, out.Why = RepairFailed, err.Error()
	}
	r.done = append(r.done, out)
	text := out.Outcome
	if out.Why != "" {
		text += ": " + out.Why
	}
	if auditErr := ended(ctx, text); auditErr != nil {
		return fmt.Errorf("%s: %s, and that can't be recorded: %w", out.Subject(), out.Outcome, auditErr)
	}
	if ends {
		return fmt.Errorf("%s: %w", out.Subject(), err)
	}
	return nil
}
