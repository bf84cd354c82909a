package mysqlpool

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

// TestConserveFindsWhatIsPlanted: each rule, broken by hand, is named with by
// how much, and nothing else is.
func TestConserveFindsWhatIsPlanted(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillBatch = 20, 20 })
	ctx := t.Context()
	const items = 12
	for item := int64(1); item <= items; item++ {
		f.load(t, item, 1, 100)
	}
	if err := f.WarmUp(ctx); err != nil {
		t.Fatal(err)
	}
	for item := int64(1); item <= items; item++ {
		f.reserveOne(t, line(item, 1, 5))
	}
	if _, err := f.Adjust(ctx, 0, adjustment(1, -3), holdover.AdjustTerms{}); err != nil {
		t.Fatal(err)
	}
	for _, pageSize := range []int{1, 5, 6, 12, 100} { // also pages that end where the ledger ends
		c, err := f.Conserve(ctx, ConserveConfig{PageSize: pageSize, Recheck: time.Millisecond})
		if err != nil || !c.OK() || c.Rows != items || c.Rechecked != 0 || c.Pod != "pod-test" || !strings.Contains(c.Summary(), "conserved: 12 rows") {
			t.Fatalf("page size %d: %+v, %v", pageSize, c, err)
		}
	}
	type broken struct {
		rule  Rule
		item  int64
		units int64
	}
	for _, plant := range []struct {
		name, do, undo string
		want           []broken
	}{
		{"a unit row that nobody issued", "INSERT INTO reservation_units VALUES (7, 3, 1, 9000)", "DELETE FROM reservation_units WHERE unit = 9000", []broken{{RuleSum, 3, -1}}},
		{"units issued that are nowhere", "UPDATE pool_state SET issued = issued + 4 WHERE item_id = 4", "UPDATE pool_state SET issued = issued - 4 WHERE item_id = 4", []broken{{RuleSum, 4, 4}}},
		{"a hold that lost a unit", "UPDATE reserved_quantities SET quantity = quantity - 1 WHERE item_id = 5", "UPDATE reserved_quantities SET quantity = quantity + 1 WHERE item_id = 5", []broken{{RuleSum, 5, 1}}},
		{"a ledger changed by hand", "UPDATE inventory_ledger SET available = available + 9 WHERE item_id = 6", "UPDATE inventory_ledger SET available = available - 9 WHERE item_id = 6", []broken{{RuleJournal, 6, 9}}},
		{"promised twice", "UPDATE inventory_ledger SET available = 2 WHERE item_id = 7", "UPDATE inventory_ledger SET available = 100 WHERE item_id = 7", []broken{{RuleIssued, 7, 18}, {RuleJournal, 7, -98}}},
		{"two at once", "UPDATE inventory_ledger SET available = available - 1 WHERE item_id IN (1, 12)", "UPDATE inventory_ledger SET available = available + 1 WHERE item_id IN (1, 12)", []broken{{RuleJournal, 1, -1}, {RuleJournal, 12, -1}}},
		{"a ledger row that is gone", "UPDATE inventory_ledger SET group_id = 2 WHERE item_id = 8", "UPDATE inventory_ledger SET group_id = 1 WHERE item_id = 8",
			[]broken{{RuleOrphan, 8, 20}, {RuleJournal, 8, 100}}},
		{"a balance of nothing", "INSERT INTO holdover_balances VALUES (7, 9, 1, -7, 1, NOW())", "DELETE FROM holdover_balances", []broken{{RuleJournal, 9, 7}}},
	} {
		f.exec(t, plant.do)
		c, err := f.Conserve(ctx, ConserveConfig{PageSize: 5, Recheck: time.Millisecond})
		f.exec(t, plant.undo)
		var got []broken
		rows := map[holdover.Stock]bool{}
		for _, v := range c.Violations {
			got = append(got, broken{v.Rule, v.Item, v.Units})
			rows[ids(v.Stock)] = true
			if v.Text == "" || !strings.Contains(v.String(), "item") {
				t.Errorf("%s: %+v says nothing", plant.name, v)
			}
		}
		if err != nil || c.OK() || c.Violating != len(rows) || !sameSet(got, plant.want) || !strings.Contains(c.Summary(), "NOT CONSERVED") {
			t.Errorf("%s: %+v, %v", plant.name, c, err)
		}
	}
	f.journaled(t)

	f.exec(t, "UPDATE inventory_ledger SET available = available + 1")
	c, err := f.Conserve(ctx, ConserveConfig{Recheck: time.Millisecond, MaxListed: 2})
	if err != nil || c.Violating != items || len(c.Violations) != 2 || c.Violations[0].Rule != RuleJournal || c.Violations[1].Item != 2 {
		t.Errorf("listed: %+v, %v", c, err)
	}
}

