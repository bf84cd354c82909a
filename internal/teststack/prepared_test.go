package teststack_test

import (
	"context"
	"database/sql"
	"testing"

	"holdover/internal/teststack"
)

// TestPreparedSchemas: prepare is asked for once, the next test finds what it made and nothing else, and what a test has
// altered is not used again.
func TestPreparedSchemas(t *testing.T) {
	teststack.NoLeaks(t)
	prepares := 0
	prepare := func(ctx context.Context, dsn string) error {
		prepares++
		db, err := sql.Open("mysql", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		for _, statement := range []string{
			"CREATE TABLE seeded (id INT PRIMARY KEY)", "INSERT INTO seeded VALUES (7)",
			"CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
			"CREATE TABLE child (id INT PRIMARY KEY, parent INT NOT NULL, FOREIGN KEY (parent) REFERENCES parent (id)) ENGINE=InnoDB",
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range []struct {
		name, statement string
		prepares        int // so far
	}{
		{"first", "INSERT INTO parent VALUES (1)", 1},
		{"rows are gone", "INSERT INTO parent VALUES (1)", 1}, // it would be there
		{"a column is added", "ALTER TABLE child ADD COLUMN more INT", 1},
		{"it is another", "ALTER TABLE child ADD COLUMN more INT", 2}, // it would be there
		{"a seeded row is changed", "UPDATE seeded SET id = 8", 3},
		{"it is another once more", "INSERT INTO seeded VALUES (8)", 4},
		{"a trigger is added", "CREATE TRIGGER doubled BEFORE INSERT ON parent FOR EACH ROW SET NEW.id = 2 * NEW.id", 5},
		{"and gone", "INSERT INTO parent VALUES (1)", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, err := sql.Open("mysql", teststack.PreparedDSN(t, prepare))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if prepares != c.prepares {
				t.Errorf("prepared %d times, want %d", prepares, c.prepares)
			}
			var seeds, rows int
			if err := db.QueryRow("SELECT (SELECT SUM(id) FROM seeded), (SELECT COUNT(*) FROM parent) + (SELECT COUNT(*) FROM child)").Scan(&seeds, &rows); err != nil {
				t.Fatal(err)
			}
			if seeds != 7 || rows != 0 {
				t.Errorf("seeded %d, %d rows of another test", seeds, rows)
			}
			for _, statement := range []string{c.statement, "INSERT INTO parent VALUES (20)", "INSERT INTO child (id, parent) SELECT 1, MAX(id) FROM parent"} {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
