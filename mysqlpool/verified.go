package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"holdover"
)

// Outcomes of verifications and what was repaired after them.
const (
	stmtVerifiedRecord = `INSERT INTO holdover_verifications
(pod, at, epoch, redis_id, clean, differences, unsettled, summary, verified_by)
VALUES (?, UTC_TIMESTAMP(3), ?, ?, ?, ?, ?, ?, ?) /*app='holdover',op='verified',step='record'*/`
	// Those before the first that is young enough: they are in the order of time. The
	// newest clean one stays, however old it is: readiness says its age.
	stmtVerifiedRetain = `DELETE v FROM (SELECT seq FROM holdover_verifications FORCE INDEX (PRIMARY)
WHERE at > UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND ORDER BY seq LIMIT 1) o` + verifiedOlder + `step='retain'*/`
	stmtVerifiedBound = `DELETE v FROM (SELECT seq FROM holdover_verifications FORCE INDEX (PRIMARY)
ORDER BY seq DESC LIMIT 1 OFFSET ?) o` + verifiedOlder + `step='bound'*/`
	verifiedOlder = `
JOIN (SELECT COALESCE(MAX(seq), 0) AS seq FROM holdover_verifications WHERE clean = 1) c
JOIN holdover_verifications v ON v.seq < o.seq AND v.seq <> c.seq /*app='holdover',op='verified',`
	verifiedColumns  = ` AS place, pod, at, epoch, redis_id, clean, differences, unsettled, summary, verified_by FROM holdover_verifications `
	stmtVerifiedLast = `SELECT * FROM ((SELECT 0` + verifiedColumns + `ORDER BY seq DESC LIMIT 1)
UNION ALL (SELECT 1` + verifiedColumns + `WHERE clean = 1 ORDER BY seq DESC LIMIT 1)) u /*app='holdover',op='verified',step='last'*/`

	stmtAloneSchema = `SELECT DATABASE() /*app='holdover',op='alone',step='schema'*/`
	stmtAloneLock   = `SELECT GET_LOCK(?, 0) /*app='holdover',op='alone',step='lock'*/`
	stmtAloneUnlock = `DO RELEASE_LOCK(?) /*app='holdover',op='alone',step='unlock'*/`

	stmtRepairBegin = `INSERT INTO holdover_repairs
(pod, epoch, at, repaired_by, reason, store, action, subject, before_it, after_it, outcome)
VALUES (?, ?, UTC_TIMESTAMP(3), ?, ?, ?, ?, ?, ?, ?, '') /*app='holdover',op='repair',step='begin'*/`
	stmtRepairEnd  = `UPDATE holdover_repairs SET outcome = ? WHERE seq = ? /*app='holdover',op='repair',step='end'*/`
	stmtRepairList = `SELECT seq, pod, epoch, at, repaired_by, reason, store, action, subject, before_it, after_it, outcome
FROM holdover_repairs ORDER BY seq DESC LIMIT ? /*app='holdover',op='repair',step='list'*/`
)

// keptVerifications bounds how many outcomes are kept, the newest clean one besides:
// one a minute for 69 days. Else they are kept as long as rollups: a report of a
// period has to say the same of it for as long as it can be made.
const keptVerifications = 100_000

// RecordVerified keeps the outcome of one verification. Its time is the
// server's; v.At is not used.
func (s *Store) RecordVerified(ctx context.Context, v holdover.Verified) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "record a verification", holdover.Token{}, func(ctx context.Context, t *tx) error {
		if _, err := t.exec(ctx, stmtVerifiedRecord, s.cfg.Pod, uint64(v.Epoch), clip(v.RedisID, 128), v.Clean,
			v.Differences, v.Unsettled, clip(v.Summary, 1000), clip(v.By, 255)); err != nil {
			return err
		}
		if s.cfg.ComparisonRetention >= 0 {
			if _, err := t.exec(ctx, stmtVerifiedRetain, s.cfg.ComparisonRetention.Microseconds()); err != nil {
				return err
			}
		}
		_, err := t.exec(ctx, stmtVerifiedBound, keptVerifications-1)
		return err
	})
}

