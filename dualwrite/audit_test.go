package dualwrite_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/dualwrite"
	"holdover/killswitch"
)

// What the stores hold, read in SQL and in Redis, without the product.

// redisState is the state in a token's record; "none" without one.
func (s *stores) redisState(t *testing.T, token holdover.Token) string {
	t.Helper()
	state, err := s.raw.HGet(t.Context(), "hold:"+token.String(), "state").Result()
	if errors.Is(err, redis.Nil) {
		return "none"
	}
	if err != nil {
		t.Fatalf("hold %s in redis: %v", token, err)
	}
	return state
}

// mysqlState is the state in a token's row; "none" without one.
func (s *stores) mysqlState(t *testing.T, token holdover.Token) string {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SELECT state FROM reserved_quantities WHERE token=? AND line=0", token[:])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	state := "none"
	for rows.Next() {
		if err := rows.Scan(&state); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return state
}

// states fails unless both stores have the token so.
func (s *stores) states(t *testing.T, token holdover.Token, redis, mysql string) {
	t.Helper()
	if r, m := s.redisState(t, token), s.mysqlState(t, token); r != redis || m != mysql {
		t.Errorf("hold %s is %s in redis and %s in mysql, want %s and %s", token, r, m, redis, mysql)
	}
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// liveInRedis adds up the units of the item in Redis's live holds of the shop.
func (s *stores) liveInRedis(t *testing.T, shop, item int64) (units int64) {
	t.Helper()
	keys, err := s.raw.Keys(t.Context(), "hold:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		h, err := s.raw.HGetAll(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if h["shop"] != text(shop) || (h["state"] != "held" && h["state"] != "claiming") {
			continue
		}
		lines := h["lines"]
		if h["state"] == "claiming" && h["claimed"] != "" {
			lines = h["claimed"]
		}
		for line := range strings.SplitSeq(lines, ",") {
			parts := strings.Split(line, ":")
			if len(parts) == 3 && parts[0] == text(item) {
				units += number(t, parts[2])
			}
		}
	}
	return units
}

// liveInMySQL adds up the units of the item in MySQL's held holds of the shop.
func (s *stores) liveInMySQL(t *testing.T, shop, item int64) int64 {
	t.Helper()
	return s.count(t, "SELECT SUM(quantity) FROM reserved_quantities WHERE state='held' AND shop_id=? AND item_id=?", shop, item)
}

// sold adds up what claims took from the ledger.
func (s *stores) sold(t *testing.T, shop, item int64) int64 {
	t.Helper()
	return -s.count(t, "SELECT SUM(delta) FROM ledger_entries WHERE kind='claim' AND shop_id=? AND item_id=?", shop, item)
}

// conserved checks one item in both stores once nothing is under way: what was
// loaded is sold, held or free, and nothing was sold twice. held is how many
// units live holds have; both stores must say so.
func (s *stores) conserved(t *testing.T, shop, item, loaded, held, sold int64) {
	t.Helper()
	ledger := s.ledger(t, shop, item)
	if got := s.sold(t, shop, item); got != sold || ledger != loaded-sold {
		t.Errorf("item %d: %d units sold and %d in the ledger, want %d and %d", item, got, ledger, sold, loaded-sold)
	}
	if n := s.count(t, "SELECT COUNT(*) FROM ledger_entries WHERE kind='oversold' AND shop_id=? AND item_id=?", shop, item); n != 0 {
		t.Errorf("item %d: %d claims owe units that nobody had", item, n)
	}
	if r, m := s.liveInRedis(t, shop, item), s.liveInMySQL(t, shop, item); r != held || m != held {
		t.Errorf("item %d: %d units in live holds of redis and %d of mysql, want %d", item, r, m, held)
	}
	if counter := s.counter(t, shop, item); counter != ledger-held {
		t.Errorf("item %d: redis's counter is %d, want %d: ledger %d less held %d", item, counter, ledger-held, ledger, held)
	}
	if held > ledger {
		t.Errorf("item %d is oversold: %d units held, %d in the ledger", item, held, ledger)
	}
}

// newSwitch is the real kill switch on the real stores.
func newSwitch(t *testing.T, s *stores) *killswitch.Switch {
	t.Helper()
	sw, err := killswitch.New(killswitch.Config{Pod: pod, Redis: s.redis, MySQL: s.mysql, MySQLTimeout: 20 * time.Second, RedisTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sw.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sw
}

// trip flips the pod with the real switch. It may run on a facade's goroutine.
func trip(t *testing.T, sw *killswitch.Switch) killswitch.Tripped {
	t.Helper()
	tripped, err := sw.Trip(t.Context(), "test", "drill")
	if err != nil {
		t.Errorf("trip: %v", err)
	}
	if tripped.Owed != "" {
		t.Errorf("trip: %s", tripped.Owed)
	}
	return tripped
}

// home brings the pod to a stage from anywhere, a latch included, and all
// facades with it.
func home(t *testing.T, sw *killswitch.Switch, stage holdover.Stage, facades ...*dualwrite.Facade) {
	t.Helper()
	if f, err := facades[0].Agreed(); err == nil {
		if err := facades[0].Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f, err = facades[0].Agreed(); err == nil && f.Latched {
			if _, err := sw.Restore(t.Context(), "test", "again"); err != nil {
				t.Fatal(err)
			}
		}
	}
	reach(t, facades[0], stage)
	for _, f := range facades {
		if err := f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
