package dualwrite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"holdover"
)

// Rebuilding fills a Redis that lost its view (rule 19) from MySQL, while buyers
// are served by MySQL. Why nothing is lost under traffic:
//
//   - Redis has no fence from the first step to the last, so every deciding step
//     there fails, and each fact since then is journaled in MySQL by its own
//     transaction. What knew the old Redis (a mark, an end, an extension there,
//     followed by MySQL) has ended, one call's time later, before MySQL is read.
//   - MySQL is read in one consistent snapshot. The counters are what its ledger
//     has less what its live holds have; what is written into Redis is that, and
//     nothing else writes there meanwhile: facts are refused while it is rebuilt,
//     and their senders keep them. A claim that was marked in the old Redis and
//     reached the ledger after the snapshot is among them: its clear is journaled.
//   - The fence comes last, and is MySQL's of the snapshot. What was journaled
//     since is carried by the drain, or by a kill, as after any silence of Redis.
//     A kill that comes earlier finds no fence and is refused; one that has raised
//     MySQL already is finished by whoever sees that Redis is behind (raiseRedis).
//   - A rebuild that stops anywhere leaves Redis without a fence, and is begun anew.
//   - A grant that nobody was told of yet is written too: should it be given back
//     in MySQL, Redis keeps it until its time is over, or a repair drops it.
//
// Where Redis decides and what it had is lost for good, an operator may give it up
// (RebuildFromCopy): the same steps, from what MySQL has copied. Nobody decides
// meanwhile. Counters are the ledger less the copied holds, so nothing is sold
// twice; a hold that was not copied yet is gone, and its claim is refused. A copy
// that arrives after the snapshot is found by a verification.
//
// What is left: an instance that was paused in the middle of a call for longer
// than RebuildPause and dies before it is done. A verification finds that.

// RedisRebuild is Redis's part: numbered steps of one owner.
type RedisRebuild interface {
	// BeginRebuild removes the fence, which must be below truth, and keeps facts,
	// kills and fences out until EndRebuild. Truth zero goes on with a rebuild
	// that did not end, and only with that. It returns the epoch at which MySQL
	// decided when it was begun. Errors of all steps: ErrTryAgain when another
	// owner has it, or Redis lost what was written; *StaleError.
	BeginRebuild(ctx context.Context, owner string, truth holdover.Epoch) (holdover.Epoch, error)
	// ClearForRebuild removes a page of the pod's data, from cursor zero until
	// next is zero.
	ClearForRebuild(ctx context.Context, owner string, number int64, cursor uint64) (next uint64, err error)
	// FillHolds writes holds, firm, and end records, without the counters.
	FillHolds(ctx context.Context, owner string, number int64, holds []holdover.Hold) error
	// FillCounters sets the counters of items to Available.
	FillCounters(ctx context.Context, owner string, number int64, stocks []holdover.Stock) error
	// FillAdjusted marks adjustments as settled.
	FillAdjusted(ctx context.Context, owner string, number int64, adjusted []holdover.Adjusted) error
	// EndRebuild writes the fence.
	EndRebuild(ctx context.Context, owner string, number int64, fence holdover.Fence) error
}

// MySQLSnapshot is MySQL's part.
type MySQLSnapshot interface {
	// Snapshot reads one consistent state page by page; ended is for how long
	// holds that ended are wanted. An error of use ends it.
	Snapshot(ctx context.Context, ended time.Duration, use func(context.Context, holdover.SnapshotPage) error) error
	// ClearJournaled deletes rows that are still at their versions.
	ClearJournaled(ctx context.Context, rows []holdover.Journaled) error
	// JournalFact records, without an epoch, that Redis lacks what became of a token.
	JournalFact(ctx context.Context, token holdover.Token) error
}

// Rebuilt is what a rebuild wrote.
type Rebuilt struct {
	Fence holdover.Fence `json:"fence"`
	Holds int            `json:"holds"` // live
	Ended int            `json:"ended"` // end records
	Items int            `json:"items"` // counters
	// Marked are claims that the ledger can't take: they stay marked in Redis, and
	// pending, until that is mended.
	Marked []holdover.Token `json:"marked,omitempty"`
	Took   time.Duration    `json:"took_ns"`
}

// Rebuild fills the pod's Redis from MySQL and ends with the agreed fence in it;
// see the top of this file. The pod must be in mysql, or have been until a kill
// that Redis never followed, and Redis without the agreed fence: it lost its data,
// has older data, or was closed. progress, when not nil,
// hears what was written so far. Errors: ErrTryAgain (another rebuild is under
// way, or Redis lost its data again: run it once more), a *StaleError (Redis has
// the agreed fence), ErrInvalid (another stage), ErrUnavailable.
func (f *Facade) Rebuild(ctx context.Context, progress func(holds, items int)) (Rebuilt, error) {
	return f.rebuild(ctx, progress, false)
}

