package mutants_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/mutants"
	"holdover/internal/teststack"
	"holdover/mysqlpool"
)

func TestMain(m *testing.M) { teststack.Main(m) }

const shop = 7

// pool is a MySQL with units of item 1.
func pool(t *testing.T, units int64) (*mysqlpool.Store, string) {
	t.Helper()
	dsn := teststack.PreparedDSN(t, func(ctx context.Context, dsn string) error {
		_, err := mysqlpool.Migrate(ctx, dsn)
		return err
	})
	s, err := mysqlpool.Open(t.Context(), mysqlpool.Config{Pod: "p", DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.ImportStock(t.Context(), []mysqlpool.StockRow{{Shop: shop, Item: 1, Group: 1, Available: units}}); err != nil {
		t.Fatal(err)
	}
	return s, dsn
}

func mutant(t *testing.T, name, dsn string) *mutants.Mutant {
	t.Helper()
	m, err := mutants.Make(name, mutants.Servers{MySQLDSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func hold() holdover.Hold {
	return holdover.Hold{
		Token: holdover.NewToken(), Shop: shop, State: holdover.StateHeld, Firm: true, GrantedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
		Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}},
	}
}

// Of three mirrored facts the third is told as written, and is not.
func TestLoseMirror(t *testing.T) {
	s, dsn := pool(t, 100)
	m := mutant(t, mutants.LoseMirror+":3", dsn).MySQL(s)
	var lost []int
	for i := 1; i <= 9; i++ {
		h := hold()
		known, err := m.Apply(t.Context(), h)
		if err != nil || known.State != holdover.StateHeld {
			t.Fatalf("%d: told %s, %v", i, known.State, err)
		}
		there, err := s.Lookup(t.Context(), h.Token)
		if err != nil {
			t.Fatal(err)
		}
		if there.State == holdover.StateNone {
			lost = append(lost, i)
		}
	}
	if len(lost) != 3 || lost[0] != 3 || lost[1] != 6 || lost[2] != 9 {
		t.Errorf("lost %v, want 3, 6 and 9", lost)
	}
	claimed := hold()
	claimed.State = holdover.StateClaimed
	for range 3 {
		if _, err := m.Apply(t.Context(), claimed); err != nil {
			t.Fatal(err)
		}
	}
	if there, err := s.Lookup(t.Context(), claimed.Token); err != nil || there.State != holdover.StateClaimed {
		t.Errorf("a claim is no mirror: it is %s, %v", there.State, err)
	}
}

// MySQL grants one unit more than there are, and says that it has more.
func TestGrantPastStock(t *testing.T) {
	s, dsn := pool(t, 2)
	m := mutant(t, mutants.GrantPastStock, dsn).MySQL(s)
	for i := range 3 {
		h := hold()
		known, err := m.Apply(t.Context(), h)
		if err != nil || known.State != holdover.StateHeld {
			t.Fatalf("grant %d of 2: %s, %v", i+1, known.State, err)
		}
		if there, err := s.Lookup(t.Context(), h.Token); err != nil || there.State != holdover.StateHeld {
			t.Errorf("grant %d of 2 is %s in mysql, %v", i+1, there.State, err)
		}
	}
	stocks, err := m.Probe(t.Context(), shop, []int64{1})
	if err != nil || len(stocks) != 1 || stocks[0].Free() <= 0 {
		t.Errorf("it says it has %+v, %v", stocks, err)
	}
	if stocks, err := s.Probe(t.Context(), shop, []int64{1}); err != nil || stocks[0].Available != 3 || stocks[0].Free() != 0 {
		t.Errorf("the ledger of 2 units has %+v, %v", stocks, err)
	}
}

// timedMySQL takes as long as it is told.
type timedMySQL struct {
	dualwrite.MySQL
	took time.Duration
}

func (s *timedMySQL) Apply(_ context.Context, h holdover.Hold) (holdover.Hold, error) {
	time.Sleep(s.took) // of the bubble's clock
	return h, nil
}

// Only a grant above the running p99 takes longer, by 30 %.
func TestSlowTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &timedMySQL{took: time.Millisecond}
		m := mutant(t, mutants.SlowTail, "").MySQL(slow)
		apply := func(h holdover.Hold) time.Duration {
			began := time.Now()
			if _, err := m.Apply(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		for range 250 {
			apply(hold())
		}
		slow.took = 500 * time.Microsecond
		if took := apply(hold()); took != slow.took {
			t.Errorf("a usual grant took %s, want %s", took, slow.took)
		}
		slow.took = 10 * time.Millisecond
		if took := apply(hold()); took != 13*time.Millisecond {
			t.Errorf("a grant of the tail took %s, want 13 ms", took)
		}
		released := hold()
		released.State = holdover.StateReleased
		if took := apply(released); took != slow.took {
			t.Errorf("a release took %s, want %s: it is no grant", took, slow.took)
		}
		within := 0
		for range 1000 { // its percentile follows: what is usual now is no tail
			if apply(hold()) == slow.took {
				within++
			}
		}
		if within < 900 {
			t.Errorf("%d of 1,000 equal grants were left alone", within)
		}
	})
}

// The names are known where they are used, and only in their form.
func TestReportNames(t *testing.T) {
	for _, name := range mutants.ReportNames() {
		if mutants.Known(name) {
			t.Errorf("%s: a torture is not asked to catch it", name)
		}
		m, err := mutants.Make(name, mutants.Servers{MySQLDSN: "root@tcp(127.0.0.1:1)/x"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = m.Close()
	}
	for _, name := range []string{"lose-mirror:", "lose-mirror:0", "lose-mirror:x", "slow-tail:3", "nothing"} {
		if _, err := mutants.Make(name, mutants.Servers{}); !errors.Is(err, holdover.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
