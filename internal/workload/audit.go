package workload

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Audit judges the book of one pod against what db and redis have now. A
// difference that depends on a reading must be in each of several readings: a
// reaper may be between the two stores. redis may be nil in mysql-only.
func Audit(ctx context.Context, a *Account, db *sql.DB, redis RedisDo, cfg AuditConfig) (Verdict, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return Verdict{}, err
	}
	if db == nil {
		return Verdict{}, fmt.Errorf("audit: no MySQL to count in")
	}
	book := judgeBook(a, c)
	for n := 1; ; n++ {
		r, err := ReadStores(ctx, db, redis, c)
		if err != nil {
			return Verdict{}, err
		}
		v := book
		v.Details = append([]string(nil), book.Details...)
		judgeStores(&v, a, r, c)
		v.Readings = n
		conclude(&v)
		if v.faults() == book.faults() && v.StillPending == 0 || n >= c.Readings {
			return v, nil
		}
		if !wait(ctx, c.Settle) {
			return Verdict{}, fmt.Errorf("audit: ended before the stores were settled: %w", context.Cause(ctx))
		}
	}
}

// ReadStores reads both stores of a pod: MySQL in one snapshot, Redis close to
// it.
func ReadStores(ctx context.Context, db *sql.DB, redis RedisDo, cfg AuditConfig) (Reading, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return Reading{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.ReadTimeout)
	defer cancel()
	began := time.Now()
	r, err := readMySQL(ctx, db, c)
	if err != nil {
		return Reading{}, fmt.Errorf("audit: read MySQL (%s in): %w", time.Since(began).Round(time.Millisecond), err)
	}
	if redis == nil {
		return r, nil
	}
	read := time.Now()
	if err := readRedis(ctx, redis, c, &r); err != nil {
		return Reading{}, fmt.Errorf("audit: read Redis (%s in): %w", time.Since(began).Round(time.Millisecond), err)
	}
	r.Now = r.Now.Add(time.Since(read)) // a hold may have expired while Redis was read
	return r, nil
}
