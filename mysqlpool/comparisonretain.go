package mysqlpool

import (
	"context"
	"database/sql"
)

// Rollups past ComparisonRetention go with their cells and divergences. What
// somebody else has locked is left for the next round.
const (
	stmtRetainRollups = `SELECT id FROM holdover_rollups FORCE INDEX (holdover_rollups_from)
WHERE from_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND
ORDER BY from_at, id LIMIT ? FOR UPDATE SKIP LOCKED /*app='holdover',op='retain',step='rollups'*/`
	// Lists of ids are joined in the written order: a DELETE takes no index hint otherwise.
	retainRollupFirst     = `SELECT ? AS id`
	retainRollupNext      = ` UNION ALL SELECT ?`
	retainRollupsHead     = `DELETE r FROM (`
	retainRollupsTail     = `) d STRAIGHT_JOIN holdover_rollups r FORCE INDEX (PRIMARY) ON r.id = d.id /*app='holdover',op='retain',step='delete_rollups'*/`
	retainCellsTail       = `) d STRAIGHT_JOIN holdover_rollup_cells r FORCE INDEX (PRIMARY) ON r.rollup = d.id /*app='holdover',op='retain',step='delete_cells'*/`
	retainDivergencesTail = `) d STRAIGHT_JOIN holdover_divergences r FORCE INDEX (PRIMARY) ON r.rollup = d.id /*app='holdover',op='retain',step='delete_divergences'*/`
)

// retainRollupBatch is smaller than other batches: a rollup has many rows.
const retainRollupBatch = 20

// retainRollups removes the rollups that began longer ago than ComparisonRetention.
func (s *Store) retainRollups(ctx context.Context) (removed int, err error) {
	for n := retainRollupBatch; n == retainRollupBatch; {
		err := s.retainStep(ctx, func(ctx context.Context, t *tx) error {
			var ids []int64
			err := t.query(ctx, func(r *sql.Rows) error {
				var id int64
				err := r.Scan(&id)
				ids = append(ids, id)
				return err
			}, stmtRetainRollups, s.cfg.ComparisonRetention.Microseconds(), retainRollupBatch)
			if n = len(ids); err != nil || n == 0 {
				return err
			}
			for _, tail := range []string{retainDivergencesTail, retainCellsTail, retainRollupsTail} {
				if _, err := t.exec(ctx, retainedRollups(ids, tail).String()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

func retainedRollups(ids []int64, tail string) *statement {
	b := new(statement).add(retainRollupsHead)
	for i, id := range ids {
		row := retainRollupNext
		if i == 0 {
			row = retainRollupFirst
		}
		b.add(row, id)
	}
	return b.add(tail)
}
