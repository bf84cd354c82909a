package mysqlpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
)

// Store is one pod's MySQL: the unit pool, the ledger, the holds, MySQL's half
// of the fence and the journal. It is safe for concurrent use.
type Store struct {
	cfg     Config
	log     *slog.Logger
	main    *sql.DB
	control *sql.DB // fence, journal, trip
	found   atomic.Pointer[server]
	stats   counters
	ledger  *ledgerStatements

	demand    demand
	positions *positions
	life      context.Context // of shared transactions; over when the Store is closed
	stop      context.CancelFunc
	contended contended
	reserves  *batcher[wanted]
	claims    *batcher[endCall]
	ends      *batcher[endCall] // releases and expiries
	extends   *batcher[extendCall]
}

// Open prepares the connections. Unless cfg.LazyConnect is set it connects,
// and fails when the server is too old, does not give READ COMMITTED, or its
// schema is not migrated. The caller closes the Store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, dsn, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, log: cfg.Logger.With("pod", cfg.Pod, "store", "mysql")}
	s.ledger = cfg.Ledger.statements()
	s.demand.init()
	s.positions = newPositions()
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.reserves = batcherOf(s, cfg.BatchTransactions, s.reserveShared)
	s.claims = batcherOf(s, cfg.EndTransactions, s.endShare)
	s.ends = batcherOf(s, cfg.EndTransactions, s.endShare)
	s.extends = batcherOf(s, cfg.EndTransactions, s.extendShare)
	base := tuned(dsn, cfg.OpTimeout, s.log)
	s.main = s.pool(base, cfg.LockWait, cfg.MaxOpenConns, cfg.WrapConnector)
	s.control = s.pool(base, time.Second, controlConns, nil)
	if cfg.LazyConnect {
		return s, nil
	}
	if err := s.Check(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func batcherOf[C any](s *Store, slots int, run run[C]) *batcher[C] {
	begin := func() (context.Context, context.CancelFunc) { return s.deadline(s.life) }
	return newBatcher(s.cfg.BatchSize, slots, s.cfg.BatchQueue, begin, run)
}

func (s *Store) pool(base *mysql.Config, lockWait time.Duration, conns int, wrap func(driver.Connector) driver.Connector) *sql.DB {
	c := &connector{base: base, lockWait: lockWait, mdlWait: s.cfg.OpTimeout, found: &s.found, check: s.checkLedger}
	var outer driver.Connector = c
	if wrap != nil {
		outer = wrap(c)
	}
	db := sql.OpenDB(outer)
	c.onFound = func(srv server) { lifetimes(db, srv) }
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

// Check connects and verifies what the package relies on: the version, the
// session settings as the server has them, and the schema.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.main.PingContext(ctx); err != nil {
		return s.fail("connect", holdover.Token{}, err)
	}
	for _, db := range []*sql.DB{s.main, s.control} {
		var isolation string
		q := stmtIsolation
		if s.found.Load().mariadb {
			q = stmtIsolationMariaDB
		}
		if err := db.QueryRowContext(ctx, q).Scan(&isolation); err != nil {
			return s.fail("check the session", holdover.Token{}, err)
		}
		if isolation != "READ-COMMITTED" {
			return fmt.Errorf("mysql of pod %s: a session has isolation %s although READ-COMMITTED was asked for: connect without the proxy that changes it", s.cfg.Pod, isolation)
		}
	}
	want, err := newestVersion(s.cfg.Ledger)
	if err != nil {
		return err
	}
	var have int64
	err = s.main.QueryRowContext(ctx, stmtSchemaVersion).Scan(&have)
	var myErr *mysql.MySQLError
	switch {
	case errors.As(err, &myErr) && myErr.Number == errNoSuchTable:
	case err != nil:
		return s.fail("read the schema version", holdover.Token{}, err)
	}
	if have < want {
		return fmt.Errorf("mysql of pod %s: the schema is at version %d and %d is needed: run the migrations: %w", s.cfg.Pod, have, want, holdover.ErrNotReady)
	}
	return nil
}

