package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"holdover"
)

// Decisions about reports, and what else a report tells of the agreement.
const (
	stmtSignOff = `INSERT INTO holdover_signoffs (pod, stage, epoch, digest, verdict, decision, signed_by, note, from_at, to_at, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(3)) /*app='holdover',op='signoff',step='write'*/`
	signOffColumns  = `SELECT pod, stage, epoch, digest, verdict, decision, signed_by, note, from_at, to_at, at FROM holdover_signoffs `
	stmtSignOffs    = signOffColumns + `WHERE at >= ? ORDER BY id /*app='holdover',op='signoff',step='list'*/`
	stmtSignOffLast = signOffColumns + `FORCE INDEX (holdover_signoffs_epoch) WHERE epoch = ? ORDER BY id DESC LIMIT 1 /*app='holdover',op='signoff',step='last'*/`

	stmtFencesBefore = `SELECT seq, pod, epoch, stage, latched, changed_by, reason, at FROM holdover_audit FORCE INDEX (PRIMARY)
WHERE seq < ? ORDER BY seq DESC LIMIT ? /*app='holdover',op='fence',step='page'*/`
	stmtVerifiedSince = `SELECT * FROM ((SELECT seq` + verifiedColumns + `FORCE INDEX (PRIMARY) WHERE at < ? ORDER BY seq DESC LIMIT 1)
UNION ALL (SELECT seq` + verifiedColumns + `WHERE at >= ?)) u ORDER BY place /*app='holdover',op='verified',step='since'*/`

	// Whether anything was compared in a stage by a rollup that began in the period.
	stmtCompared = `SELECT EXISTS (SELECT 1 FROM holdover_rollups r FORCE INDEX (holdover_rollups_from)
STRAIGHT_JOIN holdover_rollup_cells c FORCE INDEX (PRIMARY) ON c.rollup = r.id AND c.stage = ? AND c.compared > 0
WHERE r.from_at >= ? AND r.from_at < ?) /*app='holdover',op='signoff',step='compared'*/`
	stmtDrillsSince = `SELECT pod, at, drilled_by, reason, from_stage, epoch, kill_ms, restore_ms, instances, missing, ok, problem
FROM holdover_drills FORCE INDEX (PRIMARY) WHERE at >= ? ORDER BY seq /*app='holdover',op='drill',step='since'*/`
)

// The decisions of a sign-off.
const (
	DecisionGo   = "go"
	DecisionNoGo = "no-go"
)

// maxNote is how long the note of a decision may be, in characters.
const maxNote = 2000

// SignOff keeps a decision about a report. Its time is the server's; d.At is
// not used. After an unknown outcome look at SignOffs before signing again.
func (s *Store) SignOff(ctx context.Context, d holdover.SignOff) error {
	bad := func(field, value, problem string) error {
		return &holdover.InvalidError{Field: "sign-off " + field, Value: value, Problem: problem}
	}
	switch {
	case d.Pod != s.cfg.Pod:
		return bad("pod", d.Pod, "is not the pod of this MySQL, "+s.cfg.Pod)
	case d.Decision != DecisionGo && d.Decision != DecisionNoGo:
		return bad("decision", d.Decision, "must be go or no-go")
	case d.As == "":
		return bad("name", "", "is missing: who signs?")
	case utf8.RuneCountInString(d.Note) > maxNote: // cut off it would not say what was waived
		return bad("note", fmt.Sprintf("%.20s...", d.Note), fmt.Sprintf("is longer than %d characters, with the waivers and the override that are kept in it", maxNote))
	case d.Digest == "" || d.Verdict == "":
		return bad("digest", d.Digest, "and verdict of the report are missing")
	case !storable(d.From) || !storable(d.To):
		return bad("period", fmt.Sprintf("%s to %s", d.From, d.To), "is not a report's")
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "sign a report", holdover.Token{}, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, stmtSignOff, d.Pod, d.Stage.String(), uint64(d.Epoch), clip(d.Digest, 128), clip(d.Verdict, 16),
			d.Decision, clip(d.As, 255), d.Note, d.From, d.To)
		return err
	})
}

// SignOffs lists the decisions since then, the oldest first.
func (s *Store) SignOffs(ctx context.Context, since time.Time) (all []holdover.SignOff, err error) {
	err = s.read(ctx, s.control, "list sign-offs", holdover.Token{}, signOffScan(&all), stmtSignOffs, since)
	return all, err
}