// RebuildFromCopy is Rebuild also where Redis decides, from what MySQL has copied:
// what was not copied is lost. For an operator who can't bring Redis's data back.
func (f *Facade) RebuildFromCopy(ctx context.Context, progress func(holds, items int)) (Rebuilt, error) {
	return f.rebuild(ctx, progress, true)
}

func (f *Facade) rebuild(ctx context.Context, progress func(holds, items int), fromCopy bool) (Rebuilt, error) {
	began := time.Now()
	r := &rebuild{f: f, fromCopy: fromCopy, owner: f.cfg.Instance + " " + holdover.NewToken().String(), progress: progress, counters: map[itemOf]int64{}, marked: map[holdover.Token]holdover.Hold{}}
	if err := r.run(ctx); err != nil {
		return r.done, fmt.Errorf("pod %s: redis is not rebuilt, and decides nothing until it is: %w", f.cfg.Pod, err)
	}
	r.done.Took = time.Since(began)
	f.log.Info("redis is rebuilt from mysql", "epoch", r.done.Fence.Epoch, "holds", r.done.Holds, "ended", r.done.Ended, "items", r.done.Items, "took", r.done.Took)
	return r.done, f.Refresh(ctx)
}

type itemOf struct{ shop, item int64 }

// rebuild is one run.
type rebuild struct {
	f        *Facade
	fromCopy bool // what MySQL does not know is given up
	owner    string
	number   int64 // of the last step that Redis did
	progress func(holds, items int)

	done     Rebuilt
	counters map[itemOf]int64 // ledger less live holds
	marked   map[holdover.Token]holdover.Hold
	carried  []holdover.Journaled
}

func (r *rebuild) run(ctx context.Context) error {
	fence, err := r.begin(ctx)
	if err != nil {
		return err
	}
	if err := r.finishClaims(ctx); err != nil {
		return err
	}
	if err := r.f.finishLowerings(ctx); err != nil {
		return err
	}
	if err := r.clear(ctx); err != nil {
		return err
	}
	pause(ctx, r.f.cfg.RebuildPause)
	if err := r.f.mysql.Snapshot(ctx, r.f.cfg.RebuildEnded, func(ctx context.Context, p holdover.SnapshotPage) error {
		if p.Fence != nil && p.Fence.Epoch < fence.Epoch {
			return &holdover.StaleError{Store: holdover.StoreMySQL, Asked: fence.Epoch, Fence: *p.Fence}
		}
		return r.fill(ctx, p)
	}); err != nil {
		return err
	}
	if err := r.fillMarked(ctx); err != nil {
		return err
	}
	if err := r.fillCounters(ctx); err != nil {
		return err
	}
	// In Redis is what these rows say; those that were written again since stay.
	if err := r.f.mysql.ClearJournaled(ctx, r.carried); err != nil {
		return err
	}
	r.done.Fence = fence
	return r.end(ctx, fence)
}

// begin takes Redis out of use and says with which fence it comes back.
func (r *rebuild) begin(ctx context.Context) (holdover.Fence, error) {
	fence, err := r.f.mysql.Fence(ctx)
	if err != nil {
		return fence, err
	}
	knows, err := r.f.knowsAll(ctx, fence)
	if err != nil {
		return fence, err
	}
	truth := fence.Epoch
	if !knows && !(r.fromCopy && fence.Stage != holdover.StageMySQLOnly) {
		truth = 0 // a kill came between a rebuild and its end: it goes on, or there was none
	}
	began, err := r.f.redis.BeginRebuild(ctx, r.owner, truth)
	switch {
	case err != nil && truth == 0:
		return fence, &holdover.InvalidError{Field: "stage", Value: fence.String(), Problem: fmt.Sprintf("is not mysql: only there MySQL knows all that Redis has to know (%v)", err)}
	case err != nil:
		return fence, err
	case truth == 0: // MySQL is ahead, latched: raiseRedis brings its journal along
		fence = holdover.Fence{Pod: r.f.cfg.Pod, Epoch: began, Stage: holdover.StageMySQL, By: r.f.cfg.Instance, Reason: "rebuilt from mysql"}
	}
	return fence, nil
}

// knowsAll reports whether MySQL, with this fence, knows all that Redis has to know.
func (f *Facade) knowsAll(ctx context.Context, fence holdover.Fence) (bool, error) {
	if fence.Stage == holdover.StageMySQL || !fence.Latched {
		return fence.Stage == holdover.StageMySQL, nil
	}
	followed, err := f.mysql.Followed(ctx)
	if err != nil {
		return false, err
	}
	history, err := f.mysql.FenceHistory(ctx, 2)
	return knowsAll(fence, followed, history), err
}

