package bench

import (
	"context"
	"database/sql"
	"errors"

	"holdover"
	"holdover/legacyredis"
)

// legacy is the whole system before the migration: a reserve in Redis, and a
// claim that deducts MySQL's ledger and then clears Redis. Its claim is the old
// one, without the mark that makes it safe: the fastest form there is.
type legacy struct {
	*redisPath
	db *sql.DB
}

// legacyRedisConns is as many as one Redis can use; more were no faster.
const legacyRedisConns = 64

func openLegacy(ctx context.Context, s *servers, set setting) (way, error) {
	if err := s.fillStock(ctx, set.stock); err != nil {
		return nil, err
	}
	db, err := s.open(ctx, set, nil)
	if err != nil {
		return nil, err
	}
	path, err := openRedisPath(ctx, s, set, legacyRedisConns, legacyLedger{db})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &legacy{path, db}, nil
}

// legacyLedger deducts a claim: the claim's record, by token, and then the
// item's row, so that its lock is held for nothing but the commit. One packet.
type legacyLedger struct{ db *sql.DB }

const insertClaim = `INSERT INTO bench_claims (token, item_id, quantity) VALUES (?, ?, ?)`

// Apply implements legacyredis.Ledger.
func (l legacyLedger) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	// Without the caller's deadline, which would cost the driver a goroutine for
	// each statement; the connection has one of its own.
	ctx = context.WithoutCancel(ctx)
	line := h.Lines[0]
	err := begun(ctx, l.db, nil, beginTx+insertClaim+"; "+takeStock+"; "+commitTx,
		h.Token[:], line.Item, line.Quantity, line.Quantity, line.Item)
	return h, err
}

func (w *legacy) claim(ctx context.Context, c *call) error {
	return w.path.LegacyClaim(ctx, legacyredis.LedgerFirst, 1, c.token, func() error { return nil })
}

func (w *legacy) close() error { return errors.Join(w.redisPath.close(), w.db.Close()) }

// count: holds are those that are live in Redis and the claims in MySQL.
func (w *legacy) count(ctx context.Context) (truth, error) {
	t, err := w.redisPath.count(ctx)
	if err != nil {
		return t, err
	}
	claims, err := w.servers.one(ctx, "SELECT COUNT(*) FROM bench_claims")
	if err != nil {
		return t, err
	}
	t.holds += claims
	left, err := w.servers.perItem(ctx, w.items, "SELECT item_id, available FROM bench_stock")
	if err != nil {
		return t, err
	}
	t.deducted = make([]int64, w.items)
	for i := range t.deducted {
		t.deducted[i] = w.stock[i] - left[i]
	}
	return t, nil
}
