package mysqlpool

import (
	"context"
	"database/sql"
	"time"

	"holdover"
)

// Rollups that end after now: of an instance whose clock is ahead. They are kept,
// and in no period that ends now. No rollup is longer than an hour.
const (
	stmtClock        = `SELECT UTC_TIMESTAMP(3) /*app='holdover',op='rollup',step='clock'*/`
	stmtRollupsAhead = `SELECT run, seq, pod, instance, from_at, to_at FROM holdover_rollups FORCE INDEX (holdover_rollups_from)
WHERE from_at > ? - INTERVAL 1 HOUR AND to_at > ?
ORDER BY from_at DESC LIMIT ? /*app='holdover',op='rollup',step='ahead'*/`
)

// maxRollupsAhead bounds the list: those that are furthest ahead.
const maxRollupsAhead = 1000

// ComparisonsAhead lists the rollups that end later than now, which is the
// server's time, the furthest first: without what is in them.
func (s *Store) ComparisonsAhead(ctx context.Context) (now time.Time, all []holdover.Comparison, err error) {
	const op = "read the clock of rollups"
	if err = s.read(ctx, s.control, op, holdover.Token{}, func(r *sql.Rows) error { return r.Scan(&now) }, stmtClock); err != nil {
		return now, nil, err
	}
	err = s.read(ctx, s.control, op, holdover.Token{}, func(r *sql.Rows) error {
		var c holdover.Comparison
		var run []byte
		err := r.Scan(&run, &c.Seq, &c.Pod, &c.Instance, &c.From, &c.To)
		c.Run = string(run)
		all = append(all, c)
		return err
	}, stmtRollupsAhead, now, now, maxRollupsAhead)
	return now, all, err
}
