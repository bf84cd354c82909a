package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
)

// faults provokes what goes wrong with locks on single rows, and a state
// transition that does not.
func (r *run) faults(clients int, slot time.Duration) error {
	for _, show := range []func(int, time.Duration) (Shown, error){
		r.retryUnderLocks, r.unlimitedRetries, r.optimisticUnderConflict, r.snapshotThenUpdate, r.oneTransition, r.oneClaim,
	} {
		shown, err := show(clients, slot)
		if err != nil {
			return fmt.Errorf("%s: %w", shown.Fault, err)
		}
		r.report.Shown = append(r.report.Shown, shown)
		r.say("  %s: %s", shown.Fault, shown.Observed)
	}
	return nil
}

// retryUnderLocks: a transaction has locked one row and retries a
// compare-and-set on another, with the lock in its hands. Beside it the same
// with the retry outside. What is counted is sales of the locked row.
func (r *run) retryUnderLocks(clients int, slot time.Duration) (Shown, error) {
	shown := Shown{Fault: "retry while holding locks"}
	rate := func(inside bool) (perS float64, err error) {
		_, err = r.session(func(ctx context.Context, s *servers, set setting) (way, error) {
			rows, err := openRows(ctx, s, set, nil)
			return lockThenSwap{rows, inside}, err
		}, setting{conns: min(clients, lockConns), stock: ample(2)}, func(s *session) error {
			began := time.Now()
			_, err := s.drive(load{clients: clients, measure: max(3*slot, 300*time.Millisecond), pick: lockedOrNot})
			perS = float64(s.told.units[0]) / time.Since(began).Seconds()
			return err
		})
		return perS, err
	}
	inside, err := rate(true)
	if err != nil {
		return shown, err
	}
	outside, err := rate(false)
	shown.Observed = fmt.Sprintf("%.0f/s with the retry inside the transaction that holds another row's lock, %.0f/s with it outside, %d callers", inside, outside, clients)
	shown.OK = inside < outside
	return shown, err
}

// One caller wants the second item alone, and changes its version under the
// others' hands.
const bystander = 0

func lockedOrNot(_ *rand.Rand, c *call) {
	c.lines = c.lines[:0]
	if c.worker != bystander {
		c.lines = append(c.lines, holdover.Line{Item: 1, Group: 1, Quantity: 1})
	}
	c.lines = append(c.lines, holdover.Line{Item: 2, Group: 1, Quantity: 1})
}

// lockThenSwap takes item 1 by its lock and item 2 by its version.
type lockThenSwap struct {
	rows
	inside bool // it tries the second again without giving up the first
}

// swapPause is the longest pause before a try, with full jitter: what retry
// libraries wait.
const swapPause = 50 * time.Millisecond

func (w lockThenSwap) reserve(ctx context.Context, c *call) (bool, error) {
	for range casTries {
		c.attempts++
		err := w.try(ctx, c)
		switch {
		case err == nil && len(c.lines) == 1:
			return true, pause(ctx, rand.N(swapPause/2)) // the bystander takes its time
		case err == nil:
			return true, nil
		case errors.Is(err, errConflict):
			c.conflicts++
		case !c.lost(err):
			return false, err
		}
		if err := pause(ctx, rand.N(swapPause)); err != nil {
			return false, err
		}
	}
	return false, errGaveUp
}

func (w lockThenSwap) try(ctx context.Context, c *call) error {
	first, args := "START TRANSACTION", []any{}
	if len(c.lines) > 1 {
		first, args = beginTx+takeStock, []any{c.lines[0].Quantity, c.lines[0].Item}
	}
	return begun(ctx, w.db, func(conn *sql.Conn, _ sql.Result) error {
		for range casTries {
			err := w.swap(ctx, conn, c)
			if !w.inside || !errors.Is(err, errConflict) {
				return err
			}
			c.conflicts++
			if err := pause(ctx, rand.N(swapPause)); err != nil {
				return err
			}
		}
		return errGaveUp
	}, first, args...)
}

// swap takes the last line by its version, and commits.
func (w lockThenSwap) swap(ctx context.Context, conn *sql.Conn, c *call) error {
	l := c.lines[len(c.lines)-1]
	var available, version int64
	if err := conn.QueryRowContext(ctx, readVersion, l.Item).Scan(&available, &version); err != nil {
		return err
	}
	result, err := conn.ExecContext(ctx, swapVersion, l.Quantity, l.Item, version)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return cmpErr(err, errConflict)
	}
	var b strings.Builder
	b.WriteString(insertHoldHead)
	args := insertHolds(&b, nil, c)
	_, err = conn.ExecContext(ctx, b.String()+"; "+commitTx, args...)
	return err
}

