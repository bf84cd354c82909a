package legacyredis

import (
	"context"
	"strconv"

	"holdover"
)

// A rebuild fills a Redis that lost its view from MySQL, in numbered steps of
// one owner: BeginRebuild, ClearForRebuild until its cursor is zero, the Fill
// steps, EndRebuild. Each step is a script of its own; a rebuild that stops
// anywhere leaves a Redis without a fence, which decides nothing, and is begun
// anew. Errors of all: ErrTryAgain when another owner has it, or when Redis lost
// what was written meanwhile.

type rebuildScripts struct {
	begin, clear, holds, counters, adjusted, end script
}

// clearPage is about how many keys of the database one clearing step looks at.
const clearPage = 1000

// BeginRebuild takes the fence away, if it is below truth, the epoch at which
// MySQL decides, and marks Redis as being rebuilt: facts, kills and fences are
// refused until EndRebuild. Truth zero goes on with a rebuild that was begun and
// not finished. It returns the epoch that MySQL decided at when it was begun. A
// *StaleError: Redis has the agreed fence, or a newer one.
func (s *Store) BeginRebuild(ctx context.Context, owner string, truth holdover.Epoch) (holdover.Epoch, error) {
	const op = "begin a rebuild"
	answer, err := s.run(ctx, step{op: op, script: s.scripts.rebuild.begin, asked: truth, writes: true, control: true},
		owner, s.cfg.RebuildLease.Milliseconds(), epochText(truth), s.channel, s.cfg.Pod)
	if err != nil {
		return 0, err
	}
	began := holdover.Epoch(answer.number())
	return began, s.readable(op, holdover.Token{}, &answer, nil)
}

// ClearForRebuild removes one page of holds, end records and adjustments. It
// starts with cursor zero and has ended when next is zero.
func (s *Store) ClearForRebuild(ctx context.Context, owner string, number int64, cursor uint64) (next uint64, err error) {
	const op = "clear for a rebuild"
	answer, err := s.rebuildStep(ctx, op, s.scripts.rebuild.clear, owner, number, strconv.FormatUint(cursor, 10), clearPage)
	if err != nil {
		return 0, err
	}
	next, err = strconv.ParseUint(answer.text(), 10, 64)
	return next, s.readable(op, holdover.Token{}, &answer, err)
}

// FillHolds writes holds as MySQL has them: held ones firm, ended ones as end
// records; and claims that are marked, and stay so. Counters are not touched.
func (s *Store) FillHolds(ctx context.Context, owner string, number int64, holds []holdover.Hold) error {
	args := make([]any, len(holds))
	for i, h := range holds {
		fact := h
		if h.State == holdover.StateClaiming {
			fact.State = holdover.StateHeld
		}
		if err := checkFact(fact); err != nil {
			return err
		}
		args[i] = packFact(h)
	}
	_, err := s.rebuildStep(ctx, "fill holds", s.scripts.rebuild.holds, owner, number, args...)
	return err
}

// FillCounters sets the counters of the items of stocks to their Available.
func (s *Store) FillCounters(ctx context.Context, owner string, number int64, stocks []holdover.Stock) error {
	args := make([]any, 0, 3*len(stocks))
	for _, st := range stocks {
		if st.Available > maxNumber || st.Available < -maxNumber {
			return &holdover.InvalidError{Field: "units of item " + strconv.FormatInt(st.Item, 10), Value: strconv.FormatInt(st.Available, 10), Problem: "must be within 2^53"}
		}
		args = append(args, st.Shop, st.Item, st.Available)
	}
	_, err := s.rebuildStep(ctx, "fill counters", s.scripts.rebuild.counters, owner, number, args...)
	return err
}

// FillAdjusted marks adjustments as settled: the counters that are filled have
// them already.
func (s *Store) FillAdjusted(ctx context.Context, owner string, number int64, adjusted []holdover.Adjusted) error {
	args := make([]any, 0, 3*len(adjusted))
	for _, a := range adjusted {
		args = append(args, a.Token.String(), a.Content(), a.Changed)
	}
	_, err := s.rebuildStep(ctx, "fill adjustments", s.scripts.rebuild.adjusted, owner, number, args...)
	return err
}

// EndRebuild writes the fence: from then on this Redis is used.
func (s *Store) EndRebuild(ctx context.Context, owner string, number int64, f holdover.Fence) error {
	fields, err := s.fenceFields(f)
	if err != nil {
		return err
	}
	_, err = s.rebuildStep(ctx, "end the rebuild", s.scripts.rebuild.end, owner, number, fields...)
	return err
}

// rebuildStep runs one step, and once more when its answer was lost: the number
// makes that safe. It may move more than a buyer's call, so it has the kill's time.
func (s *Store) rebuildStep(ctx context.Context, op string, script script, owner string, number int64, args ...any) (answer reply, err error) {
	head := []any{owner, s.cfg.RebuildLease.Milliseconds(), number}
	for range 2 {
		answer, err = s.run(ctx, step{op: op, script: script, writes: true, control: true, timeout: s.cfg.TripTimeout}, append(head, args...)...)
		if err == nil || !holdover.NoAnswer(err) || ctx.Err() != nil {
			break
		}
	}
	return answer, err
}
