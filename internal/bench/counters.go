package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// What the server counts itself. MySQL's deadlocks are in another table than
	// MariaDB's.
	stmtCountersMySQL = `SELECT 'deadlocks', COUNT FROM information_schema.innodb_metrics WHERE NAME = 'lock_deadlocks'
UNION ALL SELECT 'waits', VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Innodb_row_lock_waits'`
	stmtCountersMariaDB = `SELECT IF(VARIABLE_NAME = 'INNODB_DEADLOCKS', 'deadlocks', 'waits'), VARIABLE_VALUE
FROM information_schema.global_status WHERE VARIABLE_NAME IN ('INNODB_DEADLOCKS', 'INNODB_ROW_LOCK_WAITS')`

	stmtHistoryMySQL   = `SELECT COUNT FROM information_schema.innodb_metrics WHERE NAME = 'trx_rseg_history_len'`
	stmtHistoryMariaDB = `SELECT VARIABLE_VALUE FROM information_schema.global_status WHERE VARIABLE_NAME = 'INNODB_HISTORY_LIST_LENGTH'`

	stmtConnectionsMySQL   = `SELECT COUNT(*) FROM performance_schema.processlist WHERE DB = ? AND ID <> ?`
	stmtConnectionsMariaDB = `SELECT COUNT(*) FROM information_schema.processlist WHERE DB = ? AND ID <> ?`

	stmtVariables = `SELECT @@sync_binlog, @@innodb_flush_log_at_trx_commit, @@log_bin, @@max_connections`
)

// counted is a reading of the server's own counters.
type counted struct{ deadlocks, waits int64 }

func (s *servers) counters(ctx context.Context) (c counted, err error) {
	q := stmtCountersMySQL
	if s.mariadb {
		q = stmtCountersMariaDB
	}
	rows, err := s.admin.QueryContext(ctx, q)
	if err != nil {
		return c, fmt.Errorf("bench: read MySQL's counters of locks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return c, err
		}
		if name == "deadlocks" {
			c.deadlocks = n
		} else {
			c.waits = n
		}
	}
	return c, rows.Err()
}

// history is the length of the history list: transactions whose old versions
// purge has not removed.
func (s *servers) history(ctx context.Context) (n int64, err error) {
	q := stmtHistoryMySQL
	if s.mariadb {
		q = stmtHistoryMariaDB
	}
	if err = s.admin.QueryRowContext(ctx, q).Scan(&n); err != nil {
		err = fmt.Errorf("bench: read MySQL's history list length: %w", err)
	}
	return n, err
}

// connections asks the servers how many connections the way has there. Of
// Redis's, base were open before; of MySQL's, own is the bench's.
func (s *servers) connections(ctx context.Context, base, own int64) (mysql, redis int64, err error) {
	q := stmtConnectionsMySQL
	if s.mariadb {
		q = stmtConnectionsMariaDB
	}
	if err = s.admin.QueryRowContext(ctx, q, s.mysql.DBName, own).Scan(&mysql); err != nil {
		return 0, 0, fmt.Errorf("bench: count the connections to MySQL: %w", err)
	}
	all, err := s.redisConnections(ctx)
	return mysql, max(0, all-base), err
}

func (s *servers) redisConnections(ctx context.Context) (n int64, err error) {
	info, err := s.redis.Info(ctx, "clients").Result()
	if err != nil {
		return 0, fmt.Errorf("bench: count the connections to Redis: %w", err)
	}
	_, after, _ := strings.Cut(info, "connected_clients:")
	_, err = fmt.Sscan(after, &n)
	return n, err
}

// durability reads what the servers promise after an answer. A Redis that
// refuses CONFIG is described by question marks.
func (s *servers) durability(ctx context.Context) (d Durability, maxConnections int, err error) {
	if err := s.admin.QueryRowContext(ctx, stmtVariables).Scan(&d.SyncBinlog, &d.FlushLog, &d.LogBin, &maxConnections); err != nil {
		return d, 0, fmt.Errorf("bench: read MySQL's settings: %w", err)
	}
	d.AppendOnly, d.AppendFsync = "?", "?"
	for name, field := range map[string]*string{"appendonly": &d.AppendOnly, "appendfsync": &d.AppendFsync} {
		if v, err := s.redis.ConfigGet(ctx, name).Result(); err == nil && v[name] != "" {
			*field = v[name]
		}
	}
	return d, maxConnections, nil
}

// roundTrips measures the median round trip to either server, in µs.
func (s *servers) roundTrips(ctx context.Context) (mysqlUs, redisUs float64, err error) {
	conn, err := s.admin.Conn(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("bench: connect to MySQL: %w", err)
	}
	defer conn.Close()
	ask := func(f func() error) float64 {
		times := make([]float64, 200)
		for i := range times {
			began := time.Now()
			err = errors.Join(err, f())
			times[i] = float64(time.Since(began)) / 1000
		}
		return median(times)
	}
	mysqlUs = ask(func() error { return selectOne(ctx, conn) })
	redisUs = ask(func() error { return s.redis.Ping(ctx).Err() })
	return mysqlUs, redisUs, err
}

func selectOne(ctx context.Context, conn *sql.Conn) (err error) {
	var one int
	return conn.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// perItem reads one number for each item, in the order of items 1..n.
func (s *servers) perItem(ctx context.Context, n int, query string, args ...any) ([]int64, error) {
	values := make([]int64, n)
	rows, err := s.scratch.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("bench: count in schema %s: %w", s.mysql.DBName, err)
	}
	defer rows.Close()
	for rows.Next() {
		var item, units int64
		if err := rows.Scan(&item, &units); err != nil {
			return nil, err
		}
		if item < 1 || item > int64(n) {
			return nil, fmt.Errorf("bench: item %d is in the store and not in the stock of %d items", item, n)
		}
		values[item-1] += units
	}
	return values, rows.Err()
}

func (s *servers) one(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err = s.scratch.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		err = fmt.Errorf("bench: count in schema %s: %w", s.mysql.DBName, err)
	}
	return n, err
}

func add(a, b []int64) []int64 {
	sum := slices.Clone(a)
	for i, n := range b {
		sum[i] += n
	}
	return sum
}

// watch asks the servers for the number of connections every 100 ms, until the
// returned function is called; it returns the most.
func (s *servers) watch(ctx context.Context, redisBefore int64) func() (mysql, redis int64, err error) {
	own, err := s.one(ctx, "SELECT CONNECTION_ID()")
	stop, done := make(chan struct{}), make(chan struct{})
	var mysql, redis int64
	look := func() {
		m, r, lookErr := s.connections(ctx, redisBefore, own)
		if lookErr != nil {
			err = lookErr
			return
		}
		mysql, redis = max(mysql, m), max(redis, r)
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				look()
				return
			case <-tick.C:
				look()
			}
		}
	}()
	return func() (int64, int64, error) {
		close(stop)
		<-done
		if err != nil {
			err = fmt.Errorf("bench: while connections were counted: %w", err)
		}
		return mysql, redis, err
	}
}
