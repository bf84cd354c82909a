package mysqlpool

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"holdover"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaTable is where the applied migrations are recorded.
const schemaTable = "holdover_schema"

// Migration is one step of the schema.
type Migration struct {
	Version int64     `json:"version"`
	Name    string    `json:"name"`
	Applied bool      `json:"applied"`
	At      time.Time `json:"at"` // zero while it is pending
}

// Migrate brings the schema that dsn names to the newest version and returns
// what it applied. Two processes that migrate at once: one waits. One that died
// half way is resumed by the next run: a migration is one statement that does
// nothing when its table is there.
//
// With a Ledger of the application's (Config.Ledger) that table is left alone.
func Migrate(ctx context.Context, dsn string, ledger ...Ledger) ([]Migration, error) {
	var applied []Migration
	err := withSchema(ctx, dsn, ledger, func(db *sql.DB, p *goose.Provider, schema string) error {
		unlock, err := lockSchema(ctx, db, schema)
		if err != nil {
			return err
		}
		defer unlock()
		results, err := p.Up(ctx)
		var partial *goose.PartialError
		if errors.As(err, &partial) {
			results = partial.Applied
		}
		for _, r := range results {
			applied = append(applied, Migration{Version: r.Source.Version, Name: path.Base(r.Source.Path), Applied: true})
		}
		if err != nil {
			return fmt.Errorf("migrate schema %s: %w (run it again: it goes on where it stopped)", schema, err)
		}
		return nil
	})
	return applied, err
}

// MigrateStatus lists every migration and whether it was applied.
func MigrateStatus(ctx context.Context, dsn string, ledger ...Ledger) ([]Migration, error) {
	var all []Migration
	err := withSchema(ctx, dsn, ledger, func(_ *sql.DB, p *goose.Provider, schema string) error {
		states, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("read the migrations of schema %s: %w", schema, err)
		}
		for _, st := range states {
			all = append(all, Migration{
				Version: st.Source.Version, Name: path.Base(st.Source.Path),
				Applied: st.State == goose.StateApplied, At: st.AppliedAt,
			})
		}
		return nil
	})
	return all, err
}

// MigratePrint writes the whole schema as plain SQL, for those who apply it
// with a tool of their own.
func MigratePrint(w io.Writer) error {
	names, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := schemaFiles.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "-- %s\n", path.Base(name)); err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "-- +goose") {
				continue
			}
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	return nil
}

// ownLedger are the migrations of holdover's own ledger table.
var ownLedger = []int64{1, 15}

// newestVersion is the version of the last embedded migration that the ledger needs.
func newestVersion(ledger Ledger) (int64, error) {
	names, err := fs.Glob(schemaFiles, "schema/*.sql")
	for i := len(names) - 1; i >= 0 && err == nil; i-- {
		var version int64
		version, err = goose.NumericComponent(names[i])
		if err == nil && (ledger.own() || !slices.Contains(ownLedger, version)) {
			return version, nil
		}
	}
	return 0, errors.Join(err, errors.New("no migrations are embedded"))
}

func withSchema(ctx context.Context, dsn string, ledger []Ledger, f func(*sql.DB, *goose.Provider, string) error) error {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return err
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return &holdover.InvalidError{Field: "dsn", Problem: "can't be used: " + err.Error()}
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	sub, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		return err
	}
	options := []goose.ProviderOption{goose.WithTableName(schemaTable), goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler))}
	if slices.ContainsFunc(ledger, func(l Ledger) bool { return !l.own() }) {
		options = append(options, goose.WithExcludeVersions(ownLedger))
	}
	p, err := goose.NewProvider(goose.DialectMySQL, db, sub, options...)
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	return f(db, p, cfg.DBName)
}

// lockSchema takes a server-side lock on a connection of its own, so that it
// goes away with a process that dies. It waits as long as ctx allows.
func lockSchema(ctx context.Context, db *sql.DB, schema string) (unlock func(), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to migrate schema %s: %w", schema, err)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, schema)
	name := fmt.Sprintf("holdover.schema.%016x", h.Sum64()) // lock names are server-wide and at most 64 bytes
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, stmtSchemaLock, name, 5).Scan(&got); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("wait for another migration of schema %s: %w", schema, err)
		}
		if got.Int64 == 1 {
			break
		}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := conn.ExecContext(ctx, stmtSchemaUnlock, name); err != nil {
			discard(conn) // the lock goes with the connection
		}
		_ = conn.Close()
	}, nil
}