// LastVerified returns the newest outcome and the newest clean one, zero (At is
// the zero time) when there is none.
func (s *Store) LastVerified(ctx context.Context) (last, clean holdover.Verified, err error) {
	var found [2]holdover.Verified
	err = s.read(ctx, s.control, "read the last verification", holdover.Token{}, func(r *sql.Rows) error {
		var place int
		var v holdover.Verified
		if err := r.Scan(&place, &v.Pod, &v.At, &v.Epoch, &v.RedisID, &v.Clean, &v.Differences, &v.Unsettled, &v.Summary, &v.By); err != nil {
			return err
		}
		found[place] = v
		return nil
	}, stmtVerifiedLast)
	return found[0], found[1], err
}

// Repair is one line of the repairs' audit.
type Repair struct {
	Seq     uint64         `json:"seq"`
	Pod     string         `json:"pod"`
	Epoch   holdover.Epoch `json:"epoch"`
	At      time.Time      `json:"at"` // when it began, the server's clock
	By      string         `json:"by"`
	Reason  string         `json:"reason"`
	Store   holdover.Store `json:"store"`   // which was changed
	Action  string         `json:"action"`  // what was done there
	Subject string         `json:"subject"` // the token, or shop and item
	Before  string         `json:"before"`
	After   string         `json:"after"`   // what it was to become
	Outcome string         `json:"outcome"` // empty: not known, the repairer died meanwhile
}

// BeginRepair writes r, without an outcome, before anything is changed, and
// returns its number for EndRepair.
func (s *Store) BeginRepair(ctx context.Context, r Repair) (seq uint64, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	res, err := s.control.ExecContext(ctx, stmtRepairBegin, s.cfg.Pod, uint64(r.Epoch), clip(r.By, 255), clip(r.Reason, 1000),
		r.Store.String(), clip(r.Action, 64), clip(r.Subject, 255), clip(r.Before, 2000), clip(r.After, 2000))
	if err != nil {
		return 0, s.fail("write the audit of a repair", holdover.Token{}, &serverError{err: timedOut(ctx, err), unknown: true})
	}
	id, err := res.LastInsertId()
	return uint64(id), err
}

// EndRepair writes how a repair ended.
func (s *Store) EndRepair(ctx context.Context, seq uint64, outcome string) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "write the audit of a repair", holdover.Token{}, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, stmtRepairEnd, clip(outcome, 1000), seq)
		return err
	})
}

// Repairs lists the last repairs, newest first.
func (s *Store) Repairs(ctx context.Context, limit int) (all []Repair, err error) {
	err = s.read(ctx, s.control, "list repairs", holdover.Token{}, func(rows *sql.Rows) error {
		var r Repair
		var store string
		if err := rows.Scan(&r.Seq, &r.Pod, &r.Epoch, &r.At, &r.By, &r.Reason, &store, &r.Action, &r.Subject, &r.Before, &r.After, &r.Outcome); err != nil {
			return err
		}
		all = append(all, r)
		return all[len(all)-1].Store.UnmarshalText([]byte(store))
	}, stmtRepairList, limit)
	return all, err
}

// Alone runs do unless another process runs something of this name on the same
// schema now: then it reports false. The lock is a connection's, and goes with it
// when this process dies.
func (s *Store) Alone(ctx context.Context, name string, do func(context.Context) error) (bool, error) {
	op := name + " alone"
	// Not of the main pool, from which do itself needs one.
	asking, cancel := s.deadline(ctx)
	defer cancel()
	conn, err := s.control.Conn(asking)
	if err != nil {
		return false, s.fail(op, holdover.Token{}, timedOut(asking, err))
	}
	defer conn.Close()
	var schema string
	if err := conn.QueryRowContext(asking, stmtAloneSchema).Scan(&schema); err != nil {
		return false, s.fail(op, holdover.Token{}, err)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, schema)
	lock := fmt.Sprintf("holdover.%s.%016x", name, h.Sum64()) // lock names are server-wide
	var got sql.NullInt64
	if err := conn.QueryRowContext(asking, stmtAloneLock, lock).Scan(&got); err != nil {
		return false, s.fail(op, holdover.Token{}, err)
	}
	if got.Int64 != 1 {
		return false, nil
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := conn.ExecContext(ctx, stmtAloneUnlock, lock); err != nil {
			discard(conn)
		}
	}()
	return true, do(ctx)
}