// LastSignOff is the newest decision that was taken at this epoch; false: none.
func (s *Store) LastSignOff(ctx context.Context, epoch holdover.Epoch) (holdover.SignOff, bool, error) {
	var all []holdover.SignOff
	err := s.read(ctx, s.control, "read the last sign-off", holdover.Token{}, signOffScan(&all), stmtSignOffLast, uint64(epoch))
	if err != nil || len(all) == 0 {
		return holdover.SignOff{}, false, err
	}
	return all[0], true, nil
}

func signOffScan(all *[]holdover.SignOff) func(*sql.Rows) error {
	return func(r *sql.Rows) (err error) {
		var d holdover.SignOff
		var stage string
		if err := r.Scan(&d.Pod, &stage, &d.Epoch, &d.Digest, &d.Verdict, &d.Decision, &d.As, &d.Note, &d.From, &d.To, &d.At); err != nil {
			return err
		}
		if stage != holdover.StageUnknown.String() { // signed before the pod was begun
			if d.Stage, err = holdover.ParseStage(stage); err != nil {
				return err
			}
		}
		*all = append(*all, d)
		return nil
	}
}

// fencePage is how many fences are read at a time.
const fencePage = 200

// FencesSince lists the fences that were written since then and the one that was
// in force before, the oldest first.
func (s *Store) FencesSince(ctx context.Context, since time.Time) ([]holdover.Fence, error) {
	var newest []holdover.Fence
	before := uint64(1) << 63
	for {
		n := 0
		err := s.read(ctx, s.control, "read the audit", holdover.Token{}, func(r *sql.Rows) error {
			n++
			var f holdover.Fence
			var stage string
			err := r.Scan(&before, &f.Pod, &f.Epoch, &stage, &f.Latched, &f.By, &f.Reason, &f.At)
			if err != nil {
				return err
			}
			f.Stage, err = holdover.ParseStage(stage)
			newest = append(newest, f)
			return err
		}, stmtFencesBefore, before, fencePage)
		if err != nil {
			return nil, err
		}
		past := 0 // those beyond the one in force
		for past < len(newest) && !newest[past].At.Before(since) {
			past++
		}
		if past < len(newest) || n < fencePage {
			newest = newest[:min(past+1, len(newest))]
			break
		}
	}
	slices.Reverse(newest)
	return newest, nil
}

// VerifiedSince lists the verifications that ended since then and the last one
// before, the oldest first: as many as are kept.
func (s *Store) VerifiedSince(ctx context.Context, since time.Time) (all []holdover.Verified, err error) {
	err = s.read(ctx, s.control, "list verifications", holdover.Token{}, func(r *sql.Rows) error {
		var seq uint64
		var v holdover.Verified
		err := r.Scan(&seq, &v.Pod, &v.At, &v.Epoch, &v.RedisID, &v.Clean, &v.Differences, &v.Unsettled, &v.Summary, &v.By)
		all = append(all, v)
		return err
	}, stmtVerifiedSince, since, since)
	return all, err
}

// Compared reports whether a rollup that began in [since, until) has compared an
// operation in the stage.
func (s *Store) Compared(ctx context.Context, stage holdover.Stage, since, until time.Time) (yes bool, err error) {
	err = s.read(ctx, s.control, "look for comparisons", holdover.Token{}, func(r *sql.Rows) error { return r.Scan(&yes) },
		stmtCompared, stage.String(), since, until)
	return yes, err
}

// DrillsSince lists the drills that ended since then, the oldest first.
func (s *Store) DrillsSince(ctx context.Context, since time.Time) (all []holdover.Drill, err error) {
	err = s.read(ctx, s.control, "list drills", holdover.Token{}, func(r *sql.Rows) error {
		var stage string
		var d holdover.Drill
		err := r.Scan(&d.Pod, &d.At, &d.By, &d.Reason, &stage, &d.Epoch, &d.KillMS, &d.RestoreMS, &d.Instances, &d.Missing, &d.OK, &d.Problem)
		if err == nil {
			d.From, err = holdover.ParseStage(stage)
		}
		all = append(all, d)
		return err
	}, stmtDrillsSince, since)
	return all, err
}
