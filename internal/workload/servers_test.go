package workload

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the auditor gets a *sql.DB; the test opens it
	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/internal/teststack"
	"holdover/mysqlpool"
)

// servers is a pod's MySQL, with the product's schema, and its Redis; the test
// writes into them what a product would have.
type servers struct {
	t   *testing.T
	db  *sql.DB
	rdb *redis.Client
}

func newServers(t *testing.T) *servers {
	t.Helper()
	dsn := teststack.PreparedDSN(t, migrate)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	addr, n := teststack.FreshRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr, DB: n, MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	s := &servers{t: t, db: db, rdb: rdb}
	return s
}

func migrate(ctx context.Context, dsn string) error {
	_, err := mysqlpool.Migrate(ctx, dsn)
	return err
}

func (s *servers) do(ctx context.Context, args ...any) (any, error) {
	return s.rdb.Do(ctx, args...).Result()
}

func (s *servers) sql(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.ExecContext(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

func (s *servers) redis(args ...any) {
	s.t.Helper()
	if _, err := s.do(s.t.Context(), args...); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// hold writes a hold of shop 1 with one line into both stores.
func (s *servers) hold(token holdover.Token, state holdover.State, line holdover.Line) {
	s.t.Helper()
	s.sql(`REPLACE INTO reserved_quantities (token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, attempt, firm)
		VALUES (?, 0, 1, ?, ?, ?, ?, UTC_TIMESTAMP(3) + INTERVAL 1 MINUTE, UTC_TIMESTAMP(3), 1, TRUE)`,
		token[:], line.Item, line.Group, line.Quantity, state.String())
	s.redis("HSET", "x{1}:hold:"+token.String(), "state", state.String(), "shop", 1,
		"lines", fmt.Sprintf("%d:%d:%d", line.Item, line.Group, line.Quantity))
}

func (s *servers) deduct(token holdover.Token, line holdover.Line) {
	s.t.Helper()
	s.sql(`INSERT INTO ledger_entries (token, entry, shop_id, item_id, group_id, delta, kind, at)
		SELECT ?, COUNT(*), 1, ?, ?, ?, 'claim', UTC_TIMESTAMP(3) FROM ledger_entries WHERE token = ?`,
		token[:], line.Item, line.Group, -line.Quantity, token[:])
	s.sql(`UPDATE inventory_ledger SET available = available - ? WHERE shop_id = 1 AND item_id = ? AND group_id = ?`,
		line.Quantity, line.Item, line.Group)
}

// TestAuditOnServers writes one claimed, one released and one live hold into
// real stores, and then fault after fault.
func TestAuditOnServers(t *testing.T) {
	claimed, released, live := holdover.Token{1}, holdover.Token{2}, holdover.Token{3}
	line := one(5, 2, 2)
	tests := []struct {
		name  string
		stage holdover.Stage
		fault func(s *servers)
		want  Verdict // the faults
	}{
		{"sound in shadow", holdover.StageShadow, func(*servers) {}, Verdict{}},
		{"sound in mysql", holdover.StageMySQL, func(*servers) {}, Verdict{}},
		{"other shops are not looked at", holdover.StageMySQL, func(s *servers) {
			s.sql(`INSERT INTO inventory_ledger VALUES (77, 5, 1, 3)`)
			s.sql(`INSERT INTO ledger_entries VALUES (?, 0, 77, 5, 1, -9, 'claim', UTC_TIMESTAMP(3))`, released[:])
		}, Verdict{}},
		{"an end record without lines", holdover.StageJoint, func(s *servers) {
			s.sql(`INSERT INTO reserved_quantities (token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, attempt, firm)
				VALUES (?, 0, 1, 0, 0, 0, 'released', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, TRUE)`, []byte("0123456789abcdef"))
			s.redis("HSET", "x{1}:hold:"+holdover.Token{9}.String(), "state", "released", "shop", 1, "lines", "")
		}, Verdict{}},
		{"the hold is gone in MySQL", holdover.StageMySQL, func(s *servers) {
			s.sql(`DELETE FROM reserved_quantities WHERE token = ?`, live[:])
		}, Verdict{LostHolds: 1}},
		{"the hold is gone in Redis", holdover.StageRedis, func(s *servers) {
			s.redis("DEL", "x{1}:hold:"+live.String())
		}, Verdict{LostHolds: 1, CountersOff: 1}},
		{"deducted twice", holdover.StageMySQL, func(s *servers) {
			s.deduct(claimed, line)
			s.redis("DECRBY", "x{1}:stock:1:5", 2)
		}, Verdict{DoubleClaims: 1}},
		{"released and deducted", holdover.StageMySQL, func(s *servers) {
			s.deduct(released, line)
			s.redis("DECRBY", "x{1}:stock:1:5", 2)
		}, Verdict{WrongEnds: 1}},
		{"the ledger changed without an entry", holdover.StageMySQLOnly, func(s *servers) {
			s.sql(`UPDATE inventory_ledger SET available = available + 1 WHERE group_id = 1`)
		}, Verdict{LedgerOff: 1}},
		{"a part is being claimed", holdover.StageShadow, func(s *servers) {
			s.redis("HSET", "x{1}:hold:"+live.String(), "state", "claiming", "claimed", "5:2:1")
			s.redis("INCR", "x{1}:stock:1:5")
		}, Verdict{}},
		{"the rest of a part did not come back", holdover.StageShadow, func(s *servers) {
			s.redis("HSET", "x{1}:hold:"+live.String(), "state", "claiming", "claimed", "5:2:1")
		}, Verdict{CountersOff: 1}},
		{"the counter drifted", holdover.StageShadow, func(s *servers) { s.redis("INCR", "x{1}:stock:1:5") }, Verdict{CountersOff: 1}},
		{"the counter is gone", holdover.StageShadow, func(s *servers) { s.redis("DEL", "x{1}:stock:1:5") }, Verdict{CountersOff: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServers(t)
			s.sql(`INSERT INTO inventory_ledger VALUES (1, 5, 1, 10), (1, 5, 2, 10)`)
			s.redis("SET", "x{1}:stock:1:5", 20-2-2)
			s.redis("SET", "x{1}:fence", "not a hold")
			s.hold(claimed, holdover.StateClaimed, line)
			s.deduct(claimed, line)
			s.hold(released, holdover.StateReleased, line)
			s.hold(live, holdover.StateHeld, line)

			h := newHistory()
			h.granted(1, 2, 60_000, line).told(endClaimed, 3, 4)
			h.granted(1, 2, 60_000, line).told(endReleased, 3, 4)
			h.granted(1, 2, 60_000, line).expires = time.Now().Add(time.Minute).UnixMilli()
			test.fault(s)

			v, err := Audit(t.Context(), h.a, s.db, s.do, AuditConfig{
				Stock: []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 10}, {Shop: 1, Item: 5, Group: 2, Available: 10}},
				Stage: test.stage, RedisPrefix: "x{1}:", CounterTemplate: "x{1}:stock:<shop>:<item>",
				Readings: 2, Settle: time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := Verdict{
				Oversold: v.Oversold, LostHolds: v.LostHolds, DoubleClaims: v.DoubleClaims, WrongEnds: v.WrongEnds,
				FalseSoldOut: v.FalseSoldOut, LedgerOff: v.LedgerOff, CountersOff: v.CountersOff, UnexpectedTold: v.UnexpectedTold,
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) || v.OK != (test.want.faults() == 0) {
				t.Errorf("faults %+v, want %+v; all of it: %+v", got, test.want, v)
			}
			if wantReadings := min(2, 1+int(test.want.faults())); v.Readings != wantReadings {
				t.Errorf("%d readings, want %d", v.Readings, wantReadings)
			}
		})
	}
}

// A reaper between the two stores is not a fault: the difference is gone at
// the next reading.
func TestAuditReadsAgain(t *testing.T) {
	s := newServers(t)
	s.sql(`INSERT INTO inventory_ledger VALUES (1, 5, 1, 10)`)
	s.redis("SET", "inventory:1:5", 9)
	h := newHistory()
	h.granted(1, 2, 60_000, one(5, 1, 1)).told(endReleased, 3, 4)
	reads := 0
	v, err := Audit(t.Context(), h.a, s.db, func(ctx context.Context, args ...any) (any, error) {
		if args[0] == "MGET" {
			if reads++; reads == 2 {
				s.redis("INCR", "inventory:1:5")
			}
		}
		return s.do(ctx, args...)
	}, AuditConfig{Stock: []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 10}}, Stage: holdover.StageShadow, Settle: time.Millisecond})
	if err != nil || !v.OK || v.Readings != 2 || len(v.Details) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// More holds than one page of the scan, and a Redis that can't be read.
func TestReadRedisPagesAndErrors(t *testing.T) {
	s := newServers(t)
	s.sql(`INSERT INTO inventory_ledger VALUES (1, 5, 1, 10)`)
	pipe := s.rdb.Pipeline()
	for range 3*redisPage + 7 {
		pipe.HSet(t.Context(), "hold:"+holdover.NewToken().String(), "state", "held", "shop", 1, "lines", "5:1:1,6:2:3")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := AuditConfig{Stock: []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 10}}, Stage: holdover.StageShadow}
	r, err := ReadStores(t.Context(), s.db, s.do, cfg)
	if err != nil || len(r.Redis) != 3*redisPage+7 {
		t.Fatalf("%d holds, %v", len(r.Redis), err)
	}
	for _, h := range r.Redis {
		if h.State != holdover.StateHeld || h.Shop != 1 || !holdover.SameLines(h.Lines, []holdover.Line{one(5, 1, 1), one(6, 2, 3)}) {
			t.Fatalf("read %+v", h)
		}
	}
	for _, write := range [][]any{
		{"HSET", "hold:not-a-token", "state", "held", "shop", 1, "lines", ""},
		{"HSET", "hold:" + holdover.NewToken().String(), "state", "lost", "shop", 1, "lines", ""},
		{"HSET", "hold:" + holdover.NewToken().String(), "state", "held", "shop", 1, "lines", "5:1"},
		{"SET", "inventory:1:5", "many"},
	} {
		s.redis(write...)
		if _, err := ReadStores(t.Context(), s.db, s.do, cfg); err == nil || !strings.Contains(err.Error(), "audit: read Redis") {
			t.Errorf("after %v: error %v, want one that says what could not be read", write, err)
		}
		s.redis("DEL", write[1])
	}
}
