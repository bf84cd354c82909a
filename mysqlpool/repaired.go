package mysqlpool

import (
	"context"
	"database/sql"
	"time"

	"holdover"
)

// One row for each pass of somebody over one store: a pass may change tens of
// thousands of holds, and a report needs none of them by name.
const stmtRepairedBetween = `SELECT pod, epoch, repaired_by, reason, store, GROUP_CONCAT(DISTINCT action ORDER BY action SEPARATOR ', '),
MIN(at), MAX(at), COUNT(*), COUNT(CASE WHEN outcome LIKE 'done%' THEN 1 END)
FROM holdover_repairs WHERE at >= ? AND at < ? GROUP BY pod, epoch, repaired_by, reason, store
ORDER BY MIN(seq) DESC LIMIT ? /*app='holdover',op='repair',step='sum'*/`

// Repaired sums up what one person did to one store for one reason at one epoch.
type Repaired struct {
	Pod         string
	Epoch       holdover.Epoch
	By, Reason  string
	Store       holdover.Store
	Actions     string    // what was done there, separated by commas
	First, Last time.Time // when the first and the last of it began, the server's clock
	Begun, Done uint64    // what is begun and not done was left, failed, or is not known
}

// RepairedBetween sums up the repairs that began from since until before until,
// the newest first and at most limit rows.
func (s *Store) RepairedBetween(ctx context.Context, since, until time.Time, limit int) (all []Repaired, err error) {
	err = s.read(ctx, s.control, "sum up repairs", holdover.Token{}, func(rows *sql.Rows) error {
		var r Repaired
		var store string
		if err := rows.Scan(&r.Pod, &r.Epoch, &r.By, &r.Reason, &store, &r.Actions, &r.First, &r.Last, &r.Begun, &r.Done); err != nil {
			return err
		}
		all = append(all, r)
		return all[len(all)-1].Store.UnmarshalText([]byte(store))
	}, stmtRepairedBetween, since, until, limit)
	return all, err
}
