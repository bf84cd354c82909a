package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

// shared makes one batch of calls, as the batcher's run gets them.
func wantedOf(requests ...holdover.Request) []*wanted {
	calls := make([]*wanted, len(requests))
	for i, r := range requests {
		calls[i] = &wanted{op: "vote", attempt: mine, token: r.Token, shop: r.Shop, lines: r.Lines, ttl: r.TTL}
	}
	return calls
}

func ignore[C any](C) {}

// share is a reserve batch to its end, as the batcher makes it.
func (s *Store) share(ctx context.Context, calls []*wanted) {
	if rest := s.reserveShared(ctx, calls, ignore); rest != nil {
		rest(ctx, ignore)
	}
}

// TestReserveTogether: each call of a batch has its own answer, and none is
// harmed by another: sold out, not loaded, another epoch, a token that has rows
// already, twice in the batch, a cart that can't be filled in the middle.
func TestReserveTogether(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 10)
	f.load(t, 2, 1, 1)
	f.load(t, 3, 1, 0)
	if err := f.CompareAndSetFence(t.Context(), 0, fence(5, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	there := f.reserveOne(t, line(1, 1, 1))
	if err := f.WarmUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	twice := request(line(1, 1, 1))
	again := request(line(1, 1, 1))
	again.Token = there.Token
	calls := wantedOf(
		request(line(1, 1, 1)),
		request(line(3, 1, 1)),                 // sold out
		request(line(1, 1, 2), line(99, 1, 1)), // not loaded
		again,
		request(line(1, 1, 2), line(2, 1, 1)), // the last unit of item 2
		request(line(1, 1, 2), line(2, 1, 1)), // and a cart that comes too late for it
		twice, twice,
		request(line(1, 1, 4)),
		request(line(1, 1, 2)), // one is left
	)
	for i, w := range calls {
		if i%2 == 0 {
			w.epoch = 5
		}
	}
	stale := wantedOf(request(line(1, 1, 1)))[0]
	stale.epoch = 4
	calls = append(calls, stale)
	f.share(t.Context(), calls)
	want := []error{nil, holdover.ErrOutOfStock, holdover.ErrNotLoaded, errTaken, nil, holdover.ErrOutOfStock, nil, errTaken, nil, holdover.ErrOutOfStock, holdover.ErrStale}
	for i, w := range calls {
		if !errors.Is(w.err, want[i]) || want[i] == nil && w.err != nil {
			t.Errorf("call %d: %v, want %v", i, w.err, want[i])
		}
		if w.err == nil && (w.answer.Token != w.token || !holdover.SameLines(w.answer.Lines, w.lines)) {
			t.Errorf("call %d has the answer %+v", i, w.answer)
		}
	}
	var short *holdover.OutOfStockError
	if !errors.As(calls[9].err, &short) || short.Short[0].Left != 1 || short.Short[0].Want != 2 {
		t.Errorf("one of two left: %v", calls[9].err)
	}
	if st := f.stock(t, 1, 1); st.Held != 9 {
		t.Errorf("%+v", st)
	}
	f.conserved(t)
}

// TestHalves: a call that the server refuses inside a batch of good ones is
// found by halving, and the others have their units. Somebody else's open
// transaction holds its token: no read can see that before the insert.
func TestHalves(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.LockWait, c.MaxRetries, c.OpTimeout = time.Second, 1, 30*time.Second })
	f.load(t, 1, 1, 100)
	bad := request(line(1, 1, 1))
	other := begin(t, f.db)
	if _, err := other.ExecContext(t.Context(), `INSERT INTO reserved_quantities
		(token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, attempt, firm)
		VALUES (?, 0, ?, 1, 1, 1, 'held', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, 0)`, bad.Token[:], shop); err != nil {
		t.Fatal(err)
	}
	calls := wantedOf(request(line(1, 1, 1)), request(line(1, 1, 2)), bad, request(line(1, 1, 3)), request(line(1, 1, 4)))
	f.share(t.Context(), calls)
	for i, w := range calls {
		if (w.err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i, w.err)
		}
	}
	if !errors.Is(calls[2].err, holdover.ErrUnavailable) {
		t.Errorf("the call at fault: %v", calls[2].err)
	}
	if f.Stats().Split == 0 {
		t.Error("nothing was split")
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if st := f.stock(t, 1, 1); st.Held != 10 {
		t.Errorf("%+v", st)
	}
	f.conserved(t)
}

