package devstack

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// startMySQL starts the server, or looks at the user's own, and creates the schemas.
func (s *Stack) startMySQL(ctx context.Context) error {
	admin := mysql.NewConfig()
	suffix := ""
	if s.cfg.MySQLDSN != "" {
		own, err := mysql.ParseDSN(s.cfg.MySQLDSN)
		if err != nil {
			return fmt.Errorf("devstack: the MySQL DSN: %w (its form is user:password@tcp(host:port)/)", err)
		}
		admin = own
		random := make([]byte, 4)
		rand.Read(random)
		suffix = "_" + hex.EncodeToString(random)
	} else {
		port, err := s.startOwnMySQL(ctx)
		if err != nil {
			return err
		}
		admin.User, admin.Net, admin.Addr = "root", "tcp", fmt.Sprintf("127.0.0.1:%d", port)
	}
	admin.DBName = ""
	s.admin = admin.FormatDSN()
	for _, pod := range s.cfg.Pods {
		s.schemas[pod] = "holdover_" + sanitize(pod) + suffix
		one := admin.Clone()
		one.DBName = s.schemas[pod]
		s.dsns[pod] = one.FormatDSN()
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	db, err := openMySQL(admin)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&s.versions.MySQL); err != nil {
		return fmt.Errorf("devstack: ask the MySQL at %s for its version: %w", admin.Addr, err)
	}
	s.versions.MariaDB = strings.Contains(s.versions.MySQL, "MariaDB")
	s.created = s.mysql == nil // before the first is, so that a failure half way drops it
	for _, pod := range s.cfg.Pods {
		if _, err := db.ExecContext(ctx, "CREATE DATABASE `"+s.schemas[pod]+"` CHARACTER SET utf8mb4"); err != nil {
			return fmt.Errorf("devstack: create schema %s at %s: %w", s.schemas[pod], admin.Addr, err)
		}
	}
	kind := "MySQL"
	if s.versions.MariaDB {
		kind = "MariaDB"
	}
	s.log("devstack: %s %s on %s", kind, s.versions.MySQL, admin.Addr)
	return nil
}

func (s *Stack) startOwnMySQL(ctx context.Context) (port int, err error) {
	p, err := findMySQL(ctx)
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(s.dir, "mysql")
	if err := s.dataDir(ctx, p, dir); err != nil {
		return 0, err
	}
	s.mysql = &instance{
		name: filepath.Base(p.path), dir: dir, logPath: dir + ".log", janitor: s.janitor, timeout: s.cfg.StartTimeout,
		args:  func(port int) []string { return p.args(dir, port, s.cfg.Unflushed) },
		ready: func(ctx context.Context, port int) error { return mysqlReady(ctx, port, dir) },
	}
	if err := s.mysql.start(ctx, p.path, true); err != nil {
		return 0, err
	}
	return s.mysql.port.number, nil
}

// args are the settings of the demo and the tests; "loose" ones are ignored by servers that don't have them.
func (p program) args(dir string, port int, unflushed bool) []string {
	args := append(p.commonArgs(dir),
		"--port="+strconv.Itoa(port), "--bind-address=127.0.0.1",
		"--socket=mysqld.sock", // relative to the data: an absolute path may be longer than the 107 bytes a socket may have
		"--pid-file="+filepath.Join(dir, "mysqld.pid"),
		"--server-id=1", "--log-bin=binlog", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1",
		"--innodb-buffer-pool-size=512M", "--max-connections=2000",
		"--max-connect-errors=1000000000", // clients that are killed on purpose must not get their host locked out
		"--performance-schema=ON",
		"--loose-performance-schema-error-size=0", // counters per error number and thread: filling them with zeros takes 0.9 s
		"--loose-mysqlx=OFF", "--loose-innodb-redo-log-capacity=512M",
		"--loose-auto-generate-certs=OFF", "--loose-caching-sha2-password-auto-generate-rsa-keys=OFF",
	)
	if unflushed {
		args = append(args, "--sync-binlog=0", "--innodb-flush-method=nosync") // the last of two settings counts
	}
	if !p.mariadb && strings.HasPrefix(p.version, "8.0.") {
		return append(args, "--binlog-format=ROW") // the default, but said; deprecated from 8.0.34 on, with the others gone
	}
	if p.mariadb {
		return append(args, "--binlog-format=ROW", "--innodb-log-file-size=256M") // MariaDB's default is MIXED
	}
	return args
}

func (p program) commonArgs(dir string) []string {
	args := []string{"--no-defaults", "--datadir=" + dir}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // it refuses to be root unless told
	}
	return args
}

// openMySQL opens a pool for a few queries. The driver's own log is off: attempts on a server that starts are no news.
func openMySQL(cfg *mysql.Config) (*sql.DB, error) {
	cfg = cfg.Clone()
	cfg.Logger = &mysql.NopLogger{}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("devstack: the MySQL DSN: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// mysqlReady asks for the data folder too: on a port that somebody else took just before us, somebody else answers.
func mysqlReady(ctx context.Context, port int, dir string) error {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = "root", "tcp", fmt.Sprintf("127.0.0.1:%d", port)
	db, err := openMySQL(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var got string
	if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&got); err != nil {
		return err
	}
	if filepath.Clean(got) != dir {
		return fmt.Errorf("another MySQL answers on %s", cfg.Addr)
	}
	return nil
}

// dropSchemas removes what Start created on the user's own server.
func (s *Stack) dropSchemas() error {
	cfg, err := mysql.ParseDSN(s.admin)
	if err != nil {
		return fmt.Errorf("devstack: the MySQL DSN: %w", err)
	}
	db, err := openMySQL(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	for _, schema := range s.schemas {
		if _, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+schema+"`"); err != nil {
			errs = append(errs, fmt.Errorf("devstack: schema %s is left at %s, drop it by hand: %w", schema, cfg.Addr, err))
		}
	}
	return errors.Join(errs...)
}