// unlimitedRetries: the compare-and-set tries until it wins, without a pause.
func (r *run) unlimitedRetries(clients int, slot time.Duration) (Shown, error) {
	shown := Shown{Fault: "unlimited retries"}
	play := func(open opener) (sample, error) {
		return r.turn(open, setting{conns: min(clients, lockConns), stock: ample(1)}, load{clients: clients, warm: warmUp(slot), measure: max(2*slot, 200*time.Millisecond), pick: oneUnit(1)})
	}
	endless, err := play(func(ctx context.Context, s *servers, set setting) (way, error) {
		rows, err := openRows(ctx, s, set, nil)
		return endlessCAS{versionCAS{rows}}, err
	})
	if err != nil {
		return shown, err
	}
	locked, err := play(openSelectForUpdate)
	perGrant := func(s sample) float64 { return float64(s.attempts) / float64(max(s.granted, 1)) }
	shown.Observed = fmt.Sprintf("%.1f tries for a grant, p99 %.0f ms, %.0f/s; SELECT FOR UPDATE: %.1f tries, p99 %.0f ms, %.0f/s",
		perGrant(endless), endless.latency.quantileUs(0.99)/1000, endless.opsPerS(), perGrant(locked), locked.latency.quantileUs(0.99)/1000, locked.opsPerS())
	shown.OK = perGrant(endless) > 2*perGrant(locked)
	return shown, err
}

type endlessCAS struct{ versionCAS }

func (w endlessCAS) reserve(ctx context.Context, c *call) (bool, error) {
	for began := time.Now(); time.Since(began) < callTimeout; { // the turn must end
		c.attempts++
		err := w.try(ctx, c)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, errShort):
			return false, nil
		case errors.Is(err, errConflict):
			c.conflicts++
		case !c.lost(err):
			return false, err
		}
	}
	return false, errGaveUp
}

// optimisticUnderConflict: the bounded compare-and-set where most tries lose.
func (r *run) optimisticUnderConflict(clients int, slot time.Duration) (Shown, error) {
	shown := Shown{Fault: "optimistic locking at 60 % conflicts and more"}
	play := func(open opener) (sample, error) {
		return r.turn(open, setting{conns: min(clients, lockConns), stock: ample(1)}, load{clients: clients, warm: warmUp(slot), measure: max(2*slot, 200*time.Millisecond), pick: oneUnit(1)})
	}
	optimistic, err := play(openVersionCAS)
	if err != nil {
		return shown, err
	}
	locked, err := play(openSelectForUpdate)
	rate := float64(optimistic.conflicts) / float64(max(optimistic.attempts, 1))
	shown.Observed = fmt.Sprintf("%.0f %% of the tries lost, %.0f/s and %d of %d calls given up; SELECT FOR UPDATE on the same load %.0f/s and none",
		100*rate, optimistic.opsPerS(), optimistic.failed, optimistic.granted+optimistic.failed, locked.opsPerS())
	shown.OK = rate >= 0.6 && optimistic.opsPerS() < locked.opsPerS()
	return shown, err
}

