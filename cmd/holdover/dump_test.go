package main

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // to look into the stores behind the product
	"github.com/redis/go-redis/v9"
)

// client looks into a pod's Redis behind the product.
func (p place) client(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: p.redis, DB: p.db, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dump is everything that is in a pod's stores, but for the instances' signs of
// life.
func (p place) dump(t *testing.T) map[string]string {
	t.Helper()
	ctx, all := t.Context(), map[string]string{}
	c := redis.NewClient(&redis.Options{Addr: p.redis, DB: p.db, MaxRetries: -1})
	defer c.Close()
	keys, err := c.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if strings.Contains(key, "instance") {
			continue
		}
		value, err := c.Dump(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		all["redis "+key] = value
	}
	db, err := sql.Open("mysql", p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range column(t, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()") {
		all["mysql "+table] = strings.Join(column(t, db, "SELECT COUNT(*) FROM `"+table+"`"), "")
		if sums := columns(t, db, "CHECKSUM TABLE `"+table+"`"); len(sums) == 1 {
			all["mysql "+table] += " " + sums[0][1]
		}
	}
	return all
}

func column(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	var first []string
	for _, row := range columns(t, db, query) {
		first = append(first, row[0])
	}
	return first
}

func columns(t *testing.T, db *sql.DB, query string) [][]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for rows.Next() {
		row, into := make([]string, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (s *site) dump() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for _, p := range s.pods {
		for k, v := range p.dump(s.t) {
			all[p.name+" "+k] = v
		}
	}
	return all
}