// knowsAll: MySQL decides, or decided until a kill that Redis never followed, as
// when it lost its data between the kill's two writes: nobody has decided since.
func knowsAll(fence holdover.Fence, followed holdover.Epoch, history []holdover.Fence) bool {
	return fence.Stage == holdover.StageMySQL ||
		fence.Latched && followed < fence.Epoch && len(history) > 1 && history[0].Epoch == fence.Epoch && history[1].Stage == holdover.StageMySQL
}

// finishClaims applies the claims that are marked in what is about to be removed:
// somebody may have been told that they are pending. No new mark can come, and
// none goes: facts are refused. One that the ledger can't take stays marked in the
// rebuilt Redis, for whoever mends it, and does not hold up the others.
func (r *rebuild) finishClaims(ctx context.Context) error {
	seen := 0
	for limit := r.f.cfg.SweepBatch; ; limit *= 2 {
		marked, err := r.f.redis.Marked(ctx, 0, limit)
		if err != nil {
			return err
		}
		for _, h := range marked[min(seen, len(marked)):] {
			fact := h
			fact.State = holdover.StateClaimed
			switch _, err := r.f.applyToMySQL(ctx, fact); {
			case err == nil:
			case silent(err), errors.Is(err, holdover.ErrTryAgain):
				return fmt.Errorf("a claim that is marked in redis is not applied: nothing was removed: %w", err)
			default:
				r.f.log.Error("a claim that is marked in redis can't be written to the ledger: it stays marked", "token", h.Token, "err", err)
				r.marked[h.Token] = h
				r.done.Marked = append(r.done.Marked, h.Token)
			}
		}
		if seen = len(marked); seen < limit {
			return nil
		}
	}
}

// fillMarked writes what finishClaims could not apply, in place of what the
// snapshot has of it.
func (r *rebuild) fillMarked(ctx context.Context) error {
	for page := range slices.Chunk(r.done.Marked, r.f.cfg.DrainBatch) {
		holds := make([]holdover.Hold, len(page))
		for i, token := range page {
			holds[i] = r.marked[token]
			for _, l := range holds[i].Part() {
				if k := (itemOf{holds[i].Shop, l.Item}); r.has(k) {
					r.counters[k] -= l.Quantity
				}
			}
		}
		if err := r.f.redis.FillHolds(ctx, r.owner, r.number+1, holds); err != nil {
			return err
		}
		r.number++
		r.done.Holds += len(holds)
		r.report()
	}
	return nil
}

func (r *rebuild) has(k itemOf) bool {
	_, known := r.counters[k]
	return known
}

// finishLowerings takes to MySQL what Redis gave up for adjustments that are still
// open: their callers were told that any instance goes on with them.
func (f *Facade) finishLowerings(ctx context.Context) error {
	for limit := f.cfg.SweepBatch; ; limit *= 2 {
		open, err := f.redis.LoweredAdjustments(ctx, 0, limit)
		if err != nil {
			return err
		}
		for _, l := range open { // again, when they are more: one that was settled meanwhile has moved the others

			_, err := f.mysql.Adjust(ctx, 0, l.Adjustment, holdover.AdjustTerms{Redis: true, Lowered: l.Units, Free: l.Free})
			switch {
			case err == nil, errors.Is(err, holdover.ErrAdjustRefused):
			case silent(err), errors.Is(err, holdover.ErrTryAgain):
				return fmt.Errorf("an adjustment for which redis gave up units is not decided: %w", err)
			default: // it can't be made, and redis gets its units back from the ledger
				f.log.Warn("an adjustment that was left open can't be made", "token", l.Token, "err", err)
			}
		}
		if len(open) < limit {
			return nil
		}
	}
}

