package teststack

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// prepared keeps schemas whose tables are made and empty: making them takes longer than most tests.
var prepared struct {
	mu   sync.Mutex
	free []preparedSchema
}

// preparedSchema is a schema as prepare left it.
type preparedSchema struct {
	dsn    string
	tables []string
	rows   map[string]string // checksums of the tables in which prepare left rows
	shape  string
}

// PreparedDSN is MySQLDSN with what prepare makes of an empty schema; always give it the same prepare. Most tests get the
// schema of one that has ended, emptied: no other test uses it meanwhile, but numbers that count up go on. A schema whose
// tables were altered, or of which a row is gone that prepare left, is dropped and not used again.
func PreparedDSN(t testing.TB, prepare func(ctx context.Context, dsn string) error) string {
	t.Helper()
	s, ok := takePrepared()
	if !ok {
		cfg, err := createSchema(MustStack(t))
		if err != nil {
			t.Fatal(err)
		}
		s.dsn = cfg.FormatDSN()
		err = prepare(t.Context(), s.dsn)
		if err == nil {
			err = s.learn()
		}
		if err != nil {
			t.Fatalf("teststack: prepare a schema: %v", err)
		}
	}
	t.Cleanup(func() {
		if err := s.giveBack(); err != nil {
			t.Errorf("teststack: empty the test's schema (is the server stopped, or a transaction of the test still open?): %v", err)
		}
	})
	return s.dsn
}

func takePrepared() (s preparedSchema, ok bool) {
	prepared.mu.Lock()
	defer prepared.mu.Unlock()
	n := len(prepared.free)
	if n == 0 {
		return s, false
	}
	s, prepared.free = prepared.free[n-1], prepared.free[:n-1]
	return s, true
}

// learn notes what prepare left.
func (s *preparedSchema) learn() error {
	return s.with(func(ctx context.Context, conn *sql.Conn) (err error) {
		if s.tables, err = texts(ctx, conn, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"); err != nil {
			return err
		}
		if s.shape, err = shapeOf(ctx, conn); err != nil {
			return err
		}
		filled, err := s.filled(ctx, conn)
		if err != nil {
			return err
		}
		s.rows = map[string]string{}
		for _, table := range filled {
			if s.rows[table], err = checksum(ctx, conn, table); err != nil {
				return err
			}
		}
		return nil
	})
}

// giveBack empties the schema for the next test, or drops it when it is no longer what prepare left.
func (s *preparedSchema) giveBack() error {
	same := true
	err := s.with(func(ctx context.Context, conn *sql.Conn) error {
		shape, err := shapeOf(ctx, conn)
		if err != nil {
			return err
		}
		if shape != s.shape {
			same = false
			return nil
		}
		for table, want := range s.rows {
			got, err := checksum(ctx, conn, table)
			if err != nil {
				return err
			}
			if got != want {
				same = false
				return nil
			}
		}
		filled, err := s.filled(ctx, conn)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, "SET foreign_key_checks = 0"); err != nil {
			return err
		}
		for _, table := range filled {
			if s.rows[table] != "" {
				continue
			}
			if _, err := conn.ExecContext(ctx, "DELETE FROM `"+table+"`"); err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !same {
		return dropSchema(s.dsn)
	}
	prepared.mu.Lock()
	defer prepared.mu.Unlock()
	prepared.free = append(prepared.free, *s)
	return nil
}

// filled lists the tables that have rows.
func (s *preparedSchema) filled(ctx context.Context, conn *sql.Conn) ([]string, error) {
	var parts []string
	for _, table := range s.tables {
		parts = append(parts, fmt.Sprintf("SELECT '%s' FROM DUAL WHERE EXISTS (SELECT 1 FROM `%[1]s`)", table))
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return texts(ctx, conn, strings.Join(parts, " UNION ALL "))
}

// shapeOf is everything of a schema that a test can alter, as one text.
func shapeOf(ctx context.Context, conn *sql.Conn) (string, error) {
	lines, err := texts(ctx, conn, `SELECT CONCAT_WS('|', 'column', table_name, ordinal_position, column_name, column_type, is_nullable, column_default, extra)
  FROM information_schema.columns WHERE table_schema = DATABASE()
UNION ALL SELECT CONCAT_WS('|', 'key', table_name, index_name, seq_in_index, column_name, non_unique) FROM information_schema.statistics WHERE table_schema = DATABASE()
UNION ALL SELECT CONCAT_WS('|', 'trigger', trigger_name, action_statement) FROM information_schema.triggers WHERE trigger_schema = DATABASE()
UNION ALL SELECT CONCAT_WS('|', 'table', table_name, engine, table_collation) FROM information_schema.tables WHERE table_schema = DATABASE()
UNION ALL SELECT CONCAT_WS('|', 'constraint', table_name, constraint_name, constraint_type) FROM information_schema.table_constraints WHERE table_schema = DATABASE()
ORDER BY 1`)
	return strings.Join(lines, "\n"), err
}

func checksum(ctx context.Context, conn *sql.Conn, table string) (sum string, err error) {
	var name string
	err = conn.QueryRowContext(ctx, "CHECKSUM TABLE `"+table+"`").Scan(&name, &sum)
	return sum, err
}

func texts(ctx context.Context, conn *sql.Conn, query string) (all []string, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// with does something over a connection of its own.
func (s *preparedSchema) with(do func(context.Context, *sql.Conn) error) error {
	cfg, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		return err
	}
	return connected(cfg, do)
}
