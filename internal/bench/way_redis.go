package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/legacyredis"
)

// redisPath is the system before the migration: package legacyredis, whose
// script checks and takes the counter, writes the hold and its expiry.
type redisPath struct {
	servers *servers
	store   *legacyredis.Store
	path    *legacyredis.Path
	items   int
	stock   []int64
}

func (s *servers) counterTemplate() string { return s.prefix + "inventory:<shop>:<item>" }

// openRedisPath opens the path over a ledger; reserves don't touch it.
func openRedisPath(ctx context.Context, s *servers, set setting, conns int, ledger legacyredis.Ledger) (*redisPath, error) {
	store, err := legacyredis.Open(ctx, legacyredis.Config{
		Pod: pod, Addr: cmp.Or(set.redisProxy, s.addr), Prefix: s.prefix, CounterTemplate: s.counterTemplate(), PoolSize: conns,
		OpTimeout: 5 * time.Second, TripTimeout: 5 * time.Second, // on two cores a queue of 256 callers is no failure
	})
	if err != nil {
		return nil, err
	}
	w := &redisPath{servers: s, store: store, items: len(set.stock), stock: set.stock}
	counters := make(map[int64]int64, len(set.stock))
	for i, n := range set.stock {
		counters[int64(i+1)] = n
	}
	if _, err = store.Load(ctx, 1, counters, true); err == nil {
		w.path, err = legacyredis.NewPath(store, ledger, legacyredis.PathConfig{LedgerTimeout: callTimeout})
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return w, nil
}

func openRedis(ctx context.Context, s *servers, set setting) (way, error) {
	w, err := openRedisPath(ctx, s, set, set.conns, noLedger{})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// noLedger stands where nothing is claimed.
type noLedger struct{}

func (noLedger) Apply(context.Context, holdover.Hold) (holdover.Hold, error) {
	return holdover.Hold{}, errors.New("bench: this turn claims nothing")
}

const holdTTL = 15 * time.Minute

func (w *redisPath) reserve(ctx context.Context, c *call) (bool, error) {
	c.attempts++
	_, err := w.path.Reserve(ctx, holdover.Request{Shop: 1, Token: c.token, Lines: c.lines, TTL: holdTTL})
	return grantedOr(err)
}

// grantedOr maps the root's errors to a way's answer.
func grantedOr(err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, holdover.ErrOutOfStock):
		return false, nil
	default:
		return false, err
	}
}

func (w *redisPath) close() error { return w.store.Close() }

func (w *redisPath) count(ctx context.Context) (truth, error) {
	return w.servers.countRedis(ctx, w.items, w.servers.prefix+"holds")
}

// countRedis reads the counters and adds up the holds that the sorted set of
// live ones names.
func (s *servers) countRedis(ctx context.Context, items int, index string) (t truth, err error) {
	t = truth{left: make([]int64, items), held: make([]int64, items)}
	for i := range items {
		key := strings.NewReplacer("<shop>", "1", "<item>", fmt.Sprint(i+1)).Replace(s.counterTemplate())
		if t.left[i], err = s.redis.Get(ctx, key).Int64(); err != nil {
			return t, fmt.Errorf("bench: read the counter %s: %w", key, err)
		}
	}
	if t.holds, err = s.redis.ZCard(ctx, index).Result(); err != nil {
		return t, fmt.Errorf("bench: count the holds in Redis: %w", err)
	}
	return t, nil
}

// redisBare is the least that a reservation in Redis can be: one short script
// without the protocol's checks, with waiting calls sent as one pipeline.
type redisBare struct {
	*combiner
	servers *servers
	client  *redis.Client
	script  string // its SHA
	items   int
}

const bareScript = `local left = tonumber(redis.call('GET', KEYS[1]))
if left < tonumber(ARGV[1]) then return -1 end
redis.call('HSET', KEYS[2], 'item', ARGV[2], 'quantity', ARGV[1], 'expires_ms', ARGV[3])
redis.call('ZADD', KEYS[3], ARGV[3], KEYS[2])
return redis.call('DECRBY', KEYS[1], ARGV[1])`

// barePipelines is how many pipelines are under way; more were no faster.
const barePipelines = 4

func openRedisBare(ctx context.Context, s *servers, set setting) (way, error) {
	w := &redisBare{servers: s, items: len(set.stock), client: redis.NewClient(&redis.Options{
		Addr: cmp.Or(set.redisProxy, s.addr), MaxRetries: -1, PoolSize: barePipelines, ReadTimeout: callTimeout, DisableIdentity: true,
	})}
	var err error
	for i, n := range set.stock {
		err = errors.Join(err, w.client.Set(ctx, w.counter(int64(i+1)), n, 0).Err())
	}
	if err == nil {
		w.script, err = w.client.ScriptLoad(ctx, bareScript).Result()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: fill Redis: %w", err), w.client.Close())
	}
	w.combiner = newCombiner(barePipelines, func(batch []*call) { w.serve(context.WithoutCancel(ctx), batch) })
	return w, nil
}

func (w *redisBare) counter(item int64) string {
	return fmt.Sprintf("%sinventory:1:%d", w.servers.prefix, item)
}

func (w *redisBare) reserve(_ context.Context, c *call) (bool, error) { return w.do(c) }

func (w *redisBare) serve(ctx context.Context, batch []*call) {
	pipe := w.client.Pipeline()
	expires := time.Now().Add(holdTTL).UnixMilli()
	for _, c := range batch {
		l := c.line()
		pipe.EvalSha(ctx, w.script, []string{w.counter(l.Item), w.servers.prefix + "hold:" + c.token.String(), w.servers.prefix + "holds"},
			l.Quantity, l.Item, expires)
	}
	answers, _ := pipe.Exec(ctx) // each answer has its own error
	for i, c := range batch {
		c.attempts++
		left, err := answers[i].(*redis.Cmd).Int64()
		c.reply <- reply{err == nil && left >= 0, err}
	}
}

func (w *redisBare) close() error {
	w.combiner.close()
	return w.client.Close()
}

func (w *redisBare) count(ctx context.Context) (truth, error) {
	return w.servers.countRedis(ctx, w.items, w.servers.prefix+"holds")
}