// snapshotThenUpdate: under REPEATABLE READ two buyers read one snapshot each,
// both see the last unit, and both write what they computed.
func (r *run) snapshotThenUpdate(int, time.Duration) (shown Shown, err error) {
	shown.Fault = "snapshot read, then UPDATE, under REPEATABLE READ"
	ctx, s := r.ctx, r.servers
	if err := s.empty(ctx); err != nil {
		return shown, err
	}
	if err := s.fillStock(ctx, []int64{1}); err != nil {
		return shown, err
	}
	db, err := s.open(ctx, setting{conns: 2, held: new(holdTime)}, func(cfg *mysql.Config) {
		for _, name := range []string{"transaction_isolation", "tx_isolation"} {
			if _, ok := cfg.Params[name]; ok {
				cfg.Params[name] = "'REPEATABLE-READ'"
			}
		}
	})
	if err != nil {
		return shown, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var buyers [2]*sql.Tx
	var seen [2]int64
	for i := range buyers {
		if buyers[i], err = db.BeginTx(ctx, nil); err != nil {
			return shown, err
		}
		defer buyers[i].Rollback() // after a commit it does nothing
		if err = buyers[i].QueryRowContext(ctx, readStock, 1).Scan(&seen[i]); err != nil {
			return shown, err
		}
	}
	sold, again := 0, [2]int64{}
	for i, tx := range buyers {
		if seen[i] < 1 {
			continue
		}
		if _, err = tx.ExecContext(ctx, setStock, seen[i]-1, 1); err != nil {
			return shown, err
		}
		if i == 0 {
			// The other reads again, after the commit below, and its snapshot still has the unit.
			if err = tx.Commit(); err != nil {
				return shown, err
			}
			if err = buyers[1].QueryRowContext(ctx, readStock, 1).Scan(&again[1]); err != nil {
				return shown, err
			}
		} else if err = tx.Commit(); err != nil {
			return shown, err
		}
		sold++
	}
	shown.Observed = fmt.Sprintf("%d buyers got the one unit; the second read %d left even after the first had committed", sold, again[1])
	shown.OK = sold == 2 && again[1] == 1
	return shown, nil
}

// transitions is how many states are changed, by many at once each.
const transitions = 50

// oneTransition: held -> claimed, the same by many at once: one affected row
// in all.
func (r *run) oneTransition(clients int, _ time.Duration) (shown Shown, err error) {
	shown.Fault = "a state transition repeated concurrently"
	ctx, s := r.ctx, r.servers
	if err := s.empty(ctx); err != nil {
		return shown, err
	}
	db, err := s.open(ctx, setting{conns: min(clients, lockConns), held: new(holdTime)}, nil)
	if err != nil {
		return shown, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rng := rand.New(rand.NewPCG(r.seed, 1))
	right := 0
	for range transitions {
		token := randomToken(rng)
		if _, err := db.ExecContext(ctx, insertHold, token[:], 0, 1, 1); err != nil {
			return shown, err
		}
		won, err := many(clients, func() (bool, error) {
			result, err := db.ExecContext(ctx, claimHold, token[:])
			if err != nil {
				return false, err
			}
			n, err := result.RowsAffected()
			return n == 1, err
		})
		if err != nil {
			return shown, err
		}
		if won == 1 {
			right++
		}
	}
	shown.OK = right == transitions
	shown.Observed = fmt.Sprintf("of %d holds claimed by %d callers at once, %d were claimed exactly once", transitions, clients, right)
	if !shown.OK {
		r.broken("a conditional state transition succeeded more or less than once: %s", shown.Observed)
	}
	return shown, nil
}

// oneClaim is the same through holdover.
func (r *run) oneClaim(clients int, _ time.Duration) (shown Shown, err error) {
	shown.Fault = "holdover's claim repeated concurrently"
	ctx, s := r.ctx, r.servers
	if err := s.empty(ctx); err != nil {
		return shown, err
	}
	w, err := openInstances(ctx, s, setting{conns: r.cfg.Connections, stock: ample(1), cap: 1000, held: new(holdTime)}, 1)
	if err != nil {
		return shown, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	c := call{lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}}
	rng := rand.New(rand.NewPCG(r.seed, 2))
	right := 0
	for range transitions {
		c.token = randomToken(rng)
		if granted, err := w.reserve(ctx, &c); err != nil || !granted {
			return shown, cmpErr(err, errShort)
		}
		won, err := many(clients, func() (bool, error) {
			result, err := w.pools[0].Claim(ctx, 1, c.token)
			return err == nil && !result.Replayed, err
		})
		if err != nil {
			return shown, err
		}
		if won == 1 {
			right++
		}
	}
	deducted, err := s.one(ctx, "SELECT COALESCE(SUM(-delta), 0) FROM ledger_entries WHERE kind = 'claim'")
	shown.OK = right == transitions && deducted == transitions
	shown.Observed = fmt.Sprintf("of %d holds claimed by %d callers at once, %d were claimed exactly once; the ledger lost %d units", transitions, clients, right, deducted)
	if !shown.OK {
		r.broken("a claim succeeded more or less than once: %s", shown.Observed)
	}
	return shown, err
}

// many has n callers do the same at once and counts those that won.
func many(n int, do func() (won bool, err error)) (int64, error) {
	var won atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			ok, err := do()
			if err != nil {
				failed.Store(&err)
			}
			if ok {
				won.Add(1)
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return won.Load(), *err
	}
	return won.Load(), nil
}
