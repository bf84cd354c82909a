package mysqlpool

import (
	"context"
	"errors"
	"testing"

	"holdover"
)

// TestExpect: a statement that changed another number of rows than expected
// stops its packet before the COMMIT, on either dialect; nothing is kept.
func TestExpect(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 5)
	f.load(t, 2, 1, 5)
	for _, want := range []int{1, 2, 3} {
		err := f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, t *tx) error {
			b := new(statement)
			b.next().add("UPDATE inventory_ledger SET available = available + 1 WHERE shop_id = ?", shop)
			_, err := t.send(ctx, b.expect(want).commit())
			return err
		})
		left := f.number(t, "SELECT SUM(available) FROM inventory_ledger")
		switch {
		case want == 2 && (err != nil || left != 12):
			t.Errorf("2 rows as expected: %v, %d units", err, left)
		case want == 1 && (number(err) != errMismatch || errors.Is(err, holdover.ErrUnknownOutcome) || left != 10),
			want == 3 && (number(err) != errMismatch || left != 12):
			t.Errorf("2 rows instead of %d: %v, %d units", want, err, left)
		}
	}
}
