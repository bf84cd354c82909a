package mysqlpool

import (
	"context"
	"database/sql"

	"holdover"
)

// Outcomes of rehearsed kills.
const (
	stmtDrillRecord = `INSERT INTO holdover_drills
(pod, at, drilled_by, reason, from_stage, epoch, kill_ms, restore_ms, instances, missing, ok, problem)
VALUES (?, UTC_TIMESTAMP(3), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /*app='holdover',op='drill',step='record'*/`
	drillColumns  = ` AS place, pod, at, drilled_by, reason, from_stage, epoch, kill_ms, restore_ms, instances, missing, ok, problem FROM holdover_drills `
	stmtDrillLast = `SELECT * FROM ((SELECT 0` + drillColumns + `FORCE INDEX (PRIMARY) ORDER BY seq DESC LIMIT 1)
UNION ALL (SELECT 1` + drillColumns + `FORCE INDEX (holdover_drills_ok) WHERE ok = 1 ORDER BY seq DESC LIMIT 1)) u /*app='holdover',op='drill',step='last'*/`
)

// RecordDrill keeps the outcome of one drill. Its time is the server's; d.At is
// not used.
func (s *Store) RecordDrill(ctx context.Context, d holdover.Drill) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "record a drill", holdover.Token{}, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, stmtDrillRecord, s.cfg.Pod, clip(d.By, 255), clip(d.Reason, 1000), d.From.String(), uint64(d.Epoch),
			d.KillMS, d.RestoreMS, d.Instances, clip(d.Missing, 1000), d.OK, clip(d.Problem, 1000))
		return err
	})
}

// LastDrill returns the newest drill and the newest that passed, zero (At is the
// zero time) when there is none.
func (s *Store) LastDrill(ctx context.Context) (last, passed holdover.Drill, err error) {
	var found [2]holdover.Drill
	err = s.read(ctx, s.control, "read the last drill", holdover.Token{}, func(r *sql.Rows) error {
		var place int
		var stage string
		var d holdover.Drill
		err := r.Scan(&place, &d.Pod, &d.At, &d.By, &d.Reason, &stage, &d.Epoch, &d.KillMS, &d.RestoreMS, &d.Instances, &d.Missing, &d.OK, &d.Problem)
		if err != nil {
			return err
		}
		if d.From, err = holdover.ParseStage(stage); err != nil {
			return err
		}
		found[place] = d
		return nil
	}, stmtDrillLast)
	return found[0], found[1], err
}