// TestConserveNotesAnotherCap: the cap is this process's own; a pool that was
// filled up to a larger one is noted, and breaks no rule.
func TestConserveNotesAnotherCap(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillBatch = 20, 20 })
	for item := int64(1); item <= 3; item++ {
		f.load(t, item, 1, 100)
	}
	if err := f.WarmUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.reserveOne(t, line(1, 1, 5))
	lower := f.open(t, func(c *Config) { c.PoolCap, c.RefillBatch = 18, 18 })
	for s, want := range map[*Store]string{f.Store: "", lower: "2 locations have more rows than this process's cap of 18"} {
		c, err := s.Conserve(t.Context(), ConserveConfig{PageSize: 2, Looks: 1})
		if err != nil || !c.OK() || len(c.Violations) != 0 || (len(c.Notes) == 0) != (want == "") {
			t.Errorf("%+v, %v", c, err)
		}
		if said := c.Summary(); !strings.HasPrefix(said, "conserved: 3 rows") || !strings.Contains(said, want) || strings.Contains(said, "note") != (want != "") {
			t.Error(said)
		}
	}
}

func sameSet[T comparable](a, b []T) bool {
	count := map[T]int{}
	for _, x := range a {
		count[x]++
	}
	for _, x := range b {
		count[x]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestConserveLooksAgain: what is mended before the last look does not count.
func TestConserveLooksAgain(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 100)
	f.exec(t, "UPDATE inventory_ledger SET available = 90")
	done := make(chan Conservation, 1)
	go func() {
		c, err := f.Conserve(t.Context(), ConserveConfig{Recheck: 20 * time.Millisecond, Looks: 1000})
		if err != nil {
			t.Error(err)
		}
		done <- c
	}()
	eventually(t, "it has looked", func() bool {
		return len(done) == 1 || f.Store.main.Stats().OpenConnections > 0
	})
	f.exec(t, "UPDATE inventory_ledger SET available = 100")
	if c := <-done; !c.OK() || c.Rows != 1 {
		t.Errorf("%+v", c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.exec(t, "UPDATE inventory_ledger SET available = 90")
	cancel()
	if _, err := f.Conserve(ctx, ConserveConfig{}); !errors.Is(err, holdover.ErrUnavailable) {
		t.Errorf("stopped: %v", err)
	}
	if c, err := newFixture(t).Conserve(t.Context(), ConserveConfig{}); err != nil || c.Rows != 0 || !strings.Contains(c.Summary(), "nothing to check") {
		t.Errorf("empty: %+v, %v", c, err)
	}
}

// TestConserveAlone: one process at a time, and the lock is given back.
func TestConserveAlone(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 1)
	f.exec(t, "UPDATE inventory_ledger SET available = 2") // keeps the first one looking
	ctx, stop := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, _, err := f.ConserveAlone(ctx, ConserveConfig{Recheck: time.Hour})
		first <- err
	}()
	other := f.open(t)
	eventually(t, "the second one is kept out", func() bool {
		_, alone, err := other.ConserveAlone(t.Context(), ConserveConfig{Looks: 1})
		if err != nil {
			t.Fatal(err)
		}
		return !alone
	})
	stop()
	if err := <-first; err == nil {
		t.Error("the first one was not stopped")
	}
	eventually(t, "the lock is free", func() bool {
		c, alone, err := other.ConserveAlone(t.Context(), ConserveConfig{Looks: 1})
		return err == nil && alone && c.Violating == 1
	})
}

// TestConserveAloneWithOneConnection: the lock has a connection of its own.
func TestConserveAloneWithOneConnection(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxOpenConns = 1 })
	f.load(t, 1, 1, 10)
	if c, alone, err := f.ConserveAlone(t.Context(), ConserveConfig{PageTimeout: 5 * time.Second}); err != nil || !alone || c.Rows != 1 {
		t.Errorf("%+v, alone %t, %v", c, alone, err)
	}
}

