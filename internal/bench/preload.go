package bench

import (
	"context"
	"fmt"
)

// Holds that are live before a turn, made by the server itself from a table of
// digits, in the order of their tokens, which is the order of the table.
const (
	preloadChunk = 50_000

	preloadHolds = `INSERT INTO reserved_quantities
(token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, ended_at, attempt, firm)
SELECT UNHEX(LEFT(SHA2(CONCAT('holdover bench ', n), 256), 32)), 0, 1, 1, 1, 1, 'held', UTC_TIMESTAMP(3) + INTERVAL 1 DAY, UTC_TIMESTAMP(3), NULL, 0, 1
FROM (SELECT ? + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n
      FROM bench_digits a, bench_digits b, bench_digits c, bench_digits e, bench_digits f) numbers
WHERE n < ? ORDER BY 1`
	preloadIssued = `UPDATE pool_state SET issued = issued + ? WHERE shop_id = 1 AND item_id = 1 AND group_id = 1`

	createDigits = `CREATE TABLE bench_digits (d INT NOT NULL PRIMARY KEY) ENGINE=InnoDB`
	insertDigits = `INSERT INTO bench_digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)`
)

// preload makes n live holds of the first item, with the pool's books kept.
func (s *servers) preload(ctx context.Context, n int64) error {
	if n == 0 {
		return nil
	}
	for from := int64(0); from < n; from += preloadChunk {
		if _, err := s.scratch.ExecContext(ctx, preloadHolds, from, min(n, from+preloadChunk)); err != nil {
			return fmt.Errorf("bench: load %d holds: %w", n, err)
		}
	}
	if _, err := s.scratch.ExecContext(ctx, preloadIssued, n); err != nil {
		return fmt.Errorf("bench: load %d holds: %w", n, err)
	}
	return nil
}