// TestEndTogether: claims, partial claims, releases and expiries of one batch,
// good and bad, in one transaction: every ledger row is written once.
func TestEndTogether(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 100)
	f.load(t, 2, 1, 100)
	hold := func() holdover.Token { return f.reserveOne(t, line(1, 1, 2), line(2, 1, 3)).Token }
	ends := func(how holdover.State, tokens ...holdover.Token) (calls []*endCall) {
		for _, token := range tokens {
			calls = append(calls, &endCall{ending: ending{op: "end", token: token, how: how, shop: shop, strict: true}})
		}
		return calls
	}
	claimed, released, twice := hold(), hold(), hold()
	f.endTogether(t.Context(), ends(holdover.StateClaimed, claimed), patient, ignore)
	f.endTogether(t.Context(), ends(holdover.StateReleased, released), patient, ignore)
	calls := ends(holdover.StateClaimed, hold(), hold(), hold(), twice, twice, claimed, released, holdover.NewToken(), hold())
	calls[2].part = []holdover.Line{line(2, 1, 1)}
	calls[8].part = []holdover.Line{line(2, 1, 4)}
	before := f.number(t, "SELECT available FROM inventory_ledger WHERE item_id = 2")
	f.endTogether(t.Context(), calls, patient, ignore)
	want := []error{nil, nil, nil, nil, errChanged, errAlone, errAlone, errAlone, holdover.ErrInvalid}
	for i, c := range calls {
		if !errors.Is(c.err, want[i]) || want[i] == nil && (c.err != nil || !c.did || c.State != holdover.StateClaimed) {
			t.Errorf("claim %d: did %v, %v, want %v", i, c.did, c.err, want[i])
		}
	}
	if n := before - f.number(t, "SELECT available FROM inventory_ledger WHERE item_id = 2"); n != 10 {
		t.Errorf("%d units were claimed, want 3+3+1+3", n)
	}
	early := ends(holdover.StateExpired, hold())[0]
	f.endTogether(t.Context(), []*endCall{early}, patient, ignore)
	if !errors.Is(early.err, errAlone) || early.did {
		t.Errorf("an expiry that came too early: %v", early.err)
	}
	f.conserved(t)
}

// TestManyCallersFewTransactions: 200 callers of a few items share transactions
// and connections, and what they were told is what is there.
func TestManyCallersFewTransactions(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxOpenConns = 6 })
	for item := int64(1); item <= 4; item++ {
		f.load(t, item, 1, 100_000)
	}
	commits := func() int64 {
		var name string
		var n int64
		if err := f.db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Com_commit'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := commits()
	const callers, each = 200, 5
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				r := request(line(int64(1+(i+j)%4), 1, 1))
				if _, err := f.Vote(t.Context(), alone, r, false); err != nil {
					t.Error(err)
					return
				}
				switch j % 3 {
				case 0:
					if h, err := f.Claim(t.Context(), 0, shop, r.Token, nil, false); err != nil || h.State != holdover.StateClaimed {
						t.Errorf("%+v, %v", h, err)
					}
				case 1:
					if h, err := f.End(t.Context(), 0, shop, r.Token, holdover.StateReleased, false); err != nil || h.State != holdover.StateReleased {
						t.Errorf("%+v, %v", h, err)
					}
				}
			}
		})
	}
	wg.Wait()
	var claimed int64
	for item := int64(1); item <= 4; item++ {
		claimed += 100_000 - f.stock(t, item, 1).Available
	}
	if want := int64(callers * (each + 2) / 3 * 1); claimed != callers*2 {
		t.Errorf("%d units claimed, want %d (%d)", claimed, callers*2, want)
	}
	if n := commits() - before; n > callers*each {
		t.Errorf("%d transactions for %d calls: they were not shared", n, callers*each+callers*4)
	}
	f.conserved(t)
}