func (r *rebuild) clear(ctx context.Context) error {
	for cursor := uint64(0); ; {
		next, err := r.f.redis.ClearForRebuild(ctx, r.owner, r.number+1, cursor)
		if err != nil {
			return err
		}
		r.number++
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// fill writes one page of the snapshot.
func (r *rebuild) fill(ctx context.Context, p holdover.SnapshotPage) error {
	for _, st := range p.Stocks {
		r.counters[itemOf{st.Shop, st.Item}] += st.Available
	}
	for _, row := range p.Journal {
		// A grant that was given back, and what was written as it is. An old end may
		// be none of these: the drain carries it.
		if h := row.Hold; !h.State.Ended() || time.Since(h.ExpiresAt) < r.f.cfg.RebuildEnded-time.Hour {
			r.carried = append(r.carried, holdover.Journaled{Hold: holdover.Hold{Token: h.Token}, Version: row.Version})
		}
	}
	if holds := slices.DeleteFunc(p.Holds, r.isMarked); len(holds) > 0 {
		for _, h := range holds {
			if !h.State.Live() {
				r.done.Ended++
				continue
			}
			r.done.Holds++
			for _, l := range h.Lines {
				r.counters[itemOf{h.Shop, l.Item}] -= l.Quantity
			}
		}
		if err := r.f.redis.FillHolds(ctx, r.owner, r.number+1, holds); err != nil {
			return err
		}
		r.number++
	}
	if len(p.Adjusted) > 0 {
		if err := r.f.redis.FillAdjusted(ctx, r.owner, r.number+1, p.Adjusted); err != nil {
			return err
		}
		r.number++
	}
	r.report()
	return nil
}

func (r *rebuild) isMarked(h holdover.Hold) bool {
	_, marked := r.marked[h.Token]
	return marked
}

func (r *rebuild) report() {
	if r.progress != nil {
		r.progress(r.done.Holds+r.done.Ended, r.done.Items)
	}
}

// fillCounters comes after the holds, which it takes from the ledger.
func (r *rebuild) fillCounters(ctx context.Context) error {
	items := slices.SortedFunc(maps.Keys(r.counters), func(a, b itemOf) int {
		return cmp.Or(cmp.Compare(a.shop, b.shop), cmp.Compare(a.item, b.item))
	})
	for page := range slices.Chunk(items, r.f.cfg.DrainBatch) {
		stocks := make([]holdover.Stock, len(page))
		for i, k := range page {
			stocks[i] = holdover.Stock{Shop: k.shop, Item: k.item, Available: r.counters[k]}
		}
		if err := r.f.redis.FillCounters(ctx, r.owner, r.number+1, stocks); err != nil {
			return err
		}
		r.number++
		r.done.Items += len(page)
		r.report()
	}
	return nil
}

// end puts Redis to use. A lost answer is asked for in the fence itself.
func (r *rebuild) end(ctx context.Context, fence holdover.Fence) error {
	err := r.f.redis.EndRebuild(ctx, r.owner, r.number+1, fence)
	if err == nil {
		return nil
	}
	if there, readErr := r.f.redis.Fence(ctx); readErr == nil && there.Epoch >= fence.Epoch {
		return nil
	}
	return err
}

func (c *containedRedis) BeginRebuild(ctx context.Context, owner string, truth holdover.Epoch) (holdover.Epoch, error) {
	return contained(c.store, c.pod, "begin a rebuild", holdover.Token{}, func() (holdover.Epoch, error) { return c.redis.BeginRebuild(ctx, owner, truth) })
}

func (c *containedRedis) ClearForRebuild(ctx context.Context, owner string, number int64, cursor uint64) (uint64, error) {
	return contained(c.store, c.pod, "clear for a rebuild", holdover.Token{}, func() (uint64, error) { return c.redis.ClearForRebuild(ctx, owner, number, cursor) })
}

func (c *containedRedis) FillHolds(ctx context.Context, owner string, number int64, holds []holdover.Hold) error {
	return containedErr(c.store, c.pod, "fill holds", holdover.Token{}, func() error { return c.redis.FillHolds(ctx, owner, number, holds) })
}

func (c *containedRedis) FillCounters(ctx context.Context, owner string, number int64, stocks []holdover.Stock) error {
	return containedErr(c.store, c.pod, "fill counters", holdover.Token{}, func() error { return c.redis.FillCounters(ctx, owner, number, stocks) })
}

func (c *containedRedis) FillAdjusted(ctx context.Context, owner string, number int64, adjusted []holdover.Adjusted) error {
	return containedErr(c.store, c.pod, "fill adjustments", holdover.Token{}, func() error { return c.redis.FillAdjusted(ctx, owner, number, adjusted) })
}

func (c *containedRedis) EndRebuild(ctx context.Context, owner string, number int64, fence holdover.Fence) error {
	return containedErr(c.store, c.pod, "end the rebuild", holdover.Token{}, func() error { return c.redis.EndRebuild(ctx, owner, number, fence) })
}

func (c *containedMySQL) Snapshot(ctx context.Context, ended time.Duration, use func(context.Context, holdover.SnapshotPage) error) error {
	return containedErr(c.store, c.pod, "snapshot", holdover.Token{}, func() error { return c.mysql.Snapshot(ctx, ended, use) })
}

func (c *containedMySQL) ClearJournaled(ctx context.Context, rows []holdover.Journaled) error {
	return containedErr(c.store, c.pod, "clear the journal", holdover.Token{}, func() error { return c.mysql.ClearJournaled(ctx, rows) })
}

func (c *containedMySQL) JournalFact(ctx context.Context, token holdover.Token) error {
	return containedErr(c.store, c.pod, "journal a fact", token, func() error { return c.mysql.JournalFact(ctx, token) })
}
