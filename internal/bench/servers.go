package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"holdover/internal/devstack"
	"holdover/mysqlpool"
)

// pod is the name of the bench's one pod. Its schema is made for the run, by
// this run: one that exists is never used.
const pod = "bench"

// servers are the two servers of a run, the scratch schema and the prefix of
// the scratch keys.
type servers struct {
	stack   *devstack.Stack
	mysql   *mysql.Config // with the scratch schema
	admin   *sql.DB       // of the bench itself, in no schema
	scratch *sql.DB       // the bench's one connection in the scratch schema
	redis   *redis.Client
	addr    string // of Redis
	prefix  string // of every key
	mariadb bool
	tables  []string
}

// serverTimeout bounds each of the bench's own questions to a server.
const serverTimeout = 60 * time.Second

func startServers(ctx context.Context, cfg Config) (s *servers, err error) {
	stackCfg := devstack.Config{Pods: []string{pod}, MySQLDSN: cfg.MySQLDSN, Log: lines{cfg.Progress}}
	if cfg.RedisAddr != "" {
		stackCfg.RedisAddrs = map[string]string{pod: cfg.RedisAddr}
	}
	stack, err := devstack.Start(ctx, stackCfg)
	if err != nil {
		return nil, err
	}
	s = &servers{stack: stack, addr: stack.RedisAddr(pod), mariadb: stack.Versions().MariaDB}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.mysql, err = mysql.ParseDSN(stack.MySQLDSN(pod)); err != nil {
		return nil, fmt.Errorf("bench: the MySQL DSN: %w", err)
	}
	s.prefix = "holdover-bench:" + s.mysql.DBName + ":"
	s.mysql.InterpolateParams, s.mysql.MultiStatements = true, true
	s.mysql.Timeout, s.mysql.ReadTimeout, s.mysql.WriteTimeout = 10*time.Second, serverTimeout, serverTimeout
	s.mysql.Logger = &mysql.NopLogger{} // its remarks are about connections that the bench closes
	outside := s.mysql.Clone()
	outside.DBName = ""
	if s.admin, err = openPlain(outside); err != nil {
		return nil, err
	}
	if s.scratch, err = openPlain(s.mysql.Clone()); err != nil {
		return nil, err
	}
	s.scratch.SetMaxOpenConns(1)
	s.redis = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, PoolSize: 2, ReadTimeout: serverTimeout, DisableIdentity: true})
	return s, s.makeTables(ctx)
}

func openPlain(cfg *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("bench: the MySQL DSN: %w", err)
	}
	return sql.OpenDB(connector), nil
}

func (s *servers) makeTables(ctx context.Context) error {
	if _, err := mysqlpool.Migrate(ctx, s.stack.MySQLDSN(pod)); err != nil {
		return err
	}
	for _, statement := range []string{createStock, createHolds, createUnits, createClaims, createTake, createDigits, insertDigits} {
		if _, err := s.scratch.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("bench: make the competitors' tables in schema %s: %w", s.mysql.DBName, err)
		}
	}
	rows, err := s.scratch.QueryContext(ctx, stmtTables)
	if err != nil {
		return fmt.Errorf("bench: list the tables of schema %s: %w", s.mysql.DBName, err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		s.tables = append(s.tables, name)
	}
	return rows.Err()
}

// Tables whose rows come and go with the calls. A few thousand are deleted in
// one transaction, which purge works off at once; more are truncated, with
// whatever was deleted from them before.
var (
	callTables = []string{"bench_holds", "bench_claims", "reserved_quantities", "ledger_entries"}
	unitTables = []string{"bench_units", "reservation_units"} // emptied row by row
)

const fewRows = 2000

// empty removes what the last turn left, and lets purge come to rest, so that
// no competitor pays for another's rows.
func (s *servers) empty(ctx context.Context) error {
	var few []string // one commit for all of them
	anyMany := false
	for _, table := range s.tables {
		if slices.Contains(unitTables, table) {
			continue
		}
		n, err := s.one(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" LIMIT ?) some", fewRows+1)
		if err != nil {
			return err
		}
		if many := n > fewRows && slices.Contains(callTables, table); many {
			anyMany = true
			if err := s.truncate(ctx, table); err != nil {
				return err
			}
		} else if n > 0 {
			few = append(few, table)
		}
	}
	for _, table := range unitTables {
		if !anyMany {
			few = append(few, table)
		} else if err := s.truncate(ctx, table); err != nil {
			return err
		}
	}
	if len(few) > 0 {
		if err := begun(ctx, s.scratch, nil, beginTx+"DELETE FROM "+strings.Join(few, "; DELETE FROM ")+"; "+commitTx); err != nil {
			return fmt.Errorf("bench: empty the tables of schema %s: %w", s.mysql.DBName, err)
		}
	}
	if err := s.emptyRedis(ctx); err != nil {
		return err
	}
	return s.rest(ctx, time.Second)
}

func (s *servers) truncate(ctx context.Context, table string) error {
	if _, err := s.scratch.ExecContext(ctx, "TRUNCATE TABLE "+table); err != nil {
		return fmt.Errorf("bench: empty table %s: %w", table, err)
	}
	return nil
}

// restLength is a history list that purge has nearly worked off: on a server
// that has nothing else to do it leaves the rest alone.
const restLength = 1000

// rest waits until purge has little left to do, for at most d.
func (s *servers) rest(ctx context.Context, d time.Duration) error {
	deadline := time.Now().Add(d)
	for {
		n, err := s.history(ctx)
		if err != nil || n <= restLength || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func (s *servers) emptyRedis(ctx context.Context) error {
	var cursor uint64
	for {
		keys, next, err := s.redis.Scan(ctx, cursor, s.prefix+"*", 5000).Result()
		if err == nil && len(keys) > 0 {
			err = s.redis.Unlink(ctx, keys...).Err()
		}
		if err != nil {
			return fmt.Errorf("bench: remove the keys %s* from Redis at %s: %w", s.prefix, s.addr, err)
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// close drops what the run made and ends what it started.
func (s *servers) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	var errs []error
	if s.redis != nil {
		errs = append(errs, s.emptyRedis(ctx), s.redis.Close())
	}
	for _, db := range []*sql.DB{s.scratch, s.admin} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, s.stack.Close())...)
}

// lines indents what a part reports, a line at a time.
type lines struct{ to io.Writer }

func (l lines) Write(p []byte) (int, error) {
	if l.to == nil {
		return len(p), nil
	}
	for line := range strings.Lines(string(p)) {
		if _, err := io.WriteString(l.to, "  "+line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// median of an unsorted list; of an even number the lower middle; zero of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