// TestBlockedPurge: with 100,000 rows that were deleted and that purge can't
// remove yet, a scan reads the rows that it takes and not the dead ones, a
// refill counts without them, and the plans stay the same.
func TestBlockedPurge(t *testing.T) {
	f := newFixture(t)
	const dead, item = 100_000, 1
	f.load(t, item, 1, 1<<40)
	k := key{shop, item, 1}
	snapshot := begin(t, plain(t, f.dsn, nil))
	if _, err := snapshot.ExecContext(t.Context(), "SELECT COUNT(*) FROM reservation_units"); err != nil {
		t.Fatal(err)
	}
	f.exec(t, "INSERT INTO reservation_units SELECT ?, ?, 1, a.n * 1000 + b.n + 1 FROM "+
		"(WITH RECURSIVE n AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM n WHERE n < 99) SELECT n FROM n) a, "+
		"(WITH RECURSIVE n AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM n WHERE n < 999) SELECT n FROM n) b", shop, item)
	f.exec(t, "DELETE FROM reservation_units")
	f.exec(t, "UPDATE pool_state SET next_unit = ?", dead+1)
	s := f.open(t, func(c *Config) { c.MaxOpenConns = 1 })
	// The store has sold them all, as far as it remembers.
	s.positions.refilled(k, found{floor: dead + 1, next: dead + 1, headroom: true}, 0)
	if _, err := s.refill(t.Context(), k, 500, 1000); err != nil {
		t.Fatal(err)
	}
	read := func(do func()) (rows int64) {
		count := func() (n int64) {
			var name string
			if err := each(t.Context(), s.main, func(rows *sql.Rows) error { return rows.Scan(&name, &n) }, "SHOW SESSION STATUS LIKE 'Handler_read_next'"); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := count()
		do()
		return count() - before
	}
	// Dead rows are not counted as read by the handler, but the time is theirs: a
	// scan without the hint is the measure.
	timed := func(from int64, shared time.Time) time.Duration {
		var best time.Duration
		for range 5 {
			s.positions.get(k).from, s.positions.get(k).shared = from, shared
			start := time.Now()
			err := s.transact(t.Context(), s.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
				units, err := tx.lockUnits(ctx, true, amount{k, 10})
				if len(units) != 10 {
					t.Errorf("%d units", len(units))
				}
				return errors.Join(err, errShort)
			})
			if !errors.Is(err, errShort) {
				t.Fatal(err)
			}
			if d := time.Since(start); best == 0 || d < best {
				best = d
			}
		}
		return best
	}
	if !teststack.MariaDB() { // the plans that the server makes when it knows how few rows there are
		f.exec(t, "ANALYZE TABLE reservation_units")
	}
	others := time.Now().Add(time.Hour) // until then somebody else sells here, too: nothing is listed
	listed, hinted, from0 := timed(dead+1, time.Time{}), timed(dead+1, others), timed(0, time.Time{})
	if hinted*3 > from0 {
		t.Errorf("a scan with the hint takes %s, without it %s: it reads dead rows", hinted, from0)
	}
	if listed*3 > from0 {
		t.Errorf("a list of the next units takes %s, a scan %s: it reads dead rows", listed, from0)
	}
	// And it locks the units that it returns, each once, and nothing else.
	for _, shared := range []time.Time{{}, others} {
		if teststack.MariaDB() {
			break
		}
		s.positions.get(k).from, s.positions.get(k).shared = dead+1, shared
		_ = s.transact(t.Context(), s.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
			units, err := tx.lockUnits(ctx, true, amount{k, 10})
			if n := f.number(t, "SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_name='reservation_units' AND object_schema=DATABASE() AND lock_type='RECORD'"); n != 10 || len(units) != 10 || err != nil {
				t.Errorf("%d locks for %d units, %v", n, len(units), err)
			}
			return errShort
		})
	}
	if n := read(func() {
		if _, err := s.Vote(t.Context(), alone, request(line(item, 1, 5)), false); err != nil {
			t.Fatal(err)
		}
	}); n > 100 {
		t.Errorf("a reserve of 5 units reads %d rows", n)
	}
	var row []unit
	for n := range int64(maxUnits) {
		row = append(row, unit{k, dead + 1 + n})
	}
	for name, b := range map[string]*statement{
		"hint":   new(statement).grab([]amount{{k, 10}}, []int64{dead + 1}),
		"wait":   new(statement).grab([]amount{{k, 10}}, nil),
		"delete": new(statement).deleteUnits([]unit{{k, dead + 1}, {k, dead + 2}}),
		"listed": new(statement).grabListed([]unit{{k, dead + 1}, {k, dead + 2}}),
		"run":    new(statement).deleteUnits(row),
	} {
		for _, step := range explain(t, f.db, b.String()) {
			if step.table != "reservation_units" && step.table != "u" {
				continue
			}
			if step.key != "PRIMARY" || step.kind == "ALL" || step.kind == "index" || strings.Contains(step.extra, "filesort") {
				t.Errorf("%s: %+v", name, step)
			}
		}
	}
	if err := snapshot.Rollback(); err != nil {
		t.Fatal(err)
	}
	f.conserved(t)
}
