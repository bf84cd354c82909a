package mysqlpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// server is what the first connection found out.
type server struct {
	version     string
	mariadb     bool
	waitTimeout time.Duration
}

// connector opens connections with the session settings of the server's
// dialect. The dialect is found out by a plain connection on first use, so that
// a Store can be made while the server is away.
type connector struct {
	base     *mysql.Config
	lockWait time.Duration
	mdlWait  time.Duration
	found    *atomic.Pointer[server] // shared by the pools of one Store
	inner    atomic.Pointer[driver.Connector]
	onFound  func(server)
	check    func(context.Context, *sql.DB) error // of a server that was not seen before
}

// Connect opens one connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if inner := c.inner.Load(); inner != nil {
		return (*inner).Connect(ctx)
	}
	srv := c.found.Load()
	if srv == nil {
		detected, err := detect(ctx, c.base, c.check)
		if err != nil {
			return nil, err
		}
		srv = &detected
		c.found.Store(srv)
	}
	cfg := c.base.Clone()
	c.settings(cfg, srv.mariadb)
	inner, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	c.onFound(*srv)
	c.inner.Store(&inner) // two first callers make two equal ones: harmless
	return inner.Connect(ctx)
}

// Driver returns the underlying driver.
func (c *connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

// settings writes everything that correctness depends on into the connection's
// configuration: the driver sends it before the first statement of every
// connection, and nothing in this package changes it afterwards.
func (c *connector) settings(cfg *mysql.Config, mariadb bool) {
	params := map[string]string{
		"autocommit":               "1",
		"time_zone":                "'+00:00'",
		"sql_mode":                 "'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
		"innodb_lock_wait_timeout": seconds(c.lockWait),
		"lock_wait_timeout":        seconds(c.mdlWait), // metadata locks: a migration must not hang a buyer
	}
	isolation := "transaction_isolation"
	if mariadb {
		isolation = "tx_isolation" // the newer name came with MariaDB 11.1
	}
	// REPEATABLE READ would lock the gap at the end of a short pool, and with it the refill.
	params[isolation] = "'READ-COMMITTED'"
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	for _, other := range []string{"transaction_isolation", "tx_isolation"} {
		delete(cfg.Params, other)
	}
	for k, v := range params {
		cfg.Params[k] = v
	}
}

func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// tuned returns the DSN's configuration with the driver's switches set.
func tuned(dsn *mysql.Config, dial time.Duration, log *slog.Logger) *mysql.Config {
	cfg := dsn.Clone()
	cfg.InterpolateParams = true // one round trip a statement instead of two
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.CheckConnLiveness = true
	cfg.MultiStatements = true // several statements in one round trip; values are parameters, never text
	cfg.ClientFoundRows = false
	cfg.RejectReadOnly = false // done in transact, where the server's message is kept
	cfg.Logger = driverLog{log}
	if cfg.Timeout == 0 {
		cfg.Timeout = dial
	}
	return cfg
}

// driverLog takes the driver's remarks about broken connections. The same
// errors are returned to the caller, so these are details.
type driverLog struct{ log *slog.Logger }

func (d driverLog) Print(v ...any) { d.log.Debug("mysql driver", "detail", fmt.Sprint(v...)) }

func detect(ctx context.Context, base *mysql.Config, check func(context.Context, *sql.DB) error) (server, error) {
	var srv server
	inner, err := mysql.NewConnector(base)
	if err != nil {
		return srv, err
	}
	db := sql.OpenDB(inner)
	defer db.Close()
	var wait int64
	if err := db.QueryRowContext(ctx, stmtServer).Scan(&srv.version, &wait); err != nil {
		return srv, err
	}
	srv.waitTimeout = time.Duration(wait) * time.Second
	srv.mariadb = strings.Contains(srv.version, "MariaDB")
	major, minor := versionOf(srv.version)
	switch {
	case srv.mariadb && (major < 10 || major == 10 && minor < 6):
		return srv, fmt.Errorf("the server is MariaDB %s: 10.6 or newer is needed for SKIP LOCKED", srv.version)
	case !srv.mariadb && major < 8:
		return srv, fmt.Errorf("the server is MySQL %s: 8.0 or newer is needed for SKIP LOCKED", srv.version)
	}
	return srv, check(ctx, db)
}

func versionOf(v string) (major, minor int) {
	v = strings.TrimPrefix(v, "5.5.5-") // an old replication prefix of MariaDB
	parts := strings.SplitN(v, ".", 3)
	if len(parts) > 1 {
		major, _ = strconv.Atoi(parts[0])
		minor, _ = strconv.Atoi(parts[1])
	}
	return major, minor
}

// lifetimes keeps connections younger than the server's patience with idle
// ones, so that the pool never hands out one that the server has closed.
func lifetimes(db *sql.DB, srv server) {
	idle := 3 * time.Minute
	if srv.waitTimeout > 0 {
		idle = min(idle, srv.waitTimeout/2)
	}
	db.SetConnMaxIdleTime(idle)
	db.SetConnMaxLifetime(30 * time.Minute)
}