// Close closes all connections. Calls that are under way fail.
func (s *Store) Close() error {
	s.stop()
	s.reserves.close()
	s.claims.close()
	s.ends.close()
	s.extends.close()
	// What they return is a goodbye that a broken connection did not take: nothing is left open.
	_, _ = s.main.Close(), s.control.Close()
	return nil
}

// Ping asks the server for a sign of life, on the main pool.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.main.PingContext(ctx); err != nil {
		return s.fail("ping", holdover.Token{}, err)
	}
	return nil
}

// Version returns the server's version and whether it is MariaDB.
func (s *Store) Version(ctx context.Context) (version string, mariadb bool, err error) {
	if srv := s.found.Load(); srv != nil {
		return srv.version, srv.mariadb, nil
	}
	if err := s.Ping(ctx); err != nil {
		return "", false, err
	}
	srv := s.found.Load()
	return srv.version, srv.mariadb, nil
}

// ServerUUID identifies the server process's data: two pods must not share one
// schema. MariaDB has no server_uuid; there it is host, port and data folder.
func (s *Store) ServerUUID(ctx context.Context) (string, error) {
	_, mariadb, err := s.Version(ctx)
	if err != nil {
		return "", err
	}
	q := stmtServerUUID
	if mariadb {
		q = stmtServerUUIDMariaDB
	}
	var id string
	err = s.read(ctx, s.control, "read the server's identity", holdover.Token{}, func(rows *sql.Rows) error { return rows.Scan(&id) }, q)
	return id, err
}

// Pod returns the name of the pod.
func (s *Store) Pod() string { return s.cfg.Pod }

func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.cfg.OpTimeout, errOpTimeout)
}

// counters are the store's own figures; see Stats.
type counters struct {
	deadlocks, lockWaits, retries              atomic.Int64
	grants, replays, refusals, short, decisive atomic.Int64
	refills, refilled, oversold, unknown       atomic.Int64
	split                                      atomic.Int64
}

// Stats are counts since Open, and the state of the main connection pool.
type Stats struct {
	Deadlocks     int64         `json:"deadlocks"`      // transactions that lost one (1213)
	LockWaits     int64         `json:"lock_waits"`     // row lock waits that ran out (1205)
	Retries       int64         `json:"retries"`        // transactions run again
	Grants        int64         `json:"grants"`         // new holds
	Replays       int64         `json:"replays"`        // holds that were there already
	Refusals      int64         `json:"refusals"`       // out of stock, by the ledger's word
	Short         int64         `json:"short"`          // a pool had too few rows that were not locked
	Decisive      int64         `json:"decisive"`       // reserves that took the item's lock
	Refills       int64         `json:"refills"`        // refills that added rows
	Refilled      int64         `json:"refilled"`       // rows added
	OversoldUnits int64         `json:"oversold_units"` // units that a claim owed and no location had
	Unknown       int64         `json:"unknown"`        // commits without an answer
	Split         int64         `json:"split"`          // shared transactions that were tried again in halves
	OpenConns     int           `json:"open_conns"`
	InUseConns    int           `json:"in_use_conns"`
	ConnWaits     int64         `json:"conn_waits"`
	ConnWait      time.Duration `json:"conn_wait_ns"`
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	c, db := &s.stats, s.main.Stats()
	return Stats{
		Deadlocks: c.deadlocks.Load(), LockWaits: c.lockWaits.Load(), Retries: c.retries.Load(),
		Grants: c.grants.Load(), Replays: c.replays.Load(), Refusals: c.refusals.Load(),
		Short: c.short.Load(), Decisive: c.decisive.Load(),
		Refills: c.refills.Load(), Refilled: c.refilled.Load(), OversoldUnits: c.oversold.Load(), Unknown: c.unknown.Load(), Split: c.split.Load(),
		OpenConns: db.OpenConnections, InUseConns: db.InUse, ConnWaits: db.WaitCount, ConnWait: db.WaitDuration,
	}
}