// TestConserveUnderTraffic: no row is ever wrong while buyers, restocks, refill
// and retention are at work.
func TestConserveUnderTraffic(t *testing.T) {
	f := newFixture(t, func(c *Config) {
		c.PoolCap, c.RefillBatch, c.RefillEvery = 30, 10, 5*time.Millisecond
		c.GiveBackWindow, c.EndRetention, c.EntryRetention = time.Millisecond, time.Millisecond, time.Millisecond
		c.PurgeEvery = 5 * time.Millisecond
	})
	ctx, stop := context.WithCancel(t.Context())
	const items = 4
	for item := int64(1); item <= items; item++ {
		f.load(t, item, 1, 500)
	}
	var background, buyers sync.WaitGroup
	background.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for worker := range 4 {
		buyers.Go(func() {
			for i := range 60 {
				g, err := f.Vote(ctx, alone, request(line(int64(1+(i+worker)%items), 1, 2)), false)
				if err != nil {
					t.Error(err)
					continue
				}
				how := []holdover.State{holdover.StateClaimed, holdover.StateReleased, holdover.StateClaimed}[i%3]
				if _, err := f.Apply(ctx, holdover.Hold{Token: g.Hold.Token, Shop: shop, Lines: g.Hold.Lines, State: how}); err != nil {
					t.Error(err)
				}
				if i%20 == 7 {
					if _, err := f.Adjust(ctx, 0, clamped(adjustment(int64(1+i%items), int64(40-20*worker))), holdover.AdjustTerms{}); err != nil && worker != 2 {
						t.Error(err)
					}
				}
			}
		})
	}
	looks := 0
	for done := false; !done; looks++ {
		finished := make(chan struct{})
		go func() { buyers.Wait(); close(finished) }()
		c, err := f.Conserve(ctx, ConserveConfig{PageSize: 3, Looks: 1}) // at the first look already
		if err != nil || !c.OK() || c.Rows != items {
			t.Fatalf("%+v, %v", c, err)
		}
		select {
		case <-finished:
			done = true
		default:
		}
	}
	// Several locations have had entries carried into their balance by then.
	eventually(t, "retention has carried entries", func() bool { return f.number(t, "SELECT COUNT(*) FROM holdover_balances") >= items })
	eventually(t, "no entry is left", func() bool { return f.number(t, "SELECT COUNT(*) FROM ledger_entries") == 0 })
	stop()
	background.Wait()
	f.journaled(t)
	t.Logf("%d looks", looks)
}

// TestOpeningEntries: a ledger from before the journal was complete is explained
// by the migration, once.
func TestOpeningEntries(t *testing.T) {
	f := newFixture(t)
	for item := int64(1); item <= 3; item++ {
		f.load(t, item, 1, 100*item)
	}
	h := f.reserveOne(t, line(2, 1, 5))
	if _, err := f.Apply(t.Context(), holdover.Hold{Token: h.Token, Shop: shop, Lines: h.Lines, State: holdover.StateClaimed}); err != nil {
		t.Fatal(err)
	}
	f.exec(t, "DELETE FROM ledger_entries WHERE kind = 'import'") // as an older version left it
	for range 2 {
		f.exec(t, "DELETE FROM holdover_schema WHERE version_id >= 12")
		if _, err := Migrate(t.Context(), f.dsn); err != nil {
			t.Fatal(err)
		}
		f.journaled(t)
		if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE kind = 'opening' AND delta IN (100, 200, 300)"); n != 3 {
			t.Errorf("%d opening entries", n)
		}
	}
	if n := f.number(t, "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'ledger_entries_location'"); n != 6 {
		t.Errorf("the journal's key has %d columns", n)
	}
}

// TestConservePlans: a page reads the ledger, pool and journal by key.
func TestConservePlans(t *testing.T) {
	teststack.NeedMySQL(t) // MariaDB explains the derived tables in other words
	f := newFixture(t)
	for _, size := range []int64{1, 20, 1000} {
		f.exec(t, "DELETE FROM inventory_ledger")
		f.exec(t, "DELETE FROM ledger_entries")
		f.exec(t, "DELETE FROM pool_state")
		f.exec(t, "INSERT INTO inventory_ledger SELECT 7, i, 1, 5 FROM "+numbers+" n", size)
		f.exec(t, "INSERT INTO pool_state SELECT 7, i, 1, 0, 1 FROM "+numbers+" n", size)
		f.exec(t, "INSERT INTO ledger_entries SELECT UNHEX(REPLACE(UUID(), '-', '')), 0, 7, i, 1, 5, 'import', UTC_TIMESTAMP(3) FROM "+numbers+" n", size)
		f.exec(t, "ANALYZE TABLE inventory_ledger, ledger_entries, pool_state")
		b := f.ledger.conservePage(holdover.Stock{Shop: 7, Item: 3, Group: 1}, 100)
		byKey := map[string]string{}
		for _, step := range explain(t, f.db, b.String(), b.args...) {
			byKey[step.table] = step.kind + " " + step.key
		}
		for table, want := range map[string]string{"inventory_ledger": "range PRIMARY", "u": "ref PRIMARY", "e": "ref ledger_entries_location"} {
			if byKey[table] != want {
				t.Errorf("%d rows: %s is read by %q, want %q", size, table, byKey[table], want)
			}
		}
		for _, table := range []string{"p", "b"} { // a short list may be looked through
			if kind, _, _ := strings.Cut(byKey[table], " "); size == 1000 && kind == "ALL" && table == "p" {
				t.Errorf("%d rows: %s is read by %q", size, table, byKey[table])
			}
		}
	}
}
